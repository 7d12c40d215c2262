"""ADMM's dual variables and residuals give every label away; ALIBI's noise leaves what its posterior allows."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tests.support import make_system
from vflpriv.attacks.label.direct import LabelDual
from vflpriv.attacks.label.residual import LabelResidual, differences
from vflpriv.data import loading as datasets

DIGITS = {"rounds": 46, "batch_size": 64, "penalty": 1.0}


@pytest.fixture(scope="module")
def digits():
    return datasets.load("digits", devices=4)


@pytest.mark.parametrize(
    ("variant", "changes"),
    [("vimadmm", {}), ("vimadmm", {"residual": "printed"}), ("vimadmm-j", {}), ("linear-admm", {})],
)
@pytest.mark.parametrize("adversary", ["device(2)", "eavesdropper"])
def test_every_label_of_digits_is_read_off(variant, changes, adversary, digits, watch, rate):
    """Margin: all labels are read, by signs that rounding does not turn."""
    view = watch(make_system(variant, data=digits, **DIGITS, **changes), adversary)
    assert rate(LabelDual(), view, digits) >= 0.999
    assert rate(LabelResidual(), view, digits) >= 0.999


def test_mlp_heads_hide_no_more(digits, watch, rate):
    """Margin: all labels are read, by signs that rounding does not turn."""
    view = watch(make_system("vimadmm-mlp", data=digits, **DIGITS), "device(0)")
    assert rate(LabelDual(), view, digits) >= 0.999
    assert rate(LabelResidual(), view, digits) >= 0.99


def test_of_the_old_heads_a_residual_gives_the_step_of_the_duals(watch):
    """With the head that the device was sent the round before, o - s is exactly (λ_new - λ_old)/ρ."""
    view = watch(make_system("vimadmm", rounds=6, batch_size=60, schedule="fixed", penalty=0.5), "device(0)")
    replies, sent = view.of_kind("admm-variables"), {(m.round, m.device): m for m in view.of_kind("embeddings")}
    duals = [reply.tensors["duals"] for reply in replies]
    for t, difference in enumerate(differences(replies, sent)):
        if t:
            torch.testing.assert_close(difference, (duals[t] - duals[t - 1]) / 0.5, atol=1e-4, rtol=1e-4)


def posterior_success(std: float, classes: int, draws: int = 100_000) -> float:
    """How often the most probable label is the true one, by simulation of the mechanism's definition."""
    generator = np.random.default_rng(0)
    labels = generator.integers(classes, size=draws)
    observed = np.eye(classes)[labels] + generator.laplace(scale=std / math.sqrt(2), size=(draws, classes))
    # log p(observed | class) up to a constant; entries above 1 are equally likely, so that the order decides.
    likelihood = np.abs(observed) - np.abs(observed - 1)
    return float((likelihood.argmax(-1) == labels).mean())


@pytest.mark.parametrize("std", [0.5, 2.0])
def test_with_alibi_the_duals_tell_what_the_posterior_allows(std, digits, watch, rate):
    """Margin: four standard errors of the share of right labels; 2.6 are the most that is seen."""
    system = make_system("vimadmm", data=digits, **DIGITS, label_protection="alibi", label_noise=std)
    success = rate(LabelDual(), watch(system, "device(0)"), digits)
    allowed = posterior_success(std, digits.classes)
    assert abs(success - allowed) < 4 * math.sqrt(allowed * (1 - allowed) / digits.records)
