"""A report as an audit of DPZV would leave it: five claims, three systems, every kind of row and of infinity."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from vflpriv.report import (
    AttackRow,
    BudgetRow,
    ClaimRow,
    MeasurementRow,
    Report,
    SensitivityRow,
    SystemRow,
    Traffic,
    Utility,
)
from vflpriv.tradeoff import curve, epsilon_of, mu_of
from vflpriv.verdicts import Word

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
        "canary_description": f"the {canary} record",
        "adversary": "device",
        "unit": "record",
        "record": 17,
        "trials_per_world": 400,
        "confidence": 0.95,
        "mu_lower": mu,
        "mu_estimate": estimate,
        "mu_rectangle": max(0.0, mu - 0.09),
        "epsilon_lower": max(0.0, mu - 0.4),
        "epsilon_from_mu": epsilon_of(mu, DELTA),
        "mu_accounted": 0.9386,
        "p_value": 3.2e-9 if mu > CLAIMED else 0.61,
        "p_adjusted": 1.6e-8 if mu > CLAIMED else 1.0,
        "refutes": mu > CLAIMED,
        "curve": tuple((round(float(x), 4), round(float(y), 4)) for x, y in zip(rates, errs, strict=True)),
    }
    row |= {"false_positives": errors[0], "false_negatives": errors[1]}
    return MeasurementRow(canary=canary, **row | fields)


def claim(key: str, accounted: BudgetRow, verdict: Word, **fields: Any) -> ClaimRow:
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
    return ClaimRow(key=key, accounted=accounted, verdict=verdict, **row | fields)


def dpzv_device_claim() -> ClaimRow:
    """The paper's own claim, refuted."""
    counts = {11: 389, 12: 802, 13: 246}
    stateful = "the server's update adds no noise, so one label moves every later release by up to 2C"
    return claim(
        "dpzv-vi5-device",
        budget("device", 278.0, participations=281, assumptions=(KNOWN, stateful), participation_histogram={281: 1437}),
        Word.VIOLATED,
        paper_reading=budget(
            "device",
            0.9386,
            reading="paper",
            participations=13,
            participation_histogram=counts,
            assumptions=(KNOWN, STATELESS),
            approximations={"central limit": 0.91},
        ),
        measurements=(
            measured("natural", 0.0, (188, 204)),
            measured("crafted", 0.31, (150, 172)),
            measured("worst-case", 0.75, (131, 128)),
        ),
        reason="With the worst-case canary a test errs less often than any test can under the claim: "
        "μ ≥ 0.750 at 95 % confidence against the claimed 0.388.",
    )


def dpzv_other_claims() -> tuple[ClaimRow, ...]:
    together = claim(
        "dpzv-vi5-devices",
        budget("devices(all)", 558.2, participations=1122, assumptions=(KNOWN,)),
        Word.VIOLATED,
        paper_reading=budget("devices(all)", 1.822, reading="paper", participations=49, assumptions=(STATELESS,)),
        measurements=(measured("worst-case", 1.58, (74, 79), adversary="devices(all)", mu_accounted=1.822),),
        reason="Measured μ ≥ 1.580 at 95 % confidence against the claimed 0.388.",
    )
    model = claim(
        "dpzv-model",
        budget("model", None, batches="secret", accountant="prv", unprotected=(W0,), assumptions=()),
        Word.UNSUPPORTED,
        source="dpzv-conference",
        where="Appendix F.2",
        statement="The final model satisfies (ε, δ)-DP.",
        measurements=(
            measured("natural", 0.12, (190, 188), adversary="model", mu_accounted=math.inf, epsilon_from_mu=None),
        ),
        reason="No finite budget covers the server's parameters, which never saw noise; the trials did not refute it.",
    )
    return together, model


def dpzv() -> SystemRow:
    first = dpzv_device_claim()
    assert first.paper_reading is not None
    claims = (first, *dpzv_other_claims())
    return SystemRow(
        key="dpzv",
        title="DPZV as published",
        engine="dpzv",
        settings={"clip": 10.0, "noise_std": 1.2003, "server_update": "sgd", "smoothing": 1e-3, "batch": 64},
        data={"name": "digits", "records": 1437, "test": 360, "devices": 4, "classes": 10, "split": [16, 16, 16, 16]},
        rounds=1122,
        claims=claims,
        budgets=(
            first.paper_reading,
            first.accounted,
            budget("devices(all)", 1.822, reading="paper", participations=49),
            budget("model", None, batches="secret", accountant="prv", unprotected=(W0,)),
            budget("server", None, unit="label", not_applicable="the server holds the labels"),
        ),
        sensitivity=(
            SensitivityRow(
                mechanism="scalar, clip = two-sided",
                unit="record",
                declared=0.3125,
                observed=0.3125,
                searched=20_000,
                witness="record 17: label 3 against 8",
                holds=True,
            ),
            SensitivityRow(
                mechanism="scalar, clip = paper",
                unit="record",
                declared=0.3125,
                observed=math.inf,
                searched=20_000,
                witness="min{δ, C} has no lower bound: δ = −1e6 passes",
                holds=False,
            ),
        ),
        attacks=(
            attack("label_zo", "device(0)", 0.116, 0.10),
            attack("label_gradient", "device(0)", None, None, "needs gradients, dpzv sends one scalar"),
        ),
        utility=utility(0.873),
        traffic=Traffic(up=576_000_000, down=8_976, ids=574_464, messages={"embedding": 2244, "scalar": 1122}),
    )


def attack(name: str, adversary: str, success: float | None, chance: float | None, why: str | None = None) -> AttackRow:
    return AttackRow(
        attack=name,
        adversary=adversary,
        target="label",
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


def joint() -> SystemRow:
    """The sound variant: its budget meets the claim."""
    why = "batches are known to every party of this engine; no view without them was recorded"
    secret = budget("outsider", None, batches="secret", not_applicable=why)
    return SystemRow(
        key="joint",
        title="DPZV with joint server update, full batches",
        engine="dpzv",
        settings={"clip": 10.0, "noise_std": 4.3, "server_update": "joint", "schedule": "full"},
        data={"name": "digits", "records": 1437, "devices": 4},
        rounds=400,
        claims=(
            claim(
                "joint-device",
                budget("device", 0.3884, participations=100, participation_histogram={100: 1437}),
                Word.CONSISTENT,
                measurements=(
                    measured("natural", 0.0, (201, 199), mu_accounted=0.3884),
                    measured("worst-case", 0.29, (166, 171), mu_accounted=0.3884),
                ),
            ),
            claim("joint-outsider", secret, Word.NOT_APPLICABLE, reason=why),
        ),
        budgets=(budget("device", 0.3884, participations=100, participation_histogram={100: 1437}),),
        sensitivity=(),
        attacks=(attack("label_zo", "device(0)", 0.104, 0.10),),
        utility=utility(0.861),
        traffic=None,
    )


def split() -> SystemRow:
    """No claim, no noise: an attack is all there is to say."""
    return SystemRow(
        key="split",
        title="Split learning without noise",
        engine="split",
        settings={"noise": "none"},
        data={"name": "digits", "records": 1437, "devices": 4},
        rounds=230,
        claims=(),
        budgets=(
            budget("device", None, unit="label", unprotected=("gradient (∂ℓ/∂h of each record) carries no noise",)),
        ),
        sensitivity=(),
        attacks=(attack("label_gradient", "device(0)", 1.0, 0.10),),
        utility=utility(0.969),
        traffic=Traffic(up=1_738_510_000, down=1_738_510_000, ids=0, messages={"embedding": 920, "gradient": 920}),
    )


def build(*systems: SystemRow, not_tested: tuple[str, ...] = ()) -> Report:
    return Report(
        tool_version="0.1.0",
        seed=7,
        confidence=0.95,
        systems=systems,
        not_tested=not_tested,
        config={"seed": 7, "audit": {"trials": 400, "canaries": ["natural", "crafted", "worst-case"]}},
        exit_code=int(any(c.verdict is Word.VIOLATED for s in systems for c in s.claims)),
    )


@pytest.fixture(scope="session")
def report() -> Report:
    """Everything: violated, unsupported, consistent and not applicable claims, infinities, a system without claims."""
    untested = ("tuning runs were not counted", "timing of messages", "devices that deviate from the protocol")
    return build(dpzv(), joint(), split(), not_tested=untested)


@pytest.fixture(scope="session")
def small() -> Report:
    """One system, one claim."""
    return build(dpzv().model_copy(update={"claims": (dpzv_device_claim(),), "budgets": ()}))


HOSTILE = "<script>alert(1)</script> | `rm` [x](http://evil.example) **b**\n# h \x1b[31m $\\frac{$ [red]"


@pytest.fixture(scope="session")
def hostile() -> Report:
    """Every free text is an attempt to escape from the format it is printed in."""
    bad = {"title": HOSTILE, "engine": HOSTILE, "settings": {HOSTILE: HOSTILE}, "data": {HOSTILE: [HOSTILE]}}
    row = budget("device", None, reading=HOSTILE, unprotected=(HOSTILE,), assumptions=(HOSTILE,), method=HOSTILE)
    measurement = measured("natural", 0.5, (90, 100)).model_copy(
        update={"canary": HOSTILE, "canary_description": HOSTILE, "adversary": HOSTILE}
    )
    words = dict.fromkeys(("key", "source", "where", "statement", "unit_description", "reason", "reproduce"), HOSTILE)
    claims = (dpzv_device_claim().model_copy(update=words | {"accounted": row, "measurements": (measurement,)}),)
    rows = dict.fromkeys(("mechanism", "witness"), HOSTILE)
    sensitivity = tuple(s.model_copy(update=rows) for s in dpzv().sensitivity)
    attacks = (attack(HOSTILE, HOSTILE, None, None, HOSTILE), attack(HOSTILE, "device", 0.5, 0.1))
    system = dpzv().model_copy(
        update=bad | {"claims": claims, "budgets": (row,), "sensitivity": sensitivity, "attacks": attacks}
    )
    return build(system, not_tested=(HOSTILE,)).model_copy(update={"config": {HOSTILE: HOSTILE}})
