"""Mutations that put a private value on the wire beside the protected one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.mutations.case import DEVICES, Mutation, Trained, exact_claim
from tests.mutations.dpzv import Joint, dpzv_case, labels_of
from vflpriv.core.releases import Release
from vflpriv.core.schedules import Schedule
from vflpriv.core.wire import SERVER, Payload, Wire, device
from vflpriv.training.engines.zoo_vfl import ZooVfl
from vflpriv.training.mechanisms.base import NoNoise

__all__ = ["MUTATIONS", "ROWS"]

Uplinks = Mapping[int, Mapping[str, Tensor]]
Replies = Mapping[int, Payload]


class LabelBeside(Joint):
    name = "label-beside"

    def serve(self, round_: int, records: Tensor, uplinks: Uplinks) -> Replies:
        return self.reply(super().serve(round_, records, uplinks), labels=labels_of(self, records))


class LabelUp(Joint):
    name = "label-up"

    def uplink(self, round_: int, m: int, records: Tensor) -> Payload:
        sent = super().uplink(round_, m, records)
        return Payload(sent.kind, {**sent.tensors, "weights": labels_of(self, records)})


class LabelOnce(Joint):
    name = "label-once"

    def serve(self, round_: int, records: Tensor, uplinks: Uplinks) -> Replies:
        labels = labels_of(self, records)
        return self.reply(super().serve(round_, records, uplinks), labels=labels if round_ == 7 else 0 * labels)


class LabelMasked(Joint):
    name = "label-masked"

    def serve(self, round_: int, records: Tensor, uplinks: Uplinks) -> Replies:
        mask = self.stream("directions").uniform(len(records), round_, 99)
        bits = (labels_of(self, records) + (mask < 0.5)) % 2
        return self.reply(super().serve(round_, records, uplinks), checksum=bits)


class LabelOneDevice(Joint):
    name = "label-one-device"

    def serve(self, round_: int, records: Tensor, uplinks: Uplinks) -> Replies:
        labels = labels_of(self, records)
        shown = labels if 1 in uplinks else 0 * labels
        return self.reply(super().serve(round_, records, uplinks), labels=shown)


class _After(Joint):
    """Sends one more message to the active devices after each round."""

    kind = "debug"

    def extra(self, round_: int, records: Tensor) -> Mapping[str, Tensor]:
        return {"labels": labels_of(self, records)}

    def receivers(self, round_: int) -> tuple[int, ...]:
        return self.schedule.members(round_)

    def round(self, round_: int, wire: Wire) -> None:
        super().round(round_, wire)
        records = torch.from_numpy(self.schedule.batch(round_))
        for m in self.receivers(round_):
            Payload(self.kind, self.extra(round_, records)).send(wire, round_, SERVER, device(m), records)


class NewKind(_After):
    name = "new-kind"


class PublicKind(_After):
    name = "public-kind"
    kind = "progress"

    @staticmethod
    def releases(settings: Any, schedule: Schedule) -> tuple[Release, ...]:
        every = np.ones(schedule.rounds, dtype=np.bool_)
        seen_by = frozenset({"device", "devices", "eavesdropper", "outsider"})
        public = NoNoise(depends_on=frozenset()).describe(kind="progress", what="", rounds=every, seen_by=seen_by)
        return (*Joint.releases(settings, schedule), public)


class PublicCount(PublicKind):
    name = "public-count"

    def extra(self, round_: int, records: Tensor) -> Mapping[str, Tensor]:
        return {"positives": labels_of(self, torch.arange(self.data.records)).sum(1)}


class NoiselessCopy(Joint):
    name = "noiseless-copy"

    def serve(self, round_: int, records: Tensor, uplinks: Uplinks) -> Replies:
        replies = super().serve(round_, records, uplinks)
        return self.reply(replies, monitor=self.scalar.exact)


class CopyNextRound(Joint):
    name = "copy-next-round"

    def setup(self) -> None:
        super().setup()
        self._previous = torch.zeros(len(self.replicas))

    def serve(self, round_: int, records: Tensor, uplinks: Uplinks) -> Replies:
        replies = self.reply(super().serve(round_, records, uplinks), previous=self._previous)
        self._previous = self.scalar.exact.clone()
        return replies


class LowBit(Joint):
    name = "low-bit"

    def serve(self, round_: int, records: Tensor, uplinks: Uplinks) -> Replies:
        replies = super().serve(round_, records, uplinks)
        parity = labels_of(self, records).sum(1).to(torch.int32) % 2
        for payload in replies.values():
            payload.tensors["delta"].view(torch.int32).bitwise_and_(-2).bitwise_or_(parity)
        return replies


class Norms(Joint):
    name = "norms-beside"

    def serve(self, round_: int, records: Tensor, uplinks: Uplinks) -> Replies:
        replies = super().serve(round_, records, uplinks)
        rows = self.table.index_select(0, records).transpose(0, 1)
        losses = self.server_step(round_, records, rows).plain
        return self.reply(replies, norms=losses)


class Forwarded(Joint):
    name = "forwarded"

    def round(self, round_: int, wire: Wire) -> None:
        self._wire = wire
        super().round(round_, wire)

    def serve(self, round_: int, records: Tensor, uplinks: Uplinks) -> Replies:
        ((m, pair),) = uplinks.items()
        Payload("embedding-pair", pair).send(self._wire, round_, SERVER, device((m + 1) % DEVICES), records)
        return super().serve(round_, records, uplinks)


class SortedIds(Joint):
    name = "sorted-ids"

    def setup(self) -> None:
        super().setup()
        order = self._order.clone()
        for round_ in range(self.schedule.rounds):
            begin, size = int(self.schedule.start[round_]), int(self.schedule.size[round_])
            batch = self._order[begin : begin + size]
            labels = labels_of(self, batch)[-1]
            order[begin : begin + size] = batch[labels.argsort(stable=True)]
        self._order = order


# Noised embeddings: what a record's features show the server ----------------------------------------------------------

ROWS: dict[str, Any] = {
    "rounds": 12,
    "batch_size": 10,
    "embedding": 4,
    "protection": "embedding",
    "clip": 1.0,
    "noise_std": 1.0,
    "smoothing": 0.05,
}


class FeaturesBeside(ZooVfl):
    name = "features-beside"

    def uplink(self, round_: int, m: int, records: Tensor) -> Payload:
        sent = super().uplink(round_, m, records)
        raw = self.data.features(m, records)
        raw = raw if raw.dim() == 3 else raw.expand(len(self.replicas), *raw.shape)
        return Payload(sent.kind, {**sent.tensors, "raw": raw})


class AllRecords(ZooVfl):
    name = "all-records"

    def round(self, round_: int, wire: Wire) -> None:
        super().round(round_, wire)
        everyone = torch.arange(self.data.records)
        for m in self.schedule.members(round_):
            with torch.no_grad():
                outputs = self.bank.models[m].apply(self.bottom_parameters[m], self.inputs(m, everyone))
                rows = self.uplink_point.mechanism.noiseless(outputs)
            later = round_ + self.schedule.rounds
            sent = self.uplink_point.rows(later, m, everyone, {"embedding": rows})
            Payload(self.uplink_point.kind, sent).send(wire, round_, device(m), SERVER, everyone)


def _rows(engine: type[ZooVfl]) -> Trained:
    return Trained(
        engine=engine,
        settings=ROWS,
        claims=exact_claim("features", "server"),
        noise_for=(1.0, "features", "server"),
    )


def _wire(name: str, fault: str, case: Trained, *, expected: str = "wire", fast: bool = False) -> Mutation:
    return Mutation(name=name, family="wire", fault=fault, change="total leak", expected=expected, case=case, fast=fast)


_EVERYONE = {"unit": "label", "view": "eavesdropper"}

MUTATIONS = (
    _wire("label-beside", "labels in the clear in a second tensor of the reply", dpzv_case(LabelBeside), fast=True),
    _wire("label-up", "labels in a further tensor of the embeddings", dpzv_case(LabelUp, **_EVERYONE)),
    _wire("label-once", "labels in a further tensor, in one round of twelve", dpzv_case(LabelOnce)),
    _wire("label-masked", "labels under a mask that devices can draw themselves", dpzv_case(LabelMasked)),
    _wire("label-one-device", "labels in a further tensor, to device 1 alone", dpzv_case(LabelOneDevice)),
    _wire("new-kind", "labels in a kind of message that is not in the ledger", dpzv_case(NewKind), fast=True),
    _wire("public-kind", "labels in a kind of message that the ledger calls public", dpzv_case(PublicKind), fast=True),
    _wire("public-count", "the exact number of labels of one class, declared public", dpzv_case(PublicCount)),
    _wire("noiseless-copy", "the scalar without noise beside the noised one", dpzv_case(NoiselessCopy), fast=True),
    _wire("copy-next-round", "the scalar without noise in the next round's reply", dpzv_case(CopyNextRound)),
    _wire("low-bit", "labels in the lowest bit of the released scalar", dpzv_case(LowBit), fast=True),
    _wire("norms-beside", "each record's loss beside the noised mean", dpzv_case(Norms)),
    _wire(
        "forwarded",
        "one device's exact embeddings go to another device, which the ledger does not name",
        dpzv_case(Forwarded, unit="features"),
    ),
    _wire("sorted-ids", "record ids in the order of their labels", dpzv_case(SortedIds)),
    _wire("features-beside", "raw features beside the noised embeddings", _rows(FeaturesBeside), fast=True),
    replace(
        _wire("all-records", "noised embeddings of all records instead of the batch's", _rows(AllRecords)),
        change="about +100 %",
    ),
)
