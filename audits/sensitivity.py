"""The sensitivity audit: proves the sensitivity that each mechanism declares, and searches neighbours that exceed it.

A proof follows the mechanism's operations and holds for all inputs; what it does not bound is only searched. The worst
pair of each mechanism and unit is saved, so that anyone can compute the difference again.
"""

from __future__ import annotations

import dataclasses
import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from vflpriv.audits.bounds.proved import prove
from vflpriv.common.files import atomically, parsed_json, regular, write_atomically
from vflpriv.common.registry import register
from vflpriv.common.seeds import derive
from vflpriv.core.audit import Audit, AuditContext, Finding
from vflpriv.core.claims import Verdict
from vflpriv.core.systems import Offer, System
from vflpriv.core.units import Unit
from vflpriv.errors import InputError
from vflpriv.training.mechanisms.base import Mechanism, NoNoise, OuterMean, ScalarMean, VectorMean
from vflpriv.training.mechanisms.uplink import ClientClip, EmbeddingClip, Unclipped

__all__ = [
    "ProvedBound",
    "Replayed",
    "SensitivityAudit",
    "WorstPair",
    "proved_bounds",
    "replay_witness",
    "save_witnesses",
]

_WIDTH = 8
_SLACK = 1e-9
_BROKEN = 100.0
_REPLACE = (Unit.LABEL, Unit.RECORD, Unit.FEATURES)
_EXTREMES = (0.0, 0.5, 1.0, 2.0, 10.0, 1e3)


@dataclass(frozen=True, kw_only=True)
class WorstPair:
    """The worst pair found for one mechanism and unit; record 0 differs between `values` and `neighbour`.

    `observed` is infinite where the mechanism makes something that is not finite of a finite input. `published` says
    that the bound is the one of a published proof, where that is smaller than the bound that is proven.
    """

    mechanism: str
    unit: Unit
    declared: float
    observed: float
    searched: int
    values: Tensor
    neighbour: Tensor
    published: bool = False
    proved: float = math.inf
    """What was proved along the mechanism's operations, for all inputs."""

    @property
    def basis(self) -> str:
        """How the bound is known: "proved", or "searched" where only the search did not exceed it."""
        return "proved" if self.proved <= self.declared * (1 + _SLACK) else "searched"

    @property
    def name(self) -> str:
        """One that no other pair of the same system has."""
        return f"{self.mechanism}-{self.unit}{'-published' if self.published else ''}"

    @property
    def subject(self) -> str:
        """What reports call the mechanism and its bound."""
        return f"{self.mechanism}, published bound" if self.published else self.mechanism

    @property
    def holds(self) -> bool:
        return self.observed <= self.declared * (1 + _SLACK)

    @property
    def witness(self) -> str:
        """The pair, described."""
        if not self.unit.per_record:
            norms = self.values.norm(), self.neighbour.norm()
            return f"inputs of norm {norms[0]:.4g} and {norms[1]:.4g}"
        mine, other = self.values[0].reshape(-1), self.neighbour[0].reshape(-1)
        if len(mine) == 1:
            return f"record 0: {float(mine):.4g} against {float(other):.4g}"
        return f"record 0: norm {mine.norm():.4g} against {other.norm():.4g}, distance {(mine - other).norm():.4g}"

    @property
    def sentence(self) -> str:
        """What the search found, as a report quotes it."""
        if self.holds:
            within = f"{self.observed:.4g}, within the {self._bound} {self.declared:.4g}"
            # Without the unit: units with the same outcome share a row of the report.
            if self.basis == "proved":
                return (
                    f"proved for all inputs, along its operations: neighbours move {self.mechanism} by at most "
                    f"{self.declared:.4g}, as {self._bound}; the largest move of {self.searched} pairs is "
                    f"{self.observed:.4g}"
                )
            return f"none of {self.searched} pairs of neighbours moved {self.mechanism} by more than {within}"
        declares = f"{'has a published bound of' if self.published else 'declares'} {self.declared:.4g}"
        moved = f"found {self.observed:.4g} ({self.witness})"
        if math.isinf(self.observed):
            moved = f"and releases a value that is not finite for a finite input ({self.witness})"
        return (
            f"the sensitivity search found a witness beyond the {self._bound} bound: {self.mechanism} {declares} "
            f"for the {self.unit} unit, {moved}"
        )

    @property
    def repair(self) -> str:
        """What to change where the bound is broken."""
        scale = self.observed / self.declared if self.declared > 0 else math.inf
        known = f", or declare that and make its noise {scale:.4g} times as large" if math.isfinite(scale) else ""
        return (
            f"Bound what one {self.unit} moves in {self.subject}: it can move by {self.observed:.4g}, and "
            f"{self.declared:.4g} is declared{known}."
        )

    @property
    def _bound(self) -> str:
        return "published" if self.published else "declared"


@register("audit")
class SensitivityAudit(Audit[System]):
    """Tries random, heavy-tailed and boundary inputs, then climbs from the best pair, at random and by the gradient."""

    name = "sensitivity"
    summary = "proves the declared sensitivity along the operations, and searches neighbours that exceed it"
    order = 10
    needs = frozenset({Offer.RELEASE_POINTS})

    def __init__(self, *, candidates: int = 512, climbs: int = 4) -> None:
        self.candidates, self.climbs = candidates, climbs

    def run(self, system: System, context: AuditContext) -> list[Finding]:
        """A finding for each mechanism of the system and each unit; claims about that unit rest on the bound.

        A published bound that is smaller than the proven one is a premise of the published claims alone, and is left
        aside where none of them is to be tested.
        """
        context.progress.stage(f"{system.key}: sensitivity search")
        mechanisms = system.engine.mechanisms(system.settings, system.schedule)
        pairs = self.search_all(mechanisms, batch_size=system.schedule.batch_size, seed=context.seed)
        published = context.published(system)
        pairs = [pair for pair in pairs if published or not pair.published]
        saved: Mapping[str, Path] = {}
        if context.witnesses is not None:
            saved = save_witnesses(context.witnesses, system.key, mechanisms, pairs)
        return [_finding(pair, saved.get(pair.name), published) for pair in pairs]

    def search_all(self, mechanisms: Mapping[str, Mechanism], *, batch_size: int, seed: int) -> list[WorstPair]:
        """The worst pair of each mechanism for each unit, against every finite bound that it has."""
        return [
            pair
            for name, mechanism in mechanisms.items()
            for pair in self._search_units(name, mechanism, batch_size, seed)
        ]

    def _search_units(self, name: str, mechanism: Mechanism, batch_size: int, seed: int) -> list[WorstPair]:
        """Units that replace a record have the same neighbours: one search serves them all."""
        searched: dict[object, WorstPair] = {}
        proved = proved_bounds(mechanism, batch_size)
        pairs = []
        for unit in mechanism.declared:
            same = "replace" if unit in _REPLACE else unit
            for published, bound in _bounds(mechanism, unit).items():
                if same not in searched:
                    searched[same] = self.search(name, mechanism, unit, batch_size=batch_size, seed=seed)
                known = math.inf if unit not in proved else proved[unit].bound
                pair = replace(searched[same], unit=unit, declared=bound, published=published, proved=known)
                pairs.append(pair)
        return pairs

    def search(self, name: str, mechanism: Mechanism, unit: Unit, *, batch_size: int, seed: int) -> WorstPair:
        """The largest difference between neighbours that the search finds, in double precision."""
        generator = torch.Generator().manual_seed(derive(seed, "search") % (1 << 63))
        rows = min(batch_size, 64)
        shape = (rows,) if mechanism.scalar else (rows, _WIDTH)
        clip = float(getattr(mechanism, "clip", 1.0))
        pair = torch.stack([self._inputs(shape, clip, generator) for _ in range(2)])
        pair[1, ::2] = -pair[0, ::2]  # opposite sides of the ball
        for side, inputs in enumerate(pair):
            inputs[3::4, ..., side::2] = 0.0  # at right angles
        best, observed = self._best(mechanism, unit, pair)
        for _ in range(self.climbs):
            if observed > _BROKEN * mechanism.declared[unit]:
                break
            scale = 10.0 ** torch.empty(self.candidates, *(1 for _ in shape)).uniform_(-3, 1, generator=generator)
            noise = torch.randn(2, self.candidates, *shape, generator=generator, dtype=torch.float64)
            moved = best.unsqueeze(1) * (1 + scale * noise)
            moved[:, 0] = best
            uphill = self._uphill(mechanism, unit, best)
            steps = scale[: self.candidates // 2].to(torch.float64)
            moved[:, 1 : 1 + len(steps)] = best.unsqueeze(1) + steps * uphill.unsqueeze(1)
            best, observed = self._best(mechanism, unit, moved)
        values, other = best
        neighbour = mechanism.neighbour(unit, values.unsqueeze(0), other.unsqueeze(0))[0]
        return WorstPair(
            mechanism=name,
            unit=unit,
            declared=mechanism.declared[unit],
            observed=observed,
            searched=self.candidates * (self.climbs + 1),
            values=values,
            neighbour=neighbour,
        )

    def _uphill(self, mechanism: Mechanism, unit: Unit, pair: Tensor) -> Tensor:
        """The direction in which the difference of a pair grows fastest, as long as the pair itself.

        Entries without a finite derivative stay: a norm has none at a row of zeros.
        """
        leaf = pair.detach().clone().requires_grad_()
        values, other = leaf.unsqueeze(1)
        gap = mechanism.noiseless(values) - mechanism.noiseless(mechanism.neighbour(unit, values, other))
        (gradient,) = torch.autograd.grad(gap.square().sum(), leaf)
        gradient = torch.where(gradient.isfinite(), gradient, 0.0)
        length: Tensor = pair.norm() / gradient.norm().clamp(min=1e-30)
        return torch.mul(gradient, length)

    def _inputs(self, shape: tuple[int, ...], clip: float, generator: torch.Generator) -> Tensor:
        """Random signs and directions times random, heavy-tailed or boundary magnitudes; record 0 gets its own."""
        size = (self.candidates, *shape)
        direction = torch.randn(size, generator=generator, dtype=torch.float64)
        direction = direction.sign() if len(shape) == 1 else direction / direction.norm(dim=-1, keepdim=True)
        direction[1::4] = direction[1::4, :1]  # all records agree
        direction[2::4] = direction[2::4, :1]
        heavy = 10.0 ** torch.empty(self.candidates, 2, dtype=torch.float64).uniform_(-3, 3, generator=generator)
        picks = torch.randint(len(_EXTREMES), (self.candidates, 2), generator=generator)
        edge = torch.tensor(_EXTREMES, dtype=torch.float64)[picks]
        which = torch.rand(self.candidates, 2, generator=generator) < 0.5
        magnitude = torch.where(which, heavy, edge) * clip
        spread = magnitude[:, 1:].expand(-1, shape[0]).clone()
        spread[:, 0] = magnitude[:, 0]
        return direction * spread.reshape(self.candidates, shape[0], *(1 for _ in shape[1:]))

    def _best(self, mechanism: Mechanism, unit: Unit, pair: Tensor) -> tuple[Tensor, float]:
        """The pair with the largest difference, of those whose inputs are finite."""
        pair = mechanism.admissible(unit, pair)
        usable = pair.isfinite().movedim(1, 0).reshape(pair.shape[1], -1).all(1)
        values, other = pair
        distance = _distance(mechanism.noiseless(values), mechanism.noiseless(mechanism.neighbour(unit, values, other)))
        place = int(torch.where(usable, distance, -1.0).argmax())
        return pair[:, place], float(distance[place])


@dataclass(frozen=True, kw_only=True)
class ProvedBound:
    """How far neighbours of one unit move a mechanism's noiseless value, for all inputs."""

    bound: float
    why: str = ""
    """The operation that is to blame where nothing bounds it."""


def proved_bounds(mechanism: Mechanism, batch_size: int) -> dict[Unit, ProvedBound]:
    """What follows from a mechanism's operations for each unit that it has a bound for."""
    records = max(batch_size, getattr(mechanism, "batch_size", 0), getattr(mechanism, "largest", None) or 0)
    shape = (1, records) if mechanism.scalar else (1, records, _WIDTH)
    inputs = torch.linspace(-1.0, 1.0, math.prod(shape), dtype=torch.float64).reshape(shape)
    result = {}
    for unit in mechanism.sensitivity:
        positive = bool((mechanism.admissible(unit, inputs) >= 0).all())
        proof = prove(mechanism.noiseless, inputs, axis=1, positive=positive)
        silent = unit is Unit.CLIENT_ZERO and not bool(mechanism.blank(inputs).any())
        bound = {
            Unit.ADD_REMOVE: proof.moves.remove,
            Unit.CLIENT: proof.moves.client,
            Unit.CLIENT_ZERO: proof.moves.empty if silent else proof.moves.client,
        }.get(unit, proof.moves.replace)
        result[unit] = ProvedBound(bound=bound, why="" if bound < math.inf else proof.why or "no clip")
    return result


def _bounds(mechanism: Mechanism, unit: Unit) -> dict[bool, float]:
    """The finite bounds for a unit: the proven one, and by True a published one that is smaller.

    Where nothing is proven every claim rests on the published bound, which then counts as the mechanism's own.
    """
    proven, published = mechanism.sensitivity.get(unit, math.inf), mechanism.declared[unit]
    if not math.isfinite(proven):
        return {False: published} if math.isfinite(published) else {}
    return {False: proven, True: published} if published < proven else {False: proven}


def _distance(values: Tensor, others: Tensor) -> Tensor:
    """(candidates,) L2 distance between outputs; infinite where one of them is not finite."""
    gap = (values - others).reshape(len(values), -1)
    largest = gap.abs().amax(1).clamp(min=1e-300)
    distance = largest * (gap / largest.unsqueeze(1)).norm(dim=1)
    return torch.where(gap.isfinite().all(1), distance, math.inf)


def _finding(pair: WorstPair, saved: Path | None, published: frozenset[str]) -> Finding:
    command = "" if saved is None else f"vflpriv replay {shlex.quote(f'{saved.parent.name}/{saved.name}')}"
    return Finding(
        audit=SensitivityAudit.name,
        subject=pair.subject,
        verdict=Verdict.CONSISTENT if pair.holds else Verdict.VIOLATED,
        sentence=pair.sentence,
        figure=pair.observed,
        measure="largest distance between neighbours (L2)",
        claim_units=frozenset({pair.unit}),
        claim_keys=published if pair.published else None,
        unit=pair.unit,
        limit=pair.declared,
        basis=pair.basis,
        reproduce=command,
        repair="" if pair.holds else pair.repair,
        evidence=pair,
    )


_SUFFIX = ".json"
_UNSAVED = (OSError, SafetensorError, ValueError, LookupError, AttributeError, TypeError, RuntimeError)
"""Errors of witnesses that no audit saved: of their files, their settings, or inputs that do not fit these."""
_KINDS = {
    kind.__name__: kind for kind in (ClientClip, EmbeddingClip, NoNoise, OuterMean, ScalarMean, Unclipped, VectorMean)
}


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """What a witness shows when it is computed again."""

    mechanism: str
    unit: Unit
    declared: float
    observed: float

    @property
    def holds(self) -> bool:
        return self.observed <= self.declared * (1 + 1e-9)


def save_witnesses(
    folder: Path, system: str, mechanisms: Mapping[str, Mechanism], pairs: Sequence[WorstPair]
) -> dict[str, Path]:
    """Two files for each pair, `.json` with the description and `.safetensors` with the inputs.

    Returns the former by the pair's name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for pair in pairs:
        mechanism = mechanisms[pair.mechanism]
        path = folder / f"{system}-{pair.name}{_SUFFIX}"
        inputs = {"values": pair.values.contiguous(), "neighbour": pair.neighbour.contiguous()}
        with atomically(path.with_suffix(".safetensors")) as temporary:
            save_file(inputs, temporary)
        description = {
            "mechanism": type(mechanism).__name__,
            "settings": dataclasses.asdict(mechanism),
            "unit": pair.unit.value,
            "published": pair.published,
            "declared": pair.declared,
            "observed": pair.observed,
            "witness": pair.witness,
        }
        write_atomically(path, json.dumps(description, indent=2, ensure_ascii=False, default=str) + "\n")
        written[pair.name] = path
    return written


def replay_witness(path: Path) -> Replayed:
    """Build the mechanism again, and take the difference of its two saved inputs."""
    try:
        description = parsed_json(regular(path).read_bytes())
        inputs = load_file(regular(path.with_suffix(".safetensors")))
        mechanism: Mechanism = _KINDS[description["mechanism"]](**description["settings"])
        unit = Unit(description["unit"])
        values, neighbour = inputs["values"], inputs["neighbour"]
        declared = _bounds(mechanism, unit).get(bool(description.get("published")), math.inf)
        outputs = [mechanism.noiseless(side.unsqueeze(0)) for side in (values, neighbour)]
        observed = float(_distance(*outputs))
    except _UNSAVED as error:
        raise InputError(
            "witness", str(path), f"a witness that an audit saved ({' '.join(str(error).split())})"
        ) from error
    return Replayed(mechanism=description["mechanism"], unit=unit, declared=declared, observed=observed)
