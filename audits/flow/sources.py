"""What the flow audit asks a source for: a pair of neighbouring worlds for a claim, and its training as a program.

An audit that needs `Offer.TRACE`, of this package or of another, gets both by `traceable(source)`: of an engine, of a
training function and of a script alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Protocol, cast

import numpy as np
import torch

from vflpriv.audits.flow.engines import at_clip_moved, at_clip_program, changed_features, engine_program, loss_draws
from vflpriv.audits.flow.plain.wire import Program, View
from vflpriv.audits.twins.pairs import TwinCanary, plan_twins, run_twins
from vflpriv.audits.two_world.canaries import plan
from vflpriv.audits.two_world.methods import Ratio, choose
from vflpriv.common.memory import budget
from vflpriv.common.numerics import Floats
from vflpriv.common.seeds import derive
from vflpriv.common.store import Store
from vflpriv.core.canaries import Canary, CanaryKind, most_exposed
from vflpriv.core.claims import Claim
from vflpriv.core.ledger import Reading
from vflpriv.core.systems import Offer, Source, System
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.core.wire import Message
from vflpriv.training.memory import replica_bytes

__all__ = ["Traceable", "TracedPair", "traceable"]


@dataclass(frozen=True, kw_only=True)
class TracedPair:
    """Two neighbouring worlds, and the training in them."""

    what: str
    """In what they differ, as a phrase."""
    program: Callable[[int], Program]
    """So many rounds of the training, over the wire that it is called with."""
    squares: Callable[[], Sequence[float]] | None = None
    """Of each round of a plain training, the squared distance of the worlds in units of the noise, if that is known."""
    losses: Callable[[int, int], Floats | None] | None = None
    """The loss along transcripts of their own, of so many rounds, so many of them; None where it is not known."""
    at_clip: TracedPair | None = None
    """The worlds in which what is noised lies as far apart as its clip allows; None where nothing is known of that."""


_UNSEEN = 1e-6
"""What a gap counts that reaches an adversary by later messages alone: it may tell the worlds apart, and need not."""

_OTHER_WORLD = {Unit.ADD_REMOVE: "or absent", Unit.CLIENT_ZERO: "or without data"}


class Traceable(Protocol):
    """A source that offers `Offer.TRACE`."""

    seed: int

    @property
    def rounds(self) -> int:
        """Rounds of the training."""
        ...

    def traced_view(self, adversary: Adversary) -> View:
        """The view of a program that this adversary has; of any one device, that of the busiest."""
        ...

    def traced_pair(self, claim: Claim, rounds: int) -> TracedPair | str:
        """The pair of worlds that a claim is followed in for so many rounds; why there is none, as a phrase."""
        ...


def traceable(source: Source) -> Traceable:
    """The source as it is traced: an engine by the pairs that are searched here, any other as it says itself."""
    if Offer.RELEASE_POINTS in source.offers and isinstance(source, System):
        return _EnginePairs(source)
    return cast(Traceable, source)


def _followed(adversary: Adversary, view: View) -> Adversary:
    """Any one device stands for the one whose view is followed."""
    return Adversary(adversary.kind, (view,)) if isinstance(view, int) else adversary


class _EnginePairs:
    """The pairs of an engine, each searched once."""

    def __init__(self, system: System) -> None:
        # The trace is of memory that the host reads; what leaves does not depend on where it is computed.
        cpu = torch.device("cpu")
        self._system = replace(system, torch_device=cpu, data=system.data.to(cpu))
        self.seed, self.rounds = system.seed, system.schedule.rounds
        self._pairs: dict[tuple[Unit, View], TwinCanary | None] = {}
        self._moved: dict[Hashable, list[list[tuple[Message, float]]]] = {}

    def traced_view(self, adversary: Adversary) -> View:
        if not adversary.is_device:
            return adversary.kind
        if adversary.kind == "device" and not adversary.devices:
            return int(self._system.schedule.active.sum(axis=0).argmax())
        members = frozenset(adversary.members(self._system.schedule.devices))
        return frozenset[str | int](members)

    def traced_pair(self, claim: Claim, rounds: int) -> TracedPair | str:
        """The pair of which the adversary is shown most, in a run of all pairs at once."""
        view = self.traced_view(claim.adversary)
        if (claim.unit, view) not in self._pairs:
            pairs = self._candidates(claim, view)
            seen_by = _followed(claim.adversary, view)
            self._pairs[claim.unit, view] = pairs[self._farthest(pairs, seen_by, rounds)] if pairs else None
        canary = self._pairs[claim.unit, view]
        if canary is None:
            return f"there is no pair of worlds of unit {claim.unit} that {claim.adversary} does not hold itself"

        def program(first: int) -> Program:
            return engine_program(self._system, canary, view=view, rounds=first)

        def losses(first: int, draws: int) -> Floats | None:
            # The pair was chosen by what it does under the system's own draws.
            others = replace(self._system, seed=derive(self._system.seed, "canary", draws))
            room = budget(others.torch_device) // max(1, 2 * replica_bytes(others))
            return loss_draws(others, canary, _followed(claim.adversary, view), first, min(draws, max(1, room)))

        return TracedPair(what=canary.what, program=program, losses=losses, at_clip=self._at_clip(claim, view))

    def _at_clip(self, claim: Claim, view: View) -> TracedPair | None:
        """The worst-case canary of trials in two worlds, where their scores are likelihood ratios."""
        system, seen_by = self._system, _followed(claim.adversary, view)
        method = choose(system, seen_by, claim.unit, CanaryKind.WORST_CASE).method
        if method is None or method.name != Ratio.name:
            return None
        exposure = system.ledger.exposure(seen_by, claim.unit, reading=Reading.PAPER)
        record = most_exposed([exposure], system.schedule) if claim.unit.per_record else 0
        holders = seen_by.members(system.data.devices)
        canary = plan(system, CanaryKind.WORST_CASE, record, Store(), unit=claim.unit, holders=holders)
        whose = f"record {record}" if claim.unit.per_record else f"device({canary.devices[0]})"
        what = f"{whose} at the clip, {_OTHER_WORLD.get(claim.unit, 'with either sign')}"
        return TracedPair(
            what=what,
            program=lambda first: at_clip_program(system, canary, view=view, rounds=first),
            squares=lambda: self._squares(canary, seen_by),
        )

    def _squares(self, canary: Canary, adversary: Adversary) -> list[float]:
        """Of each round, the squared distance of the worlds in all that the adversary is shown."""
        unit, devices = canary.unit, self._system.schedule.devices
        kinds = {r.kind for r in self._system.ledger.releases if r.noise.noised and r.sensitivity.get(unit, 0.0) > 0}
        # A label at the clip and a whole record there are the same contribution, where the same releases read both.
        of = "row" if unit in (Unit.LABEL, Unit.RECORD) else unit
        key = of, canary.record, canary.devices, frozenset(kinds)
        if key not in self._moved:
            self._moved[key] = at_clip_moved(self._system, canary)
        rounds = self._moved[key]
        return [math.fsum(apart for message, apart in sent if adversary.sees(message, devices)) for sent in rounds]

    def _candidates(self, claim: Claim, view: View) -> list[TwinCanary]:
        """Pairs of the claim's unit in which all that the adversary holds itself is the same in both worlds."""
        same_label = claim.adversary.kind in self._system.ledger.label_holders
        members: Any = view if isinstance(view, frozenset) else frozenset({view})
        candidates = []
        for canary in plan_twins(self._system, [claim.unit]):
            if canary.unit is not claim.unit:
                continue
            labels = canary.labels and (canary.labels[0], canary.labels[0 if same_label else 1])
            blocks = {m: (pair[0], pair[0] if m in members else pair[1]) for m, pair in canary.blocks.items()}
            factors = {m: (pair[0], pair[0] if m in members else pair[1]) for m, pair in canary.factors.items()}
            known = replace(canary, labels=labels, blocks=blocks, factors=factors)
            if known.changes_label or changed_features(known):
                candidates.append(known)
        return candidates

    def _farthest(self, pairs: list[TwinCanary], adversary: Adversary, rounds: int) -> int:
        """The pair whose noiseless values lie farthest apart; what is sent to the adversary counts before all else."""
        total, devices = np.zeros(len(pairs)), self._system.schedule.devices
        for twins in islice(run_twins(self._system, pairs), rounds):
            for own, other in zip(*twins.values, strict=False):
                if own.std and own.noiseless.shape == other.noiseless.shape:
                    gaps = (own.noiseless.double() - other.noiseless.double()) / own.std
                    seen = own.message is None or adversary.sees(own.message, devices)
                    square = gaps.nan_to_num().reshape(len(pairs), -1).square().sum(1).numpy()
                    total += square if seen else _UNSEEN * square
        return int(total.argmax())
