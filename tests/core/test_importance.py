"""When the norms of heads say something about devices: random starts, small changes, divergence."""

from __future__ import annotations

import torch

from vflpriv.core.engine import Importance


def caveat(norms, starts, distances):
    rows = (torch.tensor([values]) for values in (norms, starts, distances))
    return Importance(**dict(zip(("norms", "starts", "distances"), rows, strict=True))).caveat()


def test_norms_that_changed_by_more_than_the_starts_differ_need_no_caveat():
    assert caveat([1.0, 1.6, 1.1], [1.0, 1.1, 1.05], [0.1, 0.7, 0.2]) is None


def test_a_change_below_the_spread_of_the_starts_shows_the_start():
    sentence = caveat([1.02, 1.21, 1.1], [1.0, 1.2, 1.1], [0.05, 0.06, 0.1])
    assert sentence is not None
    assert "changed their norms by at most 1.8%" in sentence
    assert "differed by 18.2%" in sentence


def test_equal_starts_do_not_make_a_tiny_step_a_movement():
    assert caveat([1.0, 1.005], [1.0, 1.0], [0.001, 0.005]) is not None


def test_a_training_that_diverged_says_so():
    assert "diverged" in (caveat([float("nan"), 1.0], [1.0, 1.1], [float("nan"), 0.2]) or "")
