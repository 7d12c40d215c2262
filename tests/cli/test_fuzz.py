"""Whatever the configuration: a valid report, or one line that says what is wrong, and never a traceback."""

from __future__ import annotations

import json
import tempfile
import tomllib
import zlib
from collections import Counter
from pathlib import Path

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings

from tests.cli.fuzzing import call, configs, is_tiny, to_toml
from tests.tiny import TINY
from vflpriv.cli.schemas import SCHEMAS
from vflpriv.config.loading import load_config
from vflpriv.errors import InputError
from vflpriv.report.audit import read_report

REPORT = jsonschema.Draft202012Validator(SCHEMAS["report"]())
RELAXED = [HealthCheck.too_slow, HealthCheck.large_base_example, HealthCheck.data_too_large]


def as_bytes(text: str) -> bytes:
    """Bytes that are no text come as lone surrogates, as do surrogates that no file should hold."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def ends_well(text: str, *, share: int = 1) -> int:
    """Validate, and audit what is valid and small, of a part of the texts only; the exit code of the last."""
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "audit.toml", Path(folder) / "report"
        path.write_bytes(as_bytes(text))
        code, _, error = call("validate", str(path))
        if code == 0 and zlib.crc32(path.read_bytes()) % share == 0 and is_tiny(load_config(path)):
            code, _, error = call("audit", str(path), "--out", str(out), "-q", "--format", "json", "--format", "md")
            if code in (0, 1, 3):
                report = read_report(out / "report.json")
                assert report.exit_code == code
                assert REPORT.is_valid(json.loads((out / "report.json").read_text("utf-8")))
                assert "\x1b" not in (out / "report.md").read_text("utf-8")
        assert code in (0, 1, 2, 3), error
        assert code != 2 or is_one_line(error)
        return code


def is_one_line(error: str) -> bool:
    """Whether an error is one short line that steers no terminal."""
    line = error.removesuffix("\n")
    return error.startswith("vflpriv: ") and error.count("\n") == 1 and line.isprintable() and len(error) < 1000


@settings(max_examples=60, suppress_health_check=RELAXED)
@given(text=configs())
def test_sixty_hostile_configurations_end_well(text: str) -> None:
    ends_well(text, share=10)


@pytest.mark.slow
@settings(max_examples=500, suppress_health_check=RELAXED)
@given(text=configs())
def test_five_hundred_hostile_configurations_end_well(text: str) -> None:
    ends_well(text)


def test_the_hostile_configurations_are_of_all_kinds(tmp_path) -> None:
    """The fuzzing reaches what it is for: some are read and some are refused."""
    seen, path = Counter[bool](), tmp_path / "audit.toml"

    @settings(max_examples=40, database=None, suppress_health_check=RELAXED)
    @given(text=configs())
    def look(text: str) -> None:
        path.write_bytes(as_bytes(text))
        try:
            seen[bool(load_config(path))] += 1
        except InputError:
            seen[False] += 1

    look()
    assert min(seen[True], seen[False]) >= 8


@pytest.mark.parametrize("field", ["rounds", "batch_size", "embedding", "hidden", "top_hidden"])
@pytest.mark.parametrize("number", [-1, 0, 2**31, 10**12, 2**63, 10**30])
def test_sizes_out_of_reach_are_refused_before_memory_is_asked_for(field: str, number: int) -> None:
    tree = tomllib.loads(TINY)
    tree["system"][0]["engine"][field] = [number] if "hidden" in field else number
    assert ends_well(to_toml(tree)) == 2


@pytest.mark.parametrize("field", ["clip", "epsilon", "delta", "device_rate", "smoothing"])
@pytest.mark.parametrize("number", [0.0, -1.0, 1e-300, 1e30, 1e300, 1.7e308])
def test_numbers_out_of_reach_are_refused_or_trained_with(tmp_path, field: str, number: float) -> None:
    path, tree = tmp_path / "audit.toml", tomllib.loads(TINY)
    tree["system"] = [tree["system"][0]]
    tree["system"][0]["engine"] |= {field: number, "rounds": 2}
    path.write_text(to_toml(tree), encoding="utf-8")
    code, _, error = call("train", str(path), "-q")
    # No sampler in double precision keeps to an ε or δ that is almost nothing.
    refused = (
        number <= 0 or number > 1e30 or (field, number) in {("delta", 1e30), ("delta", 1e-300), ("epsilon", 1e-300)}
    )
    assert (code, error.count("\n")) == ((2, 1) if refused else (0, 0))


def test_noise_too_small_to_square_is_as_good_as_none() -> None:
    tree = {
        "data": {"name": "breast-cancer", "devices": 3, "train": 40},
        "engine": {"name": "vafl", "rounds": 3, "batch_size": 5, "protection": "embedding", "noise_std": 1e-300},
        "audit": {"trials": 0, "attacks": []},
    }
    assert ends_well(to_toml(tree)) in (1, 3)


def test_too_little_memory_is_no_bug(monkeypatch) -> None:
    def greedy(kind: str) -> None:
        raise MemoryError

    monkeypatch.setattr("vflpriv.cli.lists.print_registered", greedy)
    line = "vflpriv: not enough memory for this: smaller models, batches or data are needed\n"
    assert call("engines") == (2, "", line)


def test_trees_survive_the_way_through_toml() -> None:
    tree = {"a": {"b.c": [1, -2.5, True, '\x1b\x7f"\\\n𝔘'], "": {}}, "d": []}
    assert tomllib.loads(to_toml(tree)) == tree
