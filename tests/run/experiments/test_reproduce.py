"""Published tables: rows are trained with settings chosen on validation records, and put beside the printed figures."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from vflpriv import api
from vflpriv.config.reproductions import Measure, load_profile, profile_names
from vflpriv.core.systems import System
from vflpriv.errors import InputError
from vflpriv.report.curves import LearningCurve
from vflpriv.report.reproduction import MEASURES, Reproduction
from vflpriv.run.experiments.learning import learning_curve
from vflpriv.run.experiments.reproduce import reproduce_profile
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
quick = { rounds = 0.5, train = 200 }

[[row]]
key = "split"
paper = { accuracy = 80.0, megabytes = 1.0, mebibytes = 1.0 }
engine = { name = "split" }
tries = [{ device_rate = 1e-6, server_rate = 1e-6 }, { device_rate = 0.5, server_rate = 0.5 }]

[[row]]
key = "noised"
title = "With noise"
paper = { accuracy = 10.0 }
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


def test_a_stopped_run_goes_on(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile, trained = load_profile(path), []
    whole = reproduce_profile(profile, quick=True, quiet=True)

    def counted(system: System, **how: Any) -> LearningCurve:
        if len(trained) == 2:
            raise KeyboardInterrupt
        trained.append(system.key)
        return learning_curve(system, **how)

    monkeypatch.setattr("vflpriv.run.experiments.learning.learning_curve", counted)
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
    assert all(row.paper or row.protected or row.title for row in profile.row)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"row": []}, "row"),
        ({"target": 120}, "target"),
        ({"target": None}, "config"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_bad_profiles_name_the_field(change: dict[str, Any], field: str, tmp_path: Path) -> None:
    tree = {**tomllib.loads(PROFILE), **change}
    path = tmp_path / "bad.yaml"
    path.write_text(yaml.safe_dump({k: v for k, v in tree.items() if v is not None}), encoding="utf-8")
    with pytest.raises(InputError) as error:
        load_profile(path)
    assert error.value.field == field
