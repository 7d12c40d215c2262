"""Results of slow functions of fixed inputs, kept while the process lives and memory allows."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING

from vflpriv.common.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Remembered"]

_LEAST = 1 << 20
"""Bytes of an input below which the function is called again."""


class Remembered:
    """Results by the bytes of their inputs: trainings on the same records compute them once.

    At most `most` bytes of results are kept, those that were asked for last. Nobody may change a result in place. Only
    inputs on the CPU are looked up: other devices would have to be waited for.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[bytes, Tensor] = OrderedDict()
        # A second thread that asks for the same result waits for it.
        self._lock = Lock()

    def __call__(self, function: Callable[[Tensor], Tensor], inputs: Tensor, *facts: object) -> Tensor:
        """What the function makes of these inputs; `facts` tell it from other functions."""
        plain = type(inputs) is torch.Tensor and inputs.device.type == "cpu" and not inputs.requires_grad
        if not plain or inputs.numel() * inputs.element_size() < _LEAST:
            return function(inputs)
        inputs = inputs.contiguous()
        key = hashlib.sha256(f"{facts} {inputs.dtype} {tuple(inputs.shape)}".encode())
        key.update(inputs.numpy().data.cast("B"))
        with self._lock:
            if key.digest() not in self._kept:
                self._keep(key.digest(), function(inputs))
            self._kept.move_to_end(key.digest())
            return self._kept[key.digest()]

    def _keep(self, key: bytes, result: Tensor) -> None:
        """Make room, and keep the result, however large it is."""
        self._kept[key] = result
        while len(self._kept) > 1 and sum(r.numel() * r.element_size() for r in self._kept.values()) > self._most:
            self._kept.popitem(last=False)
