"""Which records of a data set are trained on, and which are kept back for validation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vflpriv.data.files import fixed_order
from vflpriv.errors import InputError

__all__ = ["keep_back"]

Ints = NDArray[np.int64]


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
