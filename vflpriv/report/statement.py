"""An audit as an in-toto Statement v1, which cosign and GitHub's attestations sign."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from vflpriv.report.audit import Report
from vflpriv.report.rows import ClaimRow

__all__ = ["PREDICATE_TYPE", "STATEMENT_TYPE", "statement"]

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://github.com/vflpriv/vflpriv/attestations/privacy-audit/v1"
"""What the predicate holds is described in docs/ci.md; another meaning of a field is another version."""


def statement(report: Report, subjects: Mapping[str, str], *, sha256: str) -> str:
    """The statement that these subjects, SHA-256 by name, were audited with this report, whose file has `sha256`."""
    content = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in subjects.items()],
        "predicateType": PREDICATE_TYPE,
        "predicate": _predicate(report, sha256),
    }
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _predicate(report: Report, sha256: str) -> dict[str, Any]:
    values = report.to_dict()  # infinities are texts
    claims = [
        _claim(system.key, row, values["systems"][s]["claims"][c])
        for s, system in enumerate(report.systems)
        for c, row in enumerate(system.claims)
    ]
    return {
        "tool": {"name": "vflpriv", "version": report.tool_version},
        "report": {"digest": {"sha256": sha256}, "schema": report.schema_version},
        "inputs": [{"name": f.name, "digest": {"sha256": f.sha256}} for f in report.fingerprints],
        "date": report.date,
        "seed": report.seed,
        "confidence": report.confidence,
        "verdictConfidence": report.verdict_confidence,
        "ledgerTrusted": report.ledger_trusted,
        "exitCode": report.exit_code,
        "headline": report.headline,
        "claims": claims,
        "attackClaims": [
            {"system": system.key, **{name: row.to_dict()[name] for name in _OF_ATTACKS}}
            for system in report.systems
            for row in system.success_claims
        ],
        "notTested": list(report.not_tested),
    }


_OF_ATTACKS = ("key", "statement", "unit", "adversary", "attack", "rate", "success", "low", "high", "verdict", "reason")


def _claim(system: str, row: ClaimRow, values: Mapping[str, Any]) -> dict[str, Any]:
    """A claim with its three numbers; `values` is the row as JSON has it."""
    measured = next((m for m in values["measurements"] if m["decides"]), None)
    return {
        "system": system,
        "key": row.key,
        "statement": row.statement,
        "source": row.source,
        "unit": row.unit,
        "adversary": row.adversary,
        "delta": row.delta,
        "claimed": {"epsilon": values["epsilon"], "mu": values["mu"], "stated": row.stated},
        "accounted": {"epsilonUpper": values["accounted"]["epsilon_upper"], "accountant": row.accounted.accountant},
        "measured": None
        if measured is None
        else {name: measured[name] for name in ("measure", "figure", "exact", "confidence", "trials", "p_adjusted")},
        "verdict": row.verdict.value,
        "reason": row.reason,
    }
