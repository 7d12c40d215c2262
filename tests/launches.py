"""Counts what an accelerator would launch, on the `meta` device, and refuses copies from the host."""

from __future__ import annotations

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["Launches", "NoCopies"]


class Launches(TorchDispatchMode):
    """Counts operations, and refuses any on a tensor that is not on the device."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        result = function(*arguments, **(keywords or {}))
        tensors = [x for x in tree_leaves((arguments, keywords, result)) if isinstance(x, torch.Tensor)]
        assert {tensor.device.type for tensor in tensors} <= {"meta"}, f"{function} mixes devices"
        self.count += not any(
            schema.alias_info and not schema.alias_info.is_write for schema in function._schema.returns
        )
        return result


class NoCopies(TorchFunctionMode):
    """Refuses what brings a number of the host to a device, for which the device waits."""

    def __torch_function__(self, function, types, arguments=(), keywords=None):
        assert function not in (torch.as_tensor, torch.tensor, torch.from_numpy), f"{function} copies"
        return function(*arguments, **(keywords or {}))
