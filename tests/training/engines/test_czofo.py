"""VFL-CZOFO against a plain, loop-written reading: a zeroth-order gradient of each embedding, back-propagated."""

from __future__ import annotations

import math

import pytest
import torch

from tests.support import make_system
from tests.training.engines.zo_reading import bottom, first, gradient_of_top, loss, mean_step, run, same_start, shift
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.core.wire import Transcript, Wire
from vflpriv.training.engines.czofo import CzofoSettings

LAWS = ["sphere", "gaussian"]


@pytest.mark.parametrize("law", LAWS)
def test_every_round_is_the_estimate_back_propagated(law):
    """Margin: differences of losses are off by two units in the last place at most, and 2e-6 are seventeen."""
    system = make_system("czofo", direction=law, rounds=7, perturbations=3)
    s, data, size = system.settings, system.data, system.schedule.batch_size
    engine, transcript = system.train([0]), Transcript()
    wire = Wire(transcript)
    table = torch.zeros(data.records, data.devices, s.embedding)
    for t in range(s.rounds):
        m, ids = system.schedule.members(t)[0], system.schedule.batch(t)
        w, top = first(engine.bottom_parameters[m]), first(engine.top_parameters)
        leaves = {name: value.clone().requires_grad_() for name, value in w.items()}
        u = engine.embedding_directions(t, m, len(ids))[0]
        engine.round(t, wire)
        replied = transcript.messages[-1].tensors["differences"][0]
        carried = torch.zeros(())
        for place, i in enumerate(ids):
            h = bottom(leaves, data.blocks[m][i])
            table[i, m] = h.detach()
            estimate = torch.zeros(s.embedding)
            for k in range(s.perturbations):
                other = table[i].clone()
                other[m] = other[m] + s.smoothing * u[k, place]
                y = int(data.labels[i])
                difference = float(loss(top, other, y) - loss(top, table[i], y))
                assert float(replied[k, place]) == pytest.approx(difference, abs=2e-6)
                estimate += float(replied[k, place]) * u[k, place] / (s.perturbations * s.smoothing)
            estimate *= s.embedding if law == "sphere" else 1
            carried = carried + (h * estimate).sum() / size
        gradient = dict(zip(leaves, torch.autograd.grad(carried, list(leaves.values())), strict=True))
        for name, value in shift(w, gradient, -s.device_rate).items():
            torch.testing.assert_close(engine.bottom_parameters[m][name][0], value, atol=1e-5, rtol=1e-4)
        for name, value in shift(top, gradient_of_top(top, table, ids, data.labels, size), -s.server_rate).items():
            torch.testing.assert_close(engine.top_parameters[name][0], value, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("law", LAWS)
def test_directions_have_their_law_one_for_each_record_and_perturbation(law):
    engine = make_system("czofo", direction=law).train(range(500))
    u = engine.embedding_directions(0, 1, 8)
    assert u.shape == (500, 5, 8, 4)
    flat = u.flatten(0, 2)
    scale = 1 / 4 if law == "sphere" else 1.0
    torch.testing.assert_close(flat.T @ flat / len(flat), scale * torch.eye(4), atol=0.03, rtol=0)
    if law == "sphere":
        torch.testing.assert_close(u.norm(dim=-1), torch.ones(500, 5, 8))
    assert not torch.allclose(u[:, 0], u[:, 1])
    assert not torch.allclose(u[:, :, 0], u[:, :, 1])


@pytest.mark.parametrize("law", LAWS)
def test_over_many_directions_the_step_is_the_gradient(law):
    count = 4096
    system = make_system("czofo", direction=law, rounds=1, smoothing=0.02, device_rate=1e-2)
    engine = system.train(range(count))
    same_start(engine)
    m, ids = system.schedule.members(0)[0], torch.from_numpy(system.schedule.batch(0))
    top = first(engine.top_parameters)
    before = {name: value.clone() for name, value in engine.bottom_parameters[m].items()}
    leaves = {name: value.requires_grad_() for name, value in first(before).items()}
    engine.round(0, Wire())
    rows = torch.zeros(len(ids), system.data.devices, system.settings.embedding)
    together = [*rows.unbind(1)]
    together[m] = bottom(leaves, system.data.blocks[m][ids])
    stacked = torch.stack(together, dim=1)
    total = sum(loss(top, stacked[i], int(system.data.labels[r])) for i, r in enumerate(ids)) / len(ids)
    true = torch.cat([g.flatten() for g in torch.autograd.grad(total, list(leaves.values()))])
    estimate = mean_step(before, engine.bottom_parameters[m], 1e-2).mean(0)
    assert float((estimate - true).norm() / true.norm()) < 0.06


def test_messages_and_bytes():
    system = make_system("czofo", rounds=3, schedule="fixed")
    _, transcript, wire = run(system)
    assert [m.kind for m in transcript.messages] == ["embeddings", "loss-differences"] * 3
    up, down = transcript.messages[:2]
    assert {n: tuple(t.shape) for n, t in up.tensors.items()} == {"embedding": (1, 8, 4), "perturbed": (1, 5, 8, 4)}
    assert {n: tuple(t.shape) for n, t in down.tensors.items()} == {"differences": (1, 5, 8)}
    assert wire.traffic.up.total() == 3 * 6 * 8 * 4 * 4
    assert wire.traffic.down.total() == 3 * 5 * 8 * 4


def test_perturbations_are_added_to_what_leaves_so_that_they_tell_nothing_more():
    system = make_system("czofo-embedding", noise_std=1.0, rounds=1)
    engine, transcript, _ = run(system, range(50))
    up = transcript.messages[0].tensors
    u = engine.embedding_directions(0, system.schedule.members(0)[0], 8)
    rebuilt = up["embedding"].unsqueeze(1) + system.settings.smoothing * u
    torch.testing.assert_close(up["perturbed"], rebuilt)


def test_the_ledger_knows_that_the_devices_model_carries_raw_features():
    system = make_system("czofo-embedding", noise_std=0.5, clip=2.0)
    (up,) = (r for r in system.ledger.releases if r.kind == "embeddings" and Unit.FEATURES in r.sensitivity)
    assert up.sensitivity[Unit.FEATURES] == 4.0
    assert up.leak is not None
    assert up.leak.sensitivity[Unit.FEATURES] == pytest.approx(4.0 * math.sqrt(8))
    exposure = system.ledger.exposure(Adversary.parse("server"), Unit.FEATURES)
    assert any("own model" in note for note in exposure.assumptions)


def test_labels_are_unprotected_and_the_ledger_names_the_message():
    system = make_system("czofo")
    exposure = system.ledger.exposure(Adversary.parse("device"), Unit.LABEL)
    assert any(text.startswith("loss-differences ") for text in exposure.unprotected)
    assert system.engine.claims(system.settings, system.schedule) == ()


def test_impossible_settings_are_refused():
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        CzofoSettings.model_validate({"rounds": 1, "batch_size": 1, "perturbations": 0})
