"""What a CI job reads: JUnit, SARIF and the step summary, valid whatever the names are."""

from __future__ import annotations

import hashlib
import json
import subprocess
import tarfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest

from tests.rendered import summary_of
from vflpriv.core.claims import Verdict
from vflpriv.render.formats.junit import render_junit
from vflpriv.render.formats.sarif import line_of, render_sarif
from vflpriv.render.results.features import number
from vflpriv.report.audit import CheckRow, Report
from vflpriv.report.compare import Comparison, Tolerance, compare

CONFIG = '[[system]]\nkey = "other"\n\n[[system]]\nkey = "dpzv"\n[system.engine]\nname = "dpzv"\n'
# What SARIF 2.1.0 requires of the parts we write; the whole OASIS schema is checked by the slow test.
TEXT = {
    "type": "object",
    "required": ["text"],
    "properties": {"text": {"type": "string"}},
    "additionalProperties": False,
}
LOCATION = {
    "type": "object",
    "required": ["logicalLocations"],
    "properties": {
        "logicalLocations": {"type": "array", "minItems": 1},
        "physicalLocation": {
            "required": ["artifactLocation", "region"],
            "properties": {
                "artifactLocation": {"required": ["uri"], "properties": {"uri": {"pattern": "^[!-~]+$"}}},
                "region": {"properties": {"startLine": {"type": "integer", "minimum": 1}}},
            },
        },
    },
    "additionalProperties": False,
}
RESULT = {
    "type": "object",
    "required": ["message", "ruleId", "ruleIndex", "level", "locations", "partialFingerprints"],
    "properties": {
        "message": TEXT,
        "ruleId": {"type": "string"},
        "ruleIndex": {"type": "integer", "minimum": 0},
        "level": {"enum": ["error", "warning", "note", "none"]},
        "locations": {"type": "array", "items": LOCATION, "minItems": 1, "maxItems": 1},
        "partialFingerprints": {"type": "object", "additionalProperties": {"type": "string", "minLength": 16}},
    },
    "additionalProperties": False,
}
SARIF = {
    "type": "object",
    "required": ["version", "$schema", "runs"],
    "properties": {
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "minItems": 1,
            "maxItems": 1,
            "items": {
                "type": "object",
                "required": ["tool", "results"],
                "properties": {
                    "tool": {"required": ["driver"], "properties": {"driver": {"required": ["name", "rules"]}}},
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "results": {"type": "array", "items": RESULT},
                },
                "additionalProperties": False,
            },
        },
    },
}


@pytest.fixture(scope="module")
def worse(report: Report) -> Comparison:
    """The report against a better one."""
    systems = [
        s.model_copy(update={"attacks": tuple(a.model_copy(update={"success": 0.01}) for a in s.attacks)})
        for s in report.systems
    ]
    return compare(report.model_copy(update={"systems": tuple(systems)}), report, Tolerance())


def sarif(report: Report, comparison: Comparison | None = None, config: Path | None = None) -> Any:
    found = json.loads(render_sarif(report, comparison, config))
    jsonschema.validate(found, SARIF)
    (run,) = found["runs"]
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
    return run["results"]


def test_junit_parses_back(report: Report, worse: Comparison) -> None:
    root = ET.fromstring(render_junit(report, worse))
    assert [suite.get("name") for suite in root] == ["dpzv", "joint", "split", "baseline"]
    found = {
        tag: [case.get("name") for case in root.iter("testcase") if case.find(tag) is not None]
        for tag in ("failure", "error", "skipped")
    }
    assert found["failure"][:2] == [
        "dpzv-vi5-device: dpzv-journal, Theorem VI.5, seen by device",
        "dpzv-vi5-devices: dpzv-journal, Theorem VI.5, seen by devices(all)",
    ]
    assert found["failure"][2:] == [
        "sensitivity of scalar, clip = paper, record unit",
        *(f"{c.system}: attack success {c.where}" for c in worse.regressions),
    ]
    assert len(worse.regressions) == 3
    assert [name.partition(":")[0] for name in found["error"]] == ["dpzv-model"]
    assert [name.partition(":")[0] for name in found["skipped"]] == ["joint-outsider"]
    for element in (root, *root):
        assert (
            int(element.get("tests", "")) == len(list(element.iter("testcase"))) > 0 or element.get("name") == "split"
        )
        assert int(element.get("failures", "")) == len(list(element.iter("failure")))


def test_junit_without_regression_has_a_passing_baseline(report: Report) -> None:
    root = ET.fromstring(render_junit(report, compare(report, report, Tolerance())))
    (case,) = root[-1]
    assert len(case) == 0


def test_sarif_points_to_the_line_of_the_system(
    report: Report, worse: Comparison, tmp_path: Path, monkeypatch: Any
) -> None:
    config = tmp_path / "my audit.toml"
    config.write_text(CONFIG, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    results = sarif(report, worse, config)
    rules = [r["ruleId"] for r in results]
    assert rules == ["claim-violated"] * 2 + ["claim-unsupported", "premise-broken"] + ["regression"] * 3
    place = results[0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "my%20audit.toml", "uriBaseId": "%SRCROOT%"}
    assert place["region"] == {"startLine": 5}
    prints = [r["partialFingerprints"]["vflprivFinding/v1"] for r in results]
    assert len(set(prints)) == len(prints)
    again = sarif(report.model_copy(update={"seed": 99}), worse, None)
    assert [r["partialFingerprints"]["vflprivFinding/v1"] for r in again] == prints
    assert all("physicalLocation" not in r["locations"][0] for r in again)


def test_broken_premises_are_failures(report: Report) -> None:
    words = {"audit": "noise", "subject": "scalar", "unit": "record", "figure": 0.5, "reproduce": "vflpriv audit"}
    checks = tuple(CheckRow(**words, verdict=word, reason=f"it is {word}.") for word in Verdict)
    system = report.systems[2].model_copy(update={"checks": checks})
    one = report.model_copy(update={"systems": (system,)})
    root = ET.fromstring(render_junit(one))
    assert [len(list(root.iter(tag))) for tag in ("testcase", "failure", "error", "skipped")] == [5, 1, 1, 2]
    (result,) = sarif(one)
    assert result["ruleId"] == "premise-broken"
    assert result["message"]["text"] == "noise of scalar, record unit: it is violated. Reproduce: vflpriv audit"


@pytest.mark.parametrize(("trusted", "tag"), [(False, "error"), (True, "skipped")])
def test_an_unmeasured_claim_is_an_error_unless_the_ledger_is_trusted(report: Report, trusted: bool, tag: str) -> None:
    claim = report.systems[1].claims[0].model_copy(update={"verdict": Verdict.UNMEASURED, "reason": "no trials"})
    system = report.systems[1].model_copy(update={"claims": (claim,), "checks": ()})
    one = report.model_copy(update={"systems": (system,), "ledger_trusted": trusted})
    (element,) = ET.fromstring(render_junit(one)).iter(tag)
    assert element.get("type") == "unmeasured"
    assert str(element.get("message")).startswith("unmeasured: no trials")
    (result,) = sarif(one)
    assert (result["ruleId"], result["level"]) == ("claim-unmeasured", "warning")


def test_lines_of_short_configurations() -> None:
    assert line_of('seed = 1\n[engine]\nname = "dpzv"', "dpzv") == 3
    assert line_of("seed = 1\n[engine]\n", "dpzv") == 2
    assert line_of("", "a.*(") == 1


def test_the_summary_has_verdict_claims_attacks_and_regressions(report: Report, worse: Comparison) -> None:
    text = summary_of(report, worse)
    for expected in (
        "# 2 of 5 claims are violated",
        "## Compared with the baseline",
        "3 regressions beyond the tolerance",
        "## What attacks reach",
        "| split | 96.9 % | label\\_gradient | device(0) | 100.0 % |",
        "## What attacks on features and membership reach",
    ):
        assert expected in text
    tried = [cell for cell in report.features if cell.success is not None]
    assert {str(cell.unit) for cell in tried} >= {"features", "record"}
    for cell in tried:
        name = cell.attack.replace("_", "\\_")
        assert f"| {cell.system} | {name} | {cell.adversary} | {cell.measure} | {number(cell.success)} |" in text
    shown = text.partition("## What attacks on features")[2]
    assert all(cell.attack.replace("_", "\\_") not in shown for cell in report.features if cell.success is None)
    assert len(summary_of(report, worse, limit=900).encode()) <= 900
    assert "Cut here" in summary_of(report, worse, limit=900)


def test_names_break_none_of_them(hostile: Report, tmp_path: Path) -> None:
    named = hostile.systems[0].model_copy(update={"key": hostile.systems[0].title})
    hostile = hostile.model_copy(update={"systems": (named,)})
    (tmp_path / "a.toml").write_bytes(b"\xff]]")
    root = ET.fromstring(render_junit(hostile))
    assert root[0].get("name", "").startswith("<script>alert(1)</script> | `rm`")
    results = sarif(hostile, None, tmp_path / "a.toml")
    assert results
    assert all("\x1b" not in json.dumps(r) and "\\u001b" not in json.dumps(r) for r in results)
    assert all("\\[x\\](http" in r["message"]["text"] for r in results if r["ruleId"] == "claim-violated")
    text = summary_of(hostile)
    assert "<script" not in text
    assert "\x1b" not in text
    assert "](http://evil" not in text.replace("\\]", "")


@pytest.mark.slow
def test_sarif_against_the_schema_of_oasis(report: Report, hostile: Report, worse: Comparison, tmp_path: Path) -> None:
    """The schema is not ours to copy: a package that ships it is fetched, and its bytes are those that were read."""
    package = "@datadog/datadog-ci@2.48.0"
    subprocess.run(["npm", "pack", "--silent", package], cwd=tmp_path, check=True, capture_output=True)
    with tarfile.open(next(tmp_path.glob("*.tgz"))) as archive:
        member = archive.extractfile("package/dist/commands/sarif/json-schema/sarif-schema-2.1.0.json")
        assert member is not None
        content = member.read()
    assert hashlib.sha256(content).hexdigest() == "10666d46649b52e262001e70d43e6c52f7c0279ca3dbdfe9a7dc2e4071556454"
    config = tmp_path / "audit.toml"
    config.write_text(CONFIG, encoding="utf-8")
    checker = jsonschema.Draft7Validator(json.loads(content))
    for log in (render_sarif(report, worse, config), render_sarif(hostile), render_sarif(report)):
        assert [error.message for error in checker.iter_errors(json.loads(log))] == []
    broken = json.loads(render_sarif(report))
    del broken["runs"][0]["results"][0]["message"]
    assert not checker.is_valid(broken)
