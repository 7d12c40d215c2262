"""Paillier's additively homomorphic scheme with a toy key, which anyone can break: for this example alone.

Paillier, "Public-Key Cryptosystems Based on Composite Degree Residuosity Classes", EUROCRYPT 1999.
"""

from __future__ import annotations

import random

import numpy as np

FIELD, SCALE = 40, 2**16
"""A plaintext has three fields of so many bits: a count, a gradient that is moved up by 1, and a hessian."""


class Key:
    """Both halves of a key: hosts use `histograms`, which needs the public half alone."""

    def __init__(self, seed: int) -> None:
        p, q = 2**89 - 1, 2**107 - 1
        self.n, self.phi = p * q, (p - 1) * (q - 1)
        self.square, self.inverse = self.n**2, pow((p - 1) * (q - 1), -1, p * q)
        self.random = random.Random(seed)  # a key that protects something takes `secrets`

    def _seal(self, plaintext: int) -> int:
        r = self.random.randrange(1, self.n)
        return (1 + plaintext * self.n) * pow(r, self.n, self.square) % self.square

    def encrypt(self, gradient: float, hessian: float) -> int:
        """The ciphertext of one record."""
        fields = 1, round((gradient + 1) * SCALE), round(hessian * SCALE)
        return self._seal((fields[0] << 2 * FIELD) + (fields[1] << FIELD) + fields[2])

    def histograms(self, bins, ciphertexts, number: int) -> list[int]:
        """Encrypted sums over each feature's bins, made unlike one another by fresh encryptions of 0."""
        sealed = [[self._seal(0) for _ in range(number)] for _ in bins.T]
        for row, ciphertext in zip(bins, ciphertexts, strict=True):
            for feature, bin_ in enumerate(row):
                sealed[feature][bin_] = sealed[feature][bin_] * ciphertext % self.square
        return [total for feature in sealed for total in feature]

    def decrypt(self, ciphertexts):
        """(2, ciphertexts): the sums of gradients and of hessians."""
        plain = [(pow(c, self.phi, self.square) - 1) // self.n * self.inverse % self.n for c in ciphertexts]
        fields = [[value >> place * FIELD & (1 << FIELD) - 1 for value in plain] for place in (2, 1, 0)]
        counts, gradients, hessians = (np.array(field, dtype=float) for field in fields)
        return np.array([gradients / SCALE - counts, hessians / SCALE])
