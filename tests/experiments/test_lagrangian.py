"""The augmented Lagrangian of ADMM trainings against eq. (4) written out, and the conditions of Theorem 1."""

from __future__ import annotations

import pytest
import torch

from tests.support import make_system
from vflpriv.core.wire import Transcript, Wire
from vflpriv.experiments.lagrangian import followed_round, unmet_conditions

FULL = {"batch_size": 60, "schedule": "fixed"}
SMALL = {"penalty": 1.0, "device_rate": 0.01, "server_rate": 0.01, "momentum": 0.0, "local_steps": 5}


def written_out(outputs, labels, z, duals, parameters, *, penalty, decay):
    """Eq. (4), record by record."""
    value = torch.tensor(0.0)
    for j, label in enumerate(labels):
        gap = sum(o[j] for o in outputs) - z[j]
        value += torch.logsumexp(z[j], 0) - z[j][label] + duals[j] @ gap + penalty / 2 * gap @ gap
    return value / len(labels) + decay / 2 * sum(float(p.square().sum()) for p in parameters)


@pytest.mark.parametrize("variant", ["vimadmm", "vimadmm-j", "linear-admm"])
def test_a_rounds_value_is_equation_4(variant):
    system = make_system(variant, rounds=2, penalty=0.7, weight_decay=0.02)
    engine, transcript = system.train([0]), Transcript()
    wire = Wire(transcript)
    engine.round(0, wire)
    parameters, regularisers = [v.clone() for v in engine.trained().values()], engine.regularisers()
    heads = engine.heads["weight0"].clone() if variant == "vimadmm" else None
    engine.round(1, wire)
    messages = [m for m in transcript.messages if m.round == 1]
    sent = [m.tensors["embedding"][0] for m in messages[:3]]
    outputs = sent if heads is None else [h @ w for h, w in zip(sent, heads, strict=True)]
    reply, labels = messages[3].tensors, system.data.labels[messages[3].records]
    # With the heads before the step, device 0's residual is z less the others' outputs.
    z = reply["residuals"][0] + outputs[1] + outputs[2]
    known = {"penalty": 0.7, "decay": 0.02}
    expected = written_out(outputs, labels, z, reply["duals"][0], parameters, **known)
    torch.testing.assert_close((engine.constrained_loss() + regularisers)[0], expected, rtol=1e-4, atol=1e-5)


def values_of(engine):
    return torch.stack([followed_round(engine, t, Wire()) for t in range(engine.schedule.rounds)])


def test_following_a_training_changes_nothing():
    system = make_system("vimadmm", rounds=5)
    plain, followed = system.train(range(2)), system.train(range(2))
    plain.run(Wire())
    assert values_of(followed).shape == (5, 2)
    for name, value in plain.trained(1).items():
        assert torch.equal(value, followed.trained(1)[name])


@pytest.mark.parametrize("variant", ["vimadmm", "vimadmm-j"])
def test_with_all_records_and_small_steps_it_decreases_in_every_round(variant):
    values = values_of(make_system(variant, rounds=20, **FULL, **SMALL).train(range(3)))
    assert (values[1:] < values[:-1]).all(), values


def test_from_batch_to_batch_it_may_rise():
    values = values_of(make_system("vimadmm", rounds=20, batch_size=8, **SMALL).train([0]))
    assert (values[1:] > values[:-1]).any()


def unmet(**changes):
    engine = make_system("vimadmm", **{"rounds": 1, **changes}).train([0])
    engine.round(0, Wire())
    return unmet_conditions(engine)


def test_the_published_settings_do_not_meet_the_conditions():
    lines = unmet(penalty=1.0)
    assert lines[0] == "Every round must use all 60 records; the smallest batch has 8."
    assert "one SGD step in a round, and devices 2" in lines[1]
    assert "behind ReLU" in lines[2]
    assert lines[3].startswith("ρ must be below μ_W/σ_θ², which is")
    assert len(lines) == 4


def test_conditions_depend_on_batches_penalty_and_regulariser():
    assert not any("records" in line for line in unmet(**FULL, penalty=1.0))
    low = next(line for line in unmet(penalty=0.5) if "above" in line)
    assert low == "ρ must be above max(L, 2L²/μ_z) = 1; it is 0.5."
    assert not any("below" in line for line in unmet(penalty=1.0, weight_decay=1000.0, device_rate=1e-9))


@pytest.mark.parametrize("variant", ["vimadmm-j", "vimadmm-mlp"])
def test_the_theorem_is_about_linear_heads_at_the_server(variant):
    engine = make_system(variant, rounds=1).train([0])
    engine.round(0, Wire())
    assert unmet_conditions(engine) == ("The theorem is about Algorithm 1 with linear heads.",)
