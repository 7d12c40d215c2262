"""A long training that goes on where it was killed: the engine's tensors are written to a file every few minutes.

What is read of the training afterwards are the models alone, not the messages of earlier rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from vflpriv.audits.scoring.trainings import Training, Watched
from vflpriv.common.files import atomically
from vflpriv.core.attack import Conduct
from vflpriv.core.systems import System
from vflpriv.core.wire import Wire

__all__ = ["continued", "state"]

_ROUND = "round"


def continued(
    system: System,
    path: Path,
    *,
    conducts: Mapping[int, Conduct],
    advance: Callable[[int], None] | None = None,
    every: float = 120.0,
) -> Training:
    """One seed of a system, trained from the file at `path` if there is one, which is rewritten every so many seconds.

    An attack may read the trained models; the view shows a message of each kind, so that it can say why it refuses.
    """
    engine: Any = system.train([0], conducts=conducts)
    watched = Watched(frozenset(), frozenset(conducts) or frozenset({0}))
    wire, start, written = Wire(watched), 0, time.monotonic()
    if path.exists():
        start = _restore(engine, path, wire)
        if advance is not None:
            advance(start)
    for round_ in range(start, system.schedule.rounds):
        engine.round(round_, wire)
        if advance is not None:
            advance(1)
        if time.monotonic() - written >= every:
            _write(engine, path, round_ + 1)
            written = time.monotonic()
    return Training(system=system, engine=engine, transcript=watched.whole, models={})


def state(engine: Any) -> dict[str, Tensor]:
    """All tensors that a round changes, by their place in the engine: models, momenta, what malicious devices keep."""
    roots = {
        "bank": engine.bank.stacked,
        "momenta": engine.bank.velocity(engine.settings.momentum),
        "top": engine.top_parameters,
        "top-momenta": engine._velocity,
        "conducts": engine._amplifiers,
    }
    return dict(_tensors("", roots))


def _tensors(place: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield place, value
        return
    inner: Any = value if isinstance(value, Mapping) else getattr(value, "__dict__", {})
    if isinstance(value, list | tuple):
        inner = dict(enumerate(value))
    for name, part in inner.items():
        yield from _tensors(f"{place}/{name}", part)


def _write(engine: Any, path: Path, rounds: int) -> None:
    # Views of one memory are stored by themselves.
    tensors = {
        name: value.detach().clone(memory_format=torch.contiguous_format) for name, value in state(engine).items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomically(path) as temporary:
        save_file({**tensors, _ROUND: torch.tensor(rounds)}, temporary)


def _restore(engine: Any, path: Path, wire: Wire) -> int:
    """Put the stored tensors in place; how many rounds they have been trained for."""
    stored = load_file(path)
    rounds = int(stored.pop(_ROUND))
    # After one round, whichever it is, all that an engine keeps is there to be overwritten.
    engine.round(0, wire)
    own = state(engine)
    if set(own) != set(stored):
        raise ValueError(f"{path} is of another training; remove it to start anew.")
    with torch.no_grad():
        for name, value in own.items():
            value.copy_(stored[name])
    return rounds
