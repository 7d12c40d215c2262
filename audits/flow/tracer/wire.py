"""The wire of a traced program: what each message is made of, and what its receivers get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from vflpriv.audits.flow.draws.rows import Rows, fineness, no_columns
from vflpriv.audits.flow.plain.wire import FlowWire, Private, SentMessage, View, bits, own_storage
from vflpriv.audits.flow.tracer.dispatch import Trace
from vflpriv.audits.flow.tracer.events import Seal, Source, Trail, gap_between
from vflpriv.audits.flow.tracer.following import put_into
from vflpriv.audits.flow.tracer.lines import program_line
from vflpriv.audits.flow.tracer.storages import State, whole

__all__ = ["SwappedWire", "TracedWire"]


_WHOLE = (torch.uint8, torch.int32, torch.int64, torch.float64)
_STATE = 1 << 13
"""The state of a generator has no more numbers."""


class TracedWire(FlowWire):
    """Follows messages for one view: what it sees is public from then on; all other messages stay private."""

    def __init__(self, trace: Trace, view: View) -> None:
        self.trace, self.view = trace, view
        self.trails: list[Trail] = []
        self.states: list[Tensor] = []
        """States and seeds of generators may be among what is sent; what was drawn from them is known at the end."""

    def given_seed(self) -> int:
        self.trace.draws.told = True
        return super().given_seed()

    def reveal(self, tensor: Tensor) -> None:
        state = self.trace.table.of(tensor) if tensor.layout == torch.strided else None
        if state is not None and not state.taint:
            self.trace.table.drop(tensor)

    def held(self, tensor: Tensor, other: Tensor, private: Private) -> None:
        own_storage(tensor)
        self.trace.hold(tensor.detach(), other, _source(private))
        if self.trace.bounds is not None:
            self.trace.bounds.hold(tensor.detach(), distinct=private.distinct, largest=private.largest)

    def given(self, value: Tensor, other: Tensor, private: Private) -> Tensor:
        own = self.trace.source(value, other, _source(private))
        if self.trace.bounds is not None:
            self.trace.bounds.hold(own, distinct=private.distinct)
        return own

    def sending(self, message: SentMessage, named: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        with self.trace.paused(), self.unseen():
            copies = {name: tensor.detach().clone() for name, tensor in message.tensors.items()}
        trail = Trail(message=replace(message, tensors=copies), where=program_line())
        seen = message.seen_by(self.view)
        if seen:
            with self.trace.paused(), self.unseen():
                for name, tensor in message.tensors.items():
                    self._shows(name, tensor.detach(), trail)
                trail.seals.extend(sorted(self.trace.host_seals))
                trail.inherited = trail.inherited or bool(self.trace.host_seals)
        self.trails.append(trail)
        if not seen:
            return {name: tensor.detach().clone() for name, tensor in named.items()}
        # A copy that is made while the tracer is paused is public.
        with self.trace.paused(), self.unseen():
            return {name: tensor.detach().clone() for name, tensor in named.items()}

    def _shows(self, name: str, tensor: Tensor, trail: Trail) -> None:
        if tensor.layout != torch.strided:
            trail.open |= frozenset(range(len(self.trace.sources)))
            trail.why = "sparse tensors are not followed"
            return
        state = self.trace.table.of(tensor)
        if tensor.dtype in _WHOLE and tensor.numel() <= _STATE:
            self.states.append(tensor.clone())
        if state is None or not tensor.numel():
            trail.others[name] = tensor.clone()
            trail.fresh.add(name)
            return
        trail.seals.extend(sorted(state.seals))
        trail.inherited = trail.inherited or bool(state.seals)
        self.trace.shown_whole(tensor, state)
        if state.random:
            self.trace.resolve(tensor, state)
        rows = self.trace.rows_of(tensor, state)
        other = self.trace.table.other(tensor)
        trail.others[name] = other.clone()
        if not state.seals:
            trail.fresh.add(name)
        if other.shape != tensor.shape:
            trail.bare |= state.taint
            trail.why = "its size differs between the worlds"
            return
        differs = _differs(tensor, other)
        covered = torch.zeros(tensor.numel(), dtype=torch.bool) if rows is None else rows.covered
        spent = self._spent(state)
        if rows is not None and bool(covered.any()):
            self._seals(tensor, other, state, rows, spent, trail)
            if bool(covered.all()) and spent is None:
                trail.own[name] = trail.seals[-1]
        elif spent is not None:
            trail.given.append(spent)
        if state.raw:
            self._raw(state, differs & ~covered, spent is not None, trail)
        elif state.masked and whole(tensor):
            state.release(trail.seals[-1])
            self.shown(name, tensor)

    def shown(self, name: str, tensor: Tensor) -> None:
        """A tensor of the next message is public from here on."""

    def _spent(self, state: State) -> Tensor | None:
        parts = [] if state.opaque is None else [state.opaque]
        if state.rows is None and state.recipe is not None:
            parts.append(state.recipe.columns.reshape(-1))
        if state.coin is not None:
            parts.append(state.coin.columns.reshape(-1))
        return torch.unique(torch.cat(parts)) if parts else None

    def _seals(
        self, tensor: Tensor, other: Tensor, state: State, rows: Rows, spent: Tensor | None, trail: Trail
    ) -> None:
        places = rows.covered.nonzero()[:, 0]
        flat = tensor.double().reshape(-1)
        gap = gap_between(flat, other.reshape(-1))
        self.trace.seals.append(
            Seal(
                gap=gap[places],
                rows=rows.at(places),
                grain=flat[places].abs() * fineness(tensor.dtype),
                given=no_columns() if spent is None else spent,
                open=spent is None,
                taint=state.taint,
                where=state.where,
                met=state.met,
            )
        )
        trail.seals.append(len(self.trace.seals) - 1)

    def _raw(self, state: State, differs: Tensor, drawn: bool, trail: Trail) -> None:
        """What a message shows that no noise hides."""
        if not bool(differs.any()):
            trail.open |= state.taint
            trail.why = trail.why or "private values reach it without noise, though this pair does not differ in it"
        elif drawn:
            trail.open |= state.taint
            trail.why = trail.why or "draws and private values are mixed in it in a way whose law is not known"
        else:
            trail.bare |= state.taint
            count = int(differs.sum())
            trail.why = trail.why or f"{count} of {differs.numel()} entries differ between the worlds, without noise"


class SwappedWire(TracedWire):
    """Follows a program as it runs in the other world, where whoever looks was sent what they are sent in this one."""

    def __init__(self, trace: Trace, view: View, sent: Sequence[Trail]) -> None:
        super().__init__(trace, view)
        self._sent = sent

    def sending(self, message: SentMessage, named: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        arrived = super().sending(message, named)
        if message.seen_by(self.view):
            with self.trace.paused(), self.unseen():
                for name, tensor in arrived.items():
                    put_into(tensor, self._value(len(self.trails) - 1, name))
        return arrived

    def shown(self, name: str, tensor: Tensor) -> None:
        put_into(tensor, self._value(len(self.trails), name))

    def _value(self, number: int, name: str) -> Tensor | None:
        return self._sent[number].message.tensors.get(name) if number < len(self._sent) else None

    def held(self, tensor: Tensor, other: Tensor, private: Private) -> None:
        own_storage(tensor)
        with self.trace.paused():
            own = tensor.detach().clone()
            tensor.detach().copy_(other)
        super().held(tensor, own, private)

    def given(self, value: Tensor, other: Tensor, private: Private) -> Tensor:
        return super().given(other, value, private)


def _source(private: Private) -> Source:
    return Source(what=private.what, owner=private.owner, where=program_line())


def _differs(tensor: Tensor, other: Tensor) -> Tensor:
    """Which elements differ in some bit."""
    size = tensor.element_size()
    own, others = (bits(t).reshape(-1, size) for t in (tensor, other))
    return (own != others).any(1)
