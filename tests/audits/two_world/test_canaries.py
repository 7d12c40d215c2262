"""The search for crafted canaries: parents that are not measured again change nothing."""

from __future__ import annotations

import torch

from tests.support import make_system
from vflpriv.audits.two_world import canaries
from vflpriv.audits.two_world.canaries import craft, plan
from vflpriv.common.store import Store
from vflpriv.core.canaries import CanaryKind
from vflpriv.core.units import Unit


def test_parents_are_measured_once_and_keep_the_strength_they_would_have_again(monkeypatch):
    """What is known of a parent is what another measurement gives; the last generation's best is the strongest."""
    system = make_system("dpzv-joint")
    canary = plan(system, CanaryKind.WORST_CASE, 3, Store(), unit=Unit.LABEL)
    measure, seen = canaries._strength, []

    def noted(*arguments):
        seen.append((arguments[2], measure(*arguments)))
        return seen[-1][1]

    monkeypatch.setattr(canaries, "_strength", noted)
    best = craft(system, canary)
    sizes = [len(strengths) for _, strengths in seen]
    parents = canaries._CANDIDATES // 8
    assert sizes == [canaries._CANDIDATES, *[canaries._CANDIDATES - parents] * (canaries._GENERATIONS - 1)]
    strongest = max(float(strengths.max()) for _, strengths in seen)
    torch.testing.assert_close(float(measure(system, canary, best)[0]), strongest, rtol=1e-4, atol=1e-6)
