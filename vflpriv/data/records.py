"""Which records of a data set are trained on, and which are kept back for validation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflpriv.data.files import fixed_order
from vflpriv.errors import InputError

__all__ = ["keep_back", "long_tail"]

Ints = NDArray[np.int64]


def long_tail(labels: NDArray[np.integer[Any]], *, classes: int, imbalance: float) -> Ints:
    """The numbers of records whose classes form a long tail, in ascending order.

    Of class c it keeps the first n · imbalance^(-c/(C-1)) records, rounded down, with the largest n for which every
    class has so many: class 0 keeps `imbalance` times as many as the last one (Cui et al. 2019, "Class-balanced loss
    based on effective number of samples", Section 5.1).

    >>> long_tail(np.repeat([0, 1, 2], 4), classes=3, imbalance=4)
    array([0, 1, 2, 3, 4, 5, 8])
    """
    shares = imbalance ** (-np.arange(classes) / max(1, classes - 1))
    present = np.bincount(labels, minlength=classes)
    kept = np.floor((present / shares).min() * shares + 1e-9).astype(np.int64)
    if kept.min() < 1:
        rarest = int(kept.argmin())
        raise InputError("data.imbalance", imbalance, f"a ratio that leaves class {rarest} a training record")
    return np.sort(np.concatenate([np.flatnonzero(labels == c)[: kept[c]] for c in range(classes)]))


def keep_back(records: Ints, validation: float | None) -> tuple[Ints, Ints]:
    """These record numbers in two parts: those that are trained on, and those for validation, in the order given.

    `validation` below 1 is the share of the records, from 1 on their number. Which records it takes depends on their
    places alone and never on their content; of two numbers, the larger takes those of the smaller and more.

    >>> keep_back(np.arange(8), 0.25)
    (array([0, 1, 3, 4, 6, 7]), array([2, 5]))
    """
    if validation is None:
        return records, records[:0]
    count = round(validation * len(records)) if validation < 1 else int(validation)
    if validation != count and validation >= 1:
        raise InputError("data.validation", validation, "a share below 1, or a whole number of records")
    if not 1 <= count < len(records):
        expected = f"1 to {len(records) - 1} of the {len(records)} training records, or a share that gives so many"
        raise InputError("data.validation", validation if validation < 1 else count, expected)
    kept_back = np.zeros(len(records), dtype=np.bool_)
    kept_back[fixed_order(len(records))[:count]] = True
    return records[~kept_back], records[kept_back]
