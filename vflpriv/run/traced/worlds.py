"""The two worlds of a script: one record's label, or one record's row at one party, is another one.

A script hands its labels over once, by `watch` or `wire.labels`, and the rows of a party are what its module is given.
These are private from then on, in all records; the worlds differ in one.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from vflpriv.audits.flow.plain.wire import FlowWire
from vflpriv.core.units import Unit
from vflpriv.run.traced.copies import containers, fill, rebind
from vflpriv.run.traced.wire import TracingWire

__all__ = ["ScriptWire", "ScriptWorlds", "alike", "array", "tensor_of"]


@dataclass(frozen=True, kw_only=True, eq=False)
class ScriptWorlds:
    """What differs between the two worlds of a script."""

    unit: Unit
    record: int
    device: int | None = None
    """Whose row of the record differs; nobody's if it is the label."""
    row: NDArray[Any] | None = None
    """The row in the other world."""
    classes: int | None = None

    @property
    def what(self) -> str:
        """In what the worlds differ, as a phrase."""
        if self.unit is Unit.LABEL:
            return f"another label of record {self.record}"
        return f"another row of record {self.record} at device {self.device}"

    def other_labels(self, labels: Tensor, place: int) -> Tensor:
        """Labels, or one row for each, with another one in one place."""
        other = labels.clone()
        if labels.dim() > 1 and labels[0].numel() > 1:
            other[place] = labels[place].roll(1, 0)
        elif self.classes is None:
            spread = labels.double().std() if labels.numel() > 1 else torch.tensor(1.0)
            other[place] = (labels[place].double() + spread.clamp(min=1e-6)).to(labels.dtype)
        else:
            other[place] = ((labels[place].long() + 1) % self.classes).to(labels.dtype)
        return other


class ScriptWire(TracingWire):
    """The wire of a script: makes what it hands over private, and one record another one in the other world."""

    def __init__(self, wire: FlowWire, *, worlds: ScriptWorlds | None, rounds: int | None, **head: Any) -> None:
        super().__init__(wire, holder=_hold, rounds=rounds, **head)
        self.worlds = worlds
        # Arrays, since what is private is found among all tensors.
        self.known_labels: NDArray[Any] | None = None
        """The labels in world 0."""
        self.rows: dict[int, tuple[NDArray[Any], NDArray[np.int64]]] = {}
        """By device the first batch that its module was given, and its records."""
        self.handed: set[int] = set()
        """Devices whose features were handed over whole."""

    def watch(self, bottoms: Sequence[nn.Module], **options: Any) -> None:
        super().watch(bottoms, **options)
        for m, bottom in enumerate(bottoms):
            bottom.register_forward_pre_hook(lambda _, given, m=m: self._given(m, given))

    def arrived(self, ids: Tensor, batch: Any) -> Any:
        """A loader's batch; labels in it are private, whatever the data set made them of."""
        return tree_map(lambda value: self._labelled(ids, value), super().arrived(ids, batch))

    def _labelled(self, ids: Tensor, value: Any) -> Any:
        worlds, labels = self.worlds, self.known_labels
        if worlds is None or worlds.unit is not Unit.LABEL or labels is None or not isinstance(value, Tensor):
            return value
        with self.wire.unseen():
            own = torch.from_numpy(labels[ids.numpy()])
            place = (ids == worlds.record).nonzero()[:, 0]
            other = worlds.other_labels(own, int(place[0])) if len(place) else own
            alike = _same(value, own) or _same(value, other)
            changed = other.reshape(value.shape).to(value.dtype) if alike else None
        if changed is not None:
            self.wire.hold(value, changed)
        return value

    def _given(self, m: int, given: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The rows of a party's module are private."""
        rows = given[0] if given and isinstance(given[0], Tensor) else None
        if rows is None or not self.batches or len(rows) != len(self.batches[-1]):
            return None
        ids, worlds = self.batches[-1], self.worlds
        if worlds is None:
            with self.wire.unseen():
                self.rows.setdefault(m, (array(rows), array(ids)))
            return None
        if worlds.device != m or worlds.row is None or m in self.handed or rows.requires_grad:
            return None
        with self.wire.unseen():
            place = (ids == worlds.record).nonzero()[:, 0]
            other = rows.detach().clone()
            other[place] = torch.from_numpy(np.array(worlds.row)).to(other.dtype)
        private = self.wire.private(rows, other, what=f"features of device {m}", owner=m)
        return (private, *given[1:])


def _hold(tracing: TracingWire, what: str, device: int | None, values: Any, records: Any) -> None:
    """Make what is handed over private, wherever else the script holds the same values."""
    assert isinstance(tracing, ScriptWire)
    worlds = tracing.worlds
    if records is not None:
        return
    with tracing.wire.unseen():
        own = tensor_of(values).detach()
    if what == "labels":
        with tracing.wire.unseen():
            tracing.known_labels = array(own)
        if worlds is not None and worlds.unit is Unit.LABEL:
            with tracing.wire.unseen():
                cached = containers(own)
            for tensor in alike(tracing.wire, own):
                with tracing.wire.unseen():
                    other = worlds.other_labels(tensor.detach(), worlds.record)
                tracing.wire.hold(tensor, other)
            for copy in cached:
                fill(copy, own)
            if isinstance(values, np.ndarray):
                rebind(own)
        return
    assert device is not None
    tracing.handed.add(device)
    if worlds is None:
        with tracing.wire.unseen():
            tracing.rows[device] = array(own), np.arange(len(own))
    elif worlds.device == device and worlds.row is not None:
        for tensor in alike(tracing.wire, own):
            with tracing.wire.unseen():
                other = tensor.detach().clone()
                other[worlds.record] = torch.from_numpy(np.array(worlds.row)).to(other.dtype)
            tracing.wire.hold(tensor, other, what=f"features of device {device}", owner=device)


def tensor_of(values: Any) -> Tensor:
    """What is handed over, in the memory in which the script has it, if torch can use that.

    The column of a pandas table is read in its order: torch would ask it for its items by its index. Names of classes
    are numbered.
    """
    if isinstance(values, Tensor):
        return values
    own = np.asarray(values)
    if own.dtype.kind in "OUST":
        own = np.unique(own, return_inverse=True)[1].reshape(own.shape)
    return torch.as_tensor(own)


def array(tensor: Tensor) -> NDArray[Any]:
    """A copy."""
    detached = tensor.detach()
    own: NDArray[Any] = (detached.float() if detached.dtype == torch.bfloat16 else detached).numpy().copy()
    return own


def alike(wire: FlowWire | type[FlowWire], values: Tensor) -> list[Tensor]:
    """All tensors of the program with these values, or with one-hot rows of them, but for those in the same memory."""
    # Of earlier runs, what is dead and young: to look for all of it takes longer than to follow a short script.
    gc.collect(1)
    with wire.unseen():
        tensors = [t for t in gc.get_objects() if type(t) is Tensor and _plain(t) and _same(t, values)]
        places = {(t.untyped_storage().data_ptr(), t.storage_offset(), t.stride()): t for t in [*tensors, values]}
        places |= {(t.untyped_storage().data_ptr(), t.storage_offset(), t.stride()): t for t in tensors}
    return list(places.values())


def _plain(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and tensor.is_cpu and not tensor.requires_grad and tensor.numel() > 0


def _same(tensor: Tensor, values: Tensor) -> bool:
    """Whether a tensor holds these values, in whatever number format, as a column, or as one-hot rows."""
    if len(tensor.shape) == 0 or tensor.shape[:1] != values.shape[:1] or tensor.dtype == torch.bool:
        return False
    if tensor.numel() == values.numel():
        return torch.equal(tensor.detach().reshape(-1).double(), values.detach().reshape(-1).double())
    if tensor.dim() != 2 or values.dim() != 1 or values.is_floating_point() or tensor.shape[1] <= int(values.max()):
        return False
    return torch.equal(tensor.argmax(1), values.long()) and bool((tensor.double().sum(1) == 1).all())
