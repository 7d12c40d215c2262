"""What tests of attacks share."""

from __future__ import annotations

import pytest
import torch

from vflpriv.audits.scoring.labels import draw_auxiliary, score
from vflpriv.core.attack import Auxiliary
from vflpriv.core.views import Adversary, View
from vflpriv.core.wire import Transcript, Wire


def seen(system, adversary: str, *, conducts=None, replica: int = 0) -> View:
    """What an adversary sees of one training."""
    transcript = Transcript()
    engine = system.train([replica], conducts=conducts)
    engine.run(Wire(transcript))
    own = {m: engine.belongings(m) for m in range(system.data.devices)}
    shape = {"devices": system.data.devices, "classes": system.data.classes}
    return View.of(transcript, Adversary.parse(adversary), own=own, **shape)


@pytest.fixture
def watch():
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
        return score(attack.run(view, auxiliary), data.labels, auxiliary=auxiliary).success

    return measured
