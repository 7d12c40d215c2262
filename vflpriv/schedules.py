"""Who is active and which records are in the batch, for every round, drawn before training and blind to the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from vflpriv.errors import InputError
from vflpriv.seeds import host_generator

__all__ = ["Activation", "Batching", "Schedule"]

Ints = NDArray[np.int64]


class Batching(StrEnum):
    """How a round's records are chosen."""

    SHUFFLE = "shuffle"
    POISSON = "poisson"
    FIXED = "fixed"
    FULL = "full"

    @property
    def description(self) -> str:
        return {
            Batching.SHUFFLE: "epochs in a fresh random order",
            Batching.POISSON: "each record with probability B/D, independently",
            Batching.FIXED: "B distinct records, drawn anew each round",
            Batching.FULL: "every record in every round",
        }[self]


class Activation(StrEnum):
    """Which devices take part in a round."""

    CLOCKS = "clocks"
    ROUND_ROBIN = "round-robin"
    ALL = "all"


@dataclass(frozen=True, eq=False, kw_only=True)
class Schedule:
    """The batches and active devices of all rounds. Round t's records are order[start[t] : start[t] + size[t]]."""

    batching: Batching
    records: int
    batch_size: int
    devices: int
    active: Ints
    """The device of each round, or -1 when all devices take part."""
    order: Ints
    start: Ints
    size: Ints

    @classmethod
    def draw(
        cls,
        *,
        batching: Batching,
        activation: Activation,
        records: int,
        batch_size: int,
        rounds: int,
        devices: int,
        seed: int,
        rates: Sequence[float] | None = None,
    ) -> Schedule:
        """Draw a schedule from the `activation` and `batches` streams of `seed`."""
        if batching is not Batching.FULL and batch_size > records:
            raise InputError("batch_size", batch_size, f"at most the {records} records there are")
        active = _activate(activation, rounds, devices, rates, seed)
        draw = _DRAW[batching]
        order, start, size = draw(active, records, batch_size, devices, host_generator(seed, "batches"))
        batch = records if batching is Batching.FULL else batch_size
        return cls(
            batching=batching,
            records=records,
            batch_size=batch,
            devices=devices,
            active=active,
            order=order,
            start=start,
            size=size,
        )

    @property
    def rounds(self) -> int:
        return len(self.active)

    @property
    def rate(self) -> float:
        """The share of the records in a round."""
        return self.batch_size / self.records

    def batch(self, round_: int) -> Ints:
        """The record ids of one round."""
        return self.order[self.start[round_] : self.start[round_] + self.size[round_]]

    def members(self, round_: int) -> tuple[int, ...]:
        """The devices that take part in one round."""
        one = int(self.active[round_])
        return tuple(range(self.devices)) if one < 0 else (one,)

    def visible(self, devices: Sequence[int]) -> NDArray[np.bool_]:
        """The rounds in which at least one of these devices takes part."""
        return np.isin(self.active, [-1, *devices])

    def counts(self, rounds: NDArray[np.bool_]) -> Ints:
        """How often each record is in the batch, over the rounds marked true."""
        chosen = np.flatnonzero(rounds)
        if self.batching is Batching.FULL:
            return np.full(self.records, len(chosen), dtype=np.int64)
        ids = [self.batch(int(t)) for t in chosen]
        return np.bincount(np.concatenate(ids) if ids else [], minlength=self.records).astype(np.int64)

    def first_rounds(self) -> Ints:
        """The first round each record takes part in, whoever is active; `rounds` for one that never does."""
        first = np.full(self.records, self.rounds, dtype=np.int64)
        if self.batching is Batching.FULL:
            return np.zeros(self.records, dtype=np.int64) if self.rounds else first
        rounds = np.repeat(np.arange(self.rounds), self.size)
        ids = np.concatenate([self.batch(t) for t in range(self.rounds)]) if self.rounds else np.empty(0, np.int64)
        np.minimum.at(first, ids, rounds)
        return first


def _activate(activation: Activation, rounds: int, devices: int, rates: Sequence[float] | None, seed: int) -> Ints:
    if activation is Activation.ALL:
        return np.full(rounds, -1, dtype=np.int64)
    if activation is Activation.ROUND_ROBIN:
        return np.arange(rounds, dtype=np.int64) % devices
    weights = np.ones(devices) if rates is None else np.asarray(rates, dtype=np.float64)
    if len(weights) != devices or not np.all(weights > 0):
        raise InputError("rates", list(weights), f"{devices} positive numbers, one for each device")
    # Independent Poisson clocks: the next to ring is device m with probability rate_m / sum of rates.
    generator = host_generator(seed, "activation")
    return generator.choice(devices, size=rounds, p=weights / weights.sum()).astype(np.int64)


def _draw_shuffle(active: Ints, records: int, batch: int, devices: int, rng: np.random.Generator) -> tuple[Ints, ...]:
    """Each device passes over all records once an epoch, the last batch of an epoch being short.

    In its e-th epoch every device cuts the same fresh permutation into batches, but starts at another one: devices
    work on different records at any time, and a record's total count stays within one of the others'.
    """
    per_epoch = -(-records // batch)
    turn = np.zeros(len(active), dtype=np.int64)
    for stream in np.unique(active):
        turn[active == stream] = np.arange(np.count_nonzero(active == stream))
    epoch, step = np.divmod(turn, per_epoch)
    offset = np.maximum(active, 0) * per_epoch // devices
    position = (step + offset) % per_epoch
    epochs = int(epoch.max(initial=-1)) + 1
    order = np.concatenate([rng.permutation(records) for _ in range(epochs)]) if epochs else np.empty(0, np.int64)
    return order, epoch * records + position * batch, np.minimum(batch, records - position * batch)


def _draw_sizes(sizes: Ints, records: int, rng: np.random.Generator) -> tuple[Ints, ...]:
    ids = [rng.choice(records, size=int(n), replace=False, shuffle=False) for n in sizes]
    order = np.concatenate(ids) if ids else np.empty(0, np.int64)
    return order.astype(np.int64), np.cumsum(sizes) - sizes, sizes


def _draw_poisson(active: Ints, records: int, batch: int, devices: int, rng: np.random.Generator) -> tuple[Ints, ...]:
    # A Poisson sample is a uniform subset of a binomial size.
    return _draw_sizes(rng.binomial(records, batch / records, size=len(active)).astype(np.int64), records, rng)


def _draw_fixed(active: Ints, records: int, batch: int, devices: int, rng: np.random.Generator) -> tuple[Ints, ...]:
    return _draw_sizes(np.full(len(active), batch, dtype=np.int64), records, rng)


def _draw_full(active: Ints, records: int, batch: int, devices: int, rng: np.random.Generator) -> tuple[Ints, ...]:
    rounds = len(active)
    return np.arange(records), np.zeros(rounds, dtype=np.int64), np.full(rounds, records, dtype=np.int64)


_DRAW = {
    Batching.SHUFFLE: _draw_shuffle,
    Batching.POISSON: _draw_poisson,
    Batching.FIXED: _draw_fixed,
    Batching.FULL: _draw_full,
}
