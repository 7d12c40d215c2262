"""What DPZV lets out, and what its papers promise about it."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from vflpriv.claims import Claim
from vflpriv.releases import Release, StateLeak
from vflpriv.schedules import Schedule
from vflpriv.tradeoff import mu_of
from vflpriv.training._dpzv_settings import DpzvSettings
from vflpriv.training._mechanisms import Mechanism, NoNoise, ScalarMean
from vflpriv.training._zo_server import server_mechanism
from vflpriv.units import Unit

__all__ = ["claims", "mechanisms", "published_noise", "releases"]

_EVERYONE = frozenset({"device", "devices", "eavesdropper", "server", "outsider", "model"})
_FEATURE_UNITS = frozenset(Unit) - {Unit.LABEL}
_UNSOUND = ("sgd", "zo")


def mechanisms(settings: DpzvSettings, schedule: Schedule) -> Mapping[str, Mechanism]:
    """The scalar's mechanism, and the server's own where it has one."""
    own = server_mechanism(settings, schedule.batch_size)
    return {"zo-scalar": _scalar(settings, schedule)} | ({} if own is None else {"server-update": own})


def _scalar(settings: DpzvSettings, schedule: Schedule) -> ScalarMean:
    if settings.noise_std is None:
        raise ValueError(f"Expected a number for noise_std, found None with noise={settings.noise!r}.")
    return ScalarMean(
        noise_std=settings.noise_std,
        clip=settings.clip,
        batch_size=schedule.batch_size,
        two_sided=settings.clip_rule == "two-sided",
    )


def releases(settings: DpzvSettings, schedule: Schedule) -> tuple[Release, ...]:
    """Scalars down, embeddings up, and what becomes of the server's model."""
    every = np.ones(schedule.rounds, dtype=np.bool_)
    scalar = _scalar(settings, schedule)
    sound = settings.server_update not in _UNSOUND
    leak = StateLeak(carrier="the server's model w0", sensitivity=dict.fromkeys(Unit, scalar.span))
    down = scalar.describe(
        kind="zo-scalar",
        what="clipped mean loss difference, server to device",
        rounds=every,
        seen_by=_EVERYONE,
        carried=sound,
        leak=None if sound else leak,
    )
    up = NoNoise(depends_on=_FEATURE_UNITS).describe(
        kind="embedding-pair",
        what="embeddings, device to server",
        rounds=every,
        seen_by=frozenset({"server", "eavesdropper", "outsider"}),
    )
    return (down, up, *_server_releases(settings, schedule))


def _server_releases(settings: DpzvSettings, schedule: Schedule) -> tuple[Release, ...]:
    if settings.server_update in _UNSOUND:
        last = np.arange(schedule.rounds) == schedule.rounds - 1
        what = "the trained w0, moved by exact labels"
        model = NoNoise(depends_on=frozenset(Unit))
        return (model.describe(kind="server-model", what=what, rounds=last, seen_by=frozenset({"model"})),)
    own = server_mechanism(settings, schedule.batch_size)
    if own is None:
        return ()
    what = "the server's own noised step, which every later message reads"
    every = np.ones(schedule.rounds, dtype=np.bool_)
    return (own.describe(kind="server-update", what=what, rounds=every, seen_by=_EVERYONE, reaches_all=True),)


def published_noise(settings: DpzvSettings, schedule: Schedule) -> float:
    """σ = 2C√T/(Dμ), dpzv-journal Theorem VI.5."""
    mu = mu_of(settings.epsilon, settings.delta)
    return 2 * settings.clip * math.sqrt(schedule.rounds) / (schedule.records * mu)


def claims(settings: DpzvSettings, schedule: Schedule) -> tuple[Claim, ...]:
    """What Theorem VI.5 and Appendix F.2 say of this noise, or what calibrated noise is for."""
    if settings.noise == "calibrated":
        return (_calibrated(settings),)
    if not settings.noise_std:
        return ()
    mu = 2 * settings.clip * math.sqrt(schedule.rounds) / (schedule.records * settings.noise_std)
    source, where = "dpzv-journal", "Theorem VI.5"
    statement = "σ = 2C√T/(Dμ) makes the whole training μ-GDP, against one or a few curious devices"
    theorem = [
        Claim.of_mu(
            mu, settings.delta, key=key, source=source, where=where, statement=statement, unit=Unit.RECORD, view=view
        )
        for key, view in (("dpzv-device", "device"), ("dpzv-devices", "devices(all)"))
    ]
    model = Claim.of_mu(
        mu,
        settings.delta,
        key="dpzv-model",
        source="dpzv-conference",
        where="Appendix F.2",
        statement="the final model parameters satisfy the same (ε, δ)",
        unit=Unit.RECORD,
        view="model",
    )
    return (*theorem, model)


def _calibrated(settings: DpzvSettings) -> Claim:
    return Claim.of_epsilon(
        settings.epsilon,
        settings.delta,
        key="calibrated",
        source="this configuration",
        where="noise = calibrated",
        statement=f"the noise is calibrated so that {settings.protect} learns at most (ε, δ) of a record",
        unit=Unit.RECORD,
        view=settings.protect,
    )
