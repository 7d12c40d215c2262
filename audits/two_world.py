"""Two worlds: half the replicas train with the canary in one world, half in the other; can the view tell which?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vflpriv.audits._bounds import Errors
from vflpriv.audits._canaries import REACH, most_exposed, plan
from vflpriv.audits._learned import discriminant
from vflpriv.audits._methods import canary_unit, method_of, threshold_of
from vflpriv.audits._scores import SCORERS, Request
from vflpriv.audits._trials import TrialStore, side_by_side
from vflpriv.canaries import Canary, CanaryKind
from vflpriv.errors import VflprivError
from vflpriv.ledger import Reading
from vflpriv.registry import register
from vflpriv.systems import System
from vflpriv.units import Unit
from vflpriv.views import Adversary

__all__ = ["Trials", "TwoWorldAudit"]

_MEMORY = 1 << 30
_MOST_REPLICAS = 256
_LEARNING = 256
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Trials:
    """The scores of both worlds through one view. Above the threshold says world 0; it was fixed in advance."""

    adversary: Adversary
    canary: Canary
    scores: tuple[Floats, Floats]
    method: str = "likelihood ratio"
    threshold: float = 0.0

    @property
    def unit(self) -> Unit:
        """What the canary changes."""
        return self.canary.unit

    @property
    def exact(self) -> bool:
        """Whether a score is N(±μ²/2, μ²) in a sound engine: gaps at the clip are the same in every trial."""
        return self.canary.at_clip and self.method == "likelihood ratio"

    @property
    def one_sided(self) -> bool:
        """Whether the threshold lies far out, so that the two error rates are nothing alike."""
        return self.threshold != 0.0

    @property
    def errors(self) -> Errors:
        inside, outside = self.scores
        return Errors(
            false_positives=int((outside > self.threshold).sum()),
            negatives=len(outside),
            false_negatives=int((inside <= self.threshold).sum()),
            positives=len(inside),
        )

    def curve(self, points: int = 41) -> list[tuple[float, float]]:
        """Observed (false-positive, false-negative) rates over thresholds: for the eye, no bound is taken from it."""
        inside, outside = (np.sort(s) for s in self.scores)
        thresholds = np.quantile(np.concatenate(self.scores), np.linspace(0, 1, points))
        fpr = 1 - np.searchsorted(outside, thresholds, side="right") / len(outside)
        fnr = np.searchsorted(inside, thresholds, side="right") / len(inside)
        return [(float(a), float(b)) for a, b in zip(fpr, fnr, strict=True)]


@register("audit")
class TwoWorldAudit:
    """Trains the system many times with one unit in either world, and scores each run through each view."""

    name = "two-world"
    summary = "trains in two neighbouring worlds and measures how well a view tells them apart"

    def __init__(self, *, store: TrialStore | None = None) -> None:
        self.store = store or TrialStore()

    @staticmethod
    def refusal(
        system: System,
        adversary: Adversary,
        *,
        unit: Unit = Unit.RECORD,
        kind: CanaryKind = CanaryKind.WORST_CASE,
    ) -> str | None:
        """Why this system cannot be audited through this view for this unit, or None."""
        return method_of(system, adversary, unit, kind).refusal

    @staticmethod
    def trainings(
        system: System, adversaries: Sequence[Adversary], kind: CanaryKind, *, trials: int, unit: Unit
    ) -> int:
        """How many replicas `run` trains in all, both worlds and those that a score is learned on."""
        names = dict.fromkeys(method_of(system, a, unit, kind).name for a in adversaries)
        return sum(2 * (trials + _learning(name, trials)) for name in names)

    def run(
        self,
        system: System,
        adversaries: Sequence[Adversary],
        kind: CanaryKind,
        *,
        trials: int,
        unit: Unit = Unit.RECORD,
        confidence: float = 0.95,
        reach: float = REACH,
        advance: Callable[[int], None] | None = None,
    ) -> Mapping[Adversary, Trials]:
        """`trials` trainings in each world with a canary of this unit, scored through several views at once.

        Views that are scored by the same method share their trainings. `advance` is told the replica-rounds done.
        """
        methods = {a: method_of(system, a, unit, kind) for a in adversaries}
        for adversary, method in methods.items():
            if method.refusal is not None:
                raise VflprivError(f"{adversary}: {method.refusal}")
        found: dict[Adversary, Trials] = {}
        for name in dict.fromkeys(m.name for m in methods.values()):
            same = [a for a in adversaries if methods[a].name == name]
            found |= self._together(system, same, kind, unit, name, trials, confidence, reach, advance)
        return {a: found[a] for a in adversaries}

    def _together(
        self,
        system: System,
        adversaries: Sequence[Adversary],
        kind: CanaryKind,
        unit: Unit,
        method: str,
        trials: int,
        confidence: float,
        reach: float,
        advance: Callable[[int], None] | None,
    ) -> dict[Adversary, Trials]:
        ledger = system.ledger
        seen = [ledger.exposure(a, unit, reading=Reading.PAPER) for a in adversaries]
        what = canary_unit(ledger, unit, kind)
        record = most_exposed(seen, system.schedule) if what.per_record else 0
        rate = system.schedule.rate if method == "secret batches" else None
        canary = plan(system, kind, record, self.store, unit=what, rate=rate, reach=reach)
        eyes = {asked: exposure.adversary for asked, exposure in zip(adversaries, seen, strict=True)}
        learning = _learning(method, trials)

        def shard(replicas: range) -> dict[str, Tensor]:
            return self._shard(system, canary, list(eyes.values()), f"{method}/{reach:g}", replicas, advance)

        shards = side_by_side(shard, _shards(system, trials + learning), system.torch_device)
        threshold = threshold_of(system, canary, method, trials=trials, confidence=confidence)
        result = {}
        for asked, actual in eyes.items():
            scores = torch.cat([shard[str(actual)] for shard in shards]).to(torch.float64).numpy()
            if learning:
                scores = _learned(scores, 2 * trials)
            both = (scores[0::2], scores[1::2])
            result[asked] = Trials(adversary=actual, canary=canary, scores=both, method=method, threshold=threshold)
        return result

    def _shard(
        self,
        system: System,
        canary: Canary,
        eyes: Sequence[Adversary],
        method: str,
        replicas: range,
        advance: Callable[[int], None] | None,
    ) -> dict[str, Tensor]:
        what = f"{method}/{canary.kind}/{canary.unit}/{canary.record}/{canary.devices}/{canary.rate}"
        key = f"{system.fingerprint()}/{what}/{'+'.join(map(str, eyes))}/{replicas}"
        stored = self.store.load(key)
        if stored is not None:
            if advance is not None:
                advance(system.schedule.rounds * len(replicas))
            return stored
        step = None if advance is None else lambda done: advance(done * len(replicas))
        request = Request(system=system, ledger=system.ledger, canary=canary, eyes=eyes, replicas=replicas, step=step)
        shard = {name: score.to(torch.float32).cpu() for name, score in SCORERS[method.split("/")[0]](request).items()}
        self.store.save(key, shard)
        return shard


def _learning(method: str, trials: int) -> int:
    """Trials in each world that a score is learned on."""
    return min(trials, _LEARNING) if method == "learned" else 0


def _learned(features: Floats, tested: int) -> Floats:
    """Scores of the first `tested` rows, learned from the others."""
    weights, offset = discriminant(features[tested::2], features[tested + 1 :: 2])
    return np.asarray(features[:tested] @ weights + offset, dtype=np.float64)


def _shards(system: System, trials: int) -> list[range]:
    """Replica numbers, an even count a shard: even ones live in world 0, odd ones in world 1."""
    room = _MEMORY // max(1, system.engine.state_bytes(system.settings, system.data))
    size = max(2, min(_MOST_REPLICAS, room) // 2 * 2)
    return [range(start, min(start + size, 2 * trials)) for start in range(0, 2 * trials, size)]
