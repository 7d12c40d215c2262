"""Results are kept by the bytes of what they were computed from."""

from __future__ import annotations

import torch

from vflpriv.training.models.remembered import Remembered

LARGE = 1 << 18


class Doubled:
    """A function that counts how often it is called."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return 2 * inputs


def test_equal_inputs_are_computed_once_and_others_anew():
    remembered, double = Remembered(1 << 30), Doubled()
    first = remembered(double, torch.ones(LARGE), "grid", 4)
    assert remembered(double, torch.ones(LARGE), "grid", 4) is first
    assert double.calls == 1
    assert remembered(double, torch.zeros(LARGE), "grid", 4).sum() == 0
    remembered(double, torch.ones(LARGE), "grid", 2)
    remembered(double, torch.ones(LARGE).reshape(2, -1), "grid", 4)
    assert double.calls == 4


def test_small_inputs_and_those_of_other_devices_are_computed_again():
    remembered, double = Remembered(1 << 30), Doubled()
    for inputs in (torch.ones(3), torch.ones(LARGE, device="meta"), torch.ones(LARGE).requires_grad_()):
        before = double.calls
        remembered(double, inputs)
        remembered(double, inputs)
        assert double.calls == before + 2


def test_what_was_asked_for_longest_ago_goes_first():
    remembered, double = Remembered(2 * 4 * LARGE), Doubled()
    one, two, three = (torch.full((LARGE,), float(value)) for value in (1, 2, 3))
    for inputs in (one, two, one, three):
        remembered(double, inputs)
    assert double.calls == 3
    remembered(double, one)
    assert double.calls == 3
    remembered(double, two)
    assert double.calls == 4
