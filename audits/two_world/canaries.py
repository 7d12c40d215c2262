"""The choice of the record or device that becomes the canary, and the search for crafted features."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from vflpriv.audits.twins.probes import TwinProbe, canary_probe
from vflpriv.audits.two_world.scores import CanaryRows
from vflpriv.audits.two_world.whole_view import Places
from vflpriv.common.machine import single_threaded
from vflpriv.common.seeds import derive, host_generator
from vflpriv.common.store import Entry, Store, TensorForm
from vflpriv.core.canaries import Canary, CanaryKind
from vflpriv.core.schedules import Schedule
from vflpriv.core.systems import System
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary

__all__ = ["REACH", "SEARCHED", "craft", "plan", "strongest_unit"]

_CANDIDATES = 48
_SEEDS = 8
_GENERATIONS = 4
SEARCHED = range(1 << 62, (1 << 62) + _SEEDS)
"""Numbers of the replicas on which canaries are chosen: no trial has them, so that none is tested on what it chose."""
_COMPARED = range(SEARCHED.stop, SEARCHED.stop + 4 * _SEEDS)
"""Numbers of the replicas on which the best canary that was found is compared with the natural one."""
REACH = 10.0
_WITH_FEATURES = (Unit.FEATURES, Unit.RECORD)
"""The units of which canaries of the data change a device's features between the worlds."""


def plan(
    system: System,
    kind: CanaryKind,
    record: int,
    store: Store,
    *,
    unit: Unit = Unit.LABEL,
    rate: float | None = None,
    reach: float = REACH,
    views: Sequence[Adversary] = (),
    holders: Collection[int] = (),
) -> Canary:
    """The canary of one replica. World 0 is the data as it is, unless the canary is crafted or at the clip.

    A crafted canary's features lie within `reach` times the range of the data. It is the one that moves noised releases
    most, or, with `views`, what these show of its rows. A record as a whole has another label and other features at one
    device, which is none of the `holders`, if there is another one.
    """
    label = int(system.data.labels[record])
    shift = int(host_generator(system.seed, "canary", record).integers(1, system.data.classes))
    changed = unit in (Unit.LABEL, Unit.RECORD)
    labels = (label, (label + shift) % system.data.classes if changed else label)
    device = _busiest(system.schedule, record if unit.per_record else None, holders)
    whole = unit in (Unit.LABEL, Unit.ADD_REMOVE) or (unit is Unit.RECORD and kind is CanaryKind.WORST_CASE)
    bare = Canary(
        kind=kind,
        record=record,
        world=torch.zeros(1, dtype=torch.int64),
        labels=labels,
        unit=unit,
        devices=() if whole else (device,),
        rate=rate,
    )
    if bare.at_clip:
        return bare
    if not unit.per_record:
        # A device without data, or with data of the other sign; crafted: the scale that moves the releases most.
        sizes = (1.0, -1.0, reach, -reach) if kind is CanaryKind.CRAFTED else (1.0,)
        others = (0.0,) if unit is Unit.CLIENT_ZERO else (*(-s for s in sizes), *(1 / s for s in sizes[1:]))
        tried = [replace(bare, factors={device: (s, o)}) for s in sizes for o in others]
        return tried[0] if len(tried) == 1 else max(tried, key=lambda canary: _distance(system, canary))
    if kind is CanaryKind.NATURAL:
        return replace(bare, pairs={device: _farthest(system, record, device)}) if unit in _WITH_FEATURES else bare
    key = system.result_key(store, "features", unit, record, labels, reach, bare.devices, *views)
    form = TensorForm(names=[str(m) for m in bare.devices or range(system.data.devices)], rows=1)
    blocks = store.result(
        Entry(key=key, form=form), lambda: {str(m): block for m, block in craft(system, bare, reach, views).items()}
    )
    return _carrying(bare, {int(m): block for m, block in blocks.items()})


def _carrying(canary: Canary, features: Mapping[int, Tensor]) -> Canary:
    """The canary with these features: a block for each world where the worlds differ in them, else one for both."""
    return replace(canary, pairs=features) if canary.unit in _WITH_FEATURES else replace(canary, blocks=features)


def _busiest(schedule: Schedule, record: int | None, holders: Collection[int] = ()) -> int:
    """The device, no holder if possible, that takes part most often, in the rounds of this record if one is given."""
    active = schedule.active.T
    turns = active.sum(axis=1) if record is None else np.array([schedule.counts(rounds)[record] for rounds in active])
    others = np.array([m not in holders for m in range(len(active))])
    return int(np.argmax(np.where(others, turns, -1) if others.any() else turns))


def strongest_unit(
    system: System, record: int, units: Sequence[Unit], views: Sequence[Adversary], holders: Collection[int]
) -> Unit:
    """Of these units the one whose change the views show most, on replicas that no trial has.

    It is chosen before any trial, so that a claim is tested once: trials of each would be more tests or fewer trials.
    """
    shown = {}
    for unit in units:
        canary = plan(system, CanaryKind.NATURAL, record, Store(), unit=unit, holders=holders)
        features = canary.pairs or {0: system.data.blocks[0][record].unsqueeze(0)}
        shown[unit] = float(_strength(system, canary, features, views)[0])
    return max(units, key=lambda unit: shown[unit])


def _farthest(system: System, record: int, device: int) -> Tensor:
    """(1, 2, *shape): the record's block, and that of the record of another class that is farthest from it."""
    block, labels = system.data.blocks[device], system.data.labels
    distance = (block - block[record]).to(torch.float32).flatten(1).square().sum(1)
    far = int(torch.where(labels != labels[record], distance, -1.0).argmax())
    return torch.stack((block[record], block[far])).unsqueeze(0)


def craft(
    system: System, canary: Canary, reach: float = REACH, views: Sequence[Adversary] = ()
) -> Mapping[int, Tensor]:
    """Features for which the canary moves the releases most, within `reach` times the range of each device's data.

    For features they are one block for each world, at one device; for other units the record's in both worlds, at every
    device. Nothing in a protocol keeps features within their usual range, and a guarantee holds for every record. The
    search is evolutionary: each replica of a short training carries another candidate, under the same few seeds. It
    begins with the natural canary, and ends with it where nothing better shows.
    """
    generator = torch.Generator().manual_seed(derive(system.seed, "canary", canary.record, 1) % (1 << 63))
    bounds, candidates = {}, {}
    for m in canary.devices or range(system.data.devices):
        block = system.data.blocks[m]
        bound = reach * block.abs().amax(0)
        own, features = block[canary.record], canary.unit in _WITH_FEATURES
        bounds[m] = torch.stack((bound, bound)) if features else bound
        candidates[m] = _corners(bounds[m], generator)
        candidates[m][0] = _farthest(system, canary.record, m)[0] if features else own
        candidates[m][1] = torch.stack((own, -own)) if features else candidates[m][1]
    natural, known = {m: block[:1].clone() for m, block in candidates.items()}, torch.empty(0)
    for generation in range(_GENERATIONS):
        # The first candidates are the parents of the others, measured already under the same seeds.
        new = {m: block[len(known) :] for m, block in candidates.items()}
        strengths = torch.cat((known, _strength(system, canary, new, views)))
        best = strengths.argsort(descending=True, stable=True)[: _CANDIDATES // 8]
        known = strengths[best]
        if generation + 1 == _GENERATIONS:
            crafted = {m: block[best[0]].unsqueeze(0) for m, block in candidates.items()}
            return _better(system, canary, natural, crafted, views) if views else crafted
        for m, bound in bounds.items():
            parents = candidates[m][best].repeat(8, *(1 for _ in bound.shape))
            fresh = _corners(bound, generator)
            mutate = torch.rand(parents.shape, generator=generator) < 0.15
            mutate[: len(best)] = False
            candidates[m] = torch.where(mutate, fresh, parents)
    raise AssertionError("unreachable: the last generation returns")


def _corners(bound: Tensor, generator: torch.Generator) -> Tensor:
    """Random corners of the box of this half-width, one feature in three left at zero."""
    return bound * torch.randint(-1, 2, (_CANDIDATES, *bound.shape), generator=generator)


def _better(
    system: System,
    canary: Canary,
    natural: Mapping[int, Tensor],
    crafted: Mapping[int, Tensor],
    views: Sequence[Adversary],
) -> Mapping[int, Tensor]:
    """The stronger of two candidates, on replicas on which neither was chosen: few seeds flatter the best of many."""
    both = {m: torch.cat((block, crafted[m])) for m, block in natural.items()}
    strengths = _strength(system, canary, both, views, _COMPARED)
    return crafted if strengths[1] > strengths[0] else natural


def _strength(
    system: System,
    canary: Canary,
    candidates: Mapping[int, Tensor],
    views: Sequence[Adversary] = (),
    seeds: Sequence[int] = SEARCHED,
) -> Tensor:
    """(candidates,) summed squared distance between the worlds' releases in units of the noise, over the first rounds.

    Each replica has a twin in the other world that releases the same, so that what state carries over counts too. With
    `views`, the distance is that between what they show of the canary's rows, in units of its spread over the seeds.
    """
    count = len(next(iter(candidates.values())))
    replicas = [r for _ in range(count) for r in seeds for _ in (0, 1)]
    features = {m: block.repeat_interleave(2 * len(seeds), 0) for m, block in candidates.items()}
    carried = replace(_carrying(canary, features), world=torch.tensor([0, 1]).repeat(count * len(seeds)))
    absent = canary.unit is Unit.ADD_REMOVE
    probe = canary_probe(system, replicas, carried) if absent else TwinProbe()
    engine = system.train(replicas, data=carried.into(system.data), probe=probe)
    total = torch.zeros(count * len(seeds), device=system.torch_device)
    rows = [CanaryRows(carried, view, system.data, Places(canary.record)) for view in views]
    with single_threaded():
        for round_ in range(_first_pass(system, canary.record)):
            for value in probe.round(engine, round_, *rows):
                worlds = value.worlds if absent else value.noiseless.unflatten(0, (-1, 2))
                if worlds is not None:
                    gap = (worlds[0::2] if absent else worlds).diff(dim=1)
                    total += gap.square().reshape(len(gap), -1).sum(1) / value.std**2
    if not views:
        return total.reshape(count, len(seeds)).mean(1).cpu()
    tables = [table for row in rows for table in (row.features(len(replicas)), row.likeness()) if table is not None]
    return torch.stack([_separation(table.reshape(count, len(seeds), 2, -1).cpu()) for table in tables]).amax(0)


def _separation(rows: Tensor) -> Tensor:
    """(candidates,) of rows (candidates, seeds, 2 worlds, columns): summed squared distances in units of the spread."""
    apart = rows.diff(dim=2).mean(1).squeeze(1)
    return (apart.square() / rows.var(1).mean(1).clamp(min=1e-30)).nan_to_num().sum(1)


def _distance(system: System, canary: Canary) -> float:
    """The summed squared distance of `_strength`, for one canary that is the same in all replicas."""
    worlds = torch.tensor([0, 1]).repeat(_SEEDS)
    data, probe = replace(canary, world=worlds).into(system.data), TwinProbe()
    engine = system.train([r for r in SEARCHED for _ in (0, 1)], data=data, probe=probe)
    with single_threaded():
        values = [value for round_ in range(system.schedule.rounds) for value in probe.round(engine, round_)]
    gaps = [(value.noiseless[0::2] - value.noiseless[1::2], value.std) for value in values]
    return sum(float(gap.square().sum()) / std**2 for gap, std in gaps)


def _first_pass(system: System, record: int) -> int:
    """The number of rounds until the record was in each device's batch once, or all of them."""
    missing = set(range(system.data.devices))
    for round_ in range(system.schedule.rounds):
        if record in system.schedule.batch(round_):
            missing -= set(system.schedule.members(round_))
        if not missing:
            return round_ + 1
    return system.schedule.rounds
