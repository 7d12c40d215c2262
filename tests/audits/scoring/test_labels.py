"""Leakage: what an attack reaches beyond chance and beyond the same adversary without the protocol."""

from __future__ import annotations

import pytest
import torch

from tests.support import make_system, toy_data
from vflpriv.attacks.label.direct import LabelDirect
from vflpriv.attacks.label.zo_query import LabelZoQuery
from vflpriv.audits.scoring.labels import (
    NOTHING_TO_SCORE,
    Labels,
    draw_auxiliary,
    label_score,
)
from vflpriv.audits.scoring.score import SHARE, mean_score, scored
from vflpriv.audits.scoring.trials import Trials
from vflpriv.core.attack import Auxiliary, Conduct, Guess
from vflpriv.core.views import Adversary, View

DEVICE, ALL = Adversary.parse("device(0)"), Adversary.parse("devices(all)")


def trials(variant: str, **changes):
    return Trials(system=make_system(variant, **changes), seeds=3, labels_per_class=2, confidence=0.95)


def test_known_records_are_not_scored():
    truth = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 2])
    known = draw_auxiliary(truth, 3, per_class=1, seed=0)
    assert torch.equal(truth[known.records], known.labels)
    assert sorted(known.labels.tolist()) == [0, 1, 2]
    guess = truth.clone()
    guess[known.records] = -1
    found = label_score(Guess(torch.arange(9), guess.unsqueeze(0)), truth, auxiliary=known)
    assert (found.value, found.guesses) == (1.0, 6)
    assert found.chance == pytest.approx(1 / 3)


def test_every_seed_is_told_other_labels():
    truth = toy_data(300).labels
    chosen = [draw_auxiliary(truth, 3, per_class=3, seed=1, replica=r).records.tolist() for r in (0, 1, 1)]
    assert chosen[0] != chosen[1] == chosen[2]


def test_leakage_is_counted_from_the_better_of_chance_and_the_blind_guess():
    def reached(share, blind):
        return scored(SHARE, (share, 0.0, 1.0), chance=0.5, blind=blind, guesses=9)

    assert reached(0.7, 0.6).leakage.value == pytest.approx(0.1)
    assert reached(0.7, None).leakage.value == pytest.approx(0.2)
    mean = mean_score([reached(share, 0.6) for share in (0.6, 0.7, 0.8)], confidence=0.95)
    assert (mean.value, mean.leakage.value) == (pytest.approx(0.7), pytest.approx(0.1))
    assert mean.leakage.low < 0.1 < mean.leakage.high


def test_a_direct_attack_leaks_all_that_chance_leaves():
    found = trials("split-sum").run([LabelDirect()], [DEVICE, ALL])
    assert [tried.mean.value for tried in found] == [1.0, 1.0]
    assert found[0].mean.leakage.value == pytest.approx(1 - found[0].mean.chance)


def test_dishonest_devices_are_trained_only_where_the_attack_applies(monkeypatch):
    from vflpriv.core.systems import System

    conducts, train = [], System.train
    monkeypatch.setattr(System, "train", lambda s, r, **k: conducts.append(dict(k["conducts"])) or train(s, r, **k))
    refused = trials("cascaded").run([LabelZoQuery()], [DEVICE])[0]
    assert refused.mean is None
    assert refused.refusal.startswith("needs summed logits")
    assert conducts == [{}]
    assert trials("cascaded-sum").run([LabelZoQuery()], [DEVICE])[0].refusal is None
    assert [set(c) for c in conducts] == [set(), set(), {0}]


def test_the_same_seed_gives_the_same_numbers():
    one, two = (trials("zoo-vfl-sum").run([LabelZoQuery()], [DEVICE]) for _ in range(2))
    assert one == two


class Zeros:
    """Guesses 0 for each of these records; remembers whose labels it was given."""

    name, summary, target, heavy = "zeros", "", "labels", False
    needs: frozenset[str] = frozenset()
    auxiliary = True

    def __init__(self, records: list[int], *, conduct: Conduct | None = None, error: Exception | None = None) -> None:
        self.records, self.conduct, self.error = torch.tensor(records), conduct, error
        self.given: list[int] = []

    def refusal(self, view: View) -> str | None:
        return None

    def run(self, view: View, auxiliary: Auxiliary) -> Guess:
        if self.error is not None:
            raise self.error
        self.given = auxiliary.records.tolist()
        return Guess(self.records, torch.zeros(1, len(self.records), dtype=torch.int64))

    def blind(self, view: View, auxiliary: Auxiliary) -> Guess | None:
        return None


TRUTH = torch.tensor([0, 1, 0, 1, 0, 1, -1, -1])
VIEW = View(DEVICE, (), 2)


def attempts(**changes) -> Labels:
    return Labels(**{"truth": TRUTH, "classes": 2, "seed": 0, "confidence": 0.95, **changes})


def test_unknown_labels_are_not_scored_and_withheld_ones_not_given():
    attack = Zeros(list(range(8)))
    found = attempts(withheld=(0, 1), labels_per_class=9).attempt(attack, VIEW)
    assert attack.given == [2, 3, 4, 5]
    assert (found.success.guesses, found.success.value, found.mean.guesses) == (2, 0.5, 2)
    assert found.guess.records.tolist() == list(range(8))


@pytest.mark.parametrize("records", [[6, 7], []])
def test_without_a_guess_to_score_an_attempt_is_refused(records):
    found = attempts().attempt(Zeros(records), VIEW)
    assert (found.success, found.mean, found.guess, found.refusal) == (None, None, None, NOTHING_TO_SCORE)


def test_malicious_devices_are_refused_where_all_are_honest():
    greedy = Zeros([0, 1], conduct=Conduct(name="greedy", gain=1.0))
    assert attempts(honest_only="devices are honest").attempt(greedy, VIEW).refusal == "devices are honest"
    assert attempts(labels_per_class=0).attempt(greedy, VIEW).refusal is None
    forger = Zeros([0, 1], conduct=Conduct(name="forger"))
    assert attempts(honest_only="devices are honest", labels_per_class=0).attempt(forger, VIEW).refusal is None


def test_an_attack_that_cannot_read_the_messages_is_refused_only_where_that_is_tolerated():
    broken = Zeros([0], error=KeyError("logits"))
    reason = attempts(tolerant=True).attempt(broken, VIEW).refusal
    assert reason == "cannot read this recording: KeyError, 'logits'"
    with pytest.raises(KeyError):
        attempts().attempt(broken, VIEW)
