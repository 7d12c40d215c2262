"""Contract of attacks: each declares what it needs, and sees nothing but its view and its few known labels."""

from __future__ import annotations

import dataclasses
import gc
import inspect
import types

import pytest
import torch

from tests.attacks.support import view_of
from tests.support import ENGINES, make_system, toy_data
from vflpriv.audits.scoring.labels import draw_auxiliary
from vflpriv.audits.scoring.trials import Trials
from vflpriv.common.registry import available
from vflpriv.core.attack import Auxiliary
from vflpriv.core.budgets import most_gain
from vflpriv.core.data import VerticalData
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary, Belongings, View
from vflpriv.core.wire import Message, Transcript, Wire
from vflpriv.run.summary.budgets import accounted
from vflpriv.training.engine import Engine

ATTACKS = list(available("attack").values())
LIGHT = [attack for attack in ATTACKS if attack.target == "labels" and not attack.heavy]
SOME = ["dpzv-joint", "zoo-vfl-sum", "czofo-sum", "split-concat", "split-sum", "vafl-weighted", "fdml", "vimadmm"]


def trained(variant: str, rounds: int = 6):
    system = make_system(variant, rounds=rounds)
    transcript = Transcript()
    engine = system.train([0])
    engine.run(Wire(transcript))
    return system, engine, transcript


@pytest.mark.parametrize("attack", ATTACKS)
def test_it_declares_itself(attack):
    assert attack.name
    assert attack.summary
    assert attack.target in ("labels", "features", "attribute", "membership", "tokens", "property", "integrity")
    assert attack.needs
    assert list(inspect.signature(attack.run).parameters) == ["self", "view", "auxiliary"]
    assert isinstance(attack.heavy, bool)
    if attack.target == "labels":
        assert isinstance(attack.auxiliary, bool)
    if attack.target != "membership":  # without predictions a membership attack could only toss a coin
        assert list(inspect.signature(attack.blind).parameters) == ["self", "view", "auxiliary"]


@pytest.mark.parametrize("variant", list(ENGINES))
def test_attacks_run_or_say_why_not_through_every_view(variant):
    run = trained(variant)
    truth, classes = run[0].data.labels, run[0].data.classes
    for adversary in ("device(0)", "devices(0, 2)", "devices(all)", "eavesdropper", "outsider", "model"):
        view = view_of(*run, adversary)
        for attack in LIGHT:
            reason = attack().refusal(view)
            if reason is not None:
                assert reason.startswith("needs ")
                continue
            auxiliary = draw_auxiliary(truth, classes, per_class=2 if attack.auxiliary else 0, seed=0)
            guess = attack().run(view, auxiliary)
            assert guess.values.shape == (1, len(guess.records))
            assert len(guess.records) > 0
            assert set(guess.values.unique().tolist()) <= set(range(classes))


@pytest.mark.parametrize("variant", ["split-sum", "vimadmm", "zoo-vfl-sum", "dpzv-sgd"])
def test_an_attack_repeats_itself(variant):
    view = view_of(*trained(variant), "device(0)")
    auxiliary = Auxiliary(records=torch.arange(6), labels=torch.arange(6) % 3, seed=5)
    for attack in LIGHT:
        if attack().refusal(view) is None:
            again = [attack().run(view, auxiliary).values for _ in range(2)]
            assert torch.equal(*again)


@pytest.mark.parametrize("variant", ["split-concat", "split-sum", "vimadmm"])
def test_no_attack_gains_more_than_the_accounted_budget_of_noised_labels_allows(variant):
    """Features tell nothing about the labels, so that all success comes from the messages."""
    coins = torch.randint(2, (600,), generator=torch.Generator().manual_seed(4))
    data = dataclasses.replace(toy_data(records=600, classes=2), labels=coins)
    noised = {"label_protection": "rr", "label_noise": 0.5}
    system = make_system(variant, data=data, rounds=25, batch_size=48, **noised)
    adversary = Adversary.parse("devices(all)")
    trials = Trials(system=system, seeds=2, labels_per_class=4, confidence=0.95)
    attempts = trials.run([attack() for attack in LIGHT], [adversary])
    allowed = most_gain(accounted("auto", system, adversary, Unit.LABEL))
    reached = {a.attack: a.mean.leakage.value for a in attempts if a.mean is not None}
    assert allowed < 0.25
    assert max(reached.values()) > 0.05
    # Three standard errors of a share of 1200 guesses.
    assert all(leakage <= allowed + 3 * (0.25 / 1200) ** 0.5 for leakage in reached.values()), reached


@pytest.mark.parametrize("variant", ["split-concat", "split-sum", "vimadmm"])
def test_outputs_that_tell_of_features_are_no_leak_of_noised_labels(variant):
    """An eavesdropper reads features in what devices send: these tell most labels, whatever is done to labels."""
    data = toy_data(records=600)
    noised = {"label_protection": "rr", "label_noise": 0.5}
    system = make_system(variant, data=data, rounds=25, batch_size=48, **noised)
    adversary = Adversary.parse("eavesdropper")
    trials = Trials(system=system, seeds=2, labels_per_class=4, confidence=0.95)
    attempts = trials.run([attack() for attack in LIGHT], [adversary])
    found = {a.attack: a.mean for a in attempts if a.mean is not None}
    allowed = most_gain(accounted("auto", system, adversary, Unit.LABEL))
    assert found["label_embedding_clusters"].value > 1 / 3 + allowed + 0.1
    assert all(mean.leakage.value <= allowed + 3 * (0.25 / 1200) ** 0.5 for mean in found.values()), found


def reachable(root: object) -> list[object]:
    """Every object that code could reach from this one; not what every module can import."""
    visited: dict[int, object] = {}
    queue = [root]
    while queue:
        item = queue.pop()
        if id(item) in visited or isinstance(item, types.ModuleType | type):
            continue
        visited[id(item)] = item
        if isinstance(item, torch.Tensor):
            queue += [item._base, item.grad_fn]
        elif isinstance(item, types.FunctionType):
            queue += [cell.cell_contents for cell in item.__closure__ or ()] + [item.__defaults__]
        else:
            queue += gc.get_referents(item)
    return list(visited.values())


@pytest.mark.parametrize("adversary", ["device(0)", "devices(0, 2)", "eavesdropper"])
@pytest.mark.parametrize("variant", SOME)
def test_a_view_has_no_path_to_the_servers_labels(variant, adversary):
    """Walk everything reachable from a view: no engine, no data set, no tensor that holds the training labels."""
    system, engine, transcript = trained(variant)
    view = view_of(system, engine, transcript, adversary)
    labels = system.data.labels
    for item in reachable(view):
        assert not isinstance(item, Engine | VerticalData)
        if isinstance(item, torch.Tensor):
            assert item.dtype.is_floating_point or not torch.equal(item.flatten(), labels)
            assert item.grad_fn is None
            assert not item.is_floating_point() or item.shape[-1:] != labels.shape or not (item == labels).all()


def test_the_walk_finds_labels_that_are_hidden_well():
    """The test above can fail: a closure, a bound method and a base tensor are all paths."""
    system, engine, transcript = trained("split-sum")
    view = view_of(system, engine, transcript, "device(0)")
    hidden = dataclasses.replace(view.own[0], apply=lambda parameters, rows: engine.data.labels)
    leaky = dataclasses.replace(view, own={0: hidden})
    assert any(isinstance(item, VerticalData) for item in reachable(leaky))
    bound = dataclasses.replace(view.own[0], apply=engine.predict)
    assert any(isinstance(item, Engine) for item in reachable(dataclasses.replace(view, own={0: bound})))


def test_a_view_holds_these_things_and_no_others():
    system, engine, transcript = trained("split-sum")
    view = view_of(system, engine, transcript, "device(0)")
    assert {f.name for f in dataclasses.fields(View)} == {"adversary", "messages", "classes", "own"}
    assert {f.name for f in dataclasses.fields(Belongings)} == {"features", "apply", "initial", "trained", "conduct"}
    assert {f.name for f in dataclasses.fields(Message)} == {
        *("round", "sender", "receiver", "kind", "tensors", "records", "encrypted", "batch", "size")
    }
    assert set(view.own) == {0}
    for message in view.messages:
        assert message.device.index == 0
    assert not view_of(system, engine, transcript, "eavesdropper").own


def test_a_silent_view_of_an_onlooker_keeps_what_devices_sent():
    view = view_of(*trained("split-concat"), "eavesdropper")
    silent = view.silent()
    assert {m.kind for m in silent.messages} == {"embeddings"}
    assert len(silent.messages) == sum(m.receiver.is_server for m in view.messages)


def test_a_silent_view_keeps_nothing_that_training_made():
    view = view_of(*trained("split-concat"), "device(1)")
    silent = view.silent()
    assert silent.messages == ()
    assert all(torch.equal(silent.own[1].trained[n], view.own[1].initial[n]) for n in view.own[1].initial)
    assert any(not torch.equal(view.own[1].trained[n], view.own[1].initial[n]) for n in view.own[1].initial)
