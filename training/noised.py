"""Settings of engines that add noise: how its standard deviation is chosen, and for which unit, view and budget.

Engines inherit from `NoisedSettings` and change the defaults to what their papers protect. `vflpriv.run.noise`
finds the standard deviation that these settings ask for, before anything is trained.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, ValidationInfo, field_validator

from vflpriv.core.claims import Claim
from vflpriv.core.engine import NoiseParameters
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.training.settings import EngineSettings

__all__ = ["NoiseChoice", "NoisedSettings"]

NoiseChoice = Literal["paper", "calibrated", "given"]


class NoisedSettings(EngineSettings):
    """How much noise an engine adds, and what that is to protect from whom."""

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
    secure_noise: bool = Field(False, description="noise from the operating system instead of the seeded stream")

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
