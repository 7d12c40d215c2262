"""A pytest plug-in that writes down how far each comparison of numbers in the tests is from failing.

`python -m tools.cpus` loads it and compares what it wrote on several kinds of CPU. For each passed assertion such as
`a < b` or `a == approx(b)`, and for each call of `torch.testing.assert_close` and `numpy.testing.assert_allclose`, one
JSON line goes into the folder `$VFLPRIV_MARGINS`: the test, the line, the two sides.
"""

from __future__ import annotations

import ast
import json
import linecache
import operator
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

__all__ = ["comparisons"]

ROOT = Path(__file__).resolve().parent.parent
_WRAPPED = re.compile(r"(?:tensor|np\.float\d+|np\.int\d+|array)\(([^(),]+?)(?:, dtype=[\w.]+)?\)")
"""Numbers as torch and NumPy write them."""
_APPROXIMATE = re.compile(r"^(\S+) == (\S+) ± (\S+)$")
_ARITHMETIC: dict[type, Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


def _number(node: ast.expr) -> float:
    """The value of plain arithmetic on numbers; ValueError for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return float(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_number(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        return _ARITHMETIC[type(node.op)](_number(node.left), _number(node.right))
    raise ValueError(ast.dump(node))


def comparisons(explanation: str) -> Iterator[tuple[float, float]]:
    """The (smaller, larger) sides of the comparisons in what pytest says of a passed assertion.

    >>> list(comparisons("0.5 < (0.6 * 2)"))
    [(0.5, 1.2)]
    >>> list(comparisons("tensor(3.) >= 2\\n + where tensor(3.) = loss()"))
    [(2.0, 3.0)]
    >>> list(comparisons("1.0 == 1.25 ± 0.5"))
    [(0.25, 0.5)]
    >>> list(comparisons("[1, 2] == [1, 2]"))
    []
    """
    text = _WRAPPED.sub(r"\1", explanation.partition("\n")[0])
    approximate = _APPROXIMATE.match(text)
    try:
        if approximate is not None:
            value, expected, tolerance = map(float, approximate.groups())
            yield abs(value - expected), tolerance
            return
        tree = ast.parse(text.strip(), mode="eval")
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            yield from _sides(node)


def _sides(node: ast.Compare) -> Iterator[tuple[float, float]]:
    values = [node.left, *node.comparators]
    for left, comparison, right in zip(values, node.ops, values[1:], strict=False):
        try:
            sides = _number(left), _number(right)
        except (ValueError, ArithmeticError):
            continue
        if isinstance(comparison, ast.Lt | ast.LtE):
            yield sides
        elif isinstance(comparison, ast.Gt | ast.GtE):
            yield sides[1], sides[0]


class _Writer:
    """Appends to a file of this process; workers of pytest-xdist have one each."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / f"{os.getpid()}.jsonl").open("a", encoding="utf-8")
        self.test = ""

    def write(self, place: str, smaller: float, larger: float) -> None:
        row = {"test": self.test, "place": place, "smaller": smaller, "larger": larger}
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


_writer: _Writer | None = None


def pytest_configure(config: pytest.Config) -> None:
    """Watch the two functions that compare arrays."""
    global _writer  # noqa: PLW0603 (a plug-in's hooks share nothing else)
    _writer = _Writer(Path(os.environ["VFLPRIV_MARGINS"]))
    torch.testing.assert_close = _watched(torch.testing.assert_close, rtol=1.3e-6, atol=1e-5)
    np.testing.assert_allclose = _watched(np.testing.assert_allclose, rtol=1e-7, atol=0.0)


def _watched(compare: Callable[..., None], *, rtol: float, atol: float) -> Callable[..., None]:
    """The function, which also writes down the largest error beside the tolerance at that place."""

    def watched(actual: Any, expected: Any, *positional: Any, **options: Any) -> None:
        compare(actual, expected, *positional, **options)
        tolerances = dict(zip(("rtol", "atol"), positional, strict=False)) | options
        relative, absolute = tolerances.get("rtol", rtol), tolerances.get("atol", atol)
        try:
            ours, theirs = (np.asarray(values) + np.float64(0) for values in (actual, expected))
            error = np.abs(ours - theirs)
        except (TypeError, ValueError, RuntimeError):
            return  # nested containers and sparse tensors
        allowed = (absolute or 0.0) + (relative or 0.0) * np.abs(theirs) + np.zeros_like(error)
        finite = np.isfinite(error) & (allowed > 0)
        if _writer is not None and finite.any():
            worst = np.argmax(np.where(finite, error / np.where(allowed > 0, allowed, 1), -1))
            _writer.write(compare.__name__, float(error.flat[worst]), float(allowed.flat[worst]))

    return watched


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Remember whose comparisons follow."""
    if _writer is not None:
        place = item.path.relative_to(ROOT) if item.path.is_relative_to(ROOT) else item.path
        _writer.test = f"{place}::{item.nodeid.partition('::')[2]}"


def pytest_unconfigure() -> None:
    """Close the file."""
    if _writer is not None:
        _writer.close()


def pytest_assertion_pass(item: pytest.Item, lineno: int, orig: str, expl: str) -> None:
    """Called for each assertion that holds; those of other files, such as Hypothesis's own, are none of ours."""
    if _writer is not None and orig.partition("\n")[0] in linecache.getline(str(item.path), lineno):
        for smaller, larger in comparisons(expl):
            _writer.write(f"{lineno}: {orig}", smaller, larger)
