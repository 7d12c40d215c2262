"""Draws of NumPy and of Python's `random`, of which torch shows no operation: whoever listens is told of each."""

from __future__ import annotations

import random
import secrets
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np

from vflpriv.audits.flow.draws.families import (
    DISCRETE,
    EXPONENTIAL,
    GEOMETRIC,
    GUMBEL,
    LAPLACE,
    NORMAL,
    UNIFORM,
    Family,
)

__all__ = ["HostLaw", "Listener", "host_draws"]


@dataclass(frozen=True)
class HostLaw:
    """Shift plus scale times a standard draw of a family."""

    family: Family
    shift: Any = 0.0
    scale: Any = 1.0
    rate: float = 0.0
    """Of whole numbers: the logarithm by which each is less likely than the one before."""


Listener = Callable[[Any, str, HostLaw], Any]
"""Is told of values, the name of what drew them, and their law; gives what the program gets in their place."""


def _located(family: Family) -> Callable[..., HostLaw]:
    def law(loc: Any = 0.0, scale: Any = 1.0, *_: Any, **__: Any) -> HostLaw:
        return HostLaw(family, loc, scale)

    return law


def _standard(family: Family) -> Callable[..., HostLaw]:
    def law(*_: Any, **__: Any) -> HostLaw:
        return HostLaw(family)

    return law


def _uniform(low: Any = 0.0, high: Any = 1.0, *_: Any, **__: Any) -> HostLaw:
    return HostLaw(UNIFORM, low, np.asarray(high) - np.asarray(low))


def _scaled(scale: Any = 1.0, *_: Any, **__: Any) -> HostLaw:
    return HostLaw(EXPONENTIAL, 0.0, scale)


def _named(mu: Any = 0.0, sigma: Any = 1.0) -> HostLaw:
    return HostLaw(NORMAL, mu, sigma)


def _rated(lambd: Any = 1.0) -> HostLaw:
    return HostLaw(EXPONENTIAL, 0.0, 1 / lambd)


def _geometric(p: Any, *_: Any, **__: Any) -> HostLaw:
    return HostLaw(GEOMETRIC, 1.0, 1.0, float(-np.log1p(-np.asarray(p, dtype=np.float64).max())))


def _unlike(*_: Any, **__: Any) -> HostLaw:
    """Of draws whose law is not followed: it is known that they are draws."""
    return HostLaw(DISCRETE)


_PLAIN = 1 << 62
_STANDARD = sysconfig.get_paths()["stdlib"]


def _by_a_library() -> bool:
    """Whether a library draws for itself, such as names for symbols when it is imported."""
    name = sys._getframe(2).f_code.co_filename
    return "site-packages" in name or name.startswith(_STANDARD)


def _is_no_batch(values: Any, name: str) -> bool:
    """Whether a draw is a single number, on which a branch may depend, or several that are no ids of records."""
    if isinstance(values, np.ndarray):
        return name in ("binomial", "poisson") or values.dtype.kind == "f"
    number = isinstance(values, float | int | np.number) and not isinstance(values, bool)
    return number and abs(float(values)) < _PLAIN


_METHODS: dict[str, Callable[..., HostLaw]] = {
    "normal": _located(NORMAL),
    "standard_normal": _standard(NORMAL),
    "laplace": _located(LAPLACE),
    "gumbel": _located(GUMBEL),
    "uniform": _uniform,
    "random": _standard(UNIFORM),
    "exponential": _scaled,
    "standard_exponential": _standard(EXPONENTIAL),
    "geometric": _geometric,
}
_METHODS |= dict.fromkeys(("choice", "binomial", "poisson"), _unlike)
_GENERATOR = _METHODS | {"integers": _unlike}
_LEGACY = _METHODS | {
    "randn": _standard(NORMAL),
    "rand": _standard(UNIFORM),
    "random_sample": _standard(UNIFORM),
    "randint": _unlike,
}
_PYTHON: dict[str, Callable[..., HostLaw]] = {
    "gauss": _named,
    "normalvariate": _named,
    "uniform": _uniform,
    "expovariate": _rated,
    "random": _standard(UNIFORM),
    **dict.fromkeys(("randint", "randrange", "getrandbits", "choice"), _unlike),
}
_SECRETS = dict.fromkeys(("randbelow", "randbits", "choice"), _unlike)


class _Told:
    """Tells a listener of outer draws: one of them may draw others itself."""

    def __init__(self, listener: Listener) -> None:
        self._listener, self._inside = listener, False

    def wrapped(self, draw: Callable[..., Any], name: str, law: Callable[..., HostLaw], *, bound: int) -> Any:
        """The same function, with the number of arguments before those of the law."""

        def drawing(*args: Any, **kwargs: Any) -> Any:
            if self._inside or kwargs.get("out") is not None:
                return draw(*args, **kwargs)
            self._inside = True
            try:
                values = draw(*args, **kwargs)
            finally:
                self._inside = False
            if law is _unlike and (_by_a_library() or not _is_no_batch(values, name)):
                return values
            return self._listener(values, name, law(*args[bound:], **kwargs))

        return drawing

    def subclass(self, parent: type, laws: dict[str, Callable[..., HostLaw]]) -> type:
        """A generator whose draws are told of."""
        methods = {
            name: self.wrapped(getattr(parent, name), name, law, bound=1)
            for name, law in laws.items()
            if hasattr(parent, name)
        }
        return type(f"Followed{parent.__name__}", (parent,), methods)


@contextmanager
def host_draws(listener: Listener) -> Iterator[None]:
    """Tell a listener of every draw of NumPy's and Python's generators whose law is known here."""
    told = _Told(listener)
    default_rng = np.random.default_rng
    generator = told.subclass(np.random.Generator, _GENERATOR)

    def made(seed: Any = None) -> Any:
        return generator(default_rng(seed).bit_generator)

    with ExitStack() as stack:
        stack.enter_context(patch.object(np.random, "default_rng", made))
        stack.enter_context(patch.object(np.random, "Generator", generator))
        stack.enter_context(patch.object(np.random, "RandomState", told.subclass(np.random.RandomState, _LEGACY)))
        for module, laws in ((np.random, _LEGACY), (random, _PYTHON), (secrets, _SECRETS)):
            for name, law in laws.items():
                wrapped = told.wrapped(getattr(module, name), name, law, bound=0)
                stack.enter_context(patch.object(module, name, wrapped))
        for name, law in _PYTHON.items():
            for kind in (random.Random, random.SystemRandom):
                # `random` itself is a method of the parent class, which is not written in Python.
                if name in kind.__dict__:
                    wrapped = told.wrapped(kind.__dict__[name], name, law, bound=1)
                    stack.enter_context(patch.object(kind, name, wrapped))
        yield
