"""Results as JUnit XML: one suite per system, one case per claim or attack, as CI services list them."""

from __future__ import annotations

from collections.abc import Mapping
from xml.etree import ElementTree as ET

from vflpriv.common import formatting as f
from vflpriv.common.registry import register
from vflpriv.core.claims import Verdict
from vflpriv.report.attacks import AttackReport
from vflpriv.report.audit import CheckRow, ClaimRow, Report, SuccessClaimRow
from vflpriv.report.compare import AnyReport, Comparison
from vflpriv.report.formats import Context, Format

__all__ = ["JunitFormat", "render_junit"]

_OUTCOME = {
    Verdict.VIOLATED: "failure",
    Verdict.UNSUPPORTED: "error",
    Verdict.UNMEASURED: "error",
    Verdict.NOT_APPLICABLE: "skipped",
}
"""A claim that is unsupported or unmeasured is an error: the tests could not decide whether it holds."""
_TRUSTED = _OUTCOME | {Verdict.UNMEASURED: "skipped"}
"""Where the ledger is trusted, a claim that nothing measured was not tested; nor was such a premise in any case."""


@register("format")
class JunitFormat(Format):
    """`report.junit.xml` of an audit, `attacks.junit.xml` of attacks; `--junit` writes it to any path."""

    name = "junit"
    summary = "JUnit XML, for the test view of CI services"
    suffix = "junit.xml"

    def render(self, result: AnyReport, context: Context) -> str:
        """With the regressions against a baseline, if there is one."""
        return render_junit(result, context.comparison)


def render_junit(report: AnyReport, comparison: Comparison | None = None) -> str:
    """Claims, declared sensitivities and checks, or attacks, as cases; regressions against a baseline fail."""
    root = ET.Element("testsuites", name="vflpriv")
    if isinstance(report, AttackReport):
        _attacks(root, report)
    else:
        _systems(root, report)
    if comparison is not None:
        suite = _suite(root, "baseline")
        for change in comparison.lines:
            case = _case(suite, "baseline", f"{change.system}: {change.name} {change.where}")
            _outcome(case, "failure", "regression", change.sentence)
        if not comparison.regressions:
            _case(suite, "baseline", comparison.headline)
    for element in (*root, root):
        _count(element)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(root: ET.Element, name: str) -> ET.Element:
    return ET.SubElement(root, "testsuite", name=f.clean(name))


def _case(suite: ET.Element, classname: str, name: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", classname=f.clean(classname), name=f.clean(name), time="0")


def _outcome(case: ET.Element, tag: str, kind: str, message: str) -> None:
    element = ET.SubElement(case, tag, type=kind, message=f.clean(message))
    element.text = f.clean(message)


def _systems(root: ET.Element, report: Report) -> None:
    for system in report.systems:
        suite = _suite(root, system.key)
        for claim in system.all_claims:
            case = _case(suite, system.key, f"{claim.key}: {claim.source}, {claim.where}, seen by {claim.adversary}")
            _judged(case, claim, _TRUSTED if report.ledger_trusted else _OUTCOME)
        for check in system.checks:
            _judged(_case(suite, system.key, f"{check.audit} of {check.subject}, {check.unit} unit"), check, _TRUSTED)


def _judged(
    case: ET.Element, row: ClaimRow | SuccessClaimRow | CheckRow, outcomes: Mapping[Verdict, str] = _OUTCOME
) -> None:
    if row.verdict in outcomes:
        kind = row.verdict.value.replace(" ", "-")
        _outcome(case, outcomes[row.verdict], kind, f"{row.verdict}: {row.reason} ({row.reproduce})")


def _attacks(root: ET.Element, report: AttackReport) -> None:
    """A case for each attack, view and defence: failed where a limit is broken, skipped where it does not apply."""
    suites = {name: _suite(root, name) for name in dict.fromkeys(row.system for row in report.trained)}
    broken = {(b.system, b.defence, b.attack, b.adversary): b for b in reversed(report.breaches)}
    for c in report.every_cell:
        case = _case(suites[c.system], c.system, f"{c.attack} seen by {c.adversary}, defence {c.defence}")
        breach = broken.get((c.system, c.defence, c.attack, c.adversary))
        if c.not_applicable is not None:
            _outcome(case, "skipped", "not-applicable", c.not_applicable)
        elif breach is not None:
            _outcome(case, "failure", "limit-broken", breach.sentence)


def _count(element: ET.Element) -> None:
    element.set("tests", str(len(element.findall(".//testcase"))))
    for tag, name in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        element.set(name, str(len(element.findall(f".//testcase/{tag}"))))
