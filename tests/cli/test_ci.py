"""What a CI job asks of an audit: files for other programs, a step summary, and a gate against an earlier report."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.cli.test_cli import run
from tests.tiny import TINY
from vflpriv.cli.main import main
from vflpriv.render.markdown import LIMIT
from vflpriv.report.audit import read_report

AUDIT = ("audit", "audit.toml", "-q", "--format", "json")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A configuration and its report."""
    path = tmp_path_factory.mktemp("ci")
    (path / "audit.toml").write_text(TINY, encoding="utf-8")
    files = ("--junit", "out/junit.xml", "--sarif", "out/a.sarif", "--summary", "out/summary.md")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GITHUB_STEP_SUMMARY", raising=False)
        patch.chdir(path)
        patch.setattr(sys, "argv", ["vflpriv", *AUDIT, "--out", "first", *files])
        with pytest.raises(SystemExit) as stopped:
            main()
    assert stopped.value.code in (0, None)
    return path


def test_an_audit_leaves_files_for_ci(folder):
    out = folder / "out"
    assert {path.name for path in out.iterdir()} == {"junit.xml", "a.sarif", "summary.md"}
    assert ET.parse(out / "junit.xml").getroot().get("failures") == "0"
    assert json.loads((out / "a.sarif").read_text("utf-8"))["runs"][0]["results"] == []
    assert "| split | 13.3 % | label\\_direct | device(0) | 100.0 % |" in (out / "summary.md").read_text("utf-8")


def test_the_step_summary_of_a_job_is_added_to(monkeypatch, capsys, folder, tmp_path):
    target = tmp_path / "step"
    target.write_text("before\n", encoding="utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(target))
    assert run(monkeypatch, capsys, "report", str(folder / "first"), "--format", "json")[0] == 0
    text = target.read_text("utf-8")
    assert text.startswith("before\n# The claim is consistent")
    assert "What attacks reach" in text
    target.write_text("x" * (LIMIT - 300), encoding="utf-8")
    run(monkeypatch, capsys, "report", str(folder / "first"), "--format", "json")
    assert target.stat().st_size <= LIMIT + 1
    assert "Cut here" in target.read_text("utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    code, _, error = run(monkeypatch, capsys, "report", str(folder / "first"), "--format", "json")
    assert (code, error.count("\n")) == (2, 1)


def test_the_same_audit_passes_its_own_baseline(monkeypatch, capsys, folder, tmp_path):
    monkeypatch.chdir(folder)
    code, printed, _ = run(monkeypatch, capsys, *AUDIT, "--out", str(tmp_path), "--baseline", "first")
    assert code == 0
    assert "worse" not in printed
    assert (tmp_path / "report.json").read_bytes() == (folder / "first" / "report.json").read_bytes()


def test_a_worse_audit_does_not_pass(monkeypatch, capsys, folder, tmp_path):
    sarif, junit = tmp_path / "a.sarif", tmp_path / "j.xml"
    worse = ("--set", "system.sound.engine.epsilon=2.0", "--set", "system.split.engine.device_rate=1000.0")
    monkeypatch.chdir(folder)
    gate = ("--baseline", str(folder / "first" / "report.json"), "--sarif", str(sarif), "--junit", str(junit))
    code, printed, _ = run(monkeypatch, capsys, *AUDIT, "--out", str(tmp_path), *worse, *gate)
    lines = [line for line in printed.splitlines() if line.startswith("worse than the baseline: ")]
    assert code == 1
    assert read_report(tmp_path / "report.json").exit_code == 0
    assert any("sound: accounted ε of record" in line and "1.00 before, 2.00 now" in line for line in lines)
    results = json.loads(sarif.read_text("utf-8"))["runs"][0]["results"]
    assert [r["ruleId"] for r in results] == ["regression"] * len(lines)
    place = results[0]["locations"][0]["physicalLocation"]
    assert place["region"]["startLine"] == TINY.split("\n").index('key = "sound"') + 1
    assert int(ET.parse(junit).getroot().get("failures", "")) == len(lines)
    code, printed, _ = run(
        monkeypatch, capsys, "report", str(tmp_path), "--format", "json", *gate[:2], "--tolerance", "10"
    )
    assert code == 0
    code, printed, _ = run(monkeypatch, capsys, "compare", str(folder / "first"), str(tmp_path), "--format", "json")
    assert code == 1
    assert {c["what"] for c in json.loads(printed)["changes"] if c["regression"]} >= {"epsilon"}
    assert run(monkeypatch, capsys, "compare", str(tmp_path), str(tmp_path), "--format", "md")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["audit", "--baseline", "none.json"], "report = 'none.json': expected a readable report.json"),
        (["audit", "--tolerance", "0.1"], "--tolerance = '0.1': expected --baseline beside it"),
        (["audit", "--junit", "."], "--junit = '.': expected a file, not a folder"),
        (["audit", "--sarif", "file/a.sarif"], "--sarif = 'file': expected a folder that can be written to"),
        (["report", "--config", "none.toml", "."], "report = 'report.json': expected a readable report.json"),
        (["compare", "none.json", "none.json"], "report = 'none.json'"),
        (["compare", ".", ".", "--format", "pdf"], "--format = 'pdf': expected one of text, md, json"),
        (
            ["schema", "everything"],
            "schema = 'everything': expected one of config, ledger, report, attacks",
        ),
        (["train", "--only", "nobody"], "--only = 'nobody': expected one of dpzv-published"),
        (["train", "--save", "file/models"], "--save = 'file/models': expected a folder that can be written to"),
    ],
)
def test_what_cannot_be_done_is_said_before_the_work(monkeypatch, capsys, tmp_path, arguments, line):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("kept", encoding="utf-8")
    code, printed, error = run(monkeypatch, capsys, *arguments)
    assert (code, printed, error.count("\n")) == (2, "", 1)
    assert line in error
    assert {path.name for path in tmp_path.iterdir()} <= {"file", "vflpriv-report"}


def test_papers_is_the_audit_of_that_name(monkeypatch, capsys, tmp_path):
    few = ("--only", "dpzv-clip", "--trials", "0", "-q", "--format", "json", "--out", str(tmp_path / "out"))
    less = ("--set", "system.dpzv-clip.engine.rounds=9", "--set", "system.dpzv-clip.audit.noise=false")
    sarif = tmp_path / "a.sarif"
    code, printed, _ = run(monkeypatch, capsys, "papers", *few, *less, "--sarif", str(sarif))
    assert code == 1
    assert "dpzv-clip" in printed
    assert read_report(tmp_path / "out" / "report.json").systems[0].key == "dpzv-clip"
    assert "physicalLocation" not in json.loads(sarif.read_text("utf-8"))["runs"][0]["results"][0]["locations"][0]
    code, printed, _ = run(monkeypatch, capsys, "papers", "--help")
    assert code == 0
    assert "Usage: vflpriv papers [OPTIONS]" in printed
    assert "--baseline" in printed
    assert "--ledger" not in printed
    assert run(monkeypatch, capsys, "papers", "--only", "nobody")[0] == 2
