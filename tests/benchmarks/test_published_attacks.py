"""Published figures beside ours: the page is what results render to, runs go on, choices spare the scored labels."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace

import pytest
import torch

from tests.tree import ROOT
from vflpriv.common.registry import available, find

# Benchmarks are scripts, not a package.
_FOLDER = str(ROOT / "benchmarks")
sys.path.insert(0, _FOLDER)
checkpoints, rows, runs, page, script = (
    importlib.import_module(name)
    for name in ("_checkpoints", "_published_rows", "_published_runs", "_published_page", "published_attacks")
)
sys.path.remove(_FOLDER)

_SETTINGS = {"rounds": 6, "batch_size": 16, "hidden": (6,), "embedding": 4, "momentum": 0.9, "top_hidden": (5,)}


def toy(**changes):
    """A row on breast cancer that is trained in a moment."""
    names = ("label_norm", "label_completion_passive", "label_completion_active")
    row = replace(
        rows.ROWS["breast-cancer"],
        key="toy",
        settings=_SETTINGS,
        lines=tuple(runs.Line(attack=name) for name in names),
        tuning={"epochs": 1, "iterations": 2},
        seeds=2,
    )
    return replace(row, **changes)


def test_the_page_is_what_the_stored_results_render_to():
    results = {name: runs.Results(script.RESULTS, row) for name, row in rows.ROWS.items()}
    assert page.rendered(results) == script.PAGE.read_text("utf-8")


def test_stored_results_are_of_the_rows_as_they_are_now():
    stored = {path.name: json.loads(path.read_text("utf-8")) for path in script.RESULTS.glob("attacks-*.json")}
    assert {f"attacks-{name}.json" for name in rows.ROWS} >= set(stored) != set()
    for name, row in rows.ROWS.items():
        if f"attacks-{name}.json" in stored:
            content = stored[f"attacks-{name}.json"]
            assert content["row"] == row.identity
            assert set(content["hardware"]) == {"machine", "cores"}
            assert set(content["steps"]) <= {step.name for step in runs.steps_of(row)}


def test_every_row_names_registered_attacks_on_labels():
    for row in rows.ROWS.values():
        assert all(available("attack")[line.attack].target == "labels" for line in row.lines)
        assert all(0 <= line.paper <= 1 for line in row.lines if line.paper is not None)
    assert rows.CANDIDATES.keys() <= rows.ROWS.keys()


def test_a_killed_run_goes_on_and_another_setting_starts_anew(tmp_path):
    row = toy()
    results = runs.Results(tmp_path, row)
    honest, malicious = results.missing
    assert (honest.name, malicious.conduct) == ("honest, 2 seeds from 1", "malicious-optimiser")
    results.save(honest, runs.run(row, honest, runs.part(row.data)))
    again = runs.Results(tmp_path, row)
    assert again.missing == [malicious]
    assert len(again.values("label_norm", "auc")) == 2
    assert all(0 <= share <= 1 for share in again.values("label_completion_passive", "success"))
    assert again.values("label_completion_active", "success") == []
    assert "not measured yet" in page.rendered({"toy": again})
    assert runs.Results(tmp_path, toy(lines=(*row.lines, runs.Line(attack="label_direction")))).missing[0] == honest
    assert runs.Results(tmp_path, toy(known=3)).missing == [honest, malicious]


@pytest.mark.parametrize("attack", ["label_completion_passive", "label_completion_active"])
def test_a_training_goes_on_where_it_was_killed(tmp_path, attack):
    row, conduct = toy(), find("attack", attack).conduct
    conducts = {} if conduct is None else {0: conduct}
    system = runs.build(runs.part(row.data), row.engine, seed=3, **row.settings)
    whole = checkpoints.continued(system, tmp_path / "none", conducts=conducts).engine

    counted = []

    def kill(count: int) -> None:
        counted.append(count)
        if len(counted) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        checkpoints.continued(system, tmp_path / "half", conducts=conducts, advance=kill, every=0.0)
    resumed = checkpoints.continued(system, tmp_path / "half", conducts=conducts).engine
    expected, found = checkpoints.state(whole), checkpoints.state(resumed)
    assert expected.keys() == found.keys()
    assert all(torch.equal(value, found[name]) for name, value in expected.items())


def test_settings_are_chosen_on_other_records_or_seeds():
    scored = runs.part(toy().data)
    choice = replace(toy().data, train=100)
    other = runs.part(choice, skip=300, held=20)
    assert torch.equal(other.labels, scored.labels[300:380])
    assert torch.equal(other.test_labels, scored.labels[380:400])
    for name, candidates in rows.CANDIDATES.items():
        for candidate in candidates:
            row = rows.ROWS[name]
            # Where all records are scored, as published, the page says that some of them were chosen by.
            said = row.data.train is None and "among those that are scored" in row.chosen
            assert candidate.held is None or said or candidate.skip >= row.data.train, name
    seen = runs.validated(runs.Candidate(row=toy(lines=(runs.Line(attack="label_norm"),))))
    assert (
        seen["attacks"]["label_norm"]["success"]
        != runs.run(toy(lines=(runs.Line(attack="label_norm"),)), runs.steps_of(toy(seeds=1))[0], scored)["attacks"][
            "label_norm"
        ]["success"]
    )


def test_cells_show_interval_and_difference():
    assert page._cells("x", 0.8, "", [0.7, 0.8, 0.9], [0.5], [0.2]).endswith(
        "80.0 [55.2, 100.0] | +0.0 | 50.0 | 20.0 |"
    )
    assert page._cells("x", 0.8, "", [0.7]) == "| x | 80.0 | 70.0 (one seed) | -10.0 |  |  |"
    assert page._cells("x", None, "near 100", [0.7, 0.7], [], []) == "| x | near 100 | 70.0 [70.0, 70.0] |  |  |  |"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mist"], "no row 'mist': expected some of cifar10, mnist"),
        (["--again"], "--again: expected the rows to forget"),
    ],
)
def test_a_wrong_command_is_refused(monkeypatch, capsys, arguments, message):
    monkeypatch.setattr(sys, "argv", ["published_attacks.py", *arguments])
    with pytest.raises(SystemExit) as ended:
        script.main()
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
