"""Modules that are loaded at their first use: when that is, and what takes the stand-in's place."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest
import torch

from vflpriv.common import lazy
from vflpriv.common.lazy import lazy_module, no_grad

NAME = "colorsys"
"""A module of the standard library that nothing here uses."""


@pytest.fixture
def user(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module that has imported a lazy one."""
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    module = ModuleType("user")
    module.colorsys = lazy_module(NAME)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "user", module)
    return module


def test_a_module_is_loaded_when_an_attribute_is_read(user: ModuleType) -> None:
    assert NAME not in sys.modules
    assert user.colorsys.rgb_to_hsv(0.0, 0.0, 0.0) == (0.0, 0.0, 0.0)
    assert NAME in sys.modules


def test_the_loaded_module_replaces_the_stand_in_so_that_later_uses_cost_nothing(user: ModuleType) -> None:
    stand_in = user.colorsys
    assert stand_in is not sys.modules.get(NAME)
    assert stand_in.rgb_to_hsv is user.colorsys.rgb_to_hsv
    assert user.colorsys is sys.modules[NAME]


def test_what_is_loaded_already_needs_no_stand_in() -> None:
    assert lazy_module("sys") is sys


def test_an_attribute_that_does_not_exist_is_the_modules_own_error(user: ModuleType) -> None:
    with pytest.raises(AttributeError, match="module 'colorsys' has no attribute 'nothing'"):
        _ = user.colorsys.nothing


def test_torch_is_the_library_itself_once_it_is_loaded() -> None:
    code = (
        "import sys\n"
        "from vflpriv.training import engine\n"
        "from vflpriv.training.models import bank\n"
        "assert 'torch' not in sys.modules\n"
        "engine.torch.zeros(1)\n"
        "assert engine.torch is bank.torch is sys.modules['torch']"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_function_without_gradients() -> None:
    weight = torch.ones(2, requires_grad=True)

    @no_grad
    def double(factor: float, *, times: int) -> torch.Tensor:
        """Its own words."""
        return weight * factor * times

    assert not double(2.0, times=1).requires_grad
    assert torch.is_grad_enabled()
    assert (double.__name__, double.__doc__) == ("double", "Its own words.")
    assert lazy.torch is torch
