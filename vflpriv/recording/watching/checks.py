"""What is checked while a training is watched: a check that fails is one line when it happens, and stands in the head.

Nothing is certified on a recording with a failed check. What is only worth knowing is a remark.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from vflpriv.recording.watching.losses import LabelCheck

__all__ = ["Checks"]

_MOST = 300
"""Characters of a line."""


class Checks:
    """The failed checks of one recording and its remarks, each once, and what the checks compare with."""

    def __init__(self) -> None:
        self._failed: dict[str, str] = {}
        self._remarks: dict[str, str] = {}
        self.before: tuple[str, ...] = ()
        """What failed in the part of the recording that this one goes on with."""
        self.labels: LabelCheck | None = None
        """Compares the labels that reach a loss with those that were told."""
        self.left_out: Tensor | None = None
        """(records,) whether nobody may train on a record: a membership canary that was left out."""

    @property
    def failed(self) -> tuple[str, ...]:
        """But for labels that differ: they are counted, and the ledger may say why."""
        new = (line for what, line in self._failed.items() if what != "labels")
        return tuple(dict.fromkeys((*self.before, *new)))

    @property
    def remarks(self) -> tuple[str, ...]:
        return tuple(self._remarks.values())

    def fail(self, what: str, line: str) -> None:
        """Say once that a check has failed."""
        if what not in self._failed:
            self._failed[what] = line[:_MOST]
            print(f"vflpriv: {line[:_MOST]}", file=sys.stderr)  # noqa: T201

    def remark(self, what: str, line: str) -> None:
        """Note for the report what failed nothing."""
        self._remarks.setdefault(what, line[:_MOST])

    def trained_on(self, ids: Tensor, round_: int) -> None:
        """A round trains on these records."""
        if self.left_out is not None and bool(self.left_out[ids].any()):
            record = int(ids[self.left_out[ids]][0])
            told = "train on `members` of vflpriv.plant_members alone"
            self.fail("members", f"round {round_} trains on record {record}, which a coin left out: {told}")
