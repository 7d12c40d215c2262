"""Binary features from embeddings of an unknown linear model (Ye et al. 2024): they lie in the embeddings' span."""

from __future__ import annotations

import torch
from scipy.linalg import qr
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from vflpriv.attacks._feature_base import FeatureInference
from vflpriv.attacks._observations import UPLINKS, Seen, known_rows, uplinks_of
from vflpriv.common.registry import register
from vflpriv.core.attack import FeatureAuxiliary, FeatureGuess
from vflpriv.core.views import View

__all__ = ["FeatureReconstruction", "binary_vectors"]

_LARGEST = 16
_TOLERANCE = 1e-2
_ZEROS = 0.1
"""A larger share of exact zeros than this is a ReLU's doing."""


@register("attack")
class FeatureReconstruction(FeatureInference):
    """Z = XW + b: every column of X is a combination of Z's columns and 1 if W is at least as wide as X. Of a subspace
    of r dimensions 2^r vectors at most have entries 0 and 1 only; all are tried.

    Which vector is which feature, and which are sums of several, the known records decide. Features that are not binary
    can't be told from their combinations without knowing W: of these it says the known records' mean.
    """

    name = "feature_reconstruction"
    summary = "finds binary features in the span of an unknown linear model's embeddings"
    needs = UPLINKS
    knows = frozenset({"records"})

    def missing(self, view: View, auxiliary: FeatureAuxiliary) -> str | None:
        seen = uplinks_of(view, auxiliary.victim)
        if not seen:
            return "embeddings of the victim; this view holds none"
        if not bool(_binary(auxiliary.block).any()):
            return "binary features: others can't be told from their combinations without the model"
        if float((torch.cat([s.values for s in seen]) == 0).double().mean()) > _ZEROS:
            return "embeddings that are linear in the features; these went through a ReLU"
        if len(seen[0].values) <= 2 * seen[0].values.shape[1]:
            return "batches of more records than twice the embedding's width"
        rank = _basis(seen[0].values).shape[1]
        width = auxiliary.block.shape[1]
        if rank < width:
            return f"embeddings at least as wide as the features: {width}, not {rank}"
        return None if rank <= _LARGEST else f"a span of at most {_LARGEST} dimensions to search, not {rank}"

    def run(self, view: View, auxiliary: FeatureAuxiliary) -> FeatureGuess:
        seen = uplinks_of(view, auxiliary.victim)
        records = torch.cat([s.records for s in seen]).unique()
        made = auxiliary.block.double().mean(0).repeat(len(records), 1)
        left = torch.ones(len(records), dtype=torch.bool, device=records.device)
        # Backwards until every record was in a message once: earlier ones say nothing new.
        for s in reversed(seen):
            place = torch.searchsorted(records, s.records)
            if bool(left[place].any()):
                made[place] = _columns(s, made[place], auxiliary)
                left[place] = False
        return FeatureGuess(device=auxiliary.victim, records=records, blocks=made.unsqueeze(0))


def binary_vectors(values: Tensor) -> Tensor:
    """(k, n): all vectors of zeros and ones, other than the constant ones, in the span of (n, e) columns and 1."""
    basis = _basis(values)
    rank = basis.shape[1]
    _, _, order = qr(basis.T.cpu().numpy(), pivoting=True, mode="economic")
    pivots = torch.from_numpy(order[:rank].copy()).to(basis.device)
    bits = torch.arange(2**rank, device=basis.device).unsqueeze(1) >> torch.arange(rank, device=basis.device) & 1
    # A vector of the span is fixed by its entries at the pivots.
    vectors = bits.to(basis.dtype) @ torch.linalg.solve(basis.index_select(0, pivots).T, basis.T)
    whole = vectors.round()
    fits = ((vectors - whole).abs() < _TOLERANCE).all(1) & ((whole == 0) | (whole == 1)).all(1)
    found: Tensor = whole[fits]
    return found[(found != found[:, :1]).any(1)]


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


def _columns(seen: Seen, rows: Tensor, auxiliary: FeatureAuxiliary) -> Tensor:
    """One message's rows with the binary columns put in: vectors matched to columns by the known records' values."""
    found = binary_vectors(seen.values)
    if not len(found):
        return rows
    order = seen.records.argsort()
    places, which = known_rows(seen.records[order], auxiliary.records)
    at = order[places]
    columns = _binary(auxiliary.block).nonzero().flatten()
    known = auxiliary.block.double()[:, columns]
    wrong = (found[:, at].unsqueeze(1) - known[which].T.unsqueeze(0)).abs().sum(2)
    # Where the records of this batch do not decide, how often a feature is 1 among all known ones does.
    share, rare = known.mean(0).clamp(0.01, 0.99), found.mean(1, keepdim=True)
    surprise = -(rare * share.log() + (1 - rare) * (1 - share).log())
    vector, column = linear_sum_assignment((wrong * 10 + surprise).cpu().numpy())
    rows = rows.clone()
    for v, c in zip(vector, column, strict=True):
        if not float(wrong[v, c]):
            rows[:, columns[c]] = found[v]
    return rows
