"""Two worlds: half the replicas train with the canary in one world, half in the other; can the view tell which?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vflpriv.audits._bounds import Errors
from vflpriv.audits._canaries import most_exposed, plan
from vflpriv.audits._trials import TrialStore, side_by_side
from vflpriv.canaries import Canary, CanaryKind
from vflpriv.ledger import Ledger, Reading
from vflpriv.registry import register
from vflpriv.releases import Gaussian
from vflpriv.systems import System
from vflpriv.units import Unit
from vflpriv.views import Adversary, View
from vflpriv.wire import Transcript, Wire

__all__ = ["Trials", "TwoWorldAudit", "for_replicas", "likelihood_ratio"]

_MEMORY = 1 << 30
_MOST_REPLICAS = 256


@dataclass(frozen=True, eq=False, kw_only=True)
class Trials:
    """The scores of both worlds through one view. Positive says world 0; the threshold 0 was fixed in advance."""

    adversary: Adversary
    canary: Canary
    scores: tuple[NDArray[np.float64], NDArray[np.float64]]

    @property
    def unit(self) -> Unit:
        """What the canary changes: a label, or a record's whole contribution."""
        return Unit.RECORD if self.canary.at_clip else Unit.LABEL

    @property
    def errors(self) -> Errors:
        inside, outside = self.scores
        return Errors(
            false_positives=int((outside > 0).sum()),
            negatives=len(outside),
            false_negatives=int((inside <= 0).sum()),
            positives=len(inside),
        )

    def curve(self, points: int = 41) -> list[tuple[float, float]]:
        """Observed (false-positive, false-negative) rates over thresholds: for the eye, no bound is taken from it."""
        inside, outside = (np.sort(s) for s in self.scores)
        thresholds = np.quantile(np.concatenate(self.scores), np.linspace(0, 1, points))
        fpr = 1 - np.searchsorted(outside, thresholds, side="right") / len(outside)
        fnr = np.searchsorted(inside, thresholds, side="right") / len(inside)
        return [(float(a), float(b)) for a, b in zip(fpr, fnr, strict=True)]


def likelihood_ratio(view: View, ledger: Ledger) -> Tensor:
    """(R,) log-likelihood ratio of world 0 to world 1 for an adversary who knows every other record.

    A Gaussian release X with mean a in world 0 and b in world 1 adds ((X - b)² - (X - a)²) / 2σ². Exact where all
    state is post-processing of releases; otherwise a score as good as any, since bounds do not rest on its form.
    """
    stds = {r.kind: r.noise.std for r in ledger.releases if isinstance(r.noise, Gaussian)}
    # What carries no noise needs no statistics: it is in the ledger as unprotected.
    total = torch.zeros(())
    for message in view.messages:
        for name, either in message.worlds.items() if message.kind in stds else ():
            value = message.tensors[name]
            gap = (value - either[:, 1]).square() - (value - either[:, 0]).square()
            total = total.to(gap.device) + gap.reshape(len(gap), -1).sum(1) / (2 * stds[message.kind] ** 2)
    return total


@register("audit")
class TwoWorldAudit:
    """Trains the system many times with one record in either world, and scores each run through each view."""

    name = "two-world"
    summary = "trains in two neighbouring worlds and measures how well a view tells them apart"

    def __init__(self, *, store: TrialStore | None = None) -> None:
        self.store = store or TrialStore()

    def refusal(self, system: System, adversary: Adversary) -> str | None:
        """Why this system cannot be audited through this view, or None."""
        exposure = system.ledger.exposure(adversary, Unit.RECORD, reading=Reading.PAPER)
        if not any(isinstance(e.noise, Gaussian) for e in exposure.events):
            return f"two-world needs a noised release before {adversary}'s eyes, and there is none"
        if not adversary.knows_batches:
            return f"two-world needs a view that knows the batches, and {adversary} does not"
        if exposure.counts is None or not exposure.counts.any():
            return "two-world needs a record that takes part"
        return None

    def run(
        self,
        system: System,
        adversaries: Sequence[Adversary],
        kind: CanaryKind,
        *,
        trials: int,
        advance: Callable[[int], None] | None = None,
    ) -> Mapping[Adversary, Trials]:
        """`trials` trainings in each world with one canary, scored through several views at once.

        `advance` is told the replica-rounds done.
        """
        ledger = system.ledger
        seen = [ledger.exposure(a, Unit.RECORD, reading=Reading.PAPER) for a in adversaries]
        canary = plan(system, kind, most_exposed(seen), self.store)
        eyes = {asked: exposure.adversary for asked, exposure in zip(adversaries, seen, strict=True)}

        def shard(replicas: range) -> dict[str, Tensor]:
            return self._shard(system, ledger, canary, list(eyes.values()), replicas, advance)

        shards = side_by_side(shard, _shards(system, trials), system.torch_device)
        result = {}
        for asked, actual in eyes.items():
            scores = torch.cat([shard[str(actual)] for shard in shards]).to(torch.float64).numpy()
            result[asked] = Trials(adversary=actual, canary=canary, scores=(scores[0::2], scores[1::2]))
        return result

    def _shard(
        self,
        system: System,
        ledger: Ledger,
        canary: Canary,
        eyes: Sequence[Adversary],
        replicas: range,
        advance: Callable[[int], None] | None,
    ) -> dict[str, Tensor]:
        rounds = system.schedule.rounds * len(replicas)
        key = f"{system.fingerprint()}/{canary.kind}/{canary.record}/{'+'.join(map(str, eyes))}/{replicas}"
        stored = self.store.load(key)
        if stored is not None:
            if advance is not None:
                advance(rounds)
            return stored
        transcript = Transcript(moved=True)
        engine = system.train(replicas, canary=for_replicas(canary, replicas))
        step = None if advance is None else lambda done: advance(done * len(replicas))
        engine.run(Wire(transcript), advance=step)
        devices, classes = system.data.devices, system.data.classes
        views = {a: View.of(transcript, a, devices=devices, classes=classes) for a in eyes}
        shard = {str(a): likelihood_ratio(view, ledger).to(torch.float32).cpu() for a, view in views.items()}
        self.store.save(key, shard)
        return shard


def _shards(system: System, trials: int) -> list[range]:
    """Replica numbers, an even count a shard: even ones live in world 0, odd ones in world 1."""
    room = _MEMORY // max(1, system.engine.state_bytes(system.settings, system.data))
    size = max(2, min(_MOST_REPLICAS, room) // 2 * 2)
    return [range(start, min(start + size, 2 * trials)) for start in range(0, 2 * trials, size)]


def for_replicas(canary: Canary, replicas: range) -> Canary:
    """The canary in each of these replicas: even numbers live in world 0, odd ones in world 1."""
    world = torch.tensor([r % 2 for r in replicas], dtype=torch.int64)
    blocks = {m: b.expand(len(replicas), *b.shape[1:]) for m, b in canary.blocks.items()}
    return replace(canary, world=world, blocks=blocks)
