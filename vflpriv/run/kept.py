"""The parts of a recorded audit that take long: what is finished is on disk, so that a killed audit goes on from there.

A part is named by the transcript's content, the ledger, the code and what is computed. Its result is the same whenever
it is computed, so a report does not depend on whether it was.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from vflpriv.audits.scoring.labels import LabelAttempts
from vflpriv.audits.worlds.store import TrialStore
from vflpriv.common.registry import available
from vflpriv.common.sources import code_hash
from vflpriv.common.tasks import NoProgress, Progress
from vflpriv.core.attack import Auxiliary, LabelAttack, LabelGuess
from vflpriv.core.views import View
from vflpriv.errors import StoreWarning
from vflpriv.recording.ledger_file import LedgerConfig
from vflpriv.recording.transcripts import read_hash

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["KeptAttempts", "Parts"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Parts:
    """Computes the parts of one audit, or takes them from the store, and tells of the progress."""

    store: TrialStore = field(default_factory=TrialStore)
    key: str | None = None
    progress: Progress = field(default_factory=NoProgress)
    expect: Callable[[int], object] = lambda work: None
    """Is told how much work there is, once that is known."""

    @classmethod
    def of(
        cls,
        folder: Path | None,
        transcript: Path,
        config: LedgerConfig,
        progress: Progress,
        expect: Callable[[int], object],
    ) -> Parts:
        """The parts of the audit of a transcript; without a folder nothing is stored."""
        if folder is None:
            return cls(progress=progress, expect=expect)
        code = code_hash(*available("attack").values())
        if code is None:
            text = "not all code that attacks use can be read, so their results are not stored"
            warnings.warn(text, StoreWarning, stacklevel=2)
            return cls(progress=progress, expect=expect)
        ledger = hashlib.sha256(config.model_dump_json().encode()).hexdigest()
        key = "/".join(("recorded", code, read_hash(transcript), ledger))
        return cls(store=TrialStore(folder), key=key, progress=progress, expect=expect)

    def of_name(self, name: str, compute: Callable[[], Mapping[str, Tensor]], *, work: int = 0) -> Mapping[str, Tensor]:
        """The tensors of one part, at least one: from the store, or computed and then stored."""
        key = None if self.key is None else f"{self.key}/{name}"
        self.progress.stage(name)
        result: Mapping[str, Tensor] | None = self.store.load(key)
        if result is None:
            result = compute()
            self.store.save(key, result)
        self.progress.advance(work)
        return result


@dataclass(frozen=True, eq=False, kw_only=True)
class KeptAttempts(LabelAttempts):
    """Attempts in one training, whose guesses are parts of an audit."""

    parts: Parts

    def guesses(
        self, attack: LabelAttack, view: View, auxiliaries: Sequence[Auxiliary]
    ) -> tuple[Sequence[LabelGuess], Sequence[LabelGuess | None]]:
        def compute() -> dict[str, Tensor]:
            (guess,), (blind,) = super(KeptAttempts, self).guesses(attack, view, auxiliaries)
            return _tensors(guess, "") | ({} if blind is None else _tensors(blind, "blind_"))

        found = self.parts.of_name(f"{attack.name}, {view.adversary}", compute)
        return [_guess(found, "")], [_guess(found, "blind_") if "blind_records" in found else None]


def _tensors(guess: LabelGuess, prefix: str) -> dict[str, Tensor]:
    import torch

    population = None if guess.population is None else torch.tensor(guess.population)
    tensors = {"records": guess.records, "labels": guess.labels, "scores": guess.scores, "drawn": guess.drawn}
    tensors |= {"population": population}
    return {f"{prefix}{name}": value for name, value in tensors.items() if value is not None}


def _guess(tensors: Mapping[str, Tensor], prefix: str) -> LabelGuess:
    scores, drawn, population = (tensors.get(f"{prefix}{name}") for name in ("scores", "drawn", "population"))
    return LabelGuess(
        tensors[f"{prefix}records"],
        tensors[f"{prefix}labels"],
        scores,
        drawn,
        None if population is None else int(population),
    )
