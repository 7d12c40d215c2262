"""Recorded trainings with canaries: broken ones are found whatever their messages are called, sound ones stay clear."""

from __future__ import annotations

import pytest

from tests.recording.transcript_files import unprotected
from tests.run.recorded_systems import (
    BROKEN,
    RECORDS,
    SOUND,
    audited,
    gaussian_totals,
    label_in_unknown_rows,
    ledger,
    loss_sums_without_noise,
    noise_only,
    recorded,
    redrawn_every_batch,
    response_of_one,
    response_of_three,
)
from vflpriv.audits.recorded.noise import recorded_noises
from vflpriv.audits.scoring.labels import NO_LABELS
from vflpriv.core.claims import Verdict
from vflpriv.recording.system import read_recording
from vflpriv.run.recorded import audit_recording

SURE = 0.001


def named(cases):
    return [pytest.param(*case, id=f"{case[0].__name__}-{case[1]}") for case in cases]


@pytest.mark.parametrize(("system", "classes", "canaries"), named(BROKEN))
def test_a_broken_system_is_violated_although_its_ledger_is_within_the_claim(system, classes, canaries, tmp_path):
    """Margin: p is below 8e-5 for each of them."""
    folder = recorded(tmp_path / "run", system, classes=classes, canaries=canaries)
    report = audited(folder, gaussian_totals() if system is loss_sums_without_noise else None)
    (claim,) = report.systems[0].claims
    assert claim.accounted.epsilon_upper <= 1.0 + 1e-9
    assert (claim.verdict, report.exit_code) == (Verdict.VIOLATED, 1)
    assert claim.deciding.p_value <= SURE


@pytest.mark.parametrize(("system", "classes", "canaries"), named(SOUND))
def test_a_sound_system_is_not_accused(system, classes, canaries, tmp_path):
    folder = recorded(tmp_path / "run", system, classes=classes, canaries=canaries, seed=1)
    report = audited(folder)
    (claim,) = report.systems[0].claims
    assert (claim.verdict, report.exit_code) == (Verdict.CONSISTENT, 0)
    # How many of the canaries that are not set aside are guessed is planned on those that are.
    assert 0 < claim.deciding.trials <= canaries - canaries // 3


@pytest.mark.slow
@pytest.mark.parametrize(("system", "classes", "canaries"), named(SOUND))
def test_sound_systems_are_not_accused_over_many_seeds(system, classes, canaries, tmp_path):
    """Margin: 30 runs at 5 %: 1.5 expected at most; 6 or more have a probability of 0.3 %."""
    p_values = []
    for seed in range(30):
        folder = recorded(tmp_path / str(seed), system, classes=classes, canaries=canaries, seed=seed)
        p_values.append(audited(folder).systems[0].claims[0].deciding.p_value)
    assert min(p_values) > SURE
    # 30 runs at 5 %: 1.5 expected at most; 6 or more have a probability of 0.3 %.
    assert sum(p <= 0.05 for p in p_values) < 6


def test_redrawn_noise_on_three_classes_is_read_by_clusters(tmp_path):
    folder = recorded(tmp_path / "run", redrawn_every_batch, classes=3, canaries=0)
    rows = audited(folder).systems[0].attacks
    (clusters,) = [
        row.success for row in rows if (row.attack, row.adversary) == ("label_gradient_clusters", "device(0)")
    ]
    assert clusters > 0.9


def test_attacks_have_labels_where_every_record_is_a_canary(tmp_path):
    """Margin: 0.96 of the labels are read by a sign, and 0.9 are asked."""
    folder = recorded(tmp_path / "run", response_of_three, classes=2, canaries=RECORDS)
    rows = [row for row in audited(folder).systems[0].attacks if row.adversary == "device(0)"]
    assert {row.attack: row.success for row in rows}["label_direction"] > 0.9


def test_attacks_without_labels_are_refused_and_do_not_count_as_chance(tmp_path):
    folder = recorded(tmp_path / "run", response_of_three, classes=2, canaries=18, records=18)
    attempts = [a for a in audit_recording(folder, ledger()).attempts if a.attack == "label_direction"]
    assert {(a.refusal, a.success) for a in attempts} == {(NO_LABELS, None)}


def test_a_label_in_a_kind_that_is_said_to_be_public_is_found(tmp_path):
    folder = recorded(tmp_path / "run", label_in_unknown_rows, classes=2, canaries=150)
    release = [{"kind": "noised-labels", "noise": "rr", "scale": 1.0, "sensitivity": {"label": 1.0}, "once": True}]
    (claim,) = audited(folder, ledger(release=release, public=["hints"])).systems[0].claims
    assert claim.verdict is Verdict.VIOLATED


def claims(*views_and_units):
    common = {"epsilon": 1.0, "delta": 1e-5}
    return [{"key": f"c{i}", "view": view, "unit": unit, **common} for i, (view, unit) in enumerate(views_and_units)]


def test_what_rests_on_the_ledger_alone_measures_nothing(tmp_path):
    folder = recorded(tmp_path / "run", noise_only, classes=2, canaries=0)
    config = gaussian_totals(scale=0.5)
    audit = audit_recording(folder, config)
    assert [(f.audit, f.measures) for f in audit.findings] == [
        *(("ledger", False), ("ledger", False)),
        ("noise", False),
    ]
    (line,) = [line for line in audit.not_tested if line.startswith("label-coins: ")]
    missing = "it needs canaries in labels, whose coins are known, which a transcript does not offer here"
    assert line.startswith(f"label-coins: {missing}; labels, canaries = vflpriv.plant(")


def test_noise_that_is_too_small_refutes_nothing(tmp_path):
    folder = recorded(tmp_path / "run", noise_only, classes=2, canaries=0)
    system = read_recording(folder, gaussian_totals(scale=80.0))
    (noise,) = recorded_noises(system.ledger, system.messages, shared=(), confidence=0.95)
    (finding,) = noise.findings((), system.ledger.releases)
    assert (finding.verdict, finding.measures) == (Verdict.UNMEASURED, False)


def test_each_claim_that_canaries_cannot_test_says_why(tmp_path):
    folder = recorded(tmp_path / "run", response_of_one, classes=2, canaries=60)
    config = ledger(claim=claims(("device(0)", "label"), ("device(0)", "features"), ("outsider", "label")))
    audit = audit_recording(folder, config)
    tested, features, outsider = audit.findings[:3]
    assert (tested.claim, tested.is_test, tested.measures) == ("c0", True, True)
    assert "`vflpriv audit --train` measures other units" in features.sentence
    assert outsider.sentence == "nothing measured it: no message that outsider sees says which records it is about"
    lines = [line for line in audit.not_tested if line.startswith("claim c")]
    assert lines == [f"claim c1 (device(0)): {features.sentence}", f"claim c2 (outsider): {outsider.sentence}"]


@pytest.mark.parametrize(
    ("canaries", "missing"),
    [(19, "19 canaries were recorded, and fewer than 20 say nothing"), (None, "it needs canaries in labels")],
)
def test_too_few_canaries_and_missing_labels_are_named(canaries, missing, tmp_path):
    folder = recorded(tmp_path / "run", response_of_one, classes=2, canaries=canaries or 0)
    if canaries is None:
        (unprotected(folder) / "answers.safetensors").unlink()
    audit = audit_recording(folder, ledger())
    assert not any(f.is_test for f in audit.findings)
    assert any(line.startswith(f"label-coins: {missing}") and "vflpriv.plant(" in line for line in audit.not_tested)


def test_an_eavesdropper_does_not_see_what_the_ledger_says_is_hidden_from_it(tmp_path):
    folder = recorded(tmp_path / "run", label_in_unknown_rows, classes=2, canaries=150)
    both = claims(("device(0)", "label"), ("eavesdropper", "label"))
    hidden = {"kind": "hints", "noise": "none", "seen_by": ["device", "devices", "server"]}
    audit = audit_recording(folder, ledger(release=[hidden], claim=both))
    device, eavesdropper = audit.findings[:2]
    assert (device.is_test, eavesdropper.is_test) == (True, False)
    assert any(line.startswith("hints: that only device, devices, server and") for line in audit.not_tested)
