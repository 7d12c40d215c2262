"""Rules of operations that choose, join or look up rows of records, and of layers that compute each row by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from vflpriv.audits.bounds.facts import CONSTANT, Bounds, Fact, Moves, constant, least, norm_of
from vflpriv.audits.bounds.operations import (
    Operation,
    axis_of,
    broadcast,
    by_public,
    product_of_matrices,
    rule,
    width_of,
    without_size,
)

__all__ = ["ORDERED"]

ORDERED = frozenset(
    {"nll_loss_backward", "slice", "narrow", "split", "split_with_sizes", "select", "index", "index_select"}
)
"""Operations whose rules say of which records rows are; of others they are those of the arguments."""


# Some rows, some columns


@rule("select", "slice", "narrow", "split_with_sizes", "split")
def _part(op: Operation) -> Fact | None:
    """Some columns of all rows, or some rows."""
    fact, axis = op.first, op.first.axis
    dim = int(op.argument(2 if op.name.startswith("split") else 1, "dim", 0)) % op.args[0].dim()
    if axis is None or dim != axis:
        return fact.changed(axis=axis - 1 if axis is not None and op.name == "select" and dim < axis else axis)
    if op.name == "select":
        moves = fact.moved(op.args[0].shape[axis], width_of(op.args[0], axis))
        return replace(_constants(fact), axis=None, row={}, whole=_constant(fact.row), moves=moves)
    places = (op.name, op.out.storage_offset(), *map(str, op.args[1:]))
    return _chosen(fact, op.args[0], hash((fact.order, places)), once=True)


@rule("index", "index_select")
def _indexed(op: Operation) -> Fact | None:
    """Rows or columns by public numbers; rows of a public table by private ones."""
    tensor, places, dim = _lookup(op)
    if places is None:
        return None
    fact, asked = op.known(tensor), op.known(places)
    if fact is None:
        return None if asked is None else _looked_up(op, tensor, asked)
    if asked is not None:
        return None
    once = places.dtype == torch.bool or len(torch.unique(places)) == places.numel()
    if fact.axis != dim:
        return fact.changed(axis=fact.axis) if once else Fact(axis=fact.axis, entry=fact.entries(), finite=fact.finite)
    order = hash((fact.order, places.cpu().contiguous().numpy().tobytes()))
    return _chosen(fact, tensor, order, once=once)


def _lookup(op: Operation) -> tuple[Tensor, Tensor | None, int]:
    """The table, the numbers by which places along one axis are chosen, and that axis."""
    tensor = op.args[0]
    if op.name == "index_select":
        return tensor, op.args[2], int(op.args[1]) % tensor.dim()
    given = [(dim, places) for dim, places in enumerate(op.args[1]) if places is not None]
    if len(given) != 1 or given[0][1].dim() != 1:
        return tensor, None, 0
    return tensor, given[0][1], given[0][0]


def _chosen(fact: Fact, tensor: Tensor, order: int, *, once: bool) -> Fact:
    """Some of the rows, each once or not; norms of all rows are no norms of these."""
    moves = None
    if not fact.own and fact.axis is not None and once:
        moves = fact.moved(tensor.shape[fact.axis], width_of(tensor, fact.axis))
    return replace(_constants(fact), own=fact.own and once, order=order, moves=moves)


def _constants(fact: Fact) -> Fact:
    """What is known without norms of rows of other tensors."""
    return fact.changed(
        row=_constant(fact.row), whole={}, entry=_constant(fact.entries()), low=_constant(fact.low), moves=None
    )


def _constant(bounds: Bounds) -> Bounds:
    return least({CONSTANT: constant(bounds)})


def _looked_up(op: Operation, table: Tensor, places: Fact) -> Fact:
    entry = least({CONSTANT: op.size(table)})
    return Fact(axis=places.axis if places.axis == 0 else None, entry=entry, order=places.order)


@rule("embedding")
def _embedded(op: Operation) -> Fact | None:
    table, places = op.args[:2]
    asked = op.known(places)
    return _looked_up(op, table, asked) if op.known(table) is None and asked is not None else None


@rule("gather")
def _gathered(op: Operation) -> Fact | None:
    """Of each row some columns."""
    tensor, dim, places = op.args[0], int(op.args[1]) % op.args[0].dim(), op.args[2]
    given = [fact for value in (tensor, places) if (fact := op.known(value)) is not None]
    axis = axis_of(given)[0]
    if axis is None or axis == dim or places.shape[axis] != tensor.shape[axis]:
        return None
    entries = op.first.entries() if op.known(tensor) is not None else least({CONSTANT: op.size(tensor)})
    return Fact(axis=axis, entry=entries, finite=all(fact.finite for fact in given))


@rule("scatter", "scatter_")
def _scattered(op: Operation) -> Fact | None:
    """A public number at one place of each row of a public tensor, as for one-hot labels."""
    tensor, dim, places, value = op.args[0], int(op.args[1]) % op.args[0].dim(), op.args[2], op.args[3]
    asked = op.known(places)
    if op.known(tensor) is not None or asked is None or op.known(value) is not None or asked.axis in (None, dim):
        return None
    if op.out.dim() != 2 or places.shape[dim] != 1 or (op.name == "scatter" and bool(tensor.any())):
        return None
    size = least({CONSTANT: op.size(value)})
    return Fact(axis=asked.axis, row=size, entry=size, positive=op.nonnegative(value), single=True)


# Joined


@rule("cat", "stack")
def _joined(op: Operation) -> Fact | None:
    """Columns of the same rows beside each other, public ones among them or not."""
    parts: Sequence[Tensor] = op.args[0]
    facts = [op.known(tensor) for tensor in parts]
    dim = int(op.argument(1, "dim", 0)) % op.out.dim()
    private = [fact for fact in facts if fact is not None]
    axis, own, order = axis_of(private)
    if axis is None:
        return None
    place = axis + (op.name == "stack" and dim <= axis)
    if dim == place:
        return None
    if len(private) < len(parts):
        return Fact(axis=place, own=own, order=order, finite=all(fact.finite for fact in private))
    squares = sum(constant(fact.rows(width_of(part, axis))) ** 2 for part, fact in zip(parts, private, strict=True))
    return Fact(
        axis=place,
        own=own,
        order=order,
        row=least({CONSTANT: math.sqrt(squares)}),
        long=_longer_than(op, parts, private, axis),
        parts=_parts(parts, private, axis),
        entry=least({CONSTANT: max(constant(fact.entries()) for fact in private)}),
        finite=all(fact.finite for fact in private),
        positive=all(fact.positive for fact in private),
        vanishes=all(fact.vanishes for fact in private),
    )


def _longer_than(op: Operation, parts: Sequence[Tensor], facts: Sequence[Fact], axis: int) -> Bounds:
    """No part of a row is longer than the row."""
    return least(
        *(
            fact.low if fact.positive and width_of(part, axis) == 1 else norm_of(op.named(part), "row")
            for part, fact in zip(parts, facts, strict=True)
        )
    )


def _parts(parts: Sequence[Tensor], facts: Sequence[Fact], axis: int) -> tuple[frozenset[int], ...]:
    """By column the tensors of whose rows it holds the norms, where each part is one column; else nothing."""
    if any(width_of(part, axis) != 1 or not fact.positive for part, fact in zip(parts, facts, strict=True)):
        return ()
    lows = [[norms for norms, factor in fact.low.items() if factor >= 1] for fact in facts]
    return tuple(
        frozenset(norms[0][0][0] for norms in low if len(norms) == 1 and norms[0] == ((norms[0][0][0], "row"), 1.0))
        for low in lows
    )


# Sums with something public


@rule("addmm", "baddbmm", "addcmul", "addcmul_", "addmm_", "baddbmm_")
def _added(op: Operation) -> Fact | None:
    """A private tensor and a public product, or a private product and something public."""
    tensor, left, right = op.args[:3]
    known = [op.known(value) for value in (tensor, left, right)]
    if known[1] is None and known[2] is None:
        if float(op.kwargs.get("beta", 1)) != 1:
            return None
        return without_size(op, broadcast(op, tensor))
    if known[0] is not None or op.name.startswith("addcmul") or float(op.kwargs.get("alpha", 1)) != 1:
        return None
    product = product_of_matrices(
        Operation("mm" if left.dim() == 2 else "bmm", op.out, (left, right), {}, op.known, op.named, op.drawn)
    )
    return None if product is None else without_size(op, product)


@rule("normal")
def _around(op: Operation) -> Fact | None:
    """Noise around a private mean."""
    mean, std = op.args[0], op.argument(1, "std", 1.0)
    return without_size(op, broadcast(op, mean)) if op.known(mean) is not None and op.known(std) is None else None


# Layers


@rule("threshold_backward", "tanh_backward", "sigmoid_backward", "hardtanh_backward")
def _contracted(op: Operation) -> Fact | None:
    """A gradient times a number for each entry, between 0 and 1."""
    gradient, values = op.args[:2]
    fact, other = op.known(gradient), op.known(values)
    inside = (op.size(values) if other is None else constant(other.entries())) <= 1
    if fact is None or (not inside and op.name in ("tanh_backward", "sigmoid_backward")):
        return None
    moves = fact.moves if other is None else None
    return fact.changed(positive=fact.positive, low={}, moves=moves, single=fact.single)


@rule("native_dropout")
def _dropped_out(op: Operation) -> Fact | None:
    """Which entries drop out is public, and those that are left are larger."""
    if op.out.dtype == torch.bool:
        return Fact(axis=0, moves=Moves(replace=0.0, remove=0.0, client=0.0, empty=0.0))
    rate = float(op.args[1])
    grown = 1.0 if op.args[2] is False or rate >= 1 else 1 / (1 - rate)
    return by_public(op, op.args[0], grown, positive=True, number=False)


@rule("native_layer_norm")
def _normalised(op: Operation) -> Fact | None:
    """Rows, or parts of them, of a mean square of at most one, times the weights, plus the biases."""
    tensor, shape, weight, bias = op.args[:4]
    fact = op.known(tensor)
    apart = fact is not None and fact.axis is not None and fact.axis < tensor.dim() - len(shape)
    if fact is None or not apart or any(op.known(value) is not None for value in (weight, bias)):
        return None
    if op.out.shape != tensor.shape:
        return Fact(axis=fact.axis, finite=fact.finite)
    size = (1.0 if weight is None else op.size(weight)) + (0.0 if bias is None else op.size(bias))
    row = least({CONSTANT: size * math.sqrt(width_of(tensor, fact.axis))})
    return Fact(axis=fact.axis, row=row, finite=fact.finite)


@rule("convolution", "max_pool2d_with_indices", "avg_pool2d", "_adaptive_avg_pool2d", "im2col", "upsample_nearest2d")
def _of_each_picture(op: Operation) -> Fact | None:
    """A layer of public weights that computes each picture by itself: nothing bounds it."""
    fact = op.known(op.args[0])
    public = all(op.known(value) is None for value in op.args[1:])
    return Fact(axis=0, finite=fact.finite) if fact is not None and fact.axis == 0 and public else None


@rule(
    "convolution_backward",
    "native_layer_norm_backward",
    "max_pool2d_with_indices_backward",
    "avg_pool2d_backward",
    "_adaptive_avg_pool2d_backward",
)
def _to_each_record(op: Operation) -> Fact | None:
    """The gradient by the rows; that by the weights is a sum over all of them."""
    private = [fact for value in op.args if (fact := op.known(value)) is not None]
    return Fact(axis=0) if op.out.shape == op.args[1].shape and axis_of(private)[0] == 0 else None
