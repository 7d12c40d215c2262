"""The suite as other CPUs run it: what differs is found, ranked by its margin, and named where it fails."""

from __future__ import annotations

import doctest
import importlib
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools import cpus, margins

DIFFERS = """
import os
import pytest
import torch


THREADS = int(os.environ["OMP_NUM_THREADS"])


def test_far():
    assert 10 * THREADS < 1000


def test_close():
    value = torch.tensor(float(THREADS))
    assert value < 2.5


def test_approximately():
    assert 1.0 + THREADS / 1e9 == pytest.approx(1.0)


def test_arrays():
    torch.testing.assert_close(torch.tensor([1.0, 2.0 + THREADS / 1e7]), torch.tensor([1.0, 2.0]), rtol=1e-3, atol=0)


def test_the_same_everywhere():
    assert 1 < 2


def test_fails_on_two_threads():
    assert THREADS == 1
"""


def test_examples_in_the_docstrings():
    for module in (cpus, margins):
        results = doctest.testmod(module)
        assert results.attempted
        assert not results.failed


def test_every_kind_is_tried_once_and_the_two_that_differ_most_come_first():
    every = cpus.kinds()
    assert len({kind.name for kind in every}) == len(every)
    assert every[0].threads == 1
    assert every[1].threads == 2
    assert every[0].capability == "default"


ASKS = """
def test_silent():
    assert 0.9 < float(np.mean(found.accuracy)) < 1.0


def test_silent_at_last():
    with pytest.raises(ValueError):
        assert rate(attack(), labels) > 0.6


def test_says_why():
    \"\"\"Margin: all of them are read.\"\"\"
    assert found["success"] > 0.6


def test_asks_for_something_else():
    assert corner(rate, shift) > 0.5
    assert success == 1.0
    assert "accuracy < 0.5" in text
"""


def test_tests_of_rates_and_p_values_say_why_their_margin_is_wide(tmp_path: Path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_asks.py").write_text(ASKS, encoding="utf-8")
    (tmp_path / "tests" / "test_together.py").write_text(
        f'"""Margin: counts are the same."""\n{ASKS}', encoding="utf-8"
    )
    assert cpus.unargued(tmp_path) == [f"tests/test_asks.py::{name}" for name in ("test_silent", "test_silent_at_last")]
    assert cpus.unargued() == []


def test_hypothesis_tries_the_same_examples_whatever_modules_are_loaded(tmp_path: Path, monkeypatch):
    """Workers load other modules, and a test that fails in one of them has to fail alone."""

    def tried() -> list[int]:
        numbers: list[int] = []

        @given(st.integers())
        def collect(number: int) -> None:
            numbers.append(number)

        collect()
        return numbers

    before = tried()
    (tmp_path / "of_constants.py").write_text("\n".join(f"A{n} = {918273 * n}" for n in range(100)), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "of_constants", importlib.import_module("of_constants"))
    assert tried() == before


@pytest.mark.slow
def test_what_differs_is_listed_by_its_margin_and_what_fails_is_named(tmp_path: Path, capsys, monkeypatch):
    path = tmp_path / "test_differs.py"
    path.write_text(DIFFERS, encoding="utf-8")
    first_two = cpus.kinds()[:2]
    monkeypatch.setattr(cpus, "kinds", lambda: first_two)
    code = cpus.main([str(path), "--workers", "0", "--folder", str(tmp_path / "runs")])
    printed = capsys.readouterr().out
    assert code == 1
    assert "test_differs::test_fails_on_two_threads" in printed
    lines = [line for line in printed.splitlines() if "test_differs.py::" in line]
    listed = [line.split("::")[1].split()[0] for line in lines]
    assert listed[0] == "test_close", "half a unit from its limit, moved by one"
    assert set(listed) == {"test_close", "test_far", "test_approximately", "test_arrays"}

    with monkeypatch.context() as patched:  # kinds that ended are read again
        patched.setattr("subprocess.run", lambda *_, **__: pytest.fail("nothing is left to run"))
        assert cpus.main([str(path), "--folder", str(tmp_path / "runs")]) == 1
    assert capsys.readouterr().out == printed
    monkeypatch.setattr(cpus, "_asked", lambda tests: "other code")
    monkeypatch.setattr("subprocess.run", lambda *_, **__: pytest.fail("it is run again"))
    with pytest.raises(pytest.fail.Exception, match="it is run again"):
        cpus.main([str(path), "--folder", str(tmp_path / "runs")])


@pytest.mark.slow
def test_the_fast_tests_pass_on_every_kind_of_cpu(tmp_path: Path):
    assert cpus.main(["tests", "--folder", str(tmp_path)]) == 0
