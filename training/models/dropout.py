"""Dropout masks from a named stream: the model stays a function of its parameters, inputs and masks."""

from __future__ import annotations

from torch import Tensor

from vflpriv.common.random import Stream
from vflpriv.training.models.heads import DropoutMlp, mask_name

__all__ = ["dropout_masks"]


def dropout_masks(model: DropoutMlp, rate: float, stream: Stream, records: int, *path: int) -> dict[str, Tensor]:
    """One (R, records, width) mask a hidden layer, 0 with probability `rate` and else 1/(1 - rate), by its name.

    Put beside the parameters for a training step, the same ones for both sides of a finite difference; without masks
    `apply` is the function for evaluation. `path` are at most two numbers never used twice on this stream, such as the
    round; the layer is the third.
    """
    if not 0 <= rate < 1:
        raise ValueError(f"Expected rate={rate} in [0, 1).")
    masks = {}
    for layer, width in enumerate(model.widths[1:-1]):
        uniform = stream.uniform(records * width, *(*path, 0, 0)[:2], layer)
        kept = (uniform > rate).to(uniform.dtype).div_(1 - rate)
        masks[mask_name(layer)] = kept.reshape(-1, records, width)
    return masks
