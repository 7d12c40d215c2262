"""Settings chosen by validation records: never by the test records that the result is measured on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vflpriv.core.systems import System
from vflpriv.experiments.curves import Try
from vflpriv.experiments.learning import Trainer

__all__ = ["best_of", "tried"]

Settings = dict[str, Any]
"""Of an engine."""


def tried(
    groups: Sequence[Sequence[Settings]],
    build: Callable[[int, Settings], System],
    trainer: Trainer,
    *,
    evaluations: int = 1,
    drop: float | None = None,
) -> list[list[Try]]:
    """For each group of settings, what each reaches on the validation records of `build(group, settings)`.

    All are trained side by side. A group of less than two has nothing to choose from, and is not trained. With `drop`
    what counts is the best of the evaluations (see `learning_curve`), otherwise the last one.
    """
    pairs = [(group, each) for group, some in enumerate(groups) if len(some) > 1 for each in some]
    systems = [build(group, each) for group, each in pairs]
    curves = trainer.curves(systems, evaluations=evaluations, part="validation", drop=drop)
    found: list[list[Try]] = [[] for _ in groups]
    for (group, each), curve in zip(pairs, curves, strict=True):
        found[group].append(Try(settings=each, accuracy=curve.reached))
    return found


def best_of(tries: Sequence[Try], otherwise: Settings | None = None) -> Settings:
    """The settings with the best accuracy, the first of equals; `otherwise` where nothing was tried."""
    return max(tries, key=lambda each: each.accuracy).settings if tries else otherwise or {}
