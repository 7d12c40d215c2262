"""Fixtures of the attacks' tests."""

from __future__ import annotations

import pytest
import torch

from tests.attacks.support import seen
from vflpriv.audits.scoring.labels import draw_auxiliary, label_score
from vflpriv.core.attack import Auxiliary


@pytest.fixture
def watch():
    """Trains a system and gives an adversary's view of it."""
    return seen


@pytest.fixture
def nothing() -> Auxiliary:
    """No labels known."""
    none = torch.empty(0, dtype=torch.int64)
    return Auxiliary(records=none, labels=none)


@pytest.fixture
def rate(nothing):
    """The share of an attack's guesses that is right; `few` labels of each class are known to it."""

    def measured(attack, view, data, *, few: int = 0) -> float:
        auxiliary = draw_auxiliary(data.labels, data.classes, per_class=few, seed=3) if few else nothing
        assert attack.refusal(view) is None
        return label_score(attack.run(view, auxiliary), data.labels, auxiliary=auxiliary).value

    return measured
