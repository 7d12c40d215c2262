"""Examine a program: what each of its messages tells about its private values, and whether a claim withstands that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vflpriv.audits.flow.twins import run_twins
from vflpriv.audits.flow.wire import FlowWire, Party, PlainWire, Program
from vflpriv.core.claims import Verdict

__all__ = ["FlowClaim", "FlowMessage", "FlowResult", "FlowWire", "Party", "PlainWire", "Program", "State", "examine"]

State = Literal["clean", "sealed", "bare", "unexplained"]


@dataclass(frozen=True, kw_only=True)
class FlowClaim:
    """What a program promises of the pair of worlds that it is examined in, to one view.

    A claim of `mu` bounds a Gaussian trade-off curve; one of `epsilon` holds with `delta`. `view` is "eavesdropper",
    who sees all messages, "server", or the number of a device.
    """

    mu: float | None = None
    epsilon: float | None = None
    delta: float = 0.0
    view: str | int = "eavesdropper"

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


def examine(program: Program, claim: FlowClaim, *, seed: int = 0) -> FlowResult:
    """Run the program in both worlds and judge the claim by what its messages tell."""
    agreement = run_twins(program, seed)
    return FlowResult(verdict=Verdict.UNMEASURED, reasons=(agreement,))
