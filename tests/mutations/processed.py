"""Noised values that are processed before they are sent, and noise that is not as declared: sound and broken ones.

Whatever is made of a noised value without another look at what is private costs nothing. A system that does so is not
accused, whatever its ledger says of the noise on the message; one that looks again is caught.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from tests.mutations.case import Mutation, Trained, exact_claim
from tests.mutations.dpzv import Joint, Point, dpzv_case, swapped
from tests.mutations.labels import labels_case
from tests.mutations.wire import ROWS
from vflpriv.core.engine import Contributions
from vflpriv.core.wire import Payload
from vflpriv.laws import RandomizedResponse
from vflpriv.training.engines.zoo_vfl import ZooSettings, ZooVfl
from vflpriv.training.mechanisms.base import Mechanism, ReleasePoint, ScalarMean
from vflpriv.training.mechanisms.labels import LabelMechanism, NoisedBefore

__all__ = ["CONTROLS", "MUTATIONS"]

Uplinks = Mapping[int, Mapping[str, Tensor]]
Replies = Mapping[int, Payload]


# The scalar of DPZV, processed between the release point and the wire ------------------------------------------


class Sent(Joint):
    """DPZV whose server does something to the noised scalar before it sends it."""

    def serve(self, round_: int, records: Tensor, uplinks: Uplinks) -> Replies:
        replies = super().serve(round_, records, uplinks)
        std = self.scalar.mechanism.noise_std
        made: dict[int, Tensor] = {}
        for payload in replies.values():
            value = payload.tensors["delta"]
            if id(value) not in made:
                made[id(value)] = self.processed(value, std, round_)
            payload.tensors["delta"] = made[id(value)]
        return replies

    def processed(self, value: Tensor, std: float, round_: int) -> Tensor:
        """What is sent in the place of this noised value."""
        raise NotImplementedError

    def chance(self, round_: int) -> Tensor:
        """(R,) uniform numbers of the server's own."""
        return self.stream("noise").uniform(1, 7, round_)[:, 0]


class Rounded(Sent):
    name = "rounded"

    def processed(self, value: Tensor, std: float, round_: int) -> Tensor:
        return torch.round(value, decimals=2)


class RoundedCoarsely(Sent):
    name = "rounded-coarsely"

    def processed(self, value: Tensor, std: float, round_: int) -> Tensor:
        return std * (value / std).round()


class Halved(Sent):
    name = "half-precision"

    def processed(self, value: Tensor, std: float, round_: int) -> Tensor:
        return value.half().float()


class Brain(Sent):
    name = "brain-floats"

    def processed(self, value: Tensor, std: float, round_: int) -> Tensor:
        return value.bfloat16().float()


class Signed(Sent):
    name = "signed"

    def processed(self, value: Tensor, std: float, round_: int) -> Tensor:
        return std * value.sign()


class Scaled(Sent):
    name = "scaled"

    def processed(self, value: Tensor, std: float, round_: int) -> Tensor:
        return 0.5 * value


class Clamped(Sent):
    name = "clamped"

    def processed(self, value: Tensor, std: float, round_: int) -> Tensor:
        return value.clamp(-std, std)


class Squashed(Sent):
    name = "squashed"

    def processed(self, value: Tensor, std: float, round_: int) -> Tensor:
        return std * torch.tanh(value / std)


class Dithered(Sent):
    name = "dithered"

    def processed(self, value: Tensor, std: float, round_: int) -> Tensor:
        return std * ((value / std) + self.chance(round_)).floor()


class Averaged(Sent):
    """A moving average of what was noised in all rounds so far."""

    name = "averaged"

    def processed(self, value: Tensor, std: float, round_: int) -> Tensor:
        self._average = 0.9 * getattr(self, "_average", value) + 0.1 * value
        return self._average


class Fed(Sent):
    """What rounding left over of the noised value is added to the next one."""

    name = "error-feedback"

    def processed(self, value: Tensor, std: float, round_: int) -> Tensor:
        owed = value + getattr(self, "_owed", 0.0)
        sent = std * (owed / std).round()
        self._owed = owed - sent
        return sent


class TwiceNoised(Sent):
    """Noise is added a second time, outside the release point."""

    name = "noised-again"

    def processed(self, value: Tensor, std: float, round_: int) -> Tensor:
        return value + 0.5 * std * self.stream("noise").normal(1, 8, round_)[:, 0]


class RoundedInPlace(Sent):
    name = "rounded-in-place"

    def processed(self, value: Tensor, std: float, round_: int) -> Tensor:
        return value.mul_(64).round_().div_(64)


class SignOfExact(Sent):
    """The sign is that of the value without its noise."""

    name = "sign-of-exact"
    point_type = Point

    def processed(self, value: Tensor, std: float, round_: int) -> Tensor:
        return value.abs() * self.scalar.exact.sign()


class RoundedExact(Sent):
    """The value is rounded without its noise."""

    name = "rounded-exact"

    def processed(self, value: Tensor, std: float, round_: int) -> Tensor:
        return torch.round(self.scalar.exact, decimals=2)


class DitheredExact(Sent):
    """Random rounding is all the noise that there is."""

    name = "dithered-exact"

    def processed(self, value: Tensor, std: float, round_: int) -> Tensor:
        return 0.05 * ((self.scalar.exact / 0.05) + self.chance(round_)).floor()


class AveragedExact(Sent):
    """What is added to the noised value is the moving average of exact ones."""

    name = "averaged-exact"

    def processed(self, value: Tensor, std: float, round_: int) -> Tensor:
        exact = self.scalar.exact
        self._average = 0.9 * getattr(self, "_average", exact) + 0.1 * exact
        return value + 5 * self._average


class FedExact(Sent):
    """What rounding left over of the exact value is added to the next one, and no noise."""

    name = "error-feedback-exact"

    def processed(self, value: Tensor, std: float, round_: int) -> Tensor:
        exact = self.scalar.exact
        owed = exact + getattr(self, "_owed", 0.0)
        sent = torch.round(owed, decimals=1)
        self._owed = owed - sent
        return sent


class BareInTen(Sent):
    """One round in ten is sent without noise, rounded as the others are."""

    name = "bare-in-ten"

    def processed(self, value: Tensor, std: float, round_: int) -> Tensor:
        return torch.round(self.scalar.exact if round_ % 10 == 9 else value, decimals=2)


# Noise and clips that are not as declared -----------------------------------------------------------------------------


class _Larger(Point):
    def drawn(self, contributions: Contributions, normals: Tensor) -> Tensor:
        return 1.5 * normals


class _HalfNoise(Point):
    def drawn(self, contributions: Contributions, normals: Tensor) -> Tensor:
        return 0.5 * normals


class LargerNoise(Joint):
    name = "larger-noise"
    point_type = _Larger


class HalfNoiseRounded(Rounded):
    name = "half-noise-rounded"
    point_type = _HalfNoise


class HalfNoiseClamped(Clamped):
    name = "half-noise-clamped"
    point_type = _HalfNoise


@dataclass(frozen=True, kw_only=True)
class _Coarse(ScalarMean):
    """Rounds each clipped number towards zero before the noise."""

    def contributions(self, values: Tensor) -> Tensor:
        return (super().contributions(values) * 16).trunc() / 16


@dataclass(frozen=True, kw_only=True)
class _RoundedRelease(ScalarMean):
    """Rounds what is released, at the release point."""

    def release(self, noiseless: Tensor, draws: Tensor) -> Tensor:
        return (super().release(noiseless, draws) * 64).round() / 64


@dataclass(frozen=True, kw_only=True)
class _ClampedRelease(ScalarMean):
    """Clamps what is released, at the release point."""

    def release(self, noiseless: Tensor, draws: Tensor) -> Tensor:
        return super().release(noiseless, draws).clamp(-2 * self.noise_std, 2 * self.noise_std)


@dataclass(frozen=True, kw_only=True)
class _HalvedRelease(ScalarMean):
    """Takes what is released through half precision, at the release point."""

    def release(self, noiseless: Tensor, draws: Tensor) -> Tensor:
        return super().release(noiseless, draws).half().float()


@dataclass(frozen=True, kw_only=True)
class _RoundedTogether(ScalarMean):
    """Rounds to a step and adds noise that was rounded to the same step and is much too small."""

    def release(self, noiseless: Tensor, draws: Tensor) -> Tensor:
        return super().release((noiseless * 16).round() / 16, 0.3 * draws)


def _with(mechanism: Mechanism, kind: type[Mechanism], **changes: Any) -> Mechanism:
    own: Any = {field.name: getattr(mechanism, field.name) for field in fields(mechanism)}
    return kind(**{**own, **changes})


class SmallerClip(Joint):
    name = "smaller-clip"

    def used(self, mechanism: Mechanism) -> Mechanism:
        assert isinstance(mechanism, ScalarMean)
        return replace(mechanism, clip=0.5 * mechanism.clip)


class LargerClipMoreNoise(Joint):
    """Twice the clip under one and a half times the noise."""

    name = "larger-clip-more-noise"
    point_type = _Larger

    def used(self, mechanism: Mechanism) -> Mechanism:
        assert isinstance(mechanism, ScalarMean)
        return replace(mechanism, clip=2 * mechanism.clip)


def _made(name: str, kind: type[Mechanism]) -> type[Joint]:
    """DPZV with this mechanism."""

    def used(self: Joint, mechanism: Mechanism) -> Mechanism:
        return _with(mechanism, kind)

    return type("Processed", (Joint,), {"name": name, "used": used, "__module__": __name__})


class OwnNoise(Joint):
    """Clips and noises by itself, as the ledger says, and not at its release point."""

    name = "own-noise-outside"
    share = 1.0

    def release_point(
        self, kind: str, mechanism: Mechanism, *, stream: str = "noise", internal: bool = False
    ) -> ReleasePoint:
        made = super().release_point(kind, mechanism, stream=stream, internal=internal)
        point = swapped(self, made, _Outside, mechanism)
        point.share = self.share
        return point


class _Outside(Point):
    """Adds noise of its own, and asks no probe."""

    share = 1.0

    def release(self, contributions: Contributions, normals: Tensor) -> Tensor:
        exact = self.mechanism.noiseless(contributions.values)
        own = self.engine.stream("noise").normal(1, 9, contributions.round)[:, 0]
        return exact + self.share * self.mechanism.noise_std * own


class OwnNoiseHalf(OwnNoise):
    """The same with half of the noise."""

    name = "own-noise-outside-half"
    share = 0.5


# Rows of embeddings, processed by the device -----------------------------------------------------------------------


class SentRows(ZooVfl):
    """ZOO-VFL whose devices do something to their noised rows before they send them."""

    def uplink(self, round_: int, m: int, records: Tensor) -> Payload:
        payload = super().uplink(round_, m, records)
        return Payload(payload.kind, {name: self.processed(rows) for name, rows in payload.tensors.items()})

    def processed(self, rows: Tensor) -> Tensor:
        """What is sent in the place of these noised rows."""
        raise NotImplementedError


class TopRows(SentRows):
    """Keeps the largest entry of each row."""

    name = "top-rows"

    def processed(self, rows: Tensor) -> Tensor:
        sizes = rows.abs()
        return rows * (sizes >= sizes.amax(-1, keepdim=True))


class ByteRows(SentRows):
    """Eight bits for each entry, on a scale of the largest of the batch."""

    name = "byte-rows"

    def processed(self, rows: Tensor) -> Tensor:
        step = rows.abs().amax((-2, -1), keepdim=True) / 127
        return (rows / step).round() * step


class UnitRows(SentRows):
    name = "unit-rows"

    def processed(self, rows: Tensor) -> Tensor:
        return torch.nn.functional.normalize(rows, dim=-1)


class PositiveRows(SentRows):
    name = "positive-rows"

    def processed(self, rows: Tensor) -> Tensor:
        return rows.relu()


class SignedRows(SentRows):
    name = "signed-rows"

    def processed(self, rows: Tensor) -> Tensor:
        return rows.sign()


class SparseRows(SentRows):
    """Drops every second column."""

    name = "sparse-rows"

    def processed(self, rows: Tensor) -> Tensor:
        keep = torch.arange(rows.shape[-1], device=rows.device) % 2
        return rows * keep


class _RowPoint(Point):
    """Remembers the clipped rows of the tensors of a pair."""

    def release(self, contributions: Contributions, normals: Tensor) -> Tensor:
        released = super().release(contributions, normals)
        self.engine.known[id(released)] = self.exact
        return released


class KnownRows(SentRows):
    """Remembers what its rows were without noise."""

    def release_point(
        self, kind: str, mechanism: Mechanism, *, stream: str = "noise", internal: bool = False
    ) -> ReleasePoint:
        self.known: dict[int, Tensor] = {}
        made = super().release_point(kind, mechanism, stream=stream, internal=internal)
        return swapped(self, made, _RowPoint)


class TopByExact(KnownRows):
    """Keeps, of each noised row, the entry that is largest without noise."""

    name = "top-by-exact"

    def processed(self, rows: Tensor) -> Tensor:
        sizes = self.known[id(rows)].abs()
        return rows * (sizes >= sizes.amax(-1, keepdim=True))


class UnitByExact(KnownRows):
    """Sends beside the direction of a noised row the length that it has without noise."""

    name = "unit-by-exact"

    def processed(self, rows: Tensor) -> Tensor:
        length = self.known[id(rows)].norm(dim=-1, keepdim=True)
        return torch.nn.functional.normalize(rows, dim=-1) * length


class SignedExactRows(KnownRows):
    name = "signed-exact-rows"

    def processed(self, rows: Tensor) -> Tensor:
        return self.known[id(rows)].sign()


# Labels ---------------------------------------------------------------------------------------------------------------


class _Responding(ZooSettings):
    """Settings with more randomised response than the one that they declare."""

    @property
    def label_mechanism(self) -> LabelMechanism | None:
        return NoisedBefore(law=RandomizedResponse(0.7 * self.label_noise))


class NoisierLabels(ZooVfl):
    """Randomised response of a smaller ε than is declared."""

    name = "noisier-labels"

    def __init__(self, data: Any, settings: Any, **rest: Any) -> None:
        super().__init__(data, _Responding.model_validate(settings.model_dump()), **rest)


_FEW: dict[str, Any] = {"trials": 100, "canaries": ("worst-case",)}


def _scalars(engine: type[Joint], **changes: Any) -> Trained:
    return dpzv_case(engine, **_FEW, **changes)


def _rows(engine: type[ZooVfl]) -> Trained:
    return Trained(
        **_FEW,
        engine=engine,
        settings=ROWS,
        claims=exact_claim("features", "server"),
        noise_for=(1.0, "features", "server"),
    )


def _sound(fault: str, case: Trained, *, fast: bool = False) -> Mutation:
    fields_: dict[str, Any] = {"family": "control", "change": "none", "expected": "none", "seeds": 1}
    return Mutation(name=f"sound-{case.engine.name}", fault=fault, case=case, accepted=(0, 3), fast=fast, **fields_)


def _broken(fault: str, change: str, case: Trained, *, fast: bool = False) -> Mutation:
    name = case.engine.name
    return Mutation(
        name=f"processed-{name}",
        family="processed",
        fault=fault,
        change=change,
        expected="flow",
        case=case,
        accepted=(1, 3),
        fast=fast,
    )


CONTROLS: Sequence[Mutation] = (
    _sound("the noised scalar is rounded to two digits", _scalars(Rounded)),
    _sound("it is rounded to whole standard deviations", _scalars(RoundedCoarsely)),
    _sound("it goes through half precision", _scalars(Halved)),
    _sound("it goes through bfloat16", _scalars(Brain)),
    _sound("its sign is sent", _scalars(Signed), fast=True),
    _sound("half of it is sent", _scalars(Scaled)),
    _sound("it is clamped to one standard deviation", _scalars(Clamped)),
    _sound("its hyperbolic tangent is sent", _scalars(Squashed)),
    _sound("it is rounded at random", _scalars(Dithered)),
    _sound("a moving average of noised scalars is sent", _scalars(Averaged)),
    _sound("what rounding left over of a noised scalar is added to the next one", _scalars(Fed)),
    _sound("noise is added a second time after the release point", _scalars(TwiceNoised)),
    _sound("it is rounded in place", _scalars(RoundedInPlace)),
    _sound("one and a half times the declared noise", _scalars(LargerNoise)),
    _sound("half of the declared clip", _scalars(SmallerClip)),
    _sound("each record's number is rounded towards zero before the noise", _scalars(_made("coarse-clip", _Coarse))),
    _sound("the release point rounds", _scalars(_made("rounded-release", _RoundedRelease))),
    _sound("the release point clamps", _scalars(_made("clamped-release", _ClampedRelease))),
    _sound("the release point takes it through half precision", _scalars(_made("halved-release", _HalvedRelease))),
    _sound("clips and noise of the engine's own, as declared, at no release point", _scalars(OwnNoise)),
    _sound("of each noised row the largest entry is sent", _rows(TopRows)),
    _sound("noised rows are sent in eight bits", _rows(ByteRows)),
    _sound("noised rows are scaled to length one", _rows(UnitRows)),
    _sound("the positive parts of noised rows are sent", _rows(PositiveRows)),
    _sound("the signs of noised rows are sent", _rows(SignedRows)),
    _sound("every second column of noised rows is dropped", _rows(SparseRows)),
    _sound(
        "randomised response of 0.7 times the declared ε",
        labels_case(NoisierLabels, label_protection="rr", label_noise=1.0),
    ),
)
MUTATIONS: Sequence[Mutation] = (
    _broken("the sign of the exact scalar and the size of the noised one", "unbounded", _scalars(SignOfExact)),
    _broken("the exact scalar is rounded to two digits", "total leak", _scalars(RoundedExact)),
    _broken("random rounding is the only noise", "unbounded ε", _scalars(DitheredExact)),
    _broken("a moving average of exact scalars is added to the noised one", "+400 %", _scalars(AveragedExact)),
    _broken("what rounding left over of an exact scalar is added to the next one", "total leak", _scalars(FedExact)),
    _broken("one round in ten is rounded without noise", "total leak", _scalars(BareInTen, rounds=20)),
    _broken("half of the noise, and the sum is rounded", "+100 %", _scalars(HalfNoiseRounded)),
    _broken("half of the noise, and the sum is clamped", "up to +100 %", _scalars(HalfNoiseClamped)),
    _broken(
        "values rounded to a step, under a third of the noise",
        "+230 %",
        _scalars(_made("rounded-together", _RoundedTogether)),
    ),
    _broken("twice the clip under one and a half times the noise", "+33 %", _scalars(LargerClipMoreNoise)),
    _broken("half of the declared noise, at no release point", "+100 %", _scalars(OwnNoiseHalf)),
    _broken("of each noised row the entry is sent that is the largest without noise", "unbounded ε", _rows(TopByExact)),
    _broken("noised rows have the length that they have without noise", "unbounded ε", _rows(UnitByExact)),
    _broken("the signs of rows without noise are sent", "total leak", _rows(SignedExactRows)),
)
