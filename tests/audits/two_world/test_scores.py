"""Scorers share trainings: a view's scores do not depend on which other views are scored in the same trainings."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.support import make_system
from vflpriv.audits.twins.probes import Released
from vflpriv.audits.two_world.audit import TwoWorldAudit
from vflpriv.audits.two_world.canaries import plan
from vflpriv.audits.two_world.methods import METHODS
from vflpriv.audits.two_world.plan import Question
from vflpriv.audits.two_world.scores import LikelihoodRatio, Request, strength_key
from vflpriv.common.store import Store
from vflpriv.core.canaries import CanaryKind, most_exposed
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.core.wire import SERVER, Message, device

ALL, MODEL = Adversary.parse("devices(all)"), Adversary.parse("model")


@pytest.fixture(scope="module")
def request_of_both() -> Request:
    system = make_system("dpzv-sgd")
    record = most_exposed([], system.schedule)
    canary = plan(system, CanaryKind.NATURAL, record, Store(), unit=Unit.LABEL)
    return Request(system=system, canary=canary, adversaries=[ALL, MODEL], replicas=range(20, 28))


@pytest.mark.parametrize("method", ["twins", "likelihood ratio"])
def test_shadow_models_say_the_same_of_models_that_another_method_trains(request_of_both, method):
    both = METHODS[method].scores(request_of_both)
    alone = METHODS["shadow models"].scores(replace(request_of_both, adversaries=[MODEL]))
    torch.testing.assert_close(both["model"], alone["model"], rtol=1e-2, atol=1e-6)
    assert (both["model"] != 0).all()
    views = METHODS[method].scores(replace(request_of_both, adversaries=[ALL]))
    assert both.keys() - views.keys() == {"model"}
    torch.testing.assert_close(both[str(ALL)], views[str(ALL)])
    assert strength_key("model") not in both


def test_views_of_both_kinds_are_measured_in_one_set_of_trainings_and_keep_their_methods():
    system = make_system("dpzv-sgd")
    rounds = []
    found = TwoWorldAudit().measure(
        system, [ALL, MODEL], CanaryKind.NATURAL, trials=8, unit=Unit.RECORD, advance=rounds.append
    )
    assert {str(view): trials.method for view, trials in found.items()} == {
        "devices(all)": "twins",
        "model": "shadow models",
    }
    assert len({trials.canary.record for trials in found.values()}) == 1
    question = Question(kind=CanaryKind.NATURAL, trials=8, unit=Unit.RECORD, adversaries=(ALL, MODEL))
    (planned,) = question.sets(system)
    assert sum(rounds) == planned.trainings * system.schedule.rounds == 16 * system.schedule.rounds


@pytest.mark.parametrize("shared", [True, False])
def test_the_ratio_of_a_wide_release_is_right_in_single_precision(shared):
    """The squares that it is the difference of are a million times as large."""
    system = make_system("send-once")
    (std,) = {r.noise.std for r in system.ledger.releases if r.kind == "model-step"}
    generator = torch.Generator().manual_seed(0)
    means = torch.randn(1 if shared else 4, 1, 50_000, generator=generator) + 1e-6 * torch.tensor([[[1.0], [-1.0]]])
    released = means.mean(1) + std * torch.randn(4, 50_000, generator=generator)
    message = Message(round=1, sender=SERVER, receiver=device(0), kind="model-step", tensors={}, records=None)
    value = Released(
        kind="model-step", std=std, party=0, noiseless=released, released=released, worlds=means, message=message
    )
    ratio = LikelihoodRatio(system.ledger, [ALL], devices=3)
    ratio.add(value)
    a, b, x = means[:, 0].double(), means[:, 1].double(), released.double()
    expected = ((x - b).square() - (x - a).square()).sum(1) / (2 * std**2)
    torch.testing.assert_close(ratio.totals[str(ALL)].double(), expected, rtol=1e-4, atol=1e-4 * expected.std().item())
