"""Small recorded trainings, sound and broken, whose canaries the audit must or must not find."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import vflpriv
from vflpriv.config.errors import parse_settings
from vflpriv.recording.ledger_file import LedgerConfig
from vflpriv.report.audit import Report
from vflpriv.run.audit import audit_transcript

__all__ = [
    "BROKEN",
    "RECORDS",
    "SOUND",
    "audited",
    "gaussian_totals",
    "label_in_unknown_rows",
    "ledger",
    "loss_sums_without_noise",
    "noise_only",
    "recorded",
    "redrawn_every_batch",
    "response_of_one",
    "response_of_three",
]

RECORDS, ROUNDS = 300, 40


def randomised(labels: Tensor, epsilon: float, classes: int, generator: torch.Generator) -> Tensor:
    """Randomised response among the classes: exactly ε-DP for each label."""
    keep = math.exp(epsilon) / (math.exp(epsilon) + classes - 1)
    kept = torch.rand(len(labels), generator=generator) < keep
    shift = torch.randint(1, classes, (len(labels),), generator=generator)
    return torch.where(kept, labels, (labels + shift) % classes)


class Training:
    """Labels with canaries, noise of its own, and batches, for the messages of one system."""

    def __init__(self, wire: Any, labels: Tensor, classes: int, seed: int) -> None:
        self.wire, self.labels, self.classes = wire, labels, classes
        self.generator = torch.Generator().manual_seed(1000 + seed)
        self.features = self.noise(len(labels), 6)

    def noise(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.randn(*shape, generator=self.generator, dtype=dtype)

    def batch(self, size: int = 60) -> Tensor:
        return torch.randperm(len(self.labels), generator=self.generator)[:size]

    def gradients(self, labels: Tensor, ids: Tensor) -> Tensor:
        """Rows of a softmax head on random weights, with these labels of the batch."""
        head = torch.linspace(-1, 1, self.classes * 5).cos().reshape(self.classes, 5) + torch.eye(self.classes, 5)
        probabilities = torch.softmax(self.features[ids, : self.classes] / 4, -1)
        return (probabilities - torch.nn.functional.one_hot(labels, self.classes)) @ head


def label_in_unknown_rows(run: Training) -> None:
    """The label sits in one entry of rows of a kind that no attack knows."""
    for t in range(ROUNDS):
        ids = run.batch()
        rows = run.noise(len(ids), 12)
        rows[:, 7] += 2 * run.labels[ids]
        run.wire.down(t, 0, "hints", {"rows": rows}, ids)


def label_in_low_bits(run: Training) -> None:
    """The lowest mantissa bit of one entry of otherwise sound rows is the label."""
    for t in range(ROUNDS):
        ids = run.batch()
        rows = run.noise(len(ids), 8)
        bits = rows.view(torch.int32)
        bits[:, 3] = (bits[:, 3] & ~1) | run.labels[ids].int()
        run.wire.down(t, 0, "embedding-gradient", {"gradient": rows}, ids)


def label_in_low_bits_of_doubles(run: Training) -> None:
    """The same in float64, where a rounding to float32 would hide it."""
    for t in range(ROUNDS):
        ids = run.batch()
        rows = run.noise(len(ids), 8, dtype=torch.float64)
        bits = rows.view(torch.int64)
        bits[:, 3] = (bits[:, 3] & ~1) | run.labels[ids]
        run.wire.down(t, 0, "embedding-gradient", {"gradient": rows}, ids)


def loss_sums_without_noise(run: Training) -> None:
    """Sums of the batch's losses, which a wrong label makes large, in a kind that is declared Gaussian."""
    for t in range(10 * ROUNDS):
        ids = run.batch()
        wrong = (run.labels[ids] != (run.features[ids, 0] > 0).long()).float()
        run.wire.down(t, 0, "totals", {"sum": wrong.sum() + 1000}, ids)


def losses_of_records(run: Training) -> None:
    """Each record's loss, in an unknown kind: it tells whether the label was changed, not which it is."""
    for t in range(ROUNDS):
        ids = run.batch()
        wrong = (run.labels[ids] != (run.features[ids, 0] > 0).long()).float()
        run.wire.down(t, 0, "quality", {"losses": wrong + 0.5 * run.noise(len(ids))}, ids)


def noise_sent_beside(run: Training) -> None:
    """Rows with enough noise, and in another kind the noise itself."""
    for t in range(ROUNDS):
        ids = run.batch()
        noise = 20 * run.noise(len(ids), 4)
        rows = noise.clone()
        rows[:, 2] += run.labels[ids]
        run.wire.down(t, 0, "hints", {"rows": rows}, ids)
        run.wire.down(t, 0, "quality", {"scaled": -0.25 * noise}, ids)


def records_in_order_of_labels(run: Training) -> None:
    """Rows of pure noise; the records of a batch are listed by their labels."""
    for t in range(ROUNDS):
        ids = run.batch()
        ids = ids[run.labels[ids].argsort(stable=True)]
        run.wire.down(t, 0, "hints", {"rows": run.noise(len(ids), 2)}, ids)


def redrawn_every_batch(run: Training) -> None:
    """Randomised response that is drawn again in every batch: averages undo it."""
    for t in range(4 * ROUNDS):
        ids = run.batch()
        noised = randomised(run.labels[ids], 1.0, run.classes, run.generator)
        run.wire.down(t, 0, "embedding-gradient", {"gradient": run.gradients(noised, ids)}, ids)


def response_of_three(run: Training) -> None:
    """Randomised response with ε = 3, drawn once."""
    noised = randomised(run.labels, 3.0, run.classes, run.generator)
    for t in range(ROUNDS):
        ids = run.batch()
        run.wire.down(t, 0, "embedding-gradient", {"gradient": run.gradients(noised[ids], ids)}, ids)


def response_of_one(run: Training) -> None:
    """Randomised response with ε = 1, drawn once: sound."""
    noised = randomised(run.labels, 1.0, run.classes, run.generator)
    for t in range(ROUNDS):
        ids = run.batch()
        run.wire.down(t, 0, "embedding-gradient", {"gradient": run.gradients(noised[ids], ids)}, ids)
        run.wire.down(t, 0, "hints", {"rows": noised[ids].float().unsqueeze(1) + run.noise(len(ids), 3)}, ids)


def noise_only(run: Training) -> None:
    """Rows and scalars that hold no label at all."""
    for t in range(ROUNDS):
        ids = run.batch()
        run.wire.up(t, 0, "embeddings", {"embedding": run.features[ids]}, ids)
        run.wire.down(t, 0, "totals", {"sum": run.noise(1)}, ids)


BROKEN = (
    (label_in_unknown_rows, 2, 150),
    (label_in_low_bits, 2, 150),
    (label_in_low_bits_of_doubles, 2, 150),
    (loss_sums_without_noise, 2, 150),
    (losses_of_records, 2, 150),
    (noise_sent_beside, 2, 150),
    (records_in_order_of_labels, 3, 150),
    (redrawn_every_batch, 3, 150),
    (response_of_three, 2, RECORDS),
    (response_of_three, 3, RECORDS),
)
"""Trainings, their classes and their canaries, of which the ledger says ε = 1."""
SOUND = ((response_of_one, 2, 150), (response_of_one, 3, RECORDS), (noise_only, 2, 150))


def recorded(folder: Path, system: Any, *, classes: int, canaries: int, seed: int = 0, records: int = RECORDS) -> Path:
    """Record one of the trainings; without canaries if there are none."""
    generator = torch.Generator().manual_seed(seed)
    labels, planted = torch.randint(0, classes, (records,), generator=generator), None
    if system in (losses_of_records, loss_sums_without_noise):
        labels = (Training(None, labels, classes, seed).features[:, 0] > 0).long()
    if canaries:
        labels, planted = vflpriv.plant(labels, classes=classes, canaries=canaries, seed=seed)
    with vflpriv.record(folder, devices=1, classes=classes, records=records, rounds_per_file=50) as wire:
        wire.labels(labels, canaries=planted)
        system(Training(wire, labels, classes, seed))
    return folder


def ledger(**changes: Any) -> LedgerConfig:
    """A ledger that says ε = 1 for labels: all follows from labels under randomised response; scalars are noised."""
    once = {"kind": "noised-labels", "noise": "rr", "scale": 1.0, "sensitivity": {"label": 1.0}, "once": True}
    kinds = ("hints", "embedding-gradient", "totals", "quality", "embeddings")
    others = [{"kind": kind, "noise": "none", "independent_of": ["label"]} for kind in kinds]
    claim = {"key": "labels", "unit": "label", "view": "device(0)", "epsilon": 1.0, "delta": 1e-5}
    tree = {"model_follows_releases": True, "release": [once, *others], "claim": [claim]}
    return parse_settings(LedgerConfig, tree | changes, "ledger")


def gaussian_totals(scale: float = 100.0) -> LedgerConfig:
    """A ledger that says that totals carry Gaussian noise, enough for ε = 1, and that nothing else holds a label."""
    noised = {"kind": "totals", "noise": "gaussian", "scale": scale, "sensitivity": {"label": 1.0}, "leak": "none"}
    return ledger(release=[noised, {"kind": "embeddings", "noise": "none", "independent_of": ["label"]}])


def audited(folder: Path, config: LedgerConfig | None = None) -> Report:
    """The report on a recorded training."""
    return audit_transcript(folder, config or ledger(), command="vflpriv audit")
