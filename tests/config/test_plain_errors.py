"""Wrong values for every field of every file that a user writes: one line in plain words, and exit code 2.

Fields are read off the JSON Schemas of the models, so that a new one is tried by itself.
"""

from __future__ import annotations

import copy
import json
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_core import core_schema

from tests.program import vflpriv
from vflpriv.common.registry import available
from vflpriv.config.claims import ClaimConfig
from vflpriv.config.errors import parse_settings
from vflpriv.config.models import Config, SystemConfig
from vflpriv.errors import PATTERNS, InputError, expected_words
from vflpriv.experiments.frontier.profile import FrontierConfig
from vflpriv.experiments.reproduce.profile import Profile
from vflpriv.recording.files.format import SCHEMA, Entry, Head
from vflpriv.recording.ledger_file import LedgerConfig
from vflpriv.report.audit import Report

WRONG: tuple[Any, ...] = ("no such thing ☂", "", -7, 10**40, 0.5, -1e300, True, None, [], ["☂"], [-3.5], {}, {"☂": -1})
FOREIGN = re.compile(
    r"Input |input should|String should|should (be|have|match)|Field required|Extra inputs|Value error|Assertion failed"
    r"|valid (string|integer|number|boolean|tuple|list|dictionary|array|dict)|unable to|Unable to|pydantic|Keys should"
    r"|Invalid JSON|an object|null|None|type=|errors\.pydantic"
)
"""What pydantic would say; a value is quoted before `expected`, and is not searched."""


def models() -> dict[str, type[BaseModel]]:
    engines = {f"engine {name}": engine.settings_type for name, engine in available("engine").items()}
    defences = dict(available("defence").items())
    files: dict[str, type[BaseModel]] = {"config": Config, "ledger": LedgerConfig, "frontier": FrontierConfig}
    return files | {"profile": Profile, "report": Report, "head": Head, "entry": Entry} | engines | defences


def places(schema: dict[str, Any], parts: dict[str, Any], depth: int = 0) -> Iterator[tuple[str | int, ...]]:
    """Paths to all fields of a schema, into lists and tables; a field that several types may have is one place."""
    if "$ref" in schema:
        schema = parts[schema["$ref"].rpartition("/")[2]]
    if depth > 8:
        return
    for option in schema.get("anyOf", ()):
        yield from places(option, parts, depth + 1)
    for name, field in schema.get("properties", {}).items():
        yield (name,)
        yield from ((name, *inner) for inner in places(field, parts, depth + 1))
    if isinstance(schema.get("items"), dict):
        yield (0,)
        yield from ((0, *inner) for inner in places(schema["items"], parts, depth + 1))
    if isinstance(schema.get("additionalProperties"), dict):
        yield ("☂",)


def planted(path: tuple[str | int, ...], value: Any) -> Any:
    """The smallest document with this value at this place."""
    for part in reversed(path):
        value = [value] if isinstance(part, int) else {part: value}
    return value


def check(error: InputError) -> None:
    line = str(error)
    assert error.exit_code == 2
    assert "\n" not in line
    said = line.rpartition(": expected ")[2]
    assert said, line
    assert not FOREIGN.search(said), line
    assert not re.search(r"\.(int|float|str|bool|constrained-|function-|dict\[|tuple\[|\[key\])", error.field), line


@pytest.mark.parametrize("name", models())
def test_no_wrong_value_shows_another_librarys_words(name: str) -> None:
    model = models()[name]
    schema = model.model_json_schema()
    found = 0
    for path in dict.fromkeys(places(schema, schema.get("$defs", {}))):
        for value in WRONG:
            try:
                parse_settings(model, planted(path, copy.deepcopy(value)), "")
            except InputError as error:
                found += 1
                check(error)
    assert found >= len(WRONG) // 2 or not model.model_fields


def fields(model: type[BaseModel]) -> list[str]:
    """The dotted paths of all fields of a model."""
    schema = model.model_json_schema()
    return [".".join(map(str, path)) for path in dict.fromkeys(places(schema, schema["$defs"]))]


def test_every_field_of_a_configuration_is_refused_in_one_line_with_exit_code_2(tmp_path: Path) -> None:
    config = tmp_path / "audit.toml"
    config.write_text('[[system]]\nkey = "a"\n[system.engine]\nname = "split"\nrounds = 2\nbatch_size = 2\n', "utf-8")
    refused = 0
    for field in (field for field in fields(Config) if not field[-1].isdigit()):
        run = vflpriv("account", config, "--set", f"{field}=[[{{ umbrella = -1 }}]]")
        assert (run.returncode, run.stdout, run.stderr.count("\n")) == (2, "", 1), (field, run)
        line, _, said = run.stderr.rpartition(": expected ")
        assert line.startswith(f"vflpriv: {field.partition('.')[0]}"), run.stderr
        assert not FOREIGN.search(said), run.stderr
        refused += 1
    assert refused > 60


def test_a_ledger_a_report_and_a_transcript_are_refused_alike(tmp_path: Path) -> None:
    (tmp_path / "ledger.toml").write_text("release = 3\n", "utf-8")
    (tmp_path / "empty.toml").write_text("", "utf-8")
    (tmp_path / "report.json").write_text('{"seed": "x"}', "utf-8")
    (tmp_path / "broken.json").write_text('{"seed": ', "utf-8")
    (tmp_path / "transcript.json").write_text(json.dumps({"schema_version": SCHEMA, "devices": "two"}), "utf-8")
    refused = (
        (("validate", tmp_path / "ledger.toml"), "ledger.release = 3: expected a list"),
        (("report", tmp_path / "report.json"), "report report.json: seed = 'x': expected a whole number"),
        (("report", tmp_path / "broken.json"), "expected valid JSON (EOF while parsing a value at line 1 column 9)"),
        (
            ("audit", "--transcript", tmp_path, "--ledger", tmp_path / "empty.toml"),
            "transcript.json: devices = 'two': expected a whole number",
        ),
    )
    for arguments, line in refused:
        run = vflpriv(*arguments)
        assert (run.returncode, run.stdout, run.stderr.count("\n")) == (2, "", 1), run
        assert line in run.stderr


def test_every_kind_of_error_has_words_of_ours() -> None:
    kinds = typing.get_args(core_schema.ErrorType)
    assert len(kinds) > 90
    for kind in kinds:
        assert not FOREIGN.search(expected_words(kind, {})), kind
        known = {"gt": 1, "min_length": 1, "error": "too wet", "expected": "'a' or 'b'", "pattern": "^a$"}
        assert not FOREIGN.search(expected_words(kind, known)), kind


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (
            {"audit": {"trials": "many"}},
            "audit.trials = 'many': expected a whole number, or a table of fields and values",
        ),
        ({"audit": {"trials": {"natural": -1}}}, "audit.trials.natural = -1: expected a number >= 0"),
        ({"audit": {"trials": {"wet": 1}}}, "audit.trials.wet = 'wet': expected one of 'natural', 'crafted' or "),
        ({"key": "a b"}, "key = 'a b': expected a name of letters, digits, '.', '_' and '-'"),
        ({"Key": "a"}, "Key = 'a': expected no such field"),
        ({"int": 3}, "int = 3: expected no such field"),
        ({}, "key = 'nothing': expected a value; it is required"),
        ({"claim": [3]}, "claim.0 = 3: expected a table of fields and values"),
    ],
)
def test_the_wrong_part_is_named_and_what_could_stand_there(raw: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_settings(SystemConfig, raw, "")
    assert str(refused.value).startswith(line)


def test_every_pattern_has_words() -> None:
    found = {pattern for model in models().values() for pattern in patterns(model.model_json_schema())}
    assert found
    assert found <= set(PATTERNS)


def patterns(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("pattern"), str):
            yield schema["pattern"]
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            yield from patterns(part)


def test_a_table_of_a_system_beside_the_systems_is_told_where_it_belongs():
    with pytest.raises(InputError, match=r"audit = .*: expected it in a system: \[system\.audit\] below"):
        parse_settings(Config, {"audit": {"trials": 3}, "system": [{"key": "a", "engine": {"name": "dpzv"}}]}, "")


def test_a_claim_without_a_statement_has_one_of_its_fields():
    fields = {"key": "mine", "unit": "label", "view": "device", "epsilon": 1.0}
    claim = parse_settings(ClaimConfig, fields, "claim").claim({})
    assert claim.statement == "ε ≤ 1 at δ = 1e-05 for one label, seen by device"
    assert parse_settings(ClaimConfig, {**fields, "statement": "as said"}, "claim").claim({}).statement == "as said"
