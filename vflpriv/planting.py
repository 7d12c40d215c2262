"""Canaries in labels: a few records whose label is decided by a fair coin, so that one training is an experiment."""

from __future__ import annotations

import torch
from torch import Tensor

from vflpriv.canaries import Canaries
from vflpriv.errors import InputError
from vflpriv.seeds import host_generator

__all__ = ["draw_canaries", "plant"]


def draw_canaries(labels: Tensor, classes: int, *, canaries: int, seed: int, field: str = "canaries") -> Canaries:
    """Records drawn at random, each with its own label in world 0, another one in world 1, and a fair coin."""
    if not 1 <= canaries <= len(labels):
        raise InputError(field, canaries, f"at most {len(labels)}, the records there are")
    generator = host_generator(seed, "canary", canaries, 2)
    records = generator.choice(len(labels), canaries, replace=False)
    own = labels.cpu()[torch.from_numpy(records)].long()
    other = (own + torch.from_numpy(generator.integers(1, classes, canaries))) % classes
    worlds = torch.from_numpy(generator.integers(0, 2, (1, canaries)))
    return Canaries(records=tuple(map(int, records)), labels=torch.stack([own, other], dim=1), worlds=worlds)


def plant(labels: Tensor, *, classes: int, canaries: int, seed: int) -> tuple[Tensor, Canaries]:
    """Labels to train on, and the canaries in them; hand the latter to the recorder with `wire.labels`.

    Each canary's label is its own or another one, by a fair coin: how many coins an adversary guesses bounds ε from
    below. Whoever knows the seed knows the coins.

    >>> planted, canaries = plant(torch.zeros(10, dtype=torch.int64), classes=3, canaries=4, seed=0)
    >>> len(canaries.records), int((planted != 0).sum()) == int(canaries.worlds.sum())
    (4, True)
    """
    drawn = draw_canaries(labels, classes, canaries=canaries, seed=seed)
    planted = labels.clone()
    chosen = drawn.labels.gather(1, drawn.worlds[0].unsqueeze(1)).squeeze(1)
    planted[list(drawn.records)] = chosen.to(planted)
    return planted, drawn
