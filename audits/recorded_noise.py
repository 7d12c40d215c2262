"""Whether recorded messages can hold the noise that a ledger says is on them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammainc

from vflpriv.audits._bounds import Floats
from vflpriv.audits._holm import holm_adjusted
from vflpriv.ledger import Ledger
from vflpriv.releases import Gaussian, Laplace, Noise
from vflpriv.wire import Message

__all__ = ["RecordedNoise", "noise_p_value", "recorded_noises"]


@dataclass(frozen=True, kw_only=True)
class RecordedNoise:
    """The test of one kind's noise; `p_adjusted` is Holm's over all kinds of the transcript."""

    kind: str
    noise: Noise
    entries: int
    p_adjusted: float
    holds: bool

    @property
    def sentence(self) -> str:
        size = "they are large enough to hold it" if self.holds else "they are too small to hold it"
        on = f"{self.noise} is said to be on {self.kind}, {self.entries} recorded entries"
        return f"{on}: {size} (p {'=' if self.p_adjusted >= 1e-300 else '<'} {max(self.p_adjusted, 1e-300):.2g})"


def recorded_noises(
    ledger: Ledger, messages: Sequence[Message], *, shared: Collection[str], confidence: float
) -> list[RecordedNoise]:
    """Tests of the declared noise of every kind that was recorded, at a family-wise error of 1 - confidence."""
    declared = {r.kind: r.noise for r in ledger.releases if not r.once}
    values = {kind: _values(messages, kind, kind in shared) for kind in declared}
    raw = {kind: noise_p_value(noise, values[kind]) for kind, noise in declared.items()}
    tested = {kind: p for kind, p in raw.items() if p is not None}
    return [
        RecordedNoise(
            kind=kind,
            noise=declared[kind],
            entries=sum(v.size for v in values[kind]),
            p_adjusted=p,
            holds=p > 1 - confidence,
        )
        for kind, p in zip(tested, holm_adjusted(list(tested.values())), strict=True)
    ]


def _values(messages: Sequence[Message], kind: str, shared: bool) -> list[Floats]:
    """The payloads of a kind; of a shared one, what the first device of a round was sent."""
    first: dict[int, int] = {}
    chosen: list[Floats] = []
    for m in messages:
        if m.kind == kind and (not shared or first.setdefault(m.round, m.device.index) == m.device.index):
            chosen += [t.double().numpy() for t in m.tensors.values()]
    return chosen


def noise_p_value(noise: Noise, values: Sequence[Floats]) -> float | None:
    """The p-value of "every entry carries independent noise of this size, or more"; None for other noises.

    Around any signal, known or not, |signal + noise| is stochastically at least |noise|, as the noise is symmetric and
    has one peak. Conditional on all earlier entries that stays so, whatever the signal learnt from them. So Σx²/σ² is
    at least chi-squared with n degrees of freedom (Gaussian), and Σ|x|/b at least Gamma(n) (Laplace).

    >>> noise_p_value(Gaussian(1.0), [np.zeros(10)])
    0.0
    """
    if isinstance(noise, Gaussian):
        total, shape = sum(float(np.square(v / noise.std).sum()) for v in values) / 2, 0.5
    elif isinstance(noise, Laplace):
        total, shape = sum(float(np.abs(v / noise.scale).sum()) for v in values), 1.0
    else:
        return None
    count = sum(v.size for v in values)
    return float(gammainc(shape * count, total)) if count else None
