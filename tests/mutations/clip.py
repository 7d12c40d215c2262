"""Mutations of the clip: one record moves the released value further than the ledger says."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tests.mutations.case import Mutation, Trained, exact_claim
from tests.mutations.dpzv import Joint, Point, dpzv_case, labels_of, swapped
from tests.mutations.wire import ROWS
from vflpriv.core.engine import Contributions
from vflpriv.training.engines.vimadmm import Vimadmm
from vflpriv.training.engines.zoo_vfl import ZooVfl
from vflpriv.training.mechanisms.base import Mechanism, ReleasePoint, ScalarMean
from vflpriv.training.mechanisms.uplink import ClientClip, EmbeddingClip

__all__ = ["ADMM", "MUTATIONS"]


# The engine's own clip: the release point does not use that of its mechanism -----------------------------------------


class _OwnClip(Point):
    """A release point with a clip of its own."""

    def noiseless(self, contributions: Contributions) -> Tensor:
        mechanism = self.mechanism
        assert isinstance(mechanism, ScalarMean)
        return self.clipped(mechanism.clip, contributions) / self.denominator(mechanism, contributions)

    def clipped(self, clip: float, contributions: Contributions) -> Tensor:
        return contributions.values.clamp(-clip, clip).sum(-1)

    def denominator(self, mechanism: ScalarMean, contributions: Contributions) -> float:
        return mechanism.batch_size


class _Doubled(_OwnClip):
    def clipped(self, clip: float, contributions: Contributions) -> Tensor:
        return contributions.values.clamp(-2 * clip, 2 * clip).sum(-1)


class _OneSided(_OwnClip):
    def clipped(self, clip: float, contributions: Contributions) -> Tensor:
        return contributions.values.clamp(max=clip).sum(-1)


class _OneLabel(_OwnClip):
    def clipped(self, clip: float, contributions: Contributions) -> Tensor:
        free = labels_of(self.engine, contributions.records) == 1
        return torch.where(free, contributions.values, contributions.values.clamp(-clip, clip)).sum(-1)


class _AfterMean(_OwnClip):
    def clipped(self, clip: float, contributions: Contributions) -> Tensor:
        return contributions.values.sum(-1).clamp(-clip * 5, clip * 5)


class _Growing(_OwnClip):
    def clipped(self, clip: float, contributions: Contributions) -> Tensor:
        bound = clip * (1 + contributions.round / 4)
        return contributions.values.clamp(-bound, bound).sum(-1)


class _Median(_OwnClip):
    def clipped(self, clip: float, contributions: Contributions) -> Tensor:
        bound = contributions.values.abs().median(-1, keepdim=True).values.clamp(min=clip)
        return torch.minimum(torch.maximum(contributions.values, -bound), bound).sum(-1)


class _HalfDenominator(_OwnClip):
    def denominator(self, mechanism: ScalarMean, contributions: Contributions) -> float:
        return mechanism.batch_size / 2


class _OwnDenominator(_OwnClip):
    def denominator(self, mechanism: ScalarMean, contributions: Contributions) -> float:
        return max(1, len(contributions.records))


def _engine(name: str, point: type[Point]) -> type[Joint]:
    """DPZV with this release point."""
    return type("ClippedWrongly", (Joint,), {"name": name, "point_type": point, "__module__": __name__})


# A mechanism that is not the declared one ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Wide(ScalarMean):
    def contributions(self, values: Tensor) -> Tensor:
        return values.clamp(-2 * self.clip, 2 * self.clip)


class WideMechanism(Joint):
    name = "wide-mechanism"

    def used(self, mechanism: Mechanism) -> Mechanism:
        assert isinstance(mechanism, ScalarMean)
        return _Wide(noise_std=mechanism.noise_std, clip=mechanism.clip, batch_size=mechanism.batch_size)


@dataclass(frozen=True, kw_only=True)
class _LargestEntry(EmbeddingClip):
    def noiseless(self, values: Tensor) -> Tensor:
        return values.clamp(-self.clip, self.clip)


@dataclass(frozen=True, kw_only=True)
class _EachRow(ClientClip):
    def noiseless(self, values: Tensor) -> Tensor:
        norm = values.square().sum(-1, keepdim=True).sqrt().clamp(min=1e-30)
        return values * (self.clip / norm).clamp(max=1.0)


class LargestEntry(ZooVfl):
    name = "largest-entry"

    def release_point(
        self, kind: str, mechanism: Mechanism, *, stream: str = "noise", internal: bool = False
    ) -> ReleasePoint:
        made = super().release_point(kind, mechanism, stream=stream, internal=internal)
        assert isinstance(mechanism, EmbeddingClip)
        fields = {"noise_std": mechanism.noise_std, "clip": mechanism.clip, "batch_size": mechanism.batch_size}
        return swapped(self, made, Point, _LargestEntry(**fields, emptied=mechanism.emptied))


class EachRow(Vimadmm):
    name = "each-row"

    def release_point(
        self, kind: str, mechanism: Mechanism, *, stream: str = "noise", internal: bool = False
    ) -> ReleasePoint:
        made = super().release_point(kind, mechanism, stream=stream, internal=internal)
        assert isinstance(mechanism, ClientClip)
        own = _EachRow(noise_std=mechanism.noise_std, clip=mechanism.clip, emptied=mechanism.emptied)
        return swapped(self, made, Point, own)


ADMM = {
    "rounds": 6,
    "batch_size": 10,
    "embedding": 4,
    "protection": "client",
    "clip": 1.0,
    "noise_std": 1.0,
    "penalty": 0.1,
    "local_steps": 2,
    "momentum": 0.0,
}


def _clip(name: str, fault: str, change: str, case: Trained, *, fast: bool = False) -> Mutation:
    return Mutation(name=name, family="clip", fault=fault, change=change, expected="wire", case=case, fast=fast)


def _own(name: str, fault: str, change: str, point: type[Point], *, fast: bool = False) -> Mutation:
    return _clip(name, fault, change, dpzv_case(_engine(name, point)), fast=fast)


MUTATIONS = (
    _own("clip-doubled", "the engine clips at 2C", "+100 %", _Doubled, fast=True),
    _own("clip-one-sided", "the engine clips at C from above only", "unbounded", _OneSided, fast=True),
    _own("clip-one-label", "records of one class are not clipped", "unbounded", _OneLabel),
    _own("clip-of-sum", "the sum is clipped at 5C, not each record", "+400 %", _AfterMean),
    _own("clip-growing", "the clip grows by C/4 in every round", "+140 % on average", _Growing),
    _own("clip-median", "the clip is the batch's median where that is larger than C", "unbounded", _Median),
    _own("half-denominator", "the sum is divided by B/2", "+100 %", _HalfDenominator),
    replace(
        _own("own-denominator", "Poisson batches are divided by their own size", "up to +150 %", _OwnDenominator),
        case=dpzv_case(_engine("own-denominator", _OwnDenominator), schedule="poisson"),
    ),
    _clip(
        "wide-mechanism", "the mechanism in use clips at 2C, the declared one at C", "+100 %", dpzv_case(WideMechanism)
    ),
    _clip(
        "largest-entry",
        "each entry of an embedding is clipped, not its length",
        "+100 %",
        Trained(
            engine=LargestEntry,
            settings={**ROWS, "clip": 0.3},
            claims=exact_claim("features", "server"),
            noise_for=(1.0, "features", "server"),
        ),
    ),
    _clip(
        "each-row",
        "each row of a device's batch is clipped, not the whole batch",
        "+216 %",
        Trained(
            engine=EachRow,
            settings={**ADMM, "clip": 0.3},
            claims=exact_claim("client-zero", "server"),
            noise_for=(1.0, "client-zero", "server"),
        ),
    ),
)
