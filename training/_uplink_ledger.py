"""What devices let out on the uplink: which rounds count for which unit, and what their own models carry along."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vflpriv.releases import Release, StateLeak
from vflpriv.schedules import Schedule
from vflpriv.training._mechanisms import Mechanism
from vflpriv.training._uplinks import UplinkSettings, uplink_mechanisms
from vflpriv.units import Unit

__all__ = ["DEVICES", "ONLOOKERS", "uplink_releases"]

ONLOOKERS = frozenset({"server", "eavesdropper", "outsider"})
DEVICES = frozenset({"device", "devices", "eavesdropper", "outsider"})
_JOINT = (Unit.RECORD, Unit.ADD_REMOVE)
_WHOLE = (Unit.CLIENT_ZERO, Unit.CLIENT)


def uplink_releases(
    settings: UplinkSettings, schedule: Schedule, *, kind: str, sent: NDArray[np.bool_]
) -> tuple[Release, ...]:
    """The ledger's entries for uplinks of which `sent`, (rounds, devices), says who sends when.

    Without noise they are exact in everything. With it:
    - a whole record has a row in the message of every device that sends: √(senders) times one device's sensitivity;
    - one device's row of a record, and one device, meet that device's rounds alone: the worst device's;
    - a device's model was moved by its raw features, and later messages of that device read it, whichever records they
      carry: after a record's first round every one may differ by all that the clip allows (`StateLeak`).
    Everyone sees noised uplinks: directly, or through the gradients that are computed from them.
    """
    mechanism, what = uplink_mechanisms(settings, schedule)["embeddings"], f"{kind}, device to server"
    anyone = np.asarray(sent.any(axis=1))
    if not settings.noise_std:
        return (mechanism.describe(kind=kind, what=what, rounds=anyone, seen_by=ONLOOKERS),)
    senders = math.sqrt(int(sent.sum(axis=1).max()))
    by_record = int(np.argmax([schedule.counts(rounds).max() for rounds in sent.T]))
    by_round = int(np.argmax(sent.sum(axis=0)))
    parts = (
        (_JOINT, anyone, senders, f"{what}; a record's rows of all devices"),
        ((Unit.FEATURES,), sent[:, by_record], 1.0, f"{what}; a record's row at device {by_record}"),
        (_WHOLE, sent[:, by_round], 1.0, f"{what}; all that device {by_round} sends"),
    )
    seen_by = ONLOOKERS | DEVICES
    whole = mechanism.describe(kind=kind, what=what, rounds=anyone, seen_by=seen_by, reaches_all=True)
    return tuple(
        replace(
            whole,
            what=words,
            rounds=rounds,
            sensitivity={unit: scale * mechanism.sensitivity[unit] for unit in units},
            leak=_carried(mechanism, units, scale),
        )
        for units, rounds, scale, words in parts
    )


def _carried(mechanism: Mechanism, units: tuple[Unit, ...], scale: float) -> StateLeak | None:
    """What the device's own model adds, for units that belong to one record; a device's whole block is all there is."""
    if not units[0].per_record:
        return None
    # Any two clipped batches are at most as far apart as those of two different blocks.
    bound = scale * mechanism.sensitivity[Unit.CLIENT]
    return StateLeak(carrier="a device's own model", sensitivity=dict.fromkeys(units, bound))
