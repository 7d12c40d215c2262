"""A report as SARIF 2.1.0: what does not hold, at the line of the configuration that sets it up."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vflpriv.common import formatting as f
from vflpriv.core.claims import Verdict
from vflpriv.report.attacks import AttackReport
from vflpriv.report.audit import SystemRow
from vflpriv.report.compare import AnyReport, Comparison

__all__ = ["line_of", "render_sarif"]

_RULES = {
    "claim-violated": ("error", "A published guarantee is violated by what was measured."),
    "claim-unsupported": ("warning", "More can be accounted for than was claimed, and no trial showed it."),
    "sensitivity-broken": ("error", "A mechanism exceeds the sensitivity that it declares."),
    "premise-broken": (
        "error",
        "A premise of guarantees does not hold: the noise that left, or the state.",
    ),
    "limit-broken": ("error", "An attack reaches more than the limit that was given."),
    "regression": ("error", "A number is worse than in the baseline, beyond the tolerance."),
}
_WORDS = {Verdict.VIOLATED: "claim-violated", Verdict.UNSUPPORTED: "claim-unsupported"}


def render_sarif(report: AnyReport, comparison: Comparison | None = None, config: Path | None = None) -> str:
    """One run with a result for each finding; anchored where the audit was given a configuration file."""
    text = "" if config is None else config.read_text(encoding="utf-8", errors="replace")
    results = [
        _result(rule, system, name, message, config, line_of(text, system, name))
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


def line_of(text: str, system: str, claim: str = "") -> int:
    """The line of a claim's own key, if its system has one there; else that of the system.

    A system stands where its key is, else its engine's name, else the engine's section, else at the top. TOML or YAML.

    >>> line_of('[[system]]\\nkey = "a"\\n[[system]]\\nkey = "b"\\n[[system.claim]]\\nkey = "c"', "b", "c")
    6
    >>> line_of('system:\\n- key: a\\n  engine: {name: split}', "a", "c")
    2
    """
    lines = text.split("\n")
    places = (_field("key", system), _field("name", system), r"^\s*(\[engine\]|engine\s*:)", "")
    start = next(n for pattern in places for n, line in enumerate(lines) if re.search(pattern, line))
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
    """(rule, system, what, message)."""
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
        if claim.verdict in _WORDS:
            words = f"{claim.source}, {claim.where}, seen by {claim.adversary}: {claim.verdict}. {claim.reason}"
            yield _WORDS[claim.verdict], system.key, claim.key, f"{words} Reproduce: {claim.reproduce}"
    for row in system.sensitivity:
        if not row.holds:
            bound = f"declares {f.exact(row.declared)}, found {f.exact(row.observed)} ({row.witness})"
            message = f"{row.mechanism}, {row.unit} unit: {bound}"
            yield "sensitivity-broken", system.key, f"{row.mechanism} {row.unit}", message
    for check in system.checks:
        if check.verdict is Verdict.VIOLATED:
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
        "message": {"text": _plain(message)},
        "locations": [location],
        "partialFingerprints": {"vflprivFinding/v1": fingerprint},
    }


def _plain(message: str) -> str:
    """No link of `[text](target)`, and no `{0}` in whose place an argument would be put: braces count twice."""
    return re.sub(r"([{}])", r"\1\1", re.sub(r"([\\\[\]])", r"\\\1", f.clean(message)))


def _artifact(config: Path) -> dict[str, str]:
    """Relative to the folder the audit was started in, which in CI is the repository's root."""
    from urllib.parse import quote

    path, here = config.resolve(), Path.cwd()
    if path.is_relative_to(here):
        return {"uri": quote(path.relative_to(here).as_posix()), "uriBaseId": "%SRCROOT%"}
    return {"uri": path.as_uri()}
