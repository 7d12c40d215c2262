"""Conducts: how a dishonest device departs from the protocol. It changes what that device does, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Conduct", "Forgery"]

Forgery = Callable[[int, "Tensor", Mapping[str, "Tensor"]], Mapping[str, "Tensor"]]
"""What to send instead, from the round, the batch's record ids and what an honest device would send."""


@dataclass(frozen=True, kw_only=True)
class Conduct:
    """What a dishonest device does otherwise: it sends something else, or scales its own steps up, or both.

    `gain` is γ of the malicious optimiser of Fu et al. 2022; 0 leaves the steps as they are.
    """

    name: str
    forge: Forgery | None = None
    gain: float = 0.0
