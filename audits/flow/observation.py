"""What one trace and a few plain runs show of a program: the state of every message, and what they cost together.

The trace is trusted as little as anything else: a message that it calls clean must not differ between two plain runs in
neighbouring worlds with the same draws, and one that it calls bare must differ there, whatever NumPy draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from vflpriv.audits.bounds.proved import Following
from vflpriv.audits.flow.loss import Loss, privacy_loss
from vflpriv.audits.flow.plain.twins import PlainRun, plain_run, same_form, same_values, seeded
from vflpriv.audits.flow.plain.wire import Program, SentMessage, View, identical
from vflpriv.audits.flow.tracer.dispatch import Trace
from vflpriv.audits.flow.tracer.events import Choice, Seal, Trail, gap_between
from vflpriv.audits.flow.tracer.exits import Exits
from vflpriv.audits.flow.tracer.wire import SwappedWire, TracedWire

__all__ = ["MessageState", "Observation", "State", "observe"]

State = Literal["clean", "sealed", "bare", "unexplained"]
_OTHER_SEED = 1_000_003
_UNSEEN = "it differs between the worlds, by a way that torch does not show"
_DECIDING = {
    "a branch": "a branch, of which only one side was seen",
    "a comparison": "a branch, of which only one side was seen",
    "a plain real number": "what is computed, of which only one value was seen",
}
"""Reads of draws after which a program does something of which one run shows one outcome."""


@dataclass(frozen=True, kw_only=True)
class MessageState:
    """What one message tells."""

    trail: Trail
    state: State
    why: str = ""


@dataclass(kw_only=True)
class Observation:
    """What is known of a program from one seed."""

    trace: Trace | None = None
    messages: list[MessageState] = field(default_factory=list)
    loss: Loss = field(default_factory=Loss)
    """Of all that the view is given: an upper bound on what it sees."""
    shown: Loss = field(default_factory=Loss)
    """Of the values that are sent as they are: the view sees no less."""
    choices: list[Choice] = field(default_factory=list)
    """All that reach the view; of those that are exact, the outcomes are sent."""
    form: str | None = None
    """How the form of the messages differs between the worlds."""
    unknown: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def decided(self) -> bool:
        """Whether released values may have decided what the program did next."""
        trace = self.trace
        return trace is not None and bool(trace.host_seals or trace.host_given or trace.branched)


def observe(
    program: Program, view: View, seed: int, *, bounding: Callable[[], Following | None] = lambda: None
) -> Observation:
    """Trace and compare. A program or a tracer that fails is an observation too.

    With `bounding`, it is also followed how far any pair of worlds can move what comes under noise.
    """
    try:
        other = plain_run(program, seed + _OTHER_SEED, view=view)
        base = plain_run(program, seed, view=view)
        twin = plain_run(program, seed, world=1, view=view, received=base.messages)
    except Exception as error:  # noqa: BLE001 -- whatever a program raises is its user's to see, as one line
        return Observation(unknown=[f"the program fails: {type(error).__name__}: {_first_line(error)}"])
    observation = _traced(program, view, seed, other, base, twin, early=False, bounds=bounding())
    if any(message.state in ("bare", "unexplained") for message in observation.messages):
        # Noise may have been drawn before there was anything private.
        again = _traced(program, view, seed, other, base, twin, early=True, bounds=bounding())
        if not any(message.state in ("bare", "unexplained") for message in again.messages) and not again.unknown:
            return again
        _less_sure(observation, again)
    return observation


def _less_sure(observation: Observation, early: Observation) -> None:
    """What earlier draws reach may hide behind them where they are no weights: whole numbers, or coarse noise."""
    coarse = early.trace is not None and early.trace.coarse
    for place, (message, again) in enumerate(zip(observation.messages, early.messages, strict=False)):
        whole = all(not tensor.is_floating_point() for tensor in message.trail.message.tensors.values())
        if message.state == "bare" and again.state == "unexplained" and (whole or coarse):
            observation.messages[place] = again


def _traced(
    program: Program,
    view: View,
    seed: int,
    other: PlainRun,
    base: PlainRun,
    twin: PlainRun,
    *,
    early: bool,
    bounds: Following | None,
) -> Observation:
    trace = Trace(other.draws, early=early, bounds=bounds)
    wire, exits = TracedWire(trace, view), Exits(trace)
    try:
        with seeded(seed), exits.followed(), bounds or nullcontext(), trace:
            program(wire)
        observation = Observation(trace=trace)
        seen = [(n, trail) for n, trail in enumerate(wire.trails) if trail.message.seen_by(view)]
        _compare(observation, program, view, seed, seen, wire.trails, base, twin)
        _account(observation, [trail for _, trail in seen], wire.states)
    except Exception as error:  # noqa: BLE001 -- a tracer that cannot follow says so in one line
        return Observation(unknown=[f"the tracer cannot follow it: {type(error).__name__}: {_first_line(error)}"])
    return observation


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:160]


def _compare(
    observation: Observation,
    program: Program,
    view: View,
    seed: int,
    seen: Sequence[tuple[int, Trail]],
    trails: Sequence[Trail],
    base: PlainRun,
    twin: PlainRun,
) -> None:
    trace = observation.trace
    assert trace is not None
    observation.unknown += trace.lost
    if len(trails) != len(base.messages) or not all(
        same_form(trail.message, base.messages[n]) and _repeats(trail.message, base.messages[n]) for n, trail in seen
    ):
        observation.unknown.append("two runs with the same seed send different messages")
    public = not trace.host_seals and not any(trail.inherited for _, trail in seen)
    observation.form = _form(seen, base, twin)
    if observation.form is not None and not public:
        # What the host did by sealed values is theirs; a seal that it read counts for all messages that follow.
        seen_by_host = trace.host_seals and not any(read.private and not read.same for read in trace.reads)
        told = observation.notes if seen_by_host else observation.unknown
        told.append(f"{observation.form}; noisy values may have decided that")
        observation.form = None
    asked = any(trail.bare or not trail.seals for _, trail in seen)
    other = plain_run(program, seed, host=seed + _OTHER_SEED, view=view) if asked else base
    agreed, there = observation.form is None, _OtherWorld(program, view, seed, trace, trails)
    for number, trail in seen:
        message = _state(trace, number, trail, base, twin, other, there)
        if trace.contact and trail.inherited and message.state in ("clean", "sealed"):
            message = message if there.agrees(number, trail) else replace(message, state="unexplained", why=_UNSEEN)
        agreed = agreed and (message.state != "unexplained" or bool(trail.open))
        observation.messages.append(message)
    comparable = public or (agreed and trace.contact and all(there.agrees(number, trail) for number, trail in seen))
    same_operations = base.operations == twin.operations or not public
    _reads(observation, trace, agreed=agreed, same_operations=same_operations, comparable=comparable)


def _repeats(traced: SentMessage, plain: SentMessage) -> bool:
    """The tracer takes lists of tensors apart, which may round differently."""
    return all(_close(traced.tensors[name], plain.tensors[name]) for name in traced.tensors)


def _form(seen: Sequence[tuple[int, Trail]], base: PlainRun, twin: PlainRun) -> str | None:
    if len(base.messages) != len(twin.messages):
        return f"{len(base.messages)} messages are sent in one world and {len(twin.messages)} in the other"
    for number, _ in seen:
        if number < len(base.messages) and not same_form(base.messages[number], twin.messages[number]):
            kind = base.messages[number].kind
            return f"message {number} ({kind}) has another size, dtype, kind or receiver in the other world"
    return None


def _differs(number: int, base: PlainRun, twin: PlainRun) -> bool:
    if number >= min(len(base.messages), len(twin.messages)):
        return True
    first, second = base.messages[number], twin.messages[number]
    return not same_form(first, second) or not same_values(first, second)


class _OtherWorld:
    """A training that is traced in the other world, if it is asked: what was sealed is there what it is in this one.

    Then each message differs by what was followed, and by nothing else.
    """

    def __init__(self, program: Program, view: View, seed: int, trace: Trace, trails: Sequence[Trail]) -> None:
        self._program, self._view, self._seed = program, view, seed
        self._here, self._trails = trace, trails
        self._known: tuple[Trace, list[Trail]] | None = None

    def same_scales(self, number: int, name: str, scales: Tensor) -> bool:
        """Whether these scales of a message's noise are those of the other world."""
        trace, trails = self._traced()
        place = trails[number].own.get(name) if number < len(trails) else None
        seal = None if place is None else trace.seals[place]
        if not isinstance(seal, Seal) or seal.rows.scales.shape != scales.shape:
            return False
        return bool(torch.isclose(seal.rows.scales, scales, rtol=1e-4).all())

    def agrees(self, number: int, trail: Trail) -> bool:
        """Whether a message is there what it is by all that was followed."""
        _, trails = self._traced()
        if number >= len(trails) or not same_form(trail.message, trails[number].message):
            return False
        sent = trails[number].message.tensors
        return all(
            identical(other, sent[name]) if identical(other, trail.message.tensors[name]) else _close(other, sent[name])
            for name, other in trail.others.items()
        )

    def _traced(self) -> tuple[Trace, list[Trail]]:
        if self._known is None:
            others = plain_run(self._program, self._seed + _OTHER_SEED, view=self._view).draws
            trace = Trace(others, early=self._here.early)
            trace.put_in = self._here.sealed
            wire, exits = SwappedWire(trace, self._view, self._trails), Exits(trace)
            self._known = trace, wire.trails
            # A program that ends otherwise there sends other messages.
            with suppress(Exception), seeded(self._seed), exits.followed(), trace:
                self._program(wire)
        return self._known


def _state(
    trace: Trace,
    number: int,
    trail: Trail,
    base: PlainRun,
    twin: PlainRun,
    other: PlainRun,
    there: _OtherWorld,
) -> MessageState:
    """The state of a message, after the plain runs were asked."""
    differs = _differs(number, base, twin)
    host = _differs(number, base, other)
    drawn = any(read.drawn and read.returns for read in trace.reads)
    if trail.bare:
        if not differs and not trail.seals:
            return MessageState(trail=trail, state="unexplained", why="the plain runs do not differ in it")
        if host or drawn:
            return MessageState(trail=trail, state="unexplained", why="draws that torch does not show reach it")
        return MessageState(trail=trail, state="bare", why=trail.why)
    if trail.open:
        return MessageState(trail=trail, state="unexplained", why=trail.why)
    if trail.seals:
        if not _as_traced(trace, number, trail, base, twin, there, trusted=not host and not drawn):
            return MessageState(trail=trail, state="unexplained", why="it differs by more than torch shows")
        hides = any(trace.seals[seal].taint for seal in trail.seals)
        return MessageState(trail=trail, state="sealed" if hides else "clean")
    if differs:
        why = _UNSEEN
        sure = not host and not drawn and not trail.given
        return MessageState(trail=replace(trail, bare=frozenset({0})), state="bare" if sure else "unexplained", why=why)
    return MessageState(trail=trail, state="clean")


def _as_traced(
    trace: Trace,
    number: int,
    trail: Trail,
    base: PlainRun,
    twin: PlainRun,
    there: _OtherWorld,
    *,
    trusted: bool,
) -> bool:
    """Whether a message is in the other world what the trace says.

    What went another way, through NumPy or a list, differs by more. If noise lies over all of the message, as large in
    either world, and nothing read the noise, the plain runs show the gap, which is taken instead.
    """
    if number >= min(len(base.messages), len(twin.messages)):
        return False
    sent, changed = base.messages[number], twin.messages[number]
    for name, expected in ((name, trail.others[name]) for name in trail.fresh):
        if trace.host_seals or (same_form(sent, changed) and _close(expected, changed.tensors[name])):
            continue
        seal = trace.seals[trail.own[name]] if name in trail.own else None
        if not trusted or not isinstance(seal, Seal) or not any(read.private for read in trace.reads):
            return False
        if not there.same_scales(number, name, seal.rows.scales):
            return False
        gap = gap_between(sent.tensors[name].reshape(-1), changed.tensors[name].reshape(-1))
        trace.seals[trail.own[name]] = replace(seal, gap=gap, taint=frozenset(range(len(trace.sources))))
    return True


def _close(expected: Tensor, actual: Tensor) -> bool:
    """Equal, up to the rounding of a sum in another order."""
    if identical(expected, actual) or not expected.is_floating_point():
        return identical(expected, actual)
    size = 1e-4 * float(expected.double().abs().nan_to_num().max()) if expected.numel() else 0.0
    return bool(torch.isclose(expected.double(), actual.double(), rtol=1e-4, atol=size, equal_nan=True).all())


def _reads(observation: Observation, trace: Trace, *, agreed: bool, same_operations: bool, comparable: bool) -> None:
    """Reads by the host: notes where nothing depends on them."""
    private = [read for read in trace.reads if read.private and not read.log and not read.same]
    for read in trace.reads:
        if read.private and read.log:
            observation.notes.append(
                f"{read.where}: a private number goes to {read.how}; whoever reads it learns of it"
            )
        elif read.private and read.same:
            observation.notes.append(f"{read.where}: a private value is read as {read.how}, the same in both worlds")
        elif read.drawn and not read.private and not read.log and read.how in _DECIDING:
            observation.unknown.append(f"{read.where}: a draw decides {_DECIDING[read.how]}")
    if not same_operations:
        where = private[0].where if private else "somewhere"
        observation.unknown.append(f"{where}: private values decide which operations run")
    elif private and agreed and comparable:
        observation.notes += [
            f"{read.where}: a private value is read as {read.how}; both worlds send the same and compute alike"
            for read in private
        ]
    elif private:
        observation.unknown += [f"{read.where}: a private value is read as {read.how}" for read in private]


def _account(observation: Observation, trails: Sequence[Trail], states: Sequence[Tensor]) -> None:
    """What the messages cost."""
    trace = observation.trace
    assert trace is not None
    numbers = sorted({number for trail in trails for number in trail.seals})
    seals = [seal for n in numbers if isinstance(seal := trace.seals[n], Seal)]
    choices = [choice for n in numbers if isinstance(choice := trace.seals[n], Choice)]
    given = [*trace.host_given, *(columns for trail in trails for columns in trail.given)]
    given += [columns for state in states if (columns := trace.draws.shown(state)) is not None]
    none = torch.empty(0, dtype=torch.int64)
    observation.choices = choices
    observation.loss = privacy_loss(seals, choices, torch.cat([none, *given]), trace.draws)
    sure = [seal for seal in seals if seal.exact and seal.open]
    observation.shown = privacy_loss(sure, [choice for choice in choices if choice.exact], none, trace.draws)
    observation.unknown += observation.loss.unknown
    if any(bool(trace.draws.guessed(seal.rows.used).any()) for seal in seals if seal.taint):
        observation.unknown.append("noise is from a generator with a seed that can be tried out, or is known")
