"""What a trace knows of storages, draws and seals, and how the results of operations are entered there."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from vflpriv.audits.bounds.proved import Following as Bounding
from vflpriv.audits.flow.draws.recipes import Recipe, recognise
from vflpriv.audits.flow.draws.registry import Draws
from vflpriv.audits.flow.draws.rows import Rows, fineness, no_columns
from vflpriv.audits.flow.plain.wire import identical
from vflpriv.audits.flow.tracer.calls import Call
from vflpriv.audits.flow.tracer.events import FILE, Choice, HostRead, Meeting, Seal, Source, gap_between
from vflpriv.audits.flow.tracer.lines import program_line
from vflpriv.audits.flow.tracer.storages import NOTHING, State, Table, elements, whole

__all__ = ["Following", "put_into"]

_INDEXING = frozenset({"index", "index_select", "gather", "take", "embedding", "index_put", "index_put_", "index_add_"})
"""Operations whose integers choose elements. Which noise the draws chose is given to the adversary."""


_KEPT = 1 << 16
"""Sealed values of so many elements are kept, to see whether they are sent as they are."""
_PUT = 1 << 20
"""Sealed values of so many elements are kept, to put them into another run."""


class Following:
    """The knowledge of one run; `others` are fingerprints of its draws under another seed.

    Draws before the first private value, such as initial weights, are public; with `early` they are followed too.
    """

    def __init__(self, others: Sequence[bytes] = (), *, early: bool = False, bounds: Bounding | None = None) -> None:
        self.bounds = bounds
        """Follows how far private values move, beneath this mode."""
        self.meetings: list[Meeting] = []
        self.table, self.draws, self.early = Table(), Draws(others), early
        self.sources: list[Source] = []
        self.seals: list[Seal | Choice] = []
        self.reads: list[HostRead] = []
        self.host_seals: frozenset[int] = frozenset()
        """Seals whose values the host read: all that follows may depend on them."""
        self.host_given: list[Tensor] = []
        """Columns of draws that decided, together with released values, what the host does."""
        self.branched = False
        """Whether there was a branch after something was sealed."""
        self.lost: list[str] = []
        """What could not be followed, and where."""
        self.used: set[int] = set()
        """The private sources that some operation reads."""
        self.targets: list[tuple[Tensor, str]] = []
        """What public values losses compare predictions with, and where."""
        self.coarse = False
        """Whether noise of a coarser number format lies on a private value."""
        self.sealed: dict[int, Tensor] = {}
        """By seal the values that it showed, flat, unless they are very many."""
        self.put_in: Mapping[int, Tensor] | None = None
        """What each seal shows in the other run that this one is held against: it shows the same here."""
        self.contact = False
        """Whether the host got any private number, also such as are followed."""
        self.operations = 0
        self.dropping = 0
        """How many calls of dropout are running."""
        self.pausing = 0
        self._unread = 0

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Operations of the tracer itself."""
        self.pausing += 1
        try:
            yield
        finally:
            self.pausing -= 1

    @contextmanager
    def unread(self) -> Iterator[None]:
        """What torch reads for a check of its own is no read."""
        self._unread += 1
        try:
            yield
        finally:
            self._unread -= 1

    def lose(self, why: str) -> None:
        """Note something that could not be followed."""
        note = f"{program_line()}: {why}"
        if note not in self.lost:
            self.lost.append(note)

    def host_read(self, tensor: Tensor, how: str, *, log: bool = False) -> None:
        """Note that the host reads a tensor that is private or drawn, or that a seal reached."""
        state = self.table.of(tensor) if tensor.layout == torch.strided else None
        # What is released may be what decides, and it is public by then.
        self.branched = self.branched or (how == "a branch" and bool(self.seals) and not self._unread)
        if state is None or self._unread:
            return
        if state.masked and state.taint and not log:
            # What is done by a noised value is done by what it showed, whoever sees it.
            self.contact = True
            self.seal(tensor, state)
        if not log or how == FILE:
            self.host_seals |= state.seals
        if not (state.taint or state.random):
            return
        if state.seals and not state.taint:
            # A comparison of a released value with a draw: the draw is given to the adversary, too.
            parts = [
                part for part in (state.opaque, None if state.rows is None else state.rows.used) if part is not None
            ]
            parts += [lot.columns.reshape(-1) for lot in (state.recipe, state.coin) if lot is not None]
            self.host_given += parts
            if any(len(part) for part in parts):
                return
        self.contact = self.contact or bool(state.taint)
        same = not state.taint or identical(tensor, self.table.other(tensor))
        note = HostRead(
            how=how, where=program_line(), log=log, private=bool(state.taint), drawn=state.random, same=same
        )
        if note not in self.reads:
            self.reads.append(note)

    def source(self, value: Tensor, other: Tensor, source: Source) -> Tensor:
        """A private value."""
        with self.paused():
            value = value.detach().clone()
        self.hold(value, other, source)
        return value

    def hold(self, value: Tensor, other: Tensor, source: Source) -> None:
        """A private value that fills its storage, where it lies."""
        with self.paused():
            self.sources.append(source)
            state = self.table.enter(value)
            state.forget_draws()
            state.taint, state.shadow = frozenset({len(self.sources) - 1}), None
            if not identical(value, other):
                shadow = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype)
                state.shadow = shadow.copy_(other).untyped_storage()

    def inputs(self, call: Call) -> list[State | None]:
        """What is known of each argument; nothing of those that are overwritten."""
        states = [self.table.of(tensor) for tensor in call.tensors]
        for number in call.written:
            if call.overwritten(number):
                states[number] = None
        for state in states:
            if state is not None and not state.taint <= self.used:
                self.used |= state.taint
        return states

    def both(self, call: Call) -> Any:
        """Run an operation, and again on the shadows if there are any."""
        others = [self.table.other(tensor) for tensor in call.tensors]
        if all(map(operator.is_, others, call.tensors)):
            return call.op(*call.args, **call.kwargs)
        for number in call.written:
            state = self.table.enter(call.tensors[number])
            if state.shadow is None and not state.variants:
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
            if result.dtype != shadow.dtype:
                self.lose(f"{call.name} gives {result.dtype} in one world, {shadow.dtype} in the other")
                continue
            if result.shape != shadow.shape:
                self.table.differ_in_size(result, shadow)
                continue
            same = identical(result, shadow)
            if number >= made:
                if same and whole(result):
                    self.table.enter(result).shadow = None
            elif not same:
                self.table.enter(result).shadow = laid_out(result, shadow)

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

    def meet(self, result: Tensor, rows: Rows) -> frozenset[int]:
        """Note that noise comes to lie on a private value: for bounds, the result is public from here on."""
        if self.bounds is None:
            return NOTHING
        fact, proved = self.bounds.known(result), self.bounds.moves(result)
        axis = fact.axis if fact is not None and fact.own else None
        meeting = Meeting(
            where=program_line(),
            rows=rows,
            moves=proved.moves.replace,
            entries=result.numel() if axis is None else result.numel() // result.shape[axis],
            stale=self.bounds.of_several_batches(result),
            why=proved.why,
            joint=self.bounds.columns(proved.moves.joint),
        )
        self.bounds.forget(result)
        self.meetings.append(meeting)
        return frozenset({len(self.meetings) - 1})

    def rows_of(self, tensor: Tensor, state: State) -> Rows | None:
        """The noise on each element of a tensor, flat."""
        if state.rows is None:
            return None
        if tensor.dtype != state.dtype:
            return None
        places = elements(tensor)
        if len(state.rows.columns) * tensor.element_size() != tensor.untyped_storage().nbytes():
            return None
        return state.rows if whole(tensor) else state.rows.at(places)

    def resolve(self, tensor: Tensor, state: State) -> bool:
        """Know a recipe by its law: its elements are columns of their own then."""
        if state.rows is not None or state.recipe is None or not tensor.is_floating_point():
            return state.rows is not None
        recipe = state.recipe
        families = [self.draws.family(recipe.columns[:, term]) for term in range(recipe.columns.shape[1])]
        if not len(recipe.columns) or any(family is None for family in families):
            return False
        law = recognise(recipe, [family for family in families if family is not None])
        if law is None:
            return False
        columns = self.draws.derived(recipe.columns, law.family, law.variant)
        state.rows, state.dtype = Rows(columns[:, None], law.scale[:, None], recipe.precision), tensor.dtype
        self.draws.keep(columns, (_flat(tensor).double() - law.shift) / law.scale)
        return True

    def seal(self, tensor: Tensor, state: State) -> None:
        """Give a masked value away: its gap and noise are noted, and from here on it is public."""
        flat = _flat(tensor, state.dtype)
        assert state.rows is not None
        shown = state.rows.covered
        self.seals.append(
            Seal(
                gap=gap_between(flat, self.table.other(flat))[shown],
                rows=state.rows.at(shown.nonzero()[:, 0]),
                grain=flat[shown].double().abs() * fineness(state.dtype),
                given=no_columns() if state.opaque is None else state.opaque,
                exact=False,
                open=state.opaque is None,
                taint=state.taint,
                where=state.where,
                met=state.met,
            )
        )
        self.released(tensor, state)

    def released(self, tensor: Tensor, state: State) -> None:
        """Go on with a value as public: the last seal shows it."""
        number, value = len(self.seals) - 1, _flat(tensor)
        state.release(number)
        if self.put_in is not None:
            put_into(value, self.put_in.get(number))
        if value.numel() <= _PUT:
            self.sealed[number] = value.detach().clone()

    def shown_whole(self, tensor: Tensor, state: State) -> None:
        """A message shows what was sealed earlier itself, and not only something that was computed from it."""
        for number in sorted(state.seals, reverse=True):
            value = self.sealed.get(number)
            # Whole numbers may agree by chance, noised ones do not.
            sure = value is not None and value.numel() <= _KEPT and (value.is_floating_point() or len(state.seals) == 1)
            if value is not None and sure and value.numel() == tensor.numel() and _carries(tensor, value):
                self.seals[number] = replace(self.seals[number], exact=True)
                return

    def spent(self, call: Call, states: Sequence[State | None], *, linear: bool) -> Tensor | None:
        """The columns that the results depend on in other ways than by rows; None if on no draw in such a way."""
        parts: list[Tensor] = []
        raw = any(state is not None and state.raw for state in states)
        for tensor, state in zip(call.tensors, states, strict=True):
            if state is None or not state.random:
                continue
            if call.name in _INDEXING and not tensor.is_floating_point() and not raw:
                continue
            if state.opaque is not None:
                parts.append(state.opaque)
            if state.rows is not None and not linear:
                rows = self.rows_of(tensor, state)
                parts.append((state.rows if rows is None else rows).used)
            lots = (state.recipe if state.rows is None else None, state.coin)
            parts.extend(_at(lot.columns, tensor).reshape(-1) for lot in lots if lot is not None)
        return torch.unique(torch.cat(parts)) if parts else None

    def put(self, result: Tensor, state: State, rows: Rows | None, recipe: Recipe | None, spent: Tensor | None) -> None:
        """Enter the draws of a result into the state of its storage."""
        filled = whole(result)
        if rows is not None:
            state.dtype = result.dtype
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


def _at(columns: Tensor, tensor: Tensor) -> Tensor:
    """The columns of a tensor's elements, of those of its storage."""
    if whole(tensor) or len(columns) * tensor.element_size() != tensor.untyped_storage().nbytes():
        return columns
    return columns[elements(tensor)]


def _carries(sent: Tensor, sealed: Tensor) -> bool:
    """Whether a tensor is what was sealed, in whatever number format and order."""
    own, others = sent.reshape(-1), sealed.reshape(-1).to(sent.dtype)
    if torch.equal(own, others):
        return True
    return own.is_floating_point() and torch.equal(own.sort().values, others.sort().values)


def _flat(tensor: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """All elements of a tensor's storage, as numbers of its type or of another."""
    dtype = dtype or tensor.dtype
    count = tensor.untyped_storage().nbytes() // dtype.itemsize
    return torch.empty(0, dtype=dtype).set_(tensor.untyped_storage(), 0, (count,))  # type: ignore[call-overload, no-any-return]


def put_into(tensor: Tensor, value: Tensor | None) -> None:
    """Give a tensor the value that it has in another run, if it has the same form there."""
    if value is not None and value.shape == tensor.shape and value.dtype == tensor.dtype:
        tensor.data.copy_(value)


def laid_out(result: Tensor, shadow: Tensor) -> Any:
    """The storage of a shadow that is laid out as the result is."""
    if (
        shadow.stride() != result.stride()
        or shadow.storage_offset() != result.storage_offset()
        or (shadow.untyped_storage().nbytes() != result.untyped_storage().nbytes())
    ):
        storage = result.untyped_storage().clone()
        view = torch.empty(0, dtype=result.dtype)
        view.set_(storage, result.storage_offset(), result.size(), result.stride()).copy_(shadow)  # type: ignore[call-overload, unused-ignore]
        return storage
    return shadow.untyped_storage()
