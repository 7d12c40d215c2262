"""Seeds of random streams: each stream of a run is derived by its name from one seed, never from a global generator."""

from __future__ import annotations

import hashlib

import numpy as np

__all__ = ["STREAMS", "derive", "host_generator"]

STREAMS = (
    "init",
    "batches",
    "activation",
    "delays",
    "directions",
    "noise",
    "server-noise",
    "labels",
    "dropout",
    "defence",
    "canary",
    "search",
    "auxiliary",
    "features",
    "attack",
)


def derive(seed: int, stream: str, *path: int) -> int:
    """A 64-bit seed for one stream: a hash of the run's seed, the stream's name and a path of numbers.

    Streams are independent as far as SHA-256 goes: the seed of one stream tells nothing about another.

    >>> derive(7, "noise") == derive(7, "noise"), derive(7, "noise") == derive(7, "directions")
    (True, False)
    """
    if stream not in STREAMS:
        raise ValueError(f"Expected stream={stream!r} to be one of {', '.join(STREAMS)}.")
    text = "/".join(["vflpriv", str(seed), stream, *map(str, path)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def host_generator(seed: int, stream: str, *path: int) -> np.random.Generator:
    """A numpy generator for values that are drawn once, on the host, before training, such as schedules."""
    return np.random.Generator(np.random.Philox(derive(seed, stream, *path)))
