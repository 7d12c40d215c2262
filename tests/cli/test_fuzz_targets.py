"""The targets of `make fuzz`: each reads its own seeds, refuses nonsense in one line, and lets a bug through."""

from __future__ import annotations

import importlib.util
import struct
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "fuzz.py"
NAMES = ("config", "yaml", "ledger", "report", "attacks", "head", "shard", "answers", "csv", "audit")
NONSENSE = (b"", b"\xff\xfe", b"[" * 5000, b"{" * 5000, b'{"a": ' * 3000, struct.pack("<Q", 2**62), b"\x00" * 64)


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fuzz_tool", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", NAMES)
def test_seeds_are_read_and_nonsense_is_refused(tool: ModuleType, tmp_path: Path, name: str) -> None:
    assert tuple(tool.TARGETS) == NAMES
    first = tool.seeds(name)[0]
    assert tool.ends_well(name, first, tmp_path) == (name not in ("yaml", "report", "attacks"))
    for content in (*tool.seeds(name), *NONSENSE, *(first[:n] for n in range(1, len(first), max(1, len(first) // 20)))):
        tool.ends_well(name, content, tmp_path)


def test_a_bug_is_not_taken_for_an_answer(tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(content: bytes, folder: Path) -> None:
        raise KeyError(content)

    monkeypatch.setitem(tool.TARGETS, "head", broken)
    with pytest.raises(KeyError):
        tool.ends_well("head", b"", tmp_path)
