"""What `vflpriv audit --train` says of sound and broken trainings."""

from __future__ import annotations

import pytest

from tests.run.own_training.support import audited, claim, measured
from tests.run.own_training.systems import STD
from vflpriv.core.claims import Verdict

pytestmark = pytest.mark.usefixtures("few_trees")


def verdict(report, key="labels"):
    return next(row.verdict for row in report.systems[0].claims if row.key == key)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_sound_training_is_not_accused(tmp_path, capsys, seed):
    report = audited(tmp_path, "sound", seed=seed)
    row = measured(report)
    assert (report.exit_code, verdict(report)) == (0, Verdict.CONSISTENT)
    assert (row.trials, row.facts["record"], row.unit, row.adversary) == (30, 3, "label", "device(0)")
    assert not row.refutes
    assert report.systems[0].title == "systems.py:sound"
    assert "trained" not in capsys.readouterr().out


def test_a_tenth_of_the_noise_is_found_by_trials(tmp_path):
    report = audited(tmp_path, "tenth", count=120)
    assert (report.exit_code, verdict(report)) == (1, Verdict.VIOLATED)
    assert measured(report).refutes
    assert measured(report).epsilon > 1.0


def test_a_label_in_the_lowest_bit_is_found_by_trials(tmp_path):
    report = audited(tmp_path, "low_bit")
    assert measured(report).refutes
    assert measured(report).errors.false_positives + measured(report).errors.false_negatives == 0


def test_trials_show_nobody_what_the_ledger_says_it_cannot_decrypt(tmp_path):
    release = {"kind": "answer", "noise": "opaque", "assumption": "TLS", "readable_by": ["server", "device"]}
    claims = [claim("outside", view="eavesdropper"), claim("device")]
    report = audited(tmp_path, "in_clear", release=[release], claim=claims)
    assert verdict(report, "outside") != "violated"
    assert verdict(report, "device") == "violated", "it holds the key"


def test_too_few_trials_accuse_nobody(tmp_path):
    report = audited(tmp_path, "of_arrays", count=40)
    assert not measured(report).refutes
    assert "at least 30 are wanted" in report.systems[0].claims[0].reason


def test_claims_of_wider_units_are_tested_too_and_others_are_not(tmp_path):
    claims = [claim("records", unit="record"), claim("features", unit="features"), claim("server", view="server")]
    claims += [claim("model", view="model"), claim("wire", view="eavesdropper")]
    report = audited(tmp_path, "low_bit", claim=claims)
    assert {key for key in ("records", "wire") if measured(report, key).refutes} == {"records", "wire"}
    assert not any(measured(report, key) for key in ("features", "server", "model"))
    notes = "\n".join(report.not_tested)
    assert "claim features (device): the two worlds differ in one record's label replaced" in notes
    assert "claim model (model): what is sent is seen here" in notes
    assert "trials in two worlds: they train" not in notes
    assert "no canaries were recorded" not in notes


_VIEWS = {"first": "device(0)", "any": "device", "wire": "eavesdropper"}
BLOCKS = {
    "trials": {"unit": "features", "device": 0, "devices": 2},
    "release": [
        {"kind": "block", "noise": "none"},
        {"kind": "thanks", "noise": "none", "independent_of": ["features"]},
    ],
    "claim": [claim(key, unit="features", view=view) for key, view in _VIEWS.items()],
}


def test_who_holds_what_differs_is_not_said_to_have_learned_it(tmp_path):
    report = audited(tmp_path, "open_uplink", **BLOCKS)
    assert measured(report, "first") is None
    assert measured(report, "wire").refutes
    other = measured(report, "any")
    assert (other.adversary, other.refutes) == ("device(1)", False)
    assert any("the most telling of 1 of 2 devices" in found.sentence for found in report.systems[0].evidence.findings)
    assert any("device(0) holds what differs" in line for line in report.not_tested)


def test_a_whole_record_that_differs_is_held_by_every_device_and_its_label_by_the_server(tmp_path):
    trials = {"unit": "record", "devices": 2, "device": None}
    claims = [claim(view, unit="record", view=view) for view in ("device", "server", "eavesdropper")]
    report = audited(tmp_path, "open_uplink", **BLOCKS | {"trials": trials, "claim": claims})
    assert [key for key in ("device", "server", "eavesdropper") if measured(report, key)] == ["eavesdropper"]


def test_a_training_that_forgets_the_world_measures_nothing(tmp_path):
    report = audited(tmp_path, "one_world")
    assert (report.exit_code, verdict(report)) == (3, Verdict.UNMEASURED)
    assert any("the two worlds do not differ" in line and "`world`" in line for line in report.not_tested)


@pytest.mark.parametrize(
    ("name", "repeats"), [("sound", True), ("global_noise", True), ("own_noise", False), ("stateful", False)]
)
def test_a_training_that_does_not_repeat_is_named(tmp_path, name, repeats):
    report = audited(tmp_path, name, count=1)
    assert any("two with the same seed" in line for line in report.not_tested) is not repeats


def test_without_trials_it_is_the_audit_of_one_recorded_training(tmp_path):
    report = audited(tmp_path, "sound", count=0)
    assert measured(report) is None
    assert any("no trials in two worlds were asked for" in line for line in report.not_tested)
    assert [check.audit for check in report.systems[0].checks] == ["ledger", "noise"]


@pytest.mark.parametrize(("name", "tested"), [("drawn_batches", True), ("fixed_batches", False)])
def test_secret_batches_are_measured_only_if_they_are_drawn(tmp_path, name, tested):
    """With the same batches in every trial, the secrecy that the claim counts on is not there."""
    answer = {"kind": "answer", "noise": "gaussian", "scale": STD, "leak": "none", "additive": True}
    release = answer | {"sensitivity": {"label": 1.0, "record": 2.0, "add-remove": 1.0}}
    batches = {"batching": "poisson", "size": 4}
    report = audited(
        tmp_path, name, count=8, release=[release], batches=batches, claim=[claim(view="outsider")], attacks=[]
    )
    assert (measured(report) is not None) is tested
    said = "all trials have the same batches, which are a secret to outsider"
    assert any(said in line for line in report.not_tested) is not tested
