"""One device against another: its features show in sums, residuals, gradients and, less, in losses.

In asynchronous engines the server computes replies from a table of old embeddings, which the replies then reveal.
"""

from __future__ import annotations

import pytest
import torch

from tests.attacks.support import attack, seen, split_rows, two_blocks
from tests.support import make_system
from vflpriv.attacks._observations import replies_to_own
from vflpriv.audits.scoring.score import Score
from vflpriv.common.registry import available
from vflpriv.core.data import VerticalData

STALE = {
    "vafl": "vafl-concat",
    "vafl-tsync": "vafl-tsync-some",
    "zoo-vfl": "zoo-vfl-sum",
    "cascaded": "cascaded-sum",
    "czofo": "czofo-sum",
    "dpzv": "dpzv-sgd",
}
QUIET = {"dpzv": {"noise_std": 0.0, "clip": 100.0, "server_rate": 0.05}, "vafl-tsync": {"together": 1}}
RATES = {"vafl": 0.5, "vafl-tsync": 0.5, "czofo": 0.1, "dpzv": 0.01}


def decided(records: int = 120) -> VerticalData:
    """The other device's only feature decides the label; the adversary's features are independent of both."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.rand(records + 20, 4, generator=generator)
    return split_rows("decided", 2, (rows[:, :3], rows[:, 3:]), (rows[:, 3] > 0.5).long(), test=20)


def leak_of(engine: str, *, batch_size: int, rounds: int) -> Score:
    settings = {"device_rate": RATES.get(engine, 0.02), "batch_size": batch_size, **QUIET.get(engine, {})}
    tried = attack("feature_downlink", STALE[engine], decided(), "device(0)", rounds=rounds, known=60, **settings)
    assert tried.mean is not None
    return tried.mean


@pytest.mark.parametrize(
    "variant",
    ["fdml", "vimadmm-j", "vimadmm", "linear-admm", "split-sum", "vafl-concat", "vafl-sum", "vafl-tsync-some"],
)
def test_a_device_learns_of_another_from_what_it_is_sent(variant):
    """VAFL's other device is never active in the same round: replies depend on the server's table of its embeddings."""
    rate = {} if "admm" in variant else {"device_rate": 0.5}
    rate |= {"together": 1} if "tsync" in variant else {}
    rounds = 160 if variant.startswith("vafl") else 48
    data = two_blocks(6, 3, classes=6)
    leak = attack("feature_downlink", variant, data, "device(0)", rounds=rounds, known=150, **rate).mean
    assert leak.blind < 0.05
    assert leak.leakage.low > 0.05


def test_these_are_the_engines_that_keep_a_table():
    assert set(STALE) == {name for name, engine in available("engine").items() if engine.asynchronous}


@pytest.mark.parametrize("engine", ["vafl", "vafl-tsync", "czofo"])
def test_replies_for_each_record_reveal_the_table(engine):
    leak = leak_of(engine, batch_size=30, rounds=64)
    assert leak.leakage.low > 0.1
    assert leak.blind is not None
    assert leak.blind < 0.1


@pytest.mark.parametrize("engine", ["zoo-vfl", "cascaded"])
def test_losses_reveal_it_where_a_batch_is_one_record(engine):
    assert leak_of(engine, batch_size=1, rounds=1200).leakage.low > 0.1


@pytest.mark.parametrize("engine", ["zoo-vfl", "cascaded", "dpzv"])
def test_among_forty_records_one_records_share_is_hidden(engine):
    assert leak_of(engine, batch_size=40, rounds=64).low < 0.05


def test_one_difference_is_less_than_two_losses():
    """DPZV sends no loss, only a difference along its device's direction: six rounds per record reveal nothing."""
    assert leak_of("dpzv", batch_size=1, rounds=700).low < 0.05


def test_slopes_are_gradients_on_average():
    """CZOFO's differences times its own directions, over width: unbiased but for the curvature."""
    data = decided(20)
    system = make_system("czofo-sum", data=data, rounds=1, batch_size=20, perturbations=4000, smoothing=1e-2)
    view = seen(system, "devices(all)")
    ((sent,), (reply,)) = (view.of_kind("logits"), replies_to_own(view))
    logits = sent.tensors["embedding"][0]
    labels = torch.nn.functional.one_hot(data.labels[reply.records], 2)
    exact = torch.softmax(logits, -1) - labels
    assert float((2 * reply.values / 4000 - exact).abs().max()) < 0.1
