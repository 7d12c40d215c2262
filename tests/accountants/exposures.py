"""Exposures built by hand: what an adversary would see, without a run."""

from __future__ import annotations

from vflpriv.core.law import Law
from vflpriv.core.ledger import Event, Exposure, Reading, Sampling
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary

__all__ = ["event", "expose"]


def event(noise: Law, sensitivity: float = 1.0, count: int = 1, rate: float | None = None) -> Event:
    """`count` equal releases; with a rate, of secret Poisson batches."""
    sampling = None if rate is None else Sampling("poisson", rate)
    return Event(kind="message", noise=noise, sensitivity=sensitivity, count=count, sampling=sampling)


def expose(
    *events: Event,
    unit: Unit = Unit.ADD_REMOVE,
    unprotected: tuple[str, ...] = (),
    assumptions: tuple[str, ...] = (),
    not_applicable: str | None = None,
) -> Exposure:
    """The exposure of an outsider to these events."""
    return Exposure(
        unit=unit,
        adversary=Adversary("outsider"),
        reading=Reading.RIGOROUS,
        batches="secret",
        events=events,
        unprotected=unprotected,
        assumptions=assumptions,
        not_applicable=not_applicable,
    )
