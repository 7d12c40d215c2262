"""What `vflpriv trace` shows of a script: the state of every kind of message, exact losses of pairs, a ledger."""

from __future__ import annotations

from typing import Literal

from vflpriv.report.rows import Displayed, Row

__all__ = ["PairRow", "TraceReport", "TracedKindRow"]


class TracedKindRow(Row):
    """The messages of one kind that one view sees, where one unit differs: the worst state among them."""

    unit: str
    view: str
    kind: str
    state: Literal["clean", "sealed", "bare", "unexplained"]
    messages: int
    """How many of this kind the view saw in the rounds that were followed."""
    noise: str
    """The law and size of the noise that seals them."""
    where: str
    """The line that sealed them; of others the line by which they leave."""
    why: str


class PairRow(Row):
    """The privacy loss of one pair of neighbouring worlds towards one view, exactly."""

    unit: str
    view: str
    what: str
    """In what the two worlds differ."""
    mu: float
    """Of all Gaussian noise; infinite where something differs that no noise hides."""
    pure: float
    """The ε of choices and of Laplace noise."""
    epsilon: float
    """Of both, at `delta`."""
    reasons: tuple[str, ...]
    """What was not explained; with such a reason there is no figure."""

    @property
    def explained(self) -> bool:
        """Whether all that the view sees is accounted for."""
        return not self.reasons


class TraceReport(Displayed, Row):
    """The whole trace of a script."""

    schema_version: str = "vflpriv-trace/1"
    tool_version: str
    script: str
    records: int
    devices: int
    rounds: int
    followed: int
    """The first so many rounds were followed."""
    delta: float
    messages: tuple[TracedKindRow, ...]
    pairs: tuple[PairRow, ...]
    advice: tuple[str, ...]
    notes: tuple[str, ...]
    ledger: str
    """A draft of a ledger file, as far as one run shows what it says."""

    @property
    def exit_code(self) -> int:
        """1 if anything is bare, 3 if anything is not explained, else 0."""
        if any(row.state == "bare" for row in self.messages):
            return 1
        unexplained = any(row.state == "unexplained" for row in self.messages)
        return 3 if unexplained or any(not pair.explained for pair in self.pairs) else 0

    def to_json(self) -> str:
        """Canonical JSON: stable key order, two spaces, no final newline."""
        return super().to_json().removesuffix("\n")
