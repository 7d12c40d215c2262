"""Features from summed logits by equality solving (Luo et al. 2021), for linear models whose weights are known.

Luo et al., "Feature Inference Attack on Model Predictions in Vertical Federated Learning", ICDE 2021.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from vflpriv.attacks._base import FeatureInference, own_features
from vflpriv.attacks._estimators import conditional_gaussian
from vflpriv.attacks._observations import Observation, known_positions
from vflpriv.attacks.feature._other_shares import SHARED, class_differences, missing_shares, other_devices, other_shares
from vflpriv.common.registry import register
from vflpriv.core.attack import FeatureAuxiliary, Guess, KnownModel
from vflpriv.core.views import View

__all__ = ["FeatureEsa"]

_CUT = 1e-10
_NOISED = 1e-7
"""Above this share of the largest equations' squares, a noise's variance bounds the error of the normal equations."""
_REPLIES = 8
"""Of each record the last so many replies are used."""
_MOST = 2000
"""About so many records are solved for, those of the last replies: each has a system of equations of its own."""


@register("attack")
class FeatureEsa(FeatureInference):
    """(θ_k - θ_{k+1})·x = ln(v_k/v_{k+1}) - own part, for each pair of classes and each reply: linear in the unknown x.

    With as many independent equations as unknowns x is exact: from one reply if there are at most C - 1 unknowns; from
    several, under the different weights of their rounds, if there are more. Where equations are too few, noised, or of
    outputs that the others sent long ago, the answer is the most likely x under a Gaussian fitted to the known records,
    conditional on the adversary's own features. The known records also show how far the equations can be trusted.

    Everything is solved in double precision, but messages are in single: the error of x is their rounding, about 1e-7,
    times the condition number of the equations. The mean squared error stays below 1e-8 up to a condition number of
    about 1e4. It can be larger if the weights hardly changed between the replies used, or with dozens of unknowns and
    just as many classes.
    """

    name = "feature_esa"
    summary = "solves the equations that summed logits and known weights give for the features"
    needs = SHARED
    knows = frozenset({"records", "model"})

    def missing(self, view: View, auxiliary: FeatureAuxiliary) -> str | None:
        reason = missing_shares(view)
        if reason is not None:
            return reason
        if auxiliary.victim not in auxiliary.models:
            return "the victim's model"
        others = other_devices(view, auxiliary.models)
        linear = all(_is_linear(auxiliary.models[m], auxiliary.blocks[m]) for m in others)
        return (
            None
            if linear
            else "linear models at the other devices; theirs are not linear, or their outputs are clipped"
        )

    def run(self, view: View, auxiliary: FeatureAuxiliary) -> Guess:
        others = other_devices(view, auxiliary.models)
        widths = [auxiliary.blocks[m].shape[1] for m in others]
        own = own_features(view).double()
        known = torch.cat([auxiliary.blocks[m] for m in others], dim=1).double()
        means, root = conditional_gaussian(known, own.index_select(0, auxiliary.records), own)
        shares = [s for s in other_shares(view) if s.round in auxiliary.models[others[0]].rounds]
        records = _last_records(shares)
        matrices, right = _equations(shares, records, others, auxiliary)
        means = means.index_select(0, records)
        left = right - torch.einsum("nd,nde->ne", means, matrices)
        std = _misfit(matrices, right, records, auxiliary.records, known)
        features = means + _solve(root @ matrices, left, std) @ root
        start = sum(widths[: others.index(auxiliary.victim)])
        block = features[:, start : start + auxiliary.block.shape[1]]
        return Guess(records, block.unsqueeze(0))


def _last_records(shares: Sequence[Observation]) -> Tensor:
    """The records of the last messages, sorted."""
    first = len(shares) - 1
    while first and sum(len(s.records) for s in shares[first:]) < _MOST:
        first -= 1
    records: Tensor = torch.cat([s.records for s in shares[first:]]).unique()
    return records


def _equations(
    shares: Sequence[Observation], records: Tensor, others: Sequence[int], auxiliary: FeatureAuxiliary
) -> tuple[Tensor, Tensor]:
    """(n, d, equations) and (n, equations) of every record; equations that a record lacks are zeros."""
    count = torch.zeros(len(records), dtype=torch.int64, device=records.device)
    width, classes = sum(auxiliary.blocks[m].shape[1] for m in others), shares[0].values.shape[1]
    matrices = torch.zeros(len(records), _REPLIES, width, classes, dtype=torch.float64, device=records.device)
    right = torch.zeros(len(records), _REPLIES, classes, dtype=torch.float64, device=records.device)
    for s in reversed(shares):
        positions = torch.searchsorted(records, s.records).clamp(max=len(records) - 1)
        wanted = records.index_select(0, positions) == s.records
        wanted = wanted & (count.index_select(0, positions) < _REPLIES)
        positions, values = positions[wanted], s.values[wanted]
        maps = [_affine(auxiliary.models[m], s.round, auxiliary.blocks[m].shape[1]) for m in others]
        slots = count.index_select(0, positions)
        matrices[positions, slots] = torch.cat([weight for weight, _ in maps])
        right[positions, slots] = values - torch.stack([bias for _, bias in maps]).sum(0)
        count[positions] += 1
    return matrices.transpose(1, 2).flatten(2), right.flatten(1)


def _affine(model: KnownModel, round_: int, width: int) -> tuple[Tensor, Tensor]:
    """The differences of a linear model's logits: weights (d, C - 1) and biases (C - 1,), in double precision."""
    parameters = {name: value.double() for name, value in model.rounds[round_].items()}
    unit = torch.eye(width, dtype=torch.float64, device=next(iter(parameters.values())).device)
    outputs = model.apply(parameters, torch.cat((torch.zeros_like(unit[:1]), unit)).unsqueeze(0))[0]
    return class_differences(outputs[1:] - outputs[0]), class_differences(outputs[0])


def _is_linear(model: KnownModel, rows: Tensor) -> bool:
    """Whether the model maps sums of known rows to sums of their outputs, up to a constant."""
    last = {name: value.double() for name, value in model.rounds[max(model.rounds)].items()}
    some = rows[:32].double()
    batch = torch.stack((torch.zeros_like(some), some, some.flip(0), some + some.flip(0)), dim=0).flatten(0, 1)
    zero, a, b, both = model.apply(last, batch.unsqueeze(0))[0].unflatten(0, (4, len(some))).unbind(0)
    return bool(((a + b - both - zero).abs() <= 1e-8 * (1 + both.abs())).all())


def _misfit(matrices: Tensor, right: Tensor, records: Tensor, known: Tensor, features: Tensor) -> Tensor:
    """The std of the equations' errors for the known records, whose features are given."""
    positions, which = known_positions(records, known)
    used = matrices.index_select(0, positions)
    errors = right.index_select(0, positions) - torch.einsum("nd,nde->ne", features[which], used)
    present = used.abs().sum(1) > 0
    return (errors.square() * present).sum().div(present.sum().clamp(min=1)).sqrt()


def _solve(matrices: Tensor, right: Tensor, std: Tensor) -> Tensor:
    """(n, d): z of least norm with z·A = b for each A (d, e) and b (e,); ridge σ² for noise of std σ in b.

    With much noise z = (AAᵀ + σ²)⁻¹ A b is as accurate as by singular values, and several times faster.
    """
    largest = matrices.square().sum((1, 2)).max()
    if bool(std.square() > _NOISED * largest):
        gram = matrices @ matrices.transpose(1, 2)
        gram.diagonal(dim1=1, dim2=2).add_(std.square())
        factor = torch.linalg.cholesky(gram)
        solution: Tensor = torch.cholesky_solve(matrices @ right.unsqueeze(-1), factor)
        return solution.squeeze(-1)
    u, s, vh = torch.linalg.svd(matrices, full_matrices=False)
    kept = s > _CUT * s[:, :1]
    shrunk = torch.where(kept, s / (s.square() + std.square()).clamp(min=1e-300), torch.zeros_like(s))
    return torch.einsum("nk,ndk->nd", shrunk * torch.einsum("ne,nke->nk", right, vh), u)
