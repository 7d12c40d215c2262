"""VFL-Cascaded against a plain, loop-written reading of its Algorithm 1."""

from __future__ import annotations

import pytest
import torch

from tests.support import make_system
from tests.training.engines.zo_reading import bottom, first, gradient_of_top, loss, run, shift
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.core.wire import Transcript, Wire


@pytest.mark.parametrize("law", ["sphere", "gaussian"])
def test_every_round_is_algorithm_1(law):
    """Losses before the server's step (line 9), then its first-order step (line 11) and the device's eq. (3)."""
    smoothing = 0.1 if law == "sphere" else 0.02
    system = make_system("cascaded", direction=law, rounds=9, smoothing=smoothing, server_rate=0.3)
    s, data, size = system.settings, system.data, system.schedule.batch_size
    engine, transcript = system.train([0]), Transcript()
    wire = Wire(transcript)
    bottoms, top = [first(p) for p in engine.bottom_parameters], first(engine.top_parameters)
    table = torch.zeros(data.records, data.devices, s.embedding)
    for t in range(s.rounds):
        m, ids = system.schedule.members(t)[0], system.schedule.batch(t)
        u = first(engine.directions.at(t, m))
        factor = sum(v.numel() for v in u.values()) if law == "sphere" else 1
        plain = perturbed = 0.0
        for i in ids:
            x, y = data.blocks[m][i], int(data.labels[i])
            table[i, m] = bottom(bottoms[m], x)
            other = table[i].clone()
            other[m] = bottom(shift(bottoms[m], u, s.smoothing), x)
            plain, perturbed = plain + float(loss(top, table[i], y)), perturbed + float(loss(top, other, y))
        engine.round(t, wire)
        reply = {name: float(value[0]) for name, value in transcript.messages[-1].tensors.items()}
        assert reply == pytest.approx({"loss": plain / size, "perturbed": perturbed / size}, abs=1e-5)
        gap = (reply["perturbed"] - reply["loss"]) * factor / s.smoothing
        bottoms[m] = shift(bottoms[m], u, -s.device_rate * gap)
        top = shift(top, gradient_of_top(top, table, ids, data.labels, size), -s.server_rate)
        for name, value in bottoms[m].items():
            torch.testing.assert_close(engine.bottom_parameters[m][name][0], value, atol=1e-4, rtol=1e-3)
        for name, value in top.items():
            torch.testing.assert_close(engine.top_parameters[name][0], value, atol=1e-5, rtol=1e-4)


def test_the_wire_cannot_tell_it_from_zoo_vfl():
    (_, ours, wire), (_, theirs, other) = (
        run(make_system(variant, schedule="fixed")) for variant in ("cascaded", "zoo-vfl")
    )
    for a, b in zip(ours.messages, theirs.messages, strict=True):
        assert (a.kind, a.round, a.sender, a.receiver) == (b.kind, b.round, b.sender, b.receiver)
        assert {n: t.shape for n, t in a.tensors.items()} == {n: t.shape for n, t in b.tensors.items()}
    assert wire.traffic.total == other.traffic.total == 12 * (2 * 8 * 4 * 4 + 2 * 4)


def test_the_first_round_of_the_device_is_that_of_zoo_vfl():
    """The two differ in the server's step alone."""
    engines = [make_system(variant, rounds=1).train([0]) for variant in ("cascaded", "zoo-vfl")]
    for engine in engines:
        engine.run(Wire())
    for ours, theirs in zip(*(e.bottom_parameters for e in engines), strict=True):
        assert all(torch.equal(ours[n], theirs[n]) for n in ours)
    ours, theirs = (e.top_parameters["weight0"] for e in engines)
    assert not torch.equal(ours, theirs)


def test_weight_decay_and_momentum_of_the_server_are_its_own():
    system = make_system("cascaded", rounds=2, weight_decay=0.1, server_momentum=0.5, activation="round-robin")
    s, data, size = system.settings, system.data, system.schedule.batch_size
    engine, velocity = system.train([0]), {}
    for t in range(2):
        top = first(engine.top_parameters)
        engine.round(t, Wire())
        rows = engine.table[:, 0].unflatten(1, (data.devices, s.embedding))
        gradient = gradient_of_top(top, rows, system.schedule.batch(t), data.labels, size)
        for name, value in gradient.items():
            velocity[name] = value + 0.1 * top[name] + 0.5 * velocity.get(name, 0.0)
            expected = top[name] - s.server_rate * velocity[name]
            torch.testing.assert_close(engine.top_parameters[name][0], expected, atol=1e-5, rtol=1e-4)


def test_there_is_no_epsilon_to_claim_and_none_for_labels():
    system = make_system("cascaded")
    assert system.engine.claims(system.settings, system.schedule) == ()
    exposure = system.ledger.exposure(Adversary.parse("device"), Unit.LABEL)
    assert any(text.startswith("losses ") for text in exposure.unprotected)
