"""DPZV against a plain, loop-written reading of Algorithm 1."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import kstest

from tests.support import make_system, toy_data
from vflpriv.accountants.auto import AutoAccountant
from vflpriv.audits.twins.probes import in_worlds
from vflpriv.core.canaries import Canary, CanaryKind
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.core.wire import Transcript, Wire
from vflpriv.laws import Gaussian, Laplace
from vflpriv.training.engines.dpzv import DpzvSettings


def run(system, replicas=(0,), data=None):
    transcript = Transcript()
    engine = system.train(replicas, data=data)
    engine.run(Wire(transcript))
    return engine, transcript


def scalars(transcript):
    return torch.stack([m.tensors["delta"] for m in transcript.messages if m.kind == "zo-scalar"], dim=1)


@pytest.mark.parametrize("update", ["sgd", "zo", "joint"])
def test_every_round_is_algorithm_1(update):
    """Losses, clip, mean, table, device and server steps, recomputed one record and one parameter vector at a time."""
    system = make_system(f"dpzv-{update}", noise_std=0.0, clip=0.05, rounds=9)
    s, data = system.settings, system.data
    engine = system.train([0])
    bottoms = [{n: v[0].clone() for n, v in p.items()} for p in engine.bottom_parameters]
    top = {n: v[0].clone() for n, v in engine.top_parameters.items()}
    table = torch.zeros(data.records, data.devices, s.embedding)
    transcript = Transcript()
    wire = Wire(transcript)

    def bottom(w, x):
        return torch.relu(x @ w["weight0"] + w["bias0"])

    def loss(w, rows, label):
        hidden = torch.relu(rows.flatten() @ w["weight0"] + w["bias0"])
        logits = hidden @ w["weight1"] + w["bias1"]
        return torch.logsumexp(logits, 0) - logits[label]

    def shift(w, u, step):
        return {n: w[n] + step * u[n] for n in w}

    for t in range(s.rounds):
        m, ids = system.schedule.members(t)[0], system.schedule.batch(t)
        u = {n: v[0].clone() for n, v in engine.directions.at(t, m).items()}
        u0 = {n: v[0].clone() for n, v in engine.directions.at(t, data.devices).items()}
        assert sum(float(v.square().sum()) for v in u.values()) == pytest.approx(sum(v.numel() for v in u.values()))
        joint = update == "joint"
        up, down = (shift(top, u0, k * s.smoothing) if joint else top for k in (1, -1))
        total, means = 0.0, {}
        for i in ids:
            x, y = data.blocks[m][i], int(data.labels[i])
            plus, minus = (bottom(shift(bottoms[m], u, k * s.smoothing), x) for k in (1, -1))
            rows_plus, rows_minus = table[i].clone(), table[i].clone()
            rows_plus[m], rows_minus[m] = plus, minus
            delta = float(loss(up, rows_plus, y) - loss(down, rows_minus, y)) / s.smoothing
            total += min(max(delta, -s.clip), s.clip)
            means[int(i)] = (plus + minus) / 2
        expected = total / system.schedule.batch_size
        engine.round(t, wire)
        assert float(transcript.messages[-1].tensors["delta"][0]) == pytest.approx(expected, abs=2e-3)
        # Go on from the engine's own scalar, so that rounding does not add up.
        released = float(transcript.messages[-1].tensors["delta"][0])
        for i, mean in means.items():
            table[i, m] = mean
        bottoms[m] = shift(bottoms[m], u, -s.device_rate * released)
        top = _server(update, top, u0, released, table, ids, data, loss, shift, system)
        for n, v in bottoms[m].items():
            torch.testing.assert_close(engine.bottom_parameters[m][n][0], v, atol=1e-5, rtol=1e-4)
        for n, v in top.items():
            torch.testing.assert_close(engine.top_parameters[n][0], v, atol=1e-4, rtol=1e-3)
        top = {n: v[0].clone() for n, v in engine.top_parameters.items()}


def _server(update, top, u0, released, table, ids, data, loss, shift, system):
    s, size = system.settings, system.schedule.batch_size
    if update == "joint":
        return shift(top, u0, -s.server_rate * released)
    if update == "zo":
        up, down = shift(top, u0, s.smoothing), shift(top, u0, -s.smoothing)
        gap = sum(
            float(loss(up, table[i], int(data.labels[i])) - loss(down, table[i], int(data.labels[i]))) for i in ids
        )
        return shift(top, u0, -s.server_rate * gap / (2 * s.smoothing) / size)
    leaves = {n: v.clone().requires_grad_() for n, v in top.items()}
    value = sum(loss(leaves, table[i], int(data.labels[i])) for i in ids) / size
    value.backward()
    return {n: (v - s.server_rate * v.grad).detach() for n, v in leaves.items()}


def test_embeddings_of_the_other_devices_are_stale_and_zero_until_sent():
    system = make_system("dpzv-joint", rounds=1)
    engine, _ = run(system)
    ids = system.schedule.batch(0)
    active = system.schedule.members(0)[0]
    width = system.settings.embedding
    table = engine.table[:, 0].unflatten(1, (system.data.devices, width))
    untouched = [m for m in range(system.data.devices) if m != active]
    assert not table[:, untouched].any()
    assert table[ids, active].any()
    others = [i for i in range(system.data.records) if i not in ids]
    assert not table[others].any()


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("update", ["sgd", "zo", "joint"])
def test_lean_training_is_the_same_training(update, momentum):
    (_, plain), (engine, lean) = (
        run(make_system(f"dpzv-{update}", lean=flag, momentum=momentum)) for flag in (False, True)
    )
    torch.testing.assert_close(scalars(plain), scalars(lean), atol=2e-3, rtol=2e-3)
    assert not any(engine._velocity[m].buffers for m in range(engine.data.devices)), "momentum has no buffers"


def test_noise_is_added_once_a_round_with_its_std_and_from_its_own_stream():
    noisy = make_system("dpzv-joint", noise_std=3.0, device_rate=1e-12, server_rate=1e-12, rounds=40)
    quiet = make_system("dpzv-joint", noise_std=0.0, device_rate=1e-12, server_rate=1e-12, rounds=40)
    noise = scalars(run(noisy, range(64))[1]) - scalars(run(quiet, range(64))[1])
    assert float(noise.std()) == pytest.approx(3.0, rel=0.05)
    correlations = torch.corrcoef(noise.T) - torch.eye(40)
    assert correlations.abs().max() < 0.6, "rounds are independent"
    engine = noisy.train(range(64))
    direction = engine.directions.at(0, noisy.schedule.members(0)[0])["weight0"].flatten(1)
    together = torch.corrcoef(torch.cat([noise[:, :1], direction], dim=1).T)[0, 1:]
    assert together.abs().max() < 0.6, "the noise of a round is not the direction's"


@pytest.mark.parametrize("law", ["gaussian", "laplace", "discrete-gaussian", "discrete-laplace"])
def test_any_law_that_a_deviation_describes_noises_the_scalars(law):
    """What leaves, the ledger and the budget follow the law; the paper speaks of Gaussian noise alone.

    Margin: the right law has p near 0.5 whatever the rounding, the wrong one below 1e-6 with 2,560 values.
    """
    chosen = {"noise": "given", "device_rate": 1e-12, "server_rate": 1e-12, "rounds": 40, "noise_law": law}
    system = make_system("dpzv-joint", noise_std=3.0, **chosen)
    quiet = make_system("dpzv-joint", noise_std=0.0, **chosen)
    declared = system.ledger.releases[0].noise
    assert (declared.name, declared.deviation) == (law, pytest.approx(3.0))
    released, signal = (scalars(run(s, range(64))[1]).double().numpy() for s in (system, quiet))
    if declared.grid:
        signal = np.round(signal / declared.grid) * declared.grid
    noise = released - signal
    other = Gaussian(3.0) if "laplace" in law else Laplace.of_deviation(3.0)
    right, wrong = (one.scores(noise, np.zeros_like(noise), np.random.default_rng(0)) for one in (declared, other))
    assert kstest(right.ravel(), "norm").pvalue > 1e-3
    assert kstest(wrong.ravel(), "norm").pvalue < 1e-6
    assert bool(system.claims) == (law == "gaussian")
    budget = AutoAccountant().budget(system.ledger.exposure(Adversary.parse("device"), Unit.RECORD), 1e-3)
    assert 0 < budget.upper < math.inf


@pytest.mark.parametrize("lean", [False, True])
@pytest.mark.parametrize("update", ["sgd", "zo", "joint"])
def test_equal_replicas_compute_equal_bits_wherever_they_stand(update, lean):
    """Their products are separate ones: as columns of one wide product they would differ in their last bits.

    48 rows of any width begin at multiples of 64 bytes: on some CPUs a product's last bits hang on where in memory it
    begins. Two worlds are compared at the same place, in two runs.
    """
    system = make_system(f"dpzv-{update}", data=toy_data(96), batch_size=48, embedding=5, lean=lean)
    transcript = run(system, [4] * 9)[1]
    assert all(torch.equal(t, t[:1].expand_as(t)) for m in transcript.messages for t in m.tensors.values())


def test_secure_noise_is_not_reproducible():
    first, again = (scalars(run(make_system("dpzv-joint", secure_noise=True))[1]) for _ in range(2))
    assert not torch.equal(first, again)


def test_momentum_is_heavy_ball():
    system = make_system("dpzv-joint", momentum=0.9, rounds=6)
    engine = system.train([0])
    velocity = {}
    wire, transcript = Wire(), Transcript()
    wire = Wire(transcript)
    for t in range(6):
        m = system.schedule.members(t)[0]
        before = engine.bottom_parameters[m]["weight0"].clone()
        u = engine.directions.at(t, m)["weight0"].clone()
        engine.round(t, wire)
        step = float(transcript.messages[-1].tensors["delta"][0]) * u
        velocity[m] = step + 0.9 * velocity.get(m, torch.zeros_like(u))
        expected = before - system.settings.device_rate * velocity[m]
        torch.testing.assert_close(engine.bottom_parameters[m]["weight0"], expected)


@pytest.mark.parametrize("update", ["sgd", "joint", "dp-zo"])
@pytest.mark.parametrize("kind", list(CanaryKind))
def test_a_probe_knows_both_worlds_and_each_replica_releases_its_own(update, kind):
    """The noiseless value of its world is what each replica releases; the worst case sits at ±C/B around the others."""
    system = make_system(f"dpzv-{update}", noise_std=1e-6, rounds=24)
    record = int(system.schedule.batch(0)[0])
    world = torch.tensor([0, 1, 1, 0])
    canary = Canary(kind=kind, record=record, world=world, labels=(0, 2))
    engine, probe = in_worlds(system, range(4), canary)
    values = [value for t in range(24) for value in probe.round(engine, t) if value.worlds is not None]
    rounds = [t for t in range(24) if record in system.schedule.batch(t)]
    assert [value.message.round for value in values] == rounds
    for value in values:
        either = value.worlds
        own = either.gather(1, world.unsqueeze(1)).squeeze(1)
        torch.testing.assert_close(value.message.tensors["delta"], own, atol=1e-3, rtol=1e-3)
        gap = either[:, 0] - either[:, 1]
        bound = 2 * system.settings.clip / system.schedule.batch_size
        assert float(gap.abs().max()) <= bound * (1 + 1e-5)
        if kind is CanaryKind.WORST_CASE:
            torch.testing.assert_close(gap, torch.full((4,), bound))


def test_a_label_moves_rounds_it_is_not_in_only_when_the_server_learns_without_noise():
    """Item 4 of the argument: with sgd and zo the state carries one label into other records' rounds."""
    for update, leaks in (("sgd", True), ("zo", True), ("joint", False)):
        system = make_system(f"dpzv-{update}", noise_std=0.0, data=toy_data(40), batch_size=4, rounds=20)
        record = int(system.schedule.batch(0)[0])
        out = [t for t in range(1, 20) if record not in system.schedule.batch(t)]
        world = torch.tensor([0, 1])
        canary = Canary(kind=CanaryKind.NATURAL, record=record, world=world, labels=(0, 2))
        engine = system.train((0, 0), data=canary.into(system.data))
        transcript = Transcript()
        wire = Wire(transcript)
        for t in range(20):
            engine.round(t, wire)
            # The released scalar itself is public: give both worlds the same one, and see what the state still tells.
            _share(engine)
        found = scalars(transcript)
        differs = bool((found[0, out] - found[1, out]).abs().max() > 1e-4)
        assert differs is leaks, update


def _share(engine) -> None:
    """Make what devices hold the same in both replicas, as post-processing of the same released values would."""
    for parameters in engine.bottom_parameters:
        for value in parameters.values():
            value[1] = value[0]
    engine.table[:, 1] = engine.table[:, 0]
    if engine.settings.server_update == "joint":
        for value in engine.top_parameters.values():
            value[1] = value[0]


@pytest.mark.parametrize(
    ("profile", "rates"),
    [("mnist", (5e-3, 5e-4)), ("cifar10", (5e-3, 1e-4)), ("modelnet40", (1e-5, 1e-5)), ("amazon", (5e-7, 5e-7))],
)
def test_a_profile_is_what_tables_2_and_3_print_where_nothing_else_is_given(profile, rates):
    chosen = {"rounds": 1, "batch_size": 1, "profile": profile}
    settings = DpzvSettings.model_validate(DpzvSettings.completed(chosen))
    assert (settings.server_rate, settings.device_rate) == rates
    printed = {"clip": 10.0, "smoothing": 1e-3, "momentum": 0.9, "delta": 1e-5}
    assert settings.model_dump(include=set(printed)) == printed
    assert settings.top_momentum == 0.9
    own = DpzvSettings.model_validate(DpzvSettings.completed({**chosen, "delta": 1e-3, "device_rate": 0.1}))
    assert (own.delta, own.device_rate, own.clip) == (1e-3, 0.1, 10.0)
    assert DpzvSettings.model_validate(own.model_dump()) == own


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"noise": "given"}, "a number when noise = 'given'"),
        ({"profile": "imagenet"}, "mnist"),
        ({"profile": ["mnist"]}, "mnist"),
        ({"profile": "mnist"}, "completed puts them in"),
        ({"server_update": "dp-sgd"}, "server_noise_std must be > 0"),
        ({"noise_std": -1.0}, "greater than or equal to 0"),
        ({"noise_std": math.nan}, "finite number"),
        ({"delta": 1.0}, "less than 1"),
        ({"protect": "everyone"}, "device"),
        ({"server_update": "adam"}, "sgd"),
        ({"noise_law": "exponential", "noise": "calibrated"}, "one of discrete-gaussian, discrete-laplace, gaussian"),
        ({"noise_law": "laplace"}, "Theorem VI.5 is about no other law"),
    ],
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        DpzvSettings.model_validate({"rounds": 1, "batch_size": 1, **changes})
