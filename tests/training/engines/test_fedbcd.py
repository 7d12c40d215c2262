"""FedBCD against a plain, loop-written reading of it, and against split learning."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from tests.support import make_system
from vflpriv.core.wire import Transcript, Wire
from vflpriv.training.engines.fedbcd import FedBcdSettings


def run(system, replicas=(0,)):
    transcript = Transcript()
    engine = system.train(replicas)
    wire = Wire(transcript)
    engine.run(wire)
    return engine, transcript, wire


def bottom(w, x):
    return torch.relu(x @ w["weight0"] + w["bias0"])


def logits(w, rows):
    return torch.relu(rows @ w["weight0"] + w["bias0"]) @ w["weight1"] + w["bias1"]


def stepped(w, gradients, rate):
    return {n: (v - rate * g).detach() for (n, v), g in zip(w.items(), gradients, strict=True)}


def test_every_round_is_one_exchange_and_several_steps():
    system = make_system("fedbcd", rounds=6, device_rate=0.3, server_rate=0.2)
    s, data, rate = system.settings, system.data, system.settings.device_rate
    engine = system.train([0])
    bottoms = [{n: v[0].clone() for n, v in p.items()} for p in engine.bank.parameters]
    top = {n: v[0].clone() for n, v in engine.top_parameters.items()}
    transcript = Transcript()
    wire = Wire(transcript)
    for t in range(s.rounds):
        ids = torch.from_numpy(system.schedule.batch(t))
        x, y = [block[ids] for block in data.blocks], data.labels[ids]
        sent = [bottom(w, part).requires_grad_() for w, part in zip(bottoms, x, strict=True)]
        leaves = {n: v.clone().requires_grad_() for n, v in top.items()}
        size = system.schedule.batch_size
        loss = F.cross_entropy(logits(leaves, torch.cat(sent, 1)), y, reduction="sum") / size
        top = stepped(top, torch.autograd.grad(loss, list(leaves.values())), s.server_rate)
        loss = F.cross_entropy(logits(top, torch.cat(sent, 1)), y, reduction="sum") / size
        stale = torch.autograd.grad(loss, sent)
        for m, gradient in enumerate(stale):
            for _ in range(s.local_steps):
                own = {n: v.clone().requires_grad_() for n, v in bottoms[m].items()}
                step = torch.autograd.grad(bottom(own, x[m]), list(own.values()), gradient)
                bottoms[m] = stepped(bottoms[m], step, rate)
        engine.round(t, wire)
        replies = [m for m in transcript.messages if m.round == t and m.kind == "embedding-gradient"]
        for message, gradient in zip(replies, stale, strict=True):
            torch.testing.assert_close(message.tensors["gradient"][0], gradient, atol=1e-6, rtol=1e-4)
        for m, w in enumerate(bottoms):
            for n, v in w.items():
                torch.testing.assert_close(engine.bank.parameters[m][n][0], v, atol=1e-6, rtol=1e-4)


def test_one_local_step_is_split_learning_and_more_send_nothing_more():
    _, split, plain = run(make_system("split-concat"))
    _, one, _ = run(make_system("fedbcd", local_steps=1))
    _, three, wire = run(make_system("fedbcd", local_steps=3))
    for a, b in zip(split.messages, one.messages, strict=True):
        assert a.kind == b.kind
        assert all(torch.equal(a.tensors[n], b.tensors[n]) for n in a.tensors)
    assert wire.traffic.total == plain.traffic.total == 12 * 3 * 2 * 8 * 4 * 4 - _short_batches() * 3 * 2 * 4 * 4
    assert not torch.equal(one.messages[-1].tensors["gradient"], three.messages[-1].tensors["gradient"])


def _short_batches() -> int:
    """How many records the batches at the end of an epoch miss."""
    schedule = make_system("split-concat").schedule
    return int((8 - schedule.size).sum())


def test_momentum_and_weight_decay_act_in_every_local_step():
    system = make_system("fedbcd", rounds=1, local_steps=3, momentum=0.9, weight_decay=0.01)
    engine = system.train([0])
    w, x = {n: v[0].clone() for n, v in engine.bank.parameters[0].items()}, system.data.blocks[0]
    transcript = Transcript()
    engine.round(0, Wire(transcript))
    stale = next(m for m in transcript.messages if m.kind == "embedding-gradient").tensors["gradient"][0]
    ids, velocity = torch.from_numpy(system.schedule.batch(0)), dict.fromkeys(w, 0.0)
    for _ in range(3):
        own = {n: v.clone().requires_grad_() for n, v in w.items()}
        step = torch.autograd.grad(bottom(own, x[ids]), list(own.values()), stale)
        velocity = {n: 0.9 * velocity[n] + g + 0.01 * w[n] for n, g in zip(w, step, strict=True)}
        w = {n: v - system.settings.device_rate * velocity[n] for n, v in w.items()}
    for n, v in w.items():
        torch.testing.assert_close(engine.bank.parameters[0][n][0], v)


def test_the_server_can_have_no_momentum_of_its_own():
    system = make_system("fedbcd", rounds=2, momentum=0.9, server_momentum=0.0)
    engine, _, _ = run(system)
    other, _, _ = run(make_system("fedbcd", rounds=2, momentum=0.9))
    assert not engine._velocity
    assert set(other._velocity) == set(other.top_parameters)


def test_no_step_at_all_is_refused():
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        FedBcdSettings.model_validate({"rounds": 1, "batch_size": 1, "local_steps": 0})


@pytest.mark.parametrize("clip", [1e-3, 1e3])
def test_stale_steps_may_leave_out_the_clip(clip):
    """As long as nothing is clipped both are the same; under a small clip unclipped steps are far longer."""
    moved = {}
    for how in ("clipped", "unclipped"):
        system = make_system("fedbcd-client", rounds=1, clip=clip, stale_steps=how)
        engine = system.train([0])
        before = engine.bank.parameters[0]["weight0"].clone()
        engine.run(Wire())
        moved[how] = engine.bank.parameters[0]["weight0"] - before
    if clip > 1:
        assert torch.equal(moved["clipped"], moved["unclipped"])
    else:
        assert moved["unclipped"].norm() > 20 * moved["clipped"].norm()


def test_without_further_steps_the_clip_stays():
    ends = []
    for how in ("clipped", "unclipped"):
        engine = make_system("fedbcd-client", rounds=2, clip=1e-3, local_steps=1, stale_steps=how).train([0])
        engine.run(Wire())
        ends.append(engine.bank.parameters[0]["weight0"])
    assert torch.equal(*ends)
