"""One pair of worlds of a script as one view sees it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vflpriv.audits.flow.figures import figures_of
from vflpriv.audits.flow.observation import MessageState, Observation
from vflpriv.audits.flow.plain.wire import View
from vflpriv.audits.flow.tracer.events import PLACE, Choice, Seal
from vflpriv.core.units import Unit

__all__ = ["Followed", "own_seals"]

_BRANCHES = ("a branch", "a comparison", PLACE)


@dataclass(frozen=True, kw_only=True, eq=False)
class Followed:
    """One pair of worlds as one view sees it."""

    unit: Unit
    device: int | None
    view: View
    what: str
    observation: Observation

    @property
    def unit_name(self) -> str:
        """The unit, and whose features it is about."""
        return str(self.unit) if self.device is None else f"{self.unit} of device({self.device})"

    @property
    def view_name(self) -> str:
        """The view as claims name it."""
        if isinstance(self.view, frozenset):
            return f"devices({', '.join(str(m) for m in sorted(self.view, key=str))})"
        return f"device({self.view})" if isinstance(self.view, int) else self.view

    @property
    def bare(self) -> bool:
        """Whether the view is sent something that nothing hides."""
        return self.observation.form is not None or any(message.state == "bare" for message in self.shown)

    @property
    def leak(self) -> str | None:
        """What tells the worlds apart with certainty though there is noise on it, or None."""
        seen = self.observation
        return seen.shown.leak or (None if seen.unknown else seen.loss.leak)

    def least(self, delta: float) -> float:
        """The ε that the values which are sent as they are tell of this pair, along this transcript."""
        seen = self.observation
        if self.bare or self.leak is not None:
            return math.inf
        return figures_of(seen, delta).least

    @property
    def branches(self) -> list[str]:
        """Where a private value decides what the program does: what is proved holds along the way that it took."""
        trace = self.observation.trace
        reads = () if trace is None else trace.reads
        return [
            f"{read.where}: {read.how} of a private value decides what happens; with other data something else may"
            for read in reads
            if read.private and not read.log and read.how in _BRANCHES
        ]

    @property
    def shown(self) -> Sequence[MessageState]:
        """The messages that the view sees."""
        return self.observation.messages

    @property
    def received(self) -> Sequence[MessageState]:
        """Those that others send: by its own messages a party learns nothing."""
        members = self.view if isinstance(self.view, frozenset) else {self.view}
        return [message for message in self.shown if message.trail.message.sender not in members]


def own_seals(followed: Followed, kind: str) -> list[Seal | Choice]:
    """The seals that messages of a kind show first: what they were made of before is another kind's."""
    trace, first = followed.observation.trace, dict[int, str]()
    for message in followed.received:
        for number in message.trail.seals:
            first.setdefault(number, message.trail.message.kind)
    if trace is None:
        return []
    return [seal for number, own in first.items() if own == kind and (seal := trace.seals[number]).taint]
