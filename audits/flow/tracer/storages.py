"""What is known of each storage: the private values that reach it, what it holds in the other world, its draws.

Tensors that share a storage share this knowledge, so that views, in-place operations and `out=` come out right by
themselves. Storages are held weakly: what a program frees is forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, UntypedStorage
from torch.multiprocessing.reductions import StorageWeakRef

from vflpriv.audits.flow.draws.recipes import Coin, Recipe
from vflpriv.audits.flow.draws.rows import Rows

__all__ = ["NOTHING", "Picked", "State", "Table", "elements", "key", "whole"]

NOTHING: frozenset[int] = frozenset()


def key(tensor: Tensor) -> int:
    """What identifies the storage of a tensor."""
    place: int = tensor.untyped_storage()._cdata
    return place


def whole(tensor: Tensor) -> bool:
    """Whether a tensor is its storage, element for element, in order."""
    return tensor.is_contiguous() and tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()


def elements(tensor: Tensor) -> Tensor:
    """The place of each element of a tensor in its storage, flat."""
    count = tensor.untyped_storage().nbytes() // tensor.element_size()
    places = torch.arange(count)
    if whole(tensor):
        return places
    return places.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset()).reshape(-1)


@dataclass(frozen=True, eq=False)
class Picked:
    """A storage holds what a mask, in this version of its memory, picks of a tensor; of none, the places themselves."""

    mask: Tensor
    version: int
    everything: Tensor | None = None


Place = tuple[int, torch.Size, tuple[int, ...]]


def place_of(tensor: Tensor) -> Place:
    """Which part of its storage a tensor is."""
    return int(tensor.storage_offset()), tensor.shape, tensor.stride()


class State:
    """One storage. Draws are known as rows, a recipe or a coin, or only as `opaque`: the columns that it depends on."""

    __slots__ = (
        "coin",
        "dtype",
        "masked",
        "met",
        "opaque",
        "picked",
        "place",
        "recipe",
        "ref",
        "rows",
        "seals",
        "shadow",
        "taint",
        "variants",
        "where",
    )

    def __init__(self, tensor: Tensor) -> None:
        self.ref = StorageWeakRef(tensor.untyped_storage())
        self.taint: frozenset[int] = NOTHING
        """The private values that reach it other than through a seal."""
        self.seals: frozenset[int] = NOTHING
        """The seals whose values reach it."""
        self.shadow: UntypedStorage | None = None
        self.variants: dict[Place, Tensor] = {}
        """What its views are in the other world, where they have another size there."""
        self.rows: Rows | None = None
        self.dtype = tensor.dtype
        """Of the numbers that rows are the noise on: bits may be looked at as other numbers."""
        self.recipe: Recipe | None = None
        self.coin: Coin | None = None
        self.opaque: Tensor | None = None
        self.picked: Picked | None = None
        self.place = False
        """Whether it holds places that an operation looked up, such as that of the largest entry."""
        self.masked = False
        """Whether noise lies over every element that a private value reaches."""
        self.where = ""
        """The line of the program that put the noise there."""
        self.met: frozenset[int] = NOTHING
        """The meetings of private values with noise that it was made of, and that no seal shows yet."""

    @property
    def random(self) -> bool:
        """Whether it carries draws."""
        return self.rows is not None or self.recipe is not None or self.coin is not None or self.opaque is not None

    @property
    def raw(self) -> bool:
        """Whether a private value reaches it that noise does not hide."""
        return bool(self.taint) and not self.masked

    def forget_draws(self) -> None:
        self.rows = self.recipe = self.coin = self.opaque = self.picked = None
        self.masked, self.where, self.met, self.place = False, "", NOTHING, False

    def take(self, other: State) -> None:
        """It is a copy of a storage, byte by byte."""
        self.taint, self.seals, self.masked = other.taint, other.seals, other.masked
        self.where, self.met, self.dtype = other.where, other.met, other.dtype
        self.rows, self.recipe, self.coin, self.opaque = other.rows, other.recipe, other.coin, other.opaque
        self.shadow = None if other.shadow is None else other.shadow.clone()
        self.variants = dict(other.variants)

    def release(self, seal: int) -> None:
        """From here on its value is public: a seal shows it."""
        self.forget_draws()
        self.taint, self.shadow, self.seals = NOTHING, None, self.seals | {seal}
        self.variants = {}


class Table:
    """The states of all storages that are alive."""

    def __init__(self) -> None:
        self._states: dict[int, State] = {}
        self._asked = 0
        self.sizes_differ = False
        """Whether there was any tensor that has another size in the other world."""

    @property
    def known(self) -> dict[int, State]:
        """States by the key of their storage."""
        return self._states

    def of(self, tensor: Tensor) -> State | None:
        """What is known of a tensor's storage; None where nothing private and no draw reaches it."""
        return self._states.get(tensor.untyped_storage()._cdata)

    def differ_in_size(self, tensor: Tensor, other: Tensor) -> None:
        """In the other world, a tensor is this one, of another size."""
        self.enter(tensor).variants[place_of(tensor)] = other
        self.sizes_differ = True

    def enter(self, tensor: Tensor) -> State:
        """The state of a tensor's storage, a new one where there was none."""
        self._asked += 1
        if self._asked % 2048 == 0:
            self._states = {place: state for place, state in self._states.items() if not state.ref.expired()}
        place = tensor.untyped_storage()._cdata
        state = self._states.get(place)
        if state is None:
            state = self._states[place] = State(tensor)
        return state

    def drop(self, tensor: Tensor) -> None:
        """Forget a storage that was overwritten with public values."""
        self._states.pop(key(tensor), None)

    def other(self, tensor: Tensor) -> Tensor:
        """A tensor in the neighbouring world: itself where it does not differ."""
        state = self._states.get(tensor.untyped_storage()._cdata)
        if state is not None and state.variants:
            return state.variants.get(place_of(tensor), tensor)
        if state is None or state.shadow is None:
            return tensor
        view = torch.empty(0, dtype=tensor.dtype)
        return view.set_(state.shadow, tensor.storage_offset(), tensor.size(), tensor.stride())
