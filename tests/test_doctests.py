"""Every example in a docstring is true."""

from __future__ import annotations

import doctest
import importlib

import pytest

from tests.tree import modules

MODULES = {
    name: path for name, path in modules().items() if not name.endswith("__main__")
}  # which would run the program


@pytest.mark.parametrize("name", MODULES)
def test_examples_are_true(name: str) -> None:
    module = importlib.import_module(name)
    if ">>>" not in MODULES[name].read_text("utf-8"):
        return  # looking for examples takes longer than running them
    result = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert result.failed == 0, f"{result.failed} of {result.attempted} examples in {name} are wrong"


def test_examples_are_found_and_run() -> None:
    assert doctest.testmod(importlib.import_module("vflpriv.errors")).attempted >= 1
