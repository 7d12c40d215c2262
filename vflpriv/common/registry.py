"""The registry of what one file or one plug-in adds: engines, defences, attacks, audits, accountants, laws, formats.

An item is found in the folder of its kind (`KINDS`) or through an entry point of the group `vflpriv.engines`,
`vflpriv.defences`, `vflpriv.attacks`, `vflpriv.audits`, `vflpriv.accountants`, `vflpriv.laws` or `vflpriv.formats`.
Layers that may not import each other meet here: a result in `report/` finds the format that writes it, which lies in
`render/`, by name.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Any, TypeVar

from vflpriv.errors import InputError

__all__ = ["KINDS", "available", "broken", "find", "names", "register"]

KINDS: dict[str, tuple[str, ...]] = {
    "engine": ("vflpriv.training.engines",),
    "defence": ("vflpriv.training.defences",),
    "attack": ("vflpriv.attacks",),
    "audit": ("vflpriv.audits",),
    "accountant": ("vflpriv.accountants",),
    "law": ("vflpriv.laws",),
    "format": ("vflpriv.render.formats",),
    "display": ("vflpriv.render.html.notebook",),
    "document": (
        "vflpriv.render.results",
        "vflpriv.experiments.frontier.page",
        "vflpriv.experiments.reproduce.page",
    ),
}
"""By kind, the packages whose modules register the items, or the modules that register them."""
_FOLDERS = frozenset(package.split(".")[1] for places in KINDS.values() for package in places)

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
        for module in _modules(kind):
            importlib.import_module(module)
        for entry in _plugins(kind):
            _load(kind, entry)
        _loaded.add(kind)
    return dict(sorted(_registered[kind].items()))


def names(kind: str) -> list[str]:
    """The sorted names of a kind whose modules are named after the one item in each.

    Nothing is imported unless there are plug-ins: a help text that lists the output formats waits for no renderer.
    """
    return list(available(kind)) if _plugins(kind) else sorted(name.rpartition(".")[2] for name in _modules(kind))


def _modules(kind: str) -> list[str]:
    """The dotted names of the modules in which the items of a kind are registered."""
    return [name for place in KINDS[kind] for name in _modules_in(place)]


def _modules_in(place: str) -> list[str]:
    """The module of this name, or the modules of this folder and of its sub-folders.

    Modules and folders whose name starts with `_` hold shared code and are left out.
    """
    package = importlib.import_module(place)
    if not hasattr(package, "__path__"):
        return [place]
    modules = pkgutil.walk_packages(package.__path__, f"{place}.")
    return [module.name for module in modules if not module.ispkg and "._" not in module.name]


def broken(kind: str) -> dict[str, str]:
    """The plug-ins of a kind that cannot be loaded, by the name of their entry point, each with the reason."""
    available(kind)
    return dict(sorted(_broken[kind].items()))


def _plugins(kind: str) -> EntryPoints:
    return entry_points(group=f"vflpriv.{kind}s")


def _load(kind: str, entry: EntryPoint) -> None:
    """Register what an entry point names. A plug-in that fails affects no other: `find` reports the reason."""
    package = entry.dist.name if entry.dist else "a package"
    try:
        item = entry.load()
        missing = [field for field in ("name", "summary") if not isinstance(getattr(item, field, None), str)]
        if missing:
            raise ImportError(f"{entry.value} has no {missing[0]}")
        register(kind)(item)
    except Exception as error:  # noqa: BLE001 (whatever a stranger's module raises when it is imported)
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        _broken[kind][entry.name] = f"{entry.value} of {package} cannot be loaded ({reason})"


def find(kind: str, name: str) -> Any:
    """The item with this name, or an error that lists the names there are."""
    items = available(kind)
    if name not in items and name in _broken[kind]:
        raise InputError(kind, name, f"a plug-in that works: {_broken[kind][name]}")
    if name not in items:
        raise InputError(kind, name, f"one of {', '.join(items)}")
    return items[name]
