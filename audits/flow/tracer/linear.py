"""How noise goes through an operation: found by trying the operation out, never by its name.

Where a private value meets noise, the operation must be affine in the noise, with the same slope wherever the private
value moves. The slope is read off as rows: first as a choice of elements with a factor each, which three evaluations
show, then slice by slice, as a product with a matrix or a sum needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from vflpriv.audits.flow.draws.rows import MOST_TERMS, Rows, joined
from vflpriv.audits.flow.tracer.calls import Call

__all__ = ["noise_of_results"]

_STEP = -2.375
"""The second step: away from a power of two, so that rounding shows."""
_MOST_TRIALS = 1024
Linear = Callable[[Tensor], list[Tensor]]


def noise_of_results(
    call: Call, noisy: Mapping[int, Rows], moving: Sequence[int], most_terms: int = MOST_TERMS
) -> list[Rows] | None:
    """The rows of every result, with one term for each draw and operand; None unless the operation is affine.

    `noisy` has the rows of arguments. `moving` are arguments whose value must not change the slope: private ones, and
    those that depend on other draws.
    """
    try:
        call.widened = frozenset(number for number in noisy if not call.tensors[number].is_floating_point())
        base = call.again({})
        if not base or not all(result.is_floating_point() for result in base):
            return None
        generator = torch.Generator().manual_seed(len(base[0].shape) + 1)
        steps = {number: _step(call.tensors[number], generator) for number in noisy}
        slopes = {number: _slope(call, number, base) for number in noisy}
        answers = {number: slopes[number](step) for number, step in steps.items()}
        if not _affine(call, slopes, steps, answers, moving, generator):
            return None
        parts: list[list[Rows]] = [[] for _ in base]
        for number, rows in noisy.items():
            mapped = _mapped(slopes[number], steps[number], answers[number], rows, most_terms)
            if mapped is None:
                return None
            for place, share in enumerate(mapped):
                parts[place].append(share)
    except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError):
        # An operation that cannot be tried out on other values is not known to be affine.
        return None
    return [joined(shares) for shares in parts]


def _step(tensor: Tensor, generator: torch.Generator) -> Tensor:
    size = 10 * (float(tensor.detach().abs().double().max()) if tensor.numel() else 0.0) or 1.0
    return torch.randn(tensor.shape, generator=generator, dtype=torch.float64) * size


def _slope(call: Call, number: int, base: list[Tensor]) -> Linear:
    value = call.tensors[number].detach().double()

    def slope(step: Tensor) -> list[Tensor]:
        return [new - old for new, old in zip(call.again({number: value + step}), base, strict=True)]

    return slope


def _affine(
    call: Call,
    slopes: Mapping[int, Linear],
    steps: Mapping[int, Tensor],
    single: Mapping[int, list[Tensor]],
    moving: Sequence[int],
    generator: torch.Generator,
) -> bool:
    """Whether all arguments with noise enter linearly, together, wherever the others move."""
    for number, step in steps.items():
        twice = slopes[number](_STEP * step)
        if not all(_near(second, _STEP * first) for first, second in zip(single[number], twice, strict=True)):
            return False
    others = [number for number in moving if number not in steps]
    if not others and len(steps) == 1:
        return True
    elsewhere: dict[int, Tensor] = {number: _moved(call.tensors[number], generator) for number in others}
    stepped = {number: call.tensors[number].detach().double() + step for number, step in steps.items()}
    before, after = call.again(elsewhere), call.again(elsewhere | stepped)
    together = [sum(parts[1:], start=parts[0]) for parts in zip(*single.values(), strict=True)]
    return all(_near(new - old, wanted, old) for new, old, wanted in zip(after, before, together, strict=True))


def _moved(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """The argument with another value of its kind."""
    if tensor.is_floating_point():
        return tensor.detach().double() + _step(tensor, generator)
    if tensor.dtype == torch.bool:
        return ~tensor
    rolled = tensor.reshape(-1).roll(1).reshape(tensor.shape)
    # Where all are alike, nothing has moved: places may be anything from 0 on.
    return torch.full_like(tensor, int(not bool(tensor.any()))) if torch.equal(rolled, tensor) else rolled


def _near(value: Tensor, twin: Tensor, around: Tensor | None = None) -> bool:
    if value.shape != twin.shape:
        return False
    if not value.numel():
        return True
    size = 1e-8 * float(twin.abs().max()) + 1e-300
    if around is not None:
        size += 1e-12 * float(around.abs().max())
    return bool(((value - twin).abs() <= size).all())


def _mapped(slope: Linear, step: Tensor, answers: list[Tensor], rows: Rows, most_terms: int) -> list[Rows] | None:
    """The rows of all results from those of one argument."""
    chosen = _selection(slope, step, answers, None)
    if chosen is not None:
        return [rows.at(places).times(factors) for places, factors in chosen]
    outputs, width = sum(answer.numel() for answer in answers), rows.columns.shape[1]
    if outputs == 1 and step.numel() * width <= most_terms:
        factor = slope(torch.ones_like(step))[0].reshape(()) / step.numel()
        if _near(answers[0].reshape(()), factor * step.sum()):
            return [Rows(rows.columns.reshape(1, -1), factor * rows.scales.reshape(1, -1), rows.precision)]
    for dim in range(step.dim()):
        size = step.shape[dim]
        if 1 < size <= _MOST_TRIALS and outputs * size * width <= most_terms:
            pieces = _by_slices(slope, step, dim)
            if pieces is not None:
                return _stacked(pieces, rows, len(answers))
    if 1 < step.numel() <= _MOST_TRIALS and outputs * step.numel() * width <= most_terms:
        pieces = _by_slices(slope, step.reshape(-1), 0, step.shape)
        return None if pieces is None else _stacked(pieces, rows, len(answers))
    return None


Pieces = list[list[tuple[Tensor, Tensor]]]


def _stacked(pieces: Pieces, rows: Rows, results: int) -> list[Rows]:
    """One term for each slice; those without a factor drop out."""
    stacked = []
    for result in range(results):
        kept = [rows.at(piece[result][0]).times(piece[result][1]) for piece in pieces]
        stacked.append(joined(kept).merged()[0])
    return stacked


def _by_slices(slope: Linear, step: Tensor, dim: int, shape: torch.Size | None = None) -> Pieces | None:
    """A selection for each slice along a dimension, whose sum explains the whole."""
    pieces: Pieces = []
    shaped: Linear = (lambda h: slope(h.reshape(shape))) if shape is not None else slope
    whole = shaped(step)
    total = [torch.zeros_like(answer) for answer in whole]
    for place in range(step.shape[dim]):
        mask = torch.zeros_like(step)
        mask.select(dim, place).fill_(1.0)
        chosen = _selection(shaped, step * mask, None, mask)
        if chosen is None:
            return None
        pieces.append(chosen)
        for answer, (places, factors) in zip(total, chosen, strict=True):
            values = (step * mask).reshape(-1)[places.clamp(min=0)] * factors
            answer += values.reshape(answer.shape)
    return pieces if all(_near(a, b) for a, b in zip(total, whole, strict=True)) else None


def _selection(
    slope: Linear, step: Tensor, answers: list[Tensor] | None, mask: Tensor | None
) -> list[tuple[Tensor, Tensor]] | None:
    """For each result which single element of the argument reaches it, and its factor; None if several do."""
    ones = torch.ones_like(step) if mask is None else mask
    numbers = (torch.arange(step.numel(), dtype=torch.float64).reshape(step.shape) + 1) * ones
    answers = slope(step) if answers is None else answers
    chosen = []
    for answer, factor, numbered in zip(answers, slope(ones), slope(numbers), strict=True):
        flat, factor, numbered = answer.reshape(-1), factor.reshape(-1), numbered.reshape(-1)
        size = float(factor.abs().max()) if factor.numel() else 0.0
        reached = factor.abs() > 1e-9 * size
        factor = torch.where(reached, factor, 0.0)
        ratio = numbered / torch.where(reached, factor, 1.0)
        places = torch.where(reached, ratio.round() - 1, -1.0).long()
        if bool(((places >= step.numel()) | (reached & (places < 0))).any()):
            return None
        wanted = torch.where(reached, factor * step.reshape(-1)[places.clamp(min=0)], 0.0)
        if not _near(flat, wanted) and not (not bool(reached.any()) and float(flat.abs().max()) < 1e-12):
            return None
        chosen.append((places, factor))
    return chosen
