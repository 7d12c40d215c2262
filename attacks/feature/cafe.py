"""Features from gradients and batch indices (CAFE, Jin et al. 2021): a server observes the steps of a device's model.

Jin et al., "CAFE: Catastrophic Data Leakage in Vertical Federated Learning", NeurIPS 2021.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vflpriv.attacks._base import FeatureInference
from vflpriv.attacks._observations import UPLINKS, known_positions, uplinks_of
from vflpriv.common.registry import register
from vflpriv.core.attack import FeatureAuxiliary, Guess
from vflpriv.core.views import View
from vflpriv.core.wire import Message

__all__ = ["FeatureCafe"]

_RIDGES = (1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12, 1e-14)
_POWERS = 20
_MOST = 4000
_MISFIT = 1e-2
"""Steps whose biases differ from the gradients sent by a larger share than this are not plain gradient steps."""
_GRADIENTS = frozenset({"embedding-gradient", "logit-gradient"})
_DIFFERENCES = "loss-differences"
"""From these, and the directions in which the outputs were moved, the device estimates a gradient of each record."""
_RANDOM = "the victim moves along random directions, by as much as the loss of a batch says"
_MOVED_BY = {
    "summed-logits": "the devices compute them themselves, from labels that the server does not hold",
    "admm-variables": "the devices solve for their models themselves, from dual variables",
    "zo-scalar": _RANDOM,
    "losses": _RANDOM,
    "loss-difference": _RANDOM,
}
"""What moves a device's model where no gradients of records are sent, by what is sent instead."""


@register("attack")
class FeatureCafe(FeatureInference):
    """∂L/∂W of a round is Σ x_nᵀ v_n over its batch, v_n being the gradient of record n's embedding before its ReLU.

    The published attack must first recover v from ∂L/∂b; a server of split learning sent it, and one of CZOFO sent the
    loss differences from which the device estimates it. What remains is the second step, linear in all features at
    once: least squares over all rounds, shrunk towards the known records' mean. ∂L/∂W is the model's step divided by
    the learning rate, which is the one that fits the steps of the biases.

    Where a device's step is no sum over its records of such products, nothing can be solved for: devices of
    zeroth-order engines move along random directions, those of ADMM to the minimum of an objective of their own.
    """

    name = "feature_cafe"
    summary = "solves for the features whose gradients explain the steps of a known model"
    needs = UPLINKS | _GRADIENTS | {_DIFFERENCES}
    knows = frozenset({"records", "model"})

    def missing(self, view: View, auxiliary: FeatureAuxiliary) -> str | None:
        observations = uplinks_of(view, auxiliary.victim)
        if view.own or not observations:
            return "embeddings of the victim; this view holds none"
        if auxiliary.victim not in auxiliary.models:
            return "the victim's model"
        if not view.kinds & {*_GRADIENTS, _DIFFERENCES}:
            instead = (reason for kind, reason in _MOVED_BY.items() if kind in view.kinds)
            return f"gradients of each record on the wire; {next(instead, 'this view holds none')}"
        parameters = next(iter(auxiliary.models[auxiliary.victim].rounds.values()))
        if set(parameters) != {"weight0", "bias0"}:
            return "a model of one layer; with more, a record's gradient at the first layer depends on its features"
        records = len(torch.cat([o.records for o in observations]).unique())
        if records > _MOST:
            return f"at most {_MOST} records, which it solves for together; here there are {records}"
        steps = _steps(view, auxiliary)
        misfit = sum(float((s.bias - s.rate * s.signal.sum(0)).square().sum()) for s in steps)
        size = sum(float(s.bias.square().sum()) for s in steps)
        return None if misfit <= _MISFIT * size else "plain steps along the gradients that the server sent"

    def run(self, view: View, auxiliary: FeatureAuxiliary) -> Guess:
        steps = _steps(view, auxiliary)
        records = torch.cat([s.records for s in steps]).unique()
        mean = auxiliary.block.double().mean(0)
        gram = torch.zeros(len(records), len(records), dtype=torch.float64, device=records.device)
        right = torch.zeros(len(records), len(mean), dtype=torch.float64, device=records.device)
        for s in steps:
            positions = torch.searchsorted(records, s.records)
            left = s.weight / s.rate - mean.unsqueeze(1) * s.signal.sum(0)
            gram.index_put_((positions.unsqueeze(1), positions.unsqueeze(0)), s.signal @ s.signal.T, accumulate=True)
            right.index_add_(0, positions, s.signal @ left.T)
        blocks = _best_ridge(gram, right, records, mean, auxiliary)
        return Guess(records, blocks.unsqueeze(0))


@dataclass(frozen=True, eq=False, kw_only=True)
class _Step:
    """One round of the victim: its batch, v (B, e), the steps of W (d, e) and b (e,), and the learning rate."""

    records: Tensor
    signal: Tensor
    weight: Tensor
    bias: Tensor
    rate: Tensor


def _steps(view: View, auxiliary: FeatureAuxiliary) -> list[_Step]:
    """The victim's steps whose parameters before and after are known."""
    victim, rounds = auxiliary.victim, auxiliary.models[auxiliary.victim].rounds
    sent = {m.round: m for m in view.of_kind(*UPLINKS) if m.device.index == victim and "embedding" in m.tensors}
    steps = []
    for m in view.of_kind(*_GRADIENTS, _DIFFERENCES):
        both_known = m.round in rounds and m.round + 1 in rounds
        if m.device.index != victim or m.round not in sent or not both_known or m.records is None:
            continue
        moved = {n: (v.double() - rounds[m.round + 1][n].double())[0] for n, v in rounds[m.round].items()}
        signal = _signal(m, sent[m.round])
        steps.append({"records": m.records, "signal": signal, "weight": moved["weight0"], "bias": moved["bias0"]})
    sums = torch.stack([step["signal"].sum(0) for step in steps])
    rate = (sums * torch.stack([step["bias"] for step in steps])).sum() / sums.square().sum().clamp(min=1e-300)
    return [_Step(**step, rate=rate) for step in steps]


def _signal(reply: Message, sent: Message) -> Tensor:
    """v (B, e), up to one factor: the gradient that was sent, or the device's estimate; 0 where a ReLU is at 0."""
    output = sent.tensors["embedding"][0].double()
    if reply.kind == _DIFFERENCES:
        moved = sent.tensors["perturbed"][0].double() - output
        signal = (reply.tensors["differences"][0].double().unsqueeze(-1) * moved).sum(0)
    else:
        signal = reply.tensors["gradient"][0].double()
    linear = reply.kind == "logit-gradient" or sent.kind == "logits"
    return signal if linear else signal * (output > 0)


def _best_ridge(gram: Tensor, right: Tensor, records: Tensor, mean: Tensor, auxiliary: FeatureAuxiliary) -> Tensor:
    """The ridge solution that fits the known records best, from large to small ridges until the fit gets worse.

    A ridge that is too small for the factorisation ends the search, too: its solution would be rounding.
    """
    positions, known = known_positions(records, auxiliary.records)
    truth = auxiliary.block.double()[known]
    least, best, largest = torch.inf, mean.repeat(len(records), 1), _largest(gram)
    for ridge in _RIDGES:
        shifted = gram.clone()
        shifted.diagonal().add_(ridge * largest)
        factor, failed = torch.linalg.cholesky_ex(shifted)
        solution = mean + torch.cholesky_solve(right, factor)
        error = float((solution[positions] - truth).square().mean())
        if int(failed) or not error < least:
            break
        least, best = error, solution
    return best


def _largest(gram: Tensor) -> Tensor:
    """The largest eigenvalue of a positive matrix, by power iteration: the scale of the ridges."""
    vector: Tensor = gram.sum(1)
    for _ in range(_POWERS):
        vector = gram @ (vector / vector.norm().clamp(min=1e-300))
    largest: Tensor = vector.norm()
    return largest
