"""The tracer: follows private values and draws through every operation of torch, and runs each in both worlds.

A value that differs between the worlds has a shadow, on which the same operation is run. A value with noise over every
private element is `masked`: linear operations carry gap and noise along, anything else first seals it, that is, notes
the gap and goes on with the value as public. It is sealed no sooner, so that noise that is added later counts too.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from vflpriv.audits.bounds.proved import Following as Bounding
from vflpriv.audits.flow.draws.recipes import Recipe, applied
from vflpriv.audits.flow.draws.rows import Rows, fineness
from vflpriv.audits.flow.plain.wire import identical
from vflpriv.audits.flow.tracer import choices, picked, sampling
from vflpriv.audits.flow.tracer.calls import Call, schema
from vflpriv.audits.flow.tracer.events import PLACE
from vflpriv.audits.flow.tracer.following import Following
from vflpriv.audits.flow.tracer.linear import noise_of_results
from vflpriv.audits.flow.tracer.lines import program_line
from vflpriv.audits.flow.tracer.storages import NOTHING, State, elements, whole

__all__ = ["Trace"]

_MASKED_TERMS = 1 << 18
"""A masked value whose noise would have more terms after an operation is sealed before it."""
_RECIPE_ELEMENTS = 1 << 17
_RANDOM = torch.Tag.nondeterministic_seeded
_SHAPES = frozenset(
    {"zeros_like", "ones_like", "empty_like", "full_like", "new_zeros", "new_ones", "new_empty", "new_empty_strided"}
)
"""Operations that read of a tensor its size and dtype only."""
_ROUNDING = frozenset({"round", "round_", "floor", "floor_", "ceil", "ceil_", "trunc", "trunc_"})
_OFF_GRID = 1e-9
"""By how much, relative to its size, a whole number of steps may be off by the rounding of doubles."""
_MOST_SUMMED = 64
_LOSSES = frozenset(
    f"aten::{name}"
    for name in (
        *("nll_loss_forward", "nll_loss2d_forward", "binary_cross_entropy", "binary_cross_entropy_with_logits"),
        *("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss", "multi_margin_loss"),
    )
)
"""Operations whose second argument is what predictions are compared with."""
_TARGETS = 64
_LOOKUPS = frozenset({"argmax", "argmin", "argsort", "sort", "topk", "kthvalue", "max", "min", "median", "nonzero"})
"""Operations that give the places of entries."""
_LISTS = ("_foreach_", "_fused_", "_amp_foreach_")


class _Way(Enum):
    """What an operation is to the tracer, whatever its arguments."""

    FOLLOWED = 1
    PASSES = 2
    """It makes another view of some memory, or reads a shape alone."""
    DRAWS = 3
    LOSS = 4


_WAYS: dict[Any, _Way] = {}


def _way(op: Any) -> _Way:
    """The way of an operation, found out once."""
    way = _WAYS.get(op)
    if way is None:
        name, written, _, views, _ = schema(op)
        if _RANDOM in op.tags:
            way = _Way.DRAWS
        elif op._schema.name in _LOSSES:
            way = _Way.LOSS
        else:
            way = _Way.PASSES if name in _SHAPES or (views and not written) or name == "set_" else _Way.FOLLOWED
        _WAYS[op] = way
    return way


class Trace(Following, TorchDispatchMode):
    """Follows one run of a program in world 0; `others` are fingerprints of its draws under another seed.

    Draws before the first private value, such as initial weights, are public; with `early` they are followed too.
    """

    def __init__(self, others: Sequence[bytes] = (), *, early: bool = False, bounds: Bounding | None = None) -> None:
        TorchDispatchMode.__init__(self)
        Following.__init__(self, others, early=early, bounds=bounds)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Wrapping every operation for the compiler costs as much as following it.
        return False

    # Operations

    def __torch_dispatch__(self, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.pausing:
            return op(*args, **kwargs)
        self.operations += 1
        way = _WAYS.get(op) or _way(op)
        if way is _Way.PASSES and not self.table.sizes_differ and _strided(args):
            return op(*args, **kwargs)
        if way is _Way.LOSS:
            self._target(args[1])
        random = way is _Way.DRAWS
        if not random and not self._touches(args, kwargs):
            return op(*args, **kwargs)
        self.pausing += 1
        try:
            call = Call(op, args, kwargs)
            if call.name == "_local_scalar_dense":
                self.host_read(call.tensors[0], PLACE)
            if any(tensor.layout != torch.strided for tensor in call.tensors):
                return self._sparse(call)
            return sampling.draw(self, call) if random else self._follow(call)
        finally:
            self.pausing -= 1

    def _target(self, target: Tensor) -> None:
        """Keep what a loss compares predictions with, if it is public: labels may have come another way."""
        if self.table.of(target) is None and len(self.targets) < _TARGETS:
            self.targets.append((target.detach().clone(), program_line()))

    def _sparse(self, call: Call) -> Any:
        """Sparse tensors are followed only where there is nothing private about them."""
        parts = [p for t in call.tensors for p in ((t,) if t.layout == torch.strided else _parts(t))]
        states = [state for part in parts if (state := self.table.of(part)) is not None]
        if any(state.taint or state.shadow is not None for state in states):
            self.lose(f"the sparse tensors of {call.name} are not followed")
        for number in call.written:
            state = self.table.of(call.tensors[number]) if call.tensors[number].layout == torch.strided else None
            if state is not None and state.rows is not None:
                used = state.rows.used
                state.forget_draws()
                state.opaque = used
        return call.op(*call.args, **call.kwargs)

    def _touches(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a private value or a draw is among the arguments."""
        known = self.table.known
        for value in (*args, *kwargs.values()) if kwargs else args:
            if isinstance(value, Tensor):
                if value.layout is not torch.strided:
                    if self._touches(_parts(value), {}):
                        return True
                elif value.untyped_storage()._cdata in known:
                    return True
            elif isinstance(value, list | tuple):
                for entry in value:
                    if isinstance(entry, Tensor) and entry.untyped_storage()._cdata in known:
                        return True
        return False

    def _follow(self, call: Call) -> Any:
        if call.name.startswith(_LISTS):
            return self._each(call)
        if _way(call.op) is _Way.PASSES:
            return self._viewed(call)
        if call.name == "copy_" and all(tensor.dtype == torch.uint8 and whole(tensor) for tensor in call.tensors):
            return self._bytes(call)
        states = self.inputs(call)
        if not any(state is not None and state.random for state in states):
            out = self.both(call)
            self._settle(call, out, states)
            return out
        made = picked.put_back(self, self._follow, call)
        if made is not None:
            return self._replaced(call, made)
        out = self._with_draws(call, states)
        picked.pick(self, self._follow, call, out)
        picked.carry(self, self._follow, call, out)
        return out

    def _replaced(self, call: Call, made: Tensor) -> Any:
        """What an operation makes, where it is known how to make the same in another way."""
        out = call.op(*call.args, **call.kwargs)
        (result,) = call.results(out)
        state = self.table.of(made)
        if whole(result) and whole(made) and state is not None and identical(result, made):
            self.table.enter(result).take(state)
        else:
            self.lose(f"{call.name} puts drawn values where a drawn mask is")
        return out

    def _viewed(self, call: Call) -> Any:
        """A view, or a new tensor of a shape; of what has another size in the other world, that one's is taken too."""
        out = call.op(*call.args, **call.kwargs)
        state = self.table.of(call.tensors[0])
        if state is not None and state.variants:
            others = [self.table.other(tensor) for tensor in call.tensors]
            for result, other in zip(_listed(out), _listed(call.run(others)), strict=False):
                self.table.differ_in_size(result, other)
        return out

    def _bytes(self, call: Call) -> Any:
        """The bytes of a storage are copied, whatever numbers they are: `copy.deepcopy` of weights does that."""
        target, source = call.tensors
        out, state = call.op(*call.args, **call.kwargs), self.table.of(source)
        if state is None:
            self.table.drop(target)
        else:
            self.table.enter(target).take(state)
        return out

    def _each(self, call: Call) -> Any:
        """An operation on lists, one element after another: what happens to one has nothing to do with the others."""
        lists = [value for value in call.args if isinstance(value, list | tuple) and value]
        count = max(len(value) for value in lists)

        def part(value: Any, place: int) -> Any:
            return [value[place]] if isinstance(value, list | tuple) and len(value) == count else value

        made: list[Any] = []
        for place in range(count):
            args = tuple(part(value, place) for value in call.args)
            kwargs = {name: part(value, place) for name, value in call.kwargs.items()}
            single = Call(call.op, args, kwargs)
            states = self.inputs(single)
            if any(state is not None and state.random for state in states):
                out = self._with_draws(single, states)
            else:
                out = self.both(single)
                self._settle(single, out, states)
            if isinstance(out, list | tuple):
                made.extend(out)
        return made if made or not call.written else None

    def _settle(self, call: Call, out: Any, states: Sequence[State | None]) -> None:
        """Private values and seals reach all results; no draw does."""
        taint = seals = NOTHING
        for state in states:
            if state is not None:
                taint, seals = taint | state.taint, seals | state.seals
        for result in call.results(out):
            if not taint and not seals:
                self._cleared(result)
                continue
            state = self.mark(result, taint, seals, masked=False)
            state.place = state.place or (bool(taint) and call.name in _LOOKUPS and result.dtype == torch.int64)

    def _cleared(self, result: Tensor) -> None:
        """A result with nothing private and no draw in it."""
        state = self.table.of(result)
        if state is not None and whole(result):
            self.table.drop(result)
        elif state is not None and state.rows is not None:
            state.rows = state.rows.put(elements(result), Rows.empty(result.numel()))

    # Operations on draws

    def _with_draws(self, call: Call, states: list[State | None]) -> Any:
        if any(state is not None and state.variants for state in states):
            self.lose(f"{call.name}: draws meet private values whose number differs between the worlds")
            return call.op(*call.args, **call.kwargs)
        if call.pointwise and any(state is not None and state.coin is not None for state in states):
            tossed = choices.through(self, call, states)
            if tossed is not None:
                return tossed
        rows = self._linear(call, states)
        if rows is None and call.pointwise:
            for tossed in (choices.compared, choices.stepped, choices.floored):
                made_of_coins = tossed(self, call, states)
                if made_of_coins is not None:
                    return made_of_coins
        if rows is None:
            picked = choices.noisy_largest(self, call, states)
            if picked is not None:
                return picked
            self._seal_masked(call, states)
            states = self.inputs(call)
        made = self._recipe(call, states)
        out = self.both(call)
        self._settle_draws(call, out, states, rows, made)
        return out

    def _linear(self, call: Call, states: list[State | None]) -> list[Rows] | None:
        """The noise of the results, if the operation is affine in it and private values do not change its slope."""
        private = any(state is not None and state.raw for state in states)
        noisy: dict[int, Rows] = {}
        moving: list[int] = []
        for number, (tensor, state) in enumerate(zip(call.tensors, states, strict=True)):
            if state is None:
                continue
            if (state.recipe is not None and state.rows is None) and (private or not call.pointwise):
                self.resolve(tensor, state)
            if state.rows is not None and (rows := self.rows_of(tensor, state)) is not None:
                noisy[number] = rows
                if state.raw:
                    moving.append(number)
            elif state.raw or ((call.pointwise or tensor.is_floating_point()) and state.random):
                moving.append(number)
        if not noisy:
            return None
        if _rounds(call) and not private and (unrounded := self._unrounded(call, noisy)) is not None:
            return [unrounded]
        if call.name == "_to_copy" and _coarser(call) and any(s is not None and s.masked and s.taint for s in states):
            # The gap is that of before the rounding.
            return None
        masked = any(states[number].masked and states[number].taint for number in noisy)  # type: ignore[union-attr]
        return noise_of_results(call, noisy, moving, _MASKED_TERMS if masked else _MASKED_TERMS * 8)

    def _unrounded(self, call: Call, noisy: dict[int, Rows]) -> Rows | None:
        """Noise that lies on whole numbers already: rounding does nothing to it, whatever is drawn."""
        rows, value = noisy[0], call.tensors[0].detach()
        if len(call.tensors) != 1 or rows.columns.shape[1] > _MOST_SUMMED or not bool((rows.columns >= 0).all()):
            return None
        ratios = rows.scales * self.draws.grids(rows.columns)
        steps = ratios.round()
        on_grid = bool((ratios - steps).abs().le(_OFF_GRID * steps.abs()).all()) and bool((steps != 0).all())
        # The spread that sums of correlated noise are rounded with is further noise.
        if rows.columns.shape[1] > 1:
            on_grid = bool((self.draws.grids(rows.columns) > 0).all())
        whole = bool((value - value.round()).abs().le(_OFF_GRID * (1 + value.abs())).all())
        return rows if on_grid and whole else None

    def _seal_masked(self, call: Call, states: Sequence[State | None]) -> None:
        for tensor, state in zip(call.tensors, states, strict=True):
            if state is not None and state.masked and state.taint:
                self.seal(tensor, state)

    def _recipe(self, call: Call, states: Sequence[State | None]) -> Recipe | None:
        """How a pointwise operation makes its result of few draws; None where that is not so simple."""
        if not call.pointwise or any(state is not None and (state.taint or state.coin) for state in states):
            return None
        if not all(s is None or not s.random or s.recipe is not None for s in states):
            return None
        shape = call.shape
        if shape.numel() > _RECIPE_ELEMENTS or any(t.is_complex() for t in call.tensors):
            return None
        operands: list[Recipe | Tensor | None] = []
        precision = 0.0
        for tensor, state in zip(call.tensors, states, strict=True):
            if state is not None and state.recipe is not None:
                if len(state.recipe.columns) * tensor.element_size() != tensor.untyped_storage().nbytes():
                    return None
                places = elements(tensor).reshape(tensor.shape).expand(shape).reshape(-1)
                operands.append(state.recipe.at(places))
                precision = max(precision, state.recipe.precision)
            else:
                public = tensor.detach().expand(shape).reshape(-1).clone()
                operands.append(public.double() if public.is_floating_point() else public)
        if call.written and call.tensors[call.written[0]].shape != shape:
            return None

        def function(tensors: Sequence[Tensor]) -> Tensor:
            return call.results(call.run(list(tensors), double=True), list(tensors))[0]

        return applied(function, operands, precision)

    def _settle_draws(
        self, call: Call, out: Any, states: Sequence[State | None], rows: list[Rows] | None, recipe: Recipe | None
    ) -> None:
        taint = NOTHING.union(*[state.taint for state in states if state is not None])
        seals = NOTHING.union(*[state.seals for state in states if state is not None])
        raw = any(state is not None and state.raw for state in states)
        spent = self.spent(call, states, linear=rows is not None)
        met = NOTHING.union(*[state.met for state in states if state is not None])
        for number, result in enumerate(call.results(out)):
            own, masked = None, False
            if rows is not None:
                own, cancelled = rows[number].merged()
                masked = bool(taint) and self._masks(own, cancelled, result, raw=raw)
                own = own.coarsened(fineness(result.dtype))
            state = self.mark(result, taint, seals, masked=masked)
            self.put(result, state, own, recipe if number == 0 else None, spent)
            if masked:
                known = [s.where for s in states if s is not None and s.masked and s.where]
                state.where = known[0] if known and not raw else program_line()
                assert own is not None
                state.met = met | self.meet(result, own) if raw else met

    def _masks(self, rows: Rows, cancelled: Tensor, result: Tensor, *, raw: bool) -> bool:
        """Whether noise hides every private element of a result.

        Where a private value comes in, every element needs noise, as fine as the number format. Elements of masked
        values keep theirs, unless it cancels.
        """
        if bool(cancelled.any()):
            return False
        if not raw:
            return True
        fine = not result.dtype.is_floating_point or rows.precision <= fineness(result.dtype)
        self.coarse = self.coarse or not fine
        return fine and bool(rows.covered.all())


def _strided(args: tuple[Any, ...]) -> bool:
    return bool(args) and isinstance(args[0], Tensor) and args[0].layout is torch.strided


def _listed(out: Any) -> list[Tensor]:
    return [value for value in (out if isinstance(out, list | tuple) else (out,)) if isinstance(value, Tensor)]


def _parts(sparse: Tensor) -> tuple[Tensor, ...]:
    """The dense tensors of a sparse one in coordinate form."""
    return (sparse._indices(), sparse._values()) if sparse.layout is torch.sparse_coo else ()


def _rounds(call: Call) -> bool:
    """Whether an operation makes whole numbers of others."""
    dtype = call.kwargs.get("dtype")
    return call.name in _ROUNDING or (call.name == "_to_copy" and dtype in (torch.int64, torch.int32))


def _coarser(call: Call) -> bool:
    """Whether a cast is to a coarser number format."""
    dtype, own = call.kwargs.get("dtype"), call.tensors[0].dtype
    return dtype is not None and dtype.is_floating_point and fineness(dtype) > fineness(own)
