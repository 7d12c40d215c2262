"""The tracer: follows private values and draws through every operation of torch, and runs each in both worlds.

A value that differs between the worlds has a shadow, on which the same operation is run. A value with noise over every
private element is `masked`: linear operations carry gap and noise along, anything else first seals it, that is, notes
the gap and goes on with the value as public. It is sealed no sooner, so that noise that is added later counts too.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from vflpriv.audits.flow import choices, sampling
from vflpriv.audits.flow.calls import Call
from vflpriv.audits.flow.draws import Draws, fingerprint
from vflpriv.audits.flow.events import Choice, HostRead, Seal, Source
from vflpriv.audits.flow.linear import noise_of_results
from vflpriv.audits.flow.lines import program_line
from vflpriv.audits.flow.noise import Rows, no_columns
from vflpriv.audits.flow.recipes import Recipe, applied, recognise
from vflpriv.audits.flow.storages import NOTHING, State, Table, elements, whole
from vflpriv.audits.flow.wire import identical

__all__ = ["Trace"]

_MASKED_TERMS = 1 << 18
"""A masked value whose noise would have more terms after an operation is sealed before it."""
_RECIPE_ELEMENTS = 1 << 17
_RANDOM = torch.Tag.nondeterministic_seeded
_INDEXING = frozenset({"index", "index_select", "gather", "take", "embedding", "index_put", "index_put_", "index_add_"})
"""Operations whose integers choose elements. Which ones the draws chose is given to the adversary."""
_LISTS = ("_foreach_", "_fused_", "_amp_foreach_")


class Trace(TorchDispatchMode):
    """Follows one run of a program in world 0; `others` are fingerprints of its draws under another seed.

    Draws before the first private value, such as initial weights, are public; with `early` they are followed too.
    """

    def __init__(self, others: Sequence[bytes] = (), *, early: bool = False) -> None:
        super().__init__()
        self.table, self.draws, self.early = Table(), Draws(others), early
        self.sources: list[Source] = []
        self.seals: list[Seal | Choice] = []
        self.reads: list[HostRead] = []
        self.lost: list[str] = []
        """What could not be followed, and where."""
        self._prints: dict[int, bytes] = {}
        self.operations = 0
        self.pausing = 0
        self.thread = threading.get_ident()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Operations of the tracer itself."""
        self.pausing += 1
        try:
            yield
        finally:
            self.pausing -= 1

    def lose(self, why: str) -> None:
        """Note something that could not be followed."""
        note = f"{program_line()}: {why}"
        if note not in self.lost:
            self.lost.append(note)

    def source(self, value: Tensor, other: Tensor, source: Source) -> Tensor:
        """A private value."""
        with self.paused():
            value = value.detach().clone()
            self.sources.append(source)
            state = self.table.enter(value)
            state.taint = frozenset({len(self.sources) - 1})
            if not identical(value, other):
                shadow = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype)
                state.shadow = shadow.copy_(other).untyped_storage()
        return value

    # Operations

    def __torch_dispatch__(self, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.pausing:
            return op(*args, **kwargs)
        self.operations += 1
        random = _RANDOM in op.tags
        if not random and not self._touches(args, kwargs):
            return op(*args, **kwargs)
        self.pausing += 1
        try:
            call = Call(op, args, kwargs)
            if any(tensor.layout != torch.strided for tensor in call.tensors):
                self.lose(f"the sparse tensors of {call.name} are not followed")
                return op(*args, **kwargs)
            return sampling.draw(self, call) if random else self._follow(call)
        finally:
            self.pausing -= 1

    def _touches(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a private value or a draw is among the arguments."""
        known = self.table.known
        for value in (*args, *kwargs.values()) if kwargs else args:
            if isinstance(value, Tensor):
                if value.layout is not torch.strided or value.untyped_storage()._cdata in known:
                    return True
            elif isinstance(value, list | tuple):
                for entry in value:
                    if isinstance(entry, Tensor) and entry.untyped_storage()._cdata in known:
                        return True
        return False

    def _follow(self, call: Call) -> Any:
        if call.name.startswith(_LISTS):
            return self._each(call)
        if call.views and not call.written:
            return call.op(*call.args, **call.kwargs)
        states = self.inputs(call)
        if not any(state is not None and state.random for state in states):
            out = self.both(call)
            self._settle(call, out, states)
            return out
        return self._with_draws(call, states)

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
            if any(state is not None for state in states):
                out = self._with_draws(single, states) if any(s is not None and s.random for s in states) else None
                if out is None:
                    out = self.both(single)
                    self._settle(single, out, states)
            else:
                out = call.op(*args, **kwargs)
            if isinstance(out, list | tuple):
                made.extend(out)
        return made if made or not call.written else None

    def inputs(self, call: Call) -> list[State | None]:
        """What is known of each argument; nothing of those that are overwritten."""
        return [
            None if number in call.written and call.overwritten(number) else self.table.of(tensor)
            for number, tensor in enumerate(call.tensors)
        ]

    def both(self, call: Call) -> Any:
        """Run an operation, and again on the shadows if there are any."""
        states = [self.table.of(tensor) for tensor in call.tensors]
        if not any(state is not None and state.shadow is not None for state in states):
            return call.op(*call.args, **call.kwargs)
        for number in call.written:
            state = self.table.enter(call.tensors[number])
            if state.shadow is None:
                state.shadow = call.tensors[number].untyped_storage().clone()
        others = [self.table.other(tensor) for tensor in call.tensors]
        out = call.op(*call.args, **call.kwargs)
        try:
            shadows = call.results(call.run(others), others)
        except (RuntimeError, IndexError, ValueError) as error:
            self.lose(f"{call.name} fails in the other world: {str(error).splitlines()[0][:80]}")
            return out
        self.link(call, call.results(out), shadows)
        return out

    def link(self, call: Call, results: list[Tensor], shadows: list[Tensor]) -> None:
        made = len(results) - len(call.written)
        for number, (result, shadow) in enumerate(zip(results, shadows, strict=True)):
            if result.shape != shadow.shape or result.dtype != shadow.dtype:
                self.lose(f"{call.name} gives {tuple(result.shape)} in one world, {tuple(shadow.shape)} in the other")
                continue
            same = identical(result, shadow)
            if number >= made:
                if same and whole(result):
                    self.table.enter(result).shadow = None
            elif not same:
                self.table.enter(result).shadow = laid_out(result, shadow)

    def _settle(self, call: Call, out: Any, states: Sequence[State | None]) -> None:
        """Private values and seals reach all results; no draw does."""
        taint = NOTHING.union(*[state.taint for state in states if state is not None])
        seals = NOTHING.union(*[state.seals for state in states if state is not None])
        for result in call.results(out):
            if not taint and not seals:
                self._cleared(result)
                continue
            self.mark(result, taint, seals, masked=False)

    def _cleared(self, result: Tensor) -> None:
        """A result with nothing private and no draw in it."""
        state = self.table.of(result)
        if state is not None and whole(result):
            self.table.drop(result)
        elif state is not None and state.rows is not None:
            state.rows = state.rows.put(elements(result), Rows.empty(result.numel()))

    def mark(self, result: Tensor, taint: frozenset[int], seals: frozenset[int], *, masked: bool) -> State:
        """Enter what reaches a result. Only what fills its storage forgets what was there."""
        state = self.table.enter(result)
        if whole(result):
            state.taint, state.seals = taint, seals
            state.forget_draws()
            state.masked = masked
        else:
            state.masked = masked and (state.masked or not state.taint) if taint else state.masked
            state.taint, state.seals = state.taint | taint, state.seals | seals
        return state

    # Operations on draws

    def _with_draws(self, call: Call, states: list[State | None]) -> Any:
        if call.pointwise and any(state is not None and state.coin is not None for state in states):
            tossed = choices.through(self, call, states)
            if tossed is not None:
                return tossed
        rows = self._linear(call, states)
        if rows is None and call.pointwise:
            compared = choices.compared(self, call, states)
            if compared is not None:
                return compared
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
        if not all(t.is_floating_point() for t, s in zip(call.tensors, states, strict=True) if s and s.rows):
            return None
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
        if not noisy or any(number in noisy for number in moving):
            return None
        masked = any(states[number].masked and states[number].taint for number in noisy)  # type: ignore[union-attr]
        return noise_of_results(call, noisy, moving, _MASKED_TERMS if masked else _MASKED_TERMS * 8)

    def rows_of(self, tensor: Tensor, state: State) -> Rows | None:
        """The noise on each element of a tensor, flat."""
        if state.rows is None:
            return None
        places = elements(tensor)
        if len(state.rows.columns) * tensor.element_size() != tensor.untyped_storage().nbytes():
            return None
        return state.rows if whole(tensor) else state.rows.at(places)

    def resolve(self, tensor: Tensor, state: State) -> bool:
        """Know a recipe by its law: its elements are columns of their own then."""
        if state.rows is not None or state.recipe is None:
            return state.rows is not None
        recipe = state.recipe
        families = [self.draws.family(recipe.columns[:, term]) for term in range(recipe.columns.shape[1])]
        if not len(recipe.columns) or any(family is None for family in families):
            return False
        law = recognise(recipe, [family for family in families if family is not None])
        if law is None:
            return False
        columns = self.draws.derived(recipe.columns, law.family, law.variant)
        state.rows = Rows(columns[:, None], law.scale[:, None], recipe.precision)
        self.draws.keep(columns, (_flat(tensor).double() - law.shift) / law.scale)
        return True

    def _seal_masked(self, call: Call, states: Sequence[State | None]) -> None:
        for tensor, state in zip(call.tensors, states, strict=True):
            if state is not None and state.masked and state.taint:
                self.seal(tensor, state)

    def seal(self, tensor: Tensor, state: State) -> None:
        """Give a masked value away: its gap and noise are noted, and from here on it is public."""
        flat = _flat(tensor)
        assert state.rows is not None
        shown = state.rows.covered
        self.seals.append(
            Seal(
                gap=(self.table.other(flat).double() - flat.double())[shown],
                rows=state.rows.at(shown.nonzero()[:, 0]),
                grain=flat[shown].double().abs() * torch.finfo(tensor.dtype).eps,
                given=no_columns() if state.opaque is None else state.opaque,
                exact=False,
                open=state.opaque is None,
                taint=state.taint,
                where=state.where,
            )
        )
        self.released(tensor, state)

    def released(self, tensor: Tensor, state: State) -> None:
        """Go on with a value as public: the last seal shows it."""
        state.release(len(self.seals) - 1)
        if whole(tensor):
            self._prints[len(self.seals) - 1] = fingerprint(tensor.double())

    def shown_whole(self, tensor: Tensor, state: State) -> None:
        """A message shows what was sealed earlier itself, and not only something that was computed from it."""
        if len(state.seals) == 1:
            (number,) = state.seals
            if self._prints.get(number) == fingerprint(tensor.double()):
                self.seals[number] = replace(self.seals[number], exact=True)

    def _recipe(self, call: Call, states: Sequence[State | None]) -> Recipe | None:
        """How a pointwise operation makes its result of few draws; None where that is not so simple."""
        if not call.pointwise or any(state is not None and (state.taint or state.coin) for state in states):
            return None
        if not all(s is None or not s.random or s.recipe is not None for s in states):
            return None
        shape = torch.broadcast_shapes(*[tensor.shape for tensor in call.tensors])
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
        for number, result in enumerate(call.results(out)):
            own, masked = None, False
            if rows is not None:
                own, cancelled = rows[number].merged()
                masked = bool(taint) and self._masks(own, cancelled, result, raw=raw)
                own = own.coarsened(torch.finfo(result.dtype).eps)
            state = self.mark(result, taint, seals, masked=masked)
            self.put(result, state, own, recipe if number == 0 else None, spent)
            if masked:
                known = [s.where for s in states if s is not None and s.masked and s.where]
                state.where = known[0] if known and not raw else program_line()

    @staticmethod
    def _masks(rows: Rows, cancelled: Tensor, result: Tensor, *, raw: bool) -> bool:
        """Whether noise hides every private element of a result.

        Where a private value comes in, every element needs noise, as fine as the number format. Elements of masked
        values keep theirs, unless it cancels.
        """
        if bool(cancelled.any()):
            return False
        return not raw or (bool(rows.covered.all()) and rows.precision <= torch.finfo(result.dtype).eps)

    def spent(self, call: Call, states: Sequence[State | None], *, linear: bool) -> Tensor | None:
        """The columns that the results depend on in other ways than by rows; None if on no draw in such a way."""
        parts: list[Tensor] = []
        for tensor, state in zip(call.tensors, states, strict=True):
            if state is None or not state.random or (call.name in _INDEXING and not tensor.is_floating_point()):
                continue
            if state.opaque is not None:
                parts.append(state.opaque)
            if state.rows is not None and not linear:
                parts.append(state.rows.used)
            if state.rows is None and state.recipe is not None:
                parts.append(state.recipe.columns.reshape(-1))
            if state.coin is not None:
                parts.append(state.coin.columns.reshape(-1))
        return torch.unique(torch.cat(parts)) if parts else None

    def put(self, result: Tensor, state: State, rows: Rows | None, recipe: Recipe | None, spent: Tensor | None) -> None:
        """Enter the draws of a result into the state of its storage."""
        filled = whole(result)
        if rows is not None:
            if filled:
                state.rows = rows
            else:
                count = result.untyped_storage().nbytes() // result.element_size()
                before = Rows.empty(count) if state.rows is None else state.rows
                state.rows = before.put(elements(result), rows)
        elif not filled and state.rows is not None:
            state.rows = state.rows.put(elements(result), Rows.empty(result.numel()))
        state.recipe = recipe if filled else None
        state.coin = None
        if spent is not None and (rows is not None or recipe is None or not filled):
            state.opaque = spent if state.opaque is None or filled else torch.unique(torch.cat([state.opaque, spent]))


def _flat(tensor: Tensor) -> Tensor:
    """All elements of a tensor's storage."""
    count = tensor.untyped_storage().nbytes() // tensor.element_size()
    return torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage(), 0, (count,))  # type: ignore[call-overload, no-any-return]


def laid_out(result: Tensor, shadow: Tensor) -> Any:
    """The storage of a shadow that is laid out as the result is."""
    if (
        shadow.stride() != result.stride()
        or shadow.storage_offset() != result.storage_offset()
        or (shadow.untyped_storage().nbytes() != result.untyped_storage().nbytes())
    ):
        storage = result.untyped_storage().clone()
        view = torch.empty(0, dtype=result.dtype)
        view.set_(storage, result.storage_offset(), result.size(), result.stride()).copy_(shadow)  # type: ignore[call-overload]
        return storage
    return shadow.untyped_storage()
