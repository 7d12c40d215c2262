"""Elements that a drawn mask picks: randomised response as `labels[mask] = other[mask]`, rewritten as `where`.

How many elements a mask picks depends on its draws, so that no element of what it picks has a law of its own. The
tensor that it picks from has: it goes through the same operations whole, and where the results are put back by the same
mask, they are `where(mask, whole, before)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vflpriv.audits.flow.draws.recipes import Coin, Outcome
from vflpriv.audits.flow.tracer.calls import Call
from vflpriv.audits.flow.tracer.following import Following
from vflpriv.audits.flow.tracer.storages import Picked, whole

__all__ = ["carry", "pick", "put_back"]

_ATEN = torch.ops.aten
Follow = Callable[[Call], Any]


def pick(trace: Following, follow: Follow, call: Call, out: Any) -> None:
    """After `tensor[mask]`: keep the whole tensor with what was picked of it."""
    if call.name == "nonzero" and call.tensors[0].dim() == 1 and (known := trace.table.of(call.tensors[0])) is not None:
        if known.coin is not None and call.tensors[0].dtype == torch.bool:
            trace.table.enter(out).picked = Picked(call.tensors[0], call.tensors[0]._version)
        return
    if call.name != "index" or (mask := _mask(trace, call)) is None:
        return
    state = trace.table.of(out)
    if state is not None and whole(out):
        state.picked = Picked(mask, mask._version, follow(Call(_ATEN.clone.default, (call.tensors[0],), {})))


def _mask(trace: Following, call: Call) -> Tensor | None:
    """The mask over all elements by which an operation indexes its first argument, if draws made it.

    The places where a mask is true index as the mask does.
    """
    indices = call.args[1]
    if len(indices) != 1 or not isinstance(mask := indices[0], Tensor):
        return None
    if mask.dtype != torch.bool:
        places = trace.table.of(mask)
        own = None if places is None or not whole(mask) else places.picked
        if own is None or own.everything is not None or own.mask._version != own.version or mask.dim() != 1:
            return None
        mask = own.mask
    state = trace.table.of(mask)
    return mask if state is not None and state.coin is not None and mask.shape == call.tensors[0].shape else None


def carry(trace: Following, follow: Follow, call: Call, out: Any) -> None:
    """After a pointwise operation on what a mask picked: the same on all that it picked from."""
    if not call.pointwise or call.written or not isinstance(out, Tensor):
        return
    states = [trace.table.of(tensor) for tensor in call.tensors]
    picked = [state.picked for state in states if state is not None and state.picked is not None]
    same = all(own.mask is picked[0].mask and own.everything is not None for own in picked)
    if not picked or not whole(out) or not same:
        return
    tensors = []
    for tensor, state in zip(call.tensors, states, strict=True):
        if state is not None and state.picked is not None and state.picked.everything is not None:
            tensors.append(state.picked.everything)
        elif tensor.dim() == 0 and state is None:
            tensors.append(tensor)
        else:
            return
    everything = follow(call.on(tensors))
    trace.table.enter(out).picked = Picked(picked[0].mask, picked[0].version, everything)


def put_back(trace: Following, follow: Follow, call: Call) -> Tensor | None:
    """What `tensor[mask] = values` or `masked_scatter` make, as `where`; None where that is not what it is."""
    if call.name in ("index_put", "index_put_", "_index_put_impl_"):
        mask, values = _mask(trace, call), call.args[2]
        if len(call.args) > 3 and call.args[3]:
            return None
    elif call.name in ("masked_scatter", "masked_scatter_"):
        mask, values = call.args[1], call.args[2]
    else:
        return None
    known = None if mask is None else trace.table.of(mask)
    if mask is None or known is None or known.coin is None or mask.shape != call.tensors[0].shape or known.taint:
        return None
    everything = _everything(trace, follow, mask, values)
    if everything is None:
        return None
    made = follow(Call(_ATEN.where.self, (mask, everything, call.tensors[0]), {}))
    return made if isinstance(made, Tensor) else None


def _everything(trace: Following, follow: Follow, mask: Tensor, values: Tensor) -> Tensor | None:
    """The tensor from which the mask picks these values."""
    state = trace.table.of(values)
    if values.numel() == 1 and (state is None or not state.random):
        number: Tensor = follow(Call(_ATEN.clone.default, (values.reshape(()),), {}))
        return number
    if state is None:
        return None
    if state.picked is not None:
        same = state.picked.mask is mask and state.picked.version == mask._version
        return state.picked.everything if same else None
    if state.coin is None or state.taint or not whole(values):
        return None
    return _of_fresh_draws(trace, mask, values, state.coin)


def _of_fresh_draws(trace: Following, mask: Tensor, values: Tensor, coin: Coin) -> Tensor | None:
    """Values of which each has the same law and draws of its own: those that were not picked have further ones."""
    columns, count = coin.columns, int(mask.sum())
    if columns.shape[1] != 1 or len(columns) < count or len(torch.unique(columns)) != columns.numel():
        return None
    if not len(columns) or not all(_alike(o) for o in coin.outcomes):
        return None
    family = trace.draws.family(columns.reshape(-1))
    if family is None:
        return None
    places = mask.reshape(-1)
    everything = values.reshape(-1)[:1].expand(mask.numel()).clone()
    everything[places] = values.reshape(-1)[:count]
    own = trace.draws.add(family, mask.numel())
    own[places] = columns.reshape(-1)[:count]
    everything = everything.reshape(mask.shape)
    first = torch.zeros(mask.numel(), dtype=torch.int64)
    trace.table.enter(everything).coin = Coin(own[:, None], coin.at(first).outcomes)
    return everything


def _alike(outcome: Outcome) -> bool:
    """Whether an outcome has one value and one probability for all elements."""
    return all(bool((part == part[:1]).all()) for part in (*outcome.values, *outcome.weights))
