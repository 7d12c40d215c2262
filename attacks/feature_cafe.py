"""Features from gradients and batch indices (CAFE, Jin et al. 2021): a server that sees the devices' models move."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from vflpriv.attacks._feature_base import FeatureInference
from vflpriv.attacks._observations import UPLINKS, known_rows, uplinks_of
from vflpriv.common.registry import register
from vflpriv.core.attack import FeatureAuxiliary, FeatureGuess
from vflpriv.core.views import View

__all__ = ["FeatureCafe"]

_RIDGES = (1e-14, 1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2)
_MOST = 4000
_PLAIN = 1e-2


@register("attack")
class FeatureCafe(FeatureInference):
    """∂L/∂W of a round is Σ x_nᵀ v_n over its batch, v_n being the gradient of record n's embedding before its ReLU.

    The published attack must first find v from ∂L/∂b; a server of split learning sent it. What is left is its second
    step, linear in all features at once: least squares over all rounds, towards the known records' mean. A model's
    step divided by the learning rate is ∂L/∂W; the rate is that which fits the biases.
    """

    name = "feature_cafe"
    summary = "solves for the features whose gradients explain how a known model moved"
    needs = UPLINKS | {"embedding-gradient", "logit-gradient"}
    knows = frozenset({"records", "model"})

    def missing(self, view: View, auxiliary: FeatureAuxiliary) -> str | None:
        if view.own or not uplinks_of(view, auxiliary.victim):
            return "the victim's embeddings; this view holds none"
        if auxiliary.victim not in auxiliary.models:
            return "the victim's model"
        if not view.kinds & {"embedding-gradient", "logit-gradient"}:
            return "gradients of each record; the server sends none"
        parameters = next(iter(auxiliary.models[auxiliary.victim].rounds.values()))
        if set(parameters) != {"weight0", "bias0"}:
            return "models of one layer: behind more, a record's gradient at the first depends on its features"
        if len(torch.cat([s.records for s in uplinks_of(view, auxiliary.victim)]).unique()) > _MOST:
            return f"at most {_MOST} records to solve for together"
        steps = list(_steps(view, auxiliary))
        misfit = sum(float((s.bias - s.rate * s.signal.sum(0)).square().sum()) for s in steps)
        size = sum(float(s.bias.square().sum()) for s in steps)
        return None if misfit <= _PLAIN * size else "steps that go straight down the gradient the server sent"

    def run(self, view: View, auxiliary: FeatureAuxiliary) -> FeatureGuess:
        steps = list(_steps(view, auxiliary))
        records = torch.cat([s.records for s in steps]).unique()
        mean = auxiliary.block.double().mean(0)
        gram = torch.zeros(len(records), len(records), dtype=torch.float64, device=records.device)
        right = torch.zeros(len(records), len(mean), dtype=torch.float64, device=records.device)
        for s in steps:
            place = torch.searchsorted(records, s.records)
            left = s.weight / s.rate - mean.unsqueeze(1) * s.signal.sum(0)
            gram.index_put_((place.unsqueeze(1), place.unsqueeze(0)), s.signal @ s.signal.T, accumulate=True)
            right.index_add_(0, place, s.signal @ left.T)
        made = _best(gram, right, records, mean, auxiliary)
        return FeatureGuess(device=auxiliary.victim, records=records, blocks=made.unsqueeze(0))


class _Step:
    """One round of the victim: its batch, v (B, e), how W (d, e) and b (e,) moved, and the learning rate."""

    def __init__(self, records: Tensor, signal: Tensor, weight: Tensor, bias: Tensor, rate: Tensor) -> None:
        self.records, self.signal, self.weight, self.bias, self.rate = records, signal, weight, bias, rate


def _steps(view: View, auxiliary: FeatureAuxiliary) -> Iterator[_Step]:
    victim, rounds = auxiliary.victim, auxiliary.models[auxiliary.victim].rounds
    embeddings = {s.round: s for s in uplinks_of(view, victim)}
    found = []
    for m in view.of_kind("embedding-gradient", "logit-gradient"):
        moved_on = m.round in rounds and m.round + 1 in rounds
        if m.device.index != victim or m.round not in embeddings or not moved_on or m.records is None:
            continue
        signal = m.tensors["gradient"][0].double()
        if m.kind == "embedding-gradient":
            signal = signal * (embeddings[m.round].values > 0)
        moved = {n: (v.double() - rounds[m.round + 1][n].double())[0] for n, v in rounds[m.round].items()}
        found.append((m.records, signal, moved["weight0"], moved["bias0"]))
    sums = torch.stack([signal.sum(0) for _, signal, _, _ in found])
    rate = (sums * torch.stack([bias for *_, bias in found])).sum() / sums.square().sum().clamp(min=1e-300)
    for one in found:
        yield _Step(*one, rate=rate)


def _best(gram: Tensor, right: Tensor, records: Tensor, mean: Tensor, auxiliary: FeatureAuxiliary) -> Tensor:
    """The ridge solution that fits the known records best."""
    places, which = known_rows(records, auxiliary.records)
    truth = auxiliary.block.double()[which]
    values, vectors = torch.linalg.eigh(gram)
    turned, best, found = vectors.T @ right, torch.inf, mean.repeat(len(records), 1)
    for ridge in _RIDGES:
        made = mean + vectors @ (turned / (values.clamp(min=0) + ridge * values[-1]).unsqueeze(1))
        error = float((made[places] - truth).square().mean())
        if error < best:
            best, found = error, made
    return found
