"""A user's training function as a program: its two worlds are those that it makes itself.

What the function hands over by `wire.labels` or `wire.features` is private from then on, if it differs between the
worlds. If it hands over nothing that differs, the number `world` itself is what is private, and is followed to wherever
the function puts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from vflpriv.audits.flow.plain.twins import plain_run
from vflpriv.audits.flow.plain.wire import FlowWire, Party, Program
from vflpriv.recording.worlds_file import TrialsConfig
from vflpriv.run.own_training.function import OwnTraining
from vflpriv.run.own_training.reference import sizes
from vflpriv.run.traced.wire import Ended, TracingWire
from vflpriv.run.traced.worlds import alike, array

__all__ = ["function_program", "handed_over"]

_Given = list[tuple[str, Party, Any]]
"""What a training hands over, in its order: what it is, whose it is, the values."""


def function_program(
    training: OwnTraining,
    worlds: TrialsConfig,
    held: Sequence[Tensor | None],
    *,
    hidden: frozenset[str],
    rounds: int,
) -> Program:
    """The first rounds of a training function, for a view that these kinds of messages are hidden from.

    `held` is what it hands over in world 1, as `handed_over` says.
    """

    def program(wire: FlowWire) -> None:
        left, kept = list(held), list[tuple[Tensor, NDArray[Any]]]()

        def hold(tracing: TracingWire, what: str, device: int | None, values: Any, records: Any) -> None:
            del records
            other = left.pop(0) if left else None
            if other is None:
                return
            named = "labels" if device is None else f"features of device {device}"
            for tensor in alike(wire, values.detach()):
                with wire.unseen():
                    kept.append((tensor, array(tensor)))
                    changed = _in_form_of(tensor, other)
                wire.hold(tensor, changed, what=named, owner="server" if device is None else device)

        tracing = TracingWire(wire, holder=hold, hidden=hidden, rounds=rounds, **sizes(worlds))
        try:
            _run(training, tracing, wire.world if held else _followed_world(wire), wire.given_seed())
        finally:
            with wire.unseen():
                for tensor, value in kept:
                    tensor.detach().copy_(torch.from_numpy(value))

    return program


def _in_form_of(tensor: Tensor, values: Tensor) -> Tensor:
    """Values as a tensor holds them: in its number format, as a column, or as one-hot rows."""
    if tensor.numel() == values.numel():
        return values.reshape(tensor.shape).to(tensor.dtype)
    return torch.nn.functional.one_hot(values.long(), tensor.shape[1]).to(tensor.dtype)


def _run(training: OwnTraining, tracing: TracingWire, world: Any, seed: int) -> None:
    try:
        training.run(tracing, world, seed)
    except Ended:
        return
    finally:
        tracing.close()


def _followed_world(wire: FlowWire) -> Any:
    """The number of the world, as one that the tracer follows."""
    what = "what differs between the worlds"
    return wire.private(torch.tensor(0), torch.tensor(1), what=what).item()


def handed_over(training: OwnTraining, worlds: TrialsConfig, seed: int) -> list[Tensor | None] | str:
    """What each call before the second round hands over in world 1, None where it is the same as in world 0.

    Nothing if tensors do not show what differs; of trainings without torch the reason why they are not followed.
    """
    (first, of_torch), (second, _) = (_given(training, worlds, world, seed) for world in (0, 1))
    if not of_torch:
        return "a trace follows operations of torch, and what this function sends are no tensors of torch"
    if [given[:2] for given in first] != [given[:2] for given in second]:
        return []
    others: list[Tensor | None] = []
    for (_, _, own), (_, _, other) in zip(first, second, strict=True):
        if not isinstance(own, Tensor) or not isinstance(other, Tensor) or own.shape != other.shape:
            return []
        others.append(None if torch.equal(own, other) else other)
    return others if any(other is not None for other in others) else []


def _given(training: OwnTraining, worlds: TrialsConfig, world: int, seed: int) -> tuple[_Given, bool]:
    given: _Given = []
    made: list[TracingWire] = []

    def note(tracing: TracingWire, what: str, device: int | None, values: Any, records: Any) -> None:
        del tracing, records
        kept = values.detach().clone() if isinstance(values, Tensor) else values
        given.append((what, "server" if device is None else device, kept))

    def program(wire: FlowWire) -> None:
        made.append(TracingWire(wire, holder=note, rounds=1, **sizes(worlds)))
        _run(training, made[0], world, wire.given_seed())

    plain_run(program, seed, world=world)
    return given, made[0].of_torch
