"""What a training engine is to everyone else: what it declares, how it is run, and where an audit may attach a probe.

An engine lets a protected value out in one way: it hands the contributions of the records to a *release point*, which
clips them, adds the noise and returns what is sent. A *probe* that is attached from outside may put another value in
the place of the noiseless one, and sees what was released. Engines know nothing of audits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from vflpriv.common.lazy import torch
from vflpriv.common.random import Randomness
from vflpriv.common.ranking import class_auc
from vflpriv.common.seeds import SecretKey
from vflpriv.errors import InputError

if TYPE_CHECKING:
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
    "DeviceModel",
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


class DeviceModel(NamedTuple):
    """A device's model: `apply` computes its outputs (R, B, …) from parameters (R, …) and rows (B, …).

    `published` are the parameters that it started from, where all of them are those of a checkpoint.
    """

    apply: Callable[[Mapping[str, Tensor], Tensor], Tensor]
    parameters: Mapping[str, Tensor]
    published: Mapping[str, Tensor] | None = None


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

    probe: Probe | None

    @property
    def kind(self) -> str: ...
    @property
    def internal(self) -> bool: ...
    @property
    def mechanism(self) -> Any: ...
    def noiseless(self, contributions: Contributions) -> Tensor: ...
    def for_replicas(self, seed: int, replicas: Sequence[int]) -> ReleasePoint:
        """The same point for other replicas: a copy with their noise, and without a probe."""
        ...


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


class Engine(ABC):
    """A training engine: the class declares what it releases and promises, an instance trains R replicas of one run.

    This is all that others may ask of an engine. The round loop behind it is `vflpriv.training.engine`.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]
    settings_type: ClassVar[Any]
    asynchronous: ClassVar[bool]
    label_holders: ClassVar[frozenset[str]] = frozenset({"server"})
    capabilities: ClassVar[Capabilities] = Capabilities()
    release_points: Sequence[ReleasePoint]

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
        key: SecretKey | None = None,
        reproducible: bool = False,
    ) -> None:
        self.torch_device = torch_device or torch.device("cpu")
        self.data = data.to(self.torch_device)
        """What is trained on: labels that the settings protect are noised in it."""
        self.settings, self.schedule = settings, schedule
        self.seed, self.replicas, self.seeds = seed, tuple(replicas), seeds
        """`seeds` has one for each replica, where they are trainings of several seeds on one schedule; else None."""
        self.conducts = dict(conducts or {})
        self.randomness = Randomness(seed=seeds or seed, key=None if reproducible else key or SecretKey.fresh())
        """Secret numbers come from the key, a new one if none is given; from the seed where that is asked for."""
        self.prepare()

    @abstractmethod
    def prepare(self) -> None:
        """Make everything that the first round needs; called once, when the fields above are set."""

    # Declarations: read off the class by whoever accounts, calibrates or plans; nothing is trained for them ----------

    @classmethod
    @abstractmethod
    def ledger(cls, settings: Any, schedule: Schedule) -> Ledger:
        """All releases of a run, label protection included."""

    @staticmethod
    @abstractmethod
    def claims(settings: Any, schedule: Schedule) -> tuple[Claim, ...]:
        """The guarantees that the engine's paper gives for these settings."""

    @staticmethod
    def success_claims(settings: Any, schedule: Schedule) -> tuple[SuccessClaim, ...]:
        """The paper's statements about the success of attacks, without an ε."""
        return ()

    @staticmethod
    @abstractmethod
    def mechanisms(settings: Any, schedule: Schedule) -> Mapping[str, Any]:
        """The mechanisms of a run by the kind of message they protect."""

    @staticmethod
    def published_noise(settings: Any, schedule: Schedule) -> float:
        """The noise std that the engine's paper prescribes for its claim."""
        raise InputError("noise", "paper", "calibrated or given: this engine has no published noise formula")

    @classmethod
    @abstractmethod
    def check(cls, settings: Any, data: BaseData) -> None:
        """Raise an error that names the setting if these settings do not fit this data."""

    @classmethod
    @abstractmethod
    def draw_schedule(cls, settings: Any, *, records: int, devices: int, seed: int) -> Schedule:
        """The batches and active devices of all rounds."""

    # Training ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def attach(self, probe: Probe) -> None:
        """Let a probe see, and replace, what the release points release."""

    @abstractmethod
    def redraw_noise(self, seed: int, replicas: Sequence[int]) -> None:
        """Draw the noise of all release points from the streams of this seed and these replicas instead."""

    @abstractmethod
    def run(
        self,
        wire: Wire,
        *,
        advance: Callable[[int], None] | None = None,
        stop: Callable[[int], bool] | None = None,
    ) -> None:
        """Train all rounds; `advance` is told of each, and `stop` says after each whether it was the last."""

    @abstractmethod
    def round(self, round_: int, wire: Wire) -> None:
        """Train one round of all replicas."""

    # What was trained ----------------------------------------------------------------------------------------------

    @abstractmethod
    def evaluate(self, *, replicas: int = 32, records: int = 4096, part: Part = "test") -> Evaluation:
        """Accuracy on the test or validation records, and mean loss over the first training ones, of some replicas."""

    @abstractmethod
    def predicted(self, blocks: Sequence[Tensor], replicas: int) -> Tensor:
        """(replicas, B, classes) logits of the labels of these records, of the first replicas."""

    @abstractmethod
    def labels_of(self, records: Tensor, logits: Callable[[], Tensor]) -> Tensor:
        """What losses of these records are taken against: labels (R, B), or probabilities of labels (R, B, C).

        Those are the posterior of noised labels, or soft labels of a defence. The logits (R, B, C) of the current model
        are asked for where its prediction is the prior of noised labels, or the target of records without one yet.
        """

    @abstractmethod
    def device_model(self, m: int) -> DeviceModel:
        """Device m's model by now; training goes on to change its parameters."""

    @abstractmethod
    def belongings(self, m: int) -> Belongings:
        """What device m holds of its own by now, copied: nothing else of the run hangs on it.

        Devices whose models are one function have the same `apply`.
        """

    @abstractmethod
    def server_parameters(self) -> Mapping[str, Tensor]:
        """What the server has trained, (R, …) each; nothing where it has no model."""

    def server_model(self) -> DeviceModel | None:
        """The server's model by now, of all devices' outputs side by side, (R, B, …) to logits; None without one."""
        return None

    @abstractmethod
    def trained(self, replica: int = 0) -> dict[str, Tensor]:
        """All parameters of one replica, by party and name."""

    def importance(self) -> Importance | None:
        """How much each device matters to the trained model; None where the engine has no measure of it."""
        return None
