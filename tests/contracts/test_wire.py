"""The wire audit accuses no engine of this package, in any variant, with any batches."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import ENGINES, make_system, toy_data
from vflpriv.audits.wire import WireAudit
from vflpriv.core.audit import AuditContext, Finding
from vflpriv.core.claims import Verdict
from vflpriv.core.systems import System
from vflpriv.training.mechanisms.labels import label_claims


def audited(system: System) -> list[Finding]:
    claims = (*system.claims, *label_claims(system.engine, system.settings))
    return WireAudit().run(system, AuditContext(claims=claims))


def sentences(findings: list[Finding]) -> list[str]:
    return [f.sentence for f in findings if f.verdict is not Verdict.CONSISTENT]


@pytest.mark.parametrize("variant", ENGINES)
def test_no_engine_sends_more_than_its_ledger_says(variant: str) -> None:
    system = make_system(variant)
    findings = audited(system)
    assert sentences(findings) == []
    units = set().union(*(r.sensitivity for r in system.ledger.releases)) - {"add-remove"}
    assert {f.unit for f in findings if f.unit is not None} == units


CHANGES: dict[str, dict[str, Any]] = {
    "poisson": {"schedule": "poisson"},
    "fixed": {"schedule": "fixed"},
    "full": {"schedule": "full"},
    "one-record": {"batch_size": 1},
    "seed": {"seed": 5},
    "secure": {"secure_noise": True},
}


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("variant", ENGINES)
def test_nor_with_other_batches_and_noise(variant: str, change: str) -> None:
    if variant.startswith(("send-once", "noise-once")) and change in ("poisson", "fixed"):
        pytest.skip("every round is over all records")
    system = make_system(variant, data=toy_data(classes=4, seed=1), rounds=24, **CHANGES[change])
    assert sentences(audited(system)) == []


@pytest.mark.slow
@pytest.mark.parametrize("label_protection", ["rr", "alibi"])
@pytest.mark.parametrize("targets", ["likeliest", "posterior", "iterative"])
@pytest.mark.parametrize("variant", ENGINES)
def test_nor_with_noised_labels(variant: str, targets: str, label_protection: str) -> None:
    changes = {"label_protection": label_protection, "label_noise": 1.0, "label_targets": targets}
    system = make_system(variant, **changes)
    assert sentences(audited(system)) == []


def test_poisson_batches_larger_than_their_mean_count_in_full() -> None:
    """A device moves every record of the largest batch, and the denominator is the mean size."""
    system = make_system("dpzv-joint", schedule="poisson", batch_size=2, rounds=150)
    assert sentences(audited(system)) == []
