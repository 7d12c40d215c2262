"""FDML against a plain, loop-written reading of it, and against split learning with summed logits."""

from __future__ import annotations

import math

import torch

from tests.support import make_system
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.core.wire import Transcript, Wire


def run(system, replicas=(0,)):
    transcript = Transcript()
    engine = system.train(replicas)
    wire = Wire(transcript)
    engine.run(wire)
    return engine, transcript, wire


def test_every_round_is_softmax_minus_label_at_every_device():
    system = make_system("fdml", rounds=6, device_rate=0.3)
    s, data = system.settings, system.data
    engine = system.train([0])
    models = [{n: v[0].clone() for n, v in p.items()} for p in engine.bank.parameters]
    transcript = Transcript()
    wire = Wire(transcript)
    for t in range(s.rounds):
        ids = torch.from_numpy(system.schedule.batch(t))
        total = sum(b[ids] @ w["weight0"] + w["bias0"] for w, b in zip(models, data.blocks, strict=True))
        gradient = (torch.softmax(total, 1) - torch.eye(data.classes)[data.labels[ids]]) / system.schedule.batch_size
        engine.round(t, wire)
        sums = [m.tensors["logits"][0] for m in transcript.messages if m.round == t and m.kind == "summed-logits"]
        assert len(sums) == data.devices
        for received in sums:
            torch.testing.assert_close(received, total, atol=1e-6, rtol=1e-4)
        for w, block in zip(models, data.blocks, strict=True):
            w["weight0"] = w["weight0"] - s.device_rate * block[ids].T @ gradient
            w["bias0"] = w["bias0"] - s.device_rate * gradient.sum(0)
        for w, found in zip(models, engine.bank.parameters, strict=True):
            for n, v in w.items():
                torch.testing.assert_close(found[n][0], v, atol=1e-6, rtol=1e-4)


def test_the_models_are_those_of_split_learning_with_summed_logits():
    ours, _, _ = run(make_system("fdml", rounds=20))
    split, _, _ = run(make_system("split-sum", rounds=20))
    for a, b in zip(ours.bank.parameters, split.bank.parameters, strict=True):
        for n in a:
            torch.testing.assert_close(a[n], b[n], atol=1e-6, rtol=1e-4)


def test_messages_and_their_bytes_are_exact():
    system = make_system("fdml", rounds=5, batch_size=12)
    _, transcript, wire = run(system)
    assert dict(wire.traffic.messages) == {"logits": 15, "summed-logits": 15}
    each = 4 * 12 * system.data.classes
    assert set(wire.traffic.up.values()) == set(wire.traffic.down.values()) == {5 * each}
    assert [m.tensors.keys() for m in transcript.messages[:1]] == [{"embedding"}]


def test_devices_own_the_labels_and_the_sum_shows_them_the_others_features():
    ledger = make_system("fdml").ledger
    seen = ledger.exposure(Adversary.parse("device"), Unit.LABEL)
    assert seen.not_applicable == "the devices hold the labels"
    assert not seen.unprotected
    assert ledger.exposure(Adversary.parse("server"), Unit.LABEL).not_applicable is None
    for unit in (Unit.FEATURES, Unit.CLIENT, Unit.RECORD):
        (reason,) = ledger.exposure(Adversary.parse("device"), unit).unprotected
        assert reason.startswith("summed-logits")
    assert any("labels moved" in r for r in ledger.exposure(Adversary.parse("eavesdropper"), Unit.LABEL).unprotected)


def test_with_noised_logits_the_sum_is_post_processing():
    system = make_system("fdml-client", rounds=9)
    s = system.settings
    for view in ("device", "eavesdropper", "server"):
        exposure = system.ledger.exposure(Adversary.parse(view), Unit.CLIENT_ZERO)
        assert math.isclose(exposure.mu, math.sqrt(9) * 2 * s.clip / s.noise_std, rel_tol=1e-7)
    onlooker = system.ledger.exposure(Adversary.parse("eavesdropper"), Unit.LABEL)
    assert onlooker.mu > 0
    assert not system.ledger.exposure(Adversary.parse("device"), Unit.LABEL).events


def test_the_devices_go_down_the_gradient_of_the_noised_sum():
    system = make_system("fdml-client", rounds=1, noise_std=5.0)
    engine, transcript, _ = run(system)
    up = sum(m.tensors["embedding"] for m in transcript.messages if m.kind == "logits")
    down = next(m.tensors["logits"] for m in transcript.messages if m.kind == "summed-logits")
    torch.testing.assert_close(up, down)
    quiet, _, _ = run(make_system("fdml-client", rounds=1, noise_std=0.0))
    assert not torch.equal(engine.bank.parameters[0]["weight0"], quiet.bank.parameters[0]["weight0"])


def test_the_server_sees_what_noised_labels_did():
    ledger = make_system("fdml", rounds=4, label_protection="rr", label_epsilon=2.0).ledger
    for view in ("server", "eavesdropper"):
        exposure = ledger.exposure(Adversary.parse(view), Unit.LABEL)
        assert not exposure.unprotected
        assert len(exposure.events) == 1, view


def test_linear_heads_have_no_bias_and_are_trained_with_what_is_below_them():
    system = make_system("fdml-client", heads="linear", rounds=4)
    together, alone = system.train((3, 0)), system.train((0,))
    before = [{n: v.clone() for n, v in p.items()} for p in alone.bank.parameters]
    together.run(Wire())
    alone.run(Wire())
    for p, start, both in zip(alone.bank.parameters, before, together.bank.parameters, strict=True):
        assert set(p) == {"weight0", "bias0", "head"}
        assert p["head"].shape == (1, 4, system.data.classes)
        for name, value in p.items():
            assert not torch.equal(value, start[name])
            torch.testing.assert_close(both[name][1], value[0])
    block = system.data.test_blocks[0]
    first = {n: v[0] for n, v in alone.bank.parameters[0].items()}
    logits = torch.relu(block @ first["weight0"] + first["bias0"]) @ first["head"]
    torch.testing.assert_close(alone.device_outputs(system.data.test_blocks, 1)[0][0], logits)
