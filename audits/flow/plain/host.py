"""Draws of NumPy and of Python's `random`, of which torch shows no operation: whoever listens is told of each."""

from __future__ import annotations

import random
import secrets
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

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
from vflpriv.audits.flow.plain.generators import GENERATOR, LEGACY, Origin, Seeds, generator_of

__all__ = ["HostLaw", "Listener", "host_draws"]


@dataclass(frozen=True)
class HostLaw:
    """Shift plus scale times a standard draw of a family."""

    family: Family
    shift: Any = 0.0
    scale: Any = 1.0
    rate: float = 0.0
    """Of whole numbers: the logarithm by which each is less likely than the one before."""


Listener = Callable[[Any, str, HostLaw, Origin], Any]
"""Is told of values, what drew them, their law and origin; gives what the program gets in their place."""


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
_INHERITED = object()
_METHOD = object()
_STANDARD = sysconfig.get_paths()["stdlib"]


def _by_a_library() -> bool:
    """Whether a library draws for itself, such as names for symbols when it is imported."""
    name = sys._getframe(2).f_code.co_filename
    return "site-packages" in name or name.startswith(_STANDARD)


def _by_random_itself() -> bool:
    """Whether Python's module draws for a function of its own, such as a choice of several."""
    return sys._getframe(2).f_code.co_filename == random.__file__


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


def _plain(value: Any) -> Any:
    """A number or an array without what a tracer has put on it."""
    if isinstance(value, np.ndarray):
        return np.asarray(value)
    if type(value) in (float, int, bool) or not isinstance(value, float | int):
        return value
    return float.__add__(value, 0.0) if isinstance(value, float) else int.__add__(value, 0)


class _Told:
    """Tells a listener of outer draws: one of them may draw others itself."""

    def __init__(self, listener: Listener) -> None:
        self._listener, self._inside = listener, False
        self.seeds = Seeds()

    def wrapped(self, draw: Callable[..., Any], name: str, law: Callable[..., HostLaw], *, of: Any = None) -> Any:
        """The same function, which draws from a generator; without one it is a method, whose first argument that is."""
        bound = 1 if of is _METHOD else 0

        def drawing(*args: Any, **kwargs: Any) -> Any:
            if self._inside or kwargs.get("out") is not None or (name == "random" and _by_random_itself()):
                return draw(*args, **kwargs)
            origin = self.seeds.origin(args[0] if bound else of) if law is not _unlike else Origin()
            self._inside = True
            try:
                values = draw(*map(_plain, args), **{key: _plain(value) for key, value in kwargs.items()})
            finally:
                self._inside = False
            if law is _unlike and (_by_a_library() or not _is_no_batch(values, name)):
                return values
            return self._listener(values, name, law(*args[bound:], **kwargs), origin)

        return drawing

    def subclass(self, parent: type, laws: dict[str, Callable[..., HostLaw]], **more: Callable[..., Any]) -> Any:
        """A generator whose draws are told of, with more methods."""
        methods = {
            name: self.wrapped(getattr(parent, name), name, law, of=_METHOD)
            for name, law in laws.items()
            if hasattr(parent, name)
        }
        # A generator that was made before is an instance, too.
        kind = type("Kind", (type,), {"__instancecheck__": lambda _, value: isinstance(value, parent)})
        return kind(f"Followed{parent.__name__}", (parent,), methods | more)


@contextmanager
def host_draws(listener: Listener) -> Iterator[None]:
    """Tell a listener of every draw of NumPy's and Python's generators whose law is known here."""
    told = _Told(listener)
    default_rng = np.random.default_rng
    generator = told.subclass(GENERATOR, _GENERATOR)
    legacy = told.subclass(LEGACY, _LEGACY, **told.seeds.noted(LEGACY))

    def made(seed: Any = None) -> Any:
        return generator(default_rng(seed).bit_generator)

    # Not `mock.patch`: its hundred patches take longer than a short program. Other libraries draw from the global
    # generator itself.
    bits = generator_of(np.random)._bit_generator
    own: list[tuple[Any, str, Any]] = [
        (np.random, "default_rng", made),
        (np.random, "Generator", generator),
        (np.random, "RandomState", legacy),
        (np.random.mtrand, "_rand", legacy(bits)),
    ]
    for module, laws in ((np.random, _LEGACY), (random, _PYTHON), (secrets, _SECRETS)):
        wraps = partial(told.wrapped, of=generator_of(module))
        own += [(module, name, wraps(getattr(module, name), name, law)) for name, law in laws.items()]
    for kind in (random.Random, random.SystemRandom):
        names = [name for name in _PYTHON if name in kind.__dict__ or name == "random"]
        own += [(kind, name, told.wrapped(getattr(kind, name), name, _PYTHON[name], of=_METHOD)) for name in names]
    with told.seeds.kept(), _put(own):
        yield


@contextmanager
def _put(values: Sequence[tuple[Any, str, Any]]) -> Iterator[None]:
    """Give these owners other attributes, and then their own again."""
    before = [(owner, name, owner.__dict__.get(name, _INHERITED)) for owner, name, _ in values]
    try:
        for owner, name, value in values:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            if value is _INHERITED:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
