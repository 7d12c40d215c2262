"""Noise once: what travels, what is counted for whom, and what the server learns of it."""

from __future__ import annotations

import math

import pytest
import torch

from tests.contracts.test_engines import run
from tests.support import make_system
from vflpriv.audits.noise import NoiseAudit
from vflpriv.config.loading import load_config
from vflpriv.core.audit import AuditContext
from vflpriv.core.budgets import epsilon_of
from vflpriv.core.claims import Verdict
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.core.wire import Transcript, Wire
from vflpriv.errors import InputError
from vflpriv.run.summary.budgets import accounted
from vflpriv.run.systems import build_system, load_data

ALL, SERVER = Adversary.parse("devices(all)"), Adversary.parse("server")


def built(keep_shape: bool = True, **engine):
    chosen = load_config(
        {
            "data": {"name": "digits", "devices": 4, "partition": "rows", "keep_shape": keep_shape},
            "system": [{"key": "once", "engine": {"name": "noise-once", "batch_size": 100, **engine}}],
        }
    )
    return build_system(chosen, 0, load_data(chosen))


def accuracy(system) -> float:
    engine, _, _ = run(system)
    return float(engine.evaluate().accuracy.mean())


def test_features_travel_once_and_steps_in_every_round():
    _, transcript, _ = run(make_system("noise-once", rounds=4))
    up = [m for m in transcript.messages if m.receiver.is_server]
    down = [m for m in transcript.messages if m.sender.is_server]
    assert {m.round for m in up} == {0}
    assert {(m.round, m.kind) for m in down} == {(t, "model-step") for t in range(4)}
    assert all(len(m.records) == 60 for m in up)


def test_the_steps_add_up_to_how_the_model_moved():
    system = make_system("noise-once", rounds=3)
    engine, before, transcript = system.train([0]), system.train([0]), Transcript()
    for round_ in range(3):
        engine.round(round_, Wire(transcript))
    steps = {m.round: m.tensors["step"] for m in transcript.messages if m.sender.is_server}
    moved = [engine.top_parameters[n] - before.top_parameters[n] for n in engine.top.shapes]
    torch.testing.assert_close(sum(steps.values()), torch.cat([m.flatten(1) for m in moved], dim=1))


def test_nothing_goes_down_where_the_model_is_kept():
    _, transcript, _ = run(make_system("noise-once", rounds=2, share_model=False))
    assert all(m.receiver.is_server for m in transcript.messages)


def test_a_label_costs_its_one_draw_however_long_the_training():
    for rounds in (1, 30):
        system = make_system("noise-once", rounds=rounds, label_noise=None, label_epsilon=1.5)
        assert accounted("auto", system, ALL, Unit.LABEL).upper == pytest.approx(1.5, rel=1e-3)
        assert accounted("auto", system, ALL, Unit.RECORD).upper == math.inf


def test_features_cost_one_noised_message_each_however_long_the_training():
    for rounds in (1, 30):
        system = make_system("noise-once-features", rounds=rounds, clip=0.5, noise_std=2.0)
        mu = 2 * 0.5 / 2.0
        assert accounted("auto", system, SERVER, Unit.FEATURES).upper == pytest.approx(epsilon_of(mu, 1e-5), rel=1e-3)
        whole = accounted("auto", system, SERVER, Unit.RECORD).upper
        assert whole == pytest.approx(epsilon_of(mu * math.sqrt(3), 1e-5), rel=1e-3)


def test_its_noise_is_what_the_ledger_declares():
    findings = NoiseAudit().run(make_system("noise-once-features"), AuditContext())
    assert findings
    assert {finding.verdict for finding in findings} == {Verdict.CONSISTENT}


@pytest.mark.parametrize(
    "engine",
    [
        {"joint_features": "scattering", "grid": 2, "components": 30, "top_hidden": [32]},
        {"components": 20, "label_protection": "subset", "label_epsilon": 2.0},
        {"learner": "means", "rounds": 1},
        {"learner": "means", "rounds": 1, "protection": "embedding", "clip": 2.0, "noise_std": 1.0},
    ],
)
def test_it_learns(engine):
    """Margin: 0.87 to 0.94 is reached, and 0.75 asked."""
    assert accuracy(built(**{"rounds": 5, "server_rate": 0.1, **engine})) > 0.75


def test_a_device_sends_the_lowest_frequencies_of_its_rows():
    system = built(rounds=1, frequencies=[1, 3], learner="means")
    _, transcript, _ = run(system)
    sent = next(m for m in transcript.messages if m.receiver.is_server).tensors["embedding"][0]
    block = system.data.blocks[0]
    assert sent.shape == (len(block), 3)
    torch.testing.assert_close(sent[:, 0], block.flatten(1).sum(1) / math.sqrt(block[0].numel()))
    assert bool((sent.norm(dim=1) <= block.flatten(1).norm(dim=1) * (1 + 1e-5)).all())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schedule": "poisson"}, "schedule = .*full: every round is over all records"),
        ({"frequencies": [0, 2]}, "frequencies.*two numbers >= 1"),
        ({"frequencies": [1, 2], "joint_features": "scattering"}, "joint_features.*scattering needs the images"),
        ({"learner": "means", "top_hidden": [4]}, "learner.*means are a linear model"),
        ({"keep_shape": False, "frequencies": [1, 2]}, "frequencies.*grey images"),
        ({"keep_shape": False, "joint_features": "scattering"}, "joint_features.*bands of rows"),
    ],
)
def test_settings_that_do_not_go_together(changes, message):
    with pytest.raises(InputError, match=message):
        built(rounds=2, **changes)
