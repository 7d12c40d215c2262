"""Names and modules that are loaded when they are first used, so that importing what mentions them costs nothing.

Engines, models and data import `torch` from here: what they declare (settings, ledgers, claims) is then read without
the seconds that loading torch takes, and what they compute is not slowed down, since at its first use the module itself
takes the place of its stand-in. Loading `scipy.stats` takes half as long, and few commands and workers need it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

__all__ = ["gradients_along", "lazy_module", "lazy_names", "no_grad", "stats", "torch"]

P = ParamSpec("P")
T = TypeVar("T")


class _StandIn(ModuleType):
    """Takes the place of a module until an attribute of it is read."""

    def __getattr__(self, name: str) -> Any:
        loaded, bound = import_module(self.__name__), self.__name__.rpartition(".")[2]
        for module in list(sys.modules.values()):
            if getattr(module, "__dict__", {}).get(bound) is self:
                setattr(module, bound, loaded)
        return getattr(loaded, name)


def lazy_module(name: str) -> Any:
    """A module that is imported when one of its attributes is first read; the module itself if it is loaded already.

    It has to be bound, at the top level of a module, to the last part of its name. There and wherever it was imported
    from there, the loaded module then replaces it.

    >>> lazy_module("json").dumps([1])
    '[1]'
    """
    return sys.modules.get(name) or _StandIn(name)


if TYPE_CHECKING:
    import torch as torch
    from scipy import stats as stats
    from torch import Tensor
else:
    torch = lazy_module("torch")
    stats = lazy_module("scipy.stats")


def no_grad(function: Callable[P, T]) -> Callable[P, T]:
    """A decorator: the function runs under `torch.no_grad()`, which as a decorator would load torch at once."""

    @wraps(function)
    def without_gradients(*args: P.args, **kwargs: P.kwargs) -> T:
        if not torch.is_grad_enabled():
            return function(*args, **kwargs)
        with torch.no_grad():
            return function(*args, **kwargs)

    return without_gradients


def gradients_along(outputs: Tensor, inputs: Sequence[Tensor], slope: Tensor | float) -> tuple[Tensor, ...]:
    """The gradients by these inputs of a loss of which the slope by the outputs is known.

    `torch.autograd.grad` takes the slope, too, but then loads a computer algebra system, half a second of it.
    """
    with torch.enable_grad():
        return torch.autograd.grad((outputs * slope).sum(), inputs)


def lazy_names(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package whose names lie in these modules.

    >>> get, names = lazy_names("json", {"sqrt": "math"})
    >>> get("sqrt")(4.0), {"sqrt", "loads"} <= set(names())
    (2.0, True)
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    def names() -> list[str]:
        return sorted({*vars(import_module(package)), *modules})

    return get, names
