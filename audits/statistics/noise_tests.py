"""Statistical tests of noise: is it standard normal, and independent between releases and of public values?

All p-values are exact or, where noted, asymptotic. Several comparisons within one test are corrected by Bonferroni, so
that the test enters Holm's procedure as one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, bdtrc, ndtr

from vflpriv.audits.statistics.significance import holm_adjusted
from vflpriv.common.lazy import stats
from vflpriv.common.numerics import Floats
from vflpriv.laws.fit import anderson_darling, smallest

__all__ = [
    "ALPHA",
    "CERTAIN",
    "Copies",
    "NoiseTest",
    "anderson_darling",
    "confirmed",
    "correlation",
    "distinct_pairs",
    "lags",
    "like_pairs",
    "product_sums",
    "scale",
    "scale_in_groups",
    "smallest",
    "tails",
]


ALPHA = 1e-3
"""The family-wise error at which the noise of a system fails its tests, and fails them again."""
CERTAIN = 1e-9
"""The family-wise error at which it fails without a repetition."""
_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True, kw_only=True)
class NoiseTest:
    """One question about the noise: its p-value, and Holm's over all such questions about the system."""

    name: str
    question: str
    p_value: float
    p_adjusted: float


def confirmed(p_values: Mapping[_Key, float], again: Callable[[], Mapping[_Key, float]]) -> dict[_Key, float]:
    """P-values after Holm, of which those at most `ALPHA`, and not at most `CERTAIN`, were confirmed by fresh noise.

    `again` gives the p-values of new noise, and of the two that of a doubtful test is the larger one. A fault is there
    in any noise; an accident is not. Sound noise fails with a probability of at most `CERTAIN` + `ALPHA`².
    """
    adjusted = dict(zip(p_values, holm_adjusted(list(p_values.values())), strict=True))
    doubtful = [key for key, p in adjusted.items() if CERTAIN < p <= ALPHA]
    if not doubtful:
        return adjusted
    fresh = again()
    second = holm_adjusted([fresh.get(key, 1.0) for key in doubtful])
    return adjusted | {key: max(adjusted[key], p) for key, p in zip(doubtful, second, strict=True)}


def scale(n: int, total: float, confidence: float) -> tuple[float, tuple[float, float]]:
    """The p-value of "std 1" and an interval for the std, by the chi-square law of the sum of n squares."""
    p = min(1.0, 2 * min(float(stats.chi2.cdf(total, n)), float(stats.chi2.sf(total, n))))
    tail = (1 - confidence) / 2
    low, high = (math.sqrt(total / float(stats.chi2.ppf(q, n))) for q in (1 - tail, tail))
    return p, (low, high)


def scale_in_groups(totals: Floats, counts: NDArray[np.int64]) -> float:
    """The p-value of "std 1 in every group", from each group's sum of squares and number of values: chi-square."""
    used = counts > 0
    total, count = totals[used], counts[used]
    if not len(total):
        return 1.0
    tails = np.minimum(stats.chi2.cdf(total, count), stats.chi2.sf(total, count))
    return min(1.0, 2 * len(total) * float(tails.min()))


def correlation(z: Floats, public: Floats) -> float:
    """The p-value of "the noise z, (n,), is independent of each of the public vectors", (candidates, n).

    Given a vector c, z·c / ‖c‖ of independent standard normals z is standard normal: exact for every candidate.
    """
    norms = np.linalg.norm(public, axis=1)
    used = norms > 0
    return _bonferroni(public[used] @ z / norms[used], int(used.sum()))


def distinct_pairs(rows: Floats) -> float:
    """The p-value of "no two of these rows, (k, n), are correlated"."""
    gram = rows @ rows.T / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
    upper = np.triu_indices(len(rows), 1)
    return _bonferroni(gram[upper], len(upper[0]))


def like_pairs(rows: Floats, others: Floats) -> float:
    """The p-value of "no row of the first, (k, n), is correlated with any row of the second", (l, n)."""
    gram = rows @ others.T / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
    return _bonferroni(gram.ravel(), gram.size)


def _bonferroni(standard: Floats, tests: int) -> float:
    """The two-sided p-value of the largest of these standard normal statistics, corrected for the number of tests."""
    return min(1.0, 2 * tests * float(ndtr(-np.abs(standard).max()))) if standard.size else 1.0


def product_sums(sums: Floats, counts: Floats) -> Floats:
    """Upper bounds on the two-sided p-values of sums of products of independent standard normals.

    Such a sum is S = z'Az. Where every value is in at most two products, the eigenvalues of A lie in [-1, 1], come in
    pairs ±λ, and their squares add up to n/2 for n products. Since -log(1 - 4s²x) is convex in x,

        log E[exp(sS)] = -½ Σ log(1 - 4s²λ²) over λ > 0 ≤ -(n/8) log(1 - 4s²)  for 0 ≤ s < ½,

    and Chernoff's bound P[S ≥ x] ≤ exp(-sx) (1 - 4s²)^(-n/8) is smallest at s = (√(n² + 16x²) - n) / 8x. It holds for
    every n, in the tails that a correction for many sums asks for as well.
    """
    x, n = np.abs(sums), np.maximum(counts, 1.0)
    s = 2 * x / (np.sqrt(n * n + 16 * x * x) + n)
    exponent = -s * x - n / 8 * np.log1p(-np.minimum(4 * s * s, 1 - 1e-16))
    return np.asarray(np.minimum(1.0, 2 * np.exp(np.minimum(exponent, 0.0))))


def lags(series: Floats, present: NDArray[np.bool_]) -> float:
    """The p-value of "no lag of these series, (length, replicas, series), has a correlation", all lags tested.

    `present` is (length,): values at other places are zeros and count for nothing. Products at one lag are added over
    replicas, and over all series as well, since a fault may be in one of them or spread over all.
    """
    length, replicas, count = series.shape
    if length < 2:
        return 1.0
    spectrum = np.fft.rfft(series, n=2 * length, axis=0)
    power = np.square(spectrum.real) + np.square(spectrum.imag)
    by_series = np.fft.irfft(power.sum(1), n=2 * length, axis=0)[1:length]
    pairs = np.rint(np.fft.irfft(np.square(np.abs(np.fft.rfft(present, n=2 * length))), n=2 * length)[1:length])
    sums = np.column_stack((by_series.sum(1), by_series))
    numbers = replicas * np.column_stack((pairs * count, *(pairs for _ in range(count))))
    return smallest(product_sums(sums, numbers)[numbers > 0])


def tails(values: int, beyond: NDArray[np.int64], limits: Sequence[float]) -> float:
    """The p-value of "so many of the independent standard normals lie farther out than each limit": two-sided, exact.

    Noise that is cut off has a little less of the declared variance, and gives away everything that it cannot reach.

    >>> tails(8192, np.array([0]), [3.0]) < 1e-8, tails(8192, np.array([22]), [3.0]) > 0.5
    (True, True)
    """
    p = 2 * ndtr(-np.asarray(limits))
    below, above = bdtr(beyond, values, p), bdtrc(np.asarray(beyond) - 1, values, p)
    above = np.where(np.asarray(beyond) == 0, 1.0, above)
    return smallest(np.minimum(1.0, 2 * np.minimum(below, above)))


class Copies:
    """Looks for values that return: runs of several values that are equal, but for their signs, to those elsewhere.

    Absolute values are cut into cells of width w, and the cells of k values together are one word. Under independent
    standard normals two cells are equal with a probability of at most c = 2φ(0)w, and the words of any two places, also
    of overlapping ones, with at most c^k: the k equalities link k + 1 values or more without a cycle. So among N words
    one or more pairs are equal with a probability of at most c^k N²/2. Words are compared by hashes of 64 bits, whose
    accidental collisions are added. Of many words only those are stored whose hash says so, which keeps or drops equal
    ones together; `keep_every` is a power of two.
    """

    def __init__(self, width: float, length: int, *, keep_every: int = 1) -> None:
        self.width, self.length, self.keep_every = width, length, np.uint64(keep_every)
        self.words = 0
        self._hashes: list[NDArray[np.uint64]] = []
        self._owners: list[NDArray[np.int64]] = []

    def add(self, values: Floats, owner: int = 0) -> None:
        """Add a word for every run of k values along the last axis; `owner` tells apart what they belong to."""
        cells = _mixed((np.abs(values) / self.width).astype(np.uint64))
        count = values.shape[-1] - self.length + 1
        hashes = np.zeros((*values.shape[:-1], count), dtype=np.uint64)
        for place in range(self.length):
            turned = cells[..., place : place + count]
            left, right = np.uint64(7 * place), np.uint64(64 - 7 * place)
            hashes ^= (turned << left) | (turned >> right) if place else turned
        flat = hashes.ravel()
        self.words += flat.size
        kept = flat[(flat & (self.keep_every - np.uint64(1))) == 0] if self.keep_every > 1 else flat
        self._hashes.append(kept)
        self._owners.append(np.full(len(kept), owner, dtype=np.int64))

    @property
    def bound(self) -> float:
        """The probability of one equal pair or more among independent normals."""
        same = (2 * self.width / math.sqrt(2 * math.pi)) ** self.length + 2.0**-63
        return min(1.0, same * self.words**2 / 2)

    def p_values(self) -> dict[int, float]:
        """For each owner, the p-value of "none of its words is found a second time, here or with another owner"."""
        if not self._hashes:
            return {}
        hashes, owners = np.concatenate(self._hashes), np.concatenate(self._owners)
        order = np.argsort(hashes, kind="stable")
        equal = hashes[order[1:]] == hashes[order[:-1]]
        # Equal words lie next to each other.
        involved = set(owners[order[1:][equal]].tolist()) | set(owners[order[:-1][equal]].tolist())
        return {int(owner): self.bound if owner in involved else 1.0 for owner in np.unique(owners)}

    def between(self, owners: Collection[int], other: Copies) -> float:
        """The p-value of "no word of these owners is found in another search with cells of the same width"."""
        if not self._hashes or not other._hashes:
            return 1.0
        mine = np.isin(np.concatenate(self._owners), list(owners))
        shared = np.isin(np.concatenate(self._hashes)[mine], np.concatenate(other._hashes)).any()
        same = (2 * self.width / math.sqrt(2 * math.pi)) ** self.length + 2.0**-63
        return min(1.0, same * self.words * other.words) if shared else 1.0


def _mixed(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64: every bit of a word moves every bit of the result."""
    bits = bits + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
