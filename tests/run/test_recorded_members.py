"""Membership canaries of recorded trainings: memorising models are refuted, others are not, mistakes are named."""

from __future__ import annotations

import pytest

from tests.recording.transcript_files import unprotected
from tests.run.recorded_members import ledger, memorised, never_trained, noised, recorded
from tests.run.recorded_systems import audited
from vflpriv.core.claims import Verdict
from vflpriv.errors import InputError

UNITS = ("record", "add-remove")
VIEWS = ("device", "eavesdropper", "outsider", "model")
SURE = 0.001


def claims(unit, *views, epsilon=0.5):
    return [{"key": view, "unit": unit, "view": view, "epsilon": epsilon, "delta": 1e-5} for view in views]


def results(folder, system, unit, *, views=("outsider",), changes=None, **options):
    report = audited(
        recorded(folder, system, unit=unit, **options), ledger(claim=claims(unit, *views), **changes or {})
    )
    return report, report.systems[0]


@pytest.mark.parametrize("unit", UNITS)
def test_a_memorising_model_whose_predictions_are_published_is_refuted(unit, tmp_path):
    """Margin: nearly every coin is guessed, ε ≥ 1.2; a guess or two that go the other way cost 0.1."""
    report, system = results(tmp_path / "run", memorised, unit, views=VIEWS)
    assert report.exit_code == 1
    for claim in system.claims:
        assert (claim.verdict, claim.deciding.unit) == (Verdict.VIOLATED, unit)
        assert claim.deciding.epsilon > 0.5
        assert (claim.deciding.facts["canaries"], claim.deciding.facts["set_aside"]) == (80, 40)
    cells = {cell.adversary: cell for cell in system.features if cell.low is not None}
    assert set(cells) == {"server", "device(0)", "model", "eavesdropper", "outsider"}
    assert all(cell.low > 0.1 and cell.unit == unit for cell in cells.values())
    assert not [line for line in report.not_tested if "membership" in line or "plant_members" in line]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("system", [never_trained, noised])
def test_a_model_that_remembers_nobody_is_not_accused(system, unit, tmp_path):
    """Margin: how many guesses are made is planned on canaries set aside: all, half or some 40 of 80."""
    report, found = results(tmp_path / "run", system, unit)
    (claim,) = found.claims
    assert (claim.verdict, report.exit_code) == (Verdict.CONSISTENT, 0)
    assert claim.deciding.trials >= 30


@pytest.mark.parametrize("name", ["membership", "one-run"])
def test_it_is_an_audit_that_a_table_of_the_ledger_turns_off(tmp_path, name):
    report, system = results(tmp_path / "run", memorised, "record", changes={"audit": {name: False}})
    assert not system.claims[0].measurements
    assert any(line.endswith(f"membership: turned off by audit.{name} = false") for line in report.not_tested)
    assert system.features  # attacks are no audit


@pytest.mark.parametrize("canaries", [120, 10])
def test_claims_about_other_units_are_named_with_what_would_measure_them(tmp_path, canaries):
    folder = recorded(tmp_path / "run", memorised, canaries=canaries)
    report = audited(folder, ledger(claim=[*claims("label", "outsider"), *claims("features", "device")]))
    lines = "\n".join(line for line in report.not_tested if "members" in line or "claim " in line)
    assert "labels, canaries = vflpriv.plant(" in lines
    assert "`vflpriv audit --train` measures other units" in lines


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("system", [never_trained, noised])
def test_models_that_remember_nobody_are_not_accused_over_twenty_seeds(system, unit, tmp_path):
    """Margin: 20 runs at 5 %: 1 expected; 5 or more have a probability of 0.3 %."""
    p_values = []
    for seed in range(20):
        folder = recorded(tmp_path / str(seed), system, unit=unit, seed=seed)
        report = audited(folder, ledger(claim=claims(unit, "outsider", epsilon=1e-3), seed=seed))
        p_values.append(report.systems[0].claims[0].deciding.p_value)
    assert min(p_values) > SURE
    # 20 runs at 5 %: 1 expected; 5 or more have a probability of 0.3 %.
    assert sum(p <= 0.05 for p in p_values) < 5


def test_where_a_row_stands_in_its_message_tells_nothing(tmp_path):
    """The queries list members first; a score that read positions would guess every coin.

    Margin: at chance half of 80 are right, give or take 4.5; 56 are asked.
    """
    _, system = results(tmp_path / "run", never_trained, "add-remove", views=("device",))
    assert system.claims[0].deciding.facts["right"] < 0.7 * system.claims[0].deciding.trials


@pytest.mark.parametrize(("planted", "claimed"), [("record", "add-remove"), ("add-remove", "record")])
def test_coins_measure_the_unit_that_they_decided_about_and_no_other(planted, claimed, tmp_path):
    folder = recorded(tmp_path / "run", memorised, unit=planted)
    report = audited(folder, ledger(claim=claims(claimed, "outsider")))
    (claim,) = report.systems[0].claims
    assert (claim.verdict, claim.deciding) == (Verdict.UNMEASURED, None)
    assert any("coins decided about" in line and "plant_members" in line for line in report.not_tested)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"trains_on_all": True}, "a canary that its coin leaves out takes part in round 0 (embeddings)"),
        ({"ask": "in several rounds"}, "takes part in round 6 (predictions), where not all canaries do"),
        ({"ask": "all but one"}, "takes part in round 5 (predictions), where not all canaries do"),
        ({"canaries": 12}, "12 membership canaries were recorded, and fewer than 20 say nothing"),
    ],
)
def test_a_recording_that_cannot_be_measured_says_why(options, expected, tmp_path):
    report, system = results(tmp_path / "run", memorised, "add-remove", **options)
    assert (system.claims[0].verdict, system.claims[0].deciding) == (Verdict.UNMEASURED, None)
    assert any(expected in line for line in report.not_tested)


def test_without_coins_the_report_says_how_to_plant_them(tmp_path):
    folder = recorded(tmp_path / "run", memorised)
    (unprotected(folder) / "members.safetensors").unlink()
    report = audited(folder, ledger(attacks=["feature_membership"]))
    assert any("vflpriv.plant_members" in line for line in report.not_tested)
    (cell,) = report.systems[0].features
    assert "vflpriv.plant_members" in cell.not_applicable


def test_without_labels_the_learned_score_is_left(tmp_path):
    folder = recorded(tmp_path / "run", memorised)
    (unprotected(folder) / "answers.safetensors").unlink()
    report = audited(folder, ledger())
    assert {cell.not_applicable for cell in report.systems[0].features} == {
        "needs the labels of all candidates: call wire.labels(...) while recording"
    }
    assert report.systems[0].claims[0].deciding.trials >= 30


def test_of_a_sample_the_canaries_are_all_kept(tmp_path):
    import vflpriv

    _, system = results(tmp_path / "run", memorised, "record", keep=vflpriv.sample(records=5))
    assert system.claims[0].verdict is Verdict.VIOLATED


def test_who_does_not_see_predictions_measures_nothing(tmp_path):
    hidden = [{"kind": kind, "noise": "none", "seen_by": ["server"]} for kind in ("embeddings", "predictions")]
    report, system = results(tmp_path / "run", memorised, "record", changes={"release": hidden})
    assert system.claims[0].deciding is None
    assert any("outsider sees no round that is about all canaries" in line for line in report.not_tested)


def test_a_claim_about_an_attack_is_about_one_on_labels(tmp_path):
    folder = recorded(tmp_path / "run", never_trained)
    claim = {"key": "a", "unit": "record", "view": "model", "attack": "feature_membership", "rate": 0.6}
    with pytest.raises(InputError, match=r"ledger\.attack_claim\.attack.*R² or AUC"):
        audited(folder, ledger(attack_claim=[claim]))
