"""The steps of a recorded audit that take long: what is finished is on disk, so that a killed audit goes on from there.

A step is stored under the transcript's content, the ledger, the code and what is computed. Its result is the same
whenever it is computed, so a report does not depend on whether it was.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vflpriv.audits.scoring.labels import LabelAttempts
from vflpriv.common.registry import available
from vflpriv.common.sources import code_hash
from vflpriv.common.store import Steps, Store, TensorForm
from vflpriv.common.tasks import Progress
from vflpriv.core.attack import Auxiliary, LabelAttack, LabelGuess
from vflpriv.core.views import View
from vflpriv.recording.ledger_file import LedgerConfig
from vflpriv.recording.transcripts import read_hash

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["KeptAttempts", "recorded_steps"]


def recorded_steps(
    folder: Path | None, transcript: Path, config: LedgerConfig, progress: Progress, expect: Callable[[int], object]
) -> Steps:
    """The steps of the audit of a transcript; without a folder nothing is stored."""
    store = Store(folder)
    if folder is None:
        return Steps(progress=progress, expect=expect)
    ledger = hashlib.sha256(config.model_dump_json().encode()).hexdigest()
    key = store.key(code_hash(*available("attack").values()), "an attack", "recorded", read_hash(transcript), ledger)
    return Steps(store=store, key=key, progress=progress, expect=expect)


@dataclass(frozen=True, eq=False, kw_only=True)
class KeptAttempts(LabelAttempts):
    """Attempts in one training, whose guesses are steps of an audit."""

    steps: Steps

    def guesses(
        self, attack: LabelAttack, view: View, auxiliaries: Sequence[Auxiliary]
    ) -> tuple[Sequence[LabelGuess], Sequence[LabelGuess | None]]:
        def compute() -> dict[str, Tensor]:
            (guess,), (blind,) = super(KeptAttempts, self).guesses(attack, view, auxiliaries)
            return _tensors(guess, "") | ({} if blind is None else _tensors(blind, "blind_"))

        guesses = self.steps.result(f"{attack.name}, {view.adversary}", TensorForm(), compute)
        return [_guess(guesses, "")], [_guess(guesses, "blind_") if "blind_records" in guesses else None]


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
