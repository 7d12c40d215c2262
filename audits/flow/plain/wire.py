"""What a program under examination is given: private values in two worlds, and a wire that its parties send over.

A program is an ordinary function with torch code in it. It asks the wire for its private values, trains, and sends. The
plain wire only runs it, in one of the two worlds; the tracer has a wire of its own.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypedDict, Unpack, overload

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

__all__ = [
    "FlowWire",
    "Party",
    "Payload",
    "PlainWire",
    "Private",
    "Program",
    "SentMessage",
    "View",
    "bits",
    "identical",
    "own_storage",
    "parties_of",
]

_SEEDS = 1 << 31
"""Seeds that every library takes."""

Party = str | int
"""The server ("server") or the number of a device."""
Payload = Tensor | Mapping[str, Tensor]
View = Party | frozenset[Party]
"""Who looks: "eavesdropper", who sees all messages, a party, or several that share what they see."""


class About(TypedDict, total=False):
    """What is said of a message beside its kind and its tensors."""

    sender: Party
    """The server if it is not given."""
    receiver: Party | Sequence[Party]
    """Device 0 if it is not given."""
    round_: int | None
    records: Tensor | None


@dataclass(frozen=True, kw_only=True)
class Private:
    """What a program says of a private value."""

    what: str
    owner: Party
    distinct: bool
    """Whether each of its rows is of another record."""
    largest: float = math.inf
    """No entry is larger."""


class FlowWire(ABC):
    """Private values and messages of a program."""

    world: int = 0
    """The world in which the program runs: a tracer runs both at once, as world 0."""

    def given_seed(self) -> int:
        """A seed for a program that is told one. It stands for a secret: it is another one in each run."""
        return torch.initial_seed() % _SEEDS

    def reveal(self, tensor: Tensor) -> None:
        """Whoever looks knows this value, and the draws that made it, such as the records of a batch."""
        del tensor

    @staticmethod
    @contextmanager
    def unseen() -> Iterator[None]:
        """While nobody follows what is computed: for looks at values that are no part of the program."""
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            yield

    def hold(
        self,
        tensor: Tensor,
        other: Tensor,
        *,
        what: str = "labels",
        owner: Party = "server",
        distinct: bool = True,
        largest: float = math.inf,
    ) -> None:
        """A tensor of the program is private where it lies; in the neighbouring world it is the `other`.

        Its rows are those of records, each at most once if they are `distinct`; no entry is larger than `largest`.
        """
        self.held(tensor, other, Private(what=what, owner=owner, distinct=distinct, largest=largest))

    def private(
        self, value: Tensor, other: Tensor, *, what: str = "labels", owner: Party = "server", distinct: bool = True
    ) -> Tensor:
        """A private value, and what it is in the neighbouring world: of the same shape and dtype.

        It may be asked for several values: the labels, the block of a party.
        """
        return self.given(value, other, Private(what=what, owner=owner, distinct=distinct))

    @overload
    def send(self, kind: str, tensors: Tensor, **about: Unpack[About]) -> Tensor: ...

    @overload
    def send(self, kind: str, tensors: Mapping[str, Tensor], **about: Unpack[About]) -> Mapping[str, Tensor]: ...

    def send(self, kind: str, tensors: Payload, **about: Unpack[About]) -> Payload:
        """Send a message; what its receiver gets has the same structure. Record ids that travel along are seen too."""
        named = {"": tensors} if isinstance(tensors, Tensor) else dict(tensors)
        records = about.get("records")
        message = SentMessage(
            kind=kind,
            sender=about.get("sender", "server"),
            receivers=parties_of(about.get("receiver", 0)),
            round=about.get("round_"),
            tensors=named if records is None else named | {"records": records},
        )
        arrived = self.sending(message, named)
        return arrived[""] if isinstance(tensors, Tensor) else arrived

    @abstractmethod
    def held(self, tensor: Tensor, other: Tensor, private: Private) -> None:
        """Take note of a tensor that is private from now on."""

    @abstractmethod
    def given(self, value: Tensor, other: Tensor, private: Private) -> Tensor:
        """The value in the world of this run."""

    @abstractmethod
    def sending(self, message: SentMessage, named: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Take note of a message with the program's own tensors, and return what arrives of those that are `named`."""


Program = Callable[[FlowWire], object]
"""A training. It draws as it likes, from torch, NumPy or `random`; all of them are seeded before it runs."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SentMessage:
    """A message as it was sent; `tensors` are copies."""

    kind: str
    sender: Party
    receivers: tuple[Party, ...]
    round: int | None
    tensors: Mapping[str, Tensor]

    def seen_by(self, view: View) -> bool:
        """Whether an adversary with this view sees the message."""
        members = view if isinstance(view, frozenset) else {view}
        return view == "eavesdropper" or not members.isdisjoint({self.sender, *self.receivers})


def parties_of(receiver: Party | Sequence[Party]) -> tuple[Party, ...]:
    """The parties that receive a message."""
    return (receiver,) if isinstance(receiver, str | int) else tuple(receiver)


def own_storage(tensor: Tensor) -> None:
    """Give a tensor that is a part of another one memory of its own: what is known of private values is by memory."""
    if tensor.numel() * tensor.element_size() != tensor.untyped_storage().nbytes():
        tensor.data = tensor.detach().clone()


def identical(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors agree in shape, dtype and every bit: -0.0 is not 0.0, and payloads of NaN count."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    if first.dtype in (torch.int64, torch.bool):
        return torch.equal(first, second)
    whole_numbers = _OF_ONE_SIZE.get(first.dtype)
    if whole_numbers is None or any(t.requires_grad or t.is_neg() for t in (first, second)):
        return torch.equal(bits(first), bits(second))
    return torch.equal(first.view(whole_numbers), second.view(whole_numbers))


_OF_ONE_SIZE = {
    torch.float32: torch.int32,
    torch.float64: torch.int64,
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
}
"""By whose values bits are compared most quickly."""


def bits(tensor: Tensor) -> Tensor:
    """The bytes of a tensor, one element after another."""
    plain = tensor.detach().contiguous().reshape(-1)
    plain = plain.resolve_conj().resolve_neg() if plain.is_conj() or plain.is_neg() else plain
    # A single element counts as contiguous whatever its stride, and bytes are seen at stride 1 alone.
    return plain.as_strided((len(plain),), (1,)).view(torch.uint8)


class PlainWire(FlowWire):
    """Runs a program in world 0 or 1 and keeps its messages.

    With `received`, whoever receives a message that the view sees gets the one of these instead.
    """

    def __init__(
        self,
        world: int = 0,
        received: Sequence[SentMessage] = (),
        view: View = "eavesdropper",
        *,
        begun: Callable[[], object] = lambda: None,
    ) -> None:
        self.world = world
        self.sent: list[SentMessage] = []
        self._received, self._view, self._begun = received, view, begun

    def held(self, tensor: Tensor, other: Tensor, private: Private) -> None:
        self._begun()
        own_storage(tensor)
        if self.world:
            with self.unseen():
                tensor.detach().copy_(other)

    def given(self, value: Tensor, other: Tensor, private: Private) -> Tensor:
        self._begun()
        return (other if self.world else value).clone()

    def sending(self, message: SentMessage, named: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        kept = {name: tensor.detach().clone() for name, tensor in message.tensors.items()}
        self.sent.append(replace(message, tensors=kept))
        return {name: self._arrives(name, tensor) for name, tensor in named.items()}

    def _arrives(self, name: str, tensor: Tensor) -> Tensor:
        place = len(self.sent) - 1
        seen = place < len(self._received) and self._received[place].seen_by(self._view)
        first = self._received[place].tensors.get(name) if seen else None
        return (tensor if first is None else first).detach().clone()
