"""Self-checks of a watched training: each broken recording is said when it happens, and a sound one is not accused."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, log_softmax, mse_loss, one_hot

import vflpriv
from tests.recording.watching.training import CLASSES, RECORDS, Training, head_of

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
    assert any(said in line for line in head.failed_checks)
    lines = capsys.readouterr().err.splitlines()
    assert [line.removeprefix("vflpriv: ") for line in lines] == list(head.failed_checks)


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
    assert bool(head.failed_checks) != right


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
        assert bool(head.failed_checks) != right


def test_canaries_are_planted_before_training_reads_labels(tmp_path):
    def recorded(folder, train_on_planted):
        training = Training(folder)
        planted, canaries = vflpriv.plant(training.y, classes=CLASSES, canaries=6, seed=1)
        training.wire.labels(planted, canaries=canaries)
        training.y = planted if train_on_planted else training.y
        for ids in BATCHES:
            usual(training, ids)
        training.wire.finish()
        return head_of(folder).failed_checks

    assert recorded(tmp_path / "sound", True) == ()
    (line,) = recorded(tmp_path / "broken", False)
    assert "canaries have the label in the loss that they had before vflpriv.plant" in line


def test_records_that_a_coin_left_out_are_not_trained_on(tmp_path):
    training = Training(tmp_path)
    canaries = vflpriv.plant_members(records=RECORDS, canaries=8, seed=1)[1]
    training.wire.members(canaries)
    for ids in BATCHES:
        usual(training, ids)
    training.wire.finish()
    assert any("which a coin left out" in line for line in head_of(tmp_path).failed_checks)


def test_a_recording_that_goes_on_keeps_what_failed(tmp_path):
    train(tmp_path, wrong_ids)
    training = Training(tmp_path, fresh=False, resume=True)
    for ids in BATCHES:
        usual(training, ids)
    training.wire.finish()
    assert head_of(tmp_path).failed_checks
