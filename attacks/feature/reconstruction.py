"""Features with few values from embeddings of an unknown linear model (Ye et al. 2024): they lie in their span.

Ye et al., "Feature Reconstruction Attacks and Countermeasures of DNN Training in Vertical Federated Learning", IEEE
TDSC 2025.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from scipy.special import gammaln
from torch import Tensor

from vflpriv.attacks._base import FeatureInference
from vflpriv.attacks._observations import UPLINKS, Observation, uplinks_of
from vflpriv.attacks.feature._grids import LARGEST, MOST, Search, grid_of
from vflpriv.common.numerics import Floats
from vflpriv.common.registry import register
from vflpriv.core.attack import FeatureAuxiliary, Guess
from vflpriv.core.views import View

__all__ = ["FeatureReconstruction", "span_of"]

_ZEROS = 0.1
"""A larger share of exact zeros than this is due to a ReLU."""
_SURE = float(np.log(100))
"""A vector must explain a column so much better, in log-likelihood, than what else the known records leave open."""
_IMPOSSIBLE = 1e12
_GIVEN_UP = 4


@register("attack")
class FeatureReconstruction(FeatureInference):
    """Z = XW + b: every column of X is a combination of Z's columns and 1 if W is at least as wide as X. In a subspace
    of r dimensions at most v^r vectors have entries from v equally spaced values only; all are tried.

    The paper has binary columns; here they may have up to 17 values. Which values, the known records say: a column of
    which more are seen with every record is real-valued. Known records of a message fix as many dimensions, so that
    v^(r - k) vectors are left. Where several fit, the column is the one whose values are as frequent as among the known
    records; where these leave it open, and for real-valued columns, which no search can identify without knowing W
    (the paper's theorem 1), the answer is the known records' mean.

    Measured by `python benchmarks/feature_attacks.py reconstruction`, on messages about 64 records, 4 of them known:
    it answers 43 % of eight columns with 2 values, 94 % of six with 3 and 95 % of six with 17, and no answer is wrong;
    with none of the records known it answers 1 % of the columns at most.
    """

    name = "feature_reconstruction"
    summary = "finds features with few values in the span of an unknown linear model's embeddings"
    needs = UPLINKS
    knows = frozenset({"records"})

    def missing(self, view: View, auxiliary: FeatureAuxiliary) -> str | None:
        observations = uplinks_of(view, auxiliary.victim)
        if not observations:
            return "embeddings of the victim; this view holds none"
        columns = _Columns(auxiliary)
        if not columns.grids:
            return f"features with at most {LARGEST} values; others cannot be identified without the model"
        if float((torch.cat([o.values for o in observations]) == 0).double().mean()) > _ZEROS:
            return "embeddings that are linear in the features; these passed through a ReLU"
        first = observations[0].values
        if len(first) <= 2 * first.shape[1]:
            return "batches of more records than twice the embedding's width"
        return _too_many(observations, columns, auxiliary.block.shape[1])

    def run(self, view: View, auxiliary: FeatureAuxiliary) -> Guess:
        observations, where = uplinks_of(view, auxiliary.victim), auxiliary.block.device
        records = torch.cat([o.records for o in observations]).unique().cpu()
        blocks = auxiliary.block.double().mean(0).cpu().repeat(len(records), 1).numpy()
        columns = _Columns(auxiliary)
        unsolved = np.ones(len(records), dtype=bool)
        # Backwards until every record was in one message: earlier messages add nothing.
        for observation in reversed(observations):
            ids = observation.records.cpu()
            positions = torch.searchsorted(records, ids).numpy()
            if unsolved[positions].any():
                for column, values in columns.found(ids.numpy(), span_of(observation.values)).items():
                    blocks[positions, column] = values
                unsolved[positions] = False
        rows = torch.from_numpy(blocks).to(where)
        return Guess(records.to(where), rows.unsqueeze(0))


def span_of(values: Tensor) -> Floats:
    """An orthonormal basis (n, r) of the span of columns (n, e) and the constant, in double precision."""
    rows = values.double().cpu().numpy()
    rows = np.concatenate((rows / max(rows.std(), 1e-12), np.ones((len(rows), 1))), axis=1)
    u, s, _ = np.linalg.svd(rows, full_matrices=False)
    return np.asarray(u[:, s > 1e-5 * s[0]])


def _too_many(observations: list[Observation], columns: _Columns, width: int) -> str | None:
    """Why no column can be found in the message with most known records; None if one can."""
    ids = [o.records.cpu().numpy() for o in observations]
    known = [int(np.isin(records, columns.records).sum()) for records in ids]
    best = int(np.argmax(known))
    basis = span_of(observations[best].values)
    rank = basis.shape[1]
    if rank < width:
        return f"embeddings that span as many dimensions as there are features: {width}, not {rank}"
    if columns.fitting(ids[best], basis):
        return None
    told = f"embeddings that span {rank} dimensions, of which known records fix {min(rank, known[best])}"
    return f"at most {MOST} vectors to try at a time; more are possible in {told}"


class _Columns:
    """The victim's columns with few values, as the known records show them, those with the fewest first."""

    def __init__(self, auxiliary: FeatureAuxiliary) -> None:
        block = auxiliary.block.double().cpu().numpy()
        self.records = auxiliary.records.cpu().numpy()
        grids = [(j, grid) for j, column in enumerate(block.T) if (grid := grid_of(column)) is not None]
        self.grids = dict(sorted(grids, key=lambda item: item[1].size))
        self.levels = {j: grid.levels(block[:, j]) for j, grid in self.grids.items()}
        self.counts = {j: _counts(self.levels[j], grid.size) for j, grid in self.grids.items()}

    def found(self, ids: Floats, basis: Floats) -> dict[int, Floats]:
        """The values of the columns that one message with these records gives away, by column."""
        fitting = {j: vectors for j, vectors in self.fitting(ids, basis).items() if len(vectors)}
        return {j: self.grids[j].values(vector) for j, vector in self._assigned(fitting).items()}

    def fitting(self, ids: Floats, basis: Floats) -> dict[int, Floats]:
        """All vectors in the span of one message that each column may be, as far as there are not too many to try.

        Where there are too many for `_GIVEN_UP` columns, those with as many values or more are not tried.
        """
        _, positions, which = np.intersect1d(ids, self.records, return_indices=True)
        search, tried = Search(basis, positions), dict[bytes, Floats | None]()
        fitting: dict[int, Floats] = {}
        for j, grid in self.grids.items():
            told = self.levels[j][which]
            key = bytes([grid.size]) + told.tobytes()
            if key not in tried and sum(v is None for v in tried.values()) < _GIVEN_UP:
                tried[key] = search.vectors(told, grid.size)
            vectors = tried.get(key)
            if vectors is not None:
                fitting[j] = vectors
        return fitting

    def _assigned(self, fitting: dict[int, Floats]) -> dict[int, Floats]:
        """One vector for each column, no vector for two, where frequencies of values leave no doubt."""
        varying = {j: vectors[(vectors != vectors[:, :1]).any(1)] for j, vectors in fitting.items()}
        columns = [j for j, vectors in varying.items() if len(vectors)]
        if not columns:
            return {}
        vectors, places = np.unique(np.concatenate([varying[j] for j in columns]), axis=0, return_inverse=True)
        ends = np.cumsum([len(varying[j]) for j in columns])
        costs = np.full((len(columns), len(vectors)), _IMPOSSIBLE)
        for p, (j, here) in enumerate(zip(columns, np.split(places.flatten(), ends[:-1]), strict=True)):
            costs[p, here] = -_log_likelihood(vectors[here], self.counts[j])
        pairs = [(p, v) for p, v in zip(*linear_sum_assignment(costs), strict=True) if costs[p, v] < _IMPOSSIBLE]
        taken, doubt = {v: p for p, v in pairs}, [self._constant(j, fitting[j]) for j in columns]
        sure = [(p, v) for p, v in pairs if min(doubt[p] - costs[p, v], _margin(costs, p, v, taken)) >= _SURE]
        return {columns[p]: vectors[v] for p, v in sure}

    def _constant(self, column: int, fitting: Floats) -> float:
        """The least cost of a constant vector among those that fit.

        Every span holds these, whether or not a column is constant: they are no answer, but may leave a doubt.
        """
        constants = fitting[(fitting == fitting[:, :1]).all(1)]
        return -float(_log_likelihood(constants, self.counts[column]).max()) if len(constants) else _IMPOSSIBLE


def _counts(levels: Floats, size: int) -> Floats:
    """How often each value occurs."""
    return np.asarray(np.bincount(levels.astype(int), minlength=size), dtype=np.float64)


def _log_likelihood(vectors: Floats, known: Floats) -> Floats:
    """(k,) of each vector, how likely its values are as frequent as they are, given how frequent they are among the
    known records: the Dirichlet-multinomial distribution, with half a record of each value before any is known."""
    there, before = np.stack([_counts(vector, len(known)) for vector in vectors]), known + 0.5
    terms = gammaln(there + before) - gammaln(before) - gammaln(there + 1)
    total = vectors.shape[1]
    constant = gammaln(before.sum()) + gammaln(total + 1) - gammaln(total + before.sum())
    return np.asarray(terms.sum(1) + constant)


def _margin(costs: Floats, place: int, vector: int, taken: dict[int, int]) -> float:
    """By how much the next best choice for a column costs more; with a vector of another column, the two swap."""
    more = costs[place] - costs[place, vector]
    for other, owner in taken.items():
        more[other] += costs[owner, vector] - costs[owner, other]
    more[vector] = np.inf
    return float(more.min())
