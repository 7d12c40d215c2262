"""The authors' malicious optimiser at work: what the attacker's bottom then knows of the labels."""

from __future__ import annotations

import pytest

from tests.attacks.label.trained.test_completion import buried, share_held
from tests.support import make_system
from vflpriv.attacks.label.trained.completion import (
    LabelCompletionActive,
    LabelCompletionCompounding,
    LabelCompletionPublished,
)
from vflpriv.core.wire import Wire

SETTINGS = {"batch_size": 64, "hidden": (32,), "embedding": 6, "device_rate": 0.02, "server_rate": 0.02}


@pytest.mark.parametrize("attack", [LabelCompletionCompounding, LabelCompletionPublished])
def test_it_is_a_conduct_of_its_own(attack):
    assert attack.conduct.gain == 1.0
    assert attack.conduct.name != LabelCompletionActive.conduct.name
    assert attack.conduct.momentum != LabelCompletionActive.conduct.momentum


def test_steps_that_compound_move_most_labels_into_the_attackers_bottom():
    data = buried()
    system = make_system("split-concat", data=data, rounds=300, top_hidden=(16,), momentum=0.5, **SETTINGS)
    shares = []
    for attack in (None, LabelCompletionPublished, LabelCompletionActive, LabelCompletionCompounding):
        engine = system.train(range(3), conducts={} if attack is None else {0: attack.conduct})
        engine.run(Wire())
        shares.append([share_held(engine, data.labels, m) for m in range(2)])
    own, other = zip(*shares, strict=True)
    assert own[0] + 0.01 < own[1] < own[2] < own[3]
    assert other[0] > other[2] + 0.05 > other[3] + 0.1
