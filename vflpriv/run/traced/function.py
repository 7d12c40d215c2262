"""A training function as a script: it is called with a wire, as often as it is followed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vflpriv.audits.flow.plain.wire import FlowWire
from vflpriv.errors import InputError
from vflpriv.recording.elsewhere import WireMaker, wires_made_by
from vflpriv.run.traced.block import trace
from vflpriv.run.traced.copies import containers, fill
from vflpriv.run.traced.script import Script
from vflpriv.run.traced.wire import Ended
from vflpriv.run.traced.worlds import alike, array, tensor_of

__all__ = ["FunctionScript"]


@dataclass(frozen=True, eq=False, kw_only=True)
class FunctionScript(Script):
    """A function of a wire that trains models of its own, and the private values that it finds where it is defined."""

    function: Callable[[Any], object]
    labels: Any = None
    features: Sequence[Any] = ()
    devices: int | None = None
    classes: int | None = None

    @classmethod
    def of(cls, function: Callable[[Any], object], **fields: Any) -> FunctionScript:
        """The function in its file."""
        return cls(path=Path(inspect.getsourcefile(function) or "train"), function=function, **fields)

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", "train")

    def run(self, maker: WireMaker) -> None:
        """Call it, and give its private values back as they were."""
        with FlowWire.unseen():
            given = [tensor_of(value) for value in (self.labels, *self.features) if value is not None]
            # Arrays, since what is private is found among all tensors.
            kept = [(tensor, array(tensor)) for value in given for tensor in alike(FlowWire, value.detach())]
            cached = [] if self.labels is None else [(own, array(given[0])) for own in containers(given[0])]
        try:
            with wires_made_by(maker), self._as_a_program():
                whole = {"labels": self.labels, "features": self.features}
                with trace(**whole, devices=self.devices, classes=self.classes) as wire:
                    self.function(wire)
        except Ended:
            return
        except Exception as error:
            raise InputError("train", self.name, f"a training without errors: {self._line(error)}") from error
        finally:
            with FlowWire.unseen():
                for tensor, value in kept:
                    tensor.detach().copy_(torch.from_numpy(value))
                for own, numbers in cached:
                    fill(own, torch.from_numpy(numbers))
