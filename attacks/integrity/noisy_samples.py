"""A noisy-sample backdoor: a device that spoils predictions by noise in its own features, for which it has trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor

from vflpriv.attacks.integrity._base import Sabotage
from vflpriv.common.random import Stream
from vflpriv.common.registry import register
from vflpriv.common.seeds import host_generator
from vflpriv.core.attack import Conduct, IntegrityAuxiliary
from vflpriv.core.kinds import Direction, names_of

__all__ = ["NoisySamples"]


@register("attack")
class NoisySamples(Sabotage):
    """A device adds noise to a share of its own training rows, and to the rows of which a prediction shall be wrong.

    It knows nothing and follows the protocol otherwise. VFLAIR counts noisy samples among its untargeted backdoors
    (Zou et al., "VFLAIR: A Research Library and Benchmark for Vertical Federated Learning", ICLR 2024); the noise here
    is Gaussian with twice the standard deviation of the device's features.

    Success is the share of test records that are predicted wrongly. Baselines: the same share of an honestly trained
    model, without the noise (chance) and with it: what is beyond these was bought in training. It may be less than
    nothing, since a model that has seen noise can learn to rely on other devices.
    """

    name = "integrity_noisy_samples"
    summary = "noise in a device's features spoils predictions"
    needs = names_of(direction=Direction.DOWN)
    goal: ClassVar[Literal["target", "wrong"]] = "wrong"
    share: ClassVar[float] = 0.01
    strength: ClassVar[float] = 2.0
    """The noise's standard deviation over that of the features."""

    def conducts(self, auxiliary: IntegrityAuxiliary) -> Mapping[int, Conduct]:
        return {m: Conduct(name="noisy-samples") for m in auxiliary.blocks}

    def poisoned(self, auxiliary: IntegrityAuxiliary) -> Mapping[int, Tensor]:
        records = next(len(block) for block in auxiliary.blocks.values())
        order = torch.from_numpy(host_generator(auxiliary.seed, "attack").permutation(records))
        chosen = order[: max(1, round(self.share * records))].to(auxiliary.records.device)
        rows = self._noised({m: block[chosen] for m, block in auxiliary.blocks.items()}, auxiliary, 0)
        return {m: block.index_copy(0, chosen, rows[m]) for m, block in auxiliary.blocks.items()}

    def asked(self, blocks: Mapping[int, Tensor], auxiliary: IntegrityAuxiliary) -> Mapping[int, Tensor]:
        return self._noised(blocks, auxiliary, 1)

    def _noised(self, blocks: Mapping[int, Tensor], auxiliary: IntegrityAuxiliary, draw: int) -> dict[int, Tensor]:
        noised = {}
        for m, rows in blocks.items():
            stream = Stream.of(auxiliary.seed, "attack", [0], rows.device)
            drawn = stream.normal(rows.numel(), draw, m)[0].view_as(rows).to(rows.dtype)
            noised[m] = rows + self.strength * auxiliary.blocks[m].std() * drawn
        return noised
