"""Which record becomes the canary, and how its features are crafted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from vflpriv.audits._trials import TrialStore, one_thread
from vflpriv.canaries import Canary, CanaryKind
from vflpriv.ledger import Exposure
from vflpriv.seeds import derive, host_generator
from vflpriv.systems import System
from vflpriv.wire import Transcript, Wire

__all__ = ["craft", "most_exposed", "plan"]

_CANDIDATES = 48
_SEEDS = 8
_GENERATIONS = 4
_REACH = 10.0


def most_exposed(exposures: Sequence[Exposure]) -> int:
    """The record that all these adversaries together see most often, each count relative to its largest."""
    shares = [e.counts / max(1, int(e.counts.max())) for e in exposures if e.counts is not None]
    if not shares:
        raise ValueError("Expected exposures of a unit that belongs to one record.")
    return int(np.argmax(np.sum(shares, axis=0)))


def plan(system: System, kind: CanaryKind, record: int, store: TrialStore) -> Canary:
    """The canary in one replica: its label as it is in world 0, another one in world 1."""
    label = int(system.data.labels[record])
    shift = int(host_generator(system.seed, "canary", record).integers(1, system.data.classes))
    labels = (label, (label + shift) % system.data.classes)
    blocks: Mapping[int, Tensor] = {}
    if kind is CanaryKind.CRAFTED:
        key = f"{system.fingerprint()}/features/{record}/{labels}"
        stored = store.load(key)
        if stored is None:
            stored = {str(m): block for m, block in craft(system, record, labels).items()}
            store.save(key, stored)
        blocks = {int(m): block for m, block in stored.items()}
    return Canary(kind=kind, record=record, world=torch.zeros(1, dtype=torch.int64), labels=labels, blocks=blocks)


def craft(system: System, record: int, labels: tuple[int, int]) -> Mapping[int, Tensor]:
    """Features for which the label moves the releases most, within ten times the range of each device's data.

    Nothing in a protocol keeps features within their usual range, and a guarantee holds for every record. The search
    selects and mutates: each replica of a short training carries another candidate, under the same few seeds.
    """
    generator = torch.Generator().manual_seed(derive(system.seed, "canary", record, 1) % (1 << 63))
    bounds = [_REACH * block.abs().amax(0) for block in system.data.blocks]
    candidates = [_corners(bound, generator) for bound in bounds]
    for m, block in enumerate(system.data.blocks):
        candidates[m][0] = block[record]
    for generation in range(_GENERATIONS):
        strength = _strength(system, record, labels, candidates)
        best = strength.argsort(descending=True)[: _CANDIDATES // 8]
        if generation + 1 == _GENERATIONS:
            return {m: block[best[0]].unsqueeze(0) for m, block in enumerate(candidates)}
        for m, bound in enumerate(bounds):
            parents = candidates[m][best].repeat(8, *(1 for _ in bound.shape))
            fresh = _corners(bound, generator)
            mutate = torch.rand(parents.shape, generator=generator) < 0.15
            mutate[: len(best)] = False
            candidates[m] = torch.where(mutate, fresh, parents)
    raise AssertionError("unreachable: the last generation returns")


def _corners(bound: Tensor, generator: torch.Generator) -> Tensor:
    """Random corners of the box of this half-width, one feature in three left at zero."""
    return bound * torch.randint(-1, 2, (_CANDIDATES, *bound.shape), generator=generator)


def _strength(system: System, record: int, labels: tuple[int, int], candidates: Sequence[Tensor]) -> Tensor:
    """(candidates,) summed squared distance between the worlds' noiseless releases, over the record's first rounds."""
    canary = Canary(
        kind=CanaryKind.CRAFTED,
        record=record,
        world=torch.zeros(_CANDIDATES * _SEEDS, dtype=torch.int64),
        labels=labels,
        blocks={m: block.repeat_interleave(_SEEDS, 0) for m, block in enumerate(candidates)},
    )
    transcript = Transcript(moved=True)
    engine = system.train(list(range(_SEEDS)) * _CANDIDATES, canary=canary)
    wire = Wire(transcript)
    with one_thread():
        for round_ in range(_first_pass(system, record)):
            engine.round(round_, wire)
    total = torch.zeros(_CANDIDATES * _SEEDS, device=system.torch_device)
    for message in transcript.messages:
        for either in message.worlds.values():
            total += (either[:, 0] - either[:, 1]).square().reshape(len(total), -1).sum(1)
    return total.reshape(_CANDIDATES, _SEEDS).mean(1).cpu()


def _first_pass(system: System, record: int) -> int:
    """The number of rounds until the record was in each device's batch once, or all of them."""
    missing = set(range(system.data.devices))
    for round_ in range(system.schedule.rounds):
        if record in system.schedule.batch(round_):
            missing -= set(system.schedule.members(round_))
        if not missing:
            return round_ + 1
    return system.schedule.rounds
