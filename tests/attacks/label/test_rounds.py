"""Gradients of all rounds under noise: static attacks fail, one that knows the noise does not, no leak is invented."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import one_hot

from vflpriv.attacks.label.clusters import LabelGradientClusters
from vflpriv.attacks.label.rounds import LabelRounds
from vflpriv.attacks.label.two_classes import LabelDirection, LabelNorm
from vflpriv.common.random import Stream
from vflpriv.core.attack import Auxiliary, Guess
from vflpriv.core.views import Adversary, Belongings, View
from vflpriv.core.wire import SERVER, Message, device
from vflpriv.training.defence import Exchange, parse_defence

RECORDS, ROUNDS, WIDTH = 200, 60, 6


def watched(classes, defence, *, features=True, seed=0):
    """Gradients of a head that moves, under a defence: the labels, a device's view, and what it is told."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(RECORDS) % classes
    means = torch.randn(classes, 4, generator=draw)
    own = means[labels] + 2.5 * torch.randn(RECORDS, 4, generator=draw)
    head, drift = (torch.randn(classes, WIDTH, generator=draw) for _ in range(2))
    named = parse_defence(defence)
    guard = None if named is None else named.guard(Stream.of(seed, "noise", [0], torch.device("cpu")))
    messages = []
    for t in range(ROUNDS):
        ids = torch.randperm(RECORDS, generator=draw)[: RECORDS // 2]
        sure = torch.softmax(0.5 * torch.randn(len(ids), classes, generator=draw), -1)
        gradient = ((sure - one_hot(labels[ids], classes)) @ (head + t / ROUNDS * drift) / len(ids)).unsqueeze(0)
        if guard is not None:
            gradient = guard.protect(gradient, Exchange(round=t, party=0, labels=labels[ids][None], received={})).values
        where = {"round": t, "sender": SERVER, "receiver": device(0), "records": ids}
        messages.append(Message(kind="embedding-gradient", tensors={"gradient": gradient}, **where))
    mine = Belongings(features=own, apply=lambda parameters, rows: rows, initial={}, trained={})
    view = View(Adversary.parse("device(0)"), tuple(messages), classes, {0: mine} if features else {})
    known = torch.arange(4 * classes)
    defences = {} if named is None else {named.name: dict(named)}
    return labels, view, Auxiliary(records=known, labels=labels[known], seed=1, defences=defences)


def rate(guess: Guess, labels, auxiliary) -> float:
    counted = ~torch.isin(guess.records, auxiliary.records)
    return float((guess.values[0] == labels[guess.records])[counted].double().mean())


def test_it_reads_what_is_not_defended():
    """Margin: all labels are read where 0.95 are asked."""
    labels, view, told = watched(4, None)
    assert rate(LabelRounds().run(view, told), labels, told) > 0.95


@pytest.mark.parametrize("features", [True, False])
def test_laplace_noise_that_hides_single_rounds_does_not_hide_sixty(features):
    """Margin: 0.25 of the labels are read off one round and all off sixty, with 0.6 and 0.9 between."""
    labels, view, told = watched(4, {"name": "laplace", "scale": 0.02}, features=features)
    one = replace(view, messages=view.messages[:1])
    assert rate(LabelGradientClusters().run(one, told), labels, told) < 0.6
    assert rate(LabelRounds().run(view, told), labels, told) > 0.9


def test_marvell_stops_norm_and_direction_of_a_round_but_not_the_covariance_of_all():
    """Margin: 0.85 of the labels against 0.57 for the best of the others, and 0.15 apart are asked."""
    labels, view, told = watched(2, {"name": "marvell", "power": 4.0})
    one = replace(view, messages=view.messages[:1])
    static = [rate(attack.run(one, told), labels, told) for attack in (LabelNorm(), LabelDirection())]
    assert max(static) < 0.7
    assert rate(LabelRounds().run(view, told), labels, told) > max(static) + 0.15


def test_max_norm_leaves_the_line_of_a_gradient_whatever_its_sign():
    knows = ignores = 0.0
    for seed in range(3):
        labels, view, told = watched(4, {"name": "max-norm"}, seed=seed)
        few = replace(view, messages=view.messages[:4])
        knows += rate(LabelRounds().run(few, told), labels, told) / 3
        ignores += rate(LabelRounds().run(few, replace(told, defences={})), labels, told) / 3
    assert knows > ignores + 0.1


@pytest.mark.parametrize("name", ["compression", "discrete", "gradient-noise"])
def test_it_runs_under_other_defences_and_repeats_itself(name):
    """Margin: all labels are read where 0.6 are asked."""
    labels, view, told = watched(3, None if name == "gradient-noise" else name)
    told = replace(told, defences={name: {}})
    first, second = (LabelRounds().run(view, told) for _ in range(2))
    assert torch.equal(first.values, second.values)
    assert rate(first, labels, told) > 0.6


def test_noise_alone_tells_no_more_than_the_adversary_has_itself():
    """Margin: 0.02 apart, where one standard error is 0.02."""
    labels, view, told = watched(4, {"name": "laplace", "scale": 5.0})
    alone = rate(LabelRounds().blind(view.silent(), told), labels, told)
    assert abs(rate(LabelRounds().run(view, told), labels, told) - alone) < 0.05


def test_a_view_without_gradients_is_refused():
    _, view, _ = watched(2, None)
    reason = LabelRounds().refusal(replace(view, messages=()))
    assert reason == "needs gradients of each record; this view holds none"
