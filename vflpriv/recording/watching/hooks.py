"""Hooks on the parties' own PyTorch modules, which record what devices send and receive without a line in the loop.

A device's message to the server is the output of its bottom model; its message back is the gradient of the loss by
that output. Both pass through the modules in every ordinary training step, whoever wrote the step. Where something is
done to the outputs on their way, such as noise, the server's own model is watched too: then a message is what that
model is given.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from vflpriv.errors import InputError
from vflpriv.recording.watching.backward import before_backward, in_backward
from vflpriv.recording.watching.gradients import Listening
from vflpriv.recording.watching.held import GRADIENT_OF, HeldMessages, Sink
from vflpriv.recording.watching.outputs import (
    Columns,
    Output,
    columns_of,
    leaving,
    part_of,
    sent_tensor,
    several,
    tensors_in,
)
from vflpriv.recording.watching.rounds import Call, Round
from vflpriv.recording.watching.seen import Seen
from vflpriv.recording.watching.using import Fetched, Waiting

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["Watch"]

_MOST = 256
"""Passes without gradients that may wait for a backward pass; a loop that only evaluates keeps no more."""


class Watch:
    """The hooks on one system's modules, and the batch that its parties work on.

    A round is one batch: it begins with `batch`, or when a module is given a batch that was `fetched`. A pass through a
    module that trains is a message. One without gradients, or of a module in evaluation mode, is one if a backward pass
    follows in its round: then a frozen party has sent something. All others evaluate.
    """

    def __init__(
        self,
        sink: Sink,
        bottoms: Sequence[nn.Module],
        *,
        top: nn.Module | None,
        kind: str,
        output: Output | Sequence[Output] | None = None,
        first: int = 0,
    ) -> None:
        if kind not in GRADIENT_OF:
            raise InputError("watch: kind", kind, " or ".join(GRADIENT_OF))
        _check_modules(bottoms, top)
        self._sink, self._held, self._bottoms, self._top = sink, HeldMessages(sink, kind), bottoms, top
        self._outputs = _outputs(output, len(bottoms))
        self._first = first
        self._start: int | None = None
        self._given: Tensor | None = None
        self._round: Round | None = None
        self._waiting, self._listening = Waiting(), Listening()
        self._unsure: deque[Call] = deque(maxlen=_MOST)
        self._outstanding: dict[int, Call] = {}
        self._seen = Seen(sink.checks, bottoms, looks=not sink.delivers)
        self._hooks = [hook for m, bottom in enumerate(bottoms) for hook in self._hook_bottom(m, bottom)]
        if top is not None:
            hook = top.register_forward_pre_hook(self._before_top, with_kwargs=True)
            self._hook_top = _Hook(top._forward_pre_hooks, hook)
            self._hooks.append(self._hook_top)
        self._stop_listening = before_backward(self._before_backward)

    def batch(self, ids: Tensor) -> None:
        """Begin a round with the records of these ids."""
        self._leave_to_python()
        self._begin(Fetched(ids))

    def fetched(self, ids: Tensor, batch: Any) -> None:
        """A batch is there: a round begins when a module is given it."""
        self._leave_to_python()
        self._waiting.add(Fetched(ids, batch))

    def _leave_to_python(self) -> None:
        """Keep the compiler away from the hooks, from when anything is compiled: a call costs more then."""
        compiler = sys.modules.get("torch._dynamo.eval_frame")
        backends = getattr(compiler, "cached_backends", {})
        if any(backend is not None for backend in backends.values()):
            for hook in self._hooks:
                hook.leave_to_python()

    def stop(self) -> None:
        """Remove the hooks."""
        self._stop_listening()
        self._seen.stop()
        for hook in self._hooks:
            hook.remove()

    def conclude(self) -> None:
        """The training is over: see what was missing in it."""
        if self._round is not None:
            self._seen.over(self._round)
        self._seen.conclude(self._waiting.unused + len(self._waiting))

    def deliver(self) -> None:
        """Hand over all messages that are held."""
        self._held.deliver()

    def _begin(self, batch: Fetched) -> None:
        self._sink.began(batch.ids)
        if self._round is not None:
            self._seen.over(self._round)
        self._held.between_rounds()
        number = self._first if self._round is None else self._round.number + 1
        self._round, self._outstanding = Round(number, batch), {}
        if self._top is not None:
            self._hook_top.be_last()
        self._seen.begun(self._round)

    def _hook_bottom(self, m: int, bottom: nn.Module) -> list[_Hook]:
        after = _Hook(bottom._forward_hooks, bottom.register_forward_hook(self._after_bottom(m)))
        before = bottom.register_forward_pre_hook(self._before_bottom(m, after), with_kwargs=True)
        return [_Hook(bottom._forward_pre_hooks, before), after]

    def _before_bottom(self, m: int, own: _Hook) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
            if module is not self._bottoms[m]:  # a copy, which took the hooks along
                return
            own.be_last()
            if not in_backward():
                self._use(m, tensors_in((*args, *kwargs.values())), trains=_is_training_pass(module))

        return hook

    def _use(self, m: int, given: list[Tensor], *, trains: bool) -> None:
        """A module is given a batch: which one? One that cannot be known again is the next if the module trains."""
        round_, rows = self._round, {len(tensor) for tensor in given if tensor.dim()}
        self._start = None
        if len(self._waiting):
            own = round_ is not None and round_.batch.place_of(given) is not None
            batch = None if own else self._waiting.holding(given)
            busy = round_ is not None and not round_.spent and m not in round_.calls
            if batch is None and trains and not own and not busy:
                batch = self._waiting.next(rows)
            if batch is not None:
                self._waiting.use(batch)
                self._begin(batch)
        round_ = self._round
        if round_ is not None and len(round_.ids) not in rows:
            self._start = round_.batch.place_of(given)
        self._given = next((tensor for tensor in given if tensor.dim()), None)

    def _after_bottom(self, m: int) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: Any, output: Any) -> Any:
            del inputs
            if module is not self._bottoms[m]:
                return None
            if in_backward():
                return self._recomputed(m, output)
            trains = _is_training_pass(module)
            if self._round is None and trains:
                expected = "wire.batch(ids) or wire.ids(loader) before: whose records?"
                raise InputError(f"watch: bottoms[{m}]", "called", expected)
            if self._round is None or (not trains and self._round.spent):
                return None
            sent = sent_tensor(output, self._outputs[m], f"watch: output of bottoms[{m}]")
            if not trains and len(sent) != len(self._round.ids):
                return None
            if self._round.spent and len(sent) > len(self._round.ids):
                self._seen.evaluated(m, len(sent))
                return None
            output, sent = self._leaving(m, output, sent)
            self._called(m, sent, trains)
            return output

        return hook

    def _leaving(self, m: int, output: Any, sent: Tensor) -> tuple[Any, Tensor]:
        """The output and what is sent of it, by which nothing but what comes back from others passes."""
        if not sent.requires_grad or not (several(output) or callable(self._outputs[m])):
            return output, sent
        output, sent, kept = leaving(output, sent, f"watch: output of bottoms[{m}]")
        if kept is not None:
            self._seen.left_behind(m, kept)
        return output, sent

    def _called(self, m: int, sent: Tensor, trains: bool) -> None:
        """A party's module was called in a round that no backward pass has ended, or trains."""
        assert self._round is not None
        call = Call(m, self._round, self._round.rows(m, len(sent), self._start), sent, training=trains)
        self._seen.called(call, self._given)
        if trains:
            self._drop_evaluation(m)
        if sent.requires_grad:
            self._listening.listen(sent, self._receiver(call))
        if self._top is None:
            self._send_or_wait([(call, sent, ...)])
        else:
            self._outstanding[m] = call

    def _drop_evaluation(self, m: int) -> None:
        """A party that trains in this round was called without gradients before: that was to look at its outputs."""
        if self._unsure:
            waiting = [c for c in self._unsure if c.device != m or c.round is not self._round]
            self._unsure = deque(waiting, maxlen=_MOST)

    def _receiver(self, call: Call) -> Callable[[Tensor], Tensor | None]:
        def receive(gradient: Tensor) -> Tensor | None:
            gradient = self._seen.received(call, gradient)
            return self._held.hold("down", call.round.number, call.device, gradient, call.rows)

        return receive

    def _recomputed(self, m: int, output: Any) -> Any:
        """A checkpoint calls a module once more in the backward pass: the gradient passes through this call."""
        import torch

        call = None if self._round is None else self._round.calls.get(m)
        if call is None or not torch.is_grad_enabled() or call.listened:
            return None
        sent = sent_tensor(output, self._outputs[m], f"watch: output of bottoms[{m}]")
        if not sent.requires_grad or sent.shape != call.sent.shape:
            return None
        output, sent = self._leaving(m, output, sent)
        self._listening.listen(sent, self._receiver(call))
        return output

    def _before_top(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        import torch

        if in_backward() or self._round is None or module is not self._top:
            return
        trains = torch.is_grad_enabled() and any(call.training for call in self._outstanding.values())
        if not self._outstanding and not self._is_sent_again(module):
            return
        calls = self._outstanding or self._round.calls
        if not trains and any(call.training for call in calls.values()) and not torch.is_grad_enabled():
            return  # somebody looks at what the server's model makes of it
        members = sorted(calls)
        tensors = [tensor for tensor in tensors_in((*args, *kwargs.values())) if tensor.dim()]
        places, as_left = columns_of(tensors, [calls[m].sent for m in members], look=not self._sink.delivers)
        if not self._outstanding and as_left:
            return  # the same once more
        self._seen.given(as_left)
        self._send_or_wait([(calls[m], tensor, columns) for m, (tensor, columns) in zip(members, places, strict=True)])
        self._outstanding = {}

    def _is_sent_again(self, module: nn.Module) -> bool:
        """Whether the server's model trains on what was sent before; an error if nothing was."""
        assert self._round is not None
        trains = _is_training_pass(module)
        if trains and not self._round.calls:
            raise InputError("watch: top", "called before any bottom", "the bottoms' outputs as its input")
        return trains

    def _send_or_wait(self, parts: Sequence[tuple[Call, Tensor, Columns]]) -> None:
        """Record what these parties sent, each its columns of a tensor; without gradients, when a pass follows."""
        import torch

        arrived: dict[int, list[Tensor]] = {}
        training = any(call.training for call, _, _ in parts) or self._sink.delivers
        for call, tensor, columns in parts:
            value = part_of(tensor, columns)
            if not training:
                call.copies.append(value.detach().clone())
                self._unsure.append(call)
                continue
            received = self._send(call, value)
            if received is not None:
                arrived.setdefault(id(tensor), []).append(received)
        for _, tensor, _ in parts:
            values = arrived.pop(id(tensor), None)
            if values:
                tensor.data = values[0] if len(values) == 1 else torch.cat(values, dim=1)

    def _send(self, call: Call, value: Tensor) -> Tensor | None:
        self._seen.sent(call)
        return self._held.hold("up", call.round.number, call.device, value, call.rows)

    def _before_backward(self, roots: Any) -> None:
        """A backward pass begins: parties without gradients have sent what it is computed from."""
        self._listening.be_last()
        waiting, self._unsure = self._unsure, deque(maxlen=_MOST)
        for call in waiting:
            for copy in call.copies:
                self._send(call, copy)
            call.copies.clear()
        if self._round is not None:
            self._seen.losses(self._round, roots)
            self._round.spent = True


class _Hook:
    """A hook of a module that can be put behind all others, which may be registered later."""

    def __init__(self, hooks: Any, handle: Any) -> None:
        self._hooks, self._handle, self._compiles = hooks, handle, True

    def be_last(self) -> None:
        if self._handle.id in self._hooks and next(reversed(self._hooks)) != self._handle.id:
            self._hooks.move_to_end(self._handle.id)

    def leave_to_python(self) -> None:
        """Let torch.compile not compile what the hook does."""
        if self._compiles and self._handle.id in self._hooks:
            import torch

            self._hooks[self._handle.id] = torch.compiler.disable(self._hooks[self._handle.id])
            self._compiles = False

    def remove(self) -> None:
        self._handle.remove()


def _outputs(output: Any, devices: int) -> list[Any]:
    """Which tensor of its output each device's module sends."""
    several = isinstance(output, Sequence) and not isinstance(output, str)
    if several and len(output) != devices:
        raise InputError("watch: output", f"{len(output)} names", f"{devices}, one for each device, or one for all")
    return list(output) if several else [output] * devices


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
