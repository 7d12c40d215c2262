"""What every defence must keep, on every engine whose messages it changes."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from tests.contracts.test_engines import assert_replica, run
from tests.support import make_system, toy_data
from vflpriv.common.registry import available, find
from vflpriv.core.kinds import Content
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.core.wire import Wire
from vflpriv.run.summary.budgets import accounted
from vflpriv.run.systems import inapplicable
from vflpriv.training.defence import NO_EPSILON
from vflpriv.training.defences import cae

NAMES = list(available("defence"))
VARIANTS = ("split-concat", "split-sum", "vafl-concat", "fedbcd", "dpzv-sgd", "czofo")
DATA = {2: toy_data(classes=2), 3: toy_data()}


def classes_for(name: str) -> int:
    return 2 if available("defence")[name].binary else 3


def system(variant: str, name: str, *, defend: bool = True, **changes):
    """A system with as many classes as the defence is for, under it or without it."""
    return make_system(variant, data=DATA[classes_for(name)], defence=name if defend else None, **changes)


@cache
def undefended(variant: str, classes: int, rounds: int):
    """A training without any defence, which many are compared with."""
    return run(make_system(variant, data=DATA[classes], rounds=rounds))


@pytest.fixture(autouse=True)
def _brief_autoencoders(request, monkeypatch):
    """Autoencoders that are trained for long, as in earnest, have to stay equal on one engine; on others briefly."""
    if getattr(request.node, "callspec", None) is None or request.node.callspec.params.get("variant") != "split-concat":
        monkeypatch.setattr(cae, "_STEPS", 20)


def fits(variant: str, name: str) -> bool:
    plain, defence = system(variant, name, defend=False), available("defence")[name]()
    return inapplicable(defence, plain.engine, plain.settings, plain.schedule, plain.classes) is None


CASES = [(variant, name) for name in NAMES for variant in VARIANTS if fits(variant, name)]
AT_THE_WIRE = [(variant, name) for variant, name in CASES if available("defence")[name].content is not None]


def test_every_defence_fits_an_engine_and_says_why_it_fits_no_other():
    elsewhere = {name for name in NAMES if available("defence")[name].of_texts}  # tests/training/defences/test_texts.py
    assert {name for _, name in CASES} == set(NAMES) - elsewhere
    for name in NAMES:
        defence = available("defence")[name]()
        reason = defence.refusal(kinds={"zo-scalar"}, fields=(), classes=classes_for(name))
        assert reason.startswith("needs ")


@pytest.mark.parametrize("name", NAMES)
def test_it_says_what_it_is_and_what_it_promises(name):
    defence = find("defence", name)()
    assert defence.summary
    assert defence.source
    assert defence.promise == NO_EPSILON or "ε" in defence.promise
    assert defence.content in (Content.GRADIENT, Content.OUTPUTS) or defence.settings or defence.of_texts
    assert all(field.description for field in type(defence).model_fields.values())
    assert defence.model_dump(mode="json")["name"] == name


@pytest.mark.parametrize(("variant", "name"), AT_THE_WIRE)
def test_messages_of_its_content_change_and_others_do_not(variant, name):
    defended, plain = run(system(variant, name, rounds=1))[1], undefended(variant, classes_for(name), 1)[1]
    content = available("defence")[name].content
    changed = {
        ours.sender.is_server
        for ours, theirs in zip(defended.messages, plain.messages, strict=True)
        if any(not torch.equal(ours.tensors[n], theirs.tensors[n]) for n in ours.tensors)
    }
    assert (content is Content.GRADIENT) in changed
    assert content is Content.OUTPUTS or changed == {True}, "the first round's outputs are not the server's to change"


@pytest.mark.parametrize(("variant", "name"), CASES)
def test_replicas_together_equal_replicas_alone_and_the_seed_decides(variant, name):
    defended = system(variant, name, rounds=6)
    (_, together, _), (_, again, _) = (run(defended, replicas=(3, 7)) for _ in range(2))
    for one, same in zip(together.messages, again.messages, strict=True):
        assert all(torch.equal(one.tensors[n], same.tensors[n]) for n in same.tensors)
    for place, replica in enumerate((3, 7)):
        assert_replica(run(defended, replicas=(replica,))[1], together, place, tolerance=1e-3)


@pytest.mark.parametrize(("variant", "name"), CASES)
def test_no_more_bytes_are_sent_than_without_it(variant, name):
    defended, plain = run(system(variant, name, rounds=3))[2], undefended(variant, classes_for(name), 3)[2]
    assert 0 < defended.traffic.total <= plain.traffic.total


@pytest.mark.parametrize(("variant", "name"), CASES)
def test_the_ledger_gives_the_credit_that_it_promises(variant, name):
    promise = find("defence", name)().promise
    budgets = [
        accounted("auto", system(variant, name, defend=defend), Adversary.parse("device(0)"), Unit.LABEL).upper
        for defend in (True, False)
    ]
    if promise.startswith("label ε = "):
        assert budgets[0] <= float(promise.removeprefix("label ε = ")) * 1.01
    else:
        assert budgets[0] == budgets[1]


@pytest.mark.parametrize(("variant", "name"), AT_THE_WIRE)
def test_a_round_runs_on_the_meta_device(variant, name, monkeypatch):
    monkeypatch.setattr(cae, "_STEPS", 2)
    system(variant, name, torch_device="meta").train((0, 1)).round(0, Wire())


@pytest.mark.parametrize(("variant", "name"), AT_THE_WIRE)
def test_a_batch_without_records_passes(variant, name):
    under = system(variant, name, schedule="poisson", batch_size=1, rounds=20)
    assert under.schedule.size.min() == 0
    run(under)
