"""`vflpriv schema`: what the program reads and writes is what the schemas say."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.cli.test_cli import SMALL, run
from tests.tiny import TINY
from vflpriv.cli.schemas import SCHEMAS
from vflpriv.recording.ledger_file import is_ledger

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def checkers() -> dict[str, Any]:
    found = {}
    for name, schema in SCHEMAS.items():
        jsonschema.Draft202012Validator.check_schema(schema())
        found[name] = jsonschema.Draft202012Validator(schema())
    return found


def problems(checker: Any, document: Any) -> list[str]:
    return [error.message for error in checker.iter_errors(document)]


def configurations() -> dict[str, str]:
    paths = [path for path in (ROOT / "vflpriv" / "config").glob("*.toml") if path.name != "frontier.toml"]
    found = {path.name: path.read_text("utf-8") for path in paths}
    blocks = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "configure.md").read_text("utf-8"), re.DOTALL)
    found |= {f"configure.md {i}": text for i, text in enumerate(blocks) if "[engine]" in text}
    return found | {"small": SMALL, "tiny": TINY}


@pytest.mark.parametrize("name", configurations())
def test_configurations_fit_their_schema(checkers, name):
    assert problems(checkers["config"], tomllib.loads(configurations()[name])) == []


@pytest.mark.parametrize(
    "change",
    [
        {"seed": -1},
        {"seeds": 1},
        {"engine": {"name": "dpzv", "rounds": 3}},
        {"engine": {"name": "dpzv", "rounds": 3, "batch_size": 4, "noise": "loud"}},
        {"engine": {"name": "nobody", "rounds": 3, "batch_size": 4}},
        {"engine": {"name": "split", "rounds": "3", "batch_size": 4}},
        {"audit": {"trials": -1}},
    ],
)
def test_what_the_program_refuses_the_schema_refuses(checkers, change):
    valid = {"engine": {"name": "split", "rounds": 3, "batch_size": 4}}
    assert problems(checkers["config"], valid) == []
    assert problems(checkers["config"], valid | change) != []
    assert problems(checkers["config"], {}) != []


def test_reports_fit_their_schemas(monkeypatch, capsys, tmp_path, checkers):
    config = tmp_path / "audit.toml"
    config.write_text(TINY + "[attack]\nseeds = 2\n", encoding="utf-8")
    common = (str(config), "--out", str(tmp_path), "-q", "--format", "json")
    run(monkeypatch, capsys, "audit", *common)
    run(monkeypatch, capsys, "attack", *common, "--only", "split")
    _, printed, _ = run(monkeypatch, capsys, "compare", str(tmp_path), str(tmp_path), "--format", "json")
    report = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert '"Infinity"' in json.dumps(report)
    assert problems(checkers["report"], report) == []
    assert problems(checkers["attacks"], json.loads((tmp_path / "attacks.json").read_text("utf-8"))) == []
    assert problems(checkers["comparison"], json.loads(printed)) == []
    report["systems"][0]["claims"][0]["verdict"] = "verified"
    assert problems(checkers["report"], report) != []


def test_the_command_prints_them(monkeypatch, capsys):
    for name in SCHEMAS:
        code, printed, _ = run(monkeypatch, capsys, "schema", name)
        assert code == 0
        assert json.loads(printed)["$schema"].endswith("2020-12/schema")


def test_ledgers_fit_their_schema(checkers):
    ledgers = [path for path in sorted((ROOT / "examples").rglob("*.toml")) if is_ledger(path)]
    assert len(ledgers) >= 2
    for path in ledgers:
        assert problems(checkers["ledger"], tomllib.loads(path.read_text("utf-8"))) == [], path
    assert problems(checkers["ledger"], {"release": [{"kind": "embedding"}]}) != []
    assert problems(checkers["ledger"], {"releases": []}) != []
