"""Pieces of a report as an audit of DPZV would leave it: every kind of row, of verdict and of infinity."""

from __future__ import annotations

import math

from tests.report.attack_report import attack_report, member
from tests.report.rows import (
    KNOWN,
    STATELESS,
    W0,
    attack,
    budget,
    claim,
    measured,
    releases,
    spending,
    utility,
    views,
)
from vflpriv.core.claims import Verdict
from vflpriv.report.attacks import ColumnRow, FeatureCell
from vflpriv.report.audit import (
    ChangeRow,
    CheckRow,
    ClaimRow,
    Fingerprint,
    Report,
    SamplingRow,
    SystemRow,
    Traffic,
)

NOISE = "Calibrate the noise for known batches: noise_std 1.2 → 5.633."


def dpzv_device_claim() -> ClaimRow:
    """The paper's own claim, refuted."""
    counts = {11: 389, 12: 802, 13: 246}
    stateful = "the server's update adds no noise, so one label moves every later release by up to 2C"
    return claim(
        "dpzv-vi5-device",
        budget("device", 278.0, participations=281, assumptions=(KNOWN, stateful), participation_histogram={281: 1437}),
        Verdict.VIOLATED,
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
        views=views(),
        spending=(spending("rigorous", (4_000.0, 16_000.0, 39_500.0)), spending("paper", (0.8, 1.9, 2.9))),
        changes=(ChangeRow(sentence=NOISE, settings={"noise": "given", "noise_std": 5.633}),),
        reason="With the worst-case canary a test errs less often than any test can under the claim: "
        "μ ≥ 0.750 at 95 % confidence against the claimed 0.388.",
    )


def dpzv_other_claims() -> tuple[ClaimRow, ...]:
    together = claim(
        "dpzv-vi5-devices",
        budget("devices(all)", 558.2, participations=1122, assumptions=(KNOWN,)),
        Verdict.VIOLATED,
        paper_reading=budget("devices(all)", 1.822, reading="paper", participations=49, assumptions=(STATELESS,)),
        measurements=(measured("worst-case", 1.58, (74, 79), adversary="devices(all)", mu_accounted=1.822),),
        reason="Measured μ ≥ 1.580 at 95 % confidence against the claimed 0.388.",
    )
    model = claim(
        "dpzv-model",
        budget("model", None, batches="secret", accountant="prv", unprotected=(W0,), assumptions=()),
        Verdict.UNSUPPORTED,
        source="dpzv-conference",
        where="Appendix F.2",
        statement="The final model satisfies (ε, δ)-DP.",
        measurements=(
            measured("natural", 0.12, (190, 188), adversary="model", mu_accounted=math.inf, epsilon_gaussian=None),
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
        checks=(
            CheckRow(
                audit="sensitivity",
                subject="scalar, clip = two-sided",
                unit="record",
                figure=0.3125,
                limit=0.3125,
                verdict=Verdict.CONSISTENT,
                reason="none of 20000 pairs of neighbours moved scalar by more than 0.3125",
                reproduce="vflpriv replay witnesses/dpzv-scalar-record.json",
            ),
            CheckRow(
                audit="sensitivity",
                subject="scalar, clip = paper",
                unit="record",
                figure=math.inf,
                limit=0.3125,
                verdict=Verdict.VIOLATED,
                reason="min{δ, C} has no lower bound: δ = −1e6 passes",
                reproduce="vflpriv replay witnesses/dpzv-scalar-record-published.json",
                changes=(ChangeRow(sentence="Bound what one record moves."),),
            ),
        ),
        attacks=(
            attack("label_zo", "device(0)", 0.116, 0.10),
            attack("label_gradient", "device(0)", None, None, "needs gradients, dpzv sends one scalar"),
        ),
        utility=utility(0.873),
        traffic=Traffic(up=576_000_000, down=8_976, ids=574_464, messages={"embedding": 2244, "scalar": 1122}),
        releases=releases(),
        sampling=SamplingRow(
            batching="shuffle",
            description="epochs in a fresh random order",
            batch_size=64,
            records=1437,
            fewest=29,
            most=64,
        ),
        noise_source="Philox4x32-10 from the seed 7",
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
                Verdict.CONSISTENT,
                measurements=(
                    measured("natural", 0.0, (201, 199), mu_accounted=0.3884),
                    measured("worst-case", 0.29, (166, 171), mu_accounted=0.3884),
                ),
            ),
            claim("joint-outsider", secret, Verdict.NOT_APPLICABLE, reason=why),
        ),
        budgets=(budget("device", 0.3884, participations=100, participation_histogram={100: 1437}),),
        attacks=(attack("label_zo", "device(0)", 0.104, 0.10),),
        utility=utility(0.861),
        traffic=None,
    )


def with_columns(cell: FeatureCell) -> FeatureCell:
    """The figure with two features of its own, one of which never varies, and a map of them."""
    varies = ColumnRow(error=0.1, mean_error=0.4, value=0.75, low=0.7, high=0.8)
    columns = (varies, ColumnRow(error=0.0, mean_error=0.0))
    return cell.model_copy(update={"columns": columns, "map": cell.picture}) if cell.picture else cell


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
        attacks=(attack("label_gradient", "device(0)", 1.0, 0.10),),
        features=(*map(with_columns, attack_report().features), member()),
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
        exit_code=int(any(c.verdict is Verdict.VIOLATED for s in systems for c in s.claims)),
        fingerprints=(Fingerprint(name="configuration", sha256="0123456789abcdef" * 4),),
        date="2026-11-17",
    )


def whole() -> Report:
    """Five claims, three systems."""
    untested = ("tuning runs were not counted", "timing of messages", "devices that deviate from the protocol")
    return build(dpzv(), joint(), split(), not_tested=untested)


HOSTILE = "<script>alert(1)</script> | `rm` [x](http://evil.example) **b**\n# h \x1b[31m $\\frac{$ [red]"
