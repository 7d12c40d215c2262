"""Two worlds: half the replicas train with the canary in one world, half in the other; can the view tell which?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from vflpriv.audits._canaries import most_exposed, plan
from vflpriv.audits._ratios import likelihood_ratio, strength
from vflpriv.audits._sequential import look_times
from vflpriv.audits._trials import TrialStore, side_by_side
from vflpriv.audits._world_trials import Trials
from vflpriv.canaries import Canary, CanaryKind
from vflpriv.ledger import Ledger, Reading
from vflpriv.registry import register
from vflpriv.releases import Gaussian
from vflpriv.systems import System
from vflpriv.units import Unit
from vflpriv.views import Adversary, View
from vflpriv.wire import Transcript, Wire

__all__ = ["TwoWorldAudit", "for_replicas"]

_MEMORY = 1 << 30
_MOST_REPLICAS = 256


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
        stop: Callable[[Mapping[Adversary, Trials]], bool] | None = None,
    ) -> Mapping[Adversary, Trials]:
        """`trials` trainings in each world with one canary, scored through several views at once.

        `advance` is told the replica-rounds done. `stop` is asked at each look whether the trials so far are enough;
        with it, bounds and p-values are those of a test that may be stopped at any look.
        """
        ledger = system.ledger
        seen = [ledger.exposure(a, Unit.RECORD, reading=Reading.PAPER) for a in adversaries]
        canary = plan(system, kind, most_exposed(seen), self.store)
        eyes = {asked: exposure.adversary for asked, exposure in zip(adversaries, seen, strict=True)}

        def shard(replicas: range) -> dict[str, Tensor]:
            return self._shard(system, ledger, canary, list(eyes.values()), replicas, advance)

        result: Mapping[Adversary, Trials] = {}
        shards: list[dict[str, Tensor]] = []
        times, done = (look_times(trials) if stop is not None else (trials,)), 0
        for place, until in enumerate(times):
            shards += side_by_side(shard, _shards(system, done, until), system.torch_device)
            looks, done = times[: place + 1] if stop is not None else (), until
            result = {a: _trials(shards, actual, canary, looks) for a, actual in eyes.items()}
            if stop is not None and stop(result):
                break
        if advance is not None and done < trials:
            advance(2 * (trials - done) * system.schedule.rounds)
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
        key = f"{system.fingerprint()}/{canary.kind}/{canary.record}/{'+'.join(map(str, eyes))}/{replicas}/strength"
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
        shard = {}
        for a, view in views.items():
            shard[str(a)] = likelihood_ratio(view, ledger).to(torch.float32).cpu()
            shard[f"{a} strength"] = strength(view, ledger).to(torch.float32).expand(len(replicas)).cpu()
        self.store.save(key, shard)
        return shard


def _trials(
    shards: Sequence[Mapping[str, Tensor]], adversary: Adversary, canary: Canary, looks: tuple[int, ...]
) -> Trials:
    scores, strengths = (
        torch.cat([shard[key] for shard in shards]).to(torch.float64).numpy()
        for key in (str(adversary), f"{adversary} strength")
    )
    worlds = scores[0::2], scores[1::2]
    return Trials(adversary=adversary, canary=canary, scores=worlds, strengths=strengths, looks=looks)


def _shards(system: System, done: int, until: int) -> list[range]:
    """Replica numbers of the trials from `done` to `until` in each world; even ones live in world 0, odd in world 1."""
    room = _MEMORY // max(1, system.engine.state_bytes(system.settings, system.data))
    size = max(2, min(_MOST_REPLICAS, room) // 2 * 2)
    return [range(start, min(start + size, 2 * until)) for start in range(2 * done, 2 * until, size)]


def for_replicas(canary: Canary, replicas: range) -> Canary:
    """The canary in each of these replicas: even numbers live in world 0, odd ones in world 1."""
    world = torch.tensor([r % 2 for r in replicas], dtype=torch.int64)
    blocks = {m: b.expand(len(replicas), *b.shape[1:]) for m, b in canary.blocks.items()}
    return replace(canary, world=world, blocks=blocks)
