"""The registry: engines, attacks, audits and accountants, found by looking into their folders and at entry points."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from vflpriv.errors import InputError

__all__ = ["KINDS", "available", "broken", "find", "register"]

KINDS = {
    "engine": "vflpriv.training.engines",
    "attack": "vflpriv.attacks",
    "audit": "vflpriv.audits",
    "accountant": "vflpriv.accountants",
}
_FOLDERS = frozenset(package.split(".")[1] for package in KINDS.values())

_registered: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
_broken: dict[str, dict[str, str]] = {kind: {} for kind in KINDS}
_loaded: set[str] = set()

T = TypeVar("T")


def register(kind: str) -> Callable[[T], T]:
    """Register a class with `name` and `summary` attributes; used as a decorator.

    A class found through a bare folder name (`attacks` for `vflpriv.attacks`) is a second copy and is refused.
    """

    def add(item: T) -> T:
        name, module = str(getattr(item, "name")), str(getattr(item, "__module__", ""))  # noqa: B009
        if module.split(".")[0] in _FOLDERS:
            raise ImportError(f"Expected {name!r} to be imported as vflpriv.{module}, not as {module}.")
        known = _registered[kind].get(name)
        if known is not None and known.__module__ != module:
            raise ImportError(f"Expected one {kind} named {name!r}, found it in {known.__module__} and {module}.")
        _registered[kind][name] = item
        return item

    return add


def available(kind: str) -> dict[str, Any]:
    """All registered items of a kind by name, sorted; imports their modules on first use."""
    if kind not in _loaded:
        package = importlib.import_module(KINDS[kind])
        for module in pkgutil.iter_modules(package.__path__):
            if not module.name.startswith("_"):
                importlib.import_module(f"{package.__name__}.{module.name}")
        for entry in entry_points(group=f"vflpriv.{kind}s"):
            _load(kind, entry)
        _loaded.add(kind)
    return dict(sorted(_registered[kind].items()))


def broken(kind: str) -> dict[str, str]:
    """The plug-ins of a kind that cannot be used, by their entry point's name, and why."""
    available(kind)
    return dict(sorted(_broken[kind].items()))


def _load(kind: str, entry: EntryPoint) -> None:
    """Register what an entry point names. A plug-in that fails spoils nothing but itself: `find` says why."""
    package = entry.dist.name if entry.dist else "a package"
    try:
        item = entry.load()
        missing = [word for word in ("name", "summary") if not isinstance(getattr(item, word, None), str)]
        if missing:
            raise ImportError(f"{entry.value} has no {missing[0]}")
        register(kind)(item)
    except Exception as error:  # noqa: BLE001 (whatever a stranger's module raises when it is imported)
        why = " ".join(f"{type(error).__name__}: {error}".split())
        _broken[kind][entry.name] = f"{entry.value} of {package} cannot be loaded ({why})"


def find(kind: str, name: str) -> Any:
    """The item with this name, or an error that lists what there is."""
    items = available(kind)
    if name not in items and name in _broken[kind]:
        raise InputError(kind, name, f"a plug-in that works: {_broken[kind][name]}")
    if name not in items:
        raise InputError(kind, name, f"one of {', '.join(items)}")
    return items[name]
