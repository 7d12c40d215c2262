"""Single rows of a report, with every field that a test does not care about filled in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from vflpriv.core.budgets import curve, epsilon_of, mu_of
from vflpriv.core.claims import Verdict
from vflpriv.report.audit import (
    AttackRow,
    BoundRow,
    BudgetRow,
    ClaimRow,
    ErrorsRow,
    MeasurementRow,
    ReleaseRow,
    Spending,
    Utility,
    ViewBudget,
)

DELTA = 1e-3
CLAIMED = mu_of(1.0, DELTA)
STATELESS = "server parameters are taken as if they did not depend on the labels"
W0 = "model (the server's parameters) carries no noise"
KNOWN = "the device knows which records were in each batch: no amplification"


def budget(adversary: str, mu: float | None, **fields: Any) -> BudgetRow:
    """A row for one record; `mu` None is a message without noise."""
    epsilon = math.inf if mu is None else epsilon_of(mu, DELTA)
    row: dict[str, Any] = {
        "unit": "record",
        "reading": "rigorous",
        "batches": "known",
        "accountant": "gdp",
        "method": "closed form",
        "delta": DELTA,
        "participations": None,
        "participation_histogram": {},
        "assumptions": (KNOWN,),
        "approximations": {},
        "unprotected": (),
        "not_applicable": None,
    }
    row |= {"mu": mu, "epsilon_lower": epsilon, "epsilon": epsilon, "epsilon_upper": epsilon}
    return BudgetRow(adversary=adversary, **row | fields)


def measured(canary: str, mu: float, errors: tuple[int, int], **fields: Any) -> MeasurementRow:
    """400 trainings a world; `mu` is the lower bound, the observed curve is a little worse."""
    rates = np.linspace(0.0, 1.0, 41)
    estimate = mu + 0.16
    errs = curve(estimate, rates)
    row: dict[str, Any] = {
        "audit": "two-world",
        "description": f"the {canary} record",
        "adversary": "device",
        "unit": "record",
        "method": "likelihood ratio",
        "outcome": f"{canary} canary, view device, {sum(errors)} errors in 2 × 400 trials",
        "trials": 400,
        "confidence": 0.95,
        "measure": "μ",
        "figure": mu,
        "mu": mu,
        "epsilon": max(0.0, mu - 0.4),
        "epsilon_gaussian": epsilon_of(mu, DELTA),
        "mu_accounted": 0.9386,
        "tool": "trials in two worlds",
        "effort": f"{canary} canary, likelihood ratio: 400 trainings in each of two worlds",
        "facts": {"record": 17},
        "bounds": (
            BoundRow(measure="μ", value=estimate, basis="an estimate, no bound"),
            BoundRow(measure="μ", value=max(0.0, mu - 0.09), basis="two separate error rates"),
        ),
        "p_value": 3.2e-9 if mu > CLAIMED else 0.61,
        "p_adjusted": 1.6e-8 if mu > CLAIMED else 1.0,
        "refutes": mu > CLAIMED,
        "curve": tuple((round(float(x), 4), round(float(y), 4)) for x, y in zip(rates, errs, strict=True)),
    }
    row["errors"] = ErrorsRow(false_positives=errors[0], negatives=400, false_negatives=errors[1], positives=400)
    return MeasurementRow(subject=canary, **row | fields)


def claim(key: str, accounted: BudgetRow, verdict: Verdict, **fields: Any) -> ClaimRow:
    row: dict[str, Any] = {
        "source": "dpzv-journal",
        "where": "Theorem VI.5",
        "statement": "The whole training is μ-GDP when σ = 2C√T/(Dμ).",
        "unit": "record",
        "unit_description": "one record (features and label) replaced",
        "adversary": accounted.adversary,
        "delta": DELTA,
        "epsilon": 1.0,
        "mu": CLAIMED,
        "paper_reading": None,
        "measurements": (),
        "reason": "The accounted budget is within the claim and no test refuted it.",
        "reproduce": f"vflpriv audit dpzv.toml --claim {key} --seed 7",
    }
    row |= fields
    row["measurements"] = deciding(row["measurements"])
    return ClaimRow(key=key, accounted=accounted, verdict=verdict, **row)


def deciding(rows: Sequence[MeasurementRow]) -> tuple[MeasurementRow, ...]:
    """The rows of which one decides: the strongest canary, or else the one that refutes most clearly."""
    order = ("natural", "crafted", "worst-case")
    best = max(rows, key=lambda row: order.index(row.subject) if row.subject in order else -1, default=None)
    refuting = [row for row in rows if row.refutes]
    if best not in refuting:
        best = min(refuting, key=lambda row: row.p_adjusted or 0.0, default=best)
    return tuple(row.model_copy(update={"decides": row is best}) for row in rows)


def attack(name: str, adversary: str, success: float | None, chance: float | None, why: str | None = None) -> AttackRow:
    return AttackRow(
        attack=name,
        adversary=adversary,
        target="labels",
        success=success,
        low=None if success is None else max(0.0, success - 0.016),
        high=None if success is None else min(1.0, success + 0.016),
        chance=chance,
        guesses=0 if success is None else 1437,
        not_applicable=why,
    )


def utility(accuracy: float) -> Utility:
    return Utility(
        tests=360,
        accuracy=accuracy,
        accuracy_low=accuracy - 0.004,
        accuracy_high=accuracy + 0.004,
        loss_before=2.3026,
        loss_after=0.4127,
    )


def views() -> tuple[ViewBudget, ...]:
    """One that is bounded in two readings, one that sees what has no noise, one that owns the data."""
    return (
        ViewBudget(adversary="device", batches="known", epsilon_upper=39_500.0, paper_reading=2.9),
        ViewBudget(adversary="model", batches="secret", epsilon_upper=math.inf, paper_reading=None, unprotected=(W0,)),
        ViewBudget(
            adversary="server",
            batches="known",
            epsilon_upper=0.0,
            paper_reading=None,
            not_applicable="the server holds the labels",
        ),
    )


def spending(reading: str, epsilons: tuple[float, ...]) -> Spending:
    """A run of 1122 rounds; records spend as often as they take part."""
    rounds = tuple(round(1122 * (i + 1) / len(epsilons)) for i in range(len(epsilons)))
    worst = epsilons[-1]
    records = ((0.92 * worst, 0.92 * worst, 389), (0.96 * worst, 0.96 * worst, 802), (worst, worst, 246))
    return Spending(
        reading=reading, delta=DELTA, rounds=rounds, epsilon_lower=epsilons, epsilon_upper=epsilons, records=records
    )


def one_run(mu: float = 0.62, *, decides: bool = True) -> MeasurementRow:
    return MeasurementRow(
        audit="one-run",
        subject="one-run",
        adversary="devices(all)",
        unit="record",
        method="one run",
        outcome="131 of 180 guesses right about 400 canaries (100 more to plan the guesses) in one training",
        measure="μ",
        figure=mu,
        trials=180,
        confidence=0.95,
        mu=mu,
        epsilon=0.41,
        decides=decides,
        tool="canaries in one training",
        effort="one training with 400 canaries, 180 guesses",
        facts={"canaries": 400, "set_aside": 100, "right": 131},
        p_value=0.002,
        p_adjusted=0.01,
        refutes=mu > CLAIMED,
        assumptions=("coins are fair and independent",),
    )


def releases() -> tuple[ReleaseRow, ...]:
    """A noised scalar for devices, embeddings for the server, the server's model."""
    scalar = ReleaseRow(
        kind="scalar",
        what="clipped loss difference",
        noise="Gaussian(std=1.2003)",
        seen_by=("device", "devices", "eavesdropper", "server"),
        rounds=1122,
        sensitivity={"label": 0.3125, "record": 0.3125},
        protects=("label", "record"),
    )
    embedding = ReleaseRow(
        kind="embedding",
        what="embeddings, device to server",
        noise="no noise",
        seen_by=("eavesdropper", "server"),
        rounds=1122,
        sensitivity={"record": math.inf},
        protects=(),
    )
    model = embedding.model_copy(update={"kind": "model", "what": "the server's parameters", "seen_by": ("model",)})
    return scalar, embedding, model
