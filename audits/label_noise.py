"""Tests of noised labels: are they as noisy as the ledger declares, drawn once, and anew for each record and training?

The labels that the engine trains on are compared with the true ones, over several replicas. A label is a *flip* where
the two differ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vflpriv.audits.drawn_labels import draw_labels, drawn_law, places, positions
from vflpriv.audits.statistics.noise_tests import ALPHA, NoiseTest, confirmed, smallest
from vflpriv.common.lazy import stats
from vflpriv.common.numerics import Floats
from vflpriv.common.seeds import host_generator
from vflpriv.core.audit import Finding
from vflpriv.core.claims import Verdict
from vflpriv.core.engine import Engine
from vflpriv.core.systems import System
from vflpriv.core.units import Unit
from vflpriv.laws.fit import rate_p_value
from vflpriv.training.mechanisms.priors import PriorLabels

__all__ = [
    "LabelNoise",
    "budget",
    "flips_by_lag",
    "flips_by_replica",
    "label_noise",
    "law",
    "rates",
]

_REPLICAS = 16
_LAGS = 512
_BLOCKS = 16
_UNITS = frozenset({Unit.LABEL, Unit.RECORD, Unit.ADD_REMOVE})
Ints = NDArray[np.int64]
Tests = list[tuple[str, str, float]]


@dataclass(frozen=True, kw_only=True)
class LabelNoise:
    """The noised labels of a system: how many of how many trainings were seen, the share of flips, and all tests."""

    records: int
    replicas: int
    flipped: float
    declared: str
    tests: tuple[NoiseTest, ...]

    @property
    def rejected(self) -> tuple[NoiseTest, ...]:
        return tuple(t for t in self.tests if t.p_adjusted <= ALPHA)

    @property
    def holds(self) -> bool:
        return not self.rejected

    @property
    def sentence(self) -> str:
        seen = f"{self.flipped:.2%} of {self.records} labels flipped in {self.replicas} trainings"
        if self.holds:
            return f"the noise of the labels, {self.declared}, passes {len(self.tests)} tests: {seen}"
        worst = min(t.p_adjusted for t in self.rejected)
        names = ", ".join(t.name for t in self.rejected)
        return f"the noise of the labels is not {self.declared}: it fails {names} (p = {worst:.1e} after Holm); {seen}"

    @property
    def finding(self) -> Finding:
        """Claims about units that include the label rest on its noise."""
        return Finding(
            audit="noise",
            subject="labels",
            verdict=Verdict.CONSISTENT if self.holds else Verdict.VIOLATED,
            sentence=self.sentence,
            figure=self.flipped,
            measure="share of labels that were changed",
            claim_units=_UNITS,
            p_value=min(t.p_adjusted for t in self.tests),
            evidence=self,
        )


def label_noise(system: System) -> LabelNoise | None:
    """Tests of the labels that the replicas of an engine train on; None where no label noise is declared."""
    mechanism = getattr(system.settings, "label_mechanism", None)
    if mechanism is None:
        return None
    look = _drawn if isinstance(mechanism, PriorLabels) else _tested
    flips, tests = look(system, mechanism, range(_REPLICAS))

    def again() -> dict[str, float]:
        return {name: p for name, _, p in look(system, mechanism, range(_REPLICAS, 2 * _REPLICAS))[1]}

    adjusted = confirmed({name: p for name, _, p in tests}, again)
    return LabelNoise(
        records=system.data.records,
        replicas=_REPLICAS,
        flipped=float(flips.mean()),
        declared=str(mechanism.noise),
        tests=tuple(
            NoiseTest(name=name, question=question, p_value=p, p_adjusted=adjusted[name]) for name, question, p in tests
        ),
    )


def _tested(system: System, mechanism: Any, replicas: range) -> tuple[NDArray[np.bool_], Tests]:
    """Which labels of these replicas, noised before training, are flips, and all tests of them."""
    engine = system.train(replicas)
    every = torch.arange(system.data.records, device=system.torch_device)
    observed = engine.data.labels_of(every).expand(_REPLICAS, -1).cpu().numpy()
    truth = system.data.labels.cpu().numpy()
    flips = observed != truth
    tests: Tests = [
        ("budget", "do its rates keep to the declared ε", budget(observed, truth, system.classes, mechanism.epsilon)),
        ("rates", "does every record have the same chance to flip", rates(flips)),
        ("replicas", "are the flips of each training independent of every other's", flips_by_replica(flips)),
        ("records", "are the flips of each record independent of every other's", flips_by_lag(flips)),
        ("once", "are the labels drawn once", _once(engine, every, observed)),
    ]
    kept = mechanism.law.kept(system.classes)
    tests.append(("law", "are labels kept and changed as declared", law(observed, truth, system.classes, kept)))
    if (evidence := engine.data.replica_evidence) is not None:
        observations = mechanism.law.observation_test(evidence.cpu().double().numpy(), truth)
        tests += [] if observations is None else [observations]
    return flips, tests


def _drawn(system: System, mechanism: PriorLabels, replicas: range) -> tuple[NDArray[np.bool_], Tests]:
    """The same of labels that are drawn during training.

    Each draw has a chance of its own to flip. Tests of all records alike are of coins that are fair for each of them:
    on which half of its law a response lies; labels that are never drawn get coins of our own.
    """
    draws, truth, epsilon = (
        draw_labels(system, mechanism, replicas),
        system.data.labels.cpu().numpy(),
        mechanism.epsilon,
    )
    placed, clear = places(draws, truth, epsilon)
    uniform = positions(placed, epsilon, replicas.start)
    coins = host_generator(replicas.start, "search", 1).uniform(size=clear.shape) > 0.5
    coins[clear] = uniform > 0.5
    own = np.broadcast_to(truth, clear.shape)[clear]
    tests: Tests = [
        ("support", "are all responses among the classes that the prior allows", float((uniform >= 0).all())),
        ("law", "are labels kept and changed as declared", drawn_law(placed, own, uniform, epsilon)),
        ("rates", "does every record's response follow its law", rates(coins)),
        ("replicas", "are the responses of each training independent of every other's", flips_by_replica(coins)),
        ("records", "are the responses of each record independent of every other's", flips_by_lag(coins)),
        ("once", "are the labels drawn once", float(draws.once)),
        ("prior", "do priors depend on responses alone", float(draws.untouched)),
    ]
    return (draws.responses != truth)[draws.drawn], tests


def _once(engine: Engine, every: torch.Tensor, observed: Ints) -> float:
    """0 if the engine's losses read other labels at a second time, or other ones than those it holds; else 1."""

    def logits() -> torch.Tensor:
        return torch.zeros(_REPLICAS, len(every), engine.data.classes, device=every.device)

    first, second = (engine.labels_of(every, logits) for _ in range(2))
    same = torch.equal(first, second)
    if not first.is_floating_point():
        same = same and np.array_equal(first.expand(_REPLICAS, -1).cpu().numpy(), observed)
    return 1.0 if same else 0.0


def law(observed: Ints, truth: Ints, classes: int, kept: float) -> float:
    """The p-value of "a label is kept at this rate, else one of the others at random", for each true class.

    Exact for the rate, by the binomial law; Pearson's statistic for the others where each is expected five times.
    """
    p_values = []
    for label in np.unique(truth):
        drawn = np.bincount(observed[:, truth == label].ravel(), minlength=classes)
        p_values.append(float(rate_p_value(drawn[label], drawn.sum(), kept)))
        others = np.delete(drawn, label)
        expected = others.mean()
        if classes > 2 and expected >= 5:
            p_values.append(float(stats.chi2.sf(np.square(others - expected).sum() / expected, classes - 2)))
    return smallest(p_values)


def budget(observed: Ints, truth: Ints, classes: int, epsilon: float) -> float:
    """The p-value of "no label is seen e^ε times as often, or more, under one true label as under another".

    The p-value of one ratio is the smallest α at which Clopper and Pearson's lower limit of one rate, at α/2, lies
    above e^ε times the upper limit of the other, at α/2; Bonferroni over all labels and pairs of true labels.
    """
    present = np.unique(truth)
    counts = np.array([np.bincount(observed[:, truth == label].ravel(), minlength=classes) for label in present])
    numbers = counts.sum(1)
    places = [(a, b, o) for a in range(len(present)) for b in range(len(present)) if a != b for o in range(classes)]
    if not places:
        return 1.0
    a, b, o = np.array(places).T
    factor = math.exp(min(epsilon, 700.0))

    def refuted(alpha: float) -> NDArray[np.bool_]:
        low = np.where(counts[a, o] > 0, stats.beta.ppf(alpha / 2, counts[a, o], numbers[a] - counts[a, o] + 1), 0.0)
        full = counts[b, o] == numbers[b]
        high = np.where(
            full, 1.0, stats.beta.ppf(1 - alpha / 2, counts[b, o] + 1, np.maximum(numbers[b] - counts[b, o], 1))
        )
        return np.asarray(low > factor * high)

    levels = 10.0 ** -np.arange(0.0, 13.0, 0.25)
    smallest = next((level for level in levels[::-1] if refuted(float(level)).any()), 1.0)
    return min(1.0, len(places) * float(smallest))


def rates(flips: NDArray[np.bool_]) -> float:
    """The p-value of "every record flips at the same rate", for each record and for blocks of them.

    Given the number of flips, those in a block are hypergeometric.
    """
    replicas, records = flips.shape
    blocks = np.arange(records) * _BLOCKS // records
    total, p_values = int(flips.sum()), []
    for groups in (np.arange(records), blocks):
        flipped, sizes = np.bincount(groups, flips.sum(0)).astype(np.int64), replicas * np.bincount(groups)
        p_values.append(smallest(_hypergeometric(flipped, flips.size, total, sizes)))
    return smallest(p_values)


def flips_by_replica(flips: NDArray[np.bool_]) -> float:
    """The p-value of "no two trainings flip the same records": joint flips, given those of each, are hypergeometric."""
    first, second = np.triu_indices(len(flips), 1)
    joint = flips.astype(np.int64) @ flips.astype(np.int64).T
    by_replica = flips.sum(1)
    return smallest(_hypergeometric(joint[first, second], flips.shape[1], by_replica[first], by_replica[second]))


def flips_by_lag(flips: NDArray[np.bool_]) -> float:
    """The p-value of "records at no distance from each other flip together".

    At each distance records are paired without using one twice; joint flips over all trainings are hypergeometric given
    the flips of either side. All distances up to half of the records, or some of them drawn at random.
    """
    records = flips.shape[1]
    distances = np.arange(1, records // 2 + 1)
    if len(distances) > _LAGS:
        more = host_generator(0, "search").choice(distances[_LAGS // 2 :], size=_LAGS // 2, replace=False)
        distances = np.concatenate((distances[: _LAGS // 2], more))
    rows = []
    for distance in distances:
        first = np.flatnonzero(np.arange(records) // distance % 2 == 0)
        first = first[first + distance < records]
        near, far = flips[:, first], flips[:, first + distance]
        rows.append(((near & far).sum(), near.size, near.sum(), far.sum()))
    return smallest(_hypergeometric(*np.array(rows).T)) if rows else 1.0


def _hypergeometric(joint: Any, population: Any, marked: Any, drawn: Any) -> Floats:
    """Two-sided p-values of so many marked ones among those drawn."""
    low = stats.hypergeom.cdf(joint, population, marked, drawn)
    high = stats.hypergeom.sf(joint - 1, population, marked, drawn)
    return np.asarray(np.minimum(1.0, 2 * np.minimum(low, high)))
