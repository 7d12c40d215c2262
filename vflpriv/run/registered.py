"""The one runner of audits: every registered audit on any source, with settings of its own, and what was not tested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from vflpriv.common.registry import available
from vflpriv.config.errors import parse_settings
from vflpriv.core.audit import Audit, AuditContext, Finding
from vflpriv.core.claims import Claim, Verdict
from vflpriv.core.systems import Source
from vflpriv.errors import InputError

__all__ = ["Tables", "audit_work", "check_tables", "registered_audits", "run_audits"]

_NEARLY = 0.9
"""The share of what is claimed from which on an exact figure leaves trials nothing to find but its own error."""
Tables = Mapping[str, bool | Mapping[str, Any]]
"""By the name of an audit, its settings; False turns it off, True is the same as no settings."""


def registered_audits() -> list[Audit[Any]]:
    """Every registered audit, those of other packages included, in the order in which they run."""
    audits = []
    for name, kind in available("audit").items():
        if not issubclass(kind, Audit):
            raise InputError("audit", name, "a class that derives from vflpriv.core.audit.Audit")
        audits.append(kind())
    return sorted(audits, key=lambda audit: (audit.order, audit.name))


def check_tables(tables: Tables, where: str) -> None:
    """Raise an InputError, before any work, if a table is of no audit, or has a setting that its audit does not."""
    if not tables:
        return
    audits = {audit.name: audit for audit in registered_audits()}
    for name, table in tables.items():
        if name not in audits:
            raise InputError(f"{where}.{name}", table, f"the name of an audit: one of {', '.join(audits)}")
        _settings(audits[name], tables, where)


def _settings(audit: Audit[Any], tables: Tables, where: str = "audit") -> BaseModel:
    table = tables.get(audit.name, {})
    return parse_settings(audit.settings_type, {} if isinstance(table, bool) else table, f"{where}.{audit.name}")


def _asked(audit: Audit[Any], tables: Tables) -> bool:
    """Whether the audit is to run, or to say why it does not: some run on request alone."""
    return not audit.on_request or audit.name in tables


def _turned_off(audit: Audit[Any], tables: Tables) -> str | None:
    """Which table turns the audit off: its own, or that of the audit that stands for it on other kinds of sources."""
    name = audit.name if audit.name in tables else audit.topic
    return f"turned off by audit.{name} = false" if tables.get(name) is False else None


def audit_work(source: Source, context: AuditContext, tables: Tables) -> int:
    """Replica-rounds of all audits that will run, for the progress bar."""
    audits = [a for a in registered_audits() if source.missing(a.needs) is None and _asked(a, tables)]
    running = [audit for audit in audits if not _turned_off(audit, tables)]
    return sum(audit.work(source, replace(context, settings=_settings(audit, tables))) for audit in running)


def run_audits(source: Source, context: AuditContext, tables: Tables) -> tuple[list[Finding], list[str]]:
    """The findings of all audits, and a line for everything that one of them could not test."""
    claims = {claim.key: claim for claim in context.claims}
    audits = registered_audits()
    findings: list[Finding] = []
    not_tested = _lacking(source, audits)
    for audit in audits:
        if source.missing(audit.needs) is not None or not _asked(audit, tables):
            continue
        refuted, reached = _refuted(findings), _reached(findings, claims)
        own = replace(context, settings=_settings(audit, tables), refuted=refuted, reached=reached)
        refusal = _turned_off(audit, tables) or audit.refusal(source, own)
        if refusal is not None:
            not_tested.append(f"{audit.name}: {refusal}")
            continue
        for finding in audit.run(source, own):
            findings.append(finding)
            if finding.is_untested and finding.claim in claims:
                claim = claims[finding.claim]
                not_tested.append(f"{source.name_of(claim)} ({claim.adversary}): {finding.sentence}")
    return findings, not_tested


def _refuted(findings: Sequence[Finding]) -> frozenset[str]:
    """The claims that some finding refutes without statistics."""
    certain = (f for f in findings if not f.is_test and f.verdict is Verdict.VIOLATED)
    return frozenset(finding.claim for finding in certain if finding.claim is not None)


def _reached(findings: Sequence[Finding], claims: Mapping[str, Claim]) -> frozenset[str]:
    """The claims that an exact figure is as large as, or nearly."""
    proofs = (f for f in findings if f.is_proof)
    exact = ((f.measurement, f.claim) for f in proofs if f.measurement is not None and f.claim is not None)
    return frozenset(
        key
        for measurement, key in exact
        if key in claims and measurement.exact and measurement.figure >= _NEARLY * measurement.claimed(claims[key])
    )


def _lacking(source: Source, audits: Sequence[Audit[Any]]) -> list[str]:
    """Of each topic that no audit can test here, what the audit lacks that is made for this kind of source."""
    by_topic: dict[str, list[Audit[Any]]] = {}
    for audit in audits:
        by_topic.setdefault(audit.topic or audit.name, []).append(audit)
    lines = []
    for same_topic in by_topic.values():
        # Of two that lack as much, the one that uses more of what is there is meant for such sources.
        closest = max(same_topic, key=lambda a: (-len(a.needs - source.offers), len(a.needs & source.offers)))
        lacking = source.missing(closest.needs)
        lines += [] if lacking is None else [f"{closest.name}: {lacking}"]
    return lines
