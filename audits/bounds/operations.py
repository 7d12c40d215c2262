"""What each operation of torch makes of what is known of its arguments: a rule for each, and nothing without one.

A rule gets the operation's result, its arguments, and what is known of each argument that is private. It never looks at
the private values themselves, only at shapes, public tensors and numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from vflpriv.audits.bounds.facts import (
    CONSTANT,
    UNKNOWN,
    Bounds,
    Fact,
    Moves,
    Share,
    constant,
    least,
    norm_of,
    shares,
    times,
)

__all__ = [
    "RULES",
    "Operation",
    "axis_of",
    "broadcast",
    "by_public",
    "entrywise",
    "keeps_axis",
    "moved_axis",
    "product_of_matrices",
    "rule",
    "width_of",
    "without_rows",
    "without_size",
]


@dataclass(frozen=True, eq=False)
class Operation:
    """One call of an operation, and what is known of its arguments."""

    name: str
    out: Tensor
    """The result, or one of them."""
    args: Sequence[Any]
    kwargs: dict[str, Any]
    known: Callable[[Any], Fact | None]
    """What is known of an argument; None of a public one."""
    named: Callable[[Tensor], int]
    """The number by which bounds speak of a tensor's norm."""
    drawn: Callable[[Tensor], bool]
    """Whether draws reach a public tensor: weights, and all that is learnt by them. Its values are those of one run."""

    def with_fact(self, tensor: Tensor, fact: Fact) -> Operation:
        """The same call, with another tensor's fact in the place of an argument's."""
        return replace(self, known=lambda value: fact if value is tensor else self.known(value))

    @property
    def first(self) -> Fact:
        return self.known(self.args[0]) or UNKNOWN

    def size(self, value: Any) -> float:
        """The largest size of a public number or tensor, infinite if draws decide it."""
        if isinstance(value, Tensor):
            return math.inf if self.drawn(value) else float(value.detach().abs().max()) if value.numel() else 0.0
        return abs(float(value))

    def nonnegative(self, value: Any) -> bool:
        """Whether a public number or tensor has no entry below zero, whatever is drawn."""
        if isinstance(value, Tensor):
            return not self.drawn(value) and bool((value >= 0).all())
        return float(value) >= 0

    def argument(self, place: int, name: str, default: Any = None) -> Any:
        """An argument that may be given by place or by name."""
        return self.args[place] if len(self.args) > place else self.kwargs.get(name, default)


def axis_of(given: Sequence[Fact]) -> tuple[int | None, bool, int]:
    """The axis along which all of these have rows, whether each row of all is of its own record, and their order."""
    axis = given[0].axis if len({fact.axis for fact in given}) == 1 else None
    own = axis is not None and all(fact.own for fact in given) and len({fact.order for fact in given}) == 1
    return axis, own, given[0].order


Rule = Callable[[Operation], Fact | None]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    def enter(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, rule))
        return rule

    return enter


def width_of(tensor: Tensor, axis: int | None) -> int:
    """The entries of each row; of the whole tensor without an axis."""
    return tensor.numel() // max(tensor.shape[axis], 1) if axis is not None else tensor.numel()


def keeps_axis(shape: Sequence[int], axis: int, new: Sequence[int]) -> int | None:
    """Where an axis is after a change of shape that keeps the order of elements; None where it is split or merged.

    >>> keeps_axis((4, 3, 2), 0, (4, 6)), keeps_axis((1, 4, 6), 1, (4, 6)), keeps_axis((4, 6), 0, (24,))
    (0, 0, None)
    """
    before = math.prod(shape[:axis])
    places = [n for n in range(len(new)) if new[n] == shape[axis] and math.prod(new[:n]) == before]
    return places[0] if places else None


def _scaled(bounds: Bounds, factor: float) -> dict[Any, float]:
    return {norms: bound * factor for norms, bound in bounds.items()} if factor < math.inf else {}


# Shapes


@rule("detach", "alias", "clone", "_to_copy", "to", "contiguous", "lift_fresh")
def _same(op: Operation) -> Fact | None:
    return op.first


@rule("as_strided")
def _laid_out(op: Operation) -> Fact | None:
    """The same memory, if it is in the same shape."""
    before, after = op.args[0], op.out
    same = before.shape == after.shape and before.stride() == after.stride()
    return op.first if same and before.storage_offset() == after.storage_offset() else None


@rule("copy_")
def _copied(op: Operation) -> Fact | None:
    """What was there before is overwritten."""
    return broadcast(op, op.args[1]).changed() if op.known(op.args[1]) is not None else None


@rule("view", "_unsafe_view", "reshape", "_reshape_alias")
def _view(op: Operation) -> Fact | None:
    return moved_axis(op, lambda axis: keeps_axis(op.args[0].shape, axis, op.out.shape))


@rule("unsqueeze", "squeeze", "flatten")
def _inserted(op: Operation) -> Fact | None:
    return _view(op)


@rule("squeeze_", "unsqueeze_")
def _inserted_in_place(op: Operation) -> Fact | None:
    """The argument has its new shape already, in which the old axis of records would be another one."""
    fact = op.first
    if fact.axis is not None and fact.own:
        return None
    return fact.changed(axis=None, row={}, tensor=fact.tensor, square=fact.square)


@rule("transpose", "t", "permute")
def _permuted(op: Operation) -> Fact | None:
    size = op.args[0].dim()
    order = list(range(size))
    if op.name == "permute":
        order = [int(place) % size for place in op.args[1]]
    elif size > 1:
        first, second = (int(d) % size for d in (op.args[1:3] if op.name == "transpose" else (0, 1)))
        order[first], order[second] = order[second], order[first]
    return moved_axis(op, order.index)


@rule("expand")
def _expanded(op: Operation) -> Fact | None:
    fact, before, after = op.first, op.args[0].shape, op.out.shape
    offset = len(after) - len(before)
    grown = op.out.numel() / max(op.args[0].numel(), 1)
    if grown == 1:
        return moved_axis(op, lambda axis: axis + offset)
    axis = None if fact.axis is None else fact.axis + offset
    kept = axis is not None and after[axis] == before[axis - offset]
    return Fact(
        axis=axis if kept else None,
        row=_scaled(fact.row, math.sqrt(grown)) if kept else {},
        whole=_scaled(fact.whole, math.sqrt(grown)),
        entry=fact.entries(),
        low=fact.low,
        finite=fact.finite,
        positive=fact.positive,
        vanishes=fact.vanishes,
        moves=fact.moves.scaled(math.sqrt(grown)) if fact.moves else None,
    )


def moved_axis(op: Operation, place: Callable[[int], int | None]) -> Fact:
    """All elements are there, and each row is one still if the axis is."""
    fact = op.first
    axis = None if fact.axis is None else place(fact.axis)
    if axis is not None or fact.axis is None:
        return fact.changed(axis=axis, tensor=fact.tensor, square=fact.square, along=fact.along)
    return without_rows(op.args[0], fact).changed(tensor=fact.tensor, square=fact.square)


def without_rows(tensor: Tensor, fact: Fact) -> Fact:
    """What is known of all rows together."""
    if fact.axis is None:
        return fact
    rows, width = tensor.shape[fact.axis], width_of(tensor, fact.axis)
    return fact.changed(axis=None, row={}, whole=fact.all(rows, width), moves=fact.moved(rows, width))


# Norms


@rule("linalg_vector_norm", "norm")
def _norm(op: Operation) -> Fact | None:
    order = op.argument(1, "ord" if op.name == "linalg_vector_norm" else "p", 2)
    dims = _dims(op, op.argument(2, "dim"))
    level = _level(op, dims)
    if level is None:
        return None
    if order is None or float(order) == 2.0:
        size = norm_of(op.named(op.args[0]), level)
        return _of_norm(op, size, dims, low=least(size, op.first.long) if level == "row" else size)
    if float(order) == math.inf:
        # The largest entry is at most the norm, and at least the norm over the square root of their number.
        size = norm_of(op.named(op.args[0]), level)
        entries = width_of(op.args[0], op.first.axis) if level == "row" else op.args[0].numel()
        return _of_norm(op, size, dims, low=_scaled(size, 1 / math.sqrt(entries)))
    return None


def _dims(op: Operation, dim: Any) -> list[int]:
    size = op.args[0].dim()
    if dim is None or (not isinstance(dim, int) and not list(dim)):
        return list(range(size))
    return sorted(int(d) % size for d in ([dim] if isinstance(dim, int) else dim))


def _level(op: Operation, dims: Sequence[int]) -> str | None:
    """Whether a reduction over these axes is one of each row, or of the whole tensor; None where it is neither."""
    tensor, axis = op.args[0], op.first.axis
    wide = {d for d in range(tensor.dim()) if tensor.shape[d] > 1}
    if wide <= set(dims) and (axis is None or axis in dims):
        return "whole"
    return "row" if axis is not None and axis not in dims and wide - {axis} <= set(dims) else None


def _of_norm(op: Operation, size: Bounds, dims: Sequence[int], *, low: Bounds | None = None) -> Fact:
    return Fact(
        axis=_after(op, dims),
        row=size if op.first.axis is not None and op.first.axis not in dims else {},
        entry=size,
        low=size if low is None else low,
        positive=True,
        vanishes=True,
        finite=op.first.finite,
    )


def _after(op: Operation, dims: Sequence[int]) -> int | None:
    """Where the axis of records is after a reduction over others."""
    axis = op.first.axis
    if axis is None or axis in dims:
        return None
    return axis if op.out.dim() == op.args[0].dim() else axis - sum(d < axis for d in dims)


@rule("sum", "mean")
def _sum(op: Operation) -> Fact | None:
    fact, tensor = op.first, op.args[0]
    dims = _dims(op, op.argument(1, "dim"))
    count = math.prod(tensor.shape[d] for d in dims)
    scale = 1.0 if op.name == "sum" else 1 / max(count, 1)
    if fact.square is not None and op.name == "sum" and (level := _level(op, dims)) is not None:
        square = times({CONSTANT: 1.0}, norm_of(fact.square, level), 2.0)
        return _of_norm(op, square, dims)
    if not fact.own and fact.axis in dims:
        fact = without_rows(tensor, fact)
    if fact.axis is None or fact.axis not in dims:
        return _within_rows(op, fact, dims, scale * math.sqrt(count))
    rows, row = tensor.shape[fact.axis], constant(fact.rows(width_of(tensor, fact.axis)))
    factor = scale * math.sqrt(math.prod(tensor.shape[d] for d in dims if d != fact.axis))
    return _over_records(fact, row * factor, rows, joint=shares(fact.row, factor))


def _within_rows(op: Operation, fact: Fact, dims: Sequence[int], factor: float) -> Fact:
    """By Cauchy and Schwarz a sum of so many entries is at most the root of their number times their norm."""
    return Fact(
        axis=_after(op, dims) if fact.axis is not None else None,
        row=_scaled(fact.rows(width_of(op.args[0], fact.axis)), factor) if fact.axis is not None else {},
        whole=_scaled(fact.whole, factor),
        finite=fact.finite,
        positive=fact.positive,
        vanishes=fact.vanishes,
        moves=fact.moves.scaled(factor) if fact.moves else None,
    )


def _over_records(
    fact: Fact, row: float, rows: int, *, own: bool = True, joint: Mapping[Share, float] | None = None
) -> Fact:
    """A sum of rows, none of them longer than this, and each of a record of its `own` or not.

    `joint` bounds them by their shares in rows that were clipped with others.
    """
    apart = math.sqrt(2) if fact.positive else 2.0
    alone, moving = row if fact.vanishes else apart * row, 1 if own else rows
    return Fact(
        whole=least({CONSTANT: rows * row}),
        finite=fact.finite,
        positive=fact.positive,
        vanishes=fact.vanishes,
        moves=Moves(
            replace=apart * moving * row,
            remove=alone if own else apart * rows * row,
            client=apart * rows * row,
            empty=rows * alone,
            joint={share: 2.0 * bound for share, bound in (joint or {}).items()} if own else {},
        ),
        why="" if row < math.inf else fact.why,
    )


# Elementwise


@rule("mul", "mul_")
def _times(op: Operation) -> Fact | None:
    left, right = op.args[0], op.args[1]
    mine, other = op.known(left), op.known(right)
    if mine is None or other is None:
        tensor, factor = (left, right) if mine is not None else (right, left)
        return by_public(op, tensor, op.size(factor), positive=op.nonnegative(factor), number=_is_number(factor))
    if left is right:
        return _square(op)
    if not (mine.finite and other.finite):
        return None
    return _product(op, mine, other)


def _is_number(value: Any) -> bool:
    return not isinstance(value, Tensor) or value.numel() == 1


def by_public(op: Operation, tensor: Tensor, size: float, *, positive: bool, number: bool) -> Fact:
    """A private tensor times a public one of at most this size, broadcast to the shape of the result."""
    fact = broadcast(op, tensor)
    return fact.changed(
        row=_scaled(fact.row, size),
        whole=_scaled(fact.whole, size),
        entry=_scaled(fact.entry, size),
        low=_scaled(fact.low, size) if positive and number else {},
        positive=fact.positive and positive,
        along=fact.along and positive and number,
        moves=fact.moves.scaled(size) if fact.moves else None,
    )


def broadcast(op: Operation, tensor: Tensor) -> Fact:
    """A private argument in the shape of the result. Its rows are the result's, or there are none any more."""
    fact, out = op.known(tensor) or UNKNOWN, op.out
    if tensor.shape == out.shape:
        return fact
    grown = math.sqrt(out.numel() / max(tensor.numel(), 1))
    axis = _aligned(tensor, fact, out)
    kept = axis if axis is not None and out.shape[axis] == tensor.shape[axis - out.dim() + tensor.dim()] else None
    rows = fact.rows(width_of(tensor, fact.axis)) if kept is not None else {}
    return fact.changed(
        axis=kept,
        row=_scaled(rows, grown),
        whole=_scaled(fact.whole, grown),
        entry=fact.entries(),
        moves=fact.moves.scaled(grown) if fact.moves else None,
    )


def _product(op: Operation, mine: Fact, other: Fact) -> Fact:
    """Two private tensors, of which either may be a factor for the rows, or for all, of the other."""
    left, right = op.args[0], op.args[1]
    mine, other = broadcast(op, left), broadcast(op, right)
    rowwise = mine.axis is not None and mine.axis == other.axis
    width = width_of(op.out, mine.axis)
    return Fact(
        axis=mine.axis if rowwise else None,
        row=least(times(mine.rows(width), other.entries()), times(other.rows(width), mine.entries())),
        whole=least(times(mine.whole, other.entries()), times(other.whole, mine.entries())),
        entry=times(mine.entries(), other.entries()),
        low=times(mine.low, other.low),
        positive=mine.positive and other.positive,
        vanishes=mine.vanishes or other.vanishes,
        along=(mine.along and other.positive and right.numel() == 1)
        or (other.along and mine.positive and left.numel() == 1),
    )


def _aligned(tensor: Tensor, fact: Fact, out: Tensor) -> int | None:
    """The axis of records in a result to which a tensor is broadcast."""
    return None if fact.axis is None else fact.axis + out.dim() - tensor.dim()


@rule("pow")
def _power(op: Operation) -> Fact | None:
    return _square(op) if op.args[1] == 2 else _root(op) if op.args[1] == 0.5 else None


@rule("square")
def _square(op: Operation) -> Fact | None:
    fact = op.first
    return Fact(
        axis=fact.axis,
        entry=times({CONSTANT: 1.0}, fact.entries(), 2.0) if len(fact.entries()) == 1 else {},
        low=times({CONSTANT: 1.0}, fact.low, 2.0) if len(fact.low) == 1 else {},
        finite=fact.finite,
        positive=True,
        vanishes=fact.vanishes,
        square=op.named(op.args[0]),
    )


@rule("sqrt", "sqrt_")
def _root(op: Operation) -> Fact | None:
    fact = op.first

    def rooted(bounds: Bounds) -> dict[Any, float]:
        return {tuple((symbol, e / 2) for symbol, e in norms): math.sqrt(bound) for norms, bound in bounds.items()}

    return Fact(
        axis=fact.axis,
        entry=rooted(fact.entries()),
        low=rooted(fact.low),
        finite=fact.finite,
        positive=True,
        vanishes=fact.vanishes,
    )


@rule("reciprocal")
def _reciprocal(op: Operation) -> Fact | None:
    return _inverse(op.first)


def _inverse(fact: Fact) -> Fact | None:
    """One over a private tensor that is bounded from below."""
    if not fact.low or not fact.finite:
        return None
    return Fact(
        axis=fact.axis,
        entry=least(*(times({CONSTANT: 1.0}, {norms: low}, -1.0) for norms, low in fact.low.items())),
        low=least(*(times({CONSTANT: 1.0}, {norms: high}, -1.0) for norms, high in fact.entries().items())),
        # Without a positive number below it, the norm of a row of zeros is zero, and this infinite.
        finite=fact.low.get(CONSTANT, 0.0) > 0,
        positive=True,
    )


@rule("div", "div_")
def _quotient(op: Operation) -> Fact | None:
    upper, lower = op.args[0], op.args[1]
    above, below = op.known(upper), op.known(lower)
    if below is None:
        smallest = float(lower.detach().abs().min()) if isinstance(lower, Tensor) else abs(float(lower))
        factor = math.inf if smallest == 0 or (isinstance(lower, Tensor) and op.drawn(lower)) else 1 / smallest
        if not math.isfinite(factor) or op.kwargs.get("rounding_mode"):
            return None
        return by_public(op, upper, factor, positive=op.nonnegative(lower), number=_is_number(lower))
    inverse = _inverse(below)
    if inverse is None:
        return None
    inverted = op.with_fact(lower, inverse)
    if above is None:
        if not op.nonnegative(upper):
            return None
        return by_public(inverted, lower, op.size(upper), positive=True, number=_is_number(upper))
    return _product(inverted, above, inverse) if above.finite and inverse.finite else None


@rule("add", "add_", "sub", "sub_")
def _sum_of_two(op: Operation) -> Fact | None:
    left, right = op.args[0], op.args[1]
    subtracted, alpha = op.name.startswith("sub"), float(op.kwargs.get("alpha", 1))
    mine = None if op.known(left) is None else broadcast(op, left)
    second = alpha * (-1.0 if subtracted else 1.0)
    other = None
    if op.known(right) is not None:
        other = by_public(op, right, abs(second), positive=second >= 0, number=True)
    if mine is not None and other is not None:
        return _both(op, mine, other)
    fact = mine or other or UNKNOWN
    public = (right * second if isinstance(right, Tensor) else float(right) * second) if mine is not None else left
    varies = any(isinstance(value, Tensor) and op.known(value) is None and op.drawn(value) for value in (left, right))
    above = not varies and op.nonnegative(public) and fact.positive
    size = math.inf if varies else op.size(public)
    lifted = {CONSTANT: size} if above and _is_number(public) and size else {}
    return without_size(op, fact).changed(
        entry=least({CONSTANT: constant(fact.entries()) + size}),
        low=least(fact.low, lifted) if above else {},
        positive=above,
        vanishes=fact.vanishes and size == 0,
    )


def without_size(op: Operation, fact: Fact) -> Fact:
    """What stays if something public is added: how far the tensor moves, but not how large it is."""
    rows = op.out.shape[fact.axis] if fact.axis is not None else 1
    moves = fact.moved(rows, width_of(op.out, fact.axis))
    return Fact(axis=fact.axis, finite=fact.finite, moves=moves, why=fact.why)


def _both(op: Operation, mine: Fact, other: Fact) -> Fact:
    """The sum of two private tensors in the shape of the result."""
    rowwise = mine.axis is not None and mine.axis == other.axis
    width = width_of(op.out, mine.axis)
    positive = mine.positive and other.positive
    moves = (without_size(op, mine).moves or Moves()).added(without_size(op, other).moves or Moves())
    return Fact(
        axis=mine.axis if rowwise else None,
        row=least({CONSTANT: constant(mine.rows(width)) + constant(other.rows(width))}) if rowwise else {},
        entry=least({CONSTANT: constant(mine.entries()) + constant(other.entries())}),
        low=least(mine.low, other.low) if positive else {},
        finite=mine.finite and other.finite,
        positive=positive,
        vanishes=mine.vanishes and other.vanishes,
        moves=moves,
    )


@rule("neg", "neg_")
def _negated(op: Operation) -> Fact | None:
    return by_public(op, op.args[0], 1.0, positive=False, number=True)


@rule("abs")
def _absolute(op: Operation) -> Fact | None:
    return op.first.changed(positive=True, moves=op.first.moves)


@rule("clamp", "clamp_", "clamp_min", "clamp_max", "hardtanh", "clamp_min_", "clamp_max_", "minimum", "maximum")
def _clamped(op: Operation) -> Fact | None:
    limits = _limits(op)
    if limits is None:
        return None
    tensor, low, high = limits
    fact = broadcast(op, tensor)
    falls = low is None and fact.positive and high is not None and high >= 0
    return Fact(
        axis=fact.axis,
        # What is not negative and only falls stays within all that bounds its size.
        row=fact.row if falls else {},
        whole=fact.whole if falls else {},
        entry=_clamped_size(fact, low, high),
        low=least({CONSTANT: low} if low is not None and low > 0 else {}, fact.low if high is None else {}),
        finite=fact.finite or high is not None,
        positive=(fact.positive and (high is None or high >= 0)) or (low is not None and low >= 0),
        vanishes=fact.vanishes and (low is None or low <= 0) and (high is None or high >= 0),
        moves=fact.moves,
        why=f"{op.name} without a limit below" if low is None and not fact.positive else "",
    )


def _limits(op: Operation) -> tuple[Tensor, float | None, float | None] | None:
    """The private tensor, and the numbers between which it is moved; None where they are private, too."""
    tensor = op.args[0]
    if op.name in ("minimum", "maximum"):
        private = [value for value in op.args if op.known(value) is not None]
        if len(private) != 1:
            return None
        (tensor,), limit = private, next(value for value in op.args if value is not private[0])
        below, above = (None, limit) if op.name == "minimum" else (limit, None)
    else:
        below = None if op.name.startswith("clamp_max") else op.argument(1, "min")
        above = op.argument(1, "max") if op.name.startswith("clamp_max") else None
        if not op.name.startswith("clamp_m"):
            above = op.argument(2, "max")
    limits = (below, above)
    if any(op.known(v) is not None or (isinstance(v, Tensor) and op.drawn(v)) for v in limits):
        return None
    low = None if below is None else float(below.min() if isinstance(below, Tensor) else below)
    high = None if above is None else float(above.max() if isinstance(above, Tensor) else above)
    # A limit that differs by entry is a number for a value that is not negative; for others both sides would be asked.
    several = any(isinstance(limit, Tensor) and limit.numel() > 1 for limit in limits)
    if several and not ((op.known(tensor) or UNKNOWN).positive and all(v is None or v >= 0 for v in (low, high))):
        return None
    return tensor, low, high


def _clamped_size(fact: Fact, low: float | None, high: float | None) -> Bounds:
    sides = [abs(limit) for limit in (low, high) if limit is not None]
    if low is not None and high is not None:
        return least({CONSTANT: max(sides)}, fact.entries() if low <= 0 <= high else {})
    if high is not None and fact.positive:
        return least({CONSTANT: abs(high)}, fact.entries() if high >= 0 else {})
    return least({CONSTANT: constant(fact.entries()) + sides[0]}) if sides else fact.entries()


@rule("tanh", "sigmoid", "sin", "cos", "erf")
def _bounded(op: Operation) -> Fact | None:
    fact = op.first
    return Fact(
        axis=fact.axis,
        entry={CONSTANT: 1.0},
        finite=fact.finite or op.name in ("tanh", "sigmoid", "erf"),
        positive=op.name == "sigmoid",
        vanishes=fact.vanishes and op.name in ("tanh", "sin", "erf"),
    )


@rule("relu", "relu_")
def _rectified(op: Operation) -> Fact | None:
    fact = op.first
    return fact.changed(positive=True, low={}, moves=fact.moves)


@rule("_softmax")
def _softmax(op: Operation) -> Fact | None:
    """Over the columns of each row, a distribution: no longer than 1, and two are at most √2 apart."""
    fact, dim = op.first, int(op.args[1]) % op.args[0].dim()
    alone = fact.axis is not None and dim != fact.axis
    whole_row = alone and width_of(op.args[0], fact.axis) == op.args[0].shape[dim]
    return Fact(
        axis=fact.axis if alone else None,
        row={CONSTANT: 1.0} if whole_row else {},
        entry={CONSTANT: 1.0},
        finite=fact.finite,
        positive=True,
    )


@rule("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not", "bitwise_and", "bitwise_or")
def _compared(op: Operation) -> Fact | None:
    return entrywise(op).changed(entry={CONSTANT: 1.0}, positive=True)


@rule("where")
def _chosen(op: Operation) -> Fact | None:
    condition, left, right = op.args
    asked, mine, other = (op.known(value) for value in (condition, left, right))
    if mine is None or other is None:
        return None
    fact = broadcast(op, left).either(broadcast(op, right))
    if asked is not None and broadcast(op, condition).axis != fact.axis:
        fact = fact.changed(axis=None)
    return fact


# Products of matrices


@rule("mm", "bmm")
def product_of_matrices(op: Operation) -> Fact | None:
    left, right = op.args[0], op.args[1]
    mine, other = op.known(left), op.known(right)
    if mine is not None and other is not None:
        return _two_private(op, mine, other)
    fact, tensor, public = (mine, left, right) if mine is not None else (other or UNKNOWN, right, left)
    drawn = op.drawn(public)
    size = math.inf if drawn else float(torch.linalg.matrix_norm(public.detach().double(), ord=2).max())
    contracted = tensor.dim() - 1 if mine is not None else tensor.dim() - 2
    if fact.axis == contracted and not fact.own:
        fact = without_rows(tensor, fact)
    if fact.axis == contracted:
        # Each record meets one row, or column, of the public matrix.
        dim = -1 if mine is not None else -2
        longest = math.inf if drawn else float(torch.linalg.vector_norm(public.detach().double(), dim=dim).max())
        row = constant(fact.rows(width_of(tensor, fact.axis)))
        term = 0.0 if row == 0 else row * longest
        return _over_records(fact.changed(positive=False), term, tensor.shape[fact.axis])
    return fact.changed(
        row=_scaled(fact.rows(width_of(tensor, fact.axis)), size) if fact.axis is not None else {},
        whole=_scaled(fact.whole, size),
        entry={},
        low={},
        positive=False,
        moves=fact.moves.scaled(size) if fact.moves else None,
    )


@rule("mv")
def _matrix_by_vector(op: Operation) -> Fact | None:
    """As the product with a matrix of one column, of which the axis of columns is then left out."""
    left, right = op.args[0], op.args[1]
    column = right.detach().unsqueeze(1)
    matrices = Operation(
        "mm",
        op.out.detach().unsqueeze(1),
        (left, column),
        {},
        op.known,
        op.named,
        lambda value: op.drawn(right if value is column else value),
    )
    fact = op.known(right)
    fact = product_of_matrices(matrices if fact is None else matrices.with_fact(column, fact))
    return fact if fact is None or fact.axis in (None, 0) else UNKNOWN


def _two_private(op: Operation, mine: Fact, other: Fact) -> Fact | None:
    """Products of each record's own matrices, summed over the records or not."""
    left, right = op.args[0], op.args[1]
    size = left.dim()
    if mine.axis is None or other.axis is None:
        return None
    terms = times(mine.rows(width_of(left, mine.axis)), other.rows(width_of(right, other.axis)))
    vanishes = mine.vanishes or other.vanishes
    if size == 3 and mine.axis == other.axis == 0:
        return Fact(axis=0, row=terms, finite=mine.finite and other.finite, vanishes=vanishes)
    if mine.axis == size - 1 and other.axis == size - 2:
        term = Fact(finite=mine.finite and other.finite, vanishes=vanishes)
        own = mine.own and other.own and mine.order == other.order
        return _over_records(term, constant(terms), left.shape[mine.axis], own=own, joint=shares(terms))
    return None


def entrywise(op: Operation) -> Fact:
    """Of an operation on entries that has no rule of its own: rows stay rows, and nothing bounds them."""
    given = (*op.args, *op.kwargs.values())
    axes = {broadcast(op, value).axis for value in given if op.known(value) is not None}
    return Fact(axis=axes.pop() if len(axes) == 1 else None)


# Gradients of losses


@rule("_log_softmax")
def _log_probabilities(op: Operation) -> Fact | None:
    dim = int(op.args[1]) % op.args[0].dim()
    return Fact(axis=op.first.axis if op.first.axis != dim else None)


@rule("nll_loss_backward")
def _of_likelihood(op: Operation) -> Fact | None:
    """One entry of each row, that of its label: minus the gradient of the loss, over the rows if it is their mean."""
    gradient, scores, labels, weight, reduction = op.args[:5]
    private = [fact for value in (scores, labels) if (fact := op.known(value)) is not None]
    if op.known(gradient) is not None or weight is not None or not private or scores.dim() != 2:
        return None
    size = op.size(gradient) / (len(scores) if int(reduction) == 1 else 1)
    # The number of labels that count, which is private too, is that of all: labels are those of classes.
    axis, own, order = axis_of(private)
    fact = Fact(axis=0, row=least({CONSTANT: size}), entry=least({CONSTANT: size}), single=True)
    return replace(fact, own=own and axis == 0, order=order)


@rule("_log_softmax_backward_data")
def _of_scores(op: Operation) -> Fact | None:
    """c · (softmax - one-hot) for a gradient with one entry -c in each row: at most √2 c, at opposite corners."""
    gradient, probabilities = op.known(op.args[0]), op.known(op.args[1])
    if gradient is None or not gradient.single or (probabilities is not None and probabilities.axis != gradient.axis):
        return None
    bounds = _scaled(gradient.row, math.sqrt(2))
    return Fact(axis=gradient.axis, row=bounds, entry=gradient.row)
