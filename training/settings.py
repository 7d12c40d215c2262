"""Settings that every engine takes, and those of engines with a server model, an aggregation rule, asynchrony or noise.

An engine's own settings inherit from these classes. The descriptions of the fields are the user documentation.
`vflpriv.run.noise` finds the noise std that `NoisedSettings` ask for, before anything is trained.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    SerializeAsAny,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from vflpriv.common.toml import Section
from vflpriv.core.claims import Claim
from vflpriv.core.engine import NoiseParameters
from vflpriv.core.schedules import Activation, Batching
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.laws import Alibi, LabelSets, RandomizedResponse
from vflpriv.training.clocks import Delays
from vflpriv.training.defence import Defence, in_force, parse_defence
from vflpriv.training.mechanisms.labels import LabelMechanism, NoisedBefore
from vflpriv.training.mechanisms.priors import PriorLabels

__all__ = [
    "Aggregation",
    "AggregationSettings",
    "AsyncSettings",
    "BottomKind",
    "EngineSettings",
    "LabelTargets",
    "NoiseChoice",
    "NoisedSettings",
    "SubsetSettings",
    "TopKind",
    "TopSettings",
    "WholeData",
    "without_delays",
]

BottomKind = Literal[
    "mlp",
    "linear",
    "cnn2",
    "cnn4",
    "resnet18-stem",
    "resnet18",
    "resnet20",
    "lstm",
    "transformer",
    "transformer-embedding",
]
TopKind = Literal["mlp", "linear", "resnet18", "transformer"]
Aggregation = Literal["concat", "sum", "weighted"]
LabelProtection = Literal["none", "alibi", "rr", "subset", "rr-with-prior", "lp-mst"]
LabelTargets = Literal["likeliest", "posterior", "iterative"]


def _full(value: Batching) -> Batching:
    if value is not Batching.FULL:
        raise ValueError("full: every round is over all records")
    return value


WholeData = Annotated[Batching, AfterValidator(_full)]
"""The schedule of an engine that goes over all records in every round."""
Width = Annotated[int, Field(ge=1, le=100_000)]
"""The width of a layer. A larger one is a mistake, and would fill the memory before anybody notices."""

_LARGEST = 1e30
_DEFENCE_SCHEMA = {"anyOf": [{"type": "string"}, {"type": "object"}, {"type": "null"}]}


def label_noise_for(protection: str, epsilon: float) -> float:
    """The `label_noise` with which this label protection is ε-DP for each label."""
    return Alibi.std_for(epsilon) if protection == "alibi" else epsilon


class EngineSettings(Section):
    """Settings that every engine takes."""

    rounds: int = Field(
        ge=1,
        le=10_000_000,
        description="number of communication rounds, T; asynchronous engines count the rounds of all devices together",
    )
    batch_size: int = Field(ge=1, description="number of records in a round's batch, B")
    schedule: Batching = Field(Batching.SHUFFLE, description="how the records of each batch are chosen")
    bottom: BottomKind = Field(
        "mlp",
        description="the devices' models: mlp (linear layers with ReLU), linear (one linear layer), cnn2 and cnn4 (two "
        "or four convolutions), resnet18 and resnet20 (ResNets with group normalisation), resnet18-stem (ResNet-18's "
        "first convolution), lstm, transformer (an encoder's first layers), or transformer-embedding (its embedding "
        "layer and first layers, a state for each token); convolutional models need blocks that are images, lstm and "
        "the transformers need token ids",
    )
    hidden: tuple[Width, ...] = Field(
        (),
        description="widths of the bottom models' hidden layers: of an MLP's layers, of each convolution of cnn2 and "
        "cnn4, of ResNet's first convolution, or of the LSTM's word vectors and state; if empty no hidden layer for an "
        "MLP, and default widths for the others",
    )
    embedding: Width = Field(
        16,
        description="width of a device's embedding; resnet18-stem and transformer-embedding determine their own",
    )
    encoder: str | None = Field(
        None,
        description="folder with the config.json and model.safetensors of the encoder (BERT, MiniLM or DistilBERT) "
        "that transformer models are taken from",
    )
    encoder_layers: int = Field(
        0,
        ge=0,
        description="number of encoder layers that follow the embedding layer, for bottom = transformer and, before "
        "those of the server, transformer-embedding",
    )
    encoder_frozen: bool = Field(
        False, description="for bottom = transformer: keep the encoder's weights fixed and train the last layer alone"
    )
    top_hidden: tuple[Width, ...] = Field((), description="widths of the top model's hidden layers")
    device_rate: float = Field(0.05, gt=0, description="learning rate of the devices")
    server_rate: float = Field(0.05, gt=0, description="learning rate of the server")
    momentum: float = Field(0.0, ge=0, lt=1, description="heavy-ball momentum of the updates")
    server_momentum: float | None = Field(
        None, ge=0, lt=1, description="momentum of the server's updates; `momentum` if not given"
    )
    weight_decay: float = Field(0.0, ge=0, description="ℓ2 weight decay of every first-order update")
    label_protection: LabelProtection = Field(
        "none",
        description="noise that is added to the labels before training: alibi (Laplace noise on one-hot labels), rr "
        "(randomised response), subset (a random set of classes, which tells more than rr where ε is small), or none; "
        "or when a record is first trained on: rr-with-prior (randomised response among the likeliest classes), lp-mst "
        "(the same in stages, after a first one of plain randomised response)",
    )
    label_epsilon: float | None = Field(
        None, gt=0, description="ε of each label by any label_protection; says what label_noise is"
    )
    label_noise: float | None = Field(
        None,
        gt=0,
        validate_default=True,
        description="standard deviation of the noise of alibi, or ε of the others; if not given by label_epsilon, or 1",
    )
    label_stages: int | None = Field(
        None,
        ge=2,
        le=100,
        description="for lp-mst: the number of stages, which divide rounds and records evenly; 2 if not given",
    )
    label_prior: tuple[Annotated[float, Field(ge=0)], ...] | None = Field(
        None,
        description="for rr-with-prior: the probability of each class, as everybody knows it without the labels; the "
        "model's prediction for the record if not given",
    )

    label_targets: LabelTargets | None = Field(
        None,
        description="what the training takes as target in place of the noised labels: the likeliest label, the "
        "posterior over labels, or iterative, the posterior with the model's prediction as prior; if not given, "
        "iterative for alibi, as it was published (posterior does better on a few thousand records), and for subset; "
        "likeliest for rr",
    )

    defence: Annotated[SerializeAsAny[Defence] | None, WithJsonSchema(_DEFENCE_SCHEMA)] = Field(
        None,
        description="a defence that changes messages before they are sent: its name, or a table with its name and its "
        "strengths; `vflpriv defences` lists them",
    )

    secure_noise: bool = Field(
        False,
        description="whether audits, too, draw noise, noised labels, defences and secret batches from the operating "
        "system's entropy; otherwise only `vflpriv train` does, and audits draw them from the seed",
    )
    delays: Delays | None = Field(
        None,
        description="compute time and network delay of the devices in seconds, for a simulated clock; where devices "
        "are not active in a fixed order, those that deliver first are then active",
    )

    @classmethod
    def completed(cls, raw: Mapping[str, Any]) -> dict[str, Any]:
        """These values with the settings that their defence stands for, where they do not give them themselves."""
        defence = parse_defence(raw.get("defence"))
        known = {} if defence is None else {n: v for n, v in defence.settings.items() if n in cls.model_fields}
        return {**known, **raw}

    @field_validator("defence", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Defence | None:
        return parse_defence(value)

    @model_validator(mode="after")
    def _as_the_defence_says(self) -> Self:
        if self.defence is None:
            return self
        for name, value in self.defence.settings.items():
            if name in type(self).model_fields and getattr(self, name) != value:
                raise ValueError(f"{name} is {value!r} by the defence {self.defence.name}, not {getattr(self, name)!r}")
        return self

    @field_validator("*")
    @classmethod
    def _in_single_precision(cls, value: object) -> object:
        if isinstance(value, float) and abs(value) > _LARGEST:
            raise ValueError(f"a number <= {_LARGEST:g}: models are trained in single precision")
        return value

    @field_validator("label_epsilon")
    @classmethod
    def _of_a_mechanism(cls, value: float | None, info: ValidationInfo) -> float | None:
        if value is not None and info.data.get("label_protection") == "none":
            raise ValueError("nothing without label_protection: labels are used as they are")
        return value

    @field_validator("label_noise")
    @classmethod
    def _by_label_epsilon(cls, value: float | None, info: ValidationInfo) -> float | None:
        epsilon, protection = info.data.get("label_epsilon"), info.data.get("label_protection")
        if epsilon is None or protection is None:
            return 1.0 if value is None else value
        noise = label_noise_for(protection, epsilon)
        if value is not None and not math.isclose(value, noise, rel_tol=1e-6):
            raise ValueError(f"nothing beside label_epsilon = {epsilon:g}, which makes it {noise:.6g}")
        return noise

    @field_validator("label_targets")
    @classmethod
    def _of_noised_labels(cls, value: LabelTargets | None, info: ValidationInfo) -> LabelTargets | None:
        if value is not None and info.data.get("label_protection") == "none":
            raise ValueError("nothing without label_protection: labels without noise are trained on as they are")
        return value

    @model_validator(mode="after")
    def _drawn_during_training(self) -> Self:
        if self.label_stages is not None and self.label_protection != "lp-mst":
            raise ValueError(f"label_stages is for lp-mst, not {self.label_protection!r}")
        if self.label_prior is not None:
            if self.label_protection != "rr-with-prior":
                raise ValueError(f"label_prior is for rr-with-prior, not {self.label_protection!r}")
            if not 0.999 <= sum(self.label_prior) <= 1.001:
                raise ValueError(f"label_prior must add up to 1, not {sum(self.label_prior):g}")
        drawn = self.label_protection in ("rr-with-prior", "lp-mst")
        if drawn and self.targets != "likeliest":
            raise ValueError(f"label_targets must be likeliest with {self.label_protection}, not {self.targets!r}")
        return self

    @property
    def targets(self) -> LabelTargets:
        """What losses are taken against where labels were noised: `label_targets`, or the mechanism's default."""
        if self.label_targets is not None:
            return self.label_targets
        return "iterative" if self.label_protection in ("alibi", "subset") else "likeliest"

    @property
    def top_momentum(self) -> float:
        """The momentum of the server's update."""
        return self.momentum if self.server_momentum is None else self.server_momentum

    @property
    def files(self) -> tuple[Path, ...]:
        """The files whose content decides a training, beside the data."""
        folder = None if self.encoder is None else Path(self.encoder)
        return () if folder is None else tuple(sorted(path for path in folder.glob("*") if path.is_file()))

    @property
    def noise_parameters(self) -> NoiseParameters:
        """What these settings say of the engine's noise."""
        return NoiseParameters(secure=self.secure_noise)

    @property
    def calibrated_claims(self) -> tuple[Claim, ...]:
        """The targets that noise was calibrated to; `NoisedSettings` has them."""
        return ()

    @property
    def label_mechanism(self) -> LabelMechanism | None:
        """The mechanism that adds noise to the labels, if any."""
        noise = 1.0 if self.label_noise is None else self.label_noise
        if self.label_protection == "alibi":
            return NoisedBefore(law=Alibi(noise))
        if self.label_protection == "rr":
            return NoisedBefore(law=RandomizedResponse(noise))
        if self.label_protection == "subset":
            return NoisedBefore(law=LabelSets(noise))
        if self.label_protection == "none":
            return None
        stages = 1 if self.label_protection == "rr-with-prior" else self.label_stages or 2
        return PriorLabels(law=RandomizedResponse(noise), stages=stages, prior=self.label_prior)

    def with_label_epsilon(self, epsilon: float) -> Self:
        """These settings with this ε of each label."""
        noise = label_noise_for(self.label_protection, epsilon)
        return self.model_copy(update={"label_epsilon": epsilon, "label_noise": noise})

    @property
    def defences_in_force(self) -> Mapping[str, Mapping[str, Any]]:
        """The strengths of each defence that these settings put in force, by its name."""
        return in_force(self)

    @property
    def subset(self) -> int | None:
        """How many devices take part in a round, all if None; `SubsetSettings` makes it a setting."""
        return None

    @property
    def top_kind(self) -> TopKind:
        """The server's model; `TopSettings` makes it a setting."""
        return "mlp"

    @property
    def aggregation_rule(self) -> Aggregation:
        """How the server joins what the devices send; `AggregationSettings` makes it a setting."""
        return "concat"


class TopSettings(EngineSettings):
    """Settings of engines whose server has a model."""

    top: TopKind = Field(
        "mlp",
        description="the server's model: mlp (linear layers with ReLU), linear (one layer without a bias), resnet18 "
        "(the remaining layers of ResNet-18, with bottom = resnet18-stem), or transformer (the remaining layers of the "
        "encoder, with bottom = transformer-embedding)",
    )

    @property
    def top_kind(self) -> TopKind:
        return self.top


class AggregationSettings(EngineSettings):
    """Settings of engines that can join the devices' outputs in several ways; an engine narrows the field down."""

    aggregation: Aggregation = Field(
        "concat",
        description="concatenated embeddings under a server model, summed logits without a server model, or a learned "
        "linear combination of embeddings under a server model",
    )

    @property
    def aggregation_rule(self) -> Aggregation:
        return self.aggregation


class SubsetSettings(EngineSettings):
    """Settings of synchronous engines in whose rounds some of the devices may take part."""

    together: int | None = Field(
        None,
        ge=1,
        description="number of devices that take part in a round, drawn at random for each; the server takes the last "
        "outputs of the others, zeros before their first; all devices if not given",
    )

    @field_validator("together")
    @classmethod
    def _drawn_without_delays(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and info.data.get("delays") is not None:
            raise ValueError("nothing beside delays: a round on the simulated clock waits for all devices")
        return value

    @property
    def subset(self) -> int | None:
        return self.together


def without_delays(rates: tuple[float, ...] | None, info: ValidationInfo) -> tuple[float, ...] | None:
    """The rates of Poisson clocks, which are an error where delays decide who is active."""
    if rates is not None and info.data.get("delays") is not None:
        raise ValueError("nothing beside delays, which decide how often a device is active")
    return rates


class AsyncSettings(EngineSettings):
    """Settings of engines with one active device per round; for engines whose `asynchronous` is true."""

    activation: Activation = Field(
        Activation.CLOCKS, description="how the active device is chosen: independent Poisson clocks, or round-robin"
    )
    rates: tuple[float, ...] | None = Field(
        None, description="how often each device's clock rings, per second of the simulated clock; equal if not given"
    )

    @field_validator("rates")
    @classmethod
    def _one_clock(cls, value: tuple[float, ...] | None, info: ValidationInfo) -> tuple[float, ...] | None:
        return without_delays(value, info)

    @field_validator("activation")
    @classmethod
    def _one_device_per_round(cls, value: Activation) -> Activation:
        if value not in (Activation.CLOCKS, Activation.ROUND_ROBIN):
            raise ValueError(f"activation must be clocks or round-robin, with one device per round, not '{value}'")
        return value


NoiseChoice = Literal["paper", "calibrated", "given"]


class NoisedSettings(EngineSettings):
    """How much noise an engine adds, and what that is to protect from whom.

    Engines change the defaults to what their papers protect.
    """

    noise: NoiseChoice = Field(
        "given",
        description="noise std by the formula of the engine's paper, by calibration to `epsilon` for `unit` and "
        "`protect`, or as given in noise_std",
    )
    noise_std: float | None = Field(
        None, ge=0, validate_default=True, description="std of the noise; needed with noise = 'given' alone"
    )
    epsilon: float = Field(1.0, gt=0, description="target ε of `noise`")
    delta: float = Field(1e-5, gt=0, lt=1, description="δ at which ε is read")
    unit: Unit | None = Field(
        None,
        description="what calibrated noise protects: label, record, features, add-remove, client-zero or client; what "
        "the engine's paper protects if not given",
    )
    protect: str = Field("server", description="the view that calibrated noise is for")

    @field_validator("protect")
    @classmethod
    def _view(cls, value: str) -> str:
        return str(Adversary.parse(value))

    @field_validator("noise")
    @classmethod
    def _chosen_once(cls, value: NoiseChoice, info: ValidationInfo) -> NoiseChoice:
        defence = info.data.get("defence")
        if value != "given" and defence is not None and "noise_std" in defence.settings:
            raise ValueError(f"given: the defence {defence.name} says what noise_std is")
        return value

    @field_validator("noise_std")
    @classmethod
    def _given(cls, value: float | None, info: ValidationInfo) -> float | None:
        if value is None and info.data.get("noise") == "given":
            raise ValueError("a number when noise = 'given'")
        return value

    @property
    def published_unit(self) -> Unit:
        """The unit that the engine's paper protects by this noise."""
        return Unit.RECORD

    @property
    def protected_unit(self) -> Unit:
        """The unit that calibrated noise is for."""
        return self.published_unit if self.unit is None else self.unit

    @property
    def known_std(self) -> float:
        """The noise std; an error where it is still to be found, so that nothing is trained without the noise."""
        if self.noise_std is None or (self.noise != "given" and not self.noise_std):
            raise ValueError(f"Expected a number for noise_std, found {self.noise_std} with noise={self.noise!r}.")
        return self.noise_std

    def with_std(self, std: float) -> Self:
        """These settings with this noise std."""
        return self.model_copy(update={"noise_std": std})

    @property
    def noise_parameters(self) -> NoiseParameters:
        return NoiseParameters(delta=self.delta, std=self.noise_std, secure=self.secure_noise, mode=self.noise)

    @property
    def calibrated_claims(self) -> tuple[Claim, ...]:
        """The target of the calibration, which takes the place of a paper's claims; nothing with other noise."""
        if self.noise != "calibrated":
            return ()
        unit = self.protected_unit
        return (
            Claim.of_epsilon(
                self.epsilon,
                self.delta,
                key="calibrated",
                source="this configuration",
                where="noise = calibrated",
                statement=f"the noise is calibrated so that {self.protect} learns at most (ε, δ) of {_OF_UNIT[unit]}",
                unit=unit,
                view=self.protect,
            ),
        )


_OF_UNIT = {
    Unit.LABEL: "a label",
    Unit.RECORD: "a record",
    Unit.FEATURES: "a record's features at one device",
    Unit.ADD_REMOVE: "whether a record is there",
    Unit.CLIENT_ZERO: "a device's data, against zeros in their place",
    Unit.CLIENT: "a device's data",
}
