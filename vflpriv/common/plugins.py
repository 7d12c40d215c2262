"""Objects that other packages add to a table by entry points; one that cannot be loaded harms nothing but itself."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, Protocol, TypeVar

__all__ = ["Plugins", "load_plugins"]


class _Named(Protocol):
    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=_Named)


@dataclass(frozen=True)
class Plugins(Generic[T]):
    """What the entry points of one group name.

    `items` maps each object's own name to it, `broken` the name of an entry point to the reason why it is not used.
    """

    items: Mapping[str, T]
    broken: Mapping[str, str]


def load_plugins(group: str, item_type: type[T], *, taken: Collection[str]) -> Plugins[T]:
    """Load all entry points of a group, such as `vflpriv.datasets`, whose objects must be of `item_type`.

    Names that are `taken` cannot be used again.
    """
    items: dict[str, T] = {}
    broken: dict[str, str] = {}
    for entry in entry_points(group=group):
        package = entry.dist.name if entry.dist else "a package"
        try:
            item = _load(entry, item_type)
            if item.name in taken or item.name in items:
                raise ImportError(f"the name {item.name!r} is taken")
        except Exception as error:  # noqa: BLE001 (a plug-in's module may raise anything when it is imported)
            why = " ".join(f"{type(error).__name__}: {error}".split())
            broken[entry.name] = f"{entry.value} of {package} cannot be loaded ({why})"
        else:
            items[item.name] = item
    return Plugins(items, broken)


def _load(entry: EntryPoint, item_type: type[T]) -> T:
    item = entry.load()
    if not isinstance(item, item_type):
        raise TypeError(f"expected a {item_type.__name__}, found a {type(item).__name__}")
    return item
