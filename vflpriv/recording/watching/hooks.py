"""Hooks on the parties' own PyTorch modules, which record what devices send and receive without a line in the loop.

A device's message to the server is the output of its bottom model; its message back is the gradient of the loss by
that output. Both pass through the modules in every ordinary training step, whoever wrote the step. Where something is
done to the outputs on their way, such as noise, the server's own model is watched too: then a message is what that
model is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vflpriv.errors import InputError
from vflpriv.recording.watching.held import GRADIENT_OF, HeldMessages, Sink
from vflpriv.recording.watching.outputs import Columns, columns_of, one_tensor, part_of

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["Watch"]


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
        self._held, self._names = HeldMessages(sink, kind), [f"bottoms[{m}]" for m in range(len(bottoms))]
        self._round = first - 1
        self._ids: Tensor | None = None
        self._widths: dict[int, tuple[int, ...]] = {}
        self._called: set[int] = set()
        self._top_called = False
        self._handles = [b.register_forward_hook(self._after_bottom(m, top is None)) for m, b in enumerate(bottoms)]
        if top is not None:
            self._handles.append(top.register_forward_pre_hook(self._before_top))

    def batch(self, ids: Tensor) -> None:
        """Begin a round with the records of these ids."""
        self._held.between_rounds()
        self._round, self._ids = self._round + 1, ids
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
            sent = one_tensor(output, f"watch: output of {self._names[m]}")
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
        tensors = [one_tensor(value, "watch: input of top") for value in given]
        if len(tensors) == len(members):
            for m, tensor in zip(members, tensors, strict=True):
                self._send({m: ...}, tensor)
        else:
            widths = [self._widths[m] for m in members]
            self._send(dict(zip(members, columns_of(tensors, widths), strict=True)), tensors[0])

    def _send(self, columns: Mapping[int, Columns], sent: Tensor) -> None:
        """Record what these devices sent, each its columns of one tensor; the server goes on with what it gets."""
        import torch

        assert self._ids is not None
        parts = [self._held.hold("up", self._round, m, part_of(sent, own), self._ids) for m, own in columns.items()]
        arrived = [value for value in parts if value is not None]
        if arrived:
            sent.data = arrived[0] if len(arrived) == 1 else torch.cat(arrived, dim=1)

    def _listen(self, m: int, sent: Tensor) -> None:
        """Record the gradient by what a device sent as it arrives there, after all hooks on its way."""
        assert self._ids is not None
        round_, ids, place = self._round, self._ids, sent.output_nr

        def receive(gradient: Tensor) -> Tensor | None:
            return self._held.hold("down", round_, m, gradient, ids)

        def received(gradients: tuple[Any, ...]) -> tuple[Any, ...] | None:
            arrived = None if gradients[place] is None else receive(gradients[place])
            return None if arrived is None else (*gradients[:place], arrived, *gradients[place + 1 :])

        if sent.grad_fn is not None:
            sent.grad_fn.register_prehook(received)
        elif sent.requires_grad:
            sent.register_hook(receive)

    def deliver(self) -> None:
        """Hand over all messages that are held."""
        self._held.deliver()

    def _check_round(self, name: str, called: bool) -> None:
        if self._ids is None:
            raise InputError(f"watch: {name}", "called", "wire.batch(ids) or wire.ids(loader) before: whose records?")
        if called:
            expected = "one call in a round: begin each round with wire.batch(ids), and evaluate in eval() or no_grad()"
            raise InputError(f"watch: {name}", f"called twice in round {self._round}", expected)


def _is_training_pass(module: nn.Module) -> bool:
    import torch

    return module.training and torch.is_grad_enabled()


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
