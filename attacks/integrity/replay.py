"""A replay: a device that sends, of each record, what it sent of it first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor

from vflpriv.attacks.integrity._base import Sabotage
from vflpriv.common.registry import register
from vflpriv.core.attack import Conduct, IntegrityAuxiliary
from vflpriv.core.kinds import Content, names_of
from vflpriv.core.views import View

__all__ = ["Replay"]


@register("attack")
class Replay(Sabotage):
    """A device records its first message about each record, and replays these in all later rounds.

    Whoever can replay messages needs neither the device's model nor its features: the device itself, or somebody
    between it and the server, where messages have no sequence numbers that are checked. The server trains on outputs of
    a model that is never updated, while the device's own model goes on to learn from the answers; predictions are asked
    of that one.

    Success is the share of test records that are predicted wrongly; the baseline is that of an honest training.
    """

    name = "integrity_replay"
    summary = "a device's first messages are replayed in all later rounds"
    needs = names_of(content=Content.OUTPUTS)
    goal: ClassVar[Literal["target", "wrong"]] = "wrong"

    def missing(self, view: View, auxiliary: IntegrityAuxiliary) -> str | None:
        del auxiliary
        return None if view.kinds & self.needs else "outputs of each record, to send them again"

    def conducts(self, auxiliary: IntegrityAuxiliary) -> Mapping[int, Conduct]:
        records = {m: len(block) for m, block in auxiliary.blocks.items()}
        return {m: Conduct(name="replay", forge=_Replayed(count)) for m, count in records.items()}


class _Replayed:
    """What was sent first of each of so many records, in tensors with a row for each."""

    def __init__(self, records: int) -> None:
        self._records = records
        self._first: dict[str, Tensor] = {}
        self._sent = torch.zeros(records, dtype=torch.bool)

    def __call__(self, round_: int, records: Tensor, honest: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        del round_
        self._sent = self._sent.to(records.device)
        fresh, sent = ~self._sent[records], {}
        for name, value in honest.items():
            # The batch is the axis before the last one; perturbed outputs have one for directions before it.
            rows = value.movedim(-2, 0)
            store = self._first.setdefault(name, rows.new_zeros(self._records, *rows.shape[1:]))
            store[records[fresh]] = rows[fresh]
            sent[name] = store[records].movedim(0, -2)
        self._sent[records] = True
        return sent
