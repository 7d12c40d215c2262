"""Mutants: which changes are made, that a test that notices one is found, and that what is listed is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools import mutants as tool
from tools.mutating import code_objects, mutants

ROOT = Path(__file__).resolve().parents[2]
SOURCE = '''
"""A module."""
LIMIT = 3


def clipped(x, bound=2.5, *, strict=True):
    """Words, 7 of them."""
    if x and not bound:
        raise ValueError(f"Expected 1 < {x + 1}")
    total: float = min(x, bound) - x ** 2
    return [total if strict else -total for n in range(4) if n >= LIMIT]
'''


def texts(tmp_path: Path, *functions: str) -> list[str]:
    path = tmp_path / "module.py"
    path.write_text(SOURCE, encoding="utf-8")
    return [mutant.text for mutant in mutants(path, functions or ("*",))]


def test_one_thing_is_changed_at_a_time_and_words_are_left_alone(tmp_path: Path) -> None:
    assert sorted(texts(tmp_path)) == sorted(
        [
            "<module>: LIMIT = 3 → LIMIT = 4",
            "<module>: 2.5 → 5.0",
            "<module>: True → False",
            "clipped: x and (not bound) → x or not bound",
            "clipped: x and (not bound) → x and bound",
            "clipped: min(x, bound) - x ** 2 → min(x, bound) + x ** 2",
            "clipped: min(x, bound) → max(x, bound)",
            "clipped: x ** 2 → x * 2",
            "clipped: x ** 2 → x ** 3",
            "clipped: strict → not strict",
            "clipped: total if strict else -total → total if strict else total",
            "clipped: range(4) → range(5)",
            "clipped: n >= LIMIT → n > LIMIT",
        ]
    )
    assert all(text.startswith("clipped: ") for text in texts(tmp_path, "clip*"))


def test_a_compiled_change_changes_what_it_says_and_nothing_stays_changed(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text("def f(x):\n    return x * 3 + 1\n", encoding="utf-8")
    results = {}
    for mutant in (*mutants(path), *mutants(path)):
        space: dict[str, object] = {}
        code = mutant.compiled(path)
        exec(code, space)  # noqa: S102
        results[mutant.text] = space["f"](5)  # type: ignore[operator]
        assert mutant.function is not None
        assert mutant.function in code_objects(code)
        assert mutant.lines == range(2, 3)
    assert results == {
        "f: x * 3 + 1 → x * 3 - 1": 14,
        "f: x * 3 → x / 3": pytest.approx(5 / 3 + 1),
        "f: x * 3 → x * 4": 21,
        "f: x * 3 + 1 → x * 3 + 2": 17,
    }


def test_everything_that_is_listed_is_there() -> None:
    rooms = tool.rooms()
    assert all(room.modules and all((ROOT / test).exists() for test in room.tests) for room in rooms)
    names: dict[str, list[str]] = {}
    for room in rooms:
        for module in room.modules:
            path = str(module.relative_to(ROOT))
            names[path] = [f"{path} {change.text}" for change in mutants(module, room.functions)]
    tried = {trial.name for trial in tool.trials()}
    for entry in tool.equivalents():
        covered = {name for name in names[entry.module] if entry.covers(name)}
        assert covered, f"{entry.module} {entry.change} is no change any more"
        assert not covered & tried
        assert len(entry.why) > 20


def test_an_answer_holds_as_long_as_the_files_that_it_is_about(tmp_path: Path) -> None:
    store = tool.Store(tmp_path / "build" / "answers.jsonl")
    trial = next(trial for trial in tool.trials(["accountants/gdp.py"]) if trial.mutant.function)
    assert store.noticed(trial) is None
    store.add(trial, "tests/accountants/test_closed_sums.py::test_x")
    assert tool.Store(store.path).noticed(trial) is True
    store.add(trial, "")
    assert tool.Store(store.path).noticed(trial) is False
    store.found[trial.name]["module"] = "another"
    assert store.noticed(trial) is None


@pytest.mark.slow
def test_of_sixty_changes_drawn_at_random_almost_all_are_noticed(tmp_path: Path) -> None:
    """In a process of its own: it forks, and counts lines."""
    command = [sys.executable, "-m", "tools.mutants", "--sample", "60", "--seed", "1", "--workers", "1"]
    shown = subprocess.run(
        [*command, "--store", str(tmp_path / "answers.jsonl")], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    cells = [cell.strip() for cell in shown.splitlines()[-1].split("|")]
    assert cells[1:3] == ["all", "60"], shown
    assert (int(cells[3]), int(cells[4]) >= 57) == (60, True), shown
