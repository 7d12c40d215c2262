"""Gaussian noise that is correlated between rounds by a known matrix: tree aggregation and matrix factorisation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from vflpriv.common.lazy import torch
from vflpriv.common.numerics import Floats
from vflpriv.common.registry import register
from vflpriv.core.law import Draws, Pair
from vflpriv.laws.continuous import Continuous, spread
from vflpriv.laws.gaussian import Gaussian, GaussianPair
from vflpriv.laws.pairs import ratio

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["CorrelatedGaussian", "toeplitz_encoder", "tree_encoder"]

Rows = tuple[tuple[float, ...], ...]


@register("law")
@dataclass(frozen=True)
class CorrelatedGaussian(Continuous):
    """Noise C⁺z on the values x of all rounds, z independent N(0, std²); sensitivities are in L2, of one round.

    What is released is post-processing of Cx + z for the encoder C, (outputs, rounds): one Gaussian release of the
    whole run. A record that takes part in the rounds π moves it by at most ‖Σ_{t∈π} ±C_t‖ times the sensitivity, which
    divided by std is mu. For one participation that is the largest column norm of C ("Practical and Private (Deep)
    Learning without Sampling or Shuffling", Kairouz et al. 2021; "Multi-Epoch Matrix Factorization Mechanisms",
    Choquette-Choo et al. 2023). For k of them, `separation` rounds apart or more, its square is bounded by k times the
    largest sum of |CᵀC| over a row's diagonal and its k - 1 largest entries at such distances; that is attained by
    columns that do not overlap. Values may depend on earlier releases ("Improved Differential Privacy for SGD via
    Optimal Private Linear Operators on Adaptive Streams", Denisov et al. 2022).
    """

    std: float
    encoder: Rows
    separation: int = 1
    step: float = 0.0
    entries: int = 1
    name = "correlated-gaussian"
    sized_by = "std"
    summary = "normal noise of this std, correlated between rounds by a known matrix"
    norm = 2
    gaussian = True
    independent = False

    def __post_init__(self) -> None:
        widths = {len(row) for row in self.encoder}
        if len(widths) != 1 or np.linalg.matrix_rank(np.array(self.encoder)) < max(widths):
            raise ValueError("Expected an encoder with one independent column for each round.")

    def __str__(self) -> str:
        return f"CorrelatedGaussian(std={self.std:.6g}, rounds={len(self.encoder[0])}, factor={self.factor(1):.6g})"

    @property
    def premises(self) -> tuple[str, ...]:
        return (
            "noise of all rounds is one release through a known matrix: batches count as known, and mu is bounded for "
            f"any participation of a record at least {self.separation} rounds apart",
        )

    def factor(self, count: int) -> float:
        """The largest norm of a record's signed columns, if it takes part so many times."""
        return math.sqrt(_largest_square(self.encoder, self.separation, count))

    def strength(self, sensitivity: float) -> float:
        return ratio(self.apart(sensitivity) * self.factor(1), self.std)

    def square(self, sensitivity: float, counts: Any) -> Any:
        distinct, place = np.unique(np.asarray(counts), return_inverse=True)
        single = ratio(self.apart(sensitivity), self.std)
        squares = np.array([single * single * _largest_square(self.encoder, self.separation, int(k)) for k in distinct])
        return squares[place].reshape(np.shape(counts))[()]

    def attains(self, count: int) -> bool:
        return count == 1

    def pair(self, sensitivity: float) -> Pair:
        return GaussianPair(self.strength(sensitivity))

    @property
    def deviation(self) -> float:
        """Of the round with the least noise."""
        return self.std * math.sqrt(float(np.square(_decoder(self.encoder)).sum(1).min()))

    def parts(self, *path: int) -> list[tuple[tuple[int, ...], float]]:
        round_, *party = path
        weights = enumerate(_decoder(self.encoder)[round_])
        return [((output, *party), float(weight)) for output, weight in weights if abs(weight) > 1e-12]

    def in_steps(self, source: Draws, count: int, steps: float, width: int, *path: int) -> Tensor:
        return spread(*self.unit(source, count, *path), steps, width)

    def unit(self, source: Draws, count: int, *path: int) -> tuple[Tensor, Tensor]:
        """The first number of the path is the round; its draws are made of those of all outputs."""
        round_, *party = path
        parts = [Gaussian(1.0).unit(source, count, *place)[0] * weight for place, weight in self.parts(*path)]
        # Outputs are drawn again in other rounds: the further bits have to be of this round alone.
        further = source.bits(count, round_, *party, *(0,) * (1 - len(party)), 1)
        return torch.stack(parts).sum(0), further

    def whitened(self, noise: Floats) -> Floats:
        """Of the noise of all rounds, (rounds, …), independent standard normals: its principal parts, each of std 1."""
        left, values, _ = np.linalg.svd(_decoder(self.encoder), full_matrices=False)
        return np.asarray(np.tensordot((left / values).T, noise, axes=1) / self.std)


@lru_cache(maxsize=32)
def _decoder(encoder: Rows) -> Floats:
    return np.asarray(np.linalg.pinv(np.array(encoder)))


@lru_cache(maxsize=1024)
def _largest_square(encoder: Rows, separation: int, count: int) -> float:
    """A bound on the squared norm of a record's columns; if there are too many for the separation, at any distance.

    More than there are rounds belong to several trainings, each with noise of its own.
    """
    matrix = np.array(encoder)
    gram = np.abs(matrix.T @ matrix)
    rounds = np.arange(len(gram))
    apart = np.abs(rounds[:, None] - rounds) >= (separation if count <= -(-len(rounds) // separation) else 1)
    most = min(count, len(rounds))
    others = np.sort(np.where(apart, gram, 0.0), axis=1)[:, ::-1]
    largest = float((np.diagonal(gram) + others[:, : max(most - 1, 0)].sum(1)).max())
    return -(-count // len(rounds)) * most * largest


def tree_encoder(rounds: int) -> Rows:
    """The binary tree over so many rounds: one output for each node, the sum of the rounds below it.

    >>> tree_encoder(2)
    ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0))
    """
    rows, width = [], 1
    while width < 2 * rounds:
        starts = range(0, rounds, width)
        rows += [tuple(float(start <= t < start + width) for t in range(rounds)) for start in starts]
        width *= 2
    return tuple(rows)


def toeplitz_encoder(coefficients: tuple[float, ...], rounds: int) -> Rows:
    """The lower triangular matrix with these coefficients along its diagonals, as of banded factorisations.

    >>> toeplitz_encoder((1.0, 0.5), 3)
    ((1.0, 0.0, 0.0), (0.5, 1.0, 0.0), (0.0, 0.5, 1.0))
    """
    padded = (*coefficients, *(0.0 for _ in range(rounds)))
    return tuple(tuple(padded[t - s] if s <= t else 0.0 for s in range(rounds)) for t in range(rounds))
