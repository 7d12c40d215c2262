"""The examples for CI, and the project's own workflow: their commands run, and do what they are for."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.test_cli import run
from tests.tiny import TINY

ROOT = Path(__file__).resolve().parent.parent.parent
WORKFLOW = ROOT / "examples" / "github" / "vflpriv.yml"
OWN = ROOT / ".github" / "workflows" / "ci.yml"


def steps(path: Path, job: str) -> list[dict[str, Any]]:
    document = yaml.safe_load(path.read_text("utf-8"))
    assert document[True] == ["push", "pull_request"]  # YAML 1.1 reads the word `on` as true
    found: list[dict[str, Any]] = document["jobs"][job]["steps"]
    return found


def commands(path: Path, job: str) -> list[list[str]]:
    texts = [step["run"] for step in steps(path, job) if "run" in step]
    return [shlex.split(line) for text in texts for line in text.replace("\\\n", " ").splitlines()]


def test_the_example_workflow_gates_on_a_committed_baseline(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("audit.toml").write_text(TINY, encoding="utf-8")
    assert run(monkeypatch, capsys, "audit", "audit.toml", "--out", ".", "-q", "--format", "json")[0] == 0
    Path("report.json").rename("baseline.json")
    install, *rest = commands(WORKFLOW, "audit")
    assert (install[:2], install[-1]) == (["pip", "install"], "vflpriv @ git+https://github.com/vflpriv/vflpriv")
    assert [program for program, *_ in rest] == ["vflpriv", "echo", "vflpriv"]
    rest = [command for command in rest if command[0] == "vflpriv"]
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "step.md"))
    for _, *arguments in rest:
        assert run(monkeypatch, capsys, *arguments)[0] == 0
    assert "What attacks reach" in Path("step.md").read_text("utf-8")
    uploads = [step["with"] for step in steps(WORKFLOW, "audit") if "upload" in step.get("uses", "")]
    assert Path(uploads[0]["sarif_file"]).is_file()
    assert Path(uploads[1]["path"].splitlines()[0]).parent == Path("report")
    assert {path.name for path in Path("report").iterdir()} >= {"report.json", "report.html", "report.md", "junit.xml"}
    worse = TINY.replace('"calibrated"', '"calibrated"\nepsilon = 3.0')
    Path("audit.toml").write_text(worse, encoding="utf-8")
    code, printed, _ = run(monkeypatch, capsys, *rest[-1][1:], "--format", "json")
    assert code == 1
    assert "worse than the baseline: sound: accounted ε of record + label + features seen by device, " in printed


def test_the_cache_of_trials_goes_by_version_configuration_and_engines():
    (key,) = [step["with"]["key"] for step in steps(WORKFLOW, "audit") if "cache@" in step.get("uses", "")]
    (version,) = [step for step in steps(WORKFLOW, "audit") if "id" in step]
    assert f"steps.{version['id']}.outputs.version" in key
    assert "vflpriv --version" in version["run"]
    assert "hashFiles('audit.toml', '**/*.py')" in key


def test_the_example_configuration_is_valid(monkeypatch, capsys):
    code, printed, _ = run(monkeypatch, capsys, "validate", str(ROOT / "examples" / "audit.toml"))
    assert (code, printed) == (0, "dpzv: ok\n")


def hooks() -> list[dict[str, Any]]:
    (offered,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    (repo,) = yaml.safe_load((ROOT / "examples" / "pre-commit" / ".pre-commit-config.yaml").read_text("utf-8"))["repos"]
    (used,) = repo["hooks"]
    return [offered, used]


def test_the_hook_checks_the_files_it_is_for(monkeypatch, capsys, tmp_path):
    offered, used = hooks()
    assert all(offered[key] == used[key] for key in ("id", "name", "entry", "language", "files"))
    ours = ("audit.toml", "ci/audit-large.toml", "vflpriv.toml", "audit.yaml", "ci/ledger.yml", "ledger-a.toml")
    others = ("pyproject.toml", "ci/myaudit.toml", "audit.py", "audits/a.toml", ".github/workflows/ci.yml")
    assert [name for name in (*ours, *others) if re.search(used["files"], name)] == list(ours)
    program, *arguments = shlex.split(used["entry"])
    assert program == "vflpriv"
    good, bad = tmp_path / "audit.toml", tmp_path / "audit-bad.toml"
    good.write_text(TINY, encoding="utf-8")
    bad.write_text(TINY.replace("rounds = 6", "rounds = 0"), encoding="utf-8")
    assert run(monkeypatch, capsys, *arguments, str(good), str(good))[0] == 0
    code, _, error = run(monkeypatch, capsys, *arguments, str(good), str(bad))
    assert code == 2
    assert error == f"vflpriv: {bad}: system.sound.engine.rounds = 0: expected a number >= 1\n"


def test_the_projects_own_workflow_audits_the_embedded_set(monkeypatch, capsys, tmp_path):
    assert shutil.which("make") is not None
    assert [command for command in commands(OWN, "test") if command[1] in ("lint", "test")] == [
        ["make", "lint"],
        ["make", "test", "PYTHON=python"],
    ]
    (command,) = commands(OWN, "audit")
    told = ["make", "-n", "VENV=none", *command[1:]]
    recipe = subprocess.run(told, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = re.search(r"none/bin/vflpriv (audit .*?) \|\|", recipe)
    assert found is not None
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "step.md"))
    Path("tiny.toml").write_text(TINY, encoding="utf-8")
    first, *rest = shlex.split(found[1])
    assert run(monkeypatch, capsys, first, "tiny.toml", *rest)[0] == 0
    assert "| split | 13.3 % | label\\_direct" in Path("step.md").read_text("utf-8")
    (artifact,) = [step["with"]["path"] for step in steps(OWN, "audit") if "upload" in step.get("uses", "")]
    assert list(Path().glob(artifact.splitlines()[0])) != []
    assert json.loads(Path("vflpriv-report/vflpriv.sarif").read_text("utf-8"))["version"] == "2.1.0"


@pytest.mark.parametrize("job", ["test", "audit", "docs"])
def test_every_command_of_the_projects_workflow_is_a_target(job):
    for program, target, *_ in commands(OWN, job):
        assert program == "make"
        told = ["make", "-n", "VENV=none", target]
        recipe = subprocess.run(told, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        assert "none/bin/" in recipe


@pytest.mark.parametrize("path", [WORKFLOW, OWN])
def test_workflows_ask_for_no_more_rights_than_they_need(path):
    document = yaml.safe_load(path.read_text("utf-8"))
    assert document["permissions"].pop("security-events", "write") == "write"
    assert document["permissions"] == {"contents": "read"}
    assert all("timeout-minutes" in job for job in document["jobs"].values())
