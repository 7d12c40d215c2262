"""The steps of a recorded audit that take long: what is finished is on disk, so that a killed audit goes on from there.

A step is stored under the transcript's content, the ledger, the code and what is computed. Its result is the same
whenever it is computed, so a report does not depend on whether it was.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vflpriv.audits.scoring.attempts import Keep
from vflpriv.common.registry import available
from vflpriv.common.sources import code_hash
from vflpriv.common.store import Steps, Store, TensorForm
from vflpriv.common.tasks import Progress
from vflpriv.core.attack import Guess, Guesses
from vflpriv.recording.ledger_file import LedgerConfig
from vflpriv.recording.transcripts import read_hash

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["kept_by", "recorded_steps"]


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


def kept_by(steps: Steps) -> Keep:
    """Keeps the guesses of each attempt on one training as a step."""

    def keep(name: str, compute: Callable[[], Guesses]) -> Guesses:
        def tensors() -> dict[str, Tensor]:
            (guess,), (blind,) = compute()
            return _tensors(guess, "") | ({} if blind is None else _tensors(blind, "blind_"))

        stored = steps.result(name, TensorForm(), tensors)
        return [_guess(stored, "")], [_guess(stored, "blind_") if "blind_records" in stored else None]

    return keep


def _tensors(guess: Guess, prefix: str) -> dict[str, Tensor]:
    from torch import tensor

    values = {f.name: getattr(guess, f.name) for f in fields(guess)}
    if guess.population is not None:
        values["population"] = tensor(guess.population)
    return {f"{prefix}{name}": value for name, value in values.items() if value is not None}


def _guess(tensors: Mapping[str, Tensor], prefix: str) -> Guess:
    values: dict[str, Any] = {f.name: tensors.get(f"{prefix}{f.name}") for f in fields(Guess)}
    population = values.pop("population")
    return Guess(**values, population=None if population is None else int(population))
