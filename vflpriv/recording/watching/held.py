"""Messages of watched modules on their way to the recording: many are handed over together."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from vflpriv.recording.files.ending import shielded
from vflpriv.recording.watching.rounds import Rows

if TYPE_CHECKING:
    from torch import Tensor

    from vflpriv.recording.files.format import Entry
    from vflpriv.recording.watching.checks import Checks

__all__ = ["GRADIENT_OF", "HeldMessages", "Sink"]

GRADIENT_OF: Mapping[str, str] = {"embeddings": "embedding-gradient", "logits": "logit-gradient"}
"""The kind of the reply to each kind of message that modules can be watched for."""

_HELD, _SECONDS = 224, 0.25
"""Messages that are handed over together, and how long they may wait, so that a slow training is recorded as it goes.

Between the products of a training the code that checks and lists a message has left the processor's cache. For many
messages in a row it is fetched once.
"""


class Sink(Protocol):
    """Where messages go: a recording wire."""

    @property
    def checks_later(self) -> bool:
        """Whether messages may reach it some rounds later."""
        ...

    @property
    def checks(self) -> Checks:
        """What is checked while modules are watched."""
        ...

    @property
    def delivers(self) -> bool:
        """Whether modules go on with what `add` returns: what the receiver gets."""
        ...

    def began(self, ids: Tensor) -> None:
        """Is told of each round that begins."""
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


class HeldMessages:
    """Copies of messages, of one kind and the replies to it, which are listed when several are."""

    def __init__(self, sink: Sink, kind: str) -> None:
        self._sink, self._kind = sink, kind
        self._forms: dict[tuple[str, int], tuple[object, Entry]] = {}
        self._held: list[tuple[Entry, int, Tensor | None, dict[str, Tensor] | None]] = []
        self._since = time.monotonic()

    def hold(self, way: str, round_: int, m: int, value: Tensor, rows: Rows) -> Tensor | None:
        """Keep a copy of a message about these rows; what the receiver gets, if modules go on with it.

        A batch with a record twice is two messages.
        """
        if len(rows.parts) == 1:
            return self._hold_part(way, round_, m, value, rows.ids)
        arrived = value.detach().clone()
        for places, ids in rows.parts:
            part = self._hold_part(way, round_, m, value[places], ids)
            if part is not None:
                arrived[places] = part
        return arrived if self._sink.delivers else None

    def _hold_part(self, way: str, round_: int, m: int, value: Tensor, ids: Tensor) -> Tensor | None:
        """One message. One of another form than the last on its link is handed over at once, since it may be wrong."""
        name, kind = ("embedding", self._kind) if way == "up" else ("gradient", GRADIENT_OF[self._kind])
        form = value.shape, value.dtype, len(ids)
        last, value = self._forms.get((way, m)), value.detach()
        if last is not None and last[0] == form:
            stored = value.is_cpu and self._sink.store(last[1], name, value)
            self._held.append((last[1], round_, ids, None if stored else {name: value.clone()}))
            return None
        self.deliver()
        entry, arrived = self._sink.add(way, round_, m, kind, {name: value}, ids, at_once=False)
        if self._sink.checks_later:
            self._forms[way, m] = form, entry
        return arrived[name] if self._sink.delivers else None

    def between_rounds(self) -> None:
        """Hand over what is held if it is much, or has waited long: a round is over."""
        if len(self._held) >= _HELD or time.monotonic() - self._since > _SECONDS:
            self.deliver()
            self._sink.between_rounds()

    def deliver(self) -> None:
        """Hand over all messages that are held."""
        with shielded():
            held, self._held, self._since = self._held, [], time.monotonic()
            for like, round_, ids, tensors in held:
                if tensors is None:
                    self._sink.enter(like, round_, ids)
                else:
                    self._sink.add(like.way, round_, like.device, like.kind, tensors, ids, at_once=False)
