"""Label mechanisms: their ε, their distribution, and that training reads noised labels only."""

from __future__ import annotations

import math

import pytest
import torch

from tests.support import make_system
from vflpriv.audits.twins.probes import Follower, Probe
from vflpriv.common.random import Stream
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.laws import Alibi, LabelSets, RandomizedResponse
from vflpriv.laws.labels.label_sets import subset_law
from vflpriv.training.mechanisms.labels import NoisedBefore

CPU = torch.device("cpu")


def noised(mechanism, classes=10, records=40_000):
    labels = (torch.arange(records) % classes).unsqueeze(0)
    return labels, mechanism.observe(labels, classes, Stream.of(0, "labels", [0], CPU)).argmax(-1)


@pytest.mark.parametrize(("std", "epsilon"), [(1.0, 2.83), (2.0, 1.41)])
def test_the_epsilon_of_alibi_is_that_of_its_paper(std, epsilon):
    assert NoisedBefore(law=Alibi(std)).epsilon == pytest.approx(epsilon, abs=0.005)


@pytest.mark.parametrize("budget", [0.5, 2.0, 5.0])
def test_randomised_response_keeps_with_its_probability_and_draws_others_uniformly(budget):
    labels, drawn = noised(NoisedBefore(law=RandomizedResponse(budget)))
    kept = (labels == drawn).float().mean()
    assert float(kept) == pytest.approx(math.exp(budget) / (math.exp(budget) + 9), abs=0.01)
    wrong = ((drawn - labels) % 10)[labels != drawn]
    shares = torch.bincount(wrong, minlength=10)[1:] / len(wrong)
    assert float((shares - 1 / 9).abs().max()) < 0.02


@pytest.mark.parametrize(
    "mechanism",
    [
        NoisedBefore(law=Alibi(0.3)),
        NoisedBefore(law=Alibi(1.0)),
        NoisedBefore(law=Alibi(2.0)),
        NoisedBefore(law=RandomizedResponse(1.0)),
    ],
)
def test_likelihood_ratios_of_noised_labels_are_bounded_by_epsilon(mechanism):
    """P[output = y | label = y] / P[output = y | label = z] ≤ e^ε for every y, z: post-processing of an ε-DP label."""
    labels, drawn = noised(mechanism, classes=4, records=200_000)
    rates = torch.stack([torch.bincount(drawn[labels == y], minlength=4) / 50_000 for y in range(4)])
    worst = float((rates.amax(0) / rates.amin(0).clamp(min=1e-9)).max())
    assert math.log(worst) <= mechanism.epsilon + 0.1


@pytest.mark.parametrize(("budget", "size"), [(0.5, 4), (1.0, 3), (3.0, 1)])
def test_every_set_with_the_label_is_e_to_the_epsilon_times_as_likely_as_one_without_it(budget, size):
    labels = (torch.arange(60_000) % 10).unsqueeze(0)
    observed = NoisedBefore(law=LabelSets(budget)).observe(labels, 10, Stream.of(0, "labels", [0], CPU))
    members = (observed > 0)[0]
    assert subset_law(10, budget)[0] == size
    assert bool((members.sum(1) == size).all())
    assert bool((observed[0].max(1).values == 1.0).all())
    held = float(members.gather(1, labels[0].unsqueeze(1)).float().mean())
    odds = held / (1 - held) * (10 - size) / size
    assert math.log(odds) == pytest.approx(budget, abs=0.05)
    beside = torch.stack([members[labels[0] == 3][:, c].float().mean() for c in range(10) if c != 3])
    assert float((beside - beside.mean()).abs().max()) < 0.03
    torch.testing.assert_close(NoisedBefore(law=LabelSets(budget)).evidence(observed)[0], budget * members)


def test_the_likeliest_label_of_a_set_favours_no_class():
    _, drawn = noised(NoisedBefore(law=LabelSets(0.5)))
    shares = torch.bincount(drawn[0], minlength=10) / drawn.numel()
    assert float((shares - 0.1).abs().max()) < 0.01


def test_less_noise_keeps_more_labels():
    kept = [float((labels == drawn).float().mean()) for labels, drawn in map(noised, map(_alibi, (0.2, 1.0, 2.0, 9.0)))]
    assert kept == sorted(kept, reverse=True)
    assert kept[0] > 0.95
    assert kept[-1] < 0.25


def _alibi(std):
    return NoisedBefore(law=Alibi(std))


@pytest.mark.parametrize(("variant", "epsilon"), [("split-alibi", 2 * math.sqrt(2) / 0.5), ("split-rr", 3.0)])
def test_labels_are_released_once_for_every_view(variant, epsilon):
    ledger = make_system(variant).ledger
    for view in ("device", "devices(all)", "eavesdropper", "outsider"):
        exposure = ledger.exposure(Adversary.parse(view), Unit.LABEL)
        (event,) = exposure.events
        assert event.count == 1
        assert exposure.unprotected == ()
    assert ledger.exposure(Adversary.parse("device"), Unit.RECORD).unprotected, (
        "label protection does not cover features"
    )


def test_training_reads_only_noised_labels():
    system = make_system("split-rr")
    engine = system.train([0, 1])
    every = torch.arange(system.data.records)
    seen = engine.data.labels_of(every)
    assert seen.shape == (2, system.data.records)
    assert not torch.equal(seen[0], seen[1])
    assert torch.equal(engine.data.labels_of(torch.tensor([3, 5]))[1], seen[1, [3, 5]])


@pytest.mark.parametrize("std", [0.5, 1.0, 2.0, 5.0])
def test_the_likeliest_label_favours_no_class(std):
    """Several classes are often equally likely; taking the first of them would choose it three times too often."""
    labels, drawn = noised(NoisedBefore(law=Alibi(std)))
    shares = torch.bincount(drawn[0], minlength=10) / labels.numel()
    assert float((shares - 0.1).abs().max()) < 0.006


def test_a_probe_is_shown_the_noised_labels_and_may_put_others_in_their_place():
    system = make_system("split-rr")
    leader = Probe()
    engine = system.train([0, 1], probe=leader)
    every = torch.arange(system.data.records)
    assert torch.equal(leader.noised_labels.argmax(-1), engine.data.labels_of(every))
    assert torch.equal(engine.data.labels_of(every), system.train([0, 1]).data.labels_of(every)), "nothing is changed"
    other = system.data.override([0], labels=torch.tensor([[1], [2]]))
    followed = system.train([0, 1], data=other, probe=Follower(leader)).data.labels_of(every)
    assert torch.equal(followed, engine.data.labels_of(every)), "the other world trains on the same noised labels"
