"""Small trainings of a user's own in two worlds, sound and broken; worlds differ in the label of record 3."""

from __future__ import annotations

import os

import numpy as np
import torch

from vflpriv.core.budgets import mu_of

RECORDS, ROUNDS, RECORD = 8, 4, 3
STD = ROUNDS**0.5 / mu_of(1.0, 1e-5)
"""The noise with which one label's part of four messages costs ε = 1 at δ = 1e-5."""
_CALLS = []


def labels_of(world):
    labels = torch.arange(RECORDS) % 2
    labels[RECORD] = world
    return labels


def send(wire, world, noises):
    """In each round, every record's label under noise goes to device 0."""
    labels = labels_of(world)
    wire.labels(labels)
    for t, noise in enumerate(noises):
        wire.down(t, 0, "answer", {"x": (labels + noise).float()}, torch.arange(RECORDS))


def noises(seed, std):
    generator = torch.Generator().manual_seed(seed)
    return [std * torch.randn(RECORDS, generator=generator) for _ in range(ROUNDS)]


def sound(wire, world, seed):
    print("trained")  # what trainings print does not disturb a report
    send(wire, world, noises(seed, STD))


def tenth(wire, world, seed):
    """A tenth of the noise that the ledger declares."""
    send(wire, world, noises(seed, STD / 10))


def low_bit(wire, world, seed):
    """Sound values whose lowest mantissa bit is the label."""
    labels = labels_of(world)
    for t, noise in enumerate(noises(seed, STD)):
        values = (labels + noise).float()
        bits = values.view(torch.int32)
        bits.copy_((bits & ~1) | labels.int())
        wire.down(t, 0, "answer", {"x": values}, torch.arange(RECORDS))


def in_clear(wire, world, seed):
    """Labels that go over an encrypted link, recorded as its two ends read them."""
    del seed
    send(wire, world, [torch.zeros(RECORDS)] * ROUNDS)


def one_world(wire, world, seed):
    """The world is forgotten."""
    send(wire, 0, noises(seed, STD))


def global_noise(wire, world, seed):
    """Noise from the global generators, which the audit seeds."""
    drawn = [torch.randn(RECORDS) + torch.from_numpy(np.random.randn(RECORDS)) for _ in range(ROUNDS)]  # noqa: NPY002
    send(wire, world, [STD * noise for noise in drawn])


def own_noise(wire, world, seed):
    """Noise that no seed decides."""
    send(wire, world, noises(int.from_bytes(os.urandom(4), "big"), STD))


def stateful(wire, world, seed):
    """Every call adds to what the one before left."""
    _CALLS.append(seed)
    send(wire, world, [noise + len(_CALLS) for noise in noises(seed, STD)])


def open_uplink(wire, world, seed):
    """The device that holds the block sends it as it is; what comes back does not depend on it."""
    del seed
    wire.up(0, 0, "block", {"x": torch.full((1,), float(world))}, [RECORD])
    wire.down(0, 0, "thanks", {"x": torch.zeros(1)}, [RECORD])
    wire.down(0, 1, "thanks", {"x": torch.zeros(1)}, [RECORD])


def failing(wire, world, seed):
    send(wire, world, noises(seed, STD))
    if world:
        raise KeyError("embedding")


def wrong_message(wire, world, seed):
    wire.down(0, 5, "answer", {"x": 0.0}, [0])


def without_seed(wire, world):
    """Not enough arguments."""


not_a_function = 3


def poisson(wire, world, generator):
    """A noised sum over a secret batch, which everybody on the wire sees."""
    labels = labels_of(world)
    for t in range(ROUNDS):
        ids = torch.nonzero(torch.rand(RECORDS, generator=generator) < 0.5).flatten()
        ids = ids if len(ids) else torch.tensor([0])
        noise = STD * torch.randn(1, generator=torch.default_generator)
        wire.down(t, 0, "answer", {"x": labels[ids].sum() + noise}, ids)


def drawn_batches(wire, world, seed):
    poisson(wire, world, torch.Generator().manual_seed(seed))


def fixed_batches(wire, world, seed):
    poisson(wire, world, torch.Generator().manual_seed(0))


def untold(wire, world, seed):
    """Sound, and the wire is told no labels."""
    labels = labels_of(world).float()
    for t, noise in enumerate(noises(seed, STD)):
        wire.down(t, 0, "answer", {"x": labels + noise}, torch.arange(RECORDS))


def branching(wire, world, seed):
    """The world decides by a branch which noise is added."""
    drawn = noises(seed, STD)
    for t, noise in enumerate(drawn):
        wire.down(t, 0, "answer", {"x": torch.zeros(RECORDS) + noise + (5 if world else 0)}, torch.arange(RECORDS))


def of_arrays(wire, world, seed):
    """Sound, and in NumPy."""
    labels = labels_of(world).numpy()
    for t, noise in enumerate(noises(seed, STD)):
        wire.down(t, 0, "answer", {"x": labels + noise.numpy()}, np.arange(RECORDS))
