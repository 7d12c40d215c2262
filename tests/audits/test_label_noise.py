"""Noised labels: sound mechanisms pass, too little, repeated and redrawn noise is caught, false alarms are rare."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.support import ENGINES, make_system, toy_data
from vflpriv.audits.label_noise import budget, flips_by_lag, flips_by_replica, label_noise, law, rates
from vflpriv.audits.noise import NoiseAudit
from vflpriv.common.random import Stream
from vflpriv.core.audit import AuditContext
from vflpriv.core.claims import Verdict
from vflpriv.core.units import Unit
from vflpriv.laws import Alibi, LabelSets, RandomizedResponse
from vflpriv.training.engines.noise_once import NoiseOnce
from vflpriv.training.engines.split import Split
from vflpriv.training.mechanisms.labels import NoisedBefore

TRUTH = np.arange(90) % 3


def protecting(change):
    """An engine whose labels are noised by `change(engine, labels)`, (R, N) for the true ones."""

    def _protect_labels(self) -> None:
        every = torch.arange(self.data.records)
        labels = self.data.labels_of(every).expand(len(self.replicas), -1)
        self.data = self.data.with_labels(change(self, labels), None)

    return {"_protect_labels": _protect_labels}


def drawn(engine, labels, epsilon, stream=None):
    mechanism = NoisedBefore(law=RandomizedResponse(epsilon))
    return mechanism.observe(labels, engine.data.classes, stream or engine.stream("labels")).argmax(-1)


def without_replicas(engine, labels):
    one = Stream.of(engine.seed, "labels", [0], torch.device("cpu"))
    return drawn(engine, labels[:1], 1.0, one).expand_as(labels)


def only_the_first_half(engine, labels):
    noised = drawn(engine, labels, 1.0)
    noised[:, 30:] = labels[:, 30:]
    return noised


def in_pairs(engine, labels):
    """Records 2k and 2k + 1 share their coin."""
    noised = drawn(engine, labels, 1.0)
    shift = (noised - labels)[:, ::2].repeat_interleave(2, 1)
    return (labels + shift) % engine.data.classes


def to_the_next(engine, labels):
    """A flipped label is always the next one."""
    flipped = drawn(engine, labels, 1.0) != labels
    return torch.where(flipped, (labels + 1) % engine.data.classes, labels)


def redrawn(self, records, logits):
    labels = Split.labels_of(self, records, logits)
    shift = torch.randint(0, 2, labels.shape)
    return (labels + shift) % self.data.classes


WRONG = {
    "no noise": (protecting(lambda engine, labels: labels.clone()), {"budget", "law"}),
    "twice the budget": (protecting(lambda engine, labels: drawn(engine, labels, 2.0)), {"budget", "law"}),
    "the same in all trainings": (protecting(without_replicas), {"replicas"}),
    "half of the records": (protecting(only_the_first_half), {"rates", "budget"}),
    "coins for pairs of records": (protecting(in_pairs), {"records"}),
    "always the next label": (protecting(to_the_next), {"law"}),
    "redrawn for every batch": ({"labels_of": redrawn}, {"once"}),
}


def broken(changes, variant="split-rr", **settings):
    return replace(make_system(variant, **settings), engine=type("Broken", (Split,), changes))


@pytest.mark.parametrize("name", list(WRONG))
def test_wrong_noise_of_labels_is_caught_by_the_test_for_it(name):
    changes, expected = WRONG[name]
    found = label_noise(broken(changes, label_noise=1.0))
    assert expected <= {t.name for t in found.rejected}, found.sentence
    assert "the noise of the labels is not RandomizedResponse(epsilon=1)" in found.sentence


def test_alibi_with_half_the_noise_is_caught_by_labels_and_by_evidence():
    def protect(self) -> None:
        labels = self.data.labels_of(torch.arange(self.data.records)).expand(len(self.replicas), -1)
        declared, weaker = (
            self.settings.label_mechanism,
            NoisedBefore(law=Alibi(self.settings.label_mechanism.law.std / 2)),
        )
        observed = weaker.observe(labels, self.data.classes, self.stream("labels"))
        self.data = self.data.with_labels(observed.argmax(-1), declared.evidence(observed))

    found = label_noise(broken({"_protect_labels": protect}, "split-alibi", label_noise=1.0))
    assert {"law", "laplace"} <= {t.name for t in found.rejected}, found.sentence


def test_sets_of_classes_with_less_noise_are_caught_by_how_often_they_hold_the_label():
    def protect(self, probe=None) -> None:
        labels = self.data.labels_of(torch.arange(self.data.records)).expand(len(self.replicas), -1)
        # Sets of three classes with either budget.
        declared, weaker = self.settings.label_mechanism, NoisedBefore(law=LabelSets(1.5))
        observed = weaker.observe(labels, self.data.classes, self.stream("labels"))
        self.data = self.data.with_labels(observed.argmax(-1), declared.evidence(observed))

    sound = make_system("noise-once", data=toy_data(classes=10), label_noise=1.0)
    found = label_noise(replace(sound, engine=type("Broken", (NoiseOnce,), {"_protect_labels": protect})))
    assert {"subsets"} <= {t.name for t in found.rejected}, found.sentence
    assert label_noise(sound).holds


@pytest.mark.parametrize("variant", [v for v, (_, s) in ENGINES.items() if "label_protection" in s])
def test_sound_label_mechanisms_pass(variant):
    found = label_noise(make_system(variant))
    assert found.holds, found.sentence
    assert found.sentence.endswith("of 60 labels flipped in 16 trainings")
    assert found.finding.claim_units == {Unit.LABEL, Unit.RECORD, Unit.ADD_REMOVE}


def test_the_audit_reports_the_noise_of_labels():
    assert label_noise(make_system("split-sum")) is None
    (finding,) = NoiseAudit().run(make_system("split-rr"), AuditContext())
    assert (finding.subject, finding.verdict) == ("labels", Verdict.CONSISTENT)
    (finding,) = NoiseAudit().run(broken(WRONG["no noise"][0]), AuditContext())
    assert finding.verdict is Verdict.VIOLATED


@pytest.mark.parametrize(("std", "classes"), [(0.3, 2), (1.0, 3), (2.0, 10)])
def test_alibi_keeps_labels_as_often_as_the_integral_says(std, classes):
    labels = torch.zeros(1, 100_000, dtype=torch.int64)
    stream = Stream.of(0, "labels", [0], torch.device("cpu"))
    kept = float((NoisedBefore(law=Alibi(std)).observe(labels, classes, stream).argmax(-1) == 0).double().mean())
    assert kept == pytest.approx(Alibi(std).kept(classes), abs=4 * 0.5 / 100_000**0.5)


def false_alarms(repetitions, epsilon, level=0.05):
    generator, counts = np.random.default_rng(0), {}
    keep = 1 / (1 + 2 * math.exp(-epsilon))
    for _ in range(repetitions):
        flips = generator.random((6, len(TRUTH))) > keep
        observed = np.where(flips, (TRUTH + generator.integers(1, 3, flips.shape)) % 3, TRUTH)
        p_values = {
            "law": law(observed, TRUTH, 3, keep),
            "budget": budget(observed, TRUTH, 3, epsilon),
            "rates": rates(flips),
            "replicas": flips_by_replica(flips),
            "records": flips_by_lag(flips),
        }
        for name, p in p_values.items():
            counts.setdefault(name, []).append(p <= level)
    return {name: float(np.mean(found)) for name, found in counts.items()}


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_false_alarms_about_labels_are_rare(epsilon):
    found = false_alarms(75, epsilon)
    assert max(found.values()) <= 0.05 + 3.5 * 0.0252, found


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 4.0])
def test_false_alarms_about_labels_are_rare_over_thousands_of_trainings(epsilon):
    found = false_alarms(2000, epsilon)
    assert max(found.values()) <= 0.05 + 3.5 * 0.0049, found


def test_data_with_one_label_has_no_rates_to_compare():
    assert budget(np.zeros((4, 9), dtype=np.int64), np.zeros(9, dtype=np.int64), 3, 1.0) == 1.0
