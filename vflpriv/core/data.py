"""Vertical data: one feature block for each device, labels at the server, and records that differ between replicas."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np

from vflpriv.common.lazy import torch
from vflpriv.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["BaseData", "Overrides", "Part", "VerticalData"]

Part = Literal["test", "validation"]
"""The parts of the data that are not trained on."""


@dataclass(frozen=True, eq=False, kw_only=True)
class BaseData:
    """Features of the same records, split over devices, with the labels at the server: in arrays of either library.

    Names and shapes are all that an engine needs to check its models and to declare what it releases.
    """

    name: str
    classes: int
    blocks: tuple[Any, ...]
    labels: Any
    test_blocks: tuple[Any, ...]
    test_labels: Any
    validation_blocks: tuple[Any, ...] = ()
    validation_labels: Any = None
    """Records kept back from training to choose settings by; None where there are none."""
    vocabulary: int | None = None
    """The number of token ids, where blocks hold token ids."""
    grid: tuple[int, int] | None = None
    """(rows, columns) of the blocks, row by row, where they are tiles of one image."""
    fitted: tuple[str, ...] = ()
    """What all training records' features together have decided of each one's, such as the means of columns."""

    def __post_init__(self) -> None:
        if not self.blocks or len(self.labels) == 0:
            raise InputError("data", self.name, "at least one record and one device")
        for m, block in enumerate(self.blocks):
            if len(block) != len(self.labels):
                raise InputError(f"data.blocks[{m}]", len(block), f"{len(self.labels)} records, as many as labels")
        for m, block in enumerate(self.test_blocks):
            if len(block) != len(self.test_labels):
                raise InputError(f"data.test_blocks[{m}]", len(block), f"{len(self.test_labels)} records")
        for m, block in enumerate(self.validation_blocks):
            if len(block) != self.validation_records:
                raise InputError(f"data.validation_blocks[{m}]", len(block), f"{self.validation_records} records")

    def checked(self) -> Self:
        """This data, after a check that features are finite and labels are class numbers."""
        for m, block in enumerate((*self.blocks, *self.test_blocks, *self.validation_blocks)):
            if not bool(np.isfinite(np.asarray(block)).all()):
                raise InputError(f"data.blocks[{m % self.devices}]", "NaN or infinity", "finite numbers")
            if self.vocabulary is not None and not 0 <= int(block.min()) <= int(block.max()) < self.vocabulary:
                expected = f"token ids 0 to {self.vocabulary - 1}"
                raise InputError(f"data.blocks[{m % self.devices}]", int(block.max()), expected)
        for labels in (self.labels, self.test_labels, self.validation_labels):
            if labels is not None and len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < self.classes:
                raise InputError("data.labels", int(labels.max()), f"0 to {self.classes - 1}")
        return self

    def two_classes(self, positive: Sequence[int]) -> Self:
        """The same records, labelled 1 where the class is one of the positive ones and 0 where it is not."""
        if not positive or not set(positive) < set(range(self.classes)):
            raise InputError(
                "positive_classes", list(positive), f"some of the classes 0 to {self.classes - 1}, not all"
            )

        def labelled(labels: Any) -> Any:
            return None if labels is None else sum(labels == label for label in set(positive))

        return replace(
            self,
            classes=2,
            labels=labelled(self.labels),
            test_labels=labelled(self.test_labels),
            validation_labels=labelled(self.validation_labels),
        )

    def fitted_to_all(self) -> Self:
        """This data, marked as shifted and scaled by the mean and deviation of all features."""
        self.check_numeric()
        return replace(self, fitted=(*self.fitted, "the mean and deviation of all features"))

    def of_devices(self, kept: Sequence[int]) -> Self:
        """The blocks of these devices alone, in this order; they are no longer tiles of one image."""
        for m in kept:
            if not 0 <= m < self.devices:
                raise InputError("data.kept_devices", m, f"devices 0 to {self.devices - 1}")
        if len(set(kept)) < len(kept):
            raise InputError("data.kept_devices", list(kept), "each device once")

        def of(blocks: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(blocks[m] for m in kept) if blocks else ()

        return replace(
            self,
            blocks=of(self.blocks),
            test_blocks=of(self.test_blocks),
            validation_blocks=of(self.validation_blocks),
            grid=None,
        )

    def held_out(self, part: Part) -> tuple[tuple[Any, ...], Any]:
        """Blocks and labels of a part that is not trained on."""
        if part == "test":
            return self.test_blocks, self.test_labels
        if self.validation_labels is None:
            raise InputError("data.validation", None, "a share or number of records, to evaluate on validation records")
        return self.validation_blocks, self.validation_labels

    def check_numeric(self) -> None:
        """Raise an InputError where features are token ids, which cannot be standardised."""
        if self.tokens:
            raise InputError("data.standardise", True, f"false, since the features of {self.name} are token ids")

    @property
    def tokens(self) -> bool:
        """Whether some features are token ids."""
        return any(self.reads_tokens(m) for m in range(self.devices))

    def reads_tokens(self, m: int) -> bool:
        """Whether the features of device m are token ids."""
        return not np.issubdtype(np.asarray(self.blocks[m][:0]).dtype, np.floating)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shape of one record in each device's block."""
        return tuple(tuple(block.shape[1:]) for block in self.blocks)

    @property
    def facts(self) -> dict[str, str | int]:
        """What reports say about the data."""
        known: dict[str, str | int] = {"name": self.name, "records": self.records}
        if self.validation_records:
            known["validation"] = self.validation_records
        return {**known, "devices": self.devices, "classes": self.classes}

    @property
    def records(self) -> int:
        """The number of records that are trained on."""
        return len(self.labels)

    @property
    def validation_records(self) -> int:
        """The number of records kept back for validation."""
        return 0 if self.validation_labels is None else len(self.validation_labels)

    @property
    def devices(self) -> int:
        return len(self.blocks)


@dataclass(frozen=True, eq=False, kw_only=True)
class Overrides:
    """Records that differ between replicas, K of them.

    `slots` is (N,): k for the k-th of these records, -1 for all others. `labels` is (R, K); `blocks[m]` is
    (R, K, *shape of device m's block). Only these few values are stored, never a second data set.
    """

    slots: Tensor
    labels: Tensor | None = None
    blocks: Mapping[int, Tensor] = field(default_factory=dict)
    factors: Mapping[int, Tensor] = field(default_factory=dict)
    """(R,) by which a device's whole block is multiplied: 0 stands for a device without data."""


@dataclass(frozen=True, eq=False, kw_only=True)
class VerticalData(BaseData):
    """Vertical data as tensors, some of which may differ between replicas."""

    blocks: tuple[Tensor, ...]
    labels: Tensor
    test_blocks: tuple[Tensor, ...]
    test_labels: Tensor
    validation_blocks: tuple[Tensor, ...] = ()
    validation_labels: Tensor | None = None
    overrides: Overrides | None = None
    replica_labels: Tensor | None = None
    """(R, N) labels that replace all others, where each replica adds its own noise to them."""
    replica_evidence: Tensor | None = None
    """(R, N, C) log-likelihoods of the noised labels that each replica observed, where losses use them."""

    def __getstate__(self) -> dict[str, Any]:
        packed = {name: _Packed.of(getattr(self, name)) for name in _BLOCKS}
        return {**self.__dict__, **packed}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, **{name: state[name].unpacked() for name in _BLOCKS})

    def digest(self) -> bytes:
        """A hash of all features and labels, those that are held out included."""
        tensors = [*self.blocks, self.labels, *self.test_blocks, self.test_labels]
        if self.validation_labels is not None:
            tensors += [*self.validation_blocks, self.validation_labels]
        digest = hashlib.sha256()
        for array in (tensor.cpu().contiguous().numpy() for tensor in tensors):
            digest.update(f"{array.dtype} {array.shape}\0".encode())
            digest.update(array.tobytes())
        return digest.digest()

    def reads_tokens(self, m: int) -> bool:
        return not self.blocks[m].is_floating_point()

    def standardised(self) -> VerticalData:
        """The same data, shifted and scaled as a whole: mean 0, deviation 1 over all features of the training records.

        One shift and one scale for all features keep the relations between them, as images need it. The blocks lie
        side by side in memory, record by record: a batch's rows of all devices are then gathered in one copy.
        """
        marked = self.fitted_to_all()
        count = sum(block.numel() for block in self.blocks)
        mean = sum(float(block.sum(dtype=torch.float64)) for block in self.blocks) / count
        squares = sum(float((block - mean).square().sum(dtype=torch.float64)) for block in self.blocks)
        deviation = math.sqrt(squares / count) or 1.0  # constant features become zero, not NaN

        def scale(blocks: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            widths = [math.prod(block.shape[1:]) for block in blocks]
            table = self.blocks[0].new_empty(len(blocks[0]) if blocks else 0, sum(widths))
            columns = zip(blocks, table.split(widths, 1), strict=True)
            return tuple(
                torch.sub(block, mean, out=own.unflatten(1, block.shape[1:])).div_(deviation) for block, own in columns
            )

        return replace(
            marked,
            blocks=scale(self.blocks),
            test_blocks=scale(self.test_blocks),
            validation_blocks=scale(self.validation_blocks),
        )

    def to(self, device: torch.device) -> VerticalData:
        """The same data on another torch device."""

        def move(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return tuple(t.to(device) for t in tensors)

        overrides = self.overrides
        if overrides is not None:
            labels = None if overrides.labels is None else overrides.labels.to(device)
            blocks = {m: b.to(device) for m, b in overrides.blocks.items()}
            factors = {m: f.to(device) for m, f in overrides.factors.items()}
            overrides = Overrides(slots=overrides.slots.to(device), labels=labels, blocks=blocks, factors=factors)
        return replace(
            self,
            blocks=move(self.blocks),
            labels=self.labels.to(device),
            test_blocks=move(self.test_blocks),
            test_labels=self.test_labels.to(device),
            validation_blocks=move(self.validation_blocks),
            validation_labels=None if self.validation_labels is None else self.validation_labels.to(device),
            overrides=overrides,
            replica_labels=None if self.replica_labels is None else self.replica_labels.to(device),
            replica_evidence=None if self.replica_evidence is None else self.replica_evidence.to(device),
        )

    def override(
        self,
        records: Sequence[int],
        *,
        labels: Tensor | None = None,
        blocks: Mapping[int, Tensor] | None = None,
        factors: Mapping[int, Tensor] | None = None,
    ) -> VerticalData:
        """The same data in which these records have, replica by replica, other labels (R, K) or blocks (R, K, …).

        `factors` multiply whole blocks, (R,) each, but not the blocks of these records. Overrides replace those that
        were there before.
        """
        for values in (labels, *(blocks or {}).values()):
            if values is not None and values.shape[1] != len(records):
                raise ValueError(
                    f"Expected {len(records)} overrides for each replica, found shape {tuple(values.shape)}."
                )
        slots = torch.full((self.records,), -1, dtype=torch.int64, device=self.labels.device)
        slots[list(records)] = torch.arange(len(records), device=slots.device)
        overrides = Overrides(slots=slots, labels=labels, blocks=dict(blocks or {}), factors=dict(factors or {}))
        return replace(self, overrides=overrides)

    def with_labels(self, labels: Tensor, evidence: Tensor | None = None) -> VerticalData:
        """The same data in which every replica has its own labels, (R, N), of all records, or evidence of them."""
        return replace(self, replica_labels=labels, replica_evidence=evidence)

    def features(self, m: int, records: Tensor) -> Tensor:
        """Device m's rows: (B, …) shared by all replicas, or (R, B, …) where an override makes them differ."""
        base = self.blocks[m].index_select(0, records)
        if self.overrides is None:
            return base
        if m in self.overrides.factors:
            factor = self.overrides.factors[m]
            whole = base.unsqueeze(0) * factor.reshape(-1, *(1 for _ in base.shape))
            return self._merge(whole, self.overrides.blocks[m], records) if m in self.overrides.blocks else whole
        return self._merge(base.unsqueeze(0), self.overrides.blocks[m], records) if m in self.overrides.blocks else base

    def differs(self, m: int) -> bool:
        """Whether replicas see different features at device m."""
        return self.overrides is not None and (m in self.overrides.blocks or m in self.overrides.factors)

    def labels_of(self, records: Tensor) -> Tensor:
        """The labels: (B,) shared by all replicas, or (R, B) where an override makes them differ."""
        if self.replica_labels is not None:
            return self.replica_labels.index_select(1, records)
        base = self.labels.index_select(0, records)
        if self.overrides is None or self.overrides.labels is None:
            return base
        return self._merge(base.unsqueeze(0), self.overrides.labels, records)

    def _merge(self, base: Tensor, values: Tensor, records: Tensor) -> Tensor:
        """(R, B, …): of `base`, (R or 1, B, …), with the values (R, K, …) of the records that have an override."""
        assert self.overrides is not None
        slot = self.overrides.slots.index_select(0, records)
        overriding = values.index_select(1, slot.clamp(min=0))
        overridden = (slot >= 0).reshape(1, -1, *(1 for _ in base.shape[2:]))
        return torch.where(overridden, overriding, base)


_BLOCKS = ("blocks", "test_blocks", "validation_blocks")


class _Packed(NamedTuple):
    """Blocks as they are pickled for worker processes: memory that several of them share is written once.

    By itself torch writes the whole memory behind a tensor with each tensor: of blocks that lie side by side in one
    table, the table as often as there are devices.
    """

    memory: tuple[Tensor, ...]
    views: tuple[tuple[int, int, tuple[int, ...], tuple[int, ...]], ...]
    """Of each block: which memory, where it begins in it, shape and strides."""

    @classmethod
    def of(cls, blocks: tuple[Tensor, ...]) -> _Packed:
        memory: list[Tensor] = []
        known: dict[tuple[int, torch.dtype], int] = {}
        views = []
        for block in blocks:
            key = block.untyped_storage().data_ptr(), block.dtype
            sharing = [b for b in blocks if (b.untyped_storage().data_ptr(), b.dtype) == key]
            whole = block.new_empty(0).set_(block.untyped_storage())
            if block.is_meta or not block.numel() or 2 * sum(b.numel() for b in sharing) < whole.numel():
                block = block.contiguous().clone()
                views.append((len(memory), 0, tuple(block.shape), block.stride()))
                memory.append(block)
                continue
            if key not in known:
                known[key] = len(memory)
                memory.append(whole)
            views.append((known[key], int(block.storage_offset()), tuple(block.shape), block.stride()))
        return cls(tuple(memory), tuple(views))

    def unpacked(self) -> tuple[Tensor, ...]:
        return tuple(
            self.memory[number].as_strided(shape, strides, begin) for number, begin, shape, strides in self.views
        )
