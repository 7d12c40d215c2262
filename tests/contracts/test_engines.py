"""What every engine must keep, in every variant."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from tests.support import ENGINES, make_system, toy_data
from vflpriv.audits.twins.probes import in_worlds
from vflpriv.common.registry import available
from vflpriv.core.canaries import Canary, CanaryKind
from vflpriv.core.units import Unit
from vflpriv.core.wire import Message, Traffic, Transcript, Wire
from vflpriv.laws import Exact

VARIANTS = list(ENGINES)
TOGETHER = (3, 0, 7)


def run(system, replicas=(0,), data=None):
    transcript = Transcript()
    engine = system.train(replicas, data=data)
    wire = Wire(transcript)
    engine.run(wire)
    return engine, transcript, wire


def outline(message: Message):
    shapes = [(name, tensor.shape[1:], tensor.dtype) for name, tensor in message.tensors.items()]
    return message.kind, message.round, message.sender, message.receiver, shapes


def assert_replica(alone: Transcript, together: Transcript, place: int, *, tolerance: float):
    """A training's messages are those at this place of trainings with several replicas, all numbers at once."""
    pairs = list(zip(alone.messages, together.messages, strict=True))
    one = [tensor[0].double().flatten() for message, _ in pairs for tensor in message.tensors.values()]
    other = [many.tensors[name][place].double().flatten() for message, many in pairs for name in message.tensors]
    torch.testing.assert_close(torch.cat(one), torch.cat(other), rtol=tolerance, atol=tolerance)


@cache
def trained(variant, replicas=(0,)):
    """The messages and the wire of a training, which no test changes; several of them ask about the same one."""
    return run(make_system(variant), replicas)[1:]


def test_every_registered_engine_has_a_variant_here():
    assert {name for name, _ in ENGINES.values()} == set(available("engine"))


@pytest.mark.parametrize("variant", VARIANTS)
def test_replicas_together_equal_replicas_alone(variant):
    together, _ = trained(variant, TOGETHER)
    for place, replica in enumerate(TOGETHER):
        alone, _ = trained(variant, (replica,))
        assert [outline(message) for message in alone.messages] == [outline(message) for message in together.messages]
        assert_replica(alone, together, place, tolerance=2e-4)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_same_seed_gives_the_same_messages_and_another_seed_others(variant):
    first, again, other = trained(variant)[0], *(run(make_system(variant, seed=seed))[1] for seed in (0, 2))
    for a, b in zip(first.messages, again.messages, strict=True):
        assert all(torch.equal(a.tensors[n], b.tensors[n]) for n in a.tensors)
    last = first.messages[-1].tensors, other.messages[-1].tensors
    assert any(last[0][n].shape != last[1][n].shape or not torch.equal(last[0][n], last[1][n]) for n in last[0])


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_ledger_covers_every_kind_of_message(variant):
    transcript, _ = trained(variant)
    declared = {release.kind for release in make_system(variant).ledger.releases}
    assert {m.kind for m in transcript.messages} <= declared


@pytest.mark.parametrize("variant", VARIANTS)
def test_bytes_are_those_of_one_replica(variant):
    transcript, alone = trained(variant)
    _, several = trained(variant, TOGETHER)
    by_hand = sum(4 * t[0].numel() for m in transcript.messages for t in m.tensors.values())
    assert alone.traffic.total == several.traffic.total == by_hand > 0


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_round_runs_on_the_meta_device(variant):
    """No step waits for the host: on `meta` there is nothing to wait for, and any such step raises."""
    system = make_system(variant, torch_device="meta")
    world = torch.tensor([0, 1])
    canary = Canary(kind=CanaryKind.NATURAL, record=int(system.schedule.batch(0)[0]), world=world, labels=(0, 1))
    engine, probe = in_worlds(system, (0, 1), canary)
    traffic = Traffic()
    probe.round(engine, 0, traffic)
    assert traffic.total > 0


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_loss_falls(variant):
    """Margin: two thirds of the loss that is allowed are left at most; accuracies are 0.87 and 0.92 at least."""
    zeroth_order = variant.startswith(("dpzv", "zoo-vfl", "syn-zoo-vfl", "cascaded"))
    quiet = {"noise_std": 0.0} if zeroth_order else {}
    rate = 0.06 if zeroth_order else 0.5
    rates = {"device_rate": rate, "server_rate": rate}
    system = make_system(variant, data=toy_data(120), rounds=100, batch_size=30, **rates, **quiet)
    engine = system.train(range(4))
    before = engine.evaluate()
    engine.run(Wire())
    after = engine.evaluate()
    assert after.loss.mean() < (0.6 if zeroth_order else 0.3) * before.loss.mean()
    assert after.accuracy.mean() > (0.7 if zeroth_order else 0.85)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_canary_changes_only_the_replicas_of_its_other_world(variant):
    """Up to the canary's first round both worlds are the same; replicas with the same number differ only by world."""
    system = make_system(variant)
    record = int(system.schedule.batch(4)[0])
    first = int(system.schedule.first_rounds()[record])
    canary = Canary(kind=CanaryKind.NATURAL, record=record, world=torch.tensor([0, 1]), labels=(0, 1))
    _, transcript, _ = run(system, replicas=(5, 5), data=canary.into(system.data))
    before = [m for m in transcript.messages if m.round < first]
    assert all(torch.equal(t[0], t[1]) for m in before for t in m.tensors.values())
    after = [m for m in transcript.messages if m.round >= first]
    assert any(not torch.equal(t[0], t[1]) for m in after for t in m.tensors.values())


@pytest.mark.parametrize("variant", VARIANTS)
def test_noise_is_declared_where_it_is_added(variant):
    """A mechanism with noise has a release with that noise, and none without noise is declared noised."""
    system = make_system(variant)
    mechanisms = system.engine.mechanisms(system.settings, system.schedule)
    noised = {m.on_grid for m in mechanisms.values() if m.noise_std}
    if system.settings.label_mechanism is not None:
        noised.add(system.settings.label_mechanism.noise)
    declared = {r.noise for r in system.ledger.releases if not isinstance(r.noise, Exact)}
    assert noised == declared


@pytest.mark.parametrize("variant", VARIANTS)
def test_claims_speak_of_units_and_views_the_ledger_knows(variant):
    system = make_system(variant)
    for claim in system.engine.claims(system.settings, system.schedule):
        exposure = system.ledger.exposure(claim.adversary, claim.unit)
        assert claim.unit in Unit
        assert exposure.events or exposure.unprotected or exposure.not_applicable
