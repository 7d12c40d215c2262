"""`vflpriv frontier`: at each ε, the candidate that is best on validation records, tested and audited.

Settings are tried on part of the training records and compared on the rest, those that come nearest to the best with
more seeds: one training may be lucky. The best are then trained on all of these records, with noise that is found anew,
and only then are test records looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from vflpriv import __version__
from vflpriv.audits.statistics.significance import mean_interval
from vflpriv.common.devices import check_device
from vflpriv.common.machine import hardware, single_threaded, versions
from vflpriv.common.store import Store
from vflpriv.common.tasks import Executor, InProcess
from vflpriv.core.data import VerticalData
from vflpriv.core.systems import System
from vflpriv.core.views import Adversary
from vflpriv.experiments.curves import Try
from vflpriv.experiments.frontier.point_audits import PointAudits
from vflpriv.experiments.frontier.profile import Candidate, FrontierConfig
from vflpriv.experiments.frontier.result import Entry, FrontierReport, Point
from vflpriv.experiments.frontier.targets import AtTarget, at_target
from vflpriv.experiments.learning import TRIED_APART, Loaded, Trainer
from vflpriv.run.noise.search import NoiseTarget
from vflpriv.run.progress import LateTask
from vflpriv.run.selection import chosen_keys
from vflpriv.run.summary.budgets import accounted

__all__ = ["find_frontier"]


@single_threaded()
def find_frontier(
    config: FrontierConfig,
    *,
    command: str,
    only: Sequence[str] = (),
    store: Path | None = None,
    quiet: bool | None = None,
    executor: Executor | None = None,
) -> FrontierReport:
    """Try every candidate at every ε, then train, test and audit the best; trainings in the store are used again."""
    check_device(config.device)
    keys = chosen_keys([candidate.key for candidate in config.candidate], only)
    running = executor or InProcess()
    search = _Search(config, [c for c in config.candidate if c.key in keys and config.unit in c.units])
    options = [search.options(candidate, epsilon) for epsilon in config.epsilons for candidate in search.candidates]
    with LateTask(quiet) as task:
        task.expect(search.work(options))
        trainer = Trainer(store=Store(store), progress=task, executor=running)
        tried = search.tried(options, trainer)
        points = [search.point(winner, trainer) for winner in search.winners(options, tried)]
    audits = PointAudits(
        config=config, system_at=search.at, records=search.data().records, executor=running, store=store, quiet=quiet
    )
    audited = [audits.audited(search.candidate(point.key), point) for point in points]
    return FrontierReport(
        tool_version=__version__,
        command=command,
        versions=versions(),
        hardware=hardware(),
        seed=config.seed,
        seeds=config.seeds,
        confidence=config.confidence,
        data=search.data().facts,
        fitted=search.data().fitted,
        unit=config.unit.value,
        view=config.view,
        delta=config.delta,
        validation=search.data(validation=config.validation).validation_records,
        entries=tuple(search.entry(option, own) for option, own in zip(options, tried, strict=True)),
        points=tuple(audited),
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class _Options:
    """One candidate at one ε: a system for each of the settings to try, or why there is none."""

    candidate: Candidate
    epsilon: float
    systems: tuple[System, ...] = ()
    settings: tuple[Mapping[str, Any], ...] = ()
    refusal: str | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class _Winner:
    """The candidate and settings that are taken at one ε."""

    candidate: Candidate
    epsilon: float
    settings: Mapping[str, Any]


class _Search:
    """The candidates of one question, as systems; data that several of them use are read once."""

    def __init__(self, config: FrontierConfig, candidates: Sequence[Candidate]) -> None:
        self.config, self.candidates = config, candidates
        self._loaded = Loaded()

    def data(self, **fields: Any) -> VerticalData:
        """The data of the question, with these fields of [data]."""
        return self._loaded.data(self.config.config(self.config.candidate[0], {}, seed=self.config.seed, **fields))

    def candidate(self, key: str) -> Candidate:
        """The candidate with this key."""
        return next(candidate for candidate in self.candidates if candidate.key == key)

    def _tuning(self) -> int | None:
        """The trainings at one ε before the last one, where they are counted."""
        if not self.config.count_tuning:
            return None
        first = sum(len(candidate.tries) for candidate in self.candidates)
        finalists = min(first, self.config.finalists)
        return first + (len(self._more) * finalists if finalists > 1 else 0)

    def at(
        self, candidate: Candidate, settings: Mapping[str, Any], epsilon: float, *, seed: int, **data: Any
    ) -> AtTarget:
        """A candidate with the noise, or the noised labels, that keeps the budget."""
        c = self.config
        config = c.config(candidate, settings, seed=seed, tuning_runs=self._tuning(), **data)
        target = NoiseTarget(epsilon=epsilon, delta=c.delta, unit=c.unit, view=c.view)
        return at_target(config, 0, self._loaded.data(config), target)

    def options(self, candidate: Candidate, epsilon: float) -> _Options:
        """The systems to try; settings that cannot keep the budget are left out while others can."""
        seed, held = self.config.seed + TRIED_APART, self.config.validation
        built = [self.at(candidate, settings, epsilon, seed=seed, validation=held) for settings in candidate.tries]
        pairs = zip(built, candidate.tries, strict=True)
        able = [(b.system, settings) for b, settings in pairs if isinstance(b.system, System)]
        return _Options(
            candidate=candidate,
            epsilon=epsilon,
            systems=tuple(system for system, _ in able),
            settings=tuple(settings for _, settings in able),
            refusal=None if able else built[0].reason,
        )

    def tried(self, options: Sequence[_Options], trainer: Trainer) -> list[list[Try]]:
        """What each of the settings reaches on validation records; the finalists as the mean of several trainings."""
        systems = [system for option in options for system in option.systems]
        curves = iter(trainer.curves(systems, evaluations=1, part="validation"))
        tried = [[Try(settings=dict(s), accuracy=next(curves).reached) for s in option.settings] for option in options]
        finalists = [place for epsilon in self.config.epsilons for place in self._finalists(epsilon, options, tried)]
        systems = [self._again(options[o], tried[o][t].settings, more) for o, t in finalists for more in self._more]
        again = iter(trainer.curves(systems, evaluations=1, part="validation"))
        for o, t in finalists:
            reached = [tried[o][t].accuracy, *(next(again).reached for _ in self._more)]
            tried[o][t] = Try(settings=tried[o][t].settings, accuracy=fmean(reached), seeds=len(reached))
        return tried

    def work(self, options: Sequence[_Options]) -> int:
        """Rounds of the whole search, as if those of later trainings were the mean of the first ones."""
        rounds = [system.rounds for option in options for system in option.systems]
        later = len(self.config.epsilons) * (self.config.finalists * len(self._more) + self.config.seeds)
        return round(sum(rounds) + later * fmean(rounds or [0]))

    @property
    def _more(self) -> range:
        """What is added to the seed of a finalist's further trainings."""
        return range(1, self.config.final_seeds)

    def _finalists(
        self, epsilon: float, options: Sequence[_Options], tried: Sequence[Sequence[Try]]
    ) -> list[tuple[int, int]]:
        """The option and the try of the settings that are best at this ε by one training; none if one is left."""
        able = [(o, t) for o, option in enumerate(options) if option.epsilon == epsilon for t in range(len(tried[o]))]
        best = sorted(able, key=lambda place: -tried[place[0]][place[1]].accuracy)[: self.config.finalists]
        return best if self._more and len(best) > 1 else []

    def _again(self, option: _Options, settings: Mapping[str, Any], more: int) -> System:
        seed = self.config.seed + TRIED_APART + more
        system = self.at(
            option.candidate, settings, option.epsilon, seed=seed, validation=self.config.validation
        ).system
        assert isinstance(system, System)
        return system

    def entry(self, option: _Options, tried: Sequence[Try]) -> Entry:
        """What a candidate reaches on validation records at one ε."""
        best = tried.index(max(tried, key=Try.rank)) if tried else None
        return Entry(
            key=option.candidate.key,
            title=option.candidate.title or option.candidate.key,
            epsilon=option.epsilon,
            tried=tuple(tried),
            accounted=None if best is None else self._accounted(option.systems[best]),
            refusal=option.refusal,
        )

    def _accounted(self, system: System) -> float:
        budget = accounted(self.config.accountant, system, Adversary.parse(self.config.view), self.config.unit)
        return budget.upper

    def winners(self, options: Sequence[_Options], tried: Sequence[Sequence[Try]]) -> list[_Winner]:
        """The best settings at each ε at which some were tried."""
        winners = []
        for epsilon in self.config.epsilons:
            pairs = zip(options, tried, strict=True)
            able = [(option.candidate, t) for option, own in pairs if option.epsilon == epsilon for t in own]
            if able:
                candidate, best = max(able, key=lambda pair: pair[1].rank())
                winners.append(_Winner(candidate=candidate, epsilon=epsilon, settings=best.settings))
        return winners

    def point(self, winner: _Winner, trainer: Trainer) -> Point:
        """The winner trained on all training records with several seeds, and tested."""
        seeds = range(self.config.seed, self.config.seed + self.config.seeds)
        built = [self.at(winner.candidate, winner.settings, winner.epsilon, seed=seed) for seed in seeds]
        systems = [b.system for b in built if isinstance(b.system, System)]
        curves = trainer.curves_of_seeds(systems)
        values = [curve.accuracy[-1] for curve in curves]
        mean, low, high = mean_interval(values, self.config.confidence, (0.0, 1.0))
        return Point(
            epsilon=winner.epsilon,
            accounted=self._accounted(systems[0]),
            key=winner.candidate.key,
            title=winner.candidate.title or winner.candidate.key,
            engine=systems[0].engine_name,
            settings={**systems[0].settings_facts},
            mean=mean,
            low=low,
            high=high,
            curves=tuple(curves),
            tuning_runs=self._tuning(),
        )
