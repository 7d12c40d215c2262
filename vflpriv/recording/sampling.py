"""Which records' rows a recording keeps, where it does not keep all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vflpriv.common.seeds import host_generator
from vflpriv.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Sample", "sample"]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """So many records, drawn at random with this seed before the training, or the ones that are named."""

    records: int
    seed: int = 0
    named: tuple[int, ...] | None = None

    def mask(self, count: int, always: Any = ()) -> Tensor:
        """(count,) whether each record is kept; those in `always` are, in addition to the sample."""
        import torch

        if self.named is None:
            drawn = host_generator(self.seed, "auxiliary", self.records).permutation(count)[: self.records].tolist()
        else:
            drawn = list(self.named)
        mask = torch.zeros(count, dtype=torch.bool)
        mask[torch.as_tensor([*drawn, *always], dtype=torch.int64)] = True
        return mask


def sample(*, records: int, seed: int = 0) -> Sample:
    """Keep the rows of so many records, drawn at random, and the ids of all: `record(..., keep=sample(records=2000))`.

    Budgets count every record's participations, so that they stay exact; attacks are made on the sample.
    """
    if records < 1:
        raise InputError("sample: records", records, "a whole number >= 1")
    return Sample(records=records, seed=seed)
