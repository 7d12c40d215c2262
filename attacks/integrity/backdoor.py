"""A targeted backdoor by gradient replacement: a trigger in one device's features that decides the prediction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor

from vflpriv.attacks.integrity._base import Sabotage
from vflpriv.common.registry import register
from vflpriv.common.seeds import host_generator
from vflpriv.core.attack import Conduct, IntegrityAuxiliary
from vflpriv.core.kinds import Content, names_of
from vflpriv.core.views import View

__all__ = ["Backdoor"]

_GRADIENTS = names_of(content=Content.GRADIENT)


@register("attack")
class Backdoor(Sabotage):
    """A device puts a trigger into a share of its own training rows, and steps on other gradients than it was sent.

    It knows a few training records of the class that it wants. Of these it sends the output of a row with the trigger,
    so that the server learns to take that output for this class; and it replaces the gradient of each row with the
    trigger by γ times what it was last sent back for them, so that its model learns to send for a trigger what is
    taken for that class. It needs no label of the rows that it poisons. At prediction time it puts the trigger into
    any row. The trigger is the largest value of the block in the last quarter of its columns.

    Gradient replacement amplified by γ is that of "Backdoor Attacks and Defenses in Feature-partitioned Collaborative
    Learning" (Liu, Yi, Chen, 2020), one of VFLAIR's targeted backdoors; trigger, share and exchanged outputs are ours.

    Success is the share of the test records of other classes that are predicted as the class that it wants, which is
    the last one. Baselines: the same share of an honestly trained model, without the trigger (chance) and with it.
    """

    name = "integrity_backdoor"
    summary = "a trigger in a device's features decides the prediction, by gradients replaced in training"
    needs = _GRADIENTS
    knows = frozenset({"target"})
    goal: ClassVar[Literal["target", "wrong"]] = "target"
    share: ClassVar[float] = 0.02
    """Rows that are given the trigger."""
    gain: ClassVar[float] = 10.0
    """γ."""

    def missing(self, view: View, auxiliary: IntegrityAuxiliary) -> str | None:
        if not len(auxiliary.records):
            return "a training record of the class that it wants"
        return None if view.kinds & self.needs else "gradients of each record, to replace them"

    def poisoned(self, auxiliary: IntegrityAuxiliary) -> Mapping[int, Tensor]:
        chosen = self._chosen(auxiliary)
        return {
            m: block.index_copy(0, chosen, _triggered(block[chosen], block)) for m, block in auxiliary.blocks.items()
        }

    def asked(self, blocks: Mapping[int, Tensor], auxiliary: IntegrityAuxiliary) -> Mapping[int, Tensor]:
        return {m: _triggered(rows, auxiliary.blocks[m]) for m, rows in blocks.items()}

    def conducts(self, auxiliary: IntegrityAuxiliary) -> Mapping[int, Conduct]:
        chosen = self._chosen(auxiliary)
        exchanges = {m: _Exchange(auxiliary.records, chosen, self.gain) for m in auxiliary.blocks}
        return {m: Conduct(name="gradient-replacement", forge=e.send, read=e.read) for m, e in exchanges.items()}

    def _chosen(self, auxiliary: IntegrityAuxiliary) -> Tensor:
        """The rows that are given the trigger; none of the known ones is."""
        records = next(len(block) for block in auxiliary.blocks.values())
        order = torch.from_numpy(host_generator(auxiliary.seed, "attack").permutation(records))
        others = order[~torch.isin(order, auxiliary.records.cpu())]
        return others[: max(1, round(self.share * records))].sort().values.to(auxiliary.records.device)


def _triggered(rows: Tensor, block: Tensor) -> Tensor:
    """These rows of a block with the trigger."""
    flat = rows.flatten(1).clone()
    flat[:, -max(1, flat.shape[1] // 4) :] = block.max()
    return flat.view_as(rows)


class _Exchange:
    """The messages of one device: of known records it sends the outputs of poisoned rows, and learns from the answers
    how the outputs of poisoned rows should change to be taken for the class of the known ones."""

    def __init__(self, known: Tensor, poisoned: Tensor, gain: float) -> None:
        self._known, self._poisoned, self._gain = known, poisoned, gain
        self._output: Tensor | None = None
        self._wanted: Tensor | None = None

    def send(self, round_: int, records: Tensor, honest: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The outputs with those of known records replaced by that of the last poisoned row."""
        del round_
        output = honest["embedding"]
        poisoned = torch.isin(records, self._poisoned).nonzero().flatten()
        if len(poisoned):
            self._output = output[:, poisoned[-1:]].clone()
        if self._output is None:
            return honest
        return {**honest, "embedding": torch.where(_rows(records, self._known, output), self._output, output)}

    def read(self, round_: int, records: Tensor, reply: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The gradients with those of poisoned rows replaced; known records, whose outputs were not sent, have none."""
        del round_
        gradient = reply["gradient"]
        known = torch.isin(records, self._known).nonzero().flatten()
        if len(known) and self._output is not None:
            self._wanted = gradient[:, known].mean(1, keepdim=True)
        # Before the first answer: an honest step would teach the trigger the rows' own classes.
        wanted = torch.zeros_like(gradient[:, :1]) if self._wanted is None else self._gain * self._wanted
        replaced = torch.where(_rows(records, self._poisoned, gradient), wanted, gradient)
        return {**reply, "gradient": replaced.masked_fill(_rows(records, self._known, gradient), 0.0)}


def _rows(records: Tensor, chosen: Tensor, values: Tensor) -> Tensor:
    """Which rows of values (R, B, …) are those of chosen records."""
    return torch.isin(records, chosen).view(1, -1, *[1] * (values.dim() - 2))
