"""How near measured lower bounds come to the truth, and what they cost: every method, beside the best public figures.

Scores are Gaussian, N(±μ/2, 1), δ = 1e-5, 95 % confidence; a cell is the mean of ε_lower / true ε for μ = 1 / 2 / 4.
Public figures are those of the best public tool of each kind; the ceiling is the mean test that knows the noise. Times
are of one bound at μ = 2, the least of several.
At the end, trials a second of the two-world audit: trainings one by one against all at once.

    python benchmarks/audits.py [--repetitions 200] [--replicas 256]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from _support import BATCH, arguments, build, one_line, seconds

from vflpriv.audits.one_run import guess
from vflpriv.audits.statistics.bounds import Errors, epsilon_rectangle, mu_error_rate, mu_known_sigma
from vflpriv.audits.statistics.guesses import epsilon_guesses
from vflpriv.audits.statistics.one_run import Guesses, epsilon_one_run, mu_one_run
from vflpriv.audits.statistics.sequential import Looks, look_times
from vflpriv.audits.twins.probes import in_worlds
from vflpriv.audits.two_world.canaries import plan
from vflpriv.audits.two_world.scores import LikelihoodRatio, for_replicas
from vflpriv.common.machine import single_threaded
from vflpriv.common.numerics import Floats
from vflpriv.common.store import Store
from vflpriv.core.budgets import epsilon_of
from vflpriv.core.canaries import CanaryKind
from vflpriv.core.systems import System
from vflpriv.core.views import Adversary
from vflpriv.data import loading as datasets

__all__: list[str] = []

DELTA, LEVEL, MUS = 1e-5, 0.95, (1.0, 2.0, 4.0)
SIZES, CANARIES = (500, 1000, 10_000, 100_000), (1000, 10_000, 100_000)
PUBLIC = {
    "any mechanism": (".26/.26/.17", ".32/.31/.20", ".48/.43/.28", ".62/.53/.35"),
    "Gaussian curve": (".70/.81/.83", ".78/.87/.87", ".92/.95/.96", ".97/.98/.98"),
    "known noise": (".88/.94/.97", ".92/.96/.98", ".97/.99/.99", ".99/1.0/1.0"),
}
SOURCES = {"any mechanism": "public", "Gaussian curve": "public", "known noise": "ceiling"}
PUBLIC_ONE_RUN = (".39/.43/.31", ".56/.56/.43", "–")


def _errors(inside: Floats, outside: Floats) -> Errors:
    wrong = int((outside > 0).sum()), int((inside <= 0).sum())
    return Errors(false_positives=wrong[0], negatives=len(outside), false_negatives=wrong[1], positives=len(inside))


def _looks(inside: Floats, outside: Floats) -> Looks:
    return Looks((inside <= 0).astype(np.int64) + (outside > 0), look_times(len(inside)))


METHODS: Mapping[str, tuple[str, Callable[[Floats, Floats, float], float]]] = {
    "surest guesses": ("any mechanism", lambda a, b, mu: epsilon_guesses(a, b, DELTA, LEVEL, seed=0)),
    "surest guesses, ratios": (
        "any mechanism",
        lambda a, b, mu: epsilon_guesses(mu * a, mu * b, DELTA, LEVEL, seed=0, calibrated=True),
    ),
    "rectangle at 0": ("any mechanism", lambda a, b, mu: epsilon_rectangle(_errors(a, b), DELTA, LEVEL)),
    "error rate at 0": (
        "Gaussian curve",
        lambda a, b, mu: epsilon_of(mu_error_rate(_errors(a, b), LEVEL), DELTA),
    ),
    "sequential at 0": ("Gaussian curve", lambda a, b, mu: epsilon_of(_looks(a, b).mu_lower(LEVEL), DELTA)),
    "mean": ("known noise", lambda a, b, mu: epsilon_of(mu_known_sigma(a, b, LEVEL), DELTA)),
}


def timed(bound: Callable[[], float]) -> tuple[float, float]:
    """The value, and the seconds it took."""
    start = time.perf_counter()
    return bound(), time.perf_counter() - start


def two_worlds(repetitions: int) -> None:
    """Bounds from n trials in each world."""
    print(f"{'two worlds, trials a world':<28}" + "".join(f"{n:>14}{'ms':>8}" for n in SIZES))
    for kind, public in PUBLIC.items():
        print(f"{f'{SOURCES[kind]}, {kind}':<28}" + "".join(f"{cell:>14}{'':>8}" for cell in public))
        for name, (shape, bound) in METHODS.items():
            if shape == kind:
                cells = [_cell(bound, n, max(5, min(repetitions, repetitions * 2000 // n))) for n in SIZES]
                print(f"  {name:<26}" + "".join(f"{cell:>14}{1e3 * seconds:>8.2f}" for cell, seconds in cells))


def _cell(bound: Callable[[Floats, Floats, float], float], n: int, repetitions: int) -> tuple[str, float]:
    rng, means, least = np.random.default_rng(0), [], np.inf
    for mu in MUS:
        rows = []
        for _ in range(repetitions):
            inside, outside = rng.normal(mu / 2, 1, n), rng.normal(-mu / 2, 1, n)
            value, seconds = timed(lambda a=inside, b=outside, m=mu: bound(a, b, m))
            rows.append(value)
            least = min(least, seconds) if mu == 2 else least
        means.append(float(np.mean(rows)) / epsilon_of(mu, DELTA))
    return _ratios(means), least


def _ratios(means: list[float]) -> str:
    return "/".join(f"{m:.2f}".removeprefix("0") for m in means)


def one_run(repetitions: int) -> None:
    """Bounds from m canaries in one training; how many are guessed about is planned on a pilot."""
    print(f"\n{'one run, canaries':<28}" + "".join(f"{m:>14}{'ms':>8}" for m in CANARIES))
    print(f"{'public':<28}" + "".join(f"{cell:>14}{'':>8}" for cell in PUBLIC_ONE_RUN))
    for name, bound in (
        ("any mechanism", lambda g: epsilon_one_run(g, DELTA, LEVEL)),
        ("Gaussian curve (f-DP)", lambda g: epsilon_of(mu_one_run(g, LEVEL), DELTA)),
    ):
        cells = [_one_run_cell(bound, m, max(3, min(repetitions, repetitions * 200 // m))) for m in CANARIES]
        print(f"  {name:<26}" + "".join(f"{cell:>14}{1e3 * seconds:>8.2f}" for cell, seconds in cells))


def _one_run_cell(bound: Callable[[Guesses], float], m: int, repetitions: int) -> tuple[str, float]:
    rng, means, least = np.random.default_rng(0), [], np.inf
    for mu in MUS:
        rows = []
        for _ in range(repetitions):
            worlds = rng.integers(0, 2, m)
            scores = mu * (rng.normal(0, 1, m) + mu * (0.5 - worlds))
            guesses, _ = guess(scores, worlds)
            value, seconds = timed(lambda g=guesses: bound(g))
            rows.append(value)
            least = min(least, seconds) if mu == 2 else least
        means.append(float(np.mean(rows)) / epsilon_of(mu, DELTA))
    return _ratios(means), least


def digits_system() -> System:
    """The embedded audit's engine on the embedded data."""
    return build(
        datasets.load("digits", devices=4),
        "dpzv",
        rounds=92,
        batch_size=BATCH,
        activation="round-robin",
        embedding=8,
        server_update="joint",
        noise="given",
        noise_std=1.0,
    )


def trials_per_second(system: System, shards: Sequence[range]) -> float:
    """Train and score the two-world trials of these shards, one shard after the other."""
    canary = plan(system, CanaryKind.WORST_CASE, 0, Store())
    adversary = Adversary.parse("devices(all)")

    def train() -> None:
        for replicas in shards:
            ratio = LikelihoodRatio(system.ledger, [adversary], system.data.devices)
            engine, probe = in_worlds(system, replicas, for_replicas(canary, [r % 2 for r in replicas]))
            for round_ in range(system.schedule.rounds):
                for value in probe.round(engine, round_):
                    ratio.add(value)

    with single_threaded():
        return sum(map(len, shards)) / seconds(train)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=200, help="at the smallest size; fewer at larger ones")
    parser.add_argument("--replicas", type=int, default=256)
    options = arguments(parser)
    two_worlds(options.repetitions)
    one_run(options.repetitions)
    system = digits_system()
    # In turns, so that whatever else the machine does meets both.
    ways = [[range(r, r + 1) for r in range(12)], [range(options.replicas)]]
    alone, together = map(max, zip(*([trials_per_second(system, way) for way in ways] for _ in range(5)), strict=True))
    print(
        f"\ntrials a second: R = 1 looped {alone:.1f}, R = {options.replicas} {together:.1f}, {together / alone:.1f}x"
    )


if __name__ == "__main__":
    one_line(main)
