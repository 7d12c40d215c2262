"""Streams of random numbers by name: which of them are public and which secret, and their seeds.

Each stream of a run is derived by its name from one seed or one secret key, never from a global generator. What is
drawn from a *public* stream may be known to anybody: no guarantee rests on it. What is drawn from a *secret* one hides
something: a real training takes it from a key that nobody else has (`vflpriv.common.keys`), and whoever takes it from a
seed has to say so, since everybody who knows the seed can compute it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

__all__ = ["STREAMS", "Declared", "derive", "host_generator"]


@dataclass(frozen=True)
class Declared:
    """Whether a stream is secret, what is drawn from it, and why that is so."""

    secret: bool
    drawn: str
    """What is drawn from it, as reports name it."""
    reason: str


def _public(drawn: str, reason: str) -> Declared:
    return Declared(False, drawn, reason)


def _secret(drawn: str, reason: str) -> Declared:
    return Declared(True, drawn, reason)


_OF_AUDITS = "an audit or attack draws it for itself, and no training reads it"

STREAMS: Mapping[str, Declared] = {
    "init": _public("initial weights", "every party may know the models with which training begins"),
    "batches": _secret("batches", "amplification by sampling counts on nobody else knowing who was sampled"),
    "activation": _public("active devices", "every party sees who takes part in a round"),
    "delays": _public("delays of devices", "every party sees when a message arrives"),
    "directions": _public("directions", "parties regenerate each other's directions from a shared seed"),
    "noise": _secret("noise of releases", "whoever computes the noise subtracts it"),
    "server-noise": _secret("noise of the server", "whoever computes the noise subtracts it"),
    "labels": _secret("noised labels", "whoever computes the draws of a response inverts it"),
    "dropout": _public("dropout", "no guarantee rests on which units are dropped"),
    "shuffles": _public("order of what was released", "it orders values that everybody may know"),
    "defence": _secret("draws of the defence", "whoever computes its noise subtracts it"),
    "features": _secret("noise on features", "whoever computes the noise subtracts it"),
    "canary": _public("canaries", _OF_AUDITS),
    "search": _public("searches", _OF_AUDITS),
    "auxiliary": _public("what an adversary knows", _OF_AUDITS),
    "attack": _public("draws of attacks", _OF_AUDITS),
}


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
