"""The command that repeats a run sets the same fields to the same values."""

from __future__ import annotations

import shlex
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vflpriv.cli.options import assignments
from vflpriv.run.selection import repeated

PLAIN = st.booleans() | st.integers(-(10**9), 10**9) | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "Zs")), min_size=1, max_size=8)
VALUES = PLAIN | st.lists(PLAIN | TEXTS, max_size=3) | st.dictionaries(TEXTS, st.lists(PLAIN | TEXTS), max_size=3)


def again(overrides: dict[str, Any]) -> dict[str, Any]:
    words = shlex.split(repeated("frontier", None, overrides))
    return assignments([value for option, value in pairwise(words) if option == "--set"])


@given(value=VALUES)
def test_values_come_back(value: Any) -> None:
    assert again({"data.ranges": value}) == {"data.ranges": value}


@pytest.mark.parametrize(
    "overrides",
    [
        {"data.name": "csv", "data.folder": "/my data/of 'mine'"},
        {"data.ranges": {"age": [0, 99], "years at work": [0.5, 1e6]}, "count_tuning": True},
        {"data.values": {"job": ["clerk", 'a "nurse"', "Ärztin"]}, "epsilons": [0.5, 1]},
    ],
)
def test_fields_of_all_kinds_come_back(overrides: dict[str, Any]) -> None:
    assert again(overrides) == overrides
