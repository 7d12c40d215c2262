"""What a party puts on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from vflpriv.parties import Party
from vflpriv.wire import Message, Shift, Wire

__all__ = ["Payload"]


@dataclass(frozen=True)
class Payload:
    """The contents of a message; `worlds` and `shifts` as in `Message`."""

    kind: str
    tensors: Mapping[str, Tensor]
    worlds: Mapping[str, Tensor] = field(default_factory=dict)
    shifts: Mapping[str, Shift] = field(default_factory=dict)

    def send(self, wire: Wire, round_: int, sender: Party, receiver: Party, records: Tensor) -> Mapping[str, Tensor]:
        """What arrives at the receiver."""
        message = Message(
            round=round_,
            sender=sender,
            receiver=receiver,
            kind=self.kind,
            tensors=self.tensors,
            records=records,
            worlds=self.worlds,
            shifts=self.shifts,
        )
        return wire.send(message).tensors
