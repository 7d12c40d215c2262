"""Features from sums of logits, by solving equations (Luo et al. 2021): logistic regression whose weights are known."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from vflpriv.attacks._feature_base import FeatureInference, own_features
from vflpriv.attacks._gaussian import conditional
from vflpriv.attacks._observations import Seen, known_rows
from vflpriv.attacks._others import SHARED, differences, missing_shares, others, shares
from vflpriv.common.registry import register
from vflpriv.core.attack import FeatureAuxiliary, FeatureGuess, KnownModel
from vflpriv.core.views import View

__all__ = ["FeatureEsa"]

_CUT = 1e-10
_ROUNDS = 8
"""Of each record the last so many replies are used."""
_MOST = 2000
"""About so many records are solved for: those of the last replies. Each has a system of its own."""


@register("attack")
class FeatureEsa(FeatureInference):
    """(θ_k - θ_{k+1})·x = ln(v_k/v_{k+1}) - own part, for each pair of classes and each reply: linear in the unknown x.

    With as many independent equations as unknowns x is exact: from one reply if there are at most C - 1 unknowns, from
    several, under the different weights of their rounds, with more. Where equations are too few, noised, or of outputs
    that others sent long ago, it is the likeliest x under the Gaussian that the known records suggest, given the
    adversary's own features; how far equations can be trusted the known records show, too.

    Everything is solved in double precision, but messages are single: x is off by their rounding, about 1e-7, times the
    equations' condition number. The mean squared error stays below 1e-8 up to a condition of about 1e4; replies of
    rounds between which weights hardly moved, or as many classes as unknowns by the dozen, can have more.
    """

    name = "feature_esa"
    summary = "solves the equations that summed logits and known weights give for the features"
    needs = SHARED
    knows = frozenset({"records", "model"})

    def missing(self, view: View, auxiliary: FeatureAuxiliary) -> str | None:
        why = missing_shares(view)
        if why is not None:
            return why
        if auxiliary.victim not in auxiliary.models:
            return "the victim's model"
        linear = all(_is_linear(auxiliary.models[m], auxiliary.blocks[m]) for m in others(view, [*auxiliary.models]))
        return None if linear else "linear models; the other devices' are not, or what they send is clipped"

    def run(self, view: View, auxiliary: FeatureAuxiliary) -> FeatureGuess:
        members = others(view, [*auxiliary.models])
        widths = [auxiliary.blocks[m].shape[1] for m in members]
        own = own_features(view).double()
        known = torch.cat([auxiliary.blocks[m] for m in members], dim=1).double()
        means, root = conditional(known, own.index_select(0, auxiliary.records), own)
        seen = [s for s in shares(view) if s.round in auxiliary.models[members[0]].rounds]
        records = _some_records(seen)
        matrices, right = self._equations(seen, records, members, auxiliary)
        means = means.index_select(0, records)
        left = right - torch.einsum("nd,nde->ne", means, matrices)
        moves = _solve(root @ matrices, left, _misfit(matrices, right, records, auxiliary.records, known)) @ root
        start = sum(widths[: members.index(auxiliary.victim)])
        made = (means + moves)[:, start : start + auxiliary.blocks[auxiliary.victim].shape[1]]
        return FeatureGuess(device=auxiliary.victim, records=records, blocks=made.unsqueeze(0))

    def _equations(
        self, seen: Sequence[Seen], records: Tensor, members: Sequence[int], auxiliary: FeatureAuxiliary
    ) -> tuple[Tensor, Tensor]:
        """(n, d, equations) and (n, equations) of every record; equations that a record lacks are zeros."""
        slots = torch.zeros(len(records), dtype=torch.int64, device=records.device)
        width, classes = sum(auxiliary.blocks[m].shape[1] for m in members), seen[0].values.shape[1]
        matrices = torch.zeros(len(records), _ROUNDS, width, classes, dtype=torch.float64, device=records.device)
        right = torch.zeros(len(records), _ROUNDS, classes, dtype=torch.float64, device=records.device)
        for s in reversed(seen):
            place = torch.searchsorted(records, s.records).clamp(max=len(records) - 1)
            asked = records.index_select(0, place) == s.records
            free = asked & (slots.index_select(0, place) < _ROUNDS)
            place, values = place[free], s.values[free]
            maps = [_affine(auxiliary.models[m], s.round, auxiliary.blocks[m].shape[1]) for m in members]
            slot = slots.index_select(0, place)
            matrices[place, slot] = torch.cat([weight for weight, _ in maps])
            right[place, slot] = values - torch.stack([bias for _, bias in maps]).sum(0)
            slots[place] += 1
        return matrices.transpose(1, 2).flatten(2), right.flatten(1)


def _some_records(seen: Sequence[Seen]) -> Tensor:
    """The records of the last messages, sorted."""
    last = len(seen) - 1
    while last and sum(len(s.records) for s in seen[last:]) < _MOST:
        last -= 1
    records: Tensor = torch.cat([s.records for s in seen[last:]]).unique()
    return records


def _affine(model: KnownModel, round_: int, width: int) -> tuple[Tensor, Tensor]:
    """The differences of a linear model's logits: weights (d, C - 1) and biases (C - 1,), in double precision."""
    parameters = {name: value.double() for name, value in model.rounds[round_].items()}
    unit = torch.eye(width, dtype=torch.float64, device=next(iter(parameters.values())).device)
    outputs = model.apply(parameters, torch.cat((torch.zeros_like(unit[:1]), unit)).unsqueeze(0))[0]
    return differences(outputs[1:] - outputs[0]), differences(outputs[0])


def _is_linear(model: KnownModel, rows: Tensor) -> bool:
    """Whether the model maps sums of known rows to sums of their outputs, a constant aside."""
    last = {name: value.double() for name, value in model.rounds[max(model.rounds)].items()}
    some = rows[:32].double()
    batch = torch.stack((torch.zeros_like(some), some, some.flip(0), some + some.flip(0)), dim=0).flatten(0, 1)
    zero, a, b, both = model.apply(last, batch.unsqueeze(0))[0].unflatten(0, (4, len(some))).unbind(0)
    return bool(((a + b - both - zero).abs() <= 1e-8 * (1 + both.abs())).all())


def _misfit(matrices: Tensor, right: Tensor, records: Tensor, told: Tensor, rows: Tensor) -> Tensor:
    """The std by which equations fail for records whose features are known."""
    places, which = known_rows(records, told)
    wrong = right.index_select(0, places) - torch.einsum("nd,nde->ne", rows[which], matrices.index_select(0, places))
    there = matrices.index_select(0, places).abs().sum(1) > 0
    return (wrong.square() * there).sum().div(there.sum().clamp(min=1)).sqrt()


def _solve(matrices: Tensor, right: Tensor, std: Tensor) -> Tensor:
    """(n, d): least-norm z with z·A = b for each A (d, e) and b (e,); ridge σ² where b carries noise of that std."""
    u, s, vh = torch.linalg.svd(matrices, full_matrices=False)
    kept = s > _CUT * s[:, :1]
    shrunk = torch.where(kept, s / (s.square() + std.square()).clamp(min=1e-300), torch.zeros_like(s))
    return torch.einsum("nk,ndk->nd", shrunk * torch.einsum("ne,nke->nk", right, vh), u)
