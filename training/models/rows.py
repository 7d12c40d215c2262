"""What a linear model reads of each record, in factors: replicas that share features never hold a copy of them.

A product with the rows of R replicas is one product with the features that they share, of R times as many columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vflpriv.common.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["CentredRows"]

_HALF = math.sqrt(0.5)
_NEAR = 1e-3
"""Features that are nearer to the centre make a shorter row: their direction from it would be rounding."""


@dataclass(frozen=True, eq=False, kw_only=True)
class CentredRows:
    """The row of features x in a replica with centre c is (1, (x - c) / |x - c|) / √2, of norm 1 and never longer.

    `features` are (R, B, width), or (1, B, width) where replicas share them; `centre` is (R, width), `divisors` are
    (R, 1, B) |x - c|, and `lengths` (R, B, 1) the norms of the rows.
    """

    features: Tensor
    centre: Tensor
    divisors: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, features: Tensor, centre: Tensor) -> CentredRows:
        """The rows of these features, seen from each replica's centre."""
        shared = len(features) == 1
        # Distances by way of products would be wrong where they are short.
        apart = torch.cdist(features, centre.unsqueeze(0 if shared else 1), compute_mode="donot_use_mm_for_euclid_dist")
        distances = apart[0].T if shared else apart[..., 0]
        shortened = (distances / _NEAR).clamp(max=1.0)
        return cls(
            features=features,
            centre=centre,
            divisors=distances.clamp(min=_NEAR).unsqueeze(1),
            lengths=(0.5 + 0.5 * shortened.square()).sqrt().unsqueeze(2),
        )

    def first(self) -> CentredRows:
        """The first replica's rows, as views."""
        return CentredRows(
            features=self.features[:1],
            centre=self.centre[:1],
            divisors=self.divisors[:1],
            lengths=self.lengths[:1],
        )

    def times(self, weight: Tensor) -> Tensor:
        """(R, B, C) the rows' products with weights (R, 1 + width, C); records lie last in memory."""
        columns = weight.transpose(1, 2)
        constant, turned = columns[..., :1], columns[..., 1:]
        if len(self.features) == 1:
            products = torch.matmul(turned.flatten(0, 1), self.features[0].T).unflatten(0, turned.shape[:2])
        else:
            products = torch.bmm(turned, self.features.transpose(1, 2))
        centred: Tensor = products.sub_(torch.bmm(turned, self.centre.unsqueeze(2))).div_(self.divisors)
        return centred.add_(constant).mul_(_HALF).transpose(1, 2)

    def outer(self, slopes: Tensor) -> Tensor:
        """(R, (1 + width) · C) the sum over records of their rows times their slopes, (R, B, C)."""
        columns = slopes.transpose(1, 2)
        scaled = columns / self.divisors
        if len(self.features) == 1:
            sums = torch.matmul(scaled.flatten(0, 1), self.features[0]).unflatten(0, scaled.shape[:2])
        else:
            sums = torch.bmm(scaled, self.features)
        centred = sums - scaled.sum(2, keepdim=True) * self.centre.unsqueeze(1)
        together = torch.cat((columns.sum(2, keepdim=True), centred), dim=2)
        return together.mul_(_HALF).transpose(1, 2).flatten(1)
