"""A small training program whose privacy is known on paper, and the evidence for it that needs no tracer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from vflpriv.audits.flow.plain.twins import seeded
from vflpriv.audits.flow.plain.wire import SentMessage
from vflpriv.audits.flow.program import FlowClaim, PlainWire, Program

__all__ = ["HABIT", "PEER", "SIDE", "SKETCH", "Theme", "TracedProgram", "gdp", "pure", "run_plainly"]

SKETCH = "first sketch"
"""Where a program comes from: the 33 systems that the first sketch of the tracer was tried on."""
PEER = "library bug"
"""A fault that a published library or example had."""
HABIT = "ordinary habit"
"""What engineers write every day."""
SIDE = "side channel"
"""A way out that no noise covers."""


def gdp(mu: float, *, view: str | int = "eavesdropper") -> FlowClaim:
    """The claim of μ-GDP."""
    return FlowClaim(mu=mu, view=view)


def pure(epsilon: float, *, view: str | int = "eavesdropper") -> FlowClaim:
    """The claim of ε without a δ."""
    return FlowClaim(epsilon=epsilon, view=view)


def run_plainly(
    train: Program, *, neighbour: bool, seed: int, receipts: Sequence[SentMessage] = ()
) -> list[SentMessage]:
    """The messages of one run under a seed; with `receipts`, parties receive those of another run."""
    with seeded(seed):
        train(wire := PlainWire(int(neighbour), receipts))
    return wire.sent


@dataclass(frozen=True, kw_only=True)
class TracedProgram:
    """A training function, what it claims, and whether the claim is true.

    It has at least one piece of evidence: `exact`, `std` or `tells`.
    """

    name: str
    theme: str
    broken: bool
    train: Program
    claim: FlowClaim
    why: str
    """Why it is broken or sound, in one sentence."""
    origin: str
    exact: Callable[[], float] | None = None
    """μ or ε, as the claim has it, of this pair of worlds on paper; of a broken one a figure that the pair reaches."""
    std: float | None = None
    """The std of independent Gaussian noise on each entry that is sent, so that two plain runs give the exact μ."""
    tells: Callable[[list[SentMessage]], bool] | None = None
    """An adversary that tells the neighbouring world from the messages alone, without an error in ten runs of each."""

    @property
    def truth(self) -> str:
        return "broken" if self.broken else "sound"

    @property
    def claimed(self) -> float:
        """The claimed μ or ε."""
        claimed = self.claim.epsilon if self.claim.mu is None else self.claim.mu
        assert claimed is not None
        return float(claimed)


@dataclass(eq=False)
class Theme:
    """Programs about one thing, in the order in which they are written."""

    name: str
    programs: list[TracedProgram] = field(default_factory=list)

    def broken(self, **said: Any) -> Callable[[Program], Program]:
        """Puts the function below on the list, as one whose claim is false."""
        return self._listed(broken=True, **said)

    def sound(self, **said: Any) -> Callable[[Program], Program]:
        """Puts the function below on the list, as one whose claim is true."""
        return self._listed(broken=False, **said)

    def _listed(self, *, origin: str = HABIT, **said: Any) -> Callable[[Program], Program]:
        def listed(train: Program) -> Program:
            name = train.__name__.replace("_", "-")
            self.programs.append(TracedProgram(name=name, theme=self.name, train=train, origin=origin, **said))
            return train

        return listed

    def __iter__(self) -> Iterator[TracedProgram]:
        return iter(self.programs)
