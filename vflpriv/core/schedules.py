"""Schedules: the active devices and the batch of every round, drawn before training and independent of the data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from vflpriv.common.numerics import Floats
from vflpriv.common.seeds import host_generator
from vflpriv.errors import InputError

__all__ = ["Activation", "Batching", "Schedule"]

Ints = NDArray[np.int64]


class Batching(StrEnum):
    """How a round's records are chosen."""

    SHUFFLE = "shuffle"
    POISSON = "poisson"
    FIXED = "fixed"
    FULL = "full"

    @property
    def sampled(self) -> bool:
        """Whether records are sampled anew for each batch, so that secret batches amplify."""
        return self in (Batching.POISSON, Batching.FIXED)

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
    """Independent Poisson clocks: the device whose clock rings next, alone."""
    ROUND_ROBIN = "round-robin"
    """One device after the other, alone."""
    SEVERAL = "several"
    """The devices of the first few clocks to ring, together (t-synchronous)."""
    ALL = "all"

    def fixed_order(self, rounds: int, devices: int) -> NDArray[np.bool_] | None:
        """(rounds, devices) who is active, where no clock decides about it."""
        if self is Activation.ALL:
            return np.ones((rounds, devices), dtype=np.bool_)
        if self is Activation.ROUND_ROBIN:
            return np.asarray(np.arange(devices) == (np.arange(rounds) % devices)[:, None])
        return None

    def awaited(self, together: int, devices: int) -> int:
        """How many devices a round waits for where clocks decide which; `together` of them if it is several."""
        if self is not Activation.SEVERAL:
            return 1
        if not 1 <= together <= devices:
            raise InputError("together", together, f"1 to {devices} devices")
        return together


@dataclass(frozen=True, eq=False, kw_only=True)
class Schedule:
    """The batches and active devices of all rounds. Round t's records are order[start[t] : start[t] + size[t]]."""

    batching: Batching
    records: int
    batch_size: int
    devices: int
    active: NDArray[np.bool_]
    """(rounds, devices): which devices take part."""
    order: Ints
    start: Ints
    size: Ints
    seconds: Floats | None = None
    """(rounds,) when each round ends on the simulated clock; None where nothing is known of the devices' speed.

    It is that of the delays that were given, or of the Poisson clocks, which ring `rate` times per second.
    """

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
        together: int = 1,
        timed_order: tuple[NDArray[np.bool_], Floats] | None = None,
    ) -> Schedule:
        """Draw a schedule from the `activation` and `batches` streams of `seed`.

        `timed_order` is `active` and `seconds` of a simulated clock, in the place of Poisson clocks.
        """
        if batching is not Batching.FULL and batch_size > records:
            raise InputError("batch_size", batch_size, f"at most the {records} records there are")
        active, seconds = timed_order or _activate(activation, rounds, devices, rates, together, seed)
        # Devices that are active alone have epochs of their own; devices that are active together share a batch.
        alone = activation in (Activation.CLOCKS, Activation.ROUND_ROBIN)
        turns = active.argmax(1) if alone else np.full(rounds, -1)
        draw = _DRAW[batching]
        order, start, size = draw(turns, records, batch_size, devices, host_generator(seed, "batches"))
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
            seconds=seconds,
        )

    @property
    def rounds(self) -> int:
        return len(self.active)

    @property
    def rate(self) -> float:
        """The share of the records in a round."""
        return self.batch_size / self.records

    def with_batches_of(self, generator: np.random.Generator) -> Schedule:
        """The same rounds with other batches, drawn from this generator, where sampling may amplify; else itself."""
        if not self.batching.sampled:
            return self
        turns = np.full(self.rounds, -1)
        order, start, size = _DRAW[self.batching](turns, self.records, self.batch_size, self.devices, generator)
        return replace(self, order=order, start=start, size=size)

    def first(self, rounds: int) -> Schedule:
        """The first so many rounds."""
        return replace(self, active=self.active[:rounds], start=self.start[:rounds], size=self.size[:rounds])

    def batch(self, round_: int) -> Ints:
        """The record ids of one round."""
        return self.order[self.start[round_] : self.start[round_] + self.size[round_]]

    def members(self, round_: int) -> tuple[int, ...]:
        """The devices that take part in one round."""
        return tuple(np.flatnonzero(self.active[round_]).tolist())

    @property
    def every_round(self) -> NDArray[np.bool_]:
        """A mask of all rounds, by which a release says when it is made."""
        return np.ones(self.rounds, dtype=np.bool_)

    @property
    def last_round(self) -> NDArray[np.bool_]:
        """A mask of the last round, in which trained models are released."""
        mask: NDArray[np.bool_] = np.arange(self.rounds) == self.rounds - 1
        return mask

    @property
    def turns(self) -> list[int] | None:
        """The one device of each round, or None if several take part in a round."""
        return [int(m) for m in self.active.argmax(1)] if (self.active.sum(1) == 1).all() else None

    def visible(self, devices: Sequence[int]) -> NDArray[np.bool_]:
        """The rounds in which at least one of these devices takes part."""
        return np.asarray(self.active[:, list(devices)].any(axis=1))

    def counts(self, rounds: NDArray[np.bool_]) -> Ints:
        """How often each record is in the batch, over the rounds marked true."""
        start, end = self.start[rounds], self.start[rounds] + self.size[rounds]
        places = len(self.order) + 1
        # A place of `order` counts as often as a batch has begun by then and has not yet ended.
        begun, ended = np.bincount(start, minlength=places), np.bincount(end, minlength=places)
        times = np.cumsum(begun - ended)[:-1]
        return np.bincount(self.order, weights=times, minlength=self.records).astype(np.int64)

    def staleness(self) -> Counter[int]:
        """The ages, in rounds, of the embeddings that rounds use from devices that are not active in them.

        Each record of each round counts once for every inactive device; -1 stands for an embedding never sent.
        """
        last = np.full((self.records, self.devices), -1, dtype=np.int64)
        ages: Counter[int] = Counter()
        for t in range(self.rounds):
            ids, members = self.batch(t), self.active[t]
            seen = last[np.ix_(ids, ~members)]
            values, numbers = np.unique(np.where(seen < 0, -1, t - seen), return_counts=True)
            ages.update(dict(zip(values.tolist(), numbers.tolist(), strict=True)))
            last[np.ix_(ids, members)] = t
        return ages

    def first_rounds(self, marked: NDArray[np.bool_] | None = None) -> Ints:
        """The first round of each record, of all or of those marked true; `rounds` for a record without one."""
        chosen = np.arange(self.rounds) if marked is None else np.flatnonzero(marked)
        whole = np.flatnonzero(self.size[chosen] == self.records)
        end = int(chosen[whole[0]]) if len(whole) else self.rounds  # by then every record has had a round
        chosen = chosen[chosen < end]
        first = np.full(self.records, end, dtype=np.int64)
        # Devices of a round share its batch: the first round with each is enough.
        _, distinct = np.unique(self.start[chosen] * (self.records + 1) + self.size[chosen], return_index=True)
        for t in chosen[distinct]:
            np.minimum.at(first, self.batch(int(t)), t)
        return first


def _activate(
    activation: Activation, rounds: int, devices: int, rates: Sequence[float] | None, together: int, seed: int
) -> tuple[NDArray[np.bool_], Floats | None]:
    """The active devices of every round, and where clocks decide about them, when each round ends."""
    order = activation.fixed_order(rounds, devices)
    if order is not None:
        return order, None
    count = activation.awaited(together, devices)
    weights = np.ones(devices) if rates is None else np.asarray(rates, dtype=np.float64)
    if len(weights) != devices or not np.all(weights > 0):
        raise InputError("rates", list(weights), f"{devices} positive numbers, one for each device")
    # Independent Poisson clocks: the next to ring is device m with probability rate_m / sum of rates.
    waits = host_generator(seed, "activation").exponential(size=(rounds, devices)) / weights
    # Clocks have no memory: after every round the waits begin anew.
    seconds = np.cumsum(np.partition(waits, count - 1, axis=1)[:, count - 1])
    return np.asarray(waits.argsort(axis=1).argsort(axis=1) < count), seconds


def _draw_shuffle(active: Ints, records: int, batch: int, devices: int, rng: np.random.Generator) -> tuple[Ints, ...]:
    """Each device uses all records once in an epoch, whose last batch may be short.

    In its e-th epoch every device cuts the same permutation into batches, but starts at another batch: devices work on
    different records at any time, and the total counts of any two records differ by at most one.
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
