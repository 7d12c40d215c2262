"""A simulated clock: when each round of a training ends, from the compute time and network delay of every device.

A device's job is one round of its own: it computes and exchanges messages with the server, which takes a random time,
and it begins the next job when the server has ended the round that it took part in. A round ends when all devices that
it waits for have delivered: a synchronous one takes as long as its slowest device. Where the server waits for the first
t devices to deliver, the others go on with the jobs they are at, and deliver them in a later round.

What a server computes, and what it asks devices for in the middle of a round, takes no time here.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from vflpriv.common.numerics import Floats
from vflpriv.common.seeds import host_generator
from vflpriv.common.toml import Section
from vflpriv.core.schedules import Activation
from vflpriv.errors import InputError

__all__ = ["Delay", "Delays", "first_to_deliver", "simulated_times", "timed_order"]

_CHUNK = 1024
Seconds = Annotated[float, Field(ge=0, le=1e9)]


class Delay(Section):
    """Independent delays of one distribution, with a mean for all devices, or for each one."""

    distribution: Literal["constant", "exponential", "poisson"] = Field(
        "constant", description="of the delays; poisson is a Poisson number of steps"
    )
    mean: tuple[Seconds, ...] = Field(
        min_length=1, description="mean in seconds: one number for all devices, or one for each"
    )
    step: float = Field(1.0, ge=1e-9, le=1e9, description="for poisson: the seconds of one step")

    @field_validator("mean", mode="before")
    @classmethod
    def _one_for_all(cls, value: object) -> object:
        if isinstance(value, int | float):
            return (value,)
        return tuple(value) if isinstance(value, list) else value

    def draw(self, m: int, count: int, random: np.random.Generator) -> Floats:
        """(count,) delays of device m, in seconds."""
        mean = self.mean[m] if len(self.mean) > 1 else self.mean[0]
        if self.distribution == "exponential":
            return mean * random.exponential(size=count)
        if self.distribution == "poisson":
            return self.step * random.poisson(mean / self.step, size=count).astype(np.float64)
        return np.full(count, mean)


class Delays(Section):
    """What a device's job is made of: its compute time, and the delay of its messages both ways together."""

    compute: Delay | None = Field(None, description="what a device computes in one round; no time if not given")
    network: Delay | None = Field(
        None, description="a device's messages of one round, both ways together; no time if not given"
    )

    @classmethod
    def published(cls, devices: int) -> Delays:
        """Those of VAFL's logistic regressions (§G.2): Poisson(2m)/2M for worker m of M, one second for the last."""
        means = tuple((m + 1) / devices for m in range(devices))
        return cls(network=Delay(distribution="poisson", mean=means, step=1 / (2 * devices)))

    def check(self, devices: int) -> None:
        """Raise an InputError unless there is one mean for all devices, or one for each."""
        for name, delay in (("compute", self.compute), ("network", self.network)):
            if delay is not None and len(delay.mean) not in (1, devices):
                raise InputError(f"delays.{name}.mean", list(delay.mean), f"one number, or {devices}, one per device")

    def drawn(self, m: int, count: int, seed: int) -> Floats:
        """(count,) the seconds of device m's first jobs; more of them begin with the same ones."""
        chunks = self._chunks(m, seed)
        return np.concatenate([np.empty(0), *(next(chunks) for _ in range(0, count, _CHUNK))])[:count]

    def jobs(self, m: int, seed: int) -> Iterator[float]:
        """The seconds of device m's jobs, one after the other."""
        for chunk in self._chunks(m, seed):
            yield from chunk.tolist()

    def _chunks(self, m: int, seed: int) -> Iterator[Floats]:
        parts = [(d, host_generator(seed, "delays", m, i)) for i, d in enumerate((self.compute, self.network)) if d]
        while True:
            yield np.sum([np.zeros(_CHUNK), *(delay.draw(m, _CHUNK, random) for delay, random in parts)], axis=0)


def timed_order(
    delays: Delays, activation: Activation, *, rounds: int, devices: int, together: int, seed: int
) -> tuple[NDArray[np.bool_], Floats]:
    """(rounds, devices) who is active, and (rounds,) when each round ends.

    Those who deliver first are active, as many as a round waits for, unless the activation has a fixed order.
    """
    order = activation.fixed_order(rounds, devices)
    if order is not None:
        return order, simulated_times(order, delays, seed=seed)
    count = activation.awaited(together, devices)
    return first_to_deliver(delays, rounds=rounds, devices=devices, together=count, seed=seed)


def first_to_deliver(
    delays: Delays, *, rounds: int, devices: int, together: int, seed: int
) -> tuple[NDArray[np.bool_], Floats]:
    """Who is active in each round if it waits for the first `together` devices to deliver, and when each round ends.

    Devices that deliver at the same time are taken in the order in which they began their jobs. With exponential delays
    and one device per round, these are independent Poisson clocks with rates of one over the mean delays.
    """
    delays.check(devices)
    jobs = [delays.jobs(m, seed) for m in range(devices)]
    due = [(next(jobs[m]), m, m) for m in range(devices)]
    heapq.heapify(due)
    active, ends, begun = np.zeros((rounds, devices), dtype=np.bool_), np.zeros(rounds), devices
    for t in range(rounds):
        delivered = [heapq.heappop(due) for _ in range(together)]
        ends[t] = delivered[-1][0]
        for _, _, m in delivered:
            active[t, m] = True
            heapq.heappush(due, (ends[t] + next(jobs[m]), begun, m))
            begun += 1
    return active, ends


def simulated_times(active: NDArray[np.bool_], delays: Delays, *, seed: int) -> Floats:
    """(rounds,) the seconds after which each round ends, where `active`, (rounds, devices), says whom it waits for.

    The server takes the rounds in this order, so that a device may have to wait for its turn. Where the delays
    themselves decided who is active, with the same seed, the times are those of `first_to_deliver`.

    >>> delays = Delays(compute=Delay(mean=(1.0, 3.0)))
    >>> simulated_times(np.ones((2, 2), dtype=bool), delays, seed=0).tolist()
    [3.0, 6.0]
    >>> simulated_times(np.array([[True, False], [True, False], [False, True]]), delays, seed=0).tolist()
    [1.0, 2.0, 3.0]
    """
    rounds, devices = active.shape
    delays.check(devices)
    if active.all():
        return np.cumsum(np.max([delays.drawn(m, rounds, seed) for m in range(devices)], axis=0))
    jobs = [delays.jobs(m, seed) for m in range(devices)]
    due, ends, now = [next(own) for own in jobs], np.zeros(rounds), 0.0
    for t in range(rounds):
        members = np.flatnonzero(active[t]).tolist()
        now = max([now, *(due[m] for m in members)])
        for m in members:
            due[m] = now + next(jobs[m])
        ends[t] = now
    return ends
