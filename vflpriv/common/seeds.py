"""Streams of random numbers by name: which are public and which secret, and the seeds and keys that they come from.

Each stream of a run is derived by its name from one seed or one secret key, never from a global generator. What is
drawn from a *public* stream may be known to anybody: no guarantee rests on it. What is drawn from a *secret* one hides
something: a real training takes it from a key that nobody else has, and whoever takes it from a seed has to say so,
since everybody who knows the seed can compute it.

A key is 256 bits of the operating system's entropy. Secret streams are drawn by ChaCha20, of the library
`cryptography`, under keys that are derived from it. It was chosen by measurement (`python
benchmarks/secret_numbers.py`): it draws the noise of a batch several times faster than `os.urandom`, which moreover
cannot draw the same numbers again when a killed training is resumed. AES-256-CTR is as fast where the processor has
instructions for it; ChaCha20 is fast without them, too, and takes the same time whatever the key.
"""

from __future__ import annotations

import ctypes
import hashlib
import hmac
import itertools
import os
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vflpriv.errors import InputError

__all__ = ["STREAMS", "Declared", "SecretKey", "derive", "host_generator"]


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


_SIZE = 32
_BLOCK = 64
"""Bytes of a block of ChaCha20, of which its counter counts 2³²."""
_PIECE = 1024
"""Words that a bit generator draws at once."""
_ZEROS = bytes(1 << 16)


@dataclass(frozen=True)
class SecretKey:
    """A key of 256 bits. It is never shown and never pickled, so that no log, report, cache or worker gets to have it:

    what another process unpickles is a new key.
    """

    _bits: bytes = field(repr=False)

    @classmethod
    def fresh(cls) -> SecretKey:
        """A new key from the operating system's entropy."""
        return cls(os.urandom(_SIZE))

    @classmethod
    def kept(cls, path: Path, purpose: bytes) -> SecretKey:
        """The key that a killed training left in this file, which only its owner can read; else a new one, kept there.

        `purpose` is a hash of all that decides the training. A key that was kept for another purpose is replaced: two
        trainings with the same noise would tell, by their difference, what the noise is to hide.
        """
        known = _read(path)
        if known is not None and hmac.compare_digest(known[_SIZE:], purpose):
            return cls(known[:_SIZE])
        key = cls.fresh()
        if known is not None:
            path.unlink()
        path.parent.mkdir(parents=True, exist_ok=True)
        # Created for its owner alone: a file that is closed to others afterwards was open to them for a moment.
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(key._bits + purpose)
            file.flush()
            os.fsync(file.fileno())
        return key

    def __reduce__(self) -> tuple[Callable[[], SecretKey], tuple[()]]:
        return SecretKey.fresh, ()

    def derived(self, *names: object) -> SecretKey:
        """The key of these names, which tells nothing about another's."""
        text = "/".join(["vflpriv", *map(str, names)])
        return SecretKey(hmac.digest(self._bits, text.encode(), "sha256"))

    def words(self, count: int, *path: int, first: int = 0) -> NDArray[np.uint64]:
        """`count` words of 64 bits, from place `first` of the sequence with this path on.

        A path has up to three numbers below 2³².
        """
        # Imported here: reports and accounting draw nothing secret and start faster without it.
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

        begin, skipped = divmod(8 * first, _BLOCK)
        nonce = b"".join(number.to_bytes(4, "little") for number in (begin, *path, *(0,) * (3 - len(path))))
        keystream = Cipher(algorithms.ChaCha20(self._bits, nonce), mode=None).encryptor()
        # In pieces that stay in the cache: memory of the size of a large draw costs more than the cipher.
        drawn = np.empty(skipped + 8 * count, dtype=np.uint8)
        for begin in range(0, len(drawn), len(_ZEROS)):
            piece = drawn[begin : begin + len(_ZEROS)]
            keystream.update_into(_ZEROS[: len(piece)], piece.data)
        return drawn[skipped:].view(np.uint64)

    def numbers(self, count: int, *path: int, first: int = 0) -> NDArray[np.float64]:
        """The same sequence as numbers in (0, 1], of 53 bits each."""
        drawn = self.words(count, *path, first=first)
        return np.asarray(((drawn >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53)

    def generator(self, stream: str, *path: int) -> np.random.Generator:
        """A numpy generator of secret values that are drawn on the host before training, such as batches."""
        assert STREAMS[stream].secret
        return np.random.Generator(_Bits(self.derived(stream, *path)))  # type: ignore[arg-type]


def _read(path: Path) -> bytes | None:
    """What a file of a key holds; None where there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(str(path), error.strerror, "a file with the key of a training, or none") from error
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        mode = stat.S_IMODE(status.st_mode)
        if not stat.S_ISREG(status.st_mode) or (os.name == "posix" and mode & 0o077):
            raise InputError(str(path), f"mode {mode:o}", "a file that only its owner can read, mode 600, or none")
        return file.read()


_Next64 = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)
_Next32 = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p)
_NextDouble = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_void_p)


class _BitGenerator(ctypes.Structure):
    """What numpy asks of a bit generator: four functions of a state (numpy/random/bitgen.h)."""

    _fields_ = (
        ("state", ctypes.c_void_p),
        ("next_uint64", _Next64),
        ("next_uint32", _Next32),
        ("next_double", _NextDouble),
        ("next_raw", _Next64),
    )


class _Bits:
    """A bit generator for `numpy.random.Generator` whose words are those of a key."""

    def __init__(self, key: SecretKey) -> None:
        self.lock = threading.Lock()
        numbers = _endless(key)
        # numpy keeps the pointers alone: the functions live as long as this object, which the generator holds.
        self._functions = _BitGenerator(
            None,
            _Next64(lambda _: next(numbers)),
            _Next32(lambda _: next(numbers) >> 32),
            _NextDouble(lambda _: (next(numbers) >> 11) * 2.0**-53),
            _Next64(lambda _: next(numbers)),
        )
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        self.capsule = new(ctypes.byref(self._functions), b"BitGenerator", None)


def _endless(key: SecretKey) -> Iterator[int]:
    """All words of a key, one after another."""
    for piece in itertools.count():
        yield from key.words(_PIECE, piece).tolist()
