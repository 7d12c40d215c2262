"""Every defence meets an attack that knows it, and what attacks are told of a defence is what it was set to."""

from __future__ import annotations

import pytest

from tests.contracts.test_defences import NAMES, classes_for, fits, system
from tests.support import make_system
from vflpriv.common.registry import available, find
from vflpriv.core.attack import adapts

ATTACKS = [kind() for kind in available("attack").values()]
OF_NUMBERS = [name for name in NAMES if not available("defence")[name].of_texts]
"""A token that was replaced is its own best guess: attacks on texts read what was sent and need not know the draw."""


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_some_attack_knows_it(name):
    assert any(adapts(attack, {name: {}}) for attack in ATTACKS)


def test_no_attack_knows_a_defence_that_is_not_in_force():
    assert not any(adapts(attack, make_system("split-concat").defences) for attack in ATTACKS)


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_attacks_are_told_its_strengths(name):
    variant = next(v for v in ("split-concat", "split-sum", "vafl-concat") if fits(v, name))
    assert classes_for(name) in (2, 3)
    assert system(variant, name).defences[name] == dict(find("defence", name)())


@pytest.mark.parametrize(
    ("variant", "name", "strengths"),
    [
        ("split-rr", "randomised-response", {"epsilon": 3.0}),
        ("split-alibi", "alibi", {"noise_std": 0.5}),
        ("split-guarded", "gradient-noise", {"clip": 0.1, "noise_std": 0.001}),
        ("split-client", "client-noise", {"clip": 10.0, "noise_std": 0.1}),
    ],
)
def test_settings_that_stand_for_a_defence_are_known_as_that_defence(variant, name, strengths):
    assert make_system(variant).defences == {name: strengths}


def test_two_defences_at_once_are_both_known():
    both = make_system("split-rr", defence={"name": "laplace", "scale": 0.5}).defences
    assert both == {"randomised-response": {"epsilon": 3.0}, "laplace": {"scale": 0.5}}
