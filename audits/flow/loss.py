"""The privacy loss of one pair of worlds, exactly, from the gaps and the noise of everything that a view is given.

With gaps d and noise J z over the whole run, z independent standard normals, the loss is that of one Gaussian release
with mu² = d' (J J')⁺ d, the squared norm of the shortest z with J z = d. J is never built: a draw that reaches one
entry alone adds (gap / scale)², and only entries that share draws are solved together. If no z solves it, some
combination of messages has no noise at all and differs: a total leak.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import lsqr
from torch import Tensor

from vflpriv.audits.flow.draws.families import EXPONENTIAL, FAMILIES, GEOMETRIC, LAPLACE, NORMAL, STEPS
from vflpriv.audits.flow.draws.registry import Draws
from vflpriv.audits.flow.tracer.events import Choice, Seal
from vflpriv.common.random import WholeSteps
from vflpriv.core.law import Pair
from vflpriv.laws import Laplace
from vflpriv.laws.discrete_laplace import DiscreteLaplacePair

__all__ = ["Loss", "privacy_loss"]

_DENSE = 1500
"""Entries that share draws are solved by singular values up to so many, iteratively beyond."""
_OFF_GRID = 1e-4
"""A share of a step by which a gap may be off the grid, by rounding."""
_SLACK = 64.0
"""How many times its grain rounding may move a gap."""


@dataclass(kw_only=True)
class Loss:
    """What the messages of a run cost."""

    mu: float = 0.0
    """Of all Gaussian noise together; inf where some gap has none."""
    pure: list[tuple[float, Pair]] = field(default_factory=list)
    """The epsilon of each other seal and its pair."""
    pairs: list[Pair] = field(default_factory=list)
    """Of each other seal whose epsilon is bounded at a delta only."""
    choices: float = 0.0
    """The epsilon of all discrete choices together."""
    leak: str | None = None
    unknown: list[str] = field(default_factory=list)
    """Why some of it could not be bounded."""

    @property
    def epsilon(self) -> float:
        """The pure part."""
        return self.choices + math.fsum(epsilon for epsilon, _ in self.pure)


@dataclass(eq=False)
class _Entries:
    """Terms of all seals in coordinate form, and the gap of each entry."""

    gaps: Tensor
    grains: Tensor
    entries: Tensor
    columns: Tensor
    scales: Tensor
    open: Tensor

    def keeping(self, terms: Tensor) -> _Entries:
        return _Entries(self.gaps, self.grains, self.entries[terms], self.columns[terms], self.scales[terms], self.open)


def privacy_loss(seals: Sequence[Seal], choices: Sequence[Choice], given: Tensor, draws: Draws) -> Loss:
    """The loss of what is shown by these seals and choices, to a view that knows the `given` draws."""
    loss = Loss()
    everything = torch.cat([given, *[seal.given for seal in seals]])
    table = _table(seals)
    known = _known(table, choices, everything, draws)
    _of_choices(loss, choices, table, known, draws)
    if not seals or not bool((table.gaps != 0).any()):
        return loss
    if not bool(table.gaps.isfinite().all()):
        count, sure = int((~table.gaps.isfinite()).sum()), table.open[~table.gaps.isfinite()]
        loss.mu, why = math.inf, f"{count} entries are finite numbers in one world only: noise hides nothing of that"
        loss.leak = why if bool(sure.any()) else None
        loss.unknown += [] if loss.leak else [why]
        return loss
    hidden = table.keeping(~torch.isin(table.columns, known) & ~draws.known(table.columns))
    normal = draws.families(hidden.columns) == FAMILIES.index(NORMAL)
    gaussian = hidden.keeping(normal)
    left = table.gaps != 0
    left[gaussian.entries] = False
    _of_other_laws(loss, hidden, left, draws)
    # Draws of other laws on entries with Gaussian noise are given to the adversary.
    square, outside = _gaussian(gaussian, left)
    if outside is not None or bool(left.any()):
        loss.mu = math.inf
        loss.leak = _total_leak(table, draws)
        if loss.leak is None:
            loss.unknown.append(_why_unknown(table, left, draws))
    else:
        loss.mu = math.sqrt(square)
    return loss


def _table(seals: Sequence[Seal]) -> _Entries:
    entries, columns, scales, start = [], [], [], 0
    for seal in seals:
        count, width = seal.rows.columns.shape
        index = torch.arange(start, start + count)[:, None].expand(count, width)
        used = (seal.rows.columns >= 0) & (seal.rows.scales != 0)
        entries.append(index[used])
        columns.append(seal.rows.columns[used])
        scales.append(seal.rows.scales[used])
        start += count
    none, real = torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.float64)
    return _Entries(
        torch.cat([real, *[seal.gap for seal in seals]]),
        torch.cat([real, *[seal.grain for seal in seals]]),
        torch.cat([none, *entries]),
        torch.cat([none, *columns]),
        torch.cat([real, *scales]),
        torch.cat([none.bool(), *[torch.full((len(seal.gap),), seal.exact and seal.open) for seal in seals]]),
    )


def _known(table: _Entries, choices: Sequence[Choice], given: Tensor, draws: Draws) -> Tensor:
    """The columns that hide nothing: those given, and recognised laws of draws that are used in another way too."""
    used = torch.unique(torch.cat([table.columns, *[choice.columns for choice in choices]]))
    derived, known = draws.recognised(used), [given]
    for own in derived:
        others = [law.parents.reshape(-1) for law in derived if law is not own and not law.independent_of(own)]
        touched = torch.isin(own.parents, torch.cat([given, used, *others])).any(1)
        known += [own.columns[touched], own.parents[touched].reshape(-1)]
    columns: Tensor = torch.unique(torch.cat(known))
    return columns


def _of_choices(loss: Loss, choices: Sequence[Choice], table: _Entries, known: Tensor, draws: Draws) -> None:
    counts: dict[int, int] = {}
    for choice in choices:
        for start in torch.unique(choice.columns).tolist():
            counts[start] = counts.get(start, 0) + 1
    largest = torch.zeros(2, dtype=torch.float64)
    for choice in choices:
        shared = torch.isin(choice.columns, table.columns) | torch.isin(choice.columns, known)
        again = any(counts[column] > 1 for column in choice.columns.tolist())
        if bool(shared.any()) or again or bool(draws.known(choice.columns).any()):
            loss.unknown.append(f"the draws of the choice at {choice.where} are used elsewhere too, or known")
            continue
        first, second = choice.weights
        both = (first > 0) | (second > 0)
        ratio = torch.where(both, first.log() - second.log(), 0.0)
        if ratio.numel():
            # What one choice rules out by much another may rule out by little: each direction for itself.
            largest += torch.stack([ratio.amax(1).sum(), (-ratio).amax(1).sum()])
    loss.choices = float(largest.max())


def _of_other_laws(loss: Loss, hidden: _Entries, left: Tensor, draws: Draws) -> None:
    """One draw of its own for an entry, of Laplace noise or on a grid, or the difference of two exponential ones."""
    counts = torch.bincount(hidden.columns - hidden.columns.min()) if len(hidden.columns) else torch.empty(0)
    alone = counts[hidden.columns - hidden.columns.min()] == 1 if len(hidden.columns) else left[:0]
    family = draws.families(hidden.columns)
    terms = torch.bincount(hidden.entries, minlength=len(left))
    own = torch.bincount(hidden.entries[alone], minlength=len(left)) == terms
    signed = torch.zeros(len(left), dtype=torch.float64).scatter_add_(0, hidden.entries, hidden.scales)
    size = torch.zeros(len(left), dtype=torch.float64).scatter_add_(0, hidden.entries, hidden.scales.abs())
    of = [
        torch.bincount(hidden.entries[family == FAMILIES.index(f)], minlength=len(left))
        for f in (LAPLACE, EXPONENTIAL, STEPS)
    ]
    single = left & own & (terms == 1) & (of[0] == 1)
    double = left & own & (terms == 2) & (of[1] == 2) & (signed.abs() <= 1e-6 * size)
    for entries, scale in ((single, size), (double, size / 2)):
        for entry in entries.nonzero()[:, 0].tolist():
            law = Laplace(float(scale[entry]))
            gap = abs(float(hidden.gaps[entry]))
            loss.pure.append((law.strength(gap), law.pair(gap)))
    left &= ~(single | double)
    _of_two_geometric(loss, hidden, left, own & (signed.abs() <= 1e-9 * size), draws)
    alone_on_grid = left & own & (terms == 1) & (of[2] == 1)
    for term in (alone_on_grid[hidden.entries] & (family == FAMILIES.index(STEPS))).nonzero()[:, 0].tolist():
        entry = int(hidden.entries[term])
        _in_steps(loss, float(hidden.gaps[entry]), float(hidden.scales[term]), draws.law(int(hidden.columns[term])))
        left[entry] = False


def _of_two_geometric(loss: Loss, hidden: _Entries, left: Tensor, opposed: Tensor, draws: Draws) -> None:
    """The difference of two geometric draws of one rate, which is discrete Laplace noise."""
    of = FAMILIES.index(GEOMETRIC)
    family = draws.families(hidden.columns)
    terms = torch.bincount(hidden.entries, minlength=len(left))
    geometric = torch.bincount(hidden.entries[family == of], minlength=len(left))
    for entry in (left & opposed & (terms == 2) & (geometric == 2)).nonzero()[:, 0].tolist():
        chosen = hidden.entries == entry
        rates = {draws.law(column) for column in hidden.columns[chosen].tolist()}
        step = float(hidden.scales[chosen].abs()[0])
        steps = abs(float(hidden.gaps[entry])) / step
        if len(rates) != 1 or abs(steps - round(steps)) > _OFF_GRID * max(1.0, steps):
            continue
        rate = float(next(iter(rates)))  # type: ignore[arg-type]
        loss.pure.append((round(steps) * rate, DiscreteLaplacePair(round(steps), rate)))
        left[entry] = False


def _in_steps(loss: Loss, gap: float, step: float, law: WholeSteps | float | None) -> None:
    """The pair of noise of whole steps on a gap of whole steps."""
    steps = abs(gap / step)
    if law is None or isinstance(law, float) or abs(steps - round(steps)) > _OFF_GRID * max(1.0, steps):
        loss.unknown.append("a value lies off the grid of its noise: its last digits are not hidden")
        return
    pair: Pair = law.pair_of(round(steps))
    if math.isfinite(pair.pure_epsilon):
        loss.pure.append((pair.pure_epsilon, pair))
    else:
        loss.pairs.append(pair)
        loss.unknown.append(f"{law} is no Gaussian noise, and has no epsilon without a delta")


def _gaussian(table: _Entries, left: Tensor) -> tuple[float, float | None]:
    """mu², and how far the gaps lie outside of what noise reaches; None if they do not."""
    if not len(table.entries):
        return 0.0, None
    shift = int(table.columns.min())
    uses = torch.bincount(table.columns - shift)
    terms = torch.bincount(table.entries, minlength=len(table.gaps))
    alone = (uses[table.columns - shift] == 1) & (terms[table.entries] == 1)
    simple = table.keeping(alone)
    square = float(((table.gaps[simple.entries] / simple.scales) ** 2).sum())
    shared = table.keeping(~alone)
    if not len(shared.entries):
        return square, None
    entries, rows = torch.unique(shared.entries, return_inverse=True)
    columns, places = torch.unique(shared.columns, return_inverse=True)
    matrix = csr_matrix((shared.scales.numpy(), (rows.numpy(), places.numpy())), shape=(len(entries), len(columns)))
    gaps, grains = table.gaps[entries].numpy(), table.grains[entries].numpy()
    worst: float | None = None
    for part in _parts(matrix):
        if gaps[part].any():
            added, outside = _solve(matrix[part], gaps[part], grains[part])
            square += added
            worst = outside if outside is not None else worst
    return square, worst


def _parts(matrix: csr_matrix) -> list[np.ndarray]:
    """The entries that share draws, directly or by others."""
    count = matrix.shape[0]
    full = csr_matrix(
        (np.ones(matrix.nnz), matrix.indices + count, np.append(matrix.indptr, [matrix.nnz] * matrix.shape[1])),
        shape=(sum(matrix.shape),) * 2,
    )
    _, labels = connected_components(full, directed=False)
    order = np.argsort(labels[:count], kind="stable")
    return np.split(order, np.flatnonzero(np.diff(labels[:count][order])) + 1)


def _solve(matrix: csr_matrix, gaps: np.ndarray, grains: np.ndarray) -> tuple[float, float | None]:
    """The squared norm of the shortest solution, and the residual if there is none."""
    if matrix.shape[0] <= _DENSE:
        used = np.unique(matrix.indices)
        dense = matrix[:, used].toarray()
        left, values, right = np.linalg.svd(dense, full_matrices=False)
        kept = values > 1e-7 * values[0]
        weights = left[:, kept].T @ gaps
        solution = right[kept].T @ (weights / values[kept])
        residual = gaps - dense @ solution
    else:
        solution = lsqr(matrix, gaps, atol=1e-11, btol=1e-11, iter_lim=20 * min(matrix.shape))[0]
        residual = gaps - matrix @ solution
    size, allowed = float(np.linalg.norm(residual)), _SLACK * float(np.linalg.norm(grains))
    missed = size > 1e-6 * float(np.linalg.norm(gaps)) + allowed
    return float(solution @ solution), size if missed else None


def _total_leak(table: _Entries, draws: Draws) -> str | None:
    """The proof that some combination of what is shown has no noise and differs: whatever the draws are, or are not.

    Only values that are sent as they are count, and that depend on draws in no other way than by their noise.
    """
    shown = table.keeping(~draws.known(table.columns) & table.open[table.entries])
    bare = table.open & (table.gaps.abs() > _SLACK * table.grains)
    bare[shown.entries] = False
    if bool(bare.any()):
        return f"{int(bare.sum())} entries differ, and the draws on them are the same under every seed"
    _, outside = _gaussian(shown, bare)
    if outside is None:
        return None
    return f"a combination of the entries sent has no noise, and differs by {outside:.3g} between the worlds"


def _why_unknown(table: _Entries, left: Tensor, draws: Draws) -> str:
    families = sorted({FAMILIES[int(n)].name for n in torch.unique(draws.families(table.columns)).tolist()})
    if bool(left.any()):
        return f"the noise on {int(left.sum())} entries ({', '.join(families)}) hides them by no law that is known here"
    return "some combination of the values has no noise of its own"
