"""The report as SARIF 2.1.0: what does not hold, at the line of the configuration that sets it up."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vflpriv import formatting as f
from vflpriv.report import Report, SystemRow
from vflpriv.report_compare import Comparison
from vflpriv.verdicts import Word

__all__ = ["line_of", "render_sarif"]

_RULES = {
    "claim-violated": ("error", "A published guarantee is violated by what was measured."),
    "claim-unsupported": ("warning", "More can be accounted for than was claimed, and no trial showed it."),
    "sensitivity-broken": ("error", "A mechanism exceeds the sensitivity that it declares."),
    "premise-broken": (
        "error",
        "A premise of guarantees does not hold: the noise that left, or the state.",
    ),
    "regression": ("error", "A number is worse than in the baseline, beyond the tolerance."),
}
_WORDS = {Word.VIOLATED: "claim-violated", Word.UNSUPPORTED: "claim-unsupported"}


def render_sarif(report: Report, comparison: Comparison | None = None, config: Path | None = None) -> str:
    """One run with a result for each finding; anchored where the audit was given a configuration file."""
    text = "" if config is None else config.read_text(encoding="utf-8", errors="replace")
    results = [
        _result(rule, system, name, message, config, line_of(text, system))
        for rule, system, name, message in _findings(report, comparison)
    ]
    driver = {
        "name": "vflpriv",
        "version": f.clean(report.tool_version),
        "rules": [
            {"id": rule, "shortDescription": {"text": words}, "defaultConfiguration": {"level": level}}
            for rule, (level, words) in _RULES.items()
        ],
    }
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}],
    }
    return json.dumps(log, indent=2, ensure_ascii=False) + "\n"


def line_of(text: str, system: str) -> int:
    """The line that names a system: its key, else its engine's name, else the engine's section, else the first.

    >>> line_of('[[system]]\\nkey = "a"\\n[[system]]\\nkey = "b"', "b")
    4
    """
    name = re.escape(system)
    for pattern in (rf"^\s*key\s*=\s*[\"']{name}[\"']", rf"^\s*name\s*=\s*[\"']{name}[\"']", r"^\s*\[engine\]"):
        for number, line in enumerate(text.split("\n"), start=1):
            if re.match(pattern, line):
                return number
    return 1


def _findings(report: Report, comparison: Comparison | None) -> Iterator[tuple[str, str, str, str]]:
    """(rule, system, what, message)."""
    for system in report.systems:
        yield from _of_system(system)
    for change in comparison.lines if comparison is not None else []:
        yield "regression", change.system, f"{change.what} {change.where}".strip(), change.sentence


def _of_system(system: SystemRow) -> Iterator[tuple[str, str, str, str]]:
    for claim in system.all_claims:
        if claim.verdict in _WORDS:
            words = f"{claim.source}, {claim.where}, seen by {claim.adversary}: {claim.verdict}. {claim.reason}"
            yield _WORDS[claim.verdict], system.key, claim.key, f"{words} Reproduce: {claim.reproduce}"
    for row in system.sensitivity:
        if not row.holds:
            bound = f"declares {f.exact(row.declared)}, found {f.exact(row.observed)} ({row.witness})"
            message = f"{row.mechanism}, {row.unit} unit: {bound}"
            yield "sensitivity-broken", system.key, f"{row.mechanism} {row.unit}", message
    for check in system.checks:
        if check.verdict is Word.VIOLATED:
            name = f"{check.audit} of {check.subject}, {check.unit} unit"
            yield "premise-broken", system.key, name, f"{name}: {check.reason} Reproduce: {check.reproduce}"


def _result(rule: str, system: str, name: str, message: str, config: Path | None, line: int) -> dict[str, Any]:
    # Of what is wrong, not of what was measured: the same finding keeps its fingerprint from run to run.
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
        "message": {"text": re.sub(r"([\\\[\]])", r"\\\1", f.clean(message))},
        "locations": [location],
        "partialFingerprints": {"vflprivFinding/v1": fingerprint},
    }


def _artifact(config: Path) -> dict[str, str]:
    """Relative to the folder the audit was started in, which in CI is the repository's root."""
    from urllib.parse import quote

    path, here = config.resolve(), Path.cwd()
    if path.is_relative_to(here):
        return {"uri": quote(path.relative_to(here).as_posix()), "uriBaseId": "%SRCROOT%"}
    return {"uri": path.as_uri()}
