"""CAFE: exact once there are as many gradients as unknown features, and a reason wherever it does not apply."""

from __future__ import annotations

import pytest

from tests.attacks.support import attack, two_blocks

NONE = "needs gradients of each record on the wire;"
RANDOM = "the victim moves along random directions, by as much as the loss of a batch says"


@pytest.mark.parametrize("variant", ["split-concat", "split-sum"])
def test_cafe_solves_for_everything_once_there_are_enough_gradients(variant):
    settings = {"embedding": 16, "device_rate": 0.3, "known": 50}
    few, many = (
        attack("feature_cafe", variant, two_blocks(6, 12, records=200), "server", rounds=r, **settings).mean
        for r in (8, 60)
    )
    assert 0 < few.value < 0.9
    assert many.error < 1e-6


@pytest.mark.parametrize("variant", ["czofo", "czofo-sum", "czofo-gaussian"])
def test_loss_differences_say_as_much_as_gradients(variant):
    """CZOFO sends no gradients, but all that its devices estimate theirs from."""
    settings = {"embedding": 16, "device_rate": 0.3, "known": 50, "rounds": 120}
    leak = attack("feature_cafe", variant, two_blocks(6, 12, records=200), "server", **settings).mean
    assert leak.value > 0.99


@pytest.mark.parametrize(
    ("variant", "changes", "reason"),
    [
        ("fdml", {}, f"{NONE} the devices compute them themselves, from labels that the server does not hold"),
        ("vimadmm", {}, f"{NONE} the devices solve for their models themselves, from dual variables"),
        ("linear-admm", {}, f"{NONE} the devices solve for their models themselves, from dual variables"),
        *((engine, {}, f"{NONE} {RANDOM}") for engine in ("zoo-vfl", "syn-zoo-vfl", "cascaded", "dpzv-joint")),
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
