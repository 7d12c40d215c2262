"""What every zeroth-order engine can be told beside its own settings."""

from __future__ import annotations

from pydantic import Field

from vflpriv.training._settings import TopSettings

__all__ = ["ZoSettings"]


class ZoSettings(TopSettings):
    """Zeroth-order steps are noisy, and constant rates may diverge late in a training; rates can fall linearly."""

    final_rate: float = Field(
        1.0, gt=0, le=1, description="share of both learning rates that is left in the end; they fall linearly to it"
    )

    def fade(self, round_: int) -> float:
        """The share of the rates that is left in this round."""
        return 1 - (1 - self.final_rate) * round_ / self.rounds
