"""Mutations of the noise: it is there at every release point, but not what the ledger says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from tests.mutations.case import Mutation, Trained, exact_claim
from tests.mutations.dpzv import Joint, Point, dpzv_case, swapped
from tests.mutations.wire import ROWS
from vflpriv.core.engine import Contributions
from vflpriv.core.wire import Payload
from vflpriv.training.engines.split import Split
from vflpriv.training.engines.zoo_vfl import ZooVfl
from vflpriv.training.mechanisms.base import Mechanism, ReleasePoint, ScalarMean
from vflpriv.training.mechanisms.uplink import EmbeddingClip

__all__ = ["MUTATIONS", "SPLIT", "QuietLater", "TakenBack"]


class _Half(Point):
    def drawn(self, contributions: Contributions, normals: Tensor) -> Tensor:
        return 0.5 * normals


class _FourFifths(Point):
    def drawn(self, contributions: Contributions, normals: Tensor) -> Tensor:
        return 0.8 * normals


class _Once(Point):
    def drawn(self, contributions: Contributions, normals: Tensor) -> Tensor:
        return self.noise.scalar(0)


class _ConstantLate(Point):
    def drawn(self, contributions: Contributions, normals: Tensor) -> Tensor:
        return self.noise.scalar(min(contributions.round, 128))


class _Period(Point):
    def drawn(self, contributions: Contributions, normals: Tensor) -> Tensor:
        return self.noise.scalar(contributions.round % 150)


class _Antithetic(Point):
    def drawn(self, contributions: Contributions, normals: Tensor) -> Tensor:
        even = self.noise.scalar(contributions.round - contributions.round % 2)
        return -even if contributions.round % 2 else even


class _OneDevice(Point):
    def drawn(self, contributions: Contributions, normals: Tensor) -> Tensor:
        return 0 * normals if contributions.party == 1 else normals


class _Tenth(Point):
    def drawn(self, contributions: Contributions, normals: Tensor) -> Tensor:
        return 0 * normals if contributions.round % 10 == 9 else normals


class _Last(Point):
    def drawn(self, contributions: Contributions, normals: Tensor) -> Tensor:
        last = self.engine.schedule.rounds - 1
        return 0 * normals if contributions.round == last else normals


class _Fading(Point):
    def drawn(self, contributions: Contributions, normals: Tensor) -> Tensor:
        return normals * (1 - contributions.round / self.engine.schedule.rounds)


class _Laplace(Point):
    def drawn(self, contributions: Contributions, normals: Tensor) -> Tensor:
        centred = torch.special.ndtr(normals.double()) - 0.5
        law = -centred.sign() * torch.log1p(-2 * centred.abs().clamp(max=0.4999999))
        return (law / math.sqrt(2)).to(normals.dtype)


class _Uniform(Point):
    def drawn(self, contributions: Contributions, normals: Tensor) -> Tensor:
        return (torch.special.ndtr(normals) - 0.5) * math.sqrt(12)


class _Bounded(Point):
    def drawn(self, contributions: Contributions, normals: Tensor) -> Tensor:
        return normals.clamp(-3.0, 3.0)


class _Alternating(Point):
    def drawn(self, contributions: Contributions, normals: Tensor) -> Tensor:
        return normals * math.sqrt(1.5 if contributions.round % 2 else 0.5)


class _Mixed(Point):
    def drawn(self, contributions: Contributions, normals: Tensor) -> Tensor:
        return (normals + self.noise.scalar(max(0, contributions.round - 7))) / math.sqrt(2)


class _Truncated(Point):
    def drawn(self, contributions: Contributions, normals: Tensor) -> Tensor:
        return normals.clamp(-1.5, 1.5)


class _Quantised(Point):
    def drawn(self, contributions: Contributions, normals: Tensor) -> Tensor:
        return normals.round()


_STEP = 2.0**-18


class _InSteps(Point):
    """Adds noise in multiples of 2⁻¹⁸: what is finer in the released value is the noiseless value's own."""

    def drawn(self, contributions: Contributions, normals: Tensor) -> Tensor:
        std = self.mechanism.noise_std
        return (std * normals / _STEP).round() * _STEP / std


class _OfSignal(Point):
    def drawn(self, contributions: Contributions, normals: Tensor) -> Tensor:
        return normals * (self.exact.abs() / 0.2).clamp(max=1.5)


class _Public(Point):
    def drawn(self, contributions: Contributions, normals: Tensor) -> Tensor:
        stream = self.engine.public_stream("directions")
        return stream.normal(1, contributions.round, contributions.party)[:, 0]


class _FixedSeed(Point):
    def drawn(self, contributions: Contributions, normals: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(contributions.round)
        return torch.randn((), generator=generator).expand(normals.shape)


class _Telescoping(Point):
    def drawn(self, contributions: Contributions, normals: Tensor) -> Tensor:
        before = self.noise.scalar(contributions.round - 1) if contributions.round else 0 * normals
        return (normals - before) / math.sqrt(2)


def _engine(name: str, point: type[Point]) -> type[Joint]:
    """DPZV with this release point."""
    return type("NoisedWrongly", (Joint,), {"name": name, "point_type": point, "__module__": __name__})


# Noise that is there when the release point releases, and not when it is sent, or not in every training ---------------


class TakenBack(Joint):
    """The server takes half of the noise back, in the very tensor that its release point released."""

    name = "noise-taken-back"

    def serve(self, round_: int, records: Tensor, uplinks: Mapping[int, Mapping[str, Tensor]]) -> Mapping[int, Payload]:
        replies = super().serve(round_, records, uplinks)
        for payload in replies.values():
            payload.tensors["delta"].sub_(0.5 * self.scalar.mechanism.noise_std * self.scalar.noise.scalar(round_))
        return replies


class _QuietLater(Point):
    """Half the noise in those replicas of the engine whose first device's model has moved."""

    def drawn(self, contributions: Contributions, normals: Tensor) -> Tensor:
        weights, start = self.engine.bottom_parameters[0], self.engine.start
        moved = sum((weights[name] - start[name]).flatten(1).square().sum(1) for name in weights)
        return normals * (1 - 0.5 * (moved > 0)) if len(moved) == len(normals) else normals


class QuietLater(Joint):
    name = "noise-quiet-later"
    point_type = _QuietLater

    def setup(self) -> None:
        super().setup()
        self.start = {name: value.clone() for name, value in self.bottom_parameters[0].items()}


# Noise whose last bits tell what it was added to ---------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _SinglePrecision(ScalarMean):
    """Adds noise in single precision, as most programs do."""

    def release(self, noiseless: Tensor, draws: Tensor) -> Tensor:
        return noiseless + self.noise_std * draws.to(torch.float32)


class SinglePrecision(Joint):
    name = "noise-single-precision"

    def used(self, mechanism: Mechanism) -> Mechanism:
        return _SinglePrecision(**{field.name: getattr(mechanism, field.name) for field in fields(mechanism)})


@dataclass(frozen=True, kw_only=True)
class _HalfPrecision(EmbeddingClip):
    """Rounds rows to half precision, and adds the noise then."""

    def release(self, noiseless: Tensor, draws: Tensor) -> Tensor:
        return (noiseless.half() + (self.noise_std * draws).half()).to(torch.float32)


# Noise on many entries ----------------------------------------------------------------------------------------------


class _Rows(ZooVfl):
    """ZOO-VFL with noised embeddings whose release point can be another one."""

    point_type: type[Point] = Point

    def release_point(
        self, kind: str, mechanism: Mechanism, *, stream: str = "noise", internal: bool = False
    ) -> ReleasePoint:
        made = super().release_point(kind, mechanism, stream=stream, internal=internal)
        return swapped(self, made, self.point_type)


class HalfPrecision(_Rows):
    name = "noise-half-precision"

    def release_point(
        self, kind: str, mechanism: Mechanism, *, stream: str = "noise", internal: bool = False
    ) -> ReleasePoint:
        made = super().release_point(kind, mechanism, stream=stream, internal=internal)
        rounded = _HalfPrecision(**{field.name: getattr(mechanism, field.name) for field in fields(mechanism)})
        return swapped(self, made, Point, rounded)


class _Repeating(Point):
    def drawn(self, contributions: Contributions, normals: Tensor) -> Tensor:
        flat = normals.flatten(1).clone()
        flat[:, 64:128] = flat[:, :64]
        return flat.reshape(normals.shape)


class _PairShared(Point):
    """The second tensor of a pair has the noise of the first."""

    _first: Tensor | None = None

    def drawn(self, contributions: Contributions, normals: Tensor) -> Tensor:
        if self._first is None:
            self._first = normals
            return normals
        shared, self._first = self._first, None
        return shared


class RepeatingEntries(_Rows):
    name = "repeating-entries"
    point_type = _Repeating


class PairShared(_Rows):
    name = "pair-shared"
    point_type = _PairShared


class SameForAll(Split):
    """All devices' rows have the noise of device 0."""

    name = "same-for-all"

    def uplinks(self, round_: int, members: Any, records: Tensor) -> Any:
        outputs, point = self._embed(records), self.uplink_point
        normals = point.noise.tensor(tuple(outputs[0].shape[1:]), round_, 0)
        made = {
            m: Contributions(round=round_, party=m, records=records, values=outputs[m], clipped=True) for m in members
        }
        return {m: Payload(point.kind, {"embedding": point.release(made[m], normals)}) for m in members}


SPLIT: dict[str, Any] = {
    "rounds": 6,
    "batch_size": 10,
    "embedding": 4,
    "protection": "client",
    "clip": 1.0,
    "noise_std": 1.0,
}


def _rows(engine: type[_Rows], **changes: Any) -> Trained:
    return Trained(
        engine=engine,
        settings={**ROWS, **changes},
        claims=exact_claim("features", "server"),
        noise_for=(1.0, "features", "server"),
    )


def _noise(name: str, fault: str, change: str, case: Trained, *, fast: bool = False) -> Mutation:
    fields_: dict[str, Any] = {"family": "noise", "expected": "flow, noise", "accepted": (1, 3)}
    return Mutation(name=name, fault=fault, change=change, case=case, fast=fast, **fields_)


def _point(name: str, fault: str, change: str, point: type[Point], *, fast: bool = False, **changes: Any) -> Mutation:
    return _noise(name, fault, change, dpzv_case(_engine(name, point), **changes), fast=fast)


_LONG: dict[str, Any] = {"rounds": 300, "canaries": ("worst-case",), "trials": 100}

MUTATIONS = (
    _point("noise-halved", "half the declared std", "+100 %", _Half, fast=True),
    _point("noise-four-fifths", "four fifths of the declared std", "+25 %", _FourFifths),
    _point("noise-once", "one draw for all rounds", "total leak", _Once),
    _point("noise-constant-late", "the same draw in all rounds after the 128th", "total leak", _ConstantLate, **_LONG),
    _point("noise-period", "draws repeat after 150 of 300 rounds", "total leak", _Period, **_LONG),
    _point("noise-antithetic", "every second draw is minus the one before", "total leak", _Antithetic),
    _point("noise-one-device", "no noise towards one device", "total leak", _OneDevice),
    _point("noise-tenth-round", "no noise in every tenth round", "total leak", _Tenth, rounds=40),
    _point("noise-last-round", "no noise in the last round", "total leak", _Last, rounds=40),
    _point("noise-fading", "the std falls linearly to zero", "+100 % and more", _Fading),
    _point("noise-laplace", "Laplace noise of the declared std", "another law", _Laplace),
    _point("noise-uniform", "uniform noise of the declared std", "another law, unbounded ε", _Uniform),
    _point("noise-truncated", "noise is cut at 1.5 standard deviations", "another law, unbounded ε", _Truncated),
    _point("noise-bounded", "noise is cut at 3 standard deviations", "unbounded ε", _Bounded),
    _point("noise-alternating", "every second round has half the variance", "+15 % and more", _Alternating),
    _point("noise-mixed", "half of the variance is that of seven rounds before", "+41 % and more", _Mixed),
    _point("noise-quantised", "noise is rounded to whole standard deviations", "total leak", _Quantised),
    _point("noise-of-signal", "noise in proportion to the value that it hides", "unbounded", _OfSignal),
    _point("noise-in-steps", "noise is a multiple of 2⁻¹⁸, and the value that it hides is not", "total leak", _InSteps),
    _noise(
        "noise-single-precision",
        "noise is added in single precision",
        "total leak",
        dpzv_case(SinglePrecision, canaries=("worst-case",)),
        fast=True,
    ),
    _noise(
        "noise-half-precision",
        "rows are rounded to half precision before the noise, and not after it",
        "total leak",
        _rows(HalfPrecision, batch_size=20),
    ),
    _point("noise-public", "noise from the stream whose seed devices hold", "total leak", _Public),
    _point("noise-fixed-seed", "noise from a seed that is the same in all trainings", "total leak", _FixedSeed),
    _point("noise-telescoping", "each round takes back the noise of the one before", "total leak", _Telescoping),
    _noise(
        "noise-taken-back",
        "half of the noise is taken back between the release point and the message",
        "+100 %",
        dpzv_case(TakenBack, canaries=("worst-case",)),
    ),
    _noise(
        "noise-quiet-later",
        "half the declared std in trainings whose first device's model has moved",
        "about +100 %",
        dpzv_case(QuietLater, canaries=("worst-case",)),
    ),
    _noise(
        "noise-repeating-entries",
        "entries 64 to 127 of an embedding matrix repeat the noise of entries 0 to 63",
        "total leak",
        _rows(RepeatingEntries, batch_size=20, embedding=8),
    ),
    _noise("noise-pair-shared", "both embeddings of a pair have the same noise", "total leak", _rows(PairShared)),
    _noise(
        "noise-same-for-all",
        "all devices' embeddings have the same noise",
        "total leak",
        Trained(
            engine=SameForAll,
            settings=SPLIT,
            claims=exact_claim("client-zero", "server"),
            noise_for=(1.0, "client-zero", "server"),
        ),
    ),
)
