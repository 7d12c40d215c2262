"""A defence of gradients on the downlink: clip and noise, settings that any engine which sends gradients takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from pydantic import Field, model_validator

from vflpriv.training.mechanisms.base import NoiseSource
from vflpriv.training.mechanisms.uplink import EmbeddingClip
from vflpriv.training.settings import EngineSettings

if TYPE_CHECKING:
    from torch import Tensor

    from vflpriv.core.law import Draws

__all__ = ["DownlinkSettings", "GradientGuard"]


class DownlinkSettings(EngineSettings):
    """Clip and noise of the gradients that devices are sent.

    The ledger gives no credit for them: a server model moved by exact labels is in every later gradient.
    """

    gradient_clip: float | None = Field(None, gt=0, description="L2 bound of each record's gradient of the batch mean")
    gradient_noise_std: float = Field(0.0, ge=0, description="std of the noise on every entry of the gradients sent")

    @model_validator(mode="after")
    def _guard(self) -> Self:
        if self.gradient_noise_std and self.gradient_clip is None:
            raise ValueError("gradient_noise_std needs gradient_clip: without a clip it protects nothing")
        return self


class GradientGuard:
    """Clips and noises the gradients of one engine, where its settings ask for it."""

    def __init__(self, settings: DownlinkSettings, streams: Callable[[str], Draws]) -> None:
        self._settings = settings
        # No bound of a record or of absence depends on how many records there are.
        std, clip = settings.gradient_noise_std, settings.gradient_clip or 1.0
        self._mechanism = EmbeddingClip(noise_std=std, clip=clip, batch_size=1)
        self._noise = (
            NoiseSource(streams("server-noise"), name="server-noise", law=self._mechanism.on_grid) if std > 0 else None
        )

    @classmethod
    def of(cls, settings: object, streams: Callable[[str], Draws]) -> GradientGuard | None:
        """A guard for settings that have one; None for an engine that sends no gradients."""
        return cls(settings, streams) if isinstance(settings, DownlinkSettings) else None

    def protect(self, gradient: Tensor, round_: int, party: int) -> Tensor:
        """(R, B, width) gradients as they are sent; `party` numbers the noise of a round."""
        s = self._settings
        if s.gradient_clip is None:
            return gradient
        clipped = self._mechanism.noiseless(gradient)
        if self._noise is None:
            return clipped
        return self._mechanism.release(clipped, self._noise.tensor(tuple(clipped.shape[1:]), round_, party))
