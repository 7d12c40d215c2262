"""Every attack on the pretended accelerator: what it reaches on the CPU, also where there is no float64."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache
from typing import Any

import pytest

from tests.attacks.support import two_blocks
from tests.devices.pretended import PRETENDED, counted, without_float64
from tests.support import make_system, toy_data
from vflpriv.attacks.feature import grn, inversion
from vflpriv.attacks.label.trained.completion import Completion, LabelCompletionPassive
from vflpriv.audits.scoring.trials import Trials
from vflpriv.common.registry import available, find
from vflpriv.core.data import VerticalData
from vflpriv.core.views import Adversary

SPECIAL: dict[str, tuple[str, str, int]] = {
    "feature_attribute": ("split-concat", "server", 45),
    "feature_cafe": ("split-concat", "server", 40),
    "feature_downlink": ("split-concat", "device(0)", 85),
    "feature_esa": ("split-sum", "devices(0, 2)", 68),
    "feature_grn": ("split-sum", "devices(0, 2)", 61),
    "feature_grn_published": ("split-sum", "devices(0, 2)", 61),
    "feature_inversion": ("split-concat", "server", 49),
    "feature_inversion_white": ("split-concat", "server", 69),
    "feature_lira": ("split-concat", "device(0)", 14),
    "feature_lira_offline": ("split-concat", "device(0)", 14),
    "feature_membership": ("split-concat", "device(0)", 14),
    "feature_reconstruction": ("split-sum", "server", 229),
    "label_batch": ("split-concat", "device(0)", 33),
    "label_completion_active": ("split-concat", "device(0)", 16),
    "label_completion_compounding": ("split-concat", "device(0)", 16),
    "label_completion_passive": ("split-concat", "device(0)", 16),
    "label_completion_published": ("split-concat", "device(0)", 16),
    "label_direct": ("split-sum", "device(0)", 14),
    "label_direction": ("split-concat", "device(0)", 17),
    "label_dual": ("vimadmm", "device(0)", 14),
    "label_embedding_clusters": ("split-concat", "device(0)", 37),
    "label_exploit": ("split-concat", "device(0)", 37),
    "label_gradient_clusters": ("split-concat", "device(0)", 35),
    "label_norm": ("split-concat", "device(0)", 18),
    "label_pcat": ("split-concat", "device(0)", 19),
    "label_posterior": ("split-sum", "device(0)", 40),
    "label_residual": ("vimadmm", "device(0)", 14),
    "label_rounds": ("split-concat", "device(0)", 40),
    "label_spectral": ("split-concat", "device(0)", 26),
    "feature_attribute_others": ("split-concat", "server", 60),
    "feature_hijack": ("split-concat", "server", 400),
    "label_unsplit": ("split-concat", "device(0)", 19),
    "label_zo_query": ("zoo-vfl-sum", "eavesdropper", 22),
    "label_zo_scalar": ("dpzv-joint", "device(0)", 39),
}
"""A system and a view in which each attack applies, and the most reads of the device by training, attack and score."""
ELSEWHERE = {n for n, kind in available("attack").items() if kind.target in ("integrity", "property", "tokens")} | {
    "label_boosting"
}
"""Attacks on messages that no engine sends, since recordings are read on the CPU, on texts of an encoder, and those
that are no `Trials`."""
ATTACKS = {
    name: SPECIAL.get(name, ("split-concat", "device(0)", 40)) for name in available("attack") if name not in ELSEWHERE
}
DATA: dict[str, VerticalData] = {
    "feature_reconstruction": two_blocks(6, 8, binary=8),
    "label_direction": toy_data(classes=2),
    "label_norm": toy_data(classes=2),
    "label_spectral": toy_data(classes=2),
}
"""Where an attack does not apply to the toy data: two classes, or binary features."""


def tried(name: str, torch_device: str) -> Any:
    """The attempt of one attack on a short training."""
    attack, (variant, view, _) = find("attack", name)(), ATTACKS[name]
    size = {"batch_size": 50} if name == "feature_reconstruction" else {}
    system = make_system(variant, rounds=8, torch_device=torch_device, data=DATA.get(name), **size)
    adversaries = [Adversary.parse(view)]
    known = 6 if attack.target == "membership" else 25
    told = {"labels_per_class": 2, "known": known, "victim": 1, "attribute": 0, "pairs": 10}
    return Trials(system=system, seeds=1, confidence=0.95, **told).run([attack], adversaries)[0]


@cache
def on_the_cpu(name: str) -> Any:
    return tried(name, "cpu")


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models that attacks train are trained briefly."""
    monkeypatch.setattr(grn, "_EPOCHS", 2)
    monkeypatch.setattr(grn.FeatureGrn, "steps", 6)
    monkeypatch.setattr(inversion, "_STEPS", 10)
    monkeypatch.setattr(
        LabelCompletionPassive, "completion", Completion(epochs=1, iterations=40, rate=0.02, average=0.5)
    )


def test_the_table_names_attacks_that_there_are():
    assert set(SPECIAL) | ELSEWHERE <= set(available("attack"))


@pytest.mark.parametrize("float64", [True, False], ids=["float64", "no float64"])
@pytest.mark.parametrize("name", list(ATTACKS))
def test_it_reaches_what_it_reaches_on_the_cpu(name, float64):
    expected = on_the_cpu(name)
    with counted() as counts, nullcontext() if float64 else without_float64():
        found = tried(name, str(PRETENDED))
    assert found.refusal is None
    if expected.target in ("features", "attribute"):
        assert found.mean.value == pytest.approx(expected.mean.value, rel=1e-3, abs=1e-4)
    else:
        assert found.rates == pytest.approx(expected.rates)
        assert found.mean.leakage.value == pytest.approx(expected.mean.leakage.value)
    if float64:
        assert counts.reads.total() <= ATTACKS[name][2], counts.reads
