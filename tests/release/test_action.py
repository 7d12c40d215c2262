"""`action.yml`, which others use as a step: its commands are run, with inputs as GitHub would set them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.reduced import CPU_WHEELS
from tests.program import vflpriv
from tests.tiny import TINY
from vflpriv.recording.files.format import HEAD

ROOT = Path(__file__).resolve().parents[2]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
STEPS: dict[str, Any] = {step["name"]: step for step in ACTION["runs"]["steps"] if "run" in step}
RECORDER = '#!/bin/sh\nprintf "%s\\0" "$@" > "$CALLS/$(basename "$0")"\nexit ${CODE:-0}\n'


def evaluated(expression: str, inputs: dict[str, str]) -> str:
    """`${{ inputs.a }}`, or the choice `${{ inputs.a && inputs.b || inputs.c }}`."""
    names = re.findall(r"inputs\.([\w-]+)", expression)
    if "&&" not in expression:
        return inputs[names[0]]
    condition, chosen, otherwise = (inputs[name] for name in names)
    return (chosen if condition else "") or otherwise


def run(step: str, folder: Path, code: int = 0, **given: str) -> tuple[int, list[str]]:
    """Run a step with these inputs; its exit code, and the words that pip or vflpriv was called with."""
    inputs = {name: field.get("default", "") for name, field in ACTION["inputs"].items()} | given
    for program in ("vflpriv", "python"):
        (folder / program).write_text(RECORDER, encoding="utf-8")
        (folder / program).chmod(0o755)
    variables = {name: evaluated(text, inputs) for name, text in STEPS[step].get("env", {}).items()}
    calls = folder / "calls"
    calls.mkdir(exist_ok=True)
    known = {"CALLS": str(calls), "CODE": str(code), "GITHUB_OUTPUT": str(folder / "output")}
    path = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "GITHUB_ACTION_PATH": str(ROOT)}
    script = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS[step]["run"]]
    done = subprocess.run(script, env={**os.environ, **variables, **known, **path}, cwd=folder, check=False)
    (call,) = calls.iterdir()
    return done.returncode, call.read_text("utf-8").split("\0")[:-1]


def test_its_inputs_are_all_used_and_never_text_of_a_script() -> None:
    used = re.findall(r"inputs\.([\w-]+)", (ROOT / "action.yml").read_text("utf-8"))
    assert set(used) == set(ACTION["inputs"])
    assert not any("${{" in step["run"] for step in STEPS.values())
    assert all(step["shell"] == "bash" for step in STEPS.values())
    assert list(STEPS) == ["Install", "Check the file", "Audit", "Attack", "Verify"]


def test_it_installs_itself_as_the_tutorial_says(tmp_path: Path) -> None:
    code, words = run("Install", tmp_path)
    assert code == 0
    assert words == [
        *("-m", "pip", "install", "--quiet", "--extra-index-url", CPU_WHEELS),
        *("-c", str(ROOT / "constraints.txt"), str(ROOT)),
    ]
    documented = "pip install --extra-index-url https://download.pytorch.org/whl/cpu -c constraints.txt ."
    assert documented in (ROOT / "docs" / "tutorial.md").read_text("utf-8")


def test_the_file_that_is_audited_is_checked(tmp_path: Path) -> None:
    assert run("Check the file", tmp_path) == (0, ["validate", "audit.toml"])
    assert run("Check the file", tmp_path, transcript="t") == (0, ["validate", "ledger.toml"])


def test_the_report_is_verified_and_a_statement_of_it_written(tmp_path: Path) -> None:
    known = ["verify", "vflpriv-report"]
    to_file = ["--format", "intoto", "--out", "vflpriv-report/statement.json"]
    assert run("Verify", tmp_path) == (0, known + to_file)
    about = {"transcript": "t", "model": "m.pt"}
    assert run("Verify", tmp_path, **about) == (0, [*known, "--transcript", "t", "--model", "m.pt", *to_file])
    assert (tmp_path / "output").read_text("utf-8").splitlines()[-1] == "statement=vflpriv-report/statement.json"
    assert run("Verify", tmp_path, code=1)[0] == 1


def test_a_configuration_is_audited_and_its_exit_code_is_the_jobs(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "my audit.toml").write_text(TINY, encoding="utf-8")
    options = "--format json --only split"
    code, words = run("Audit", tmp_path, config="my audit.toml", arguments=options, out="out")
    assert code == 0
    assert words == [
        *(
            "audit",
            "my audit.toml",
            "--out",
            "out",
            "--quiet",
            "--junit",
            "out/junit.xml",
            "--sarif",
            "out/vflpriv.sarif",
        ),
        *shlex.split(options),
    ]
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    done = vflpriv(*words)
    assert done.returncode == 0, done.stderr
    assert {"report.json", "junit.xml", "vflpriv.sarif"} <= {path.name for path in Path("out").iterdir()}
    assert Path("output").read_text("utf-8").splitlines() == [
        "report=out",
        "sarif=out/vflpriv.sarif",
        "exit-code=0",
    ]


def test_its_systems_are_attacked_quickly_unless_it_is_told_otherwise(tmp_path: Path) -> None:
    usual = ["--out", "vflpriv-report", "--quiet"]
    assert run("Attack", tmp_path) == (0, ["attack", "audit.toml", "--quick", *usual])
    told = {"attack": "full", "attack-baseline": "b.json", "attack-arguments": "--fail-on leakage>0.05", "out": "o"}
    code, words = run("Attack", tmp_path, code=1, **told)
    assert code == 1
    asked = ["--baseline", "b.json", "--out", "o", "--quiet", "--fail-on", "leakage>0.05"]
    assert words == ["attack", "audit.toml", *asked]
    condition = STEPS["Attack"]["if"]
    assert "!inputs.transcript" in condition
    assert "inputs.attack != 'none'" in condition


@pytest.mark.parametrize("code", [1, 2, 3])
def test_a_failed_audit_fails_the_job_after_it_has_said_why(tmp_path: Path, code: int) -> None:
    assert run("Audit", tmp_path, code=code)[0] == code
    assert f"exit-code={code}" in (tmp_path / "output").read_text("utf-8")


def test_a_transcript_and_a_baseline(tmp_path: Path) -> None:
    _, words = run("Audit", tmp_path, transcript="recorded", baseline="old.json")
    assert words[:7] == ["audit", "--transcript", "recorded", "--ledger", "ledger.toml", "--baseline", "old.json"]
    refused = vflpriv(*words)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "old.json" in refused.stderr or HEAD in refused.stderr
