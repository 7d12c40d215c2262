"""What every engine can be told, and what those can whose server has a model."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from vflpriv.core.schedules import Activation, Batching
from vflpriv.training.mechanisms.labels import Alibi, LabelMechanism, RandomizedLabels

__all__ = ["AsyncSettings", "EngineSettings", "LabelTargets", "TopSettings"]

LabelTargets = Literal["likeliest", "posterior", "iterative"]
LARGEST = 1e30
Width = Annotated[int, Field(ge=1, le=100_000)]
"""Of a layer; a wider one is a slip, and would fill the memory before it is seen."""


class EngineSettings(BaseModel):
    """What every engine can be told."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    rounds: int = Field(
        ge=1, le=10_000_000, description="communication rounds T; asynchronous engines count every device's"
    )
    batch_size: int = Field(ge=1, description="records in a round, B")
    schedule: Batching = Field(Batching.SHUFFLE, description="how a round's records are chosen")
    bottom: Literal[
        "mlp",
        "linear",
        "cnn2",
        "cnn4",
        "resnet18-stem",
        "resnet18",
        "lstm",
        "transformer",
        "transformer-embedding",
    ] = Field(
        "mlp",
        description="the devices' models; convolutions need blocks that are images, lstm and transformers token ids",
    )
    hidden: tuple[Width, ...] = Field((), description="widths of the bottom models' hidden layers")
    embedding: Width = Field(
        16, description="width of a device's embedding; resnet18-stem and transformer-embedding have their own"
    )
    encoder: str | None = Field(
        None, description="folder with the config.json and model.safetensors of the transformer that parts are taken of"
    )
    encoder_layers: int = Field(0, ge=0, description="layers of the transformer behind its embedding layer, at devices")
    encoder_frozen: bool = Field(False, description="whether the transformer's own weights stay as they are")
    top_hidden: tuple[Width, ...] = Field((), description="widths of the top model's hidden layers")
    device_rate: float = Field(0.05, gt=0, description="learning rate of the devices")
    server_rate: float = Field(0.05, gt=0, description="learning rate of the server")
    momentum: float = Field(0.0, ge=0, lt=1, description="momentum of every update")
    server_momentum: float | None = Field(None, ge=0, lt=1, description="of the server's; as the devices' if not given")
    weight_decay: float = Field(0.0, ge=0, description="ℓ2 weight decay of every first-order update")
    label_protection: Literal["none", "alibi", "rr"] = Field(
        "none", description="noise on the labels before training: Laplace on one-hot labels, or randomised response"
    )
    label_noise: float = Field(1.0, gt=0, description="std of alibi's noise, or ε of rr")

    label_targets: LabelTargets | None = Field(
        None,
        description="what is trained on of noised labels: the likeliest label, their posterior, or iterative, the "
        "posterior with the model's prediction as prior (ALIBI's own, for large data); if not given posterior for "
        "alibi and likeliest for rr",
    )

    @field_validator("*")
    @classmethod
    def _in_single_precision(cls, value: object) -> object:
        if isinstance(value, float) and abs(value) > LARGEST:
            raise ValueError(f"a number <= {LARGEST:g}: models are trained in single precision")
        return value

    @field_validator("label_targets")
    @classmethod
    def _of_noised_labels(cls, value: LabelTargets | None, info: ValidationInfo) -> LabelTargets | None:
        if value is not None and info.data.get("label_protection") == "none":
            raise ValueError("nothing without label_protection: labels without noise are trained on as they are")
        return value

    @property
    def targets(self) -> LabelTargets:
        """What losses are taken against."""
        if self.label_targets is not None:
            return self.label_targets
        return "posterior" if self.label_protection == "alibi" else "likeliest"

    @property
    def top_momentum(self) -> float:
        """The momentum of the server's update."""
        return self.momentum if self.server_momentum is None else self.server_momentum

    @property
    def label_mechanism(self) -> LabelMechanism | None:
        """The mechanism that noises the labels, if any."""
        if self.label_protection == "alibi":
            return Alibi(std=self.label_noise)
        return RandomizedLabels(budget=self.label_noise) if self.label_protection == "rr" else None


class TopSettings(EngineSettings):
    """What engines can be told whose server has a model."""

    top: Literal["mlp", "resnet18", "transformer"] = Field(
        "mlp",
        description="the server's model: linear layers with ReLU, the rest of ResNet-18 behind bottom = resnet18-stem, "
        "or the rest of the encoder behind bottom = transformer-embedding",
    )


# What every asynchronous engine can be told about who is active when.

_ALONE = (Activation.CLOCKS, Activation.ROUND_ROBIN)


class AsyncSettings(EngineSettings):
    """One device a round. Mix it into the settings of an engine whose `asynchronous` is true."""

    activation: Activation = Field(Activation.CLOCKS, description="independent Poisson clocks, or round-robin")
    rates: tuple[float, ...] | None = Field(None, description="clock rate of each device; equal if not given")

    @field_validator("activation")
    @classmethod
    def _alone(cls, value: Activation) -> Activation:
        if value not in _ALONE:
            raise ValueError(f"activation must be clocks or round-robin: one device a round, not '{value}'")
        return value
