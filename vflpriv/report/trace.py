"""What `vflpriv trace` shows of a script: the state of every kind of message, exact losses of pairs, a ledger."""

from __future__ import annotations

from typing import Literal

from vflpriv.report.rows import Displayed, Row

__all__ = ["PairRow", "TraceReport", "TracedAttackRow", "TracedKindRow"]


_ROUNDING = 1e-4


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
    """The privacy loss of one pair of neighbouring worlds towards one view, exactly or between two bounds."""

    unit: str
    view: str
    what: str
    """In what the two worlds differ."""
    mu: float
    """Of all Gaussian noise; infinite where something differs that no noise hides."""
    pure: float
    """The ε of choices and of Laplace noise."""
    epsilon: float
    """Of both, at `delta`: what the messages are made of tells no more."""
    least: float = 0.0
    """The ε that the values which are sent as they are tell at least, whoever knows nothing else."""
    reasons: tuple[str, ...]
    """What was not explained; with such a reason there is no figure."""
    accounted: float | None
    """The ε of all rounds for all data, by the derived ledger; infinite where something is bare or has no proved bound,
    None where not everything is explained."""
    open: tuple[str, ...] = ()
    """Why nothing is accounted, or an infinite ε."""
    claimed: float | None = None
    """The ε of the ledger's claim about this unit and view, at its δ, which is then that of the row."""
    delta: float

    @property
    def explained(self) -> bool:
        """Whether all that the view sees is accounted for."""
        return not self.reasons

    @property
    def refutes(self) -> bool:
        """Whether this pair alone costs more than is claimed."""
        return self.claimed is not None and self.least > self.claimed * (1 + _ROUNDING)

    @property
    def exact(self) -> bool:
        """Whether all that the messages are made of is sent."""
        return self.epsilon <= self.least * (1 + _ROUNDING)

    @property
    def aim(self) -> float:
        """The ε that advice is about: what is claimed, or 1."""
        return 1.0 if self.claimed is None else self.claimed

    @property
    def settled(self) -> bool:
        """Whether what is claimed is accounted; without a claim, whether all that is shown is explained."""
        if self.claimed is None:
            return self.explained and self.accounted is not None
        return self.accounted is not None and self.accounted <= self.claimed * (1 + _ROUNDING)


class TracedAttackRow(Row):
    """The attack that reads most labels off what a view is sent."""

    view: str
    attack: str
    success: float
    chance: float
    """Of guessing without the messages."""


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
    attacks: tuple[TracedAttackRow, ...]
    differences: tuple[str, ...] = ()
    """What the script's own ledger declares otherwise."""
    advice: tuple[str, ...]
    notes: tuple[str, ...]
    ledger: str
    """A draft of a ledger file, as far as one run shows what it says."""

    @property
    def exit_code(self) -> int:
        """1 if anything is bare or a pair costs more than is claimed, 3 if not all is explained or accounted for."""
        if any(row.state == "bare" for row in self.messages) or any(pair.refutes for pair in self.pairs):
            return 1
        unexplained = any(row.state == "unexplained" for row in self.messages)
        return 3 if unexplained or not all(pair.settled for pair in self.pairs) else 0

    def to_json(self) -> str:
        """Canonical JSON: stable key order, two spaces, no final newline."""
        return super().to_json().removesuffix("\n")
