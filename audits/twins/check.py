"""The comparison of twin runs: what differs between two worlds that had the same randomness and released the same.

A tensor that differs is a release; it must be one that the ledger declares. A value under the noise may differ by the
declared sensitivity in the rounds that count, and by nothing elsewhere. There are no statistics in it: one difference
is a proof.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vflpriv.audits.twins.pairs import TwinCanary, TwinRound
from vflpriv.audits.twins.probes import Released
from vflpriv.audits.twins.reconcile import covered, is_open, link, viewers
from vflpriv.core.ledger import Exposure, Ledger
from vflpriv.core.releases import Release
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.core.wire import Message

__all__ = ["Difference", "Excess", "Gap", "TwinCheck"]

_RELATIVE, _ROUNDING, _TOTAL = 1e-4, 4e-6, 1e-3


@dataclass(kw_only=True)
class Difference:
    """One tensor that differs although the ledger does not say so to everyone who sees it."""

    unit: Unit
    kind: str
    tensor: str
    first: Message
    canary: str
    messages: int = 0
    largest: float = 0.0
    harmed: set[Adversary] = field(default_factory=set)
    """Those who see it and, by the ledger, do not see the unit without protection."""


@dataclass(kw_only=True)
class Gap:
    """How far one unit moves the values under the noise of one kind, at most, relative to what is declared."""

    unit: Unit
    kind: str
    largest: float
    declared: float
    round: int
    canary: str
    broken: bool

    @property
    def ratio(self) -> float:
        return self.largest / self.declared if self.declared else math.inf if self.largest else 0.0


@dataclass(frozen=True, kw_only=True)
class Excess:
    """All values under the noise together: μ that one adversary has beyond what is accounted for."""

    unit: Unit
    adversary: Adversary
    measured: float
    accounted: float
    canary: str


@dataclass(frozen=True, eq=False, kw_only=True)
class _Declared:
    """What the ledger says of the values of one kind, of each canary: (R,) each."""

    noised: bool
    observers: frozenset[Adversary]
    own: NDArray[np.float64]
    """How far it moves them in the rounds of its record."""
    leak: NDArray[np.float64]
    """How far it moves them in all later rounds."""


class TwinCheck:
    """Takes the rounds of twin runs one by one; what it found can be read at any time."""

    def __init__(self, ledger: Ledger, canaries: Sequence[TwinCanary], adversaries: Sequence[Adversary] = ()) -> None:
        self._ledger, self.canaries = ledger, canaries
        self._schedule = ledger.schedule
        self._first = self._schedule.first_rounds()
        self._open: dict[tuple[Adversary, Unit], bool] = {}
        self._kept_from: dict[frozenset[Adversary], NDArray[np.bool_]] = {}
        self._declares: dict[str, _Declared] = {}
        self._before: dict[tuple[str, int], NDArray[np.float64]] = {}
        """By kind and round, the squared distances so far, (R,)."""
        self._records = np.array([-1 if c.record is None else c.record for c in canaries])
        self._controls = np.array([c.unit is None for c in canaries], dtype=np.bool_)
        units = dict.fromkeys(c.unit for c in canaries if c.unit is not None)
        self._numbers = {unit: np.array([r for r, c in enumerate(canaries) if c.unit is unit]) for unit in units}
        self.differences: dict[tuple[Unit, str, str], Difference] = {}
        self.gaps: dict[tuple[Unit, str], Gap] = {}
        self.uneven: str | None = None
        """Where the two runs differ in what is sent at all: messages, records, names or shapes."""
        self._odd: list[Message] = []
        """The messages of that round that are not the same in both."""
        self.uncontrolled: str | None = None
        """Where the control, which lives in the same world in both runs, differs."""
        self.weak: dict[str, tuple[float, float]] = {}
        """By kind, the std at the release point where it is below the ledger's, and the latter."""
        self._forced: set[str] = set()
        """The kinds of which release points released a value in this round, the same in both runs."""
        self.unforced: str | None = None
        """Where a value with declared noise differs as it is sent, since no release point released it."""
        self.overflowed: dict[int, int] = {}
        """By the number of a canary, the first round in which a value was too large to compare."""
        self.tensors = self.releases = 0
        named = dict.fromkeys((*map(Adversary, ("server", "eavesdropper", "devices")), *adversaries))
        self._totals = {a: np.zeros(len(canaries)) for a in named if a.knows_batches}

    # Rounds --------------------------------------------------------------------------------------------------------

    def add(self, twins: TwinRound) -> bool:
        """Compare one round; False if there is no sense in further ones."""
        if self.uneven is None:
            self.uneven, self._odd = _uneven(twins)
        if self.uneven is not None:
            return False
        self._forced = {value.kind for value in twins.values[0]}
        for message, other in zip(*twins.messages, strict=True):
            for name, tensor in message.tensors.items():
                self.tensors += 1
                self._compare(message, name, tensor, other.tensors[name])
                if self.unforced is not None:
                    return False
        self._weigh(twins)
        return self.uncontrolled is None

    def _compare(self, message: Message, name: str, tensor: Tensor, other: Tensor) -> None:
        count = len(self.canaries)
        if count > 1 and (not tensor.dim() or len(tensor) != count):
            return  # shared by all replicas, of which each has a world of its own: a pair of whole runs can tell
        if not tensor.numel():
            return
        rows, others = tensor.reshape(count, -1), other.reshape(count, -1)
        if not bool(torch.isfinite(rows.sum())):  # may overflow where no value does
            for r in (~torch.isfinite(rows)).any(1).nonzero()[:, 0].tolist():
                self.overflowed.setdefault(r, message.round)
        if torch.equal(rows, others):
            return
        differs = ((rows != others) & ~(rows.isnan() & others.isnan())).any(1).cpu().numpy()
        if differs[self._controls].any():
            self.uncontrolled = self.uncontrolled or f"tensor {name} of {message.kind}, round {message.round}"
        leaking = np.flatnonzero(differs & self._protected_from(viewers(message)))
        if not len(leaking):
            return
        if message.kind not in self._forced and self._noised(message, name):
            # The second run cannot be given what the first one sent: all that follows differs, too.
            self.unforced = f"{message.kind}, round {message.round}, {link(message)}"
            return
        sizes = (rows[leaking].double() - others[leaking].double()).nan_to_num().abs().amax(1)
        for r, size in zip(leaking.tolist(), sizes.tolist(), strict=True):
            canary = self.canaries[r]
            assert canary.unit is not None
            harmed = {a for a in viewers(message) if self._protected(a, canary)}
            self._note(message, name, canary, canary.unit, size, harmed)

    def _noised(self, message: Message, name: str) -> bool:
        """Whether the ledger declares noise on a tensor."""
        covers = covered(self._of(message.kind), message.kind, message.tensors)
        return any(
            name in own and r.noise.noised and r.noise.norm is not None and not r.once for r, own in covers.items()
        )

    def _protected_from(self, adversaries: Collection[Adversary]) -> NDArray[np.bool_]:
        """Of each canary, whether the ledger says that one of these adversaries does not see its unit as it is."""
        key = frozenset(adversaries)
        if key not in self._kept_from:
            own = [any(self._protected(a, canary) for a in key) for canary in self.canaries]
            self._kept_from[key] = np.array(own, dtype=np.bool_)
        return self._kept_from[key]

    @property
    def found(self) -> bool:
        """Whether something differs that should not, in one round."""
        return self.uneven is not None or bool(self.differences) or any(gap.broken for gap in self.gaps.values())

    @property
    def whole(self) -> bool:
        """Whether everything could be compared."""
        return self.uneven is None and not self.overflowed

    def harmed(self) -> set[Adversary]:
        """Those who see what is not the same in both runs, and must not see the unit of a canary."""
        everyone = self._named(frozenset({"server", "device", "eavesdropper", "outsider"}))
        adversaries = {a for message in self._odd for a in viewers(message)} or everyone
        return {a for a in adversaries for canary in self.canaries if self._protected(a, canary)}

    def _note(
        self, message: Message, name: str, canary: TwinCanary, unit: Unit, size: float, harmed: set[Adversary]
    ) -> None:
        key = (unit, message.kind, name)
        difference = self.differences.get(key)
        if difference is None:
            first = replace(message, tensors={})
            difference = Difference(unit=unit, kind=message.kind, tensor=name, first=first, canary=canary.what)
            self.differences[key] = difference
        difference.messages += 1
        difference.largest = max(difference.largest, size)
        difference.harmed |= harmed

    def _protected(self, adversary: Adversary, canary: TwinCanary) -> bool:
        """Whether the ledger says that this adversary does not see the canary's unit as it is.

        What follows from labels tells nothing to those who hold them.
        """
        if canary.unit is None or (canary.changes_label and adversary.kind in self._ledger.label_holders):
            return False
        key = (adversary, canary.unit)
        if key not in self._open:
            self._open[key] = is_open(self._ledger, adversary, canary.unit)
        return not self._open[key]

    # Values under the noise ----------------------------------------------------------------------------------------

    def _weigh(self, twins: TwinRound) -> None:
        by_kind: dict[str, list[tuple[Released, Released]]] = {}
        for first, second in zip(*twins.values, strict=True):
            self._noise(first)
            known = by_kind.setdefault(first.kind, [])
            if not any(torch.equal(first.released, before.released) for before, _ in known):
                known.append((first, second))
        for kind, pairs in by_kind.items():
            self.releases += len(pairs)
            self._gaps(twins.round, kind, pairs)

    def _noise(self, value: Released) -> None:
        """Whether the std at the release point is not below the ledger's."""
        stds = [r.noise.deviation for r in self._of(value.kind) if r.noise.norm is not None]
        if stds and value.std < max(stds) * (1 - 1e-6):
            self.weak[value.kind] = (value.std, max(stds))

    def _of(self, kind: str) -> list[Release]:
        return [r for r in self._ledger.releases if r.kind == kind]

    def _gaps(self, round_: int, kind: str, pairs: Sequence[tuple[Released, Released]]) -> None:
        """Of all values of a kind in one round together, since the declared sensitivity is that of the round.

        A round that is run twice adds up.
        """
        if kind not in self._declares:
            self._declares[kind] = self._declared(self._of(kind))
        declares = self._declares[kind]
        if not declares.noised:
            return  # not declared as noised: its messages are compared as they are
        squares = torch.stack([_squares(first.noiseless - second.noiseless) for first, second in pairs]).cpu().numpy()
        self._add_up(kind, pairs, squares)
        total = squares.sum(0) + self._before.get((kind, round_), 0.0)
        self._before[kind, round_] = total
        moved, declared = np.sqrt(total), self._at(declares, round_)
        if (moved[self._controls] > 0).any():
            self.uncontrolled = self.uncontrolled or f"the value under the noise of {kind}, round {round_}"
        direct = {a for first, _ in pairs if first.message is not None for a in viewers(first.message)}
        concerned = self._protected_from(direct | declares.observers) & np.isfinite(moved)
        broken = concerned & (moved > declared)
        if broken.any():
            sizes = [_squares(first.noiseless).sqrt() + _squares(second.noiseless).sqrt() for first, second in pairs]
            size = torch.stack(sizes).sum(0).cpu().numpy()
            slack = np.where(declared > 0, _RELATIVE * np.nan_to_num(declared) + _ROUNDING * size, 0.0)
            broken &= moved > declared + slack
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(declared > 0, moved / declared, np.where(moved > 0, np.inf, 0.0))
        for unit, numbers in self._numbers.items():
            own, known = numbers[concerned[numbers]], self.gaps.get((unit, kind))
            if not len(own) or (known is not None and not ((ratio[own] >= known.ratio) | broken[own]).any()):
                continue
            r = int(own[np.lexsort((moved[own], ratio[own], broken[own]))[-1]])
            gap = Gap(
                unit=unit,
                kind=kind,
                largest=float(moved[r]),
                declared=float(declared[r]),
                round=round_,
                canary=self.canaries[r].what,
                broken=bool(broken[r]),
            )
            if known is None or (gap.broken, gap.ratio, gap.largest) > (known.broken, known.ratio, known.largest):
                self.gaps[unit, kind] = gap

    def _named(self, kinds: frozenset[str]) -> list[Adversary]:
        alone = [Adversary(kind) for kind in sorted(kinds - {"device", "devices"})]
        members = [Adversary("device", (m,)) for m in range(self._schedule.devices)] if "device" in kinds else []
        return alone + members

    def _declared(self, releases: Sequence[Release]) -> _Declared:
        """What the ledger says of a kind; several releases together in quadrature."""
        own, leak = np.zeros(len(self.canaries)), np.zeros(len(self.canaries))
        for r, canary in enumerate(self.canaries):
            if canary.unit is None:
                continue
            unit, leaks = canary.unit, [release.leak for release in releases if release.leak is not None]
            own[r] = math.sqrt(sum(release.sensitivity.get(unit, 0.0) ** 2 for release in releases))
            leak[r] = math.sqrt(sum(release.sensitivity.get(unit, 0.0) ** 2 for release in leaks))
        observers = frozenset[str]().union(*(release.seen_by for release in releases))
        return _Declared(
            noised=any(release.noise.norm is not None for release in releases),
            observers=frozenset(self._named(observers)),
            own=own,
            leak=leak,
        )

    def _at(self, declares: _Declared, round_: int) -> NDArray[np.float64]:
        """What the ledger says that each canary can move in this round."""
        batch = self._schedule.batch(round_) if 0 <= round_ < self._schedule.rounds else np.empty(0, dtype=np.int64)
        whole, inside = self._records < 0, (self._records[:, None] == batch).any(1)
        later = round_ > self._first[np.where(whole, 0, self._records)]
        leak = np.where(later, declares.leak, 0.0)
        return np.where(whole, declares.own, np.maximum(np.where(inside, declares.own, 0.0), leak))

    # All rounds together -------------------------------------------------------------------------------------------

    def _add_up(self, kind: str, pairs: Sequence[tuple[Released, Released]], squares: NDArray[np.float64]) -> None:
        releases, finite = self._of(kind), np.nan_to_num(squares, posinf=0.0)
        for adversary, totals in self._totals.items():
            seen = [r for r in releases if adversary.kind in r.seen_by]
            everywhere = any(r.reaches_all or r.carried for r in seen)
            for (first, _), square in zip(pairs, finite, strict=True):
                received = first.message is not None and adversary in _resolved(first.message, adversary)
                if seen and (everywhere or first.internal or received) and first.std**2 > 0:
                    totals += square / first.std**2

    def excesses(self) -> list[Excess]:
        """For each unit and adversary, the canary whose μ over all rounds exceeds the accounted one most."""
        excesses = []
        for adversary, totals in self._totals.items():
            worst: dict[Unit, Excess] = {}
            for (unit, record), numbers in self._by_unit(adversary).items():
                accounted = self._accounted(adversary, unit, record)
                for r in numbers if accounted is not None else ():
                    measured = math.sqrt(float(totals[r]))
                    excess = measured > math.sqrt(accounted or 0.0) * (1 + _TOTAL) + 1e-6
                    if excess and (unit not in worst or measured > worst[unit].measured):
                        worst[unit] = Excess(
                            unit=unit,
                            adversary=adversary,
                            measured=measured,
                            accounted=math.sqrt(accounted or 0.0),
                            canary=self.canaries[r].what,
                        )
            excesses += list(worst.values())
        return excesses

    def _by_unit(self, adversary: Adversary) -> dict[tuple[Unit, int | None], list[int]]:
        numbers: dict[tuple[Unit, int | None], list[int]] = {}
        for r, canary in enumerate(self.canaries):
            if canary.unit is not None and self._protected(adversary, canary):
                numbers.setdefault((canary.unit, canary.record), []).append(r)
        return numbers

    def _accounted(self, adversary: Adversary, unit: Unit, record: int | None) -> float | None:
        """μ² that the ledger gives a record, or a device; None where its noise is not Gaussian with known batches."""
        resolved = adversary.each(self._schedule.devices)
        if len(resolved) != 1:
            return None
        exposure = self._ledger.exposure(adversary, unit)
        if exposure.batches != "known" or not exposure.events or not _gaussian(exposure):
            return None
        if record is None or unit is Unit.FEATURES or exposure.squares is None:
            # One device's part of a record is counted for the device with the most.
            most = 0.0 if exposure.squares is None else float(exposure.squares.max())
            return max(most, sum(e.square for e in exposure.events))
        return float(exposure.squares[record])


def _gaussian(exposure: Exposure) -> bool:
    return all(e.noise.gaussian and e.sampling is None for e in exposure.events)


def _resolved(message: Message, adversary: Adversary) -> tuple[Adversary, ...]:
    """The adversaries who see a message, `adversary` among them if it is a group of devices with its receiver."""
    seen = viewers(message)
    member = message.sender.is_server and (not adversary.devices or message.device.index in adversary.devices)
    return (*seen, adversary) if adversary.kind == "devices" and member else seen


def _squares(values: Tensor) -> Tensor:
    """(R,) summed squares of (R, …), in double precision."""
    return values.to(torch.float64).square().reshape(len(values), -1).sum(1)


def _uneven(twins: TwinRound) -> tuple[str | None, list[Message]]:
    """Where the two runs send or release something else in kind, link, records, names, shapes or types.

    With it, the messages that are not the same in both.
    """
    first, second = twins.messages
    odd = [
        message
        for message, twin in zip(first, second, strict=False)
        if _outline(message) != _outline(twin) or not _same_records(message, twin)
    ]
    if len(first) != len(second):
        odd += [*first[len(second) :], *second[len(first) :]]
        return f"round {twins.round}: {len(first)} messages in one world, {len(second)} in the other", odd
    if odd:
        where = f"{odd[0].kind}, {link(odd[0])}, has other records, tensors or shapes"
        return f"round {twins.round}: the message {where}", odd
    released = [len(values) for values in twins.values]
    if released[0] != released[1]:
        return f"round {twins.round}: {released[0]} noised values in one world, {released[1]} in the other", []
    return None, []


def _outline(message: Message) -> tuple[object, ...]:
    tensors = tuple((name, tuple(t.shape), t.dtype) for name, t in message.tensors.items())
    return message.kind, message.sender, message.receiver, message.round, message.encrypted, tensors


def _same_records(message: Message, twin: Message) -> bool:
    if message.records is None or twin.records is None:
        return message.records is twin.records
    return torch.equal(message.records, twin.records)
