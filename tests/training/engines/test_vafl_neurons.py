"""VAFL's random neurons as published: without a clip, inside the activation, at every convolution; and their ledger."""

from __future__ import annotations

import math

import pytest
import torch

from tests.support import make_system
from tests.training.models.test_bottoms import pictures
from vflpriv.audits.noise import noise_of_kinds
from vflpriv.audits.sensitivity import SensitivityAudit
from vflpriv.audits.server_state import StateAudit
from vflpriv.audits.twins.probes import Probe
from vflpriv.audits.two_world.methods import choose
from vflpriv.core.audit import AuditContext
from vflpriv.core.canaries import CanaryKind
from vflpriv.core.claims import Verdict
from vflpriv.core.ledger import Reading
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.core.wire import Transcript, Wire
from vflpriv.training.engines.vafl import VaflSettings

SERVER = Adversary.parse("server")


@pytest.mark.parametrize("variant", ["vafl-inside", "vafl-unclipped"])
def test_a_round_is_equation_10_and_its_gradient(variant):
    """relu(clip(w x + b) + Z) is sent, and the device steps down the gradient through activation and clip."""
    clip = {"clip": 0.5} if variant == "vafl-inside" else {}
    system = make_system(variant, rounds=3, device_rate=0.3, top_hidden=(), **clip)
    probe, transcript = Probe(), Transcript()
    engine = system.train([0], probe=probe)
    for t in range(3):
        (m,) = system.schedule.members(t)
        leaves = {n: v[0].clone().requires_grad_() for n, v in engine.bank.parameters[m].items()}
        x = system.data.blocks[m][system.schedule.batch(t)]
        sums = x @ leaves["weight0"] + leaves["bias0"]
        if variant == "vafl-inside":
            sums = sums * (0.5 / sums.norm(dim=-1, keepdim=True)).clamp(max=1.0)
        values = [v for v in probe.round(engine, t, transcript) if v.party == m]
        noise = values[0].released[0] - values[0].noiseless[0]
        sent = torch.relu(sums + noise)
        uplink, reply = ([x for x in transcript.messages if x.round == t][i] for i in (0, -1))
        torch.testing.assert_close(uplink.tensors["embedding"][0], sent)
        assert bool((sent == 0).any())
        assert bool((reply.tensors["gradient"] != 0).all())
        steps = torch.autograd.grad(sent, list(leaves.values()), reply.tensors["gradient"][0])
        for (name, old), step in zip(leaves.items(), steps, strict=True):
            torch.testing.assert_close(engine.bank.parameters[m][name][0], (old - 0.3 * step).detach())


def test_predictions_and_belongings_have_the_activation_and_no_noise():
    engine = make_system("vafl-inside").train([0, 1])
    plain = make_system("vafl-concat").train([0, 1])
    blocks = engine.data.test_blocks
    torch.testing.assert_close(engine.predict(blocks, 2), plain.predict(blocks, 2))
    for m in range(3):
        own, other = engine.belongings(m), plain.belongings(m)
        torch.testing.assert_close(own.apply(own.trained, blocks[m]), other.apply(other.trained, blocks[m]))
    assert engine.belongings(0).apply == engine.belongings(1).apply, "devices with one function have one"


def test_noise_without_a_clip_has_no_epsilon_and_the_ledger_says_why():
    for variant, changes in (
        ("vafl-unclipped", {}),
        ("vafl-unclipped", {"aggregation": "sum", "noise_place": "output"}),
        ("fdml", {"protection": "unclipped", "noise_std": 0.1}),
        ("linear-admm", {"protection": "unclipped", "noise_std": 0.1}),
    ):
        system = make_system(variant, **changes)
        for unit in (Unit.FEATURES, Unit.RECORD, Unit.CLIENT_ZERO):
            exposure = system.ledger.exposure(SERVER, unit)
            assert any(
                "without a clip" in reason and "no bounded sensitivity" in reason for reason in exposure.unprotected
            )


def test_without_a_clip_what_is_sent_is_the_output_and_the_noise():
    quiet, loud = (
        make_system("vafl-unclipped", noise_place="output", noise_std=std, clip=1e-6, device_rate=1e-12, rounds=30)
        for std in (0.0, 2.0)
    )
    sent = []
    for system in (quiet, loud):
        transcript = Transcript()
        system.train([0]).run(Wire(transcript))
        sent.append([m.tensors["embedding"] for m in transcript.messages if m.kind == "embeddings"])
    assert max(float(rows.norm(dim=-1).max()) for rows in sent[0]) > 0.1, "nothing is clipped"
    noise = torch.cat([(b - a).flatten() for a, b in zip(*sent, strict=True)])
    assert float(noise.std()) == pytest.approx(2.0, rel=0.06)


def test_theorem_6_stays_a_claim_whose_premise_the_search_refutes():
    system = make_system("vafl-unclipped", clip=1.0)
    clipped = make_system("vafl-inside", clip=1.0, max_delay=None)
    assert [c.mu for c in system.claims] == pytest.approx([c.mu for c in clipped.claims])
    assert all("within a radius of 1, which nothing enforces" in c.statement for c in system.claims)
    assert not any("enforces" in c.statement for c in clipped.claims)
    findings = SensitivityAudit(candidates=32, climbs=1).run(system, AuditContext(claims=system.claims))
    assert [(f.verdict, f.unit) for f in findings] == [(Verdict.VIOLATED, Unit.FEATURES)]


def test_noise_inside_the_activation_costs_what_it_costs_at_the_output():
    """The activation is post-processing; a device without data may send anything, since sums have signs."""
    inside = make_system("vafl-inside", max_delay=None)
    output = make_system("vafl-inside", max_delay=None, noise_place="output")
    for unit in (Unit.FEATURES, Unit.RECORD, Unit.CLIENT):
        mus = [x.ledger.exposure(SERVER, unit, reading=Reading.PAPER).mu for x in (inside, output)]
        assert mus[0] == pytest.approx(mus[1])
    zero = [x.ledger.exposure(SERVER, Unit.CLIENT_ZERO).mu for x in (inside, output)]
    assert zero[0] == pytest.approx(math.sqrt(2) * zero[1])


def test_audits_of_noise_inside_the_activation():
    """Noise and state are those of the sums; what is not on the wire is scored by no likelihood ratio."""
    system = make_system("vafl-inside", rounds=24)
    (noise,) = noise_of_kinds(system)
    assert (noise.kind, noise.holds) == ("pre-activations", True)
    moved = StateAudit().moved(system)
    assert {f.kind for f in moved} == {"pre-activations"}
    assert all(f.holds and f.carrier == "a device's own model" for f in moved)
    worst, natural = (
        choose(system, SERVER, Unit.FEATURES, kind) for kind in (CanaryKind.WORST_CASE, CanaryKind.NATURAL)
    )
    assert worst.refusal == "no message carries pre-activations with their noise, only embeddings made of them"
    assert natural.method.name == "learned"


def test_every_convolution_has_neurons_of_its_own_std():
    stds = (0.5, 0.1)
    changes = {"bottom": "cnn2", "hidden": (3, 4), "data": pictures()}
    noisy = make_system("vafl-noise", hidden_noise=stds, **changes)
    engine, model = noisy.train([0, 1]), noisy.train([0]).bank.models[0]
    assert model.neuron_shapes == [(3, 4, 6), (4, 2, 3)]
    first = model.neurons(engine._neurons, 40, 3, [2])
    assert [tuple(v.shape) for v in first.values()] == [(2, 40, 3, 4, 6), (2, 40, 4, 2, 3)]
    for own, std in zip(first.values(), stds, strict=True):
        assert float(own.std()) == pytest.approx(std, rel=0.05)
        assert float(own.abs().max()) <= math.sqrt(3) * std + 1e-6
    plain = make_system("vafl-noise", hidden_noise=0.0, **changes).train([0, 1])
    assert torch.equal(engine.predict(engine.data.test_blocks, 2), plain.predict(plain.data.test_blocks, 2))


def test_neurons_are_added_before_the_activation_of_each_convolution():
    engine = make_system("vafl-noise", bottom="cnn2", hidden=(3, 4), hidden_noise=0.3, data=pictures()).train([0])
    model, weights = engine.bank.models[0], engine.bank.parameters[0]
    neurons, x = model.neurons(engine._neurons, 5, 0, [0]), engine.data.blocks[0][:5]
    maps = x.unsqueeze(1)
    for layer, name in enumerate(("body.0", "body.3")):
        maps = torch.nn.functional.conv2d(maps, weights[f"{name}.weight"][0], weights[f"{name}.bias"][0], padding=1)
        maps = torch.nn.functional.avg_pool2d(torch.relu(maps + neurons[f"neuron{layer}"][0]), 2)
    out = torch.relu(maps.flatten(1) @ weights["head.0.weight"][0].T + weights["head.0.bias"][0])
    torch.testing.assert_close(model.apply({**weights, **neurons}, x.flatten(1))[0], out)


def test_replicas_with_noise_at_convolutions_are_independent():
    system = make_system("vafl-noise", bottom="cnn2", hidden=(2, 3), hidden_noise=(0.2, 0.1), data=pictures(), rounds=3)
    sent = {}
    for replicas in ((3, 0), (0,)):
        transcript = Transcript()
        system.train(replicas).run(Wire(transcript))
        sent[replicas] = [m.tensors["embedding"][-1] for m in transcript.messages if m.kind == "embeddings"]
    for many, alone in zip(*sent.values(), strict=True):
        torch.testing.assert_close(many, alone)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_noise": "loud"}, "a number >= 0, or a list with one for each hidden layer"),
        ({"hidden_noise": (0.1, -0.1)}, "a number >= 0"),
        ({"hidden_noise": (0.1, 0.1), "hidden": (4,)}, "one number, or 1, one for each hidden layer"),
        ({"hidden_noise": (0.1,), "bottom": "cnn4"}, "one number, or 4, one for each hidden layer"),
        ({"noise": "calibrated", "protection": "unclipped"}, "without a clip no noise keeps a budget"),
        ({"noise_place": "activation"}, "there is neither clip nor noise to place"),
        (
            {"noise_place": "activation", "protection": "embedding", "aggregation": "sum"},
            "output where logits are summed",
        ),
    ],
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        VaflSettings.model_validate({"rounds": 1, "batch_size": 1, **changes})
