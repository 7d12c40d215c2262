"""The table of what devices sent last: its memory, and that a large one holds what a small one does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from vflpriv.training import held
from vflpriv.training.held import table_of_outputs

CPU = torch.device("cpu")
STATUS = Path("/proc/self/status")


def resident() -> int:
    """Bytes of memory that this process has."""
    (line,) = [line for line in STATUS.read_text("ascii").splitlines() if line.startswith("VmRSS:")]
    return 1024 * int(line.split()[1])


@pytest.mark.skipif(not STATUS.exists(), reason="memory is read from /proc, which only Linux has")
def test_a_large_table_takes_memory_only_for_records_that_were_sent() -> None:
    before = resident()
    table = table_of_outputs(2_000, 1, 200_000, CPU)
    assert table.numel() * 4 == 1_600_000_000
    table.index_copy_(0, torch.tensor([7, 1999]), torch.ones(2, 1, 200_000))
    assert resident() - before < 100_000_000
    rows = table.index_select(0, torch.tensor([1998, 1999]))
    assert torch.equal(rows.mean((1, 2)), torch.tensor([0.0, 1.0]))


def test_a_large_table_holds_what_a_small_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = [table_of_outputs(6, 2, 3, CPU)]
    monkeypatch.setattr(held, "_LARGE", 1)
    tables.append(table_of_outputs(6, 2, 3, CPU))
    for table in tables:
        assert not table.any()
        table[:, :, 1:].index_copy_(0, torch.tensor([4, 0]), torch.arange(8.0).view(2, 2, 2))
    assert torch.equal(*tables)
    assert tables[0].dtype == tables[1].dtype


@pytest.mark.parametrize("large", [1, 1 << 28])
def test_a_table_without_records_is_empty(large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "_LARGE", large)
    assert table_of_outputs(0, 2, 3, CPU).shape == (0, 2, 3)
