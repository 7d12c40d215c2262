"""VAFL against a plain, loop-written reading of Algorithms 1 and 2, its delays, and its ledger."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tests.support import make_system, toy_data
from vflpriv.common.registry import find
from vflpriv.config.loading import load_config
from vflpriv.core.ledger import Reading
from vflpriv.core.schedules import Activation, Batching, Schedule
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.core.wire import Transcript, Wire
from vflpriv.run.systems import build_system, load_data
from vflpriv.training.engines.vafl import VaflSettings, senders, stale_positions

SERVER = Adversary.parse("server")


def run(system, replicas=(0,)):
    transcript = Transcript()
    engine = system.train(replicas)
    wire = Wire(transcript)
    engine.run(wire)
    return engine, transcript, wire


def bottom(w, x, activate):
    out = x @ w["weight0"] + w["bias0"]
    return torch.relu(out) if activate else out


def loss_of(aggregation, top, rows, label):
    """One record's loss: rows is (devices, width)."""
    if aggregation == "sum":
        logits = rows.sum(0)
    else:
        inputs = rows.flatten() if aggregation == "concat" else (top["combination"][:, None] * rows).sum(0)
        logits = torch.relu(inputs @ top["weight0"] + top["bias0"]) @ top["weight1"] + top["bias1"]
    return torch.logsumexp(logits, 0) - logits[label]


@pytest.mark.parametrize(
    ("variant", "changes"),
    [
        ("vafl-concat", {}),
        ("vafl-concat", {"activation": "clocks", "max_delay": 2}),
        ("vafl-sum", {}),
        ("vafl-weighted", {"combination_rate": 0.01}),
        ("vafl-tsync-some", {}),
        ("vafl-tsync-some", {"aggregation": "sum", "max_delay": 1}),
        ("vafl-tsync-all", {}),
    ],
)
def test_every_round_is_algorithm_1(variant, changes):
    """Table, delays, both gradients at the same θ0, regulariser; one record and one device at a time."""
    system = make_system(variant, rounds=9, device_rate=0.3, server_rate=0.2, regulariser=0.01, **changes)
    s, data, schedule = system.settings, system.data, system.schedule
    engine = system.train([0])
    models = [{n: v[0].clone() for n, v in p.items()} for p in engine.bank.parameters]
    top = {n: v[0].clone() for n, v in engine.top_parameters.items()}
    activate, width = s.aggregation != "sum", engine.width
    table = torch.zeros(data.records, data.devices, width)
    last = np.full((data.records, data.devices), -1)
    transcript = Transcript()
    wire = Wire(transcript)
    for t in range(s.rounds):
        ids, members = schedule.batch(t), schedule.members(t)
        for m in range(data.devices):
            for i in ids:
                old = last[i, m] < 0 or t - last[i, m] > (s.max_delay or math.inf)
                if m in members or (s.max_delay is not None and old):
                    table[i, m], last[i, m] = bottom(models[m], data.blocks[m][i], activate).detach(), t
        leaves = {n: v.clone().requires_grad_() for n, v in top.items()}
        rows = table[ids].clone().requires_grad_()
        labels = [int(data.labels[i]) for i in ids]
        loss = sum(loss_of(s.aggregation, leaves, r, y) for r, y in zip(rows, labels, strict=True))
        by_rows, *rest = torch.autograd.grad(loss / schedule.batch_size, [rows, *leaves.values()])
        for m in members:
            own = {n: v.clone().requires_grad_() for n, v in models[m].items()}
            out = bottom(own, data.blocks[m][ids], activate)
            step = torch.autograd.grad(out, list(own.values()), by_rows[:, m])
            models[m] = {
                n: v - s.device_rate * (g + 0.01 * v) for (n, v), g in zip(models[m].items(), step, strict=True)
            }
        for (n, v), g in zip(top.items(), rest, strict=True):
            top[n] = v - (s.combination_rate or s.server_rate if n == "combination" else s.server_rate) * g
        engine.round(t, wire)
        replies = [m for m in transcript.messages if m.round == t and m.kind.endswith("gradient")]
        assert [m.receiver.index for m in replies] == list(members)
        for message in replies:
            expected = by_rows[:, message.receiver.index]
            torch.testing.assert_close(message.tensors["gradient"][0], expected, atol=1e-6, rtol=1e-3)
        for found, w in [(engine.top_parameters, top), *zip(engine.bank.parameters, models, strict=True)]:
            for n, v in w.items():
                torch.testing.assert_close(found[n][0], v, atol=1e-6, rtol=1e-3)
        if engine.stale:
            torch.testing.assert_close(engine.table[:, 0].unflatten(1, (-1, width)), table, atol=1e-6, rtol=1e-3)


def test_waiting_for_all_devices_is_synchronous_and_for_one_is_one_clock():
    everyone = make_system("vafl-tsync-some", together=None)
    assert everyone.schedule.active.all()
    assert everyone.schedule.staleness().total() == 0
    alone = make_system("vafl-tsync-some", together=1)
    assert (alone.schedule.active.sum(1) == 1).all()


def test_messages_and_their_bytes_are_exact():
    system = make_system("vafl-concat", rounds=6, batch_size=10)
    _, _, wire = run(system)
    assert dict(wire.traffic.messages) == {"embeddings": 6, "embedding-gradient": 6}
    each = 4 * 10 * system.settings.embedding
    assert set(wire.traffic.up.values()) == set(wire.traffic.down.values()) == {2 * each}
    _, _, wire = run(make_system("vafl-tsync-some", rounds=6, batch_size=10))
    assert dict(wire.traffic.messages) == {"embeddings": 12, "embedding-gradient": 12}
    assert wire.traffic.total == 24 * each


@pytest.mark.parametrize("activation", ["clocks", "round-robin"])
@pytest.mark.parametrize("delay", [1, 3, 10])
def test_no_embedding_that_is_read_is_older_than_promised(activation, delay):
    system = make_system("vafl-concat", rounds=60, activation=activation, max_delay=delay)
    _, transcript, wire = run(system)
    last = np.full((system.data.records, system.data.devices), -1)
    oldest, asked = 0, 0
    for t in range(60):
        mine = [m for m in transcript.messages if m.round == t]
        for message in mine:
            if message.kind == "embeddings":
                last[message.records.numpy(), message.sender.index] = t
            if message.kind == "refresh-request":
                assert not message.tensors
                asked += 1
        ages = t - last[system.schedule.batch(t)]
        assert (last[system.schedule.batch(t)] >= 0).all(), "never sent counts as too old"
        oldest = max(oldest, int(ages.max()))
    assert oldest == delay if delay < 10 else oldest <= delay
    assert wire.traffic.messages["embeddings"] == 60 + asked
    free = max(system.schedule.staleness())
    assert free > 10, "without the bound they would be older"


def test_requests_come_after_the_uplink_that_names_the_batch_and_ask_only_for_old_records():
    system = make_system("vafl-weighted", rounds=20)
    _, transcript, _ = run(system)
    plan = stale_positions(system.schedule, system.settings.max_delay)
    for t in range(20):
        mine = [m for m in transcript.messages if m.round == t]
        pairs = len(plan[t])
        kinds = [m.kind for m in mine]
        assert kinds == ["embeddings", *["refresh-request", "embeddings"] * pairs, "embedding-gradient"]
        for request, answer in zip(mine[1:-1:2], mine[2:-1:2], strict=True):
            assert request.receiver == answer.sender
            ids = system.schedule.batch(t)[plan[t][request.receiver.index]]
            assert request.records.tolist() == answer.records.tolist() == ids.tolist()
            assert answer.tensors["embedding"].shape == (1, len(ids), system.settings.embedding)


def test_without_a_bound_nothing_is_asked_for():
    schedule = make_system("vafl-concat").schedule
    assert not any(stale_positions(schedule, None))
    assert np.array_equal(senders(schedule, None), schedule.active)


def test_the_last_layers_noise_is_on_every_message_and_answer():
    loud, quiet = (
        make_system("vafl-noise", hidden_noise=0.0, noise_std=std, max_delay=1, rounds=30, device_rate=1e-12)
        for std in (2.0, 0.0)
    )
    found = [[m for m in run(x)[1].messages if m.kind == "embeddings"] for x in (loud, quiet)]
    noise = [(a.tensors["embedding"] - b.tensors["embedding"]).flatten() for a, b in zip(*found, strict=True)]
    assert len(noise) > 30
    assert float(torch.cat(noise).std()) == pytest.approx(2.0, rel=0.05)
    assert all(float(part.std()) > 1.0 for part in noise)
    assert all(float(m.tensors["embedding"].norm(dim=-1).max()) <= 1 + 1e-5 for m in found[1])


def test_random_neurons_are_uniform_with_their_std_and_fresh_every_round():
    engine = make_system("vafl-noise", hidden=(400,), hidden_noise=0.5).train([0, 1])
    model = engine.bank.models[0]
    first, again, other = (model.neurons(engine._neurons, 50, t, [2])["neuron0"] for t in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert float(first.std()) == pytest.approx(0.5, rel=0.02)
    assert float(first.abs().max()) <= math.sqrt(3) * 0.5 + 1e-6
    assert float(first.pow(4).mean() / first.var() ** 2) == pytest.approx(9 / 5, rel=0.05), "uniform, not normal"
    assert not torch.equal(first[0], first[1]), "each replica its own"


def test_random_neurons_move_the_embeddings_but_not_the_evaluation():
    plain, noisy = (make_system("vafl-noise", noise_std=0.0, hidden_noise=c) for c in (0.0, 0.3))
    engines = [x.train([0]) for x in (plain, noisy)]
    logits = [e.predict(e.data.test_blocks, 1) for e in engines]
    assert torch.equal(*logits)
    sent = [run(x)[1].messages[0].tensors["embedding"] for x in (plain, noisy)]
    assert not torch.equal(*sent)


def test_theorem_6_claims_ten_times_less_than_the_rows_alone_give_away():
    """PRIVACY.md: N = 60000, N_m = 600, K = 10⁴, S = 2, c = 10: claimed 0.2, true 2.0."""
    engine = find("engine", "vafl")
    s = VaflSettings(
        rounds=20_000, batch_size=600, protection="embedding", clip=1.0, noise_std=10.0, activation="round-robin"
    )
    schedule = engine.draw_schedule(s, records=60_000, devices=2, seed=0)
    claim, literal = engine.claims(s, schedule)
    assert (claim.unit, claim.adversary) == (Unit.FEATURES, SERVER)
    assert claim.mu == pytest.approx(0.2)
    assert [c.where for c in (claim, literal)] == ["Theorem 6, K = steps", "Theorem 6, K = samples"]
    assert literal.mu == pytest.approx(claim.mu * math.sqrt(600))
    rows = engine.ledger(s, schedule).exposure(SERVER, Unit.FEATURES, reading=Reading.PAPER)
    assert rows.mu == pytest.approx(2.0)
    assert rows.mu == pytest.approx(claim.mu * math.sqrt(60_000 / 600))


def test_the_bundled_system_exceeds_one_reading_of_theorem_6_and_not_the_other():
    """Each of at most two rows of a record gives S/c = 1; K in steps claims 0.214 for it, K in samples 1.709."""
    config = load_config("papers")
    place = [section.key for section in config.system].index("vafl-rows")
    system = build_system(config, place, load_data(config))
    steps, samples = system.engine.claims(system.settings, system.schedule)
    assert (steps.mu, samples.mu) == (pytest.approx(0.2136, abs=1e-4), pytest.approx(1.7087, abs=1e-4))
    rows = system.ledger.exposure(SERVER, Unit.FEATURES, reading=Reading.PAPER)
    assert steps.mu < rows.mu < samples.mu


def test_a_devices_own_model_carries_a_record_into_later_messages_without_it():
    """Two worlds that differ in one record's features: messages that do not speak of it differ too."""
    system = make_system("vafl-concat", data=toy_data(40), batch_size=4, rounds=40, device_rate=0.5)
    record = int(system.schedule.batch(0)[0])
    changed = toy_data(40)
    changed.blocks[system.schedule.members(0)[0]][record] += 3
    _, a, _ = run(system)
    _, b, _ = run(make_system("vafl-concat", data=changed, batch_size=4, rounds=40, device_rate=0.5))
    apart = [
        float((x.tensors["embedding"] - y.tensors["embedding"]).abs().max())
        for x, y in zip(a.messages, b.messages, strict=True)
        if x.kind == "embeddings" and record not in x.records.tolist() and x.sender == a.messages[0].sender
    ]
    assert max(apart) > 1e-3
    noisy = make_system("vafl-noise")
    paper, rigorous = (noisy.ledger.exposure(SERVER, Unit.FEATURES, reading=r) for r in Reading.__members__.values())
    assert {paper.reading, rigorous.reading} == set(Reading)
    mus = {e.reading: e.mu for e in (paper, rigorous)}
    assert mus[Reading.RIGOROUS] > mus[Reading.PAPER]


def test_the_ledger_counts_the_worst_device_for_its_own_data_and_all_devices_for_a_record():
    settings = {"rates": (5.0, 1.0, 1.0), "rounds": 200, "max_delay": None}
    system = make_system("vafl-noise", **settings)
    s, schedule = system.settings, system.schedule
    one = 2 * s.clip / s.noise_std
    counts = [schedule.counts(schedule.active[:, m]).max() for m in range(3)]
    features = system.ledger.exposure(SERVER, Unit.FEATURES, reading=Reading.PAPER)
    assert features.mu == pytest.approx(one * math.sqrt(max(counts)))
    record = system.ledger.exposure(SERVER, Unit.RECORD, reading=Reading.PAPER)
    every = schedule.counts(np.ones(200, dtype=np.bool_)).max()
    assert record.mu == pytest.approx(one * math.sqrt(every))
    client = system.ledger.exposure(SERVER, Unit.CLIENT)
    assert client.mu == pytest.approx(one * math.sqrt(schedule.batch_size * schedule.active.sum(0).max()))
    together = make_system("vafl-tsync-noise", max_delay=None, rounds=200)
    both = together.ledger.exposure(SERVER, Unit.RECORD, reading=Reading.PAPER)
    every = together.schedule.counts(np.ones(200, dtype=np.bool_)).max()
    assert both.mu == pytest.approx(one * math.sqrt(2 * every)), "two rows of a record in a round"


def test_refreshes_cost_privacy_and_labels_are_never_covered():
    free, bounded = (make_system("vafl-noise", rounds=60, max_delay=d) for d in (None, 1))
    mus = [x.ledger.exposure(SERVER, Unit.FEATURES, reading=Reading.PAPER).mu for x in (free, bounded)]
    assert mus[1] > mus[0]
    device = free.ledger.exposure(Adversary.parse("device"), Unit.LABEL)
    assert device.unprotected


def test_client_level_noise_is_vimadmms_claim_and_no_noise_is_none():
    (claim,) = (lambda x: x.engine.claims(x.settings, x.schedule))(make_system("vafl-client"))
    assert (claim.where, claim.unit) == ("Theorem 2", Unit.CLIENT_ZERO)
    plain = make_system("vafl-concat")
    assert plain.engine.claims(plain.settings, plain.schedule) == ()


def test_stale_positions_by_hand():
    """Two devices in turn on the same full batch: with D = 1 nothing is ever too old but what was never sent."""
    schedule = Schedule.draw(
        batching=Batching.FULL,
        activation=Activation.ROUND_ROBIN,
        records=3,
        batch_size=3,
        rounds=4,
        devices=2,
        seed=0,
    )
    found = [{m: p.tolist() for m, p in asked.items()} for asked in stale_positions(schedule, 1)]
    assert found == [{1: [0, 1, 2]}, {}, {}, {}]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_delay": 0}, "greater than or equal to 1"),
        ({"activation": "all"}, "clocks or round-robin"),
        ({"hidden_noise": -1.0}, "a number >= 0"),
        ({"noise_std": 1.0}, "without a clip it protects nothing"),
        ({"aggregation": "mean"}, "weighted"),
    ],
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        VaflSettings.model_validate({"rounds": 1, "batch_size": 1, **changes})


def test_more_devices_than_there_are_cannot_be_waited_for():
    with pytest.raises(ValueError, match="together"):
        make_system("vafl-tsync-some", together=4)
