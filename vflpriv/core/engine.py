"""What a training engine is to everyone else: what it declares, how it is run, and where an audit may attach a probe.

An engine lets a protected value out in one way: it hands the contributions of the records to a *release point*, which
clips them, adds the noise and returns what is sent. A *probe* that is attached from outside may put another value in
the place of the noiseless one, and sees what was released. Engines know nothing of audits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from vflpriv.common.ranking import class_auc

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from vflpriv.core.attack import Conduct
    from vflpriv.core.claims import Claim, SuccessClaim
    from vflpriv.core.data import BaseData, Part, VerticalData
    from vflpriv.core.ledger import Ledger
    from vflpriv.core.schedules import Schedule
    from vflpriv.core.views import Belongings
    from vflpriv.core.wire import Wire

__all__ = [
    "Capabilities",
    "Contributions",
    "Engine",
    "Evaluation",
    "Importance",
    "NoiseParameters",
    "Probe",
    "ReleasePoint",
    "Rows",
]

_MOVED = 0.01
"""A head that is nearer to its start than this share of its norm has not moved, however alike the starts are."""


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What an engine can do beyond training, and audits may ask of it."""

    relabels: bool = False
    """Its release points know what a record would contribute under another label (`Contributions.relabelled`)."""
    server_model: bool = False
    """Its server has a model that follows from the data and the noise alone, so that an adversary can train its own."""


@dataclass(frozen=True, kw_only=True)
class NoiseParameters:
    """What an engine's settings say of its noise; the defaults are those of an engine that adds none."""

    delta: float = 1e-5
    """The δ at which budgets are reported."""
    std: float | None = None
    """The std of the noise, where one setting gives it."""
    secure: bool | None = None
    """Whether it comes from the operating system's secure generator; None where nothing is said about it."""
    mode: str = "given"
    """How the std is chosen: `given`, `calibrated`, or by the formula of the engine's `paper`."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Evaluation:
    """Accuracy on records that were not trained on, and training loss, (R,) each, and the logits of the former."""

    accuracy: Tensor
    loss: Tensor
    logits: Tensor
    """(R, N, classes)"""
    labels: Tensor
    """(N,)"""

    def auc(self) -> Tensor:
        """(R,) the AUC on these records: of the second of two classes, or the mean over several, each against the rest.

        Nothing is computed for it before it is asked for.
        """
        return class_auc(self.logits, self.labels)


@dataclass(frozen=True, eq=False, kw_only=True)
class Importance:
    """How much devices matter, read off the norms of their heads, (R, M) each: now, at the random start, and how far
    each head has moved from there."""

    norms: Tensor
    starts: Tensor
    distances: Tensor

    def caveat(self, replica: int = 0) -> str | None:
        """Why the norms of a replica say nothing about the devices, in one sentence; None if they do.

        Random heads differ in norm. Where training changed no norm by as much as that, the norms show the start.
        """
        norms, starts, distances = (t[replica].double().cpu() for t in (self.norms, self.starts, self.distances))
        if not bool(norms.isfinite().all()):
            return "The heads' norms are not finite numbers: the training diverged."
        spread, change = float(starts.max() - starts.min()), float((norms - starts).abs().max())
        if change > spread and float((distances / starts).max()) > _MOVED:
            return None
        mean = float(starts.mean())
        return (
            f"The heads have hardly moved: training changed their norms by at most {change / mean:.1%}, and at the "
            f"random start they differed by {spread / mean:.1%}. Their norms do not tell how much each device matters."
        )


class Rows(Protocol):
    """What a linear model reads of the records of a batch: a record's gradient is its row times its slopes."""

    @property
    def lengths(self) -> Tensor:
        """(R, B, 1) the norm of each row."""
        ...

    def outer(self, slopes: Tensor) -> Tensor:
        """(R, width · C) the sum over records of their rows times their slopes, (R, B, C)."""
        ...

    def first(self) -> Rows:
        """The first replica's rows."""
        ...


@dataclass(frozen=True, eq=False, kw_only=True)
class Contributions:
    """What the records of a batch contribute to one release.

    `values` is (R, B) or (R, B, width). `clipped` says that they are the noiseless value already, because the clip is
    part of the model's forward pass. With `rows`, what a record contributes is its row times its values. Rows do not
    change while they are in use. `relabelled(places, labels)` gives the contributions, (R, k, c), of the records at
    k places of the batch under each of c other labels, (k, c).
    """

    round: int
    party: int
    """The device that sends or receives the value; the number of devices stands for the server itself."""
    records: Tensor
    values: Tensor
    clipped: bool = False
    rows: Rows | None = None
    relabelled: Callable[[Tensor, Tensor], Tensor] | None = None


class ReleasePoint(Protocol):
    """One place where protected values leave; `kind` is the kind of message that carries them."""

    @property
    def kind(self) -> str: ...
    @property
    def internal(self) -> bool: ...
    @property
    def mechanism(self) -> Any: ...
    def noiseless(self, contributions: Contributions) -> Tensor: ...


class Probe(Protocol):
    """What an audit attaches to the release points of an engine."""

    def noiseless(self, point: ReleasePoint, contributions: Contributions) -> Tensor:
        """The value to release, before noise; `point.noiseless(contributions)` changes nothing."""
        ...

    def released(
        self, point: ReleasePoint, contributions: Contributions, noiseless: Tensor, released: Tensor
    ) -> Tensor:
        """The value that leaves, noise included; `released` changes nothing."""
        ...

    def observed(self, observed: Tensor, records: Tensor, prior: Tensor | None = None) -> Tensor:
        """The noised labels (R, B, C) of these records that are trained on from now on; `observed` changes nothing.

        All labels are shown at once, in order, before training. Where they are drawn during it, those shown at first
        are placeholders; then each batch is shown, labels among them that were drawn before, with the prior (R, B, C)
        of those that are drawn now, and zeros for the others.
        """
        ...


class Engine(Protocol):
    """A training engine: the class declares, an instance trains R replicas of one run."""

    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]
    settings_type: ClassVar[Any]
    asynchronous: ClassVar[bool]
    label_holders: ClassVar[frozenset[str]]
    capabilities: ClassVar[Capabilities]
    replicas: tuple[int, ...]

    def __init__(
        self,
        data: VerticalData,
        settings: Any,
        *,
        schedule: Schedule,
        seed: int,
        replicas: Sequence[int] = (0,),
        seeds: Sequence[int] | None = None,
        torch_device: torch.device | None = None,
        conducts: Mapping[int, Conduct] | None = None,
    ) -> None: ...

    # Declarations: read off the class, nothing is trained for them.

    @classmethod
    def ledger(cls, settings: Any, schedule: Schedule) -> Ledger:
        """All releases of a run."""
        ...

    @staticmethod
    def claims(settings: Any, schedule: Schedule) -> tuple[Claim, ...]:
        """The published guarantees for these settings."""
        ...

    @staticmethod
    def success_claims(settings: Any, schedule: Schedule) -> tuple[SuccessClaim, ...]:
        """The published statements about the success of attacks."""
        ...

    @staticmethod
    def mechanisms(settings: Any, schedule: Schedule) -> Mapping[str, Any]:
        """The mechanisms of a run, by the kind of message that they protect."""
        ...

    @staticmethod
    def published_noise(settings: Any, schedule: Schedule) -> float:
        """The noise std that the paper prescribes for its claim."""
        ...

    @classmethod
    def check(cls, settings: Any, data: BaseData) -> None:
        """Raise an error that names the setting if the models do not fit the data."""
        ...

    @classmethod
    def draw_schedule(cls, settings: Any, *, records: int, devices: int, seed: int) -> Schedule:
        """The batches and active devices of all rounds."""
        ...

    # Training.

    def attach(self, probe: Probe) -> None:
        """Let a probe see, and replace, what the release points release."""
        ...

    def redraw_noise(self, seed: int, replicas: Sequence[int]) -> None:
        """Draw the noise of all release points from the streams of this seed and these replicas instead."""
        ...

    def run(
        self,
        wire: Wire,
        *,
        advance: Callable[[int], None] | None = None,
        stop: Callable[[int], bool] | None = None,
    ) -> None:
        """Train all rounds; `advance` is told of each, and `stop` says after each whether it was the last."""
        ...

    def round(self, round_: int, wire: Wire) -> None:
        """Train one round."""
        ...

    def evaluate(self, *, replicas: int = 32, records: int = ..., part: Part = "test") -> Evaluation:
        """Loss on the first training records, and accuracy on the test or validation records, of some replicas."""
        ...

    def belongings(self, m: int) -> Belongings:
        """What device m holds of its own by now."""
        ...

    def server_parameters(self) -> Mapping[str, Tensor]:
        """What the server has trained, (R, …) each."""
        ...

    def trained(self, replica: int = 0) -> dict[str, Tensor]:
        """All parameters of one replica, by party and name."""
        ...

    def parameter_shapes(self) -> list[list[tuple[int, ...]]]:
        """The shapes of each party's parameters, the server's last if it has a model."""
        ...

    def importance(self) -> Importance | None:
        """How much each device matters to the trained model; None where the engine has no measure of it."""
        ...
