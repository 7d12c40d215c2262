"""Send once: what travels, what is counted, and what the noised steps are."""

from __future__ import annotations

import math

import pytest
import torch

from tests.contracts.test_engines import run
from tests.support import make_system, toy_data
from vflpriv.accountants.gdp import GdpAccountant
from vflpriv.audits.noise import noise_of_kinds
from vflpriv.config.loading import load_config
from vflpriv.core.budgets import epsilon_of
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.core.wire import Transcript, Wire
from vflpriv.errors import InputError
from vflpriv.run.summary.budgets import accounted
from vflpriv.run.systems import build_system, claims_of, load_data

ALL = Adversary.parse("devices(all)")


def test_features_travel_once_and_steps_in_every_round():
    _, transcript, _ = run(make_system("send-once", rounds=5))
    up = [m for m in transcript.messages if m.receiver.is_server]
    down = [m for m in transcript.messages if m.sender.is_server]
    assert {m.round for m in up} == {0}
    assert len(up) == 3
    assert sorted({m.round for m in down}) == [0, 1, 2, 3, 4]
    assert {m.kind for m in down if m.round} == {"model-step"}
    assert {m.kind for m in down if not m.round} == {"model-centre"}
    assert all(len(m.records) == 60 for m in up)


def test_nothing_goes_down_where_the_model_is_kept():
    _, transcript, _ = run(make_system("send-once", rounds=3, share_model=False))
    assert all(m.receiver.is_server for m in transcript.messages)


def test_a_step_without_noise_is_the_clipped_gradient_of_the_mean_loss():
    system = make_system("send-once", rounds=1, noise_std=0.0, clip=100.0, centre=False)
    engine, transcript, _ = run(system)
    (step,) = {id(m.tensors["step"]): m.tensors["step"] for m in transcript.messages if m.sender.is_server}.values()
    rows = torch.cat([block.flatten(1) for block in system.data.blocks], dim=1)
    rows = torch.cat((torch.ones(60, 1), rows / rows.norm(dim=1, keepdim=True)), dim=1) * math.sqrt(0.5)
    weight = torch.zeros(rows.shape[1], 3, requires_grad=True)
    torch.nn.functional.cross_entropy(rows @ weight, system.data.labels).backward()
    torch.testing.assert_close(step[0].reshape(weight.shape), weight.grad)
    torch.testing.assert_close(engine.top_parameters["weight0"][0], -system.settings.server_rate * weight.grad)


def test_every_step_counts_for_devices_and_nothing_protects_from_the_server():
    """Eight steps, and a centre that counts as two."""
    system = make_system("send-once", rounds=9, noise_std=0.02, clip=0.5)
    mu = 2 * 0.5 * math.sqrt(8 + 2) / (60 * 0.02)
    found = system.ledger.exposure(ALL, Unit.RECORD)
    budget = GdpAccountant().budget(found, 1e-5)
    assert budget.upper == pytest.approx(epsilon_of(mu, 1e-5), rel=1e-6)
    assert system.ledger.exposure(Adversary.parse("server"), Unit.RECORD).unprotected
    label = accounted("auto", system, Adversary.parse("model"), Unit.LABEL)
    assert label.upper == pytest.approx(epsilon_of(2 * 0.5 * math.sqrt(8) / (60 * 0.02), 1e-5), rel=1e-3)


def config(**engine):
    text = {
        "data": {"name": "digits", "devices": 4, "partition": "rows", "keep_shape": True},
        "system": [{"key": "once", "engine": {"name": "send-once", "rounds": 20, **engine}}],
    }
    return load_config(text)


def test_calibrated_noise_is_what_the_claim_needs():
    chosen = config(epsilon=2.0)
    system = build_system(chosen, 0, load_data(chosen))
    (claim,) = claims_of(system, chosen.system[0])
    assert claim.epsilon == 2.0
    assert accounted("auto", system, ALL, Unit.RECORD).upper == pytest.approx(2.0, rel=1e-3)


def test_scattering_learns_and_is_no_other_records_business():
    """Margin: 0.94 is reached, and 0.75 asked."""
    chosen = config(
        joint_features="scattering", grid=2, epsilon=8.0, rounds=30, server_rate=20.0, momentum=0.9, delta=1e-3
    )
    system = build_system(chosen, 0, load_data(chosen))
    engine, _, _ = run(system)
    assert float(engine.evaluate().accuracy.mean()) > 0.75


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"noise": "given"}, "a number when noise = 'given'"),
        ({"features": "random", "joint_features": "scattering"}, "joint_features.*scattering needs the images"),
        ({"schedule": "poisson"}, "schedule = .*full: every round is over all records"),
    ],
)
def test_settings_that_do_not_go_together(changes, message):
    chosen = config(**changes)
    with pytest.raises(InputError, match=message):
        build_system(chosen, 0, load_data(chosen))


def test_scattering_needs_an_image():
    system = make_system("send-once", data=toy_data())
    settings = system.settings.model_copy(update={"joint_features": "scattering"})
    with pytest.raises(InputError, match="joint_features"):
        system.engine.check(settings, system.data)


def test_every_message_with_a_shared_step_carries_what_was_released():
    results = noise_of_kinds(make_system("send-once", rounds=8))
    assert {result.kind: result.holds for result in results} == {"model-centre": True, "model-step": True}


def test_a_training_that_goes_on_asks_for_the_features_again():
    system = make_system("send-once", rounds=5)
    engine, transcript = system.train([0]), Transcript()
    for round_ in (3, 4):
        engine.round(round_, Wire(transcript))
    assert {m.round for m in transcript.messages if m.receiver.is_server} == {3}


def test_calibrated_noise_goes_with_a_defence_of_outputs():
    chosen = config(features="random", defence="top-k")
    assert build_system(chosen, 0, load_data(chosen)).settings.noise_std > 0
