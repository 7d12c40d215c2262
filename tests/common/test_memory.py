"""Free memory of machines and containers, and the errors that say that there is none."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from vflpriv.common import memory
from vflpriv.common.memory import budget, free_bytes, out_of_memory

CPU = torch.device("cpu")


def written(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, "ascii")
    return folder


def test_neighbours_share_what_is_free(monkeypatch) -> None:
    assert 0 < budget(CPU) < free_bytes(CPU)
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1000)
    assert budget(CPU, 4) * 4 == budget(CPU) < 1000


def test_the_limit_of_a_container_counts(tmp_path: Path) -> None:
    """Files in memory can be dropped."""
    assert memory._of_group(tmp_path) == 1 << 62
    second = written(
        tmp_path, {"memory.max": "1000\n", "memory.current": "700\n", "memory.stat": "inactive_file 200\n"}
    )
    assert memory._of_group(second) == 500
    written(tmp_path, {"memory.max": "max\n"})
    assert memory._of_group(tmp_path) == 1 << 62
    written(tmp_path / "memory", {"memory.limit_in_bytes": "1000", "memory.usage_in_bytes": "1700"})
    assert memory._of_group(tmp_path) == 0


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB."), True),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
            True,
        ),
        (RuntimeError("not enough memory: you tried to allocate 9 bytes."), True),
        (RuntimeError("shapes do not match"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_errors_that_say_so(error: Exception, expected: bool) -> None:
    assert out_of_memory(error) is expected


def test_the_error_of_torch_is_known() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60)
    assert out_of_memory(caught.value)
