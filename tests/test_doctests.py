"""Every example in a docstring is true."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("vflpriv", "accountants", "attacks", "audits", "training")


def modules() -> list[str]:
    """The dotted names of all modules; `__main__` would run the program."""
    names = []
    for folder in FOLDERS:
        package = folder if folder == "vflpriv" else f"vflpriv.{folder}"
        stems = sorted(path.stem for path in (ROOT / folder).glob("*.py"))
        names += [package if stem == "__init__" else f"{package}.{stem}" for stem in stems if stem != "__main__"]
    return names


@pytest.mark.parametrize("name", modules())
def test_examples_are_true(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0, f"{result.failed} of {result.attempted} examples in {name} are wrong"


def test_examples_are_found_and_run() -> None:
    assert doctest.testmod(importlib.import_module("vflpriv.errors")).attempted >= 1
