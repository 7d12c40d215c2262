"""Small recorded trainings with membership canaries: models that memorise their records, and models that cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

import vflpriv
from vflpriv.config.errors import parse_settings
from vflpriv.recording.ledger_file import LedgerConfig

__all__ = ["ledger", "memorised", "never_trained", "noised", "recorded"]

RECORDS, WIDTH, CLASSES, BATCHES = 260, 600, 2, 5


def memorised(rows: Tensor, labels: Tensor, trained: Tensor, generator: torch.Generator) -> Tensor:
    """Confidences of a ridge regression with more columns than records: it remembers labels that mean nothing."""
    del generator
    known, targets = rows[trained].double(), one_hot(labels[trained], CLASSES).double() - 0.5
    gram = known @ known.T + torch.eye(len(known), dtype=torch.float64)
    weights = known.T @ torch.linalg.solve(gram, targets)
    return torch.softmax(4 * rows.double() @ weights, dim=-1)


def never_trained(rows: Tensor, labels: Tensor, trained: Tensor, generator: torch.Generator) -> Tensor:
    """Confidences of random weights."""
    del labels, trained
    return torch.softmax(rows.double() @ torch.randn(WIDTH, CLASSES, generator=generator).double() / 8, dim=-1)


def noised(rows: Tensor, labels: Tensor, trained: Tensor, generator: torch.Generator) -> Tensor:
    """Confidences that drown in noise: each row is a random number, but for a part of 1 %."""
    exact = memorised(rows, labels, trained, generator)
    noise = torch.rand(len(rows), 1, generator=generator).double()
    return 0.01 * exact + 0.99 * torch.cat((noise, 1 - noise), dim=1)


def recorded(
    folder: Path,
    system: Any,
    *,
    seed: int = 0,
    canaries: int = 120,
    unit: Any = "record",
    trains_on_all: bool = False,
    ask: str = "all",
    **options: Any,
) -> Path:
    """One device's embeddings in batches of members, then predictions of all canaries, members first."""
    generator = torch.Generator().manual_seed(500 + seed)
    rows = torch.randn(RECORDS, WIDTH, generator=generator)
    labels = torch.randint(0, CLASSES, (RECORDS,), generator=generator)
    members, planted = vflpriv.plant_members(records=RECORDS, canaries=canaries, seed=seed, unit=unit)
    trained = torch.arange(RECORDS) if trains_on_all else torch.from_numpy(members)
    with vflpriv.record(folder, devices=1, classes=CLASSES, records=RECORDS, fresh=True, **options) as wire:
        wire.labels(labels)
        wire.members(planted)
        for t, batch in enumerate(trained.chunk(BATCHES)):
            wire.up(t, 0, "embeddings", {"embedding": rows[batch, :4]}, batch)
        is_out = torch.isin(planted.records, planted.left_out)
        members_first = torch.cat((planted.records[~is_out], planted.records[is_out]))
        asked = members_first[:-1] if ask == "all but one" else members_first
        confidences = system(rows, labels, trained, generator)
        halves = asked.split(len(asked) // 2 + 1)
        for place, half in enumerate(halves):
            round_ = BATCHES + (place if ask == "in several rounds" else 0)
            wire.down(round_, 0, "predictions", {"confidences": confidences[half]}, half)
    return folder


def ledger(**changes: Any) -> LedgerConfig:
    """The predictions are said to be independent of any record: they follow from a noised release of the model."""
    free = ["record", "add-remove", "label", "features", "client", "client-zero"]
    kinds = [{"kind": kind, "noise": "none", "independent_of": free} for kind in ("embeddings", "predictions")]
    claim = {"key": "members", "unit": "record", "view": "device(0)", "epsilon": 1.0, "delta": 1e-5}
    tree = {"model_follows_releases": True, "release": kinds, "claim": [claim]}
    return parse_settings(LedgerConfig, tree | changes, "ledger")
