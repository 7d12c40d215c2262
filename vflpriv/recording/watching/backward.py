"""Backward passes: who wants to know of one is told before it begins, whoever starts it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

__all__ = ["before_backward", "in_backward"]

_LISTENERS: list[Callable[[Any], None]] = []
_STARTS = ("backward", "grad")
"""The functions of torch.autograd that start a pass; `Tensor.backward` calls the first."""


def in_backward() -> bool:
    """Whether a backward pass computes now, as when a checkpointed module is called once more."""
    import torch

    return bool(torch._C._current_graph_task_id() != -1)


def before_backward(listener: Callable[[Any], None]) -> Callable[[], None]:
    """From now on `listener` is told of the tensors that a pass begins at; returns what ends that."""
    from torch import autograd

    if not _LISTENERS:
        own = {name: _telling(getattr(autograd, name)) for name in _STARTS}
        for name, function in own.items():
            setattr(autograd, name, function)
    _LISTENERS.append(listener)

    def remove() -> None:
        if listener in _LISTENERS:
            _LISTENERS.remove(listener)
        for name in _STARTS if not _LISTENERS else ():
            function = getattr(autograd, name)
            if hasattr(function, "of_vflpriv"):  # nobody else put a function of theirs around it
                setattr(autograd, name, function.of_vflpriv)

    return remove


def _telling(start: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(start)
    def telling(*args: Any, **kwargs: Any) -> Any:
        if _LISTENERS and not in_backward():
            roots = args[0] if args else kwargs.get("tensors", kwargs.get("outputs"))
            for listener in _LISTENERS:
                listener(roots)
        return start(*args, **kwargs)

    telling.of_vflpriv = start  # type: ignore[attr-defined]
    return telling
