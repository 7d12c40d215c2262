"""Binary features from embeddings of an unknown linear model (Ye et al. 2024): they lie in the embeddings' span.

Ye et al., "Feature Reconstruction Attacks and Countermeasures of DNN Training in Vertical Federated Learning", 2024.
"""

from __future__ import annotations

import torch
from scipy.linalg import qr
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from vflpriv.attacks._base import FeatureInference
from vflpriv.attacks._observations import UPLINKS, Observation, known_positions, uplinks_of
from vflpriv.common.registry import register
from vflpriv.core.attack import FeatureAuxiliary, FeatureGuess
from vflpriv.core.views import View

__all__ = ["FeatureReconstruction", "binary_vectors"]

_LARGEST = 16
_TOLERANCE = 1e-2
_ZEROS = 0.1
"""A larger share of exact zeros than this is due to a ReLU."""


@register("attack")
class FeatureReconstruction(FeatureInference):
    """Z = XW + b: every column of X is a combination of Z's columns and 1 if W is at least as wide as X. In a subspace
    of r dimensions at most 2^r vectors have entries 0 and 1 only; all are tried.

    The known records decide which vector is which feature, and which are sums of several. Features that are not binary
    cannot be identified without knowing W: for these the answer is the known records' mean.
    """

    name = "feature_reconstruction"
    summary = "finds binary features in the span of an unknown linear model's embeddings"
    needs = UPLINKS
    knows = frozenset({"records"})

    def missing(self, view: View, auxiliary: FeatureAuxiliary) -> str | None:
        observations = uplinks_of(view, auxiliary.victim)
        if not observations:
            return "embeddings of the victim; this view holds none"
        if not bool(_binary(auxiliary.block).any()):
            return "binary features; others cannot be identified without the model"
        if float((torch.cat([o.values for o in observations]) == 0).double().mean()) > _ZEROS:
            return "embeddings that are linear in the features; these passed through a ReLU"
        first = observations[0].values
        if len(first) <= 2 * first.shape[1]:
            return "batches of more records than twice the embedding's width"
        rank, width = _basis(first).shape[1], auxiliary.block.shape[1]
        if rank < width:
            return f"embeddings that span as many dimensions as there are features: {width}, not {rank}"
        return None if rank <= _LARGEST else f"embeddings that span at most {_LARGEST} dimensions, not {rank}"

    def run(self, view: View, auxiliary: FeatureAuxiliary) -> FeatureGuess:
        observations = uplinks_of(view, auxiliary.victim)
        records = torch.cat([o.records for o in observations]).unique()
        blocks = auxiliary.block.double().mean(0).repeat(len(records), 1)
        unsolved = torch.ones(len(records), dtype=torch.bool, device=records.device)
        # Backwards until every record was in one message: earlier messages add nothing.
        for observation in reversed(observations):
            positions = torch.searchsorted(records, observation.records)
            if bool(unsolved[positions].any()):
                blocks[positions] = _with_binary_columns(observation, blocks[positions], auxiliary)
                unsolved[positions] = False
        return FeatureGuess(device=auxiliary.victim, records=records, blocks=blocks.unsqueeze(0))


def binary_vectors(values: Tensor) -> Tensor:
    """(k, n): all vectors of zeros and ones, other than the constant ones, in the span of (n, e) columns and 1."""
    basis = _basis(values)
    rank = basis.shape[1]
    _, _, order = qr(basis.T.cpu().numpy(), pivoting=True, mode="economic")
    pivots = torch.from_numpy(order[:rank].copy()).to(basis.device)
    bits = torch.arange(2**rank, device=basis.device).unsqueeze(1) >> torch.arange(rank, device=basis.device) & 1
    # A vector of the span is determined by its entries at the pivots.
    vectors = bits.to(basis.dtype) @ torch.linalg.solve(basis.index_select(0, pivots).T, basis.T)
    rounded = vectors.round()
    fits = ((vectors - rounded).abs() < _TOLERANCE).all(1) & ((rounded == 0) | (rounded == 1)).all(1)
    binary: Tensor = rounded[fits]
    return binary[(binary != binary[:, :1]).any(1)]


def _basis(values: Tensor) -> Tensor:
    """An orthonormal basis of the span of columns and the constant, in double precision."""
    rows = values.double()
    rows = torch.cat((rows / rows.std().clamp(min=1e-12), torch.ones_like(rows[:, :1])), dim=1)
    u, s, _ = torch.linalg.svd(rows, full_matrices=False)
    kept: Tensor = u[:, s > 1e-5 * s[0]]
    return kept


def _binary(block: Tensor) -> Tensor:
    """Which columns of the known records hold zeros and ones only."""
    return ((block == 0) | (block == 1)).all(0)


def _with_binary_columns(observation: Observation, rows: Tensor, auxiliary: FeatureAuxiliary) -> Tensor:
    """One message's rows with the binary columns filled in: vectors matched to columns by the known records' values."""
    vectors = binary_vectors(observation.values)
    if not len(vectors):
        return rows
    order = observation.records.argsort()
    positions, which = known_positions(observation.records[order], auxiliary.records)
    columns = _binary(auxiliary.block).nonzero().flatten()
    known = auxiliary.block.double()[:, columns]
    errors = (vectors[:, order[positions]].unsqueeze(1) - known[which].T.unsqueeze(0)).abs().sum(2)
    # Where the known records of this batch leave it open, the frequency of ones among all known records decides.
    share, ones = known.mean(0).clamp(0.01, 0.99), vectors.mean(1, keepdim=True)
    surprise = -(ones * share.log() + (1 - ones) * (1 - share).log())
    pairs = linear_sum_assignment((errors * 10 + surprise).cpu().numpy())
    rows = rows.clone()
    for vector, column in zip(*pairs, strict=True):
        if not float(errors[vector, column]):
            rows[:, columns[column]] = vectors[vector]
    return rows
