"""Mutations of recorded trainings: all that is known is a transcript, and a ledger file that their authors wrote."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import vflpriv
from tests.mutations.case import DELTA, Mutation, Outcome
from vflpriv.common.registry import find
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.recording.ledger_file import load_ledger
from vflpriv.recording.system import read_recording
from vflpriv.run.audit import audit_transcript

__all__ = ["CONTROLS", "MUTATIONS", "Recorded", "claimed"]

RECORDS, BATCH, ROUNDS = 200, 20, 60
Script = Callable[[Any, "Training"], None]


@dataclass(frozen=True, kw_only=True)
class Training:
    """What a script trains on: labels with canaries among them, and its random generator."""

    labels: Tensor
    classes: int
    generator: torch.Generator

    def batches(self) -> list[Tensor]:
        """The record ids of each round."""
        rounds = []
        while len(rounds) < ROUNDS:
            rounds += torch.randperm(RECORDS, generator=self.generator).split(BATCH)
        return rounds[:ROUNDS]

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator)

    def responses(self, labels: Tensor, epsilon: float) -> Tensor:
        """The labels under randomised response."""
        keep = 1 / (1 + (self.classes - 1) * math.exp(-epsilon))
        shift = torch.randint(1, self.classes, labels.shape, generator=self.generator)
        kept = torch.rand(labels.shape, generator=self.generator) < keep
        return torch.where(kept, labels, (labels + shift) % self.classes)

    def gradients(self, labels: Tensor) -> Tensor:
        """The gradient of each record's loss by its logits, at logits near zero."""
        logits = 0.1 * self.normal(len(labels), self.classes)
        return logits.softmax(-1) - torch.nn.functional.one_hot(labels, self.classes)

    def embedding_gradients(self, labels: Tensor) -> Tensor:
        """The same by embeddings, behind a top layer that stays as it is."""
        top = torch.randn((self.classes, 4), generator=torch.Generator().manual_seed(7))
        return self.gradients(labels) @ top


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A script that sends messages, and its ledger; `EXACT` stands for the ε that the ledger gives for the claim."""

    script: Script
    ledger: str
    classes: int = 2
    canaries: int = 100
    answers: bool = True

    def outcome(self, folder: Path, *, seed: int, trials: int | None = None) -> Outcome:
        self.record(folder / "run", seed)
        path = folder / "ledger.toml"
        path.write_text(self.ledger.replace("EXACT", "1000.0"), encoding="utf-8")
        if "EXACT" in self.ledger:
            path.write_text(self.ledger.replace("EXACT", repr(_exact(folder / "run", path))), encoding="utf-8")
        report = audit_transcript(folder / "run", load_ledger(path), command="vflpriv audit")
        return Outcome.of(report, 0)

    def record(self, folder: Path, seed: int) -> None:
        """Train once and write the transcript."""
        truth = torch.arange(RECORDS) % self.classes
        planted, canaries = vflpriv.plant(truth, classes=self.classes, canaries=self.canaries, seed=seed)
        training = Training(labels=planted, classes=self.classes, generator=torch.Generator().manual_seed(1000 + seed))
        with vflpriv.record(folder, devices=2, classes=self.classes, records=RECORDS, rounds_per_file=ROUNDS) as wire:
            if self.answers:
                wire.labels(planted, canaries=canaries)
            self.script(wire, training)


def _exact(folder: Path, ledger: Path) -> float:
    """The ε that is accounted for the ledger's first claim."""
    system = read_recording(folder, load_ledger(ledger))
    claim = system.claims[0]
    exposure = system.ledger.exposure(Adversary.parse(str(claim.adversary)), Unit(claim.unit))
    return float(find("accountant", "auto")().budget(exposure, claim.delta).upper) * (1 + 1e-6)


def claimed(unit: str = "label", view: str = "device(0)", epsilon: str = "EXACT") -> str:
    return f"""
[[claim]]
key = "claimed"
unit = "{unit}"
view = "{view}"
epsilon = {epsilon}
delta = {DELTA}
"""


RESPONSES = """
model_follows_releases = true
[[release]]
kind = "logit-gradient"
noise = "rr"
scale = 1.0
once = true
sensitivity = { label = 1.0, record = 1.0 }
"""
BEHIND = RESPONSES.replace("logit-gradient", "embedding-gradient")
SCALARS = """
model_follows_releases = true
[[release]]
kind = "answer"
noise = "gaussian"
scale = 1.0
sensitivity = { label = 0.05, record = 0.05 }
leak = "none"
"""
ROWS = """
model_follows_releases = true
[[release]]
kind = "embeddings"
noise = "gaussian"
scale = 1.0
sensitivity = { features = 0.5, record = 0.5, client = 10.0 }
independent_of = ["label"]
leak = "none"
"""


def _once(epsilon: float, *, behind: bool = False) -> Script:
    """Responses are drawn once, and every gradient is of them; by embeddings if `behind` a top layer."""

    def script(wire: Any, training: Training) -> None:
        noised = training.responses(training.labels, epsilon)
        for t, ids in enumerate(training.batches()):
            if behind:
                wire.down(t, 0, "embedding-gradient", {"gradient": training.embedding_gradients(noised[ids])}, ids)
            else:
                wire.down(t, 0, "logit-gradient", {"gradient": training.gradients(noised[ids])}, ids)

    return script


def _redrawn(wire: Any, training: Training) -> None:
    for t, ids in enumerate(training.batches()):
        noised = training.responses(training.labels[ids], 1.0)
        wire.down(t, 0, "embedding-gradient", {"gradient": training.embedding_gradients(noised)}, ids)


def _scalars(
    *, noise: float = 1.0, drift: float = 0.0, tensors: Callable[[Training, Tensor], dict[str, Tensor]] | None = None
) -> Script:
    """A noised sum of the batch's labels in every round, and what else is sent beside it."""

    def script(wire: Any, training: Training) -> None:
        for t, ids in enumerate(training.batches()):
            value = (
                0.05 * training.labels[ids].float().sum() + drift * math.exp(-t / 20) + noise * training.normal(1)[0]
            )
            beside = {} if tensors is None else tensors(training, ids)
            wire.down(t, 0, "answer", {"x": value, **beside}, ids)

    return script


def _unknown_kind(wire: Any, training: Training) -> None:
    _scalars()(wire, training)
    for t, ids in enumerate(training.batches(), start=ROUNDS):
        wire.down(t, 0, "status", {"values": 3 * training.labels[ids] + training.normal(BATCH)}, ids)


def _sorted_ids(wire: Any, training: Training) -> None:
    for t, ids in enumerate(training.batches()):
        ordered = ids[training.labels[ids].argsort(stable=True)]
        value = 0.05 * training.labels[ids].float().sum() + training.normal(1)[0]
        wire.down(t, 0, "answer", {"x": value}, ordered)


def _extra_message(wire: Any, training: Training) -> None:
    for t, ids in enumerate(training.batches()):
        value = 0.05 * training.labels[ids].float().sum() + training.normal(1)[0]
        wire.down(t, 0, "answer", {"x": value}, ids)
        for record in ids[training.labels[ids] == 1].tolist():
            wire.down(t, 0, "tick", {"x": torch.ones(1)}, [record])


def _rows(*, reused: bool = False, size: float = 0.2, noise: float = 1.0) -> Script:
    """Noised embeddings of each record."""

    def script(wire: Any, training: Training) -> None:
        embeddings = size * training.normal(RECORDS, 4)
        fixed = training.normal(RECORDS, 4)
        for t, ids in enumerate(training.batches()):
            drawn = fixed[ids] if reused else training.normal(BATCH, 4)
            wire.up(t, 0, "embeddings", {"embedding": embeddings[ids] + noise * drawn}, ids)

    return script


def _halved(script: Script) -> Script:
    """The same messages in half precision."""

    def halved(wire: Any, training: Training) -> None:
        script(_HalfWire(wire), training)

    return halved


@dataclass(frozen=True)
class _HalfWire:
    """Hands messages on with 16 bits for every number."""

    wire: Any

    def up(self, round_: int, m: int, kind: str, tensors: dict[str, Tensor], ids: Tensor) -> None:
        self.wire.up(round_, m, kind, {name: tensor.half() for name, tensor in tensors.items()}, ids)

    def down(self, round_: int, m: int, kind: str, tensors: dict[str, Tensor], ids: Tensor) -> None:
        self.wire.down(round_, m, kind, {name: tensor.half() for name, tensor in tensors.items()}, ids)


def _recorded(name: str, fault: str, change: str, case: Recorded, **fields: Any) -> Mutation:
    return Mutation(
        name=name, family="recorded", fault=fault, change=change, case=case, **{"expected": "coins", **fields}
    )


_FEATURES = claimed("features", "server")
_STATUS = """
[[release]]
kind = "status"
noise = "gaussian"
scale = 1.0
sensitivity = { label = 0.05, record = 0.05 }
leak = "none"
"""
_POISSON = """
[batches]
batching = "poisson"
size = 20
"""

MUTATIONS = (
    _recorded(
        "recorded-more-epsilon",
        "the ledger says ε = 1, the code uses 3, with half of the records planted",
        "+200 % of ε",
        Recorded(script=_once(3.0), ledger=RESPONSES + claimed()),
    ),
    _recorded(
        "recorded-all-planted",
        "the same behind a top layer and with every record planted, so that attacks are left without labels",
        "+200 % of ε",
        Recorded(script=_once(3.0, behind=True), ledger=BEHIND + claimed(), canaries=RECORDS),
    ),
    _recorded(
        "recorded-redrawn",
        "randomised response on three classes is drawn anew for every batch",
        "ε times the epochs",
        Recorded(script=_redrawn, ledger=BEHIND + claimed(), classes=3),
    ),
    _recorded(
        "recorded-unknown-kind",
        "labels in a kind that no attack knows, with a ledger entry of a sixtieth of its sensitivity",
        "total leak",
        Recorded(script=_unknown_kind, ledger=SCALARS + _STATUS + claimed()),
    ),
    _recorded(
        "recorded-public-kind",
        "the same in a kind that the ledger calls public",
        "total leak",
        Recorded(script=_unknown_kind, ledger='public = ["status"]' + SCALARS + claimed()),
    ),
    _recorded(
        "recorded-unlisted-kind",
        "the same in a kind that the ledger leaves out",
        "total leak",
        Recorded(script=_unknown_kind, ledger=SCALARS + claimed(epsilon="10.0")),
        expected="ledger",
        accepted=(1, 3),
    ),
    _recorded(
        "recorded-extra-tensor",
        "labels in a second tensor of a kind whose entry is about the first",
        "total leak",
        Recorded(
            script=_scalars(tensors=lambda training, ids: {"y": 10 * training.labels[ids].float()}),
            ledger=SCALARS + claimed(),
        ),
    ),
    _recorded(
        "recorded-sorted-ids",
        "record ids in the order of their labels",
        "total leak",
        Recorded(script=_sorted_ids, ledger=SCALARS + claimed()),
    ),
    _recorded(
        "recorded-extra-message",
        "one more public message about each record of one class",
        "total leak",
        Recorded(script=_extra_message, ledger='public = ["tick"]' + SCALARS + claimed()),
    ),
    _recorded(
        "recorded-no-noise",
        "no noise at all on a value that falls as losses do, by more than the noise would be",
        "total leak",
        Recorded(script=_scalars(noise=0.0, drift=20.0), ledger=SCALARS + claimed()),
        expected="noise",
        accepted=(1, 3),
    ),
    _recorded(
        "recorded-rows-without-noise",
        "embeddings without noise that are larger than the noise would be",
        "total leak",
        Recorded(script=_rows(size=3.0, noise=0.0), ledger=ROWS + _FEATURES),
        expected="noise",
        accepted=(1, 3),
    ),
    _recorded(
        "recorded-noise-reused",
        "each record's embedding has the same noise in every round",
        "total leak",
        Recorded(script=_rows(reused=True), ledger=ROWS + _FEATURES),
        expected="noise",
        accepted=(1, 3),
    ),
    _recorded(
        "recorded-poisson",
        "shuffled batches that the ledger calls Poisson, in a claim about an outsider",
        "+100 % and more",
        Recorded(
            script=_scalars(),
            ledger=SCALARS.replace("noise =", "additive = true\nnoise =") + _POISSON + claimed(view="outsider"),
        ),
        expected="accounting",
        accepted=(1, 3),
    ),
    _recorded(
        "recorded-no-canaries",
        "nothing to measure by: the claim rests on the ledger's word alone",
        "unknown",
        Recorded(script=_unknown_kind, ledger='public = ["status"]' + SCALARS + claimed(), answers=False),
        expected="verdict",
        accepted=(3,),
    ),
)


def _control(name: str, fault: str, case: Recorded, *, fast: bool = False) -> Mutation:
    fields: dict[str, Any] = {"change": "none", "expected": "none", "accepted": (0, 3)}
    return Mutation(name=name, family="control", fault=fault, case=case, fast=fast, **fields)


CONTROLS = (
    _control(
        "sound-recorded-rr",
        "a recorded training with randomised response",
        Recorded(script=_once(1.0), ledger=RESPONSES + claimed()),
    ),
    _control(
        "sound-recorded-rr-three",
        "the same with three classes, behind a top layer",
        Recorded(script=_once(1.0, behind=True), ledger=BEHIND + claimed(), classes=3),
    ),
    _control(
        "sound-recorded-all-planted",
        "the same with every record planted",
        Recorded(script=_once(1.0, behind=True), ledger=BEHIND + claimed(), canaries=RECORDS),
    ),
    _control(
        "sound-recorded-scalar",
        "a recorded training with noised sums",
        Recorded(script=_scalars(), ledger=SCALARS + claimed()),
    ),
    _control(
        "sound-recorded-rows",
        "a recorded training with noised embeddings",
        Recorded(script=_rows(), ledger=ROWS + _FEATURES),
    ),
    _control(
        "sound-recorded-half",
        "a recorded training with noised sums in half precision, of which a large part drifts",
        Recorded(script=_halved(_scalars(drift=500.0)), ledger=SCALARS + claimed()),
    ),
    _control(
        "sound-recorded-half-rows",
        "a recorded training with noised embeddings in half precision",
        Recorded(script=_halved(_rows()), ledger=ROWS + _FEATURES),
    ),
)
