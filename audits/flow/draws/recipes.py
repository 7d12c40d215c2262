"""Functions of a few draws, element by element: recipes, from which a law is recognised, and coins with few outcomes.

A recipe is kept while noise is made of draws by pointwise operations: the inverse of a distribution function, Box and
Muller's formula. It is evaluated on a grid of quantiles and compared with the quantiles of known laws, so that nobody
needs to say how the noise was made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vflpriv.audits.flow.draws.families import EXPONENTIAL, GUMBEL, LAPLACE, NORMAL, UNIFORM, Family

__all__ = ["Coin", "Outcome", "Recipe", "Recognised", "applied", "leaf", "recognise"]

_MOST_POINTS = 1 << 22
_NEAR = 1e-5
"""How near a function of a draw is to a law that it is recognised as: rounding to a grid shows above it."""
_GRID = (
    1e-6,
    1e-4,
    0.01,
    0.06,
    0.13,
    0.24,
    0.31,
    0.43,
    0.499,
    0.52,
    0.61,
    0.68,
    0.77,
    0.86,
    0.93,
    0.97,
    0.999,
    1 - 1e-5,
)


@dataclass(frozen=True, eq=False)
class Recipe:
    """A pointwise function of K draws for each element; `made` computes it from K tensors, (points, elements)."""

    columns: Tensor
    made: Callable[[Sequence[Tensor], Tensor | None], Tensor]
    """From the draws, and the elements that they are for."""
    precision: float

    def at(self, elements: Tensor) -> Recipe:
        """The recipe of some elements, in this order."""

        def made(draws: Sequence[Tensor], chosen: Tensor | None) -> Tensor:
            return self.made(draws, elements if chosen is None else elements[chosen])

        return Recipe(self.columns[elements], made, self.precision)


def leaf(columns: Tensor, shift: Tensor, scale: Tensor, precision: float) -> Recipe:
    """Shift plus scale times one draw."""

    def made(draws: Sequence[Tensor], chosen: Tensor | None) -> Tensor:
        a, b = (shift, scale) if chosen is None else (shift[chosen], scale[chosen])
        return a + b * draws[0]

    return Recipe(columns.reshape(-1, 1), made, precision)


def applied(
    function: Callable[[Sequence[Any]], Tensor], operands: Sequence[Recipe | Tensor | None], precision: float
) -> Recipe | None:
    """A pointwise operation on recipes and public tensors, all flat and of one length; None with too many draws."""
    slots: list[Tensor] = []
    places: dict[int, list[int]] = {}
    for number, operand in enumerate(operands):
        if isinstance(operand, Recipe):
            for term in range(operand.columns.shape[1]):
                column = operand.columns[:, term]
                slot = next((s for s, known in enumerate(slots) if torch.equal(known, column)), None)
                if slot is None:
                    slots.append(column)
                    slot = len(slots) - 1
                places.setdefault(number, []).append(slot)
    if not 1 <= len(slots) <= 2:
        return None

    def made(draws: Sequence[Tensor], chosen: Tensor | None) -> Tensor:
        values: list[Any] = []
        for number, operand in enumerate(operands):
            if isinstance(operand, Recipe):
                values.append(operand.made([draws[slot] for slot in places[number]], chosen))
            elif isinstance(operand, Tensor):
                public = operand if chosen is None else operand[chosen]
                values.append(public.expand(draws[0].shape).clone())
            else:
                values.append(None)
        return function(values)

    return Recipe(torch.stack(slots, 1), made, precision)


@dataclass(frozen=True, eq=False)
class Recognised:
    """A recipe is shift + scale × a standard draw of a family; `variant` tells independent ones of the same draws."""

    family: Family
    shift: Tensor
    scale: Tensor
    variant: int = 0


def recognise(recipe: Recipe, families: Sequence[Family]) -> Recognised | None:
    """The law of a recipe whose draws are of these families; None if it is none that is known."""
    if len(families) == 1:
        return _of_one(recipe, families[0])
    if all(family is UNIFORM for family in families):
        return _of_two_uniforms(recipe)
    return None


def _chunks(recipe: Recipe, points: int) -> list[Tensor]:
    count = len(recipe.columns)
    return list(torch.arange(count).split(max(1, _MOST_POINTS // points)))


def _of_one(recipe: Recipe, family: Family) -> Recognised | None:
    """By the quantiles: of a rising function of a draw they are the function of its quantiles."""
    quantiles = torch.tensor(_GRID, dtype=torch.float64)
    draws = family.quantile(quantiles)
    for falling in (False, True):
        # The quantiles of a falling function are met from above.
        levels = 1 - quantiles if falling else quantiles
        for known in (NORMAL, LAPLACE, EXPONENTIAL, GUMBEL, UNIFORM):
            for sign in (1.0, -1.0):
                if known in (NORMAL, LAPLACE, UNIFORM) and sign < 0:
                    continue
                standard = sign * known.quantile(levels if sign > 0 else 1 - levels)
                fitted = _fit(recipe, draws, standard, quantiles)
                if fitted is not None:
                    shift, scale = fitted
                    return Recognised(known, shift, sign * scale)
    return None


def _fit(recipe: Recipe, draws: Tensor, standard: Tensor, levels: Tensor) -> tuple[Tensor, Tensor] | None:
    """Shift and scale with which the recipe at `draws` is `standard`, for every element; None if there are none."""
    middle, top = len(draws) // 2, len(draws) - 4
    shifts, scales = [], []
    for chosen in _chunks(recipe, len(draws)):
        values = recipe.made([draws[:, None].expand(-1, len(chosen))], chosen).double()
        scale = (values[top] - values[middle]) / (standard[top] - standard[middle])
        shift = values[middle] - scale * standard[middle]
        wanted = shift + scale * standard[:, None]
        # In the tails the limits of number formats, to which samplers clamp, show.
        allowed = _NEAR * (0.1 + standard.abs()) + 1e-6 / torch.minimum(levels, 1 - levels)
        if not bool((values - wanted).abs().le(allowed[:, None] * scale.abs()).all()):
            return None
        if not bool((scale.abs() > 0).all()):
            return None
        shifts.append(shift)
        scales.append(scale)
    return torch.cat(shifts), torch.cat(scales)


def _of_two_uniforms(recipe: Recipe) -> Recognised | None:
    """Box and Muller: the root of -2 log of one uniform, times the sine or cosine of 2π times the other."""
    generator = torch.Generator().manual_seed(1)
    pair = torch.rand(2, 40, generator=generator, dtype=torch.float64) * 0.98 + 0.01
    first, second = pair
    for variant, (radius, angle) in enumerate([(first, second), (second, first)]):
        for turned, wave in enumerate((torch.cos, torch.sin)):
            for inverted in (False, True):
                length = torch.sqrt(-2 * torch.log(1 - radius if inverted else radius))
                fitted = _proportional(recipe, pair, length * wave(2 * math.pi * angle))
                if fitted is not None:
                    number = 4 * variant + 2 * turned + inverted
                    return Recognised(NORMAL, fitted[0], fitted[1], 1 + number)
    return None


def _proportional(recipe: Recipe, pair: Tensor, standard: Tensor) -> tuple[Tensor, Tensor] | None:
    high, low = int(standard.argmax()), int(standard.argmin())
    shifts, scales = [], []
    for chosen in _chunks(recipe, len(standard)):
        values = recipe.made([draws[:, None].expand(-1, len(chosen)) for draws in pair], chosen).double()
        scale = (values[high] - values[low]) / (standard[high] - standard[low])
        shift = values[high] - scale * standard[high]
        near = (values - shift - scale * standard[:, None]).abs() <= 1e-4 * scale.abs()
        if not bool(near.all()) or not bool((scale.abs() > 0).all()):
            return None
        shifts.append(shift)
        scales.append(scale)
    return torch.cat(shifts), torch.cat(scales)


@dataclass(frozen=True, eq=False)
class Outcome:
    """One outcome of a coin: its value and probability in either world, element by element."""

    values: tuple[Tensor, Tensor]
    weights: tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Coin:
    """A value with few outcomes for each element, which the draws of its columns choose; elements are independent."""

    columns: Tensor
    outcomes: tuple[Outcome, ...]

    def at(self, elements: Tensor) -> Coin:
        """The coins of some elements, in this order."""
        outcomes = tuple(
            Outcome(
                (outcome.values[0][elements], outcome.values[1][elements]),
                (outcome.weights[0][elements], outcome.weights[1][elements]),
            )
            for outcome in self.outcomes
        )
        return Coin(self.columns[elements], outcomes)
