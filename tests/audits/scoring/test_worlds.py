"""Scorers share trainings: a view's scores do not depend on which other views are scored in the same trainings."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.support import make_system
from vflpriv.audits.scoring.worlds import SCORERS, Request, strength_key
from vflpriv.audits.two_world import TwoWorldAudit
from vflpriv.audits.worlds.canaries import most_exposed, plan
from vflpriv.audits.worlds.store import TrialStore
from vflpriv.core.canaries import CanaryKind
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary

ALL, MODEL = Adversary.parse("devices(all)"), Adversary.parse("model")


@pytest.fixture(scope="module")
def request_of_both() -> Request:
    system = make_system("dpzv-sgd")
    record = most_exposed([], system.schedule)
    canary = plan(system, CanaryKind.NATURAL, record, TrialStore(), unit=Unit.LABEL)
    return Request(system=system, ledger=system.ledger, canary=canary, adversaries=[ALL, MODEL], replicas=range(20, 28))


@pytest.mark.parametrize("method", ["twins", "likelihood ratio"])
def test_shadow_models_say_the_same_of_models_that_another_method_trains(request_of_both, method):
    both = SCORERS[method](request_of_both)
    alone = SCORERS["shadow models"](replace(request_of_both, adversaries=[MODEL]))
    torch.testing.assert_close(both["model"], alone["model"], rtol=1e-2, atol=1e-6)
    assert (both["model"] != 0).all()
    views = SCORERS[method](replace(request_of_both, adversaries=[ALL]))
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
    planned = TwoWorldAudit.trainings(system, [ALL, MODEL], CanaryKind.NATURAL, trials=8, unit=Unit.RECORD)
    assert sum(rounds) == planned * system.schedule.rounds == 16 * system.schedule.rounds
