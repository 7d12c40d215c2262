"""What every registered audit keeps to: findings of one shape, claims by name, and as much work as it announced."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.support import make_system
from vflpriv.audits.verdict import Accounted, SystemEvidence, decide
from vflpriv.common.registry import available
from vflpriv.common.toml import Section
from vflpriv.core.audit import Audit, AuditContext, Finding
from vflpriv.core.canaries import CanaryKind, OneRunSettings, TwoWorldSettings
from vflpriv.core.claims import Verdict
from vflpriv.core.systems import Offer, System
from vflpriv.errors import InputError
from vflpriv.run import registered as run
from vflpriv.training.mechanisms.labels import label_claims

REGISTERED: dict[str, type[Audit]] = available("audit")
AUDITS = {name: audit for name, audit in REGISTERED.items() if Offer.LEDGER_FILE not in audit.needs}
"""Those of engines."""
RECORDED = (
    "label-coins",
    "membership",
    "watched",
    "ledger",
    "recorded-wire",
    "recorded-noise",
    "ciphertexts",
    "label-slopes",
)
SYSTEMS = ("dpzv-joint", "dpzv-sgd", "split-rr", "split-client", "split-concat")


class Counted:
    """Progress that is kept."""

    def __init__(self) -> None:
        self.stages: list[str] = []
        self.work = 0

    def stage(self, text: str) -> None:
        self.stages.append(text)

    def advance(self, work: int) -> None:
        self.work += work


SMALL: dict[str, Section] = {
    "two-world": TwoWorldSettings(trials={CanaryKind.NATURAL: 2}, whole_view=0),
    "one-run": OneRunSettings(canaries=24),
}
"""Few trials, and as many canaries as the toy data can hold."""


def context_of(system: System, **changes: object) -> AuditContext:
    """Claims to test, and progress that is kept."""
    settings = {
        "claims": (*system.claims, *label_claims(system.engine, system.settings)),
        "progress": Counted(),
    }
    return AuditContext(**settings | changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("variant", SYSTEMS)
@pytest.mark.parametrize("name", AUDITS)
def test_findings_are_of_one_shape_and_work_is_as_announced(name: str, variant: str) -> None:
    """Margin: between these lies whatever a p-value can be."""
    system = make_system(variant)
    context, audit = context_of(system, settings=SMALL.get(name)), AUDITS[name]()
    assert audit.refusal(system, context) is None
    announced = audit.work(system, context)
    findings = audit.run(system, context)
    assert isinstance(context.progress, Counted)
    assert context.progress.work == announced
    keys = {claim.key for claim in context.claims}
    for finding in findings:
        assert finding.audit == name
        assert finding.subject
        assert finding.sentence
        assert finding.measure
        assert math.isfinite(finding.figure)
        assert finding.claim is None or finding.claim in keys
        assert finding.p_value is None or 0 <= finding.p_value <= 1
        if finding.interval is not None:
            assert finding.interval[0] <= finding.figure <= finding.interval[1]
    accounted = {key: Accounted(rigorous=None) for key in keys}
    evidence = SystemEvidence(key="x", claims=context.claims, accounted=accounted, findings=findings)
    assert len(decide([evidence], alpha=0.05).systems["x"].findings) == len(findings)


@pytest.mark.parametrize("name", AUDITS)
def test_what_the_configuration_switches_off_finds_nothing(name: str) -> None:
    system = make_system("dpzv-joint")
    context = context_of(system)
    tables: run.Tables = dict.fromkeys(AUDITS, False)
    assert run.audit_work(system, context, tables) == 0
    findings, untested = run.run_audits(system, context, tables)
    assert not findings
    assert any(line == f"{name}: turned off by audit.{name} = false" for line in untested)
    assert isinstance(context.progress, Counted)
    assert context.progress.stages == []


@pytest.mark.parametrize("name", REGISTERED)
def test_every_audit_takes_a_table_of_its_settings_and_refuses_others(name: str) -> None:
    settings = REGISTERED[name].settings_type()
    run.check_tables({name: settings.model_dump(mode="json")}, "audit")
    with pytest.raises(InputError, match=rf"audit\.{name}\.gian = 2: expected no such field"):
        run.check_tables({name: {"gian": 2}}, "audit")


def test_claims_that_cannot_be_tested_are_named_with_the_reason() -> None:
    system = make_system("dpzv-joint")
    findings = AUDITS["one-run"]().run(system, context_of(system, settings=SMALL["one-run"]))
    refused = [finding for finding in findings if finding.is_untested]
    assert refused
    assert all(f.verdict is Verdict.NOT_APPLICABLE and "one-run needs" in f.sentence for f in refused)


def test_witnesses_are_saved_and_named_in_the_command(tmp_path: Path) -> None:
    system = make_system("dpzv-joint")
    findings = AUDITS["sensitivity"]().run(system, context_of(system, witnesses=tmp_path / "witnesses"))
    for finding in findings:
        saved = f"witnesses/dpzv-joint-{finding.subject}-{finding.unit}.json"
        assert finding.reproduce == f"vflpriv replay {saved}"
        assert (tmp_path / saved).exists()


def test_audits_run_in_their_declared_order_and_others_last(monkeypatch: pytest.MonkeyPatch) -> None:
    class Late(Audit):
        name = "a-late-one"
        summary = "has no order of its own"

        def run(self, system: System, context: AuditContext) -> list[Finding]:
            return []

    monkeypatch.setattr(run, "available", lambda kind: {"a-late-one": Late, **REGISTERED})
    names = [audit.name for audit in run.registered_audits()]
    assert names == [
        "wire",
        "flow",
        "sensitivity",
        "noise",
        "float",
        "server-state",
        "two-world",
        "function-trials",
        "one-run",
        *RECORDED,
        "a-late-one",
    ]
    system = make_system("dpzv-joint")
    assert (Late().refusal(system, AuditContext()), Late().work(system, AuditContext())) == (None, 0)


def test_a_class_that_is_no_audit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "available", lambda kind: {"odd": object})
    with pytest.raises(
        InputError, match=r"audit = 'odd': expected a class that derives from vflpriv\.core\.audit\.Audit"
    ):
        run.registered_audits()
