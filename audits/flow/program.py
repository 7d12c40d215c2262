"""Examine a program: what each of its messages tells about its private values, and whether a claim withstands that."""

from __future__ import annotations

from vflpriv.audits.flow.judgement import FlowClaim, FlowMessage, FlowResult, State, judge
from vflpriv.audits.flow.observation import observe
from vflpriv.audits.flow.plain.wire import FlowWire, Party, PlainWire, Program

__all__ = ["FlowClaim", "FlowMessage", "FlowResult", "FlowWire", "Party", "PlainWire", "Program", "State", "examine"]


def examine(program: Program, claim: FlowClaim, *, seed: int = 0) -> FlowResult:
    """Trace the program, run it plainly in both worlds, and judge the claim by what its messages tell.

    Whatever the program does, there is an answer: what cannot be followed is `unmeasured`, with the reason.
    """
    return judge(claim, lambda number: observe(program, claim.view, seed + number))
