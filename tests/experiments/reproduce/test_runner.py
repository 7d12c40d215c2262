"""Published tables: rows are trained with settings chosen on validation records, and put beside the printed figures."""

from __future__ import annotations

import io
import math
import re
import tomllib
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from rich.console import Console

from tests.rendered import markdown_of
from vflpriv import api
from vflpriv.common.registry import find
from vflpriv.core.systems import System
from vflpriv.errors import InputError
from vflpriv.experiments.curves import LearningCurve
from vflpriv.experiments.learning import learning_curve
from vflpriv.experiments.reproduce.page import figures_table
from vflpriv.experiments.reproduce.plots import guarantee_plot, learning_plots
from vflpriv.experiments.reproduce.profile import Measure, load_profile, profile_names
from vflpriv.experiments.reproduce.result import MEASURES, Figure, Reproduction
from vflpriv.experiments.reproduce.runner import reproduce_profile
from vflpriv.render.terminal import print_result
from vflpriv.run.systems import build_system, load_data

PROFILE = """
title = "A table"
source = "A paper, Table I"
chosen = "by validation records"
target = 30
tried = 0.5
evaluations = 4
seeds = 2
data = { name = "digits", devices = 2, partition = "rows" }
engine = { rounds = 24, batch_size = 64 }
quick = { rounds = 0.5, data = { train = 200 } }

[[row]]
key = "split"
paper = { accuracy = 80.0, megabytes = 1.0, mebibytes = 1.0 }
engine = { name = "split" }
tries = [{ device_rate = 1e-6, server_rate = 1e-6 }, { device_rate = 0.5, server_rate = 0.5 }]

[[row]]
key = "noised"
title = "With noise"
paper = { accuracy = 99.0 }
engine = { name = "send-once", rounds = 4, epsilon = 0.5 }
protected = { claimed = 0.5, unit = "record", view = "devices(all)" }
explained = "another model"
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("profile") / "table.toml"
    path.write_text(PROFILE, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def report(path: Path) -> Reproduction:
    return reproduce_profile(load_profile(path), quiet=True)


def test_the_better_setting_on_validation_records_is_taken(report: Reproduction) -> None:
    """Margin: 0.08 against 0.65."""
    split = report.lines[0]
    slow, fast = split.tried
    assert slow.accuracy < fast.accuracy
    assert split.settings["device_rate"] == 0.5
    assert not report.lines[1].tried


def test_figures_are_means_over_seeds(report: Reproduction) -> None:
    split, noised = report.lines
    accuracy, megabytes, mebibytes = split.figures
    ends = [100 * curve.accuracy[-1] for curve in split.curves]
    assert [curve.seed for curve in split.curves] == [0, 1]
    assert accuracy.values == pytest.approx(ends)
    assert accuracy.mean == pytest.approx(sum(ends) / 2)
    assert accuracy.difference == pytest.approx(sum(ends) / 2 - 80)
    first = [next(m for a, m in zip(c.accuracy, c.megabytes, strict=True) if a >= 0.3) for c in split.curves]
    assert megabytes.values == pytest.approx(first)
    assert mebibytes.values == pytest.approx([count / 1.048576 for count in first])
    assert noised.guarantee is not None
    assert 0.45 < noised.guarantee.accounted <= 0.5


def test_curves_end_at_the_last_round(report: Reproduction) -> None:
    curve = report.lines[0].curves[0]
    assert curve.rounds == (6, 12, 18, 24)
    assert list(curve.megabytes) == sorted(curve.megabytes)


def test_a_target_that_one_seed_misses_has_no_mean(path: Path) -> None:
    profile = load_profile(path).model_copy(update={"target": 100.0})
    report = reproduce_profile(profile, only=["split"], seeds=1, quiet=True)
    (figure,) = [f for f in report.lines[0].figures if f.measure == "megabytes"]
    assert figure.mean is None
    assert figure.large
    assert report.lines[0].open


def test_quick_trains_fewer_rounds_and_records(path: Path) -> None:
    report = reproduce_profile(load_profile(path), quick=True, quiet=True)
    assert report.seeds == 1
    assert report.lines[0].curves[0].rounds[-1] == 12
    assert report.data["records"] == 200
    assert report.command == "vflpriv reproduce table --quick"
    assert "quick" in report.headline


def test_a_row_without_printed_figures_has_its_accuracy_with_an_interval(path: Path) -> None:
    profile = load_profile(path)
    profile = profile.model_copy(update={"row": tuple(r.model_copy(update={"paper": {}}) for r in profile.row)})
    (line,) = reproduce_profile(profile, only=["split"], seeds=2, quiet=True).lines
    (figure,) = line.figures
    assert (figure.measure, figure.paper) == ("accuracy", None)
    assert figure.low < figure.mean < figure.high
    assert not figure.large


@pytest.mark.parametrize(
    ("values", "low", "high", "large"),
    [((105.0,), 0.0, math.inf, False), ((120.0,), 0.0, math.inf, True), ((120.0, 100.0), 90.0, 130.0, False)],
)
def test_an_amount_of_one_seed_has_no_interval_to_agree_with(values, low, high, large) -> None:
    mean = sum(values) / len(values)
    figure = Figure(measure="megabytes", paper=100.0, values=values, mean=mean, low=low, high=high)
    assert figure.large == large


def test_quick_says_which_settings_are_smaller(path: Path) -> None:
    profile = load_profile(path)
    quick = profile.quick.model_copy(update={"engine": {"batch_size": 32}})
    profile = profile.model_copy(update={"quick": quick})
    report = reproduce_profile(profile, quick=True, only=["split"], quiet=True)
    assert report.shortened == "A quick look, with fewer rounds than published, train = 200, batch_size = 32."
    assert report.lines[0].settings["batch_size"] == 32
    whole = reproduce_profile(profile, only=["split"], share=0.1, quiet=True)
    assert whole.smaller == {}
    assert whole.lines[0].settings["batch_size"] == 64


def test_quick_may_be_measured_on_fewer_test_records(path: Path) -> None:
    profile = load_profile(path)
    profile = profile.model_copy(update={"quick": profile.quick.model_copy(update={"test": 7})})
    (line,) = reproduce_profile(profile, quick=True, only=["split"], quiet=True).lines
    right = 7 * line.curves[0].accuracy[-1]
    assert right == pytest.approx(round(right))


def test_a_stopped_run_goes_on(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile, trained = load_profile(path), []
    whole = reproduce_profile(profile, quick=True, quiet=True)

    def counted(system: System, **how: Any) -> LearningCurve:
        if len(trained) == 2:
            raise KeyboardInterrupt
        trained.append(system.key)
        return learning_curve(system, **how)

    monkeypatch.setattr("vflpriv.experiments.learning.learning_curve", counted)
    with pytest.raises(KeyboardInterrupt):
        reproduce_profile(profile, quick=True, quiet=True, store=tmp_path)
    trained.clear()
    assert reproduce_profile(profile, quick=True, quiet=True, store=tmp_path) == whole
    assert trained == ["split", "noised"]


def test_all_files_are_written(path: Path, tmp_path: Path) -> None:
    report = api.reproduce(path, quick=True, only=["noised"], out=tmp_path / "out", quiet=True, workers=1)
    written = sorted(file.name for file in (tmp_path / "out").glob("reproduction.*"))
    assert written == ["reproduction.html", "reproduction.json", "reproduction.md"]
    assert Reproduction.model_validate_json((tmp_path / "out" / "reproduction.json").read_text("utf-8")) == report
    page = (tmp_path / "out" / "reproduction.html").read_text("utf-8")
    assert "another model" in page
    assert "<svg" in page


LIKE = """
title = "A figure"
source = "A paper, Figure 2"
chosen = "by validation records"
target = 30
measures = ["accuracy", "seconds"]
tried = 0.25
seeds = 1
data = { name = "digits", devices = 2, partition = "rows", train = 200 }
engine = { rounds = 8, batch_size = 32 }

[[row]]
key = "first"
engine = { name = "split" }
tries = [{ device_rate = 1e-6, server_rate = 1e-6 }, { device_rate = 0.5, server_rate = 0.5 }]

[[row]]
key = "second"
engine = { name = "split", embedding = 8, delays.network = { mean = 2.0 } }
like = "first"

[[row]]
key = "never"
paper = { megabytes = inf }
engine = { name = "split", device_rate = 1e-6, server_rate = 1e-6 }
"""


@pytest.fixture(scope="module")
def alike(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("profile") / "alike.toml"
    path.write_text(LIKE, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def alike_report(alike: Path) -> Reproduction:
    return reproduce_profile(load_profile(alike), quiet=True)


def test_a_row_takes_the_settings_that_were_chosen_for_another(alike: Path, alike_report: Reproduction) -> None:
    first, second, _ = alike_report.lines
    assert len(first.tried) == 2
    assert not second.tried
    assert (first.settings["device_rate"], second.settings["device_rate"]) == (0.5, 0.5)
    (alone,) = reproduce_profile(load_profile(alike), only=["second"], quiet=True).lines
    assert alone == second


def test_measures_are_shown_without_a_printed_figure_where_trainings_have_them(alike_report: Reproduction) -> None:
    first, second, _ = alike_report.lines
    assert [figure.measure for figure in first.figures] == ["accuracy"]
    assert [(figure.measure, figure.paper, figure.large) for figure in second.figures] == [
        ("accuracy", None, False),
        ("seconds", None, False),
    ]
    curve = second.curves[0]
    assert second.figures[1].mean == curve.until(0.3, curve.seconds)
    assert next(iter(figures_table(alike_report).rows))[2] == "–"
    plots = learning_plots(alike_report)
    assert [plot.header[-1] for plot in plots] == [
        "Rounds",
        "MB on the wire, all devices",
        "Simulated seconds",
    ]
    assert [row[0] for row in plots[-1].rows] == ["second"]


def test_a_training_that_diverged_is_named_beside_its_figures(alike_report: Reproduction) -> None:
    first = alike_report.lines[0]
    curves = tuple(curve.model_copy(update={"diverged": 1_200}) for curve in first.curves)
    found = alike_report.model_copy(update={"lines": (first.model_copy(update={"curves": curves}),)})
    (row,) = figures_table(found).rows
    assert row[-1].startswith("diverged: outputs are no numbers by round 1,200")
    half = first.model_copy(update={"curves": (*curves, *first.curves)})
    assert half.diverged.startswith("1 of 2 trainings diverged")
    assert first.diverged == ""


def test_columns_without_anything_are_not_printed(report: Reproduction, alike_report: Reproduction) -> None:
    bare = alike_report.model_copy(update={"lines": alike_report.lines[:2]})
    printed = []
    for each in (report, bare):
        text = io.StringIO()
        print_result(each, Console(file=text, width=200))
        printed.append(text.getvalue())
    assert "difference" in printed[0]
    assert "paper" in printed[0]
    assert "difference" not in printed[1]
    assert "why it differs" not in printed[1]


def test_a_target_that_neither_reaches_agrees(alike_report: Reproduction) -> None:
    megabytes, _ = alike_report.lines[2].figures
    assert megabytes.mean is None
    assert not megabytes.large
    assert Reproduction.model_validate_json(alike_report.to_json()) == alike_report
    (row,) = [row for row in figures_table(alike_report).rows if "MB" in row[1]]
    assert row[2:4] == ("not reached", "not reached")
    reached = megabytes.model_copy(update={"mean": 3.0, "values": (3.0,), "low": 3.0, "high": 3.0})
    assert reached.large
    assert reached.difference is None


def test_tries_are_trained_for_their_share_of_the_rounds(alike: Path) -> None:
    profile = load_profile(alike)
    row = profile.row[0]
    tried = profile.config(row, {}, seed=0, quick=False, device="cpu", validated=True)
    assert tried.system[0].engine["rounds"] == 2
    assert tried.data.validation == profile.validation
    assert profile.config(row, {}, seed=0, quick=False, device="cpu").system[0].engine["rounds"] == 8


def test_guarantees_are_drawn_at_both_budgets(report: Reproduction) -> None:
    plot = guarantee_plot(report)
    assert plot is not None
    (row,) = plot.rows
    assert row[0] == "With noise"
    assert row[2] == "0.50"
    assert "claimed" in plot.svg
    bare = [line.model_copy(update={"guarantee": None}) for line in report.lines]
    assert guarantee_plot(report.model_copy(update={"lines": tuple(bare)})) is None


def test_an_infinite_budget_is_drawn_at_the_edge(report: Reproduction) -> None:
    noised = report.lines[1]
    assert noised.guarantee is not None
    endless = noised.guarantee.model_copy(update={"accounted": float("inf")})
    line = noised.model_copy(update={"guarantee": endless})
    plot = guarantee_plot(report.model_copy(update={"lines": (line,)}))
    assert plot is not None
    assert plot.rows[0][3] == "∞"


def test_the_legend_of_many_rows_is_below_the_plot(report: Reproduction) -> None:
    line = report.lines[0]
    many = [line.model_copy(update={"title": f"row {number}"}) for number in range(12)]
    few = learning_plots(report.model_copy(update={"lines": tuple(many[:3])}))[0].svg
    all_of_them = learning_plots(report.model_copy(update={"lines": tuple(many)}))[0].svg
    heights = [
        float(found.group(1)) for text in (few, all_of_them) if (found := re.search(r"viewBox=\"0 0 \S+ (\S+)\"", text))
    ]
    assert heights[1] > heights[0] + 50
    assert "row 11" in all_of_them
    assert len(set(re.findall(r'class="line ([\w-]+)"', all_of_them)) - {"frame"}) == 1  # all rows: one engine


def test_an_unknown_row_is_refused(path: Path) -> None:
    with pytest.raises(InputError, match="--only = 'other': expected one of split, noised"):
        reproduce_profile(load_profile(path), only=["other"])


@pytest.mark.parametrize(("quick", "rounds"), [(False, 12), (True, 6)])
def test_settings_are_tried_for_a_share_of_the_rounds(path: Path, *, quick: bool, rounds: int) -> None:
    profile = load_profile(path)
    config = profile.config(profile.row[0], {}, seed=0, quick=quick, device="cpu", validated=True)
    assert config.system[0].engine["rounds"] == rounds
    assert config.data.validation == 0.1


def test_a_learning_curve_is_that_of_its_seed(path: Path) -> None:
    profile = load_profile(path)
    config = profile.config(profile.row[0], {}, seed=3, quick=True, device="cpu")
    system = build_system(config, 0, load_data(config))
    assert learning_curve(system) == learning_curve(system)
    assert learning_curve(system).seed == 3


def test_a_training_of_one_round_says_that_its_heads_show_the_start(path: Path) -> None:
    profile = load_profile(path)
    config = profile.config(profile.row[0], {"name": "vimadmm", "rounds": 1}, seed=0, quick=True, device="cpu")
    curve = learning_curve(build_system(config, 0, load_data(config)))
    assert len(curve.importance) == 2
    assert curve.importance_caveat.startswith("The heads have hardly moved")


def test_every_measure_has_a_name_in_tables() -> None:
    assert set(get_args(Measure)) == set(MEASURES)


@pytest.mark.parametrize("name", profile_names())
def test_profiles_of_the_package_declare_systems(name: str) -> None:
    profile = load_profile(name)
    assert profile.source.strip()
    for row in profile.row:
        assert row.paper or row.protected or row.title
        tries = profile.tried_by(row).tries or ({},)
        config = profile.config(row, tries[0], seed=0, quick=True, device="cpu", validated=True)
        raw = dict(config.system[0].engine)
        settings = find("engine", raw.pop("name")).settings_type
        settings.model_validate(settings.completed(raw))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"row": []}, "row"),
        ({"target": 120}, "target"),
        ({"target": None}, "config"),
        ({"colour": "red"}, "colour"),
        ({"row": [{"key": "a", "engine": {"name": "split"}, "like": "b"}]}, "config"),
        ({"target": None, "row": [{"key": "a", "engine": {"name": "split"}}], "measures": ["seconds"]}, "config"),
    ],
)
def test_bad_profiles_name_the_field(change: dict[str, Any], field: str, tmp_path: Path) -> None:
    tree = {**tomllib.loads(PROFILE), **change}
    path = tmp_path / "bad.yaml"
    path.write_text(yaml.safe_dump({k: v for k, v in tree.items() if v is not None}), encoding="utf-8")
    with pytest.raises(InputError) as error:
        load_profile(path)
    assert error.value.field == field


STOPPED = """
title = "A table"
source = "A paper, Table II"
chosen = "by validation records"
evaluations = 4
seeds = 1
stop = "validation"
drop = 3
data = { name = "digits", devices = 2, partition = "rows", train = 300, validation = 0.2 }
engine = { rounds = 12, batch_size = 32, name = "split" }

[[row]]
key = "noised"
paper = { accuracy = 80.0 }
engine = { protection = "client", clip = 0.1, noise = "paper", epsilon = 4.0 }
tries = [{ device_rate = 1e-6, server_rate = 1e-6 }, { device_rate = 0.5, server_rate = 0.5 }]
protected = { claimed = 4, unit = "client-zero", view = "server" }
"""


def stopped_after(place: int, end: int) -> Any:
    """A training that is best at one evaluation and ends at another."""

    def curve(system: System, *, evaluations: int, drop: float | None, **how: Any) -> LearningCurve:
        rounds = (3, 6, 9, 12)[:end]
        found = tuple(0.8 if number == place else 0.2 for number in range(end))
        assert (evaluations, drop) == (4, pytest.approx(0.03))
        return LearningCurve(seed=system.seed, rounds=rounds, accuracy=found, validation=found, megabytes=found)

    return curve


def test_a_budget_counts_the_rounds_up_to_the_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "stopped.toml"
    path.write_text(STOPPED, encoding="utf-8")
    accounted = []
    for place, end in ((0, 2), (1, 2), (0, 4)):
        monkeypatch.setattr("vflpriv.experiments.learning.learning_curve", stopped_after(place, end))
        report = reproduce_profile(load_profile(path), quiet=True)
        (line,) = report.lines
        assert line.guarantee is not None
        assert line.figures[0].mean == pytest.approx(80)
        assert line.accuracy == pytest.approx(0.8)
        accounted.append(line.guarantee.accounted)
    assert accounted[0] == accounted[1] < accounted[2]
    assert "best on validation records" in markdown_of(report)
    assert "3 points below the best" in report.stopping
    assert "all rounds up to that end" in report.stopping


def test_seeds_that_stop_at_different_rounds_are_drawn_as_far_as_all_go(
    report: Reproduction,
) -> None:
    first, second = report.lines[0].curves
    short = second.model_copy(update={"rounds": (6, 12), "accuracy": (0.1, 0.2), "megabytes": (1.0, 2.0)})
    line = report.lines[0].model_copy(update={"curves": (first, short)})
    plot = learning_plots(report.model_copy(update={"lines": (line,)}))[0]
    assert plot.rows[0][2] == "18"  # of 24 and 12 rounds


def test_stopping_needs_validation_records(tmp_path: Path) -> None:
    path = tmp_path / "stopped.toml"
    path.write_text(STOPPED.replace(", validation = 0.2", ""), encoding="utf-8")
    with pytest.raises(InputError, match=r"data\.validation"):
        load_profile(path)


def test_a_share_of_the_rounds_is_said(path: Path) -> None:
    report = reproduce_profile(load_profile(path), share=0.25, seeds=1, only=["split"], quiet=True)
    assert report.lines[0].curves[0].rounds[-1] == 6
    assert report.command == "vflpriv reproduce table --share 0.25 --seeds 1 --only split"
    assert report.headline == "A table: trained for 25 % of the rounds"
    assert "Trained for 25 % of the rounds." in markdown_of(report)
    assert "not explained" not in markdown_of(report)


@pytest.mark.parametrize("share", [0, 1.5, "half", True])
def test_a_share_that_is_none_is_refused(share: object) -> None:
    with pytest.raises(InputError, match=r"--share.*above 0 and at most 1"):
        api.reproduce("vimadmm-table-3", share=share)


THEOREM = """
title = "A theorem"
source = "A paper, Theorem 1"
chosen = "as published"
measures = ["rises"]
seeds = 1
data = { name = "digits", devices = 2, partition = "rows", train = 100 }
engine = { rounds = 6, name = "vimadmm", momentum = 0.0 }

[[row]]
key = "whole"
paper = { rises = 0 }
engine = { batch_size = 100, schedule = "fixed", device_rate = 1e-3, server_rate = 1e-3 }

[[row]]
key = "batches"
paper = { rises = 0 }
engine = { batch_size = 4, device_rate = 0.3, server_rate = 0.3 }

[[row]]
key = "other"
engine = { name = "split", batch_size = 4 }
"""


def test_rises_of_the_lagrangian_are_measured_and_the_unmet_conditions_named(tmp_path: Path) -> None:
    path = tmp_path / "theorem.toml"
    path.write_text(THEOREM, encoding="utf-8")
    report = reproduce_profile(load_profile(path), quiet=True)
    whole, batches, other = report.lines
    assert [(figure.measure, figure.mean, figure.large) for figure in whole.figures] == [("rises", 0.0, False)]
    assert batches.figures[0].mean > 0
    assert batches.figures[0].large
    assert not batches.open
    assert "Every round must use all 100 records" in batches.reason
    assert "Every round must use all" not in whole.reason
    assert [figure.measure for figure in other.figures] == ["accuracy"]
    assert "Every round must use all" in markdown_of(report)
    assert report.headline == "A theorem: 1 of 2 printed figures agree"
