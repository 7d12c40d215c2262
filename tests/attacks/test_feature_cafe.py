"""CAFE: exact once there are as many gradients as unknown features, and a reason wherever it does not apply."""

from __future__ import annotations

import pytest

from tests.attacks.support import attack, two_blocks


@pytest.mark.parametrize("variant", ["split-concat", "split-sum"])
def test_cafe_solves_for_everything_once_there_are_enough_gradients(variant):
    settings = {"embedding": 16, "device_rate": 0.3, "known": 50}
    few, many = (
        attack("feature_cafe", variant, two_blocks(6, 12, records=200), "server", rounds=r, **settings).leak
        for r in (8, 60)
    )
    assert 0 < few.value < 0.9
    assert many.error < 1e-6


@pytest.mark.parametrize(
    ("variant", "changes", "reason"),
    [
        ("fdml", {}, "needs gradients of each record; the server sends none"),
        ("split-concat", {"momentum": 0.9}, "needs plain steps along the gradients that the server sent"),
        (
            "split-concat",
            {"hidden": (5,)},
            "needs a model of one layer; with more, a record's gradient at the first layer depends on its features",
        ),
    ],
)
def test_cafe_says_why_it_does_not_apply(variant, changes, reason):
    assert attack("feature_cafe", variant, two_blocks(6, 5), "server", **changes).refusal == reason
