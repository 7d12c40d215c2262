"""Self-checks of a watched training: each broken recording is said when it happens, and a sound one is not accused."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, log_softmax, mse_loss, one_hot

import vflpriv
from tests.recording.watching.training import CLASSES, RECORDS, Training, head_of
from vflpriv.audits.recorded.watched import WatchedAudit
from vflpriv.core.audit import AuditContext
from vflpriv.core.claims import Verdict
from vflpriv.recording.ledger_file import LedgerConfig
from vflpriv.recording.merging import merge_transcripts
from vflpriv.recording.system import read_recording

BATCHES = torch.arange(RECORDS).reshape(4, 6)


def train(folder, body, **options):
    """The failed checks and the remarks of a training whose every step is `body`."""
    training = Training(folder, **options)
    for ids in BATCHES:
        body(training, ids)
    training.wire.finish()
    return head_of(folder)


def usual(training, ids):
    training.wire.batch(ids)
    training.step(training.x[ids], training.y[ids])


def wrong_ids(training, ids):
    training.wire.batch(ids.flip(0))
    training.step(training.x[ids], training.y[ids])


def no_new_round(training, ids):
    if not ids[0] % 12:
        training.wire.batch(ids)
    training.step(training.x[ids], training.y[ids])


def parts_of_modules(training, ids):
    if not ids[0]:
        return usual(training, ids)
    scores = training.top(
        torch.cat([b.forward(x) for b, x in zip(training.bottoms, training.x[ids].chunk(2, 1), strict=True)], 1)
    )
    training.optimiser.zero_grad()
    cross_entropy(scores, training.y[ids]).backward()
    return training.optimiser.step()


def only_some_rows(training, ids):
    training.wire.batch(ids)
    hard = ids[[0, 2, 5, 3]]
    training.step(training.x[hard], training.y[hard])


def one_party(training, ids):
    training.wire.batch(ids)
    other = torch.zeros(len(ids), 2)
    cross_entropy(
        training.top(torch.cat([training.bottoms[0](training.x[ids, :2]), other], 1)), training.y[ids]
    ).backward()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (wrong_ids, "labels that reach the loss are not those of the round's records"),
        (no_new_round, "labels that reach the loss are not those of the round's records"),
        (parts_of_modules, "an optimiser changed bottoms[0, 1] without a recorded message, after round 0"),
        (only_some_rows, "round 0: bottoms[0] was given 4 of the 6 records"),
        (one_party, "device 1 sent nothing in any round: bottoms[1] was not called"),
    ],
)
def test_a_broken_recording_is_one_line_when_it_happens(tmp_path, capsys, body, said):
    head = train(tmp_path, body)
    lines = capsys.readouterr().err.splitlines()
    assert any(said in line for line in lines)
    assert all(line.startswith("vflpriv: ") for line in lines)
    assert set(head.failed_checks) == {line[9:] for line in lines if "reach the loss" not in line}
    assert head.failed_checks or head.labels_different


def test_a_forgotten_round_without_labels_in_a_loss(tmp_path):
    def body(training, ids):
        if not ids[0]:
            training.wire.batch(ids)
        training.forward(training.x[ids]).square().sum().backward()

    head = train(tmp_path, body)
    assert any("bottoms[0] was called again with other inputs" in line for line in head.failed_checks)
    assert any("no loss was seen" in line for line in head.remarks)


def test_a_copy_is_not_what_is_watched(tmp_path):
    training = Training(tmp_path)
    bottoms, training.bottoms = training.bottoms, copy.deepcopy(training.bottoms)
    for ids in BATCHES:
        usual(training, ids)
    training.wire.batch(BATCHES[0])
    bottoms[0](training.x[:6, :2])
    training.wire.finish()
    failed = head_of(tmp_path).failed_checks
    assert failed == ("device 1 sent nothing in any round: bottoms[1] was not called",)


LOSSES = {
    "cross_entropy": cross_entropy,
    "smoothed and weighted": lambda s, y: cross_entropy(s, y, torch.tensor([1.0, 2.0, 3.0]), label_smoothing=0.1),
    "row by row": lambda s, y: (cross_entropy(s, y, reduction="none") * torch.ones(len(y))).mean(),
    "one-hot": lambda s, y: cross_entropy(s, one_hot(y, CLASSES).float()),
    "gathered": lambda s, y: -log_softmax(s, 1).gather(1, y[:, None]).mean(),
    "indexed": lambda s, y: -log_softmax(s, 1)[torch.arange(len(y)), y].mean(),
    "two losses": lambda s, y: 0.5 * cross_entropy(s, y) + mse_loss(s, torch.zeros_like(s)),
    "scaled": lambda s, y: cross_entropy(s, y) * torch.tensor(1024.0),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("right", [True, False])
def test_labels_are_found_in_losses_as_they_are_written(tmp_path, name, right):
    def body(training, ids):
        training.wire.batch(ids if right else (ids + 1) % RECORDS)
        LOSSES[name](training.forward(training.x[ids]), training.y[ids]).backward()

    head = train(tmp_path, body)
    assert head.labels_compared == RECORDS
    assert (head.labels_different == 0) == right
    assert head.failed_checks == ()


def test_sound_trainings_are_not_accused(tmp_path):
    """Adversarial and auxiliary losses, evaluation, and two steps in a round."""

    def body(training, ids):
        x, y = training.x[ids], training.y[ids]
        training.wire.batch(ids)
        scores = training.forward(x)
        binary_cross_entropy_with_logits(scores[:, 0], torch.ones(len(ids))).backward()
        training.optimiser.step()
        usual_loss = cross_entropy(training.forward(x), y)
        (usual_loss + mse_loss(scores.detach(), torch.zeros_like(scores))).backward()
        training.optimiser.step()
        with torch.no_grad():
            training.forward(training.x)

    head = train(tmp_path, body)
    assert head.failed_checks == ()
    assert head.remarks == ()


def test_evaluation_that_does_not_say_so_is_a_remark_or_a_failed_check(tmp_path):
    def body(training, ids, rows=RECORDS):
        usual(training, ids)
        training.forward(training.x[:rows])

    head = train(tmp_path / "all", body)
    assert head.failed_checks == ()
    assert any("24 rows, more than its round has: this is taken for evaluation" in line for line in head.remarks)
    head = train(tmp_path / "few", lambda training, ids: body(training, ids, rows=6))
    assert any("evaluate in eval() or no_grad()" in line for line in head.failed_checks)


def test_a_slow_party_is_a_remark(tmp_path):
    def body(training, ids):
        training.wire.batch(ids)
        parts = training.x[ids].chunk(2, 1)
        other = training.bottoms[1](parts[1]) if ids[0] % 12 else torch.zeros(len(ids), 2)
        cross_entropy(training.top(torch.cat([training.bottoms[0](parts[0]), other], 1)), training.y[ids]).backward()
        training.optimiser.step()
        training.optimiser.zero_grad()

    head = train(tmp_path, body)
    assert head.failed_checks == ()
    assert head.remarks == ("device 1 sent nothing in 2 of 4 rounds: bottoms[1] was not called in them",)


def test_targets_of_a_regression_may_be_scaled(tmp_path):
    for folder, right in (("right", True), ("wrong", False)):
        targets = torch.randn(RECORDS, generator=torch.Generator().manual_seed(4))

        def body(training, ids, right=right, targets=targets):
            training.wire.batch(ids if right else ids.roll(1))
            mse_loss(training.forward(training.x[ids])[:, 0], (targets[ids] - 3) / 7).backward()

        head = train(tmp_path / folder, body, labels=targets, classes=None)
        assert (head.labels_different == 0) == right


def test_canaries_are_planted_before_training_reads_labels(tmp_path, capsys):
    def recorded(folder, train_on_planted):
        training = Training(folder)
        planted, canaries = vflpriv.plant(training.y, classes=CLASSES, canaries=6, seed=1)
        training.wire.labels(planted, canaries=canaries)
        training.y = planted if train_on_planted else training.y
        for ids in BATCHES:
            usual(training, ids)
        training.wire.finish()
        return head_of(folder).labels_different

    assert recorded(tmp_path / "sound", True) == 0
    assert recorded(tmp_path / "broken", False) > 0
    assert "canaries have the label in the loss that they had before vflpriv.plant" in capsys.readouterr().err


def test_records_that_a_coin_left_out_are_not_trained_on(tmp_path):
    training = Training(tmp_path)
    canaries = vflpriv.plant_members(records=RECORDS, canaries=8, seed=1)[1]
    training.wire.members(canaries)
    for ids in BATCHES:
        usual(training, ids)
    training.wire.finish()
    assert any("which a coin left out" in line for line in head_of(tmp_path).failed_checks)


def test_a_recording_that_goes_on_keeps_what_failed(tmp_path):
    for body in (wrong_ids, only_some_rows):
        before = train(tmp_path / body.__name__, body)
        after = train(tmp_path / body.__name__, usual, fresh=False, resume=True)
        assert (after.failed_checks, after.labels_different) == (before.failed_checks, before.labels_different)
        assert after.failed_checks or after.labels_different


LEDGER = {
    "release": [
        {"kind": "embeddings", "noise": "gaussian", "scale": 100.0, "sensitivity": {"label": 1.0}},
        {"kind": "embedding-gradient", "noise": "gaussian", "scale": 100.0, "sensitivity": {"label": 1.0}},
    ],
    "claim": [{"key": "quiet", "unit": "label", "view": "device", "epsilon": 1.0}],
}
RESPONSE = {"kind": "noised-labels", "noise": "rr", "scale": 2.0, "sensitivity": {"label": 1.0}, "once": True}


def findings(folder, ledger):
    system = read_recording(folder, LedgerConfig.model_validate(ledger))
    return WatchedAudit().run(system, AuditContext(claims=system.claims))


def test_nothing_is_certified_on_a_recording_with_a_failed_check(tmp_path):
    train(tmp_path / "broken", one_party)
    train(tmp_path / "sound", usual)
    assert findings(tmp_path / "sound", LEDGER) == []
    premise, claim = findings(tmp_path / "broken", LEDGER)
    assert premise.verdict is Verdict.UNSUPPORTED
    assert premise.decides_alone
    assert (claim.claim, claim.verdict) == ("quiet", Verdict.UNMEASURED)
    assert "a check failed while the training was watched: device 1 sent nothing in any round" in claim.sentence


@pytest.mark.parametrize(("declared", "accused"), [(None, True), (2.0, False), (0.1, True), (9.0, True)])
def test_noised_labels_have_to_be_those_of_the_ledger(tmp_path, declared, accused):
    """Labels are kept as at ε = 2.

    Margin: the shares of the other two lie more than 10 standard deviations off, where 5 are allowed.
    """
    records = 600
    training = Training(tmp_path, records=records)
    generator = torch.Generator().manual_seed(5)
    other = (training.y + torch.randint(1, CLASSES, (records,), generator=generator)) % CLASSES
    noised = torch.where(torch.rand(records, generator=generator) < 0.787, training.y, other)
    for ids in torch.arange(records).split(50):
        training.wire.batch(ids)
        training.step(training.x[ids], noised[ids])
    training.wire.finish()
    ledger = LEDGER if declared is None else LEDGER | {"release": [*LEDGER["release"], RESPONSE | {"scale": declared}]}
    assert bool(findings(tmp_path, ledger)) == accused


def test_a_merged_recording_keeps_what_failed_in_its_parts(tmp_path):
    train(tmp_path / "watched", wrong_ids)
    with vflpriv.record(tmp_path / "other", devices=2, classes=CLASSES, records=RECORDS) as wire:
        wire.up(0, 0, "note", {"x": torch.ones(1)}, range(2))
    with vflpriv.record(tmp_path / "failed", devices=2, classes=CLASSES, records=RECORDS) as wire:
        wire.up(0, 1, "remark", {"x": torch.ones(1)}, range(2))
        wire.checks.fail("rows", "round 0: a check failed")
    merge_transcripts([tmp_path / name for name in ("watched", "other", "failed")], tmp_path / "merged")
    head = head_of(tmp_path / "merged")
    assert head.failed_checks == ("round 0: a check failed",)
    assert head.labels_different == head_of(tmp_path / "watched").labels_different > 0
