"""What a mutation is: a system with one fault, how it is audited, and which parts of the report name the fault."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from tests.support import toy_data
from vflpriv.audits.verdict import ACCOUNTING
from vflpriv.common.registry import find
from vflpriv.config.loading import load_config
from vflpriv.core.claims import Verdict
from vflpriv.core.data import VerticalData
from vflpriv.core.ledger import Ledger, Reading
from vflpriv.core.schedules import Schedule
from vflpriv.core.systems import System
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.report.audit import MeasurementRow, Report
from vflpriv.run.audit import audit_context, audit_system
from vflpriv.run.build import build_report
from vflpriv.training.engine import Engine

__all__ = [
    "DELTA",
    "DEVICES",
    "TRIALS",
    "Case",
    "Claims",
    "Mutation",
    "Outcome",
    "Trained",
    "exact_claim",
    "small_data",
]

TRIALS = 400
"""Trainings in each world of the table in the documentation."""
DELTA = 1e-5
DEVICES = 2


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What an audit said of one system."""

    exit_code: int
    caught_by: tuple[str, ...]
    """The audits that found something, each with its subject, in the order of the report."""
    trials: int
    """Trainings in each world."""
    verdicts: tuple[str, ...]
    """The verdict on each claim."""

    @classmethod
    def of(cls, report: Report, trials: int) -> Outcome:
        """What the report says, and which of its parts speak against the system."""
        return cls(
            exit_code=report.exit_code,
            caught_by=tuple(dict.fromkeys(_accusers(report))),
            trials=trials,
            verdicts=tuple(claim.verdict.value for system in report.systems for claim in system.claims),
        )


def _accusers(report: Report) -> Iterator[str]:
    for system in report.systems:
        # That a measurement exceeds what is accounted follows from the measurement, which is named below.
        broken = [row for row in system.checks if row.verdict is Verdict.VIOLATED and row.audit != ACCOUNTING]
        broken += [row for row in system.checks if row.verdict is Verdict.UNMEASURED]
        yield from (f"{row.audit}: {row.subject}" for row in broken)
        for claim in system.claims:
            yield from (_names(row) for row in claim.measurements if row.refutes)
            yield from ("accounting" for _ in (claim,) if claim.verdict is Verdict.UNSUPPORTED)
            unexplained = any(row.verdict is Verdict.UNMEASURED for row in system.checks)
            nothing = claim.verdict is Verdict.UNMEASURED and not unexplained
            yield from ("nothing measured" for _ in (claim,) if nothing)
        yield from (f"attack: {row.attack}" for row in system.success_claims if row.verdict is Verdict.VIOLATED)


class Case(Protocol):
    """A system that can be audited, whichever way it came."""

    def outcome(self, folder: Path, *, seed: int, trials: int | None = None) -> Outcome:
        """Audit it; `folder` is empty and for its files, `trials` are those of the case unless given."""
        ...


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """A system and what is wrong with it; a control has nothing wrong with it."""

    name: str
    family: str
    fault: str
    """What is broken, in one sentence; of a control, what is right."""
    change: str
    """By how much the fault changes the trade-off curve: relative to the claimed μ, or "total leak"."""
    expected: str
    """The audit that is meant to see it."""
    case: Case
    accepted: tuple[int, ...] = (1,)
    """The exit codes that count as caught."""
    fast: bool = False
    """Whether it belongs to the tests that always run."""
    seeds: int = 20
    """The most seeds that a control is audited with."""

    def caught(self, outcome: Outcome) -> bool:
        return outcome.exit_code in self.accepted


def small_data(records: int = 60, devices: int = DEVICES, classes: int = 2) -> VerticalData:
    """Separable classes, few records."""
    return toy_data(records=records, devices=devices, classes=classes)


Claims = Callable[[System], list[dict[str, Any]]]


@dataclass(frozen=True, kw_only=True)
class Trained:
    """An engine with its settings and claims, audited as a configuration's system is.

    `claims` makes the claims from the system; `keep` are the keys of the engine's own claims that are checked too. With
    `mu` the noise is set so that the ledger gives this μ for the first claim's unit and view.
    """

    engine: type[Engine]
    settings: Mapping[str, Any]
    claims: Claims
    keep: tuple[str, ...] = ()
    canaries: tuple[str, ...] = ("natural", "crafted", "worst-case")
    data: VerticalData = field(default_factory=small_data)
    noise_for: tuple[float, str, str] | None = None
    """(μ, unit, view): the noise std is that for which the ledger accounts for this μ."""
    trials: int = TRIALS
    schedule: Callable[[Schedule], Schedule] | None = None
    """What the schedule is turned into after it was drawn."""

    def outcome(self, folder: Path, *, seed: int, trials: int | None = None) -> Outcome:
        number = self.trials if trials is None else trials
        system = self.system(seed)
        config = load_config(
            {
                "seed": seed,
                "device": "cpu",
                "system": [
                    {
                        "key": "system",
                        "engine": {"name": self.engine.name, **self.settings},
                        "claim": self.claims(system),
                        "audit": {
                            "trials": number,
                            "canaries": list(self.canaries),
                            "attacks": [],
                            "claims": list(self.keep),
                        },
                    }
                ],
            }
        )
        section = config.system[0]
        audited = audit_system(system, section, config, audit_context(system, section, config))
        return Outcome.of(build_report([audited], config, reproduce="vflpriv audit"), number)

    def system(self, seed: int) -> System:
        """The system with this seed, its noise a number."""
        settings = self.engine.settings_type.model_validate(dict(self.settings))
        data = self.data
        schedule = self.engine.draw_schedule(settings, records=data.records, devices=data.devices, seed=seed)
        schedule = schedule if self.schedule is None else self.schedule(schedule)
        system = System(
            key="system",
            engine=self.engine,
            settings=settings,
            data=data,
            schedule=schedule,
            seed=seed,
            torch_device=torch.device("cpu"),
        )
        if self.noise_for is None:
            return system
        mu, unit, view = self.noise_for
        unscaled = settings.model_copy(update={"noise_std": 1.0})
        base = accounted_mu(self.engine.ledger(unscaled, schedule), unit, view)
        return _with(system, settings.model_copy(update={"noise_std": base / mu}))


def _with(system: System, settings: Any) -> System:
    return System(
        key=system.key,
        engine=system.engine,
        settings=settings,
        data=system.data,
        schedule=system.schedule,
        seed=system.seed,
        torch_device=system.torch_device,
    )


def accounted_mu(ledger: Ledger, unit: str, view: str) -> float:
    """The μ that the ledger's Gaussian releases give."""
    exposure = ledger.exposure(Adversary.parse(view), Unit(unit), reading=Reading.RIGOROUS)
    budget = find("accountant", "auto")().budget(exposure, DELTA)
    if budget.mu is None or not math.isfinite(budget.mu):
        raise ValueError(f"Expected a finite mu for {unit} and {view}, found {budget.mu}.")
    return float(budget.mu)


def exact_claim(unit: str, view: str, *, share: float = 1.0) -> Claims:
    """The claim of exactly the μ that the ledger gives, or of a share of it."""

    def claims(system: System) -> list[dict[str, Any]]:
        # One part in 10^6 for the digits that a claim loses on its way through ε.
        mu = accounted_mu(system.ledger, unit, view) * share * (1 + 1e-6)
        return [{"key": "exact", "unit": unit, "view": view, "mu": mu, "delta": DELTA}]

    return claims


def _names(row: MeasurementRow) -> str:
    return "one run: coins" if row.audit == "one-run" else f"{row.audit}: {row.subject}"
