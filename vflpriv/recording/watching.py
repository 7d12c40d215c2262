"""Hooks on the parties' own PyTorch modules, which record what devices send and receive without a line in the loop.

A device's message to the server is the output of its bottom model; its message back is the gradient of the loss by
that output. Both pass through the modules in every ordinary training step, whoever wrote the step. Where something is
done to the outputs on their way, such as noise, the server's own model is watched too: then a message is what that
model is given.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from vflpriv.errors import InputError
from vflpriv.recording.ending import shielded

if TYPE_CHECKING:
    from types import EllipsisType

    from torch import Tensor, nn

    from vflpriv.recording.files.format import Entry

__all__ = ["GRADIENT_OF", "Sink", "Watch", "batches_with_ids"]

GRADIENT_OF: Mapping[str, str] = {"embeddings": "embedding-gradient", "logits": "logit-gradient"}
"""The kind of the reply to each kind of message that modules can be watched for."""


_HELD, _SECONDS = 224, 0.25
"""Messages that are handed over together, and how long they may wait, so that a slow training is recorded as it goes.

Between the products of a training the code that checks and lists a message has left the processor's cache. For many
messages in a row it is fetched once.
"""
_Columns: TypeAlias = "EllipsisType | tuple[slice, slice]"


class Sink(Protocol):
    """Where messages go: a recording wire."""

    @property
    def checks_later(self) -> bool:
        """Whether messages may reach it some rounds later."""
        ...

    @property
    def delivers(self) -> bool:
        """Whether modules go on with what `add` returns: what the receiver gets."""
        ...

    def add(
        self,
        way: str,
        round_: int,
        device: int,
        kind: str,
        tensors: Mapping[str, Any],
        ids: Tensor | None,
        *,
        at_once: bool,
    ) -> tuple[Entry, Mapping[str, Tensor]]: ...

    def store(self, like: Entry, name: str, value: Tensor) -> bool:
        """Keep the values of a message that is `like` the last on its link, and is listed by `enter` later.

        False if nothing was kept: then it has to be added with its values.
        """
        ...

    def enter(self, like: Entry, round_: int, ids: Tensor | None) -> None:
        """List a message whose values are stored."""
        ...

    def between_rounds(self) -> None:
        """All messages of the rounds so far are listed."""
        ...


class Watch:
    """The hooks on one system's modules, and the batch that its parties work on.

    A round is one batch: it begins with `batch`. Passes without gradients, or of modules in evaluation mode, are no
    messages of the training and are left out.
    """

    def __init__(
        self, sink: Sink, bottoms: Sequence[nn.Module], *, top: nn.Module | None, kind: str, first: int = 0
    ) -> None:
        if kind not in GRADIENT_OF:
            raise InputError("watch: kind", kind, " or ".join(GRADIENT_OF))
        _check_modules(bottoms, top)
        self._sink, self._kind, self._names = sink, kind, [f"bottoms[{m}]" for m in range(len(bottoms))]
        self._round = first - 1
        self._forms: dict[tuple[str, int], tuple[object, Entry]] = {}
        self._held: list[tuple[Entry, int, Tensor | None, dict[str, Tensor] | None]] = []
        self._since, self._size = time.monotonic(), 0
        self._ids: Tensor | None = None
        self._widths: dict[int, tuple[int, ...]] = {}
        self._called: set[int] = set()
        self._top_called = False
        self._handles = [b.register_forward_hook(self._after_bottom(m, top is None)) for m, b in enumerate(bottoms)]
        if top is not None:
            self._handles.append(top.register_forward_pre_hook(self._before_top))

    def batch(self, ids: Tensor) -> None:
        """Begin a round with the records of these ids."""
        if len(self._held) >= _HELD or time.monotonic() - self._since > _SECONDS:
            self.deliver()
            self._sink.between_rounds()
        self._round, self._ids, self._size = self._round + 1, ids, len(ids)
        self._called, self._top_called = set(), False
        self._widths = {}

    def stop(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()

    def _after_bottom(self, m: int, sends: bool) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            del inputs
            if not self._is_message(module, output, m in self._called):
                return
            self._check_round(self._names[m], m in self._called)
            self._called.add(m)
            sent = _one_tensor(output, f"watch: output of {self._names[m]}")
            self._widths[m] = tuple(sent.shape[1:])
            if sends:
                self._send({m: ...}, sent)
            self._listen(m, sent)

        return hook

    def _is_message(self, module: nn.Module, output: Any, called: bool) -> bool:
        """Whether a pass is part of the training; of a party that trains nothing, the first one in a round is."""
        if _is_training_pass(module):
            return True
        frozen = not any(parameter.requires_grad for parameter in module.parameters())
        return frozen and not called and self._ids is not None and len(output) == len(self._ids)

    def _before_top(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if not _is_training_pass(module):
            return
        self._check_round("top", self._top_called)
        self._top_called = True
        members = sorted(self._called)
        if not members:
            raise InputError("watch: top", "called before any bottom", "the bottoms' outputs as its input")
        given = list(inputs[0]) if len(inputs) == 1 and isinstance(inputs[0], list | tuple) else list(inputs)
        tensors = [_one_tensor(value, "watch: input of top") for value in given]
        if len(tensors) == len(members):
            for m, tensor in zip(members, tensors, strict=True):
                self._send({m: ...}, tensor)
        else:
            self._send(self._columns(tensors, members), tensors[0])

    def _columns(self, tensors: Sequence[Tensor], members: Sequence[int]) -> dict[int, _Columns]:
        """Where each device's output lies in the one input of the server's model."""
        widths = [self._widths[m] for m in members]
        flat = len(tensors) == 1 and tensors[0].dim() == 2 and all(len(width) == 1 for width in widths)
        ends = list(accumulate(width[0] for width in widths)) if flat else []
        if not flat or tensors[0].shape[1] != ends[-1]:
            shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
            expected = f"one input for each of {len(members)} devices, or their outputs {widths} side by side"
            raise InputError("watch: input of top", shapes, expected)
        return {
            m: (slice(None), slice(end - width[0], end)) for m, end, width in zip(members, ends, widths, strict=True)
        }

    def _send(self, columns: Mapping[int, _Columns], sent: Tensor) -> None:
        """Record what these devices sent, each its columns of one tensor; the server goes on with what it gets."""
        import torch

        parts = [
            self._hold("up", self._round, m, "embedding", _part(sent, own), self._ids) for m, own in columns.items()
        ]
        arrived = [part for part in parts if part is not None]
        if arrived:
            sent.data = arrived[0] if len(arrived) == 1 else torch.cat(arrived, dim=1)

    def _listen(self, m: int, sent: Tensor) -> None:
        """Record the gradient by what a device sent as it arrives there, after all hooks on its way."""
        round_, ids, place = self._round, self._ids, sent.output_nr

        def receive(gradient: Tensor) -> Tensor | None:
            return self._hold("down", round_, m, "gradient", gradient, ids)

        def received(gradients: tuple[Any, ...]) -> tuple[Any, ...] | None:
            arrived = None if gradients[place] is None else receive(gradients[place])
            return None if arrived is None else (*gradients[:place], arrived, *gradients[place + 1 :])

        if sent.grad_fn is not None:
            sent.grad_fn.register_prehook(received)
        elif sent.requires_grad:
            sent.register_hook(receive)

    def _hold(self, way: str, round_: int, m: int, name: str, value: Tensor, ids: Tensor | None) -> Tensor | None:
        """Keep a copy of a message, which is listed when several are; what the receiver gets, if modules go on with it.

        One of another form than the last on its link is handed over at once, since it may be wrong.
        """
        form = value.shape, value.dtype, self._size
        last, value = self._forms.get((way, m)), value.detach()
        if last is not None and last[0] == form:
            stored = value.is_cpu and self._sink.store(last[1], name, value)
            self._held.append((last[1], round_, ids, None if stored else {name: value.clone()}))
            return None
        self.deliver()
        kind = self._kind if way == "up" else GRADIENT_OF[self._kind]
        entry, arrived = self._sink.add(way, round_, m, kind, {name: value}, ids, at_once=False)
        if self._sink.checks_later:
            self._forms[way, m] = form, entry
        return arrived[name] if self._sink.delivers else None

    def deliver(self) -> None:
        """Hand over all messages that are held."""
        with shielded():
            held, self._held, self._since = self._held, [], time.monotonic()
            for like, round_, ids, tensors in held:
                if tensors is None:
                    self._sink.enter(like, round_, ids)
                else:
                    self._sink.add(like.way, round_, like.device, like.kind, tensors, ids, at_once=False)

    def _check_round(self, name: str, called: bool) -> None:
        if self._ids is None:
            raise InputError(f"watch: {name}", "called", "wire.batch(ids) or wire.ids(loader) before: whose records?")
        if called:
            expected = "one call in a round: begin each round with wire.batch(ids), and evaluate in eval() or no_grad()"
            raise InputError(f"watch: {name}", f"called twice in round {self._round}", expected)


def batches_with_ids(loader: Any, begin: Callable[[Any], object]) -> Iterator[Any]:
    """The batches of a torch DataLoader; `begin` is told of the positions in the data set before each of them.

    The batches are those of a loader with the same data set and the same sampler, which notes what it draws. Workers
    that load ahead do not disturb the order.
    """
    from torch.utils.data import DataLoader, IterableDataset

    if not isinstance(loader, DataLoader):
        raise InputError("ids: loader", type(loader).__name__, "a torch DataLoader, or wire.batch(ids) for each batch")
    if isinstance(loader.dataset, IterableDataset) or loader.batch_sampler is None:
        raise InputError("ids: loader", "no batches of positions", "a loader of batches, or wire.batch(ids) for each")
    noted = _NotedBatches(loader.batch_sampler)
    same: DataLoader[Any] = DataLoader(
        loader.dataset,
        batch_sampler=noted,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=loader.generator,
        prefetch_factor=loader.prefetch_factor if loader.num_workers else None,
    )
    for batch in same:
        begin(noted.drawn.popleft())
        yield batch


class _NotedBatches:
    """A batch sampler that keeps the batches it has drawn until they are asked for."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler
        self.drawn: deque[list[int]] = deque()

    def __iter__(self) -> Iterator[list[int]]:
        for positions in self._sampler:
            self.drawn.append(list(positions))
            yield positions

    def __len__(self) -> int:
        return len(self._sampler)


def _part(value: Tensor, columns: _Columns) -> Tensor:
    return value if columns is ... else value[columns]


def _is_training_pass(module: nn.Module) -> bool:
    import torch

    return module.training and torch.is_grad_enabled()


def _one_tensor(value: Any, field: str) -> Tensor:
    import torch

    if not isinstance(value, torch.Tensor) or value.dim() == 0:
        raise InputError(field, type(value).__name__, "one tensor with a row for each record; else use wire.up")
    return value


def _check_modules(bottoms: Sequence[nn.Module], top: nn.Module | None) -> None:
    """Raise an InputError unless these are modules of parties that share nothing."""
    from torch import nn

    owners: dict[int, str] = {}
    named = {f"bottoms[{m}]": module for m, module in enumerate(bottoms)} | ({} if top is None else {"top": top})
    for name, module in named.items():
        if not isinstance(module, nn.Module):
            raise InputError(f"watch: {name}", type(module).__name__, "a torch.nn.Module")
        for part in (module, *module.parameters()):
            other = owners.setdefault(id(part), name)
            if other != name:
                raise InputError(f"watch: {name}", f"shared with {other}", "a module of its own for each party")
