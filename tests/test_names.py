"""Names that say nothing of what a variable holds are not assigned to."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EMPTY = frozenset({"found", "one", "each", "rest", "words", "res", "tmp"})
"""Every variable is found, and is one of several: such a name makes its reader look for what it stands for."""
COVERED = ("accountants", "attacks", "audits", "benchmarks", "examples", "tools", "training", "vflpriv")


def empty_names(source: str) -> Iterator[tuple[int, str]]:
    """The line and the name of every variable and parameter that has such a name.

    Fields of classes are left out: those of results are named in files that are stored.
    """
    tree = ast.parse(source)
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    fields = {id(part.target) for owner in classes for part in owner.body if isinstance(part, ast.AnnAssign)}
    for node in ast.walk(tree):
        stored = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in fields
        if stored and node.id in EMPTY:
            yield node.lineno, node.id
        elif isinstance(node, ast.arg) and node.arg in EMPTY:
            yield node.lineno, node.arg
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs) and node.name in EMPTY:
            yield node.lineno, str(node.name)


@pytest.mark.parametrize("folder", COVERED)
def test_variables_are_named_after_what_they_hold(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    empty = [f"{p.relative_to(ROOT)}:{n}: {name}" for p in files for n, name in empty_names(p.read_text("utf-8"))]
    assert not empty


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("found = 1", "found"),
        ("for one, other in pairs: pass", "one"),
        ("sizes = [len(each) for each in rows]", "each"),
        ("first, *rest = rows", "rest"),
        ("def f(words): pass", "words"),
        ("if (res := f()): pass", "res"),
        ("with open('a') as tmp: pass", "tmp"),
    ],
)
def test_every_way_to_assign_is_seen(source: str, name: str) -> None:
    assert [seen for _, seen in empty_names(source)] == [name]


def test_attributes_keywords_and_reads_are_left_alone() -> None:
    assert not list(empty_names("f(found=1).words[one].each"))
    assert not list(empty_names("class Row:\n    found: float"))
    assert list(empty_names("class Row:\n    found = 1.0"))
