"""A defence of gradients on the downlink: clip and noise, settings that any engine which sends gradients takes."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator
from torch import Tensor

from vflpriv.training.mechanisms.noise import NoiseSource
from vflpriv.training.mechanisms.uplink import EmbeddingClip
from vflpriv.training.settings import EngineSettings

__all__ = ["DownlinkSettings", "guarded"]


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


def guarded(settings: DownlinkSettings, gradient: Tensor, noise: NoiseSource, round_: int, party: int) -> Tensor:
    """(R, B, width) gradients as they are sent; `party` numbers the noise of a round."""
    if settings.gradient_clip is None:
        return gradient
    std, size = settings.gradient_noise_std, gradient.shape[1]
    mechanism = EmbeddingClip(noise_std=std, clip=settings.gradient_clip, batch_size=size)
    clipped = mechanism.noiseless(gradient)
    return mechanism.release(clipped, noise.tensor(tuple(clipped.shape[1:]), round_, party)) if std else clipped
