"""Labels that are drawn during training: sound ones pass the tests of their noise, and faults are found."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from tests.support import make_system, toy_data
from vflpriv.audits.drawn_labels import Draws, places, positions
from vflpriv.audits.label_noise import label_noise
from vflpriv.core.claims import Verdict
from vflpriv.laws.randomised_response import RandomizedResponse
from vflpriv.training.engines.split import Split
from vflpriv.training.mechanisms.priors import DrawnLabels, PriorLabels


def system(engine=None, **changes):
    made = make_system("split-sum", data=toy_data(records=300), label_protection="lp-mst", rounds=90, **changes)
    return made if engine is None else replace(made, engine=engine)


@pytest.mark.parametrize(
    ("variant", "changes"),
    [
        ("split-concat", {"label_protection": "lp-mst", "label_stages": 3}),
        ("split-concat", {"label_protection": "lp-mst", "batch_size": 60}),
        ("noise-once", {"label_protection": "lp-mst"}),
        ("vimadmm", {"label_protection": "lp-mst"}),
        ("fdml", {"label_protection": "lp-mst"}),
        ("dpzv-joint", {"label_protection": "rr-with-prior"}),
        ("vafl-concat", {"label_protection": "rr-with-prior"}),
        ("split-sum", {"label_protection": "rr-with-prior", "label_prior": (0.7, 0.2, 0.1)}),
    ],
)
def test_sound_draws_pass(variant, changes):
    found = label_noise(make_system(variant, label_noise=1.0, rounds=30, **changes))
    assert found.holds, found.sentence
    assert [test.name for test in found.tests][-1] == "prior"
    assert found.finding.verdict is Verdict.CONSISTENT


@dataclass(frozen=True, kw_only=True)
class _TwiceEpsilon(PriorLabels):
    """Draws with twice the ε that it declares."""

    @property
    def epsilon(self) -> float:
        return self.budget / 2

    @property
    def noise(self) -> RandomizedResponse:
        return RandomizedResponse(self.epsilon)


def test_twice_the_declared_epsilon_is_found(monkeypatch):
    declared = system(label_noise=1.0)
    monkeypatch.setattr(
        type(declared.settings),
        "label_mechanism",
        property(lambda s: _TwiceEpsilon(law=RandomizedResponse(2.0), stages=2)),
    )
    assert {"law"} <= {test.name for test in label_noise(declared).rejected}


class Cheating(DrawnLabels):
    """The prior is moved towards the true label."""

    def _prior(self, like, logits):
        honest = super()._prior(like, logits)
        truth = torch.nn.functional.one_hot(self._truth[:, self._seen], honest.shape[-1])
        return 0.7 * honest + 0.3 * truth


class Redrawing(DrawnLabels):
    """Every visit draws the label again."""

    def visit(self, records, logits):
        self.drawn.zero_()
        return super().visit(records, logits)


class SameCoins(DrawnLabels):
    """All replicas flip the same records."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self._uniform = self._uniform[:1].expand_as(self._uniform)


@pytest.mark.parametrize(("fault", "names"), [(Cheating, {"prior"}), (Redrawing, {"once"}), (SameCoins, {"replicas"})])
def test_faults_are_found(monkeypatch, fault, names):
    monkeypatch.setattr("vflpriv.training.engine.DrawnLabels", fault)
    found = label_noise(system(Split, label_noise=1.0))
    assert names <= {test.name for test in found.rejected}, found.sentence


def test_responses_that_the_prior_does_not_allow_are_found():
    priors = np.tile(np.array([0.9, 0.06, 0.04], dtype=np.float32), (1, 4, 1))
    draws = Draws(
        priors=priors,
        responses=np.array([[0, 0, 1, 0]]),
        drawn=np.array([[True, True, True, False]]),
        once=True,
        untouched=True,
    )
    found, clear = places(draws, np.array([0, 1, 1, 2]), 1.0)
    assert found.allowed.tolist() == [1, 1, 1]
    assert clear.tolist() == [[True, True, True, False]]
    assert (positions(found, 1.0, 0) >= 0).tolist() == [True, True, False]
