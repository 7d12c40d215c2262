"""Files that attacks are scored by, and that no adversary's view includes: devices' features, and membership canaries.

A device's features are in `features-NNNNN.safetensors`: `records` (int64, the ids of the rows), `block` (the rows);
where one column is sensitive, its number is in `sensitive_column`. Membership canaries are in `members.safetensors`:
`candidates` (int64, two for each canary or one) and `worlds` (int64, the coins).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vflpriv.core.canaries import MemberCanaries
from vflpriv.errors import InputError
from vflpriv.recording.files.arrays import host_tensor
from vflpriv.recording.files.checks import check_values
from vflpriv.recording.files.format import Head
from vflpriv.recording.files.stored import file_beside, numbers_below, read_tensors, unique_ids

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "FEATURES",
    "MEMBERS",
    "FeatureBlock",
    "feature_tensors",
    "features_name",
    "member_tensors",
    "read_features",
    "read_members",
]

FEATURES = "features-*.safetensors"
MEMBERS = "members.safetensors"
_FEATURES_OF = re.compile(r"^features-(\d{5,7})\.safetensors$")


@dataclass(frozen=True, eq=False, kw_only=True)
class FeatureBlock:
    """The rows (n, …) of these records (n,) at one device, as float32, and the column of it that is sensitive."""

    records: Tensor
    rows: Tensor
    sensitive_column: int | None = None


def features_name(device: int) -> str:
    """The name of the file with one device's features.

    >>> features_name(3)
    'features-00003.safetensors'
    """
    return f"features-{device:05d}.safetensors"


# Writing


def feature_tensors(
    block: Any, records: Tensor, *, sensitive_column: Any = None, kept: Tensor | None = None
) -> dict[str, Tensor]:
    """The tensors of a device's file from its block, a row for each of these records; only rows in `kept` are stored.

    `kept` is (N,), whether each record is part of a sample.
    """
    import torch

    rows = host_tensor(block, "features: block")
    if rows.dim() == 1:
        rows = rows.unsqueeze(1)
    if rows.dim() == 0 or len(rows) != len(records) or not rows[:1].numel():
        expected = f"a row for each of {len(records)} records, with a value at least"
        raise InputError("features: block", tuple(rows.shape), expected)
    check_values("", "block", rows, "features: block")
    rows = _float32(rows, "features: block") if rows.dtype == torch.float64 else rows
    if kept is not None:
        rows, records = rows[kept[records]], records[kept[records]]
    tensors = {"records": records, "block": rows}
    if sensitive_column is None:
        return tensors
    return tensors | {"sensitive_column": torch.tensor(_column(sensitive_column, rows))}


def _column(number: Any, rows: Tensor) -> int:
    width = rows.shape[1:].numel()
    try:
        column = index(number)
    except TypeError as error:
        raise InputError("features: sensitive_column", number, f"a whole number from 0 to {width - 1}") from error
    if not 0 <= column < width:
        raise InputError("features: sensitive_column", column, f"0 to {width - 1}")
    return column


def member_tensors(canaries: Any, records: int) -> dict[str, Tensor]:
    """The tensors of the file of membership canaries, among so many records."""
    if not isinstance(canaries, MemberCanaries):
        raise InputError("members: canaries", type(canaries).__name__, "what vflpriv.plant_members returned")
    largest = int(canaries.candidates.max())
    if largest >= records:
        raise InputError("members: canaries", largest, f"records from 0 to {records - 1}, those that record() was told")
    return {"candidates": canaries.candidates.long(), "worlds": canaries.worlds.long()}


# Reading


def read_features(folder: Path, head: Head) -> dict[int, FeatureBlock]:
    """The recorded features of each device that has some."""
    blocks = {}
    names = {path.name for path in folder.glob(FEATURES)} | {name for name in head.beside if fnmatch(name, FEATURES)}
    for name in sorted(names):
        match, path = _FEATURES_OF.match(name), file_beside(folder, name, head)
        assert path is not None
        if match is None or int(match[1]) >= head.devices:
            raise InputError("transcript", path.name, f"features of a device from 0 to {head.devices - 1}")
        blocks[int(match[1])] = _block(read_tensors(path), path.name, head)
    return blocks


def _block(tensors: Mapping[str, Tensor], where: str, head: Head) -> FeatureBlock:
    usual = {"records", "block"}
    if set(tensors) not in (usual, usual | {"sensitive_column"}):
        raise InputError(f"{where}: tensors", sorted(tensors), "records and block, with or without sensitive_column")
    ids, rows = unique_ids(tensors["records"], f"{where}: records", head), tensors["block"]
    if rows.dim() < 2 or len(rows) != len(ids) or not len(ids) or not rows[:1].numel():
        raise InputError(f"{where}: block", tuple(rows.shape), f"{len(ids)} rows, one for each record, and not empty")
    check_values("", "block", rows, f"{where}: block")
    column = tensors.get("sensitive_column")
    if column is not None:
        numbers_below(_whole(column, f"{where}: sensitive_column"), f"{where}: sensitive_column", (), rows[0].numel())
    floats = _float32(rows, f"{where}: block")
    return FeatureBlock(records=ids, rows=floats, sensitive_column=None if column is None else int(column))


def read_members(folder: Path, head: Head) -> MemberCanaries | None:
    """The recorded membership canaries, or None if there are none."""
    path = file_beside(folder, MEMBERS, head)
    if path is None:
        return None
    tensors = read_tensors(path)
    if set(tensors) != {"candidates", "worlds"}:
        raise InputError(f"{MEMBERS}: tensors", sorted(tensors), "candidates and worlds")
    candidates, worlds = (_whole(tensors[name], f"{MEMBERS}: {name}") for name in ("candidates", "worlds"))
    if candidates.dim() != 2 or candidates.shape[1] not in (1, 2) or not len(candidates):
        expected = "two candidates for each canary, or one"
        raise InputError(f"{MEMBERS}: candidates", tuple(candidates.shape), expected)
    unique_ids(candidates.flatten(), f"{MEMBERS}: candidates", head)
    numbers_below(worlds, f"{MEMBERS}: worlds", (len(candidates),), 2)
    return MemberCanaries(candidates=candidates, worlds=worlds)


def _whole(values: Tensor, where: str) -> Tensor:
    import torch

    if values.dtype != torch.int64:
        raise InputError(where, str(values.dtype), "int64")
    return values


def _float32(rows: Tensor, where: str) -> Tensor:
    """The rows in 32 bits, which scores compute with."""
    floats = rows.float()
    if not bool(floats.isfinite().all()):
        raise InputError(where, float(rows.double().abs().max()), "values up to 3.4e38")
    return floats
