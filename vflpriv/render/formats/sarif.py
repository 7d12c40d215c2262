"""Results as SARIF 2.1.0: what does not hold, at the line of the configuration that describes the system."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from vflpriv.common import formatting as f
from vflpriv.common.registry import register
from vflpriv.core.claims import Verdict
from vflpriv.report.attacks import AttackReport
from vflpriv.report.audit import SystemRow
from vflpriv.report.compare import AnyReport, Comparison
from vflpriv.report.formats import Context, Format

__all__ = ["SarifFormat", "line_of", "render_sarif"]

_RULES = {
    "claim-violated": ("error", "A published guarantee is violated by what was measured."),
    "claim-unsupported": (
        "warning",
        "No trial refutes the guarantee, but the accounted ε exceeds the claimed one, or there is none.",
    ),
    "claim-unmeasured": (
        "warning",
        "The accounted ε is within the claimed one, but only the ledger speaks for it: nothing was measured.",
    ),
    "premise-broken": (
        "error",
        "A premise of the guarantees does not hold: on the wire beside the ledger, in the noise, or in state.",
    ),
    "limit-broken": ("error", "An attack exceeds a limit given by --fail-on."),
    "regression": ("error", "A number is worse than in the baseline, beyond the tolerance."),
}
_RULE_OF = {
    Verdict.VIOLATED: "claim-violated",
    Verdict.UNSUPPORTED: "claim-unsupported",
    Verdict.UNMEASURED: "claim-unmeasured",
}


@register("format")
class SarifFormat(Format):
    """`report.sarif` of an audit, `attacks.sarif` of attacks; `--sarif` writes it to any path."""

    name = "sarif"
    summary = "SARIF 2.1.0, for code scanning"

    def render(self, result: AnyReport, context: Context) -> str:
        """With the lines of the audited file, if it is known, and the regressions against a baseline."""
        return render_sarif(result, context.comparison, context.config)


def render_sarif(report: AnyReport, comparison: Comparison | None = None, config: Path | None = None) -> str:
    """One run with one result per finding; with lines where the audited configuration file is known."""
    source = "" if config is None else config.read_text(encoding="utf-8", errors="replace")
    results = [
        _result(rule, system, name, message, config, line_of(source, system, name))
        for rule, system, name, message in _findings(report, comparison)
    ]
    driver = {
        "name": "vflpriv",
        "version": f.clean(report.tool_version),
        "rules": [
            {"id": rule, "shortDescription": {"text": text}, "defaultConfiguration": {"level": level}}
            for rule, (level, text) in _RULES.items()
        ],
    }
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}],
    }
    return json.dumps(log, indent=2, ensure_ascii=False) + "\n"


def line_of(text: str, system: str, claim: str = "") -> int:
    """The line of the claim's key within its system; the line of the system where the file does not have that key.

    A system is found by its key, else by its engine's name, else by the engine section, else the first line is taken.
    The text is TOML or YAML.

    >>> line_of('[[system]]\\nkey = "a"\\n[[system]]\\nkey = "b"\\n[[system.claim]]\\nkey = "c"', "b", "c")
    6
    >>> line_of('system:\\n- key: a\\n  engine: {name: split}', "a", "c")
    2
    """
    lines = text.split("\n")
    patterns = (_field("key", system), _field("name", system), r"^\s*(\[engine\]|engine\s*:)", "")
    start = next(n for pattern in patterns for n, line in enumerate(lines) if re.search(pattern, line))
    for number in range(start, len(lines)):
        if number > start and re.match(r"\s*\[\[system\]\]", lines[number]):
            break
        if claim and re.search(_field("key", claim), lines[number]):
            return number + 1
    return start + 1


def _field(key: str, value: str) -> str:
    """`key = "value"` or `key: value`, at the start of a line or of an entry."""
    return rf"^[\s\-{{]*[\"']?{key}[\"']?\s*[=:]\s*[\"']?{re.escape(value)}[\"']?\s*(?:$|[,#}}])"


def _findings(report: AnyReport, comparison: Comparison | None) -> Iterator[tuple[str, str, str, str]]:
    """(rule, system, name of the finding, message) of each."""
    if isinstance(report, AttackReport):
        for b in report.breaches:
            name = f"{b.attack} seen by {b.adversary}, defence {b.defence}, {b.limit}"
            yield "limit-broken", b.system, name, b.sentence
    else:
        for system in report.systems:
            yield from _of_system(system)
    for change in comparison.lines if comparison is not None else []:
        yield "regression", change.system, f"{change.what} {change.where}".strip(), change.sentence


def _of_system(system: SystemRow) -> Iterator[tuple[str, str, str, str]]:
    for claim in system.all_claims:
        if claim.verdict in _RULE_OF:
            verdict = f"{claim.source}, {claim.where}, seen by {claim.adversary}: {claim.verdict}. {claim.reason}"
            yield _RULE_OF[claim.verdict], system.key, claim.key, f"{verdict} Reproduce: {claim.reproduce}"
    for check in system.checks:
        if check.verdict is Verdict.VIOLATED:
            name = f"{check.audit} of {check.subject}, {check.unit} unit"
            yield "premise-broken", system.key, name, f"{name}: {check.reason} Reproduce: {check.reproduce}"


def _result(rule: str, system: str, name: str, message: str, config: Path | None, line: int) -> dict[str, Any]:
    # No measured figure goes into the fingerprint: the same finding keeps it from run to run.
    fingerprint = hashlib.sha256("\0".join((rule, system, name)).encode()).hexdigest()[:32]
    location: dict[str, Any] = {
        "logicalLocations": [{"name": f.clean(name), "fullyQualifiedName": f.clean(f"{system}/{name}")}]
    }
    if config is not None:
        location["physicalLocation"] = {"artifactLocation": _artifact(config), "region": {"startLine": line}}
    return {
        "ruleId": rule,
        "ruleIndex": list(_RULES).index(rule),
        "level": _RULES[rule][0],
        "message": {"text": _plain(message)},
        "locations": [location],
        "partialFingerprints": {"vflprivFinding/v1": fingerprint},
    }


def _plain(message: str) -> str:
    """The message as literal text: no link `[text](target)`; braces are doubled, since `{0}` is a placeholder."""
    return re.sub(r"([{}])", r"\1\1", re.sub(r"([\\\[\]])", r"\\\1", f.clean(message)))


def _artifact(config: Path) -> dict[str, str]:
    """The file relative to the working directory, which in CI is the root of the repository."""
    path, here = config.resolve(), Path.cwd()
    if path.is_relative_to(here):
        return {"uri": quote(path.relative_to(here).as_posix()), "uriBaseId": "%SRCROOT%"}
    return {"uri": path.as_uri()}
