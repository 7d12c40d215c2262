"""ZOO-VFL and Syn-ZOO-VFL against a plain, loop-written reading of vfl-cascaded eq. (3) and Algorithm 2."""

from __future__ import annotations

import pytest
import torch

from tests.support import make_system
from tests.training.engines.zo_reading import bottom, first, loss, mean_step, run, same_start, shift
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.core.wire import Transcript, Wire
from vflpriv.training.engines.zoo_vfl import ZooSettings

LAWS = ["sphere", "gaussian"]


def factor(law, u):
    """φ(d) of eq. (2)."""
    return sum(v.numel() for v in u.values()) if law == "sphere" else 1


def server_step(s, law, top, u0, table, ids, labels, size):
    """Lines 9 and 10 of Algorithm 2, with unperturbed embeddings in both terms."""
    ahead = shift(top, u0, s.smoothing)
    gap = sum(float(loss(ahead, table[i], int(labels[i])) - loss(top, table[i], int(labels[i]))) for i in ids) / size
    return shift(top, u0, -s.server_rate * factor(law, u0) / s.smoothing * gap)


@pytest.mark.parametrize("law", LAWS)
def test_every_round_of_zoo_vfl_is_eq_3_on_both_sides(law):
    system = make_system("zoo-vfl", direction=law, rounds=9, smoothing=0.1 if law == "sphere" else 0.02)
    s, data, size = system.settings, system.data, system.schedule.batch_size
    engine, transcript = system.train([0]), Transcript()
    wire = Wire(transcript)
    bottoms, top = [first(p) for p in engine.bottom_parameters], first(engine.top_parameters)
    table = torch.zeros(data.records, data.devices, s.embedding)
    for t in range(s.rounds):
        m, ids = system.schedule.members(t)[0], system.schedule.batch(t)
        u, u0 = first(engine.directions.at(t, m)), first(engine.directions.at(t, data.devices))
        plain = perturbed = 0.0
        for i in ids:
            x, y = data.blocks[m][i], int(data.labels[i])
            table[i, m] = bottom(bottoms[m], x)
            other = table[i].clone()
            other[m] = bottom(shift(bottoms[m], u, s.smoothing), x)
            plain += float(loss(top, table[i], y)) / size
            perturbed += float(loss(top, other, y)) / size
        engine.round(t, wire)
        reply = {name: float(value[0]) for name, value in transcript.messages[-1].tensors.items()}
        assert reply == pytest.approx({"loss": plain, "perturbed": perturbed}, abs=1e-5)
        # Go on from the engine's own losses, so that rounding does not add up.
        gap = (reply["perturbed"] - reply["loss"]) * factor(law, u) / s.smoothing
        bottoms[m] = shift(bottoms[m], u, -s.device_rate * gap)
        top = server_step(s, law, top, u0, table, ids, data.labels, size)
        for name, value in bottoms[m].items():
            torch.testing.assert_close(engine.bottom_parameters[m][name][0], value, atol=1e-4, rtol=1e-3)
        for name, value in top.items():
            torch.testing.assert_close(engine.top_parameters[name][0], value, atol=1e-3, rtol=1e-2)
        top = first(engine.top_parameters)


@pytest.mark.parametrize("law", LAWS)
def test_every_round_of_syn_zoo_vfl_is_algorithm_2(law):
    system = make_system("syn-zoo-vfl", direction=law, rounds=5, smoothing=0.1 if law == "sphere" else 0.02)
    s, data, size = system.settings, system.data, system.schedule.batch_size
    devices = range(data.devices)
    engine, transcript = system.train([0]), Transcript()
    wire = Wire(transcript)
    for t in range(s.rounds):
        ids = system.schedule.batch(t)
        bottoms, top = [first(p) for p in engine.bottom_parameters], first(engine.top_parameters)
        directions = [first(engine.directions.at(t, m)) for m in (*devices, data.devices)]
        rows = {i: torch.stack([bottom(bottoms[m], data.blocks[m][i]) for m in devices]) for i in ids}
        deltas = []
        for m in devices:
            delta = 0.0
            for i in ids:
                other, y = rows[i].clone(), int(data.labels[i])
                other[m] = bottom(shift(bottoms[m], directions[m], s.smoothing), data.blocks[m][i])
                delta += float(loss(top, other, y) - loss(top, rows[i], y)) / size
            deltas.append(delta)
        engine.round(t, wire)
        found = [float(message.tensors["delta"][0]) for message in transcript.messages[-data.devices :]]
        assert found == pytest.approx(deltas, abs=1e-5)
        for m in devices:
            gap = found[m] * factor(law, directions[m]) / s.smoothing
            for name, value in shift(bottoms[m], directions[m], -s.device_rate * gap).items():
                torch.testing.assert_close(engine.bottom_parameters[m][name][0], value, atol=1e-5, rtol=1e-4)
        for name, value in server_step(s, law, top, directions[-1], rows, ids, data.labels, size).items():
            torch.testing.assert_close(engine.top_parameters[name][0], value, atol=1e-3, rtol=1e-2)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("variant", ["zoo-vfl", "syn-zoo-vfl"])
def test_over_many_directions_the_estimates_are_the_gradients(variant, law):
    """The factor φ(d) is right: along the gradient the mean step is the gradient within 8 %."""
    count, smoothing = 4096, 0.05 if law == "sphere" else 0.01
    system = make_system(variant, direction=law, rounds=1, smoothing=smoothing, device_rate=1e-3, server_rate=1e-3)
    engine = system.train(range(count))
    same_start(engine)
    m, ids = system.schedule.members(0)[0], torch.from_numpy(system.schedule.batch(0))
    parties = {"device": engine.bottom_parameters[m], "server": engine.top_parameters}
    before = {party: {n: v.clone() for n, v in p.items()} for party, p in parties.items()}
    gradients = _gradients(system, first(before["device"]), first(before["server"]), engine, m, ids)
    engine.round(0, Wire())
    for party, parameters in parties.items():
        estimate = mean_step(before[party], parameters, 1e-3)
        true = gradients[party]
        size = true.numel()
        along = float(estimate.mean(0) @ true / true.square().sum())
        assert along == pytest.approx(1.0, abs=0.08), party
        away = float((estimate.mean(0) - true).norm() / true.norm())
        assert away < 2 * (size / count) ** 0.5 + 0.08, party


def _gradients(system, w, top, engine, m, ids):
    """True gradients of the first round's loss: all other embeddings are zero, or fresh in a synchronous engine."""
    data, s = system.data, system.settings
    leaves = {party: {n: v.requires_grad_() for n, v in p.items()} for party, p in (("device", w), ("server", top))}
    rows = torch.zeros(len(ids), data.devices, s.embedding)
    if not engine.asynchronous:
        for k in range(data.devices):
            rows[:, k] = bottom(first(engine.bottom_parameters[k]), data.blocks[k][ids])
    rows = [*rows.unbind(1)]
    rows[m] = bottom(leaves["device"], data.blocks[m][ids])
    together = torch.stack(rows, dim=1)
    total = sum(loss(leaves["server"], together[i], int(data.labels[r])) for i, r in enumerate(ids)) / len(ids)
    found = torch.autograd.grad(total, [v for p in leaves.values() for v in p.values()])
    count = len(leaves["device"])
    parts = {"device": found[:count], "server": found[count:]}
    return {party: torch.cat([g.flatten() for g in values]) for party, values in parts.items()}


@pytest.mark.parametrize("variant", ["zoo-vfl", "syn-zoo-vfl", "cascaded", "czofo", "dpzv-zo"])
def test_rates_fall_linearly_on_both_sides(variant):
    """From the same state, round t of T moves by 1 - (1 - f) t/T of what constant rates would."""
    steady, falling = (make_system(variant, rounds=10, final_rate=f).train([0]) for f in (1.0, 0.25))
    m = steady.schedule.members(6)[0]
    for engine in (steady, falling):
        engine.round(6, Wire())
    start = make_system(variant, rounds=10).train([0])
    for pick in (lambda e: e.bottom_parameters[m], lambda e: e.top_parameters):
        first_, fixed, faded = (pick(e)["weight0"] for e in (start, steady, falling))
        assert (fixed - first_).abs().max() > 0
        torch.testing.assert_close(faded - first_, (1 - 0.75 * 0.6) * (fixed - first_), atol=1e-6, rtol=1e-3)


def test_messages_and_bytes_of_zoo_vfl():
    system = make_system("zoo-vfl", rounds=4, schedule="fixed")
    _, transcript, wire = run(system)
    s = system.settings
    assert [m.kind for m in transcript.messages] == ["embedding-pair", "losses"] * 4
    up, down = transcript.messages[:2]
    assert {n: tuple(t.shape) for n, t in up.tensors.items()} == dict.fromkeys(("embedding", "perturbed"), (1, 8, 4))
    assert {n: tuple(t.shape) for n, t in down.tensors.items()} == {"loss": (1,), "perturbed": (1,)}
    assert wire.traffic.up.total() == 4 * 2 * 8 * s.embedding * 4
    assert wire.traffic.down.total() == 4 * 2 * 4


def test_messages_and_bytes_of_syn_zoo_vfl():
    system = make_system("syn-zoo-vfl", rounds=2, schedule="fixed")
    _, transcript, wire = run(system)
    assert [m.kind for m in transcript.messages] == (["embedding-pair"] * 3 + ["loss-difference"] * 3) * 2
    assert {n: tuple(t.shape) for n, t in transcript.messages[-1].tensors.items()} == {"delta": (1,)}
    assert wire.traffic.up.total() == 2 * 3 * 2 * 8 * 4 * 4
    assert wire.traffic.down.total() == 2 * 3 * 4


def test_each_embedding_of_a_pair_is_clipped_and_noised_for_itself():
    quiet = run(make_system("zoo-vfl-embedding", noise_std=0.0, clip=0.2, rounds=1), range(400))[1].messages[0].tensors
    noisy = run(make_system("zoo-vfl-embedding", noise_std=3.0, clip=0.2, rounds=1), range(400))[1].messages[0].tensors
    noise = {name: (noisy[name] - quiet[name]).flatten() for name in quiet}
    for name, value in quiet.items():
        assert float(value.norm(dim=-1).max()) <= 0.2 * (1 + 1e-5)
        assert float(noise[name].std()) == pytest.approx(3.0, rel=0.03)
    together = torch.corrcoef(torch.stack([noise["embedding"], noise["perturbed"]]))[0, 1]
    assert abs(float(together)) < 0.05, "a shared noise would cancel in the difference"


def test_the_ledger_counts_the_pair_as_one_release_of_both():
    system = make_system("zoo-vfl-embedding", noise_std=0.5, clip=2.0)
    (up,) = (r for r in system.ledger.releases if r.kind == "embedding-pair" and Unit.FEATURES in r.sensitivity)
    assert up.leak is None, "devices move by losses alone"
    assert up.sensitivity[Unit.FEATURES] == pytest.approx(2 * 2.0 * 2**0.5)
    exposure = system.ledger.exposure(Adversary.parse("server"), Unit.FEATURES)
    assert not exposure.unprotected
    assert exposure.counts is not None
    worst = int(exposure.counts.max())
    assert exposure.mu == pytest.approx(2 * 2.0 * 2**0.5 / 0.5 * worst**0.5)


def test_a_record_has_a_row_at_every_device_of_a_synchronous_round():
    system = make_system("syn-zoo-vfl", protection="embedding", clip=2.0, noise_std=0.5)
    ups = [r for r in system.ledger.releases if r.kind == "embedding-pair"]
    bounds = {unit: bound for r in ups for unit, bound in r.sensitivity.items()}
    assert bounds[Unit.FEATURES] == pytest.approx(4 * 2**0.5)
    assert bounds[Unit.RECORD] == pytest.approx(4 * (2 * system.data.devices) ** 0.5)


def test_noised_uplinks_protect_features_in_the_trained_models_too():
    """Models move by losses, which read noised embeddings."""
    model = Adversary.parse("model")
    assert make_system("zoo-vfl").ledger.exposure(model, Unit.FEATURES).unprotected
    exposure = make_system("zoo-vfl-embedding").ledger.exposure(model, Unit.FEATURES)
    assert exposure.events
    assert not exposure.unprotected


@pytest.mark.parametrize(("variant", "kind"), [("zoo-vfl", "losses"), ("syn-zoo-vfl", "loss-difference")])
def test_labels_are_unprotected_and_the_ledger_names_the_message(variant, kind):
    system = make_system(variant)
    exposure = system.ledger.exposure(Adversary.parse("device"), Unit.LABEL)
    assert any(text.startswith(kind + " ") for text in exposure.unprotected)
    assert system.engine.claims(system.settings, system.schedule) == ()
    noised = make_system(variant, label_protection="rr", label_noise=1.0)
    assert not noised.ledger.exposure(Adversary.parse("device"), Unit.LABEL).unprotected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"smoothing": 0.0}, "greater than 0"),
        ({"direction": "cube"}, "sphere"),
        ({"activation": "all"}, "one device per round"),
        ({"noise_std": 1.0}, "needs protection"),
    ],
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        ZooSettings.model_validate({"rounds": 1, "batch_size": 1, **changes})
