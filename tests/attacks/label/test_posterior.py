"""Noised labels: the Bayes rule beats reading them, and gains no more than ε allows beyond what others' labels tell."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import one_hot

from vflpriv.attacks.label.direct import LabelDirect
from vflpriv.attacks.label.posterior import LabelPosterior
from vflpriv.audits.scoring.labels import label_score
from vflpriv.common.random import Stream
from vflpriv.core.attack import Auxiliary
from vflpriv.core.views import Adversary, Belongings, View
from vflpriv.core.wire import SERVER, Message, device
from vflpriv.laws import Alibi, RandomizedResponse
from vflpriv.training.mechanisms.labels import NoisedBefore

RECORDS = 1500


def watched(mechanism, defences, classes=4, *, features=True, seed=0):
    """Gradients of noised labels in three rounds; features that tell the label of about two records in three."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(RECORDS) % classes
    own = 1.5 * one_hot(labels, classes) + torch.randn(RECORDS, classes, generator=draw)
    noised = mechanism.observe(labels[None], classes, Stream.of(seed, "noise", [0], torch.device("cpu")))
    target = one_hot(noised[0].argmax(-1), classes)
    sent = [0.01 * torch.rand(RECORDS, classes, generator=draw) - target for _ in range(3)]
    messages = [
        Message(
            kind="logit-gradient",
            tensors={"gradient": gradient[None]},
            round=t,
            sender=SERVER,
            receiver=device(0),
            records=torch.arange(RECORDS),
        )
        for t, gradient in enumerate(sent)
    ]
    mine = Belongings(features=own, apply=lambda parameters, rows: rows, initial={}, trained={})
    view = View(Adversary.parse("device(0)"), tuple(messages), classes, {0: mine} if features else {})
    known = torch.arange(4 * classes)
    return labels, view, Auxiliary(records=known, labels=labels[known], seed=2, defences=defences)


def scored(labels, view, told):
    attack = LabelPosterior()
    return label_score(attack.run(view, told), labels, auxiliary=told, blind=attack.blind(view.silent(), told))


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.0])
def test_it_beats_reading_and_gains_no_more_than_epsilon_allows(epsilon):
    labels, view, told = watched(
        NoisedBefore(law=RandomizedResponse(epsilon)), {"randomised-response": {"epsilon": epsilon}}
    )
    found, read = scored(labels, view, told), label_score(LabelDirect().run(view, told), labels, auxiliary=told)
    error = 3 / math.sqrt(RECORDS)
    assert found.value > read.value + 0.05
    assert found.leakage.value < math.tanh(epsilon / 2) + error


def test_what_other_peoples_labels_tell_is_no_leak_of_ones_own():
    """With almost no budget the classifier still learns from all labels together: its success is all baseline."""
    labels, view, told = watched(NoisedBefore(law=RandomizedResponse(0.3)), {"randomised-response": {"epsilon": 0.3}})
    found = scored(labels, view, told)
    assert found.value > 0.5
    assert abs(found.leakage.value) < 0.08


def test_knowing_epsilon_it_does_not_trust_a_label_that_was_mostly_replaced():
    """The few labels that it knows happen to be kept ones, which would let anybody else trust all of them."""
    labels, view, told = watched(NoisedBefore(law=RandomizedResponse(0.3)), {"randomised-response": {"epsilon": 0.3}})
    read = LabelDirect().run(view, told).values[0]
    kept = torch.cat([((labels == c) & (read == c)).nonzero().flatten()[:4] for c in range(4)]).sort().values
    told = replace(told, records=kept, labels=labels[kept])
    assert (LabelPosterior().run(view, told).values[0] == read).double().mean() < 0.6
    assert (LabelPosterior().run(view, replace(told, defences={})).values[0] == read).double().mean() > 0.9


def test_without_features_the_label_that_was_read_is_the_guess():
    _, view, told = watched(NoisedBefore(law=RandomizedResponse(2.0)), {}, features=False)
    assert torch.equal(LabelPosterior().run(view, told).values, LabelDirect().run(view, told).values)


@pytest.mark.parametrize("classes", [2, 10])
def test_the_probability_that_a_label_is_kept_is_that_of_the_mechanism(classes):
    labels = torch.arange(20_000)[None] % classes
    stream = Stream.of(0, "noise", [0], torch.device("cpu"))
    for mechanism, kept in (
        (NoisedBefore(law=Alibi(2.0)), Alibi(2.0).kept(classes)),
        (NoisedBefore(law=RandomizedResponse(1.0)), RandomizedResponse(1.0).kept(classes)),
    ):
        observed = mechanism.observe(labels, classes, stream).argmax(-1)
        assert float((observed == labels).double().mean()) == pytest.approx(kept, abs=0.015)


def test_a_view_from_which_no_label_is_read_is_refused():
    _, view, _ = watched(NoisedBefore(law=RandomizedResponse(1.0)), {})
    silent = View(view.adversary, (), view.classes, view.own)
    assert LabelPosterior().refusal(silent) == "needs labels that can be read; this view holds none"
