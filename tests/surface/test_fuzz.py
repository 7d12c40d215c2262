"""Whatever the configuration: a valid report, or one line that says what is wrong, and never a traceback."""

from __future__ import annotations

import json
import tempfile
import tomllib
from pathlib import Path

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings

from tests.surface.fuzzing import call, configs, is_tiny, to_toml
from vflpriv.command_schema import SCHEMAS
from vflpriv.config import load_config
from vflpriv.report import read_report

REPORT = jsonschema.Draft202012Validator(SCHEMAS["report"]())
RELAXED = [HealthCheck.too_slow, HealthCheck.large_base_example, HealthCheck.data_too_large]


def ends_well(text: str) -> int:
    """Validate, and audit what is valid and small; the exit code of the last."""
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "audit.toml", Path(folder) / "report"
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        code, _, error = call("validate", str(path))
        if code == 0 and is_tiny(load_config(path)):
            code, _, error = call("audit", str(path), "--out", str(out), "-q", "--format", "json", "--format", "md")
            if code in (0, 1, 3):
                report = read_report(out / "report.json")
                assert report.exit_code == code
                assert REPORT.is_valid(json.loads((out / "report.json").read_text("utf-8")))
                assert "\x1b" not in (out / "report.md").read_text("utf-8")
        assert code in (0, 1, 2, 3), error
        if code == 2:
            assert error.startswith("vflpriv: ")
            assert error.count("\n") == 1
            assert error.removesuffix("\n").isprintable()
            assert len(error) < 1000
        return code


@settings(max_examples=60, suppress_health_check=RELAXED)
@given(text=configs())
def test_sixty_hostile_configurations_end_well(text: str) -> None:
    ends_well(text)


@pytest.mark.slow
@settings(max_examples=500, suppress_health_check=RELAXED)
@given(text=configs())
def test_five_hundred_hostile_configurations_end_well(text: str) -> None:
    ends_well(text)


def test_the_hostile_configurations_are_of_all_kinds() -> None:
    """The fuzzing reaches what it is for: some are refused, some are audited."""
    seen = set()

    @settings(max_examples=40, database=None, suppress_health_check=RELAXED)
    @given(text=configs())
    def look(text: str) -> None:
        try:
            seen.add("valid TOML" if tomllib.loads(text) else "empty")
        except tomllib.TOMLDecodeError:
            seen.add("no TOML")

    look()
    assert {"valid TOML", "no TOML"} <= seen


def test_trees_survive_the_way_through_toml() -> None:
    tree = {"a": {"b.c": [1, -2.5, True, '\x1b\x7f"\\\n𝔘'], "": {}}, "d": []}
    assert tomllib.loads(to_toml(tree)) == tree
