"""Formatting of numbers and text for reports: rounding, infinite values, and hostile text."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vflpriv.common import formatting
from vflpriv.common.formatting import (
    clean,
    clean_lines,
    epsilon,
    flat,
    interval,
    mu,
    p_value,
    percent,
    ratio,
    shorten,
    size,
)


@pytest.mark.parametrize("show", [epsilon, mu, formatting.exact])
def test_infinite_and_missing_numbers_have_signs_of_their_own(show: object) -> None:
    assert callable(show)
    assert [show(x) for x in (math.inf, -math.inf, math.nan, None)] == ["∞", "-∞", "–", "–"]


@pytest.mark.parametrize(
    ("number", "shown"),
    [(99.96, "100.0"), (9.9996, "10.00"), (999.6, "1,000"), (1234.0, "1,230"), (999_600.0, "1e6"), (0.004, "4e-3")],
)
def test_epsilon_at_the_limits_between_formats(number: float, shown: str) -> None:
    assert epsilon(number) == shown


@given(st.floats(min_value=1e-12, max_value=1e12))
def test_a_formatted_epsilon_is_close_to_the_number(number: float) -> None:
    assert float(epsilon(number).replace(",", "")) == pytest.approx(number, rel=0.006, abs=0.0051)


@given(st.floats(min_value=0, max_value=1e300), st.floats(min_value=0, max_value=1e300))
def test_formatted_epsilons_keep_their_order(first: float, second: float) -> None:
    small, large = sorted((first, second))
    assert float(epsilon(small).replace(",", "")) <= float(epsilon(large).replace(",", "")) * 1.006 + 0.0051


def test_percentages_ratios_p_values_and_sizes() -> None:
    assert percent(0.0) == "0.0 %"
    assert interval(0.984, 1.0) == "98.4 – 100.0 %"
    assert ratio(0.75, 0.0) == "–"
    assert p_value(1e-320) == "<1e-300"
    assert size(999_999) == "1.0 MB"


def test_settings_are_flattened_and_hostile_names_cleaned() -> None:
    settings = {"a": {"b": [1, 2.5, None]}, "x\x1b[2J": False, "big": math.inf}
    assert dict(flat(settings)) == {"a.b": "1, 2.5, –", "x [2J": "no", "big": "∞"}


@given(st.text())
def test_cleaned_text_is_one_printable_line(text: str) -> None:
    line = clean(text)
    assert line.isprintable()
    assert line == clean(line)
    assert len(shorten(text, 10)) <= 10
    line.encode()


@given(st.text())
def test_cleaned_lines_keep_line_breaks_and_nothing_else_unprintable(text: str) -> None:
    assert clean_lines(text).count("\n") == text.count("\n")
    assert all(part.isprintable() or part == "" for part in clean_lines(text).replace("\u00a0", " ").split("\n"))
