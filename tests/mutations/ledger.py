"""Mutations of what is declared: the engine is sound, and its ledger or claim says more than is true."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tests.mutations.case import DELTA, Mutation, Trained, exact_claim
from tests.mutations.dpzv import Joint, dpzv_case
from vflpriv.common.registry import find
from vflpriv.core.releases import Release
from vflpriv.core.schedules import Schedule
from vflpriv.core.systems import System
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.laws import Gaussian
from vflpriv.training.engines.dpzv import Dpzv
from vflpriv.training.mechanisms.base import NoNoise

__all__ = ["MUTATIONS"]

Change = Callable[[Release], Release]


def _declared(name: str, change: Change, base: type[Dpzv] = Joint) -> type[Dpzv]:
    """DPZV whose ledger has this change in its entry for the scalar."""

    def releases(settings: Any, schedule: Schedule) -> tuple[Release, ...]:
        entries = base.releases(settings, schedule)
        return tuple(change(entry) if entry.kind == "zo-scalar" else entry for entry in entries)

    members = {"name": name, "releases": staticmethod(releases), "__module__": __name__}
    return type("DeclaredWrongly", (base,), members)


def _half(release: Release) -> Release:
    return replace(release, sensitivity={unit: bound / 2 for unit, bound in release.sensitivity.items()})


def _more_noise(release: Release) -> Release:
    assert isinstance(release.noise, Gaussian)
    return replace(release, noise=Gaussian(1.5 * release.noise.std))


def _every_second(release: Release) -> Release:
    return replace(release, rounds=release.rounds & (np.arange(len(release.rounds)) % 2 == 0))


def _once(release: Release) -> Release:
    return replace(release, once=True)


def _unseen(release: Release) -> Release:
    return replace(release, seen_by=frozenset({"server", "model"}))


def _without_labels(release: Release) -> Release:
    bounds = {unit: bound for unit, bound in release.sensitivity.items() if unit is not Unit.LABEL}
    return replace(release, sensitivity=bounds)


class WithoutFeatures(Joint):
    """Its ledger says that embeddings depend on nothing private."""

    name = "without-features"

    @staticmethod
    def releases(settings: Any, schedule: Schedule) -> tuple[Release, ...]:
        scalar, pair = Joint.releases(settings, schedule)
        nothing = NoNoise(depends_on=frozenset())
        what, seen_by = pair.what, pair.seen_by
        return scalar, nothing.describe(kind=pair.kind, what=what, rounds=pair.rounds, seen_by=seen_by)


class WithoutLeak(Dpzv):
    """Published DPZV, whose server moves by exact labels, with a ledger that leaves its model out."""

    name = "without-leak"

    @staticmethod
    def releases(settings: Any, schedule: Schedule) -> tuple[Release, ...]:
        scalar, pair, *_ = Dpzv.releases(settings, schedule)
        return replace(scalar, leak=None, carried=True), pair


def _secret(system: System) -> list[dict[str, Any]]:
    """A claim for an outsider that counts batches as secret, although the outsider sees each batch's embeddings."""
    scalar = tuple(release for release in system.ledger.releases if release.kind == "zo-scalar")
    exposure = replace(system.ledger, releases=scalar).exposure(Adversary.parse("outsider"), Unit.LABEL)
    epsilon = find("accountant", "auto")().budget(exposure, DELTA).upper
    return [{"key": "secret", "unit": "label", "view": "outsider", "epsilon": epsilon * 1.0001, "delta": DELTA}]


def _small(system: System) -> list[dict[str, Any]]:
    return [{"key": "unseen", "unit": "label", "view": "devices(all)", "mu": 0.2, "delta": DELTA}]


def _ledger(name: str, fault: str, change: str, case: Trained, **fields: Any) -> Mutation:
    return Mutation(
        name=name, family="ledger", fault=fault, change=change, case=case, **{"expected": "two-world, wire", **fields}
    )


def _entry(name: str, fault: str, change: str, entry: Change, **changes: Any) -> Mutation:
    return _ledger(name, fault, change, dpzv_case(_declared(name, entry), **changes))


_LABEL = {"unit": "label", "view": "devices(all)"}

MUTATIONS = (
    _entry("ledger-half-sensitivity", "the ledger has half the sensitivity", "+100 %", _half),
    _entry("ledger-more-noise", "the ledger has 1.5 times the noise", "+50 %", _more_noise),
    _entry("ledger-every-second", "the ledger lists every second round", "+41 %", _every_second, rounds=48),
    _entry(
        "ledger-once",
        "the ledger says that each record is released once, and it is four times",
        "+100 %",
        _once,
        rounds=48,
    ),
    _ledger(
        "ledger-unseen",
        "the ledger says that devices do not see the scalar that they are sent",
        "+400 %",
        replace(dpzv_case(_declared("ledger-unseen", _unseen), noise_std=0.14), claims=_small, noise_for=None),
        accepted=(1, 3),
    ),
    _ledger(
        "ledger-without-labels",
        "the ledger's entry for the scalar leaves labels out",
        "+400 %",
        replace(
            dpzv_case(_declared("ledger-without-labels", _without_labels)),
            claims=_small,
            noise_for=(1.0, "record", "devices(all)"),
        ),
    ),
    _ledger(
        "ledger-without-features",
        "the ledger says that exact embeddings depend on no features",
        "total leak",
        dpzv_case(WithoutFeatures, unit="features", view="server"),
    ),
    _ledger(
        "ledger-without-leak",
        "the ledger leaves out that the server's model moves by exact labels",
        "grows with the rate",
        dpzv_case(WithoutLeak, server_update="sgd", **_LABEL),
        expected="server-state",
    ),
    _ledger(
        "claim-too-small",
        "the claimed μ is 0.7 times what holds",
        "+43 %",
        replace(dpzv_case(Joint), claims=exact_claim("record", "devices(all)", share=0.7)),
        expected="accounting",
        accepted=(1, 3),
    ),
    _ledger(
        "claim-secret-batches",
        "the claim counts on secret batches, and an outsider sees each batch's embeddings",
        "+100 % and more",
        replace(dpzv_case(Joint, schedule="poisson", **_LABEL), claims=_secret),
        expected="accounting",
        accepted=(1, 3),
    ),
)
