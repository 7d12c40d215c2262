"""Sound systems whose claims are exactly what holds: none of them may ever be called violated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.mutations.case import DELTA, Claims, Mutation, Trained, exact_claim, small_data
from tests.mutations.clip import ADMM
from tests.mutations.dpzv import Joint, dpzv_case
from tests.mutations.labels import labels_case
from tests.mutations.noise import SPLIT
from tests.mutations.wire import ROWS
from vflpriv.common.registry import find
from vflpriv.core.data import VerticalData
from vflpriv.core.releases import Release
from vflpriv.core.schedules import Schedule
from vflpriv.core.systems import System
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.core.wire import SERVER, Payload, Wire, device
from vflpriv.training.engines.czofo import Czofo
from vflpriv.training.engines.dpzv import Dpzv
from vflpriv.training.engines.split import Split
from vflpriv.training.engines.vafl import Vafl
from vflpriv.training.engines.vimadmm import Vimadmm
from vflpriv.training.engines.zoo_vfl import ZooVfl
from vflpriv.training.mechanisms.base import NoNoise

__all__ = ["CONTROLS"]


class PublicTensor(Joint):
    """DPZV that also sends the round's number, in a kind that the ledger calls public."""

    name = "public-tensor"

    @staticmethod
    def releases(settings: Any, schedule: Schedule) -> tuple[Release, ...]:
        every = np.ones(schedule.rounds, dtype=np.bool_)
        seen_by = frozenset({"device", "devices", "eavesdropper", "outsider"})
        public = NoNoise(depends_on=frozenset()).describe(kind="clock", what="", rounds=every, seen_by=seen_by)
        return (*Joint.releases(settings, schedule), public)

    def round(self, round_: int, wire: Wire) -> None:
        super().round(round_, wire)
        records = torch.from_numpy(self.schedule.batch(round_))
        tick = torch.full((len(self.replicas),), float(round_))
        for m in self.schedule.members(round_):
            Payload("clock", {"round": tick}).send(wire, round_, SERVER, device(m), records)


class PostProcessed(Joint):
    """DPZV whose device also sends back what it received, twice as large: post-processing, which costs nothing."""

    name = "post-processed"

    @staticmethod
    def releases(settings: Any, schedule: Schedule) -> tuple[Release, ...]:
        every = np.ones(schedule.rounds, dtype=np.bool_)
        seen_by = frozenset({"server", "eavesdropper", "outsider"})
        echo = NoNoise(depends_on=frozenset()).describe(kind="echo", what="", rounds=every, seen_by=seen_by)
        return (*Joint.releases(settings, schedule), echo)

    def updates(self, round_: int, records: Tensor, replies: Any) -> None:
        super().updates(round_, records, replies)
        self._echo = {m: 2 * reply["delta"] for m, reply in replies.items()}

    def round(self, round_: int, wire: Wire) -> None:
        super().round(round_, wire)
        records = torch.from_numpy(self.schedule.batch(round_))
        for m, value in self._echo.items():
            Payload("echo", {"delta": value}).send(wire, round_, device(m), SERVER, records)


def _uplink(engine: Any, settings: dict[str, Any], unit: str, *, mu: float = 1.0, **fields: Any) -> Trained:
    noise_for = (mu, unit, "server")
    return Trained(engine=engine, settings=settings, claims=exact_claim(unit, "server"), noise_for=noise_for, **fields)


def _exact_epsilon(unit: str, view: str) -> Claims:
    """The claim of exactly the ε that is accounted for, where the curve is not Gaussian."""

    def claims(system: System) -> list[dict[str, Any]]:
        budget = find("accountant", "auto")().budget(system.ledger.exposure(Adversary.parse(view), Unit(unit)), DELTA)
        return [{"key": "exact", "unit": unit, "view": view, "epsilon": budget.upper * (1 + 1e-6), "delta": DELTA}]

    return claims


def _large(factor: float) -> VerticalData:
    """The data with all features so many times as large."""
    data = small_data()
    blocks, test_blocks = (tuple(factor * b for b in side) for side in (data.blocks, data.test_blocks))
    return replace(data, blocks=blocks, test_blocks=test_blocks)


_FIRST_ORDER = {name: value for name, value in ROWS.items() if name != "smoothing"}
_BOTH = {**SPLIT, "protection": "embedding", "label_protection": "alibi", "label_noise": 2.0}


def _control(name: str, fault: str, case: Trained, *, fast: bool = False) -> Mutation:
    return Mutation(
        name=name, family="control", fault=fault, change="none", expected="none", case=case, accepted=(0, 3), fast=fast
    )


CONTROLS = (
    _control("sound-joint", "DPZV with the joint update, record against all devices", dpzv_case(Dpzv), fast=True),
    _control(
        "sound-joint-label",
        "the same for a label against an eavesdropper",
        dpzv_case(Dpzv, unit="label", view="eavesdropper"),
    ),
    _control("sound-full-batch", "the same with full batches", dpzv_case(Dpzv, schedule="full", rounds=4)),
    _control("sound-poisson", "the same with Poisson batches", dpzv_case(Dpzv, schedule="poisson")),
    _control("sound-fixed-size", "the same with batches of fixed size", dpzv_case(Dpzv, schedule="fixed")),
    _control("sound-secure-noise", "the same with noise of the operating system", dpzv_case(Dpzv, secure_noise=True)),
    _control(
        "sound-long", "the same over 300 rounds", dpzv_case(Dpzv, rounds=300, canaries=("worst-case",), trials=100)
    ),
    _control("sound-public-tensor", "the same with a public message beside it", dpzv_case(PublicTensor), fast=True),
    _control("sound-echo", "the same whose devices send back what they were sent", dpzv_case(PostProcessed)),
    _control("sound-momentum", "the same with momentum", dpzv_case(Dpzv, momentum=0.9)),
    _control("sound-lean", "the same with directions that are regenerated", dpzv_case(Dpzv, lean=True)),
    _control("sound-five-classes", "the same with five classes", dpzv_case(Dpzv, data=small_data(classes=5))),
    _control("sound-one-device", "the same with one device", dpzv_case(Dpzv, data=small_data(devices=1))),
    _control("sound-encrypted", "the same with encrypted uplinks", dpzv_case(Dpzv, encrypted_uplink=True), fast=True),
    _control(
        "sound-encrypted-outsider",
        "the same for a label against an outsider, with Poisson batches",
        dpzv_case(
            Dpzv, claims=_exact_epsilon("label", "outsider"), noise_for=None, encrypted_uplink=True, schedule="poisson"
        ),
    ),
    _control(
        "sound-full-secure",
        "the same with full batches and noise of the operating system",
        dpzv_case(Dpzv, schedule="full", rounds=4, secure_noise=True),
    ),
    _control(
        "sound-empty-batches",
        "the same with Poisson batches of one record or none",
        dpzv_case(Dpzv, schedule="poisson", batch_size=1),
    ),
    _control("sound-model", "the same against whoever holds the trained model", dpzv_case(Dpzv, view="model")),
    _control(
        "sound-tiny-noise",
        "the same with so little noise that μ is 30",
        replace(dpzv_case(Dpzv), noise_for=(30.0, "record", "devices(all)")),
    ),
    _control(
        "sound-large-features", "the same with features ten thousand times as large", dpzv_case(Dpzv, data=_large(1e4))
    ),
    _control(
        "sound-server-noise",
        "DPZV whose server has clipped and noised steps of its own",
        dpzv_case(Dpzv, server_update="dp-sgd", server_noise_std=1.0),
    ),
    _control("sound-rows", "ZOO-VFL with noised embeddings", _uplink(ZooVfl, ROWS, "features")),
    _control(
        "sound-rows-wide",
        "the same with wider embeddings and batches",
        _uplink(ZooVfl, {**ROWS, "batch_size": 20, "embedding": 8}, "features"),
    ),
    _control("sound-czofo", "VFL-CZOFO with noised embeddings", _uplink(Czofo, ROWS, "features")),
    _control(
        "sound-vafl",
        "VAFL with noised embeddings and the claim that covers its devices' models",
        _uplink(Vafl, _FIRST_ORDER, "features"),
    ),
    _control(
        "sound-vafl-delays",
        "the same with stale embeddings, at most two rounds old",
        _uplink(Vafl, {**_FIRST_ORDER, "max_delay": 2}, "features"),
    ),
    _control("sound-split", "split learning with client-level noise", _uplink(Split, SPLIT, "client-zero")),
    _control(
        "sound-split-large",
        "the same with features a million times as large, and hardly any noise",
        _uplink(Split, SPLIT, "client-zero", mu=100.0, data=_large(1e6)),
    ),
    _control(
        "sound-split-alibi",
        "split learning with noised embeddings and ALIBI, and the claims about both",
        _uplink(Split, _BOTH, "features", keep=("labels",)),
    ),
    _control("sound-split-client", "the same where a whole device is replaced", _uplink(Split, SPLIT, "client")),
    _control("sound-vimadmm", "VIMADMM with client-level noise", _uplink(Vimadmm, ADMM, "client-zero")),
    _control(
        "sound-rr",
        "ZOO-VFL with randomised response",
        labels_case(ZooVfl, label_protection="rr", label_noise=1.0),
        fast=True,
    ),
    _control("sound-alibi", "ZOO-VFL with ALIBI", labels_case(ZooVfl, label_protection="alibi", label_noise=2.0)),
    _control(
        "sound-rr-two-classes",
        "the same with two classes",
        labels_case(ZooVfl, label_protection="rr", label_noise=1.0, classes=2),
    ),
)
