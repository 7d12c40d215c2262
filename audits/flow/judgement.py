"""The claim on a program, the answer for each message, and the verdict: what refutes the claim, what keeps it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from vflpriv.audits.flow.observation import MessageState, Observation, State
from vflpriv.audits.flow.plain.wire import View
from vflpriv.core.budgets import delta_of, epsilon_of, mu_of_pure
from vflpriv.core.claims import Verdict

__all__ = ["FlowClaim", "FlowMessage", "FlowResult", "State", "judge"]


@dataclass(frozen=True, kw_only=True)
class FlowClaim:
    """What a program promises of the pair of worlds that it is examined in, to one view.

    A claim of `mu` bounds a Gaussian trade-off curve; one of `epsilon` holds with `delta`. `view` is "eavesdropper",
    who sees all messages, "server", or the number of a device.
    """

    mu: float | None = None
    epsilon: float | None = None
    delta: float = 0.0
    view: View = "eavesdropper"

    def __post_init__(self) -> None:
        if (self.mu is None) == (self.epsilon is None):
            raise ValueError(f"Expected either mu={self.mu} or epsilon={self.epsilon} in a claim.")


@dataclass(frozen=True, kw_only=True)
class FlowMessage:
    """What one message tells.

    `clean`: no private value reaches it but through seals. `sealed`: noise of a known law hides what it carries.
    `bare`: it differs between the worlds, and nothing hides that. `unexplained`: all others.
    """

    number: int
    kind: str
    state: State
    draws: str = ""
    """The noise that seals it, with its law and size."""
    source: str = ""
    """The private values that reach it."""
    where: str = ""
    """File and line of the program where the private value got out, or was sealed."""
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class FlowResult:
    """The verdict on a claim, and the figures and messages that it rests on."""

    verdict: Verdict
    mu: float | None = None
    """The Gaussian part of the privacy loss of this pair, or a bound on it."""
    epsilon: float | None = None
    """The largest privacy loss of discrete choices and of Laplace noise."""
    leak: str | None = None
    """The proof of a total leak."""
    messages: tuple[FlowMessage, ...] = ()
    notes: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    witness: str | None = None


_MARGIN = 1 + 1e-5
"""Rounding of float32 may move a figure by so much."""
_TRANSCRIPTS = 3
"""Further trainings of a program whose branches read what was sent."""
_EXCESS = 1.005
"""A figure refutes a claim from here on: what is sent may be a rounding of what was sealed."""


def judge(claim: FlowClaim, observed: Callable[[int], Observation]) -> FlowResult:
    """The verdict from one observation; a figure above the claim is confirmed by a second one, under other draws."""
    first = observed(0)
    refuted = _refuted(claim, first)
    if refuted is not None and first.form is None and not _bare(first):
        again = _refuted(claim, observed(1))
        refuted = refuted if again is not None else None
    reasons = _unmeasured(claim, first)
    if refuted is None and not reasons and first.decided:
        # What is done next depends on what was sent: other transcripts may tell more.
        reasons = [reason for number in range(1, _TRANSCRIPTS + 1) for reason in _unmeasured(claim, observed(number))]
    if refuted is not None:
        verdict, reasons = Verdict.VIOLATED, [refuted]
    elif reasons:
        verdict = Verdict.UNMEASURED
    else:
        verdict, reasons = Verdict.CONSISTENT, [_kept(claim, first)]
    return FlowResult(
        verdict=verdict,
        mu=first.loss.mu,
        epsilon=first.loss.epsilon,
        leak=first.loss.leak,
        messages=tuple(_answer(number, message, first) for number, message in enumerate(first.messages)),
        notes=tuple(first.notes),
        reasons=tuple(reasons),
        witness=refuted,
    )


def _bare(observation: Observation) -> MessageState | None:
    return next((message for message in observation.messages if message.state == "bare"), None)


def _refuted(claim: FlowClaim, observation: Observation) -> str | None:
    """What shows that the claim is false, in a sentence; None if nothing does."""
    if claim.delta >= 1:
        return None
    if observation.form is not None:
        return observation.form
    if (bare := _bare(observation)) is not None:
        message = bare.trail.message
        return f"{bare.trail.where}: {message.kind!r} to {_names(message.receivers)} is bare: {bare.why}"
    if observation.loss.leak is not None and not observation.unknown:
        return observation.loss.leak
    shown = observation.shown
    if shown.leak is not None:
        return shown.leak
    if claim.mu is not None and not math.isinf(shown.mu) and shown.mu > claim.mu * _EXCESS:
        return f"mu of this pair is {shown.mu:.4g}, above the claimed {claim.mu:.4g}"
    if claim.epsilon is not None:
        least = _least_epsilon(claim, observation)
        if least > claim.epsilon * _EXCESS:
            return (
                f"epsilon of this pair is {least:.4g} at delta {claim.delta:g}, above the claimed {claim.epsilon:.4g}"
            )
    return None


def _least_epsilon(claim: FlowClaim, observation: Observation) -> float:
    """A bound from below on the epsilon at the claimed delta."""
    shown = observation.shown
    gaussian = 0.0 if math.isinf(shown.mu) else _epsilon(shown.mu, claim.delta)
    return max(gaussian, shown.epsilon if claim.delta == 0 else 0.0)


def _epsilon(mu: float, delta: float) -> float:
    return epsilon_of(mu, delta) if delta > 0 else (math.inf if mu > 0 else 0.0)


def _unmeasured(claim: FlowClaim, observation: Observation) -> list[str]:
    """Why the claim is not known to be kept; nothing if it is."""
    reasons = list(observation.unknown)
    reasons += [
        f"{message.trail.where}: {message.trail.message.kind!r}: {message.why}"
        for message in observation.messages
        if message.state == "unexplained"
    ]
    loss = observation.loss
    if math.isinf(loss.mu):
        return reasons or ["the noise on some values hides them by no law that is known here"]
    if claim.mu is not None:
        most = math.hypot(loss.mu, mu_of_pure(loss.epsilon))
        if most > claim.mu * _MARGIN:
            reasons.append(f"mu of this pair is at most {most:.4g}, which the claimed {claim.mu:.4g} does not cover")
    elif claim.epsilon is not None and claim.delta < 1:
        most = loss.epsilon + _epsilon(loss.mu, claim.delta)
        kept = most <= claim.epsilon * _MARGIN or (
            loss.epsilon == 0 and delta_of(loss.mu, claim.epsilon) <= claim.delta * _MARGIN
        )
        if not kept:
            reasons.append(f"epsilon of this pair is at most {most:.4g}, not known to be within {claim.epsilon:.4g}")
    return reasons


def _kept(claim: FlowClaim, observation: Observation) -> str:
    loss = observation.loss
    parts = [f"mu {loss.mu:.4g}"] if loss.mu or not loss.epsilon else []
    parts += [f"epsilon {loss.epsilon:.4g}"] if loss.epsilon else []
    return f"all private values that reach {claim.view} are sealed: {' and '.join(parts)} for this pair"


def _names(parties: tuple[str | int, ...]) -> str:
    return ", ".join(str(party) if isinstance(party, str) else f"device {party}" for party in parties)


def _answer(number: int, message: MessageState, observation: Observation) -> FlowMessage:
    trace, trail = observation.trace, message.trail
    assert trace is not None
    seals = [trace.seals[n] for n in dict.fromkeys(trail.seals)]
    taint = frozenset[int]().union(trail.bare, trail.open, *[seal.taint for seal in seals])
    sources = ", ".join(trace.sources[n].what for n in sorted(taint) if n < len(trace.sources))
    places = [seal.where for seal in seals if seal.where]
    return FlowMessage(
        number=number,
        kind=trail.message.kind,
        state=message.state,
        draws="; ".join(dict.fromkeys(seal.described(trace.draws) for seal in seals)),
        source=sources,
        where=trail.where if message.state != "sealed" or not places else ", ".join(dict.fromkeys(places)),
        why=message.why,
    )
