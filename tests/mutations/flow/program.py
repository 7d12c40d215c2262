"""A small training program whose privacy is known on paper, the evidence for it that needs no tracer, and its audit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from vflpriv.audits.flow.audit import FlowAudit
from vflpriv.audits.flow.observation import Observation, observe
from vflpriv.audits.flow.plain.twins import seeded
from vflpriv.audits.flow.plain.wire import PlainWire, Program, SentMessage, View
from vflpriv.audits.flow.sources import TracedPair
from vflpriv.core.audit import AuditContext, Finding
from vflpriv.core.claims import Claim, Verdict
from vflpriv.core.systems import Offer
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary

__all__ = ["HABIT", "PEER", "SIDE", "SKETCH", "Examined", "Theme", "TracedProgram", "gdp", "pure", "run_plainly"]

SKETCH = "first sketch"
"""Where a program comes from: the 33 systems that the first sketch of the tracer was tried on."""
PEER = "library bug"
"""A fault that a published library or example had."""
HABIT = "ordinary habit"
"""What engineers write every day."""
SIDE = "side channel"
"""A way out that no noise covers."""


def _said(view: str | int) -> dict[str, Any]:
    seen_by = f"device({view})" if isinstance(view, int) else view
    return {"key": "claim", "source": "", "where": "", "statement": "", "unit": Unit.LABEL, "view": seen_by}


def gdp(mu: float, *, view: str | int = "eavesdropper") -> Claim:
    """The claim of μ-GDP."""
    return Claim.of_mu(mu, 1e-5, **_said(view))


def pure(epsilon: float, *, delta: float = 0.0, view: str | int = "eavesdropper") -> Claim:
    """The claim of ε, without a δ or with one."""
    return Claim.of_epsilon(epsilon, delta, **_said(view))


@dataclass(frozen=True, eq=False)
class _ProgramSource:
    """A program as the flow audit is given it: the worlds are those that it makes itself."""

    train: Program
    key: ClassVar[str] = "program"
    seed: ClassVar[int] = 0
    rounds: ClassVar[int] = 1
    offers: ClassVar[frozenset[Offer]] = frozenset({Offer.TRACE})

    def traced_view(self, adversary: Adversary) -> View:
        return adversary.devices[0] if adversary.devices else adversary.kind

    def traced_pair(self, claim: Claim, rounds: int) -> TracedPair:
        return TracedPair(what="the two worlds of the program", program=lambda _: self.train)


@dataclass(frozen=True, eq=False)
class Examined:
    """What the flow audit says of a program and a claim on it, as it says it of a user's system."""

    train: Program
    claim: Claim

    @cached_property
    def finding(self) -> Finding:
        source: Any = _ProgramSource(self.train)
        (finding,) = FlowAudit().run(source, AuditContext(claims=(self.claim,)))
        return finding

    @property
    def verdict(self) -> Verdict:
        return self.finding.verdict

    @cached_property
    def observation(self) -> Observation:
        """What one trace shows, on which the audit's finding rests."""
        source = _ProgramSource(self.train)
        return observe(self.train, source.traced_view(self.claim.adversary), source.seed)

    @property
    def states(self) -> list[str]:
        """Of each message that is seen."""
        return [message.state for message in self.observation.messages]


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
    claim: Claim
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
        return self.claim.mu if self.claim.stated == "mu" else self.claim.epsilon


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
