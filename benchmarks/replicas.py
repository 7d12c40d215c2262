"""Trials per second of the two-world audit: R replicas advancing together against one after the other.

Both run in this process, on one thread, with the same data, model and rounds; compare the ratios.

    python benchmarks/replicas.py [--replicas 256] [--rounds 92]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from _support import build

from vflpriv.audits.scoring.worlds import LikelihoodRatio, for_replicas
from vflpriv.audits.worlds.canaries import plan
from vflpriv.audits.worlds.probes import in_worlds
from vflpriv.audits.worlds.store import TrialStore, one_thread
from vflpriv.core.canaries import CanaryKind
from vflpriv.core.systems import System
from vflpriv.core.views import Adversary
from vflpriv.data import loading as datasets

__all__: list[str] = []


def digits_system(rounds: int, server_update: str, embedding: int) -> System:
    """The embedded audit's engine on the embedded data."""
    return build(
        datasets.load("digits", devices=4),
        "dpzv",
        rounds=rounds,
        batch_size=64,
        activation="round-robin",
        embedding=embedding,
        server_update=server_update,
        noise="given",
        noise_std=1.0,
    )


def trials_per_second(system: System, shards: Sequence[range]) -> float:
    """Train and score the two-world trials of these shards, one shard after the other."""
    canary = plan(system, CanaryKind.WORST_CASE, 0, TrialStore())
    adversary = Adversary.parse("devices(all)")
    start = time.perf_counter()
    with one_thread():
        for replicas in shards:
            ratio = LikelihoodRatio(system.ledger, [adversary], system.data.devices)
            engine, probe = in_worlds(system, replicas, for_replicas(canary, [r % 2 for r in replicas]))
            for round_ in range(system.schedule.rounds):
                for value in probe.round(engine, round_):
                    ratio.add(value)
    return sum(map(len, shards)) / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=92)
    parser.add_argument("--loops", type=int, default=12, help="trainings timed one by one")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(f"digits, 4 devices, B = 64, T = {options.rounds}; trials per second, best of {options.repeats}")
    print(f"{'server':<8}{'model':<14}{'R = 1, looped':>15}{f'R = {options.replicas}':>12}{'ratio':>8}")
    for server_update in ("sgd", "joint"):
        for embedding in (8, 16):
            system = digits_system(options.rounds, server_update, embedding)
            single = [range(r, r + 1) for r in range(options.loops)]
            alone = max(trials_per_second(system, single) for _ in range(options.repeats))
            whole = [range(options.replicas)]
            together = max(trials_per_second(system, whole) for _ in range(options.repeats))
            name = f"embedding {embedding}"
            print(f"{server_update:<8}{name:<14}{alone:>15.1f}{together:>12.1f}{together / alone:>7.1f}x")


if __name__ == "__main__":
    main()
