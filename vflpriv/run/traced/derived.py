"""What a trace says of each kind of message as a ledger would: law and size of its noise, and how far units move it.

The noise is that of the places where it meets private values. What is made of both afterwards costs nothing more, so
that a place counts for the kind of message that shows it first. By how much a value moves there is proved for all data
or not known; where it also depends on records of earlier batches, by state that learns from exact values, that is a
leak.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from vflpriv.audits.flow.draws.families import EXPONENTIAL, FAMILIES, LAPLACE, NORMAL
from vflpriv.audits.flow.observation import MessageState
from vflpriv.audits.flow.plain.wire import identical
from vflpriv.audits.flow.tracer.dispatch import Trace
from vflpriv.audits.flow.tracer.events import Choice, Meeting, Seal
from vflpriv.core.units import Unit
from vflpriv.run.calibrate import safe_side
from vflpriv.run.traced.followed import Followed

__all__ = ["DerivedKind", "MovedKind", "derive"]

_ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class MovedKind:
    """How one unit moves one kind of message."""

    state: str
    """clean, sealed, bare or unexplained: the worst of its messages."""
    where: str = ""
    """The line by which it leaves, where it is bare or not explained."""
    law: str | None = None
    """The law of the noise as ledgers name it; None where no ledger has a name for it."""
    laws: str = ""
    """The families of draws, for a person."""
    lines: tuple[str, ...] = ()
    """Where noise and private values meet."""
    scale: float = math.inf
    """The least."""
    ratio: float = 0.0
    """How far a record of the batch moves one message, at most, relative to the scale."""
    later: float | None = None
    """How far any record does by state, after its first round, relative to the scale; None if there is none."""
    why: str = ""
    """What is to blame where nothing bounds it."""
    once: bool = False
    """Whether noise is drawn in one round alone, though records come again."""
    shared: bool = False
    """Whether what all devices of a round are sent shows the same noised values."""
    reused: bool = False
    """Whether some draw is in several values."""
    gap: float = 0.0
    """By how much the traced pair moves one message."""


@dataclass(frozen=True, kw_only=True)
class DerivedKind:
    """One kind of message, by unit."""

    kind: str
    units: Mapping[Unit, MovedKind]

    @property
    def sealed(self) -> dict[Unit, MovedKind]:
        """The units that noise hides in it."""
        return {unit: moved for unit, moved in self.units.items() if moved.state == "sealed" and moved.lines}

    @property
    def laws(self) -> set[str | None]:
        """The laws of its noise."""
        return {moved.law for moved in self.sealed.values()}

    @property
    def law(self) -> str | None:
        """The law of its noise, `none`, or None where no ledger has a name for it."""
        if not self.sealed:
            return "none"
        reused = any(moved.reused for moved in self.sealed.values())
        return next(iter(self.laws)) if len(self.laws) == 1 and not reused else None

    @property
    def scale(self) -> float:
        """The least of its noise; of responses their ε, which is found by bisection."""
        scales = [moved.scale for moved in self.sealed.values()]
        if self.law == "rr":
            return float(f"{max(scales):.6g}")
        return safe_side(min(scales) * (1 + _ROUNDING), up=False)

    def sensitivity(self, unit: Unit) -> float:
        """By how much the unit moves one message of its batch, at most; infinite where that is not known."""
        moved = self.units[unit]
        return 1.0 if self.law == "rr" else _rounded(moved.ratio * self.scale)

    @property
    def stateful(self) -> bool:
        """Whether state that learns from exact values moves it."""
        return any(moved.later is not None for moved in self.sealed.values())

    def leak(self, unit: Unit) -> float | None:
        """By how much state that learns from exact values moves one message; None if there is no such state."""
        later = self.units[unit].later
        return None if later is None else _rounded(later * self.scale)


def _rounded(value: float) -> float:
    """On the safe side."""
    return safe_side(value * (1 - _ROUNDING)) if 0 < value < math.inf else value


@dataclass(kw_only=True)
class _Shown:
    """What one message shows that no message before it did."""

    message: MessageState
    meetings: list[Meeting] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    unplaced: bool = False
    """Whether noise on it lies where no meeting was noted."""


def derive(kinds: Sequence[str], followed: Sequence[Followed]) -> list[DerivedKind]:
    """The kinds of messages as their views were shown them; each by the view that saw most of it."""
    widest: dict[tuple[str, Unit, int | None], Followed] = {}
    for own in followed:
        counts = Counter(message.trail.message.kind for message in own.shown)
        for kind in kinds:
            known = widest.get((kind, own.unit, own.device))
            if known is None or counts[kind] >= sum(m.trail.message.kind == kind for m in known.shown):
                widest[kind, own.unit, own.device] = own
    news = {id(own): _news(own) for own in followed}
    derived = []
    for kind in kinds:
        units: dict[Unit, list[MovedKind]] = {}
        for (name, unit, _), own in widest.items():
            if name == kind:
                units.setdefault(unit, []).append(_moved(own, kind, news[id(own)]))
        derived.append(DerivedKind(kind=kind, units={unit: _worst(moved) for unit, moved in units.items()}))
    return derived


def _news(own: Followed) -> list[_Shown]:
    """By message what it shows first, to those who do not send it themselves."""
    trace, seen, met = own.observation.trace, set[int](), set[int]()
    if trace is None:
        return []
    made = []
    for message in own.received:
        shown = _Shown(message=message)
        for number in message.trail.seals:
            seal = trace.seals[number]
            if number in seen or not seal.taint:
                continue
            seen.add(number)
            if isinstance(seal, Choice):
                shown.choices.append(seal)
                continue
            shown.unplaced = shown.unplaced or not seal.met
            shown.meetings += [trace.meetings[place] for place in sorted(seal.met - met)]
            met |= seal.met
        made.append(shown)
    return made


_STATES = ("clean", "sealed", "unexplained", "bare")


def _moved(own: Followed, kind: str, news: Sequence[_Shown]) -> MovedKind:
    """How a unit moves a kind of message, as one view saw it."""
    shown = [entry for entry in news if entry.message.trail.message.kind == kind]
    if not shown:
        return MovedKind(state="clean")
    worst = max((entry.message for entry in shown), key=lambda message: _STATES.index(message.state))
    meetings = [meeting for entry in shown for meeting in entry.meetings]
    choices = [choice for entry in shown for choice in entry.choices]
    wheres = [*(meeting.where for meeting in meetings), *(choice.where for choice in choices)]
    lines = tuple(dict.fromkeys(where for where in wheres if where))
    common = {"state": worst.state, "where": worst.trail.where, "lines": lines, "gap": _gap(own, shown)}
    common |= {"once": _once(shown), "shared": _shared(shown)}
    trace = own.observation.trace
    if not lines or trace is None:
        return MovedKind(**common)  # type: ignore[arg-type]
    if choices:
        return MovedKind(**common, **_of_choices(shown, meetings))  # type: ignore[arg-type]
    return MovedKind(**common, **_of_noise(shown, meetings, trace))  # type: ignore[arg-type]


def _of_noise(shown: Sequence[_Shown], meetings: Sequence[Meeting], trace: Trace) -> dict[str, object]:
    """Noise that is added: its law, its least size, and by how much values move under it."""
    families = sorted({name for meeting in meetings for name in _families(meeting, trace)})
    law, factor = _LAWS.get(tuple(families), (None, 1.0))
    if any(entry.unplaced for entry in shown):
        law = None
    scales = [float(meeting.rows.scales.square().sum(1).sqrt().min()) * factor for meeting in meetings]
    ratios: dict[bool, list[float]] = {False: [], True: []}
    for entry in shown:
        if entry.meetings:
            stale = any(meeting.stale for meeting in entry.meetings)
            ratios[stale].append(_ratio(entry.meetings, law, factor))
    base = max(ratios[False] or ratios[True])
    blamed = [meeting for meeting in meetings if math.isinf(meeting.moves)]
    return {
        "law": law,
        "laws": " + ".join(families),
        "scale": min(scales),
        "ratio": base,
        "later": max(ratios[True]) if ratios[True] and ratios[False] else None if not ratios[True] else base,
        "why": f"{blamed[0].where}: {blamed[0].why}" if blamed else "",
        "reused": _reused(meetings),
    }


_LAWS: Mapping[tuple[str, ...], tuple[str, float]] = {
    (NORMAL.name,): ("gaussian", 1.0),
    (LAPLACE.name,): ("laplace", 1.0),
    (EXPONENTIAL.name,): ("laplace", math.sqrt(0.5)),
}
"""By families of draws the law of a ledger, and its scale relative to the size of what is added."""


def _families(meeting: Meeting, trace: Trace) -> list[str]:
    return [FAMILIES[int(n)].name for n in torch.unique(trace.draws.families(meeting.rows.used)).tolist()]


def _ratio(meetings: Sequence[Meeting], law: str | None, factor: float) -> float:
    """How far one message moves, relative to its noise: in L2, or of Laplace noise in L1."""
    scales = [float(meeting.rows.scales.square().sum(1).sqrt().min()) * factor for meeting in meetings]
    ratios = [meeting.moves / scale for meeting, scale in zip(meetings, scales, strict=True)]
    if law == "laplace":
        return math.fsum(own * math.sqrt(meeting.entries) for own, meeting in zip(ratios, meetings, strict=True))
    groups: dict[object, list[int]] = {}
    for number, meeting in enumerate(meetings):
        groups.setdefault(min((whole for whole, _ in meeting.joint), default=(number,)), []).append(number)
    return math.hypot(
        *(
            min(
                math.hypot(*(ratios[n] for n in group)),
                _clipped_together(whole, [(meetings[n], scales[n]) for n in group]),
            )
            for whole, group in groups.items()
        )
    )


def _clipped_together(whole: object, group: Sequence[tuple[Meeting, float]]) -> float:
    """How far values move that were clipped as one, such as the gradients of all parameters of a model.

    Squares of what each has of the clip add up to one, so that all together move as far as the one that moves most.
    """
    ratios: dict[int, float] = {}
    for meeting, scale in group:
        places = [(place, bound) for (of, place), bound in meeting.joint.items() if of == whole]
        if len(places) != 1 or places[0][0] in ratios:
            return math.inf
        ratios[places[0][0]] = places[0][1] / scale
    return max(ratios.values())


def _reused(meetings: Sequence[Meeting]) -> bool:
    """Whether some draw is on several numbers: what is the same on all of them hides less than fresh noise."""
    columns = [m.rows.columns[(m.rows.columns >= 0) & (m.rows.scales != 0)] for m in meetings]
    joined = torch.cat(columns) if columns else torch.empty(0)
    return len(torch.unique(joined)) != len(joined)


def _of_choices(shown: Sequence[_Shown], meetings: Sequence[Meeting]) -> dict[str, object]:
    """Responses of few outcomes, of which one message shows one or several."""
    epsilons = [math.fsum(map(_epsilon, entry.choices)) for entry in shown if entry.choices]
    kinds = sorted({choice.kind for entry in shown for choice in entry.choices})
    return {
        "law": None if meetings else "rr",
        "laws": f"choice by {', '.join(kinds)}",
        "scale": max(epsilons),
        "ratio": 1.0,
    }


def _epsilon(choice: Choice) -> float:
    """The ε of a choice, for all values that records have: how much likelier one outcome can be than another."""
    laws = torch.cat(choice.weights)
    possible = laws[laws > 0]
    differing = int((choice.weights[0] != choice.weights[1]).any(1).sum())
    return differing * math.log(float(possible.max()) / float(possible.min())) if len(possible) else 0.0


def _gap(own: Followed, shown: Sequence[_Shown]) -> float:
    """By how much the traced pair moves one message."""
    trace = own.observation.trace
    assert trace is not None
    gaps = [0.0]
    for entry in shown:
        seals = [trace.seals[number] for number in entry.message.trail.seals]
        gaps += [float(seal.gap.norm()) for seal in seals if isinstance(seal, Seal) and seal.taint]
    return max(gaps)


def _once(shown: Sequence[_Shown]) -> bool:
    """Whether only the first round brings noise, though some records come again."""
    rounds = {entry.message.trail.message.round for entry in shown}
    new = {entry.message.trail.message.round for entry in shown if entry.meetings or entry.choices}
    if len(rounds) < 2 or new != {min(rounds, key=lambda number: number or 0)}:
        return False
    seen = Counter[int]()
    for entry in shown:
        records = entry.message.trail.message.tensors.get("records")
        if records is None:
            return True
        seen.update(set(records.tolist()))
    return max(seen.values()) > len(shown) / max(1, len(rounds))


def _shared(shown: Sequence[_Shown]) -> bool:
    """Whether all devices of a round were sent the same values, or what is made of the same noised ones."""
    rounds: dict[int | None, list[_Shown]] = {}
    for entry in shown:
        rounds.setdefault(entry.message.trail.message.round, []).append(entry)
    several = [own for own in rounds.values() if len(own) > 1]
    return bool(several) and all(_same(own[0], entry) for own in several for entry in own[1:])


def _same(first: _Shown, second: _Shown) -> bool:
    own, other = first.message.trail.message, second.message.trail.message
    if own.sender != other.sender or own.receivers == other.receivers:
        return False
    if second.message.state == "sealed" and not (second.meetings or second.choices or second.unplaced):
        return True
    if list(own.tensors) != list(other.tensors):
        return False
    return all(identical(own.tensors[name], other.tensors[name]) for name in own.tensors)


def _worst(several: Sequence[MovedKind]) -> MovedKind:
    """Of parties that are alike, the one that is moved most."""
    worst = max(several, key=lambda moved: (_STATES.index(moved.state), moved.law is None, moved.ratio))
    sealed = [moved for moved in several if moved.lines]
    if worst.state != "sealed" or not sealed:
        return worst
    laters = [moved.later for moved in sealed if moved.later is not None]
    return replace(
        worst,
        law=worst.law if len({moved.law for moved in sealed}) == 1 else None,
        lines=tuple(dict.fromkeys(line for moved in sealed for line in moved.lines)),
        scale=_scale_of(sealed),
        ratio=max(moved.ratio for moved in sealed),
        later=max(laters) if laters else None,
        once=all(moved.once for moved in sealed),
        reused=any(moved.reused for moved in sealed),
    )


def _scale_of(sealed: Sequence[MovedKind]) -> float:
    """The least noise; of responses the largest ε."""
    scales = [moved.scale for moved in sealed]
    return max(scales) if sealed[0].law == "rr" else min(scales)
