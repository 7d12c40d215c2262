"""What every defence must keep, on every engine whose messages it changes."""

from __future__ import annotations

import pytest
import torch

from tests.contracts.test_engines import run
from tests.support import make_system, toy_data
from vflpriv.common.registry import available
from vflpriv.core.kinds import Content
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.run.systems import sent_kinds
from vflpriv.training.defence import Defence

NAMES = list(available("defence"))
ENGINES = ("split-concat", "split-sum", "vafl-concat", "fedbcd", "dpzv-sgd")
DATA = {2: toy_data(classes=2), 3: toy_data()}


def system(variant: str, name: str | None, classes: int | None = None, **changes):
    """A system under a defence, with as many classes as it is for."""
    binary = name is not None and available("defence")[name].binary
    return make_system(variant, data=DATA[classes or (2 if binary else 3)], defence=name, **changes)


def fits(variant: str, name: str) -> bool:
    under = system(variant, name)
    kinds = sent_kinds(under.engine, under.settings, under.schedule)
    return under.settings.defence.refusal(kinds, under.classes) is None


CASES = [(variant, name) for name in NAMES for variant in ENGINES if fits(variant, name)]


def test_every_defence_fits_an_engine_and_says_why_it_fits_no_other():
    assert {name for _, name in CASES} == set(NAMES)
    for name in NAMES:
        defence: Defence = available("defence")[name]()
        assert defence.refusal({"zo-scalar"}, 2).startswith(f"needs messages with {defence.content.value}")


@pytest.mark.parametrize("name", NAMES)
def test_it_says_what_it_is_and_what_it_promises(name):
    defence = available("defence")[name]
    assert defence.summary
    assert defence.source
    assert defence.promise
    assert defence.content in (Content.GRADIENT, Content.OUTPUTS)
    assert all(field.description for field in defence.model_fields.values())
    assert defence().model_dump(mode="json")["name"] == name


@pytest.mark.parametrize(("variant", "name"), CASES)
def test_messages_change_and_no_other_kind_does(variant, name):
    defended, plain = (run(system(variant, own, system(variant, name).classes, rounds=1))[1] for own in (name, None))
    content = available("defence")[name].content
    changed = set()
    for ours, theirs in zip(defended.messages, plain.messages, strict=True):
        if any(not torch.equal(ours.tensors[n], theirs.tensors[n]) for n in ours.tensors):
            changed.add(ours.sender.is_server)
    assert (content is Content.GRADIENT) in changed
    assert content is Content.OUTPUTS or changed == {True}, "gradients of the first round follow the same outputs"


@pytest.mark.parametrize(("variant", "name"), CASES)
def test_replicas_together_equal_replicas_alone_and_the_seed_decides(variant, name):
    defended = system(variant, name, rounds=6)
    _, together, _ = run(defended, replicas=(3, 7))
    _, again, _ = run(defended, replicas=(3, 7))
    for place, replica in enumerate((3, 7)):
        _, alone, _ = run(defended, replicas=(replica,))
        for one, many, same in zip(alone.messages, together.messages, again.messages, strict=True):
            for n, tensor in one.tensors.items():
                torch.testing.assert_close(tensor[0], many.tensors[n][place], rtol=1e-3, atol=1e-3)
                assert torch.equal(many.tensors[n], same.tensors[n])


@pytest.mark.parametrize(("variant", "name"), CASES)
def test_no_more_bytes_are_sent_than_without_it(variant, name):
    classes = system(variant, name).classes
    defended, plain = (run(system(variant, own, classes, rounds=3))[2].traffic for own in (name, None))
    assert 0 < defended.total <= plain.total


@pytest.mark.parametrize(("variant", "name"), CASES)
def test_one_that_promises_nothing_gets_no_credit(variant, name):
    if available("defence")[name].promise != "no ε":
        return
    classes = system(variant, name).classes
    exposures = [
        system(variant, own, classes).ledger.exposure(Adversary.parse("device(0)"), Unit.LABEL) for own in (name, None)
    ]
    assert exposures[0].unprotected == exposures[1].unprotected


@pytest.mark.parametrize("name", NAMES)
def test_a_round_runs_on_the_meta_device(name):
    variant = next(own for own, of in CASES if of == name)
    engine = system(variant, name, torch_device="meta").train((0, 1))
    from vflpriv.core.wire import Wire

    engine.round(0, Wire())
