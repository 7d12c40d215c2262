"""FedBCD: split learning whose devices take several steps with one, soon stale, gradient (VIMADMM §II, §VI)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from vflpriv.common.registry import register
from vflpriv.training.engines.split import GradientSettings, Split, through
from vflpriv.training.mechanisms.base import Mechanism

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["FedBcd", "FedBcdSettings"]


class FedBcdSettings(GradientSettings):
    """Settings of FedBCD."""

    local_steps: int = Field(
        5, ge=1, le=100_000, description="τ, steps of a device with the same gradient of its outputs"
    )
    stale_steps: Literal["clipped", "unclipped"] = Field(
        "clipped",
        description="whether all steps go back through the clip, or only the first, as in VIMADMM's published code "
        "(unclipped): later ones then are as long as without a clip",
    )


@register("engine")
class FedBcd(Split):
    """Split learning, and τ - 1 more steps of every device in a round.

    Before each of them a device computes its outputs anew with the model it has by then, and goes back through them
    with the gradient that it was sent for the first ones. Nothing else is sent: with τ = 1 this is split learning, and
    the releases of a round do not depend on τ.
    """

    name = "fedbcd"
    summary = "split learning with several local steps on the same, stale gradient"
    source = "Liu et al. 2022; VIMADMM, §II and §VI"
    settings_type = FedBcdSettings
    settings: FedBcdSettings

    def updates(self, round_: int, records: Tensor, replies: Mapping[int, Mapping[str, Tensor]]) -> None:
        stale = self._part.join([replies[m]["gradient"] for m in sorted(replies)])
        back = through if self.settings.stale_steps == "clipped" else _through_once
        self._step(stale, steps=self.settings.local_steps, back=back)


def _through_once(mechanism: Mechanism, gradient: Tensor, models: slice, step: int, outputs: Tensor) -> Tensor:
    """Back through the clip in the first step, and as if nothing were clipped in the others."""
    return through(mechanism, gradient, models, step, outputs) if step == 0 else gradient[models]
