"""How fast secret numbers can be drawn: ChaCha20 and AES-256-CTR under a key, against the operating system's source.

    python benchmarks/secret_numbers.py
    python benchmarks/secret_numbers.py --repeats 50

Each generator gives the bytes of one draw: of the noise of one number, of a batch of 64 rows of 16 numbers, and of
larger tensors, two words of 64 bits for two normals. The generators take turns, and the medians of their times are
compared, so that what else the machine does falls on all of them. SHAKE-256 of the standard library is shown beside
them; it, too, could draw the same numbers again. The last lines are whole normals, beside those of a seed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import time
from collections.abc import Callable, Mapping

import numpy as np
import torch
from _support import one_line
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from vflpriv.common.random import Randomness
from vflpriv.common.seeds import SecretKey

SIZES = (1, 64 * 16, 64 * 192, 64 * 4096)
"""Normals of one draw."""
KEY = os.urandom(32)


def chacha20(count: int) -> bytes:
    return Cipher(algorithms.ChaCha20(KEY, bytes(16)), mode=None).encryptor().update(bytes(count))


def aes_256_ctr(count: int) -> bytes:
    return Cipher(algorithms.AES(KEY), modes.CTR(bytes(16))).encryptor().update(bytes(count))


def shake_256(count: int) -> bytes:
    return hashlib.shake_256(KEY).digest(count)


GENERATORS: Mapping[str, Callable[[int], object]] = {
    "os.urandom": os.urandom,
    "ChaCha20": chacha20,
    "AES-256-CTR": aes_256_ctr,
    "SHAKE-256": shake_256,
}


def normals() -> Mapping[str, Callable[[int], object]]:
    """Whole normals of one replica, from a key and from a seed."""
    cpu = torch.device("cpu")
    secret, seeded = (Randomness(seed=0, key=key).stream("noise", [0], cpu) for key in (SecretKey.fresh(), None))
    return {"normals of a seed": seeded.normal, "normals of a key": secret.normal}


def medians(functions: Mapping[str, Callable[[int], object]], size: int, repeats: int) -> dict[str, float]:
    """The median seconds of each function, which take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            begin = time.perf_counter()
            function(size)
            seconds[name].append(time.perf_counter() - begin)
    return {name: float(np.median(values)) for name, values in seconds.items()}


def table(title: str, functions: Mapping[str, Callable[[int], object]], unit: int, repeats: int) -> list[str]:
    """One line for each size: microseconds of each function, and how many times faster it is than the first."""
    first = next(iter(functions))
    lines = [f"{title:>10}" + "".join(f"{name:>26}" for name in functions)]
    for size in SIZES:
        taken = medians(functions, unit * size, repeats)
        cells = (f"{1e6 * taken[name]:10.1f} µs ({taken[first] / taken[name]:4.1f} ×)" for name in functions)
        lines.append(f"{size:>10}" + "".join(f"{cell:>26}" for cell in cells))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=200)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    for line in (*table("normals", GENERATORS, 8, repeats), "", *table("normals", normals(), 1, repeats)):
        print(line)


if __name__ == "__main__":
    one_line(main)
