"""One device against another through a server's table of old embeddings: what gradients and losses say of it."""

from __future__ import annotations

import pytest
import torch

from tests.support import make_system
from vflpriv.attacks._observations import replies_to_own
from vflpriv.audits.scoring.features import FeatureLeak, FeatureTrials
from vflpriv.common.registry import available, find
from vflpriv.core.data import VerticalData
from vflpriv.core.views import Adversary, View
from vflpriv.core.wire import Transcript, Wire

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
    """The other device's only feature decides the label; the adversary's say nothing of either."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.rand(records + 20, 4, generator=generator)
    labels, blocks = (rows[:, 3] > 0.5).long(), (rows[:, :3], rows[:, 3:])
    return VerticalData(
        name="decided",
        classes=2,
        blocks=tuple(b[:records].clone() for b in blocks),
        labels=labels[:records],
        test_blocks=tuple(b[records:].clone() for b in blocks),
        test_labels=labels[records:],
    )


def leak_of(engine: str, *, batch_size: int, rounds: int) -> FeatureLeak:
    words = {"device_rate": RATES.get(engine, 0.02), **QUIET.get(engine, {})}
    system = make_system(STALE[engine], data=decided(), rounds=rounds, batch_size=batch_size, **words)
    trials = FeatureTrials(system=system, seeds=1, confidence=0.95, known=60, victim=1)
    (tried,) = trials.run([find("attack", "feature_downlink")()], [Adversary.parse("device(0)")])
    assert tried.leak is not None
    return tried.leak


def test_these_are_the_engines_that_keep_a_table():
    assert set(STALE) == {name for name, engine in available("engine").items() if engine.asynchronous}


@pytest.mark.parametrize("engine", ["vafl", "vafl-tsync", "czofo"])
def test_replies_of_each_record_carry_the_table(engine):
    leak = leak_of(engine, batch_size=30, rounds=64)
    assert leak.leakage_low > 0.1
    assert leak.blind is not None
    assert leak.blind < 0.1


@pytest.mark.parametrize("engine", ["zoo-vfl", "cascaded"])
def test_losses_carry_it_where_a_batch_is_one_record(engine):
    assert leak_of(engine, batch_size=1, rounds=1200).leakage_low > 0.1


@pytest.mark.parametrize("engine", ["zoo-vfl", "cascaded", "dpzv"])
def test_among_forty_records_ones_share_is_lost(engine):
    assert leak_of(engine, batch_size=40, rounds=64).low < 0.05


def test_one_difference_is_less_than_two_losses():
    """DPZV sends no loss, only a difference along its device's direction: in six visits a record says nothing."""
    assert leak_of("dpzv", batch_size=1, rounds=700).low < 0.05


def test_slopes_are_gradients_on_average():
    """CZOFO's differences times its own directions, over width: unbiased but for the curvature."""
    data = decided(20)
    system = make_system("czofo-sum", data=data, rounds=1, batch_size=20, perturbations=4000, smoothing=1e-2)
    transcript, engine = Transcript(), system.train([0])
    engine.run(Wire(transcript))
    view = View.of(
        transcript, Adversary.parse("devices(all)"), devices=2, classes=2, own={m: engine.belongings(m) for m in (0, 1)}
    )
    ((sent,), (seen,)) = (view.of_kind("logits"), replies_to_own(view))
    logits = sent.tensors["embedding"][0]
    labels = torch.nn.functional.one_hot(data.labels[seen.records], 2)
    exact = torch.softmax(logits, -1) - labels
    assert float((2 * seen.values / 4000 - exact).abs().max()) < 0.1
