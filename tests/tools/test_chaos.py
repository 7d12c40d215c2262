"""Faults on purpose are survived, and one that is not is counted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tools import chaos


def test_what_is_not_survived_is_counted_and_printed(capsys) -> None:
    def half(place: chaos.Place) -> Iterator[tuple[str, bool]]:
        yield "a file that is whole", True
        yield f"a file that is half in {place.folder.name}", False

    assert chaos.survived(1, 0, [half]) == (2, 1)
    assert "FAILED: a file that is half" in capsys.readouterr().out


@pytest.mark.slow
def test_every_fault_is_survived() -> None:
    """Slow: some fifty programs are started, since what is killed has to be one of its own."""
    tried, failed = chaos.survived(kills=5, seed=1)
    assert (tried > 90, failed) == (True, 0)
