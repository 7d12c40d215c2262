"""A report whose verdicts, figures or inputs somebody changed is not verified, and not rendered as if it held."""

from __future__ import annotations

import ast
import json
import random
import shutil
from dataclasses import fields
from functools import reduce
from operator import getitem
from pathlib import Path

import pytest
import torch

import vflpriv
from tests.program import vflpriv as program
from tests.recording.transcript_files import unprotected
from vflpriv import api
from vflpriv.audits import verdict
from vflpriv.common.files import SEAL, SIGNING_KEY
from vflpriv.core.audit import Finding, Measurement
from vflpriv.core.claims import Verdict
from vflpriv.report.audit import read_report
from vflpriv.report.evidence import FiguresRow, FindingRow
from vflpriv.report.seals import changed_since_written, sealed_json
from vflpriv.report.statement import PREDICATE_TYPE
from vflpriv.run.verify import changed_verdicts, verify

LEDGER = """
key = "mine"
[[release]]
kind = "zo-scalar"
noise = "gaussian"
scale = 1.0
sensitivity = { label = 0.25 }
[[release]]
kind = "hints"
noise = "none"
independent_of = ["label"]
[[claim]]
key = "tight"
statement = "one label"
unit = "label"
view = "device"
epsilon = 1.0
delta = 1e-5
[[claim]]
key = "loose"
statement = "one label"
unit = "label"
view = "device"
mu = 5.0
delta = 1e-5
[[attack_claim]]
key = "safe"
unit = "label"
view = "eavesdropper"
attack = "label_direct"
rate = 0.9
"""
"""The labels themselves are sent as well, and the ledger says that they do not move with labels."""
RECORDS = 400


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """The folder of a transcript, its ledger and its report; nothing about labels that were sent is hidden."""
    folder = tmp_path_factory.mktemp("verify")
    generator = torch.Generator().manual_seed(1)
    labels, canaries = vflpriv.plant(torch.arange(RECORDS) % 2, classes=2, canaries=240, seed=1)
    with vflpriv.record(folder / "run", devices=1, classes=2, records=RECORDS) as wire:
        wire.labels(labels, canaries=canaries)
        for t in range(6):
            ids = torch.randperm(RECORDS, generator=generator)[:200]
            wire.down(t, 0, "zo-scalar", {"delta": torch.randn((), generator=generator)}, ids)
            wire.down(t, 0, "hints", {"row": labels[ids].float().unsqueeze(1)}, ids)
    (folder / "ledger.toml").write_text(LEDGER)
    api.audit(
        transcript=folder / "run", ledger=folder / "ledger.toml", out=folder / "report", formats=("json",), quiet=True
    )
    return folder


@pytest.fixture
def report(audited):
    return json.loads((audited / "report" / "report.json").read_text("utf-8"))


def written(folder, report):
    path = folder / "report.json"
    path.write_text(json.dumps(report), encoding="utf-8")
    return path


def test_a_report_as_it_was_written_is_verified(audited, capsys):
    report = read_report(audited / "report" / "report.json")
    assert [claim.verdict for claim in report.systems[0].claims] == [Verdict.VIOLATED, Verdict.UNSUPPORTED]
    found = verify(report, transcript=audited / "run", ledger=audited / "ledger.toml")
    assert found.problems == ()
    assert "claims and budgets" in found.checked
    assert program("verify", str(audited / "report")).returncode == 0


def test_all_that_the_decision_reads_of_a_finding_is_kept_in_the_report():
    """Else a report that nobody changed would not be verified, as soon as a verdict rests on what is left out."""
    tree = ast.parse(Path(verdict.__file__).read_text("utf-8"))
    read = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} - {"description"}  # of a unit
    for kind, row, instead in (
        (Finding, FindingRow, {"measurement": "figures"}),
        (Measurement, FiguresRow, {"against": "of_budget"}),
    ):
        kept = set(row.model_fields) | set(instead)
        assert {field.name for field in fields(kind)} & read <= kept
        assert set(instead.values()) <= set(FindingRow.model_fields)


def first(report):
    return report["systems"][0]["claims"][0]


def figures(report):
    return [f for f in report["systems"][0]["evidence"]["findings"] if f["claim"] is not None]


CHANGES = {
    "verdict": lambda r: first(r).update(verdict="consistent"),
    "exit code": lambda r: r.update(exit_code=0),
    "reason": lambda r: first(r).update(reason="nothing refutes it"),
    "claimed": lambda r: first(r).update(epsilon=9.0, mu=1.8),
    "accounted": lambda r: first(r)["accounted"].update(epsilon_upper=0.5, epsilon=0.4, epsilon_lower=0.3, mu=0.1),
    "measured": lambda r: first(r)["measurements"][0].update(figure=0.1, epsilon=0.1),
    "p-value": lambda r: first(r)["measurements"][0].update(p_value=0.5),
    "refutes": lambda r: first(r)["measurements"][0].update(refutes=False),
    "a measurement that is gone": lambda r: first(r).update(measurements=[]),
    "a check that is gone": lambda r: r["systems"][0].update(checks=[]),
    "a claim that is gone": lambda r: r["systems"][0]["claims"].pop(0),
    "evidence": lambda r: [f.update(p_value=0.9) for f in figures(r)],
    "configuration": lambda r: r["config"].update(seed=8),
    "releases": lambda r: r["systems"][0]["releases"][0].update(noise="other"),
    "sampling": lambda r: r["systems"][0]["sampling"].update(records=10),
    "success": lambda r: r["systems"][0]["success_claims"][0].update(verdict="violated"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_report_does_not_hold(audited, report, tmp_path, change):
    CHANGES[change](report)
    path = written(tmp_path, report)
    done = program("verify", str(path))
    assert done.returncode == 1
    assert done.stdout.startswith("does not hold: ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("change", ["verdict", "exit code", "measured", "evidence"])
def test_report_and_compare_refuse_a_doctored_report(audited, report, tmp_path, change):
    CHANGES[change](report)
    path = written(tmp_path, report)
    before = str(audited / "report" / "report.json")
    for command in (["report", str(path)], ["compare", before, str(path)], ["compare", str(path), before]):
        done = program(*command)
        assert done.returncode == 2
        assert "vflpriv verify" in done.stderr
        assert done.stderr.count("\n") == 1


def test_budgets_are_computed_again_from_the_transcript(audited, report, tmp_path):
    loose = report["systems"][0]["claims"][1]
    assert loose["accounted"]["epsilon_upper"] > 1.0
    loose["accounted"]["epsilon_upper"] = loose["accounted"]["epsilon_upper"] * 0.9
    problems = verify(read_report(written(tmp_path, report)), transcript=audited / "run").problems
    assert any("accounted" in line for line in problems)


def leaves(value, path=()):
    """The place of every value that is no list and no object."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        yield from leaves(item, (*path, name)) if isinstance(item, dict | list) else [(*path, name)]


def test_no_single_value_can_be_changed(report):
    places = list(leaves(report))
    assert len(places) > 500
    for *way, last in random.Random(0).sample(places, 100):
        changed = json.loads(json.dumps(report))
        within = reduce(getitem, way, changed)
        within[last] = f"{within[last]}1" if isinstance(within[last], str) else 17
        assert changed_since_written(json.dumps(changed).encode()), (*way, last)


def test_spaces_and_line_ends_may_change(report):
    for text in (json.dumps(report), json.dumps(report, indent=7), json.dumps(report, indent=2).replace("\n", "\r\n")):
        assert changed_since_written(text.encode()) == []


def resealed(tmp_path, report):
    """The report as somebody writes it who changes values and computes their seal anew."""
    (tmp_path / "report.json").write_text(sealed_json(read_report(written(tmp_path, report))), encoding="utf-8")
    return tmp_path / "report.json"


def test_budgets_and_what_is_declared_are_computed_again_whatever_the_seal(audited, report, tmp_path):
    changes = {
        "rounds": lambda r: r["systems"][0].update(rounds=7),
        "budgets": lambda r: r["systems"][0]["budgets"][0].update(epsilon_upper=0.01),
        "data": lambda r: r["systems"][0]["data"].update(records=401),
        "claims": lambda r: first(r)["views"][0].update(epsilon_upper=0.01),
        "confidence": lambda r: r.update(confidence=0.99),
    }
    for name, change in changes.items():
        doctored = json.loads(json.dumps(report))
        change(doctored)
        path = resealed(tmp_path, doctored)
        problems = verify(read_report(path), path.read_bytes(), transcript=audited / "run").problems
        assert any(name in line for line in problems), name
    path = resealed(tmp_path, report)
    assert verify(read_report(path), path.read_bytes(), transcript=audited / "run").problems == ()


def test_a_seal_that_is_gone_or_has_no_signature_does_not_hold(report, tmp_path, monkeypatch):
    path = resealed(tmp_path, report)
    assert "it is not signed" in program("verify", str(path)).stdout
    monkeypatch.setenv(SIGNING_KEY, "a key of the laboratory")
    for command in (("verify", str(path)), ("report", str(path)), ("compare", str(path), str(path))):
        done = program(*command)
        assert f"expected one that is signed with {SIGNING_KEY}" in done.stdout + done.stderr
    signed = resealed(tmp_path, report)
    assert "signed" not in program("verify", str(signed)).stdout
    monkeypatch.delenv(SIGNING_KEY)
    assert f"{SIGNING_KEY} is not set" in program("verify", str(signed)).stdout
    del report[SEAL]
    done = program("verify", str(written(tmp_path, report)))
    assert (done.returncode, done.stdout.startswith(f"does not hold: {SEAL}")) == (1, True)


def test_another_transcript_or_ledger_is_named(audited, tmp_path):
    report = read_report(audited / "report" / "report.json")
    (tmp_path / "ledger.toml").write_text(LEDGER.replace("epsilon = 1.0", "epsilon = 2.0"))
    assert any("ledger" in line for line in verify(report, ledger=tmp_path / "ledger.toml").problems)
    with vflpriv.record(tmp_path / "run", devices=1, classes=2, records=RECORDS) as wire:
        wire.down(0, 0, "zo-scalar", {"delta": 1.0}, [0])
        wire.down(0, 0, "hints", {"row": [[1.0]]}, [0])
    assert any("transcript" in line for line in verify(report, transcript=tmp_path / "run").problems)


def test_an_older_report_cannot_be_verified_and_its_claims_must_agree_with_their_numbers(report, tmp_path):
    del report["systems"][0]["evidence"]
    path = written(tmp_path, report)
    done = program("verify", str(path))
    assert (done.returncode, "older reports" in done.stderr) == (2, True)
    assert changed_verdicts(read_report(path)) == []
    first(report)["verdict"] = "consistent"
    assert len(changed_verdicts(read_report(written(tmp_path, report)))) >= 1


@pytest.mark.parametrize("content", ["", "[]", "{", '{"schema_version": "vflpriv-report/9"}'])
def test_what_is_no_report_is_one_line(tmp_path, content):
    (tmp_path / "report.json").write_text(content)
    done = program("verify", str(tmp_path))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_a_statement_has_the_fields_of_in_toto(audited, tmp_path):
    """The fields that the Statement v1 specification requires, and what it says of each."""
    (tmp_path / "model.bin").write_bytes(b"a model")
    command = ["verify", str(audited / "report"), "--transcript", str(audited / "run"), "--format", "intoto"]
    done = program(*command, "--model", str(tmp_path / "model.bin"), "--out", str(tmp_path / "statement.json"))
    assert done.returncode == 0, done.stderr
    made = json.loads((tmp_path / "statement.json").read_text("utf-8"))
    assert set(made) == {"_type", "subject", "predicateType", "predicate"}
    assert made["_type"] == "https://in-toto.io/Statement/v1"
    assert made["predicateType"] == PREDICATE_TYPE
    assert PREDICATE_TYPE.startswith("https://")
    assert [subject["name"] for subject in made["subject"]] == ["model.bin", "run/transcript.json"]
    for subject in made["subject"]:
        assert set(subject) == {"name", "digest"}
        assert set(subject["digest"]) == {"sha256"}
        assert len(bytes.fromhex(subject["digest"]["sha256"])) == 32
    claims = made["predicate"]["claims"]
    assert [claim["verdict"] for claim in claims] == ["violated", "unsupported"]
    assert made["predicate"]["exitCode"] == 1
    assert claims[0]["claimed"]["epsilon"] == 1.0
    assert claims[0]["measured"]["figure"] > 1.0
    assert len(made["predicate"]["attackClaims"]) == 1


def test_without_a_subject_the_statement_is_about_the_report(audited):
    made = json.loads(program("verify", str(audited / "report"), "--format", "intoto").stdout)
    assert [subject["name"] for subject in made["subject"]] == ["report.json"]
    assert made["subject"][0]["digest"] == made["predicate"]["report"]["digest"]


def test_no_statement_of_what_does_not_hold(report, tmp_path):
    CHANGES["verdict"](report)
    done = program("verify", str(written(tmp_path, report)), "--format", "intoto")
    assert (done.returncode, done.stdout) == (1, "")


def test_a_transcript_without_hashes_is_no_subject(audited, tmp_path):
    shutil.copytree(audited / "run", tmp_path / "run")
    unprotected(tmp_path / "run")
    api.audit(
        transcript=tmp_path / "run", ledger=audited / "ledger.toml", out=tmp_path / "out", formats=("json",), quiet=True
    )
    done = program("verify", str(tmp_path / "out"), "--transcript", str(tmp_path / "run"), "--format", "intoto")
    assert (done.returncode, "version 3" in done.stderr) == (2, True)
