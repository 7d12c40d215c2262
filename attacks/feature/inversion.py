"""Features from embeddings: a curious server decodes them (black box) or inverts the victim's known model (white box).

The black box is a decoder fitted to pairs of embedding and features of a few known records. The white box knows the
victim's parameters in every round and optimises the features until the model maps them to the embeddings.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from vflpriv.attacks._base import FeatureInference, decode_features, few_known
from vflpriv.attacks._estimators import gaussian
from vflpriv.attacks._observations import UPLINKS, Observation, last_and_mean, recent, uplinks_of
from vflpriv.common.registry import register
from vflpriv.core.attack import Defences, FeatureAuxiliary, Guess, KnownModel
from vflpriv.core.views import View

__all__ = ["FeatureInversion", "FeatureInversionWhite"]

_STEPS = 400
_RATE = 0.1
_TIMES = 6
"""Of each record the last so many embeddings are used by the white box."""
_NO_EMBEDDINGS = "embeddings of the victim; this view holds none"


@register("attack")
class FeatureInversion(FeatureInference):
    """Black box: the embeddings and features of known records train a decoder for the embeddings of all others."""

    name = "feature_inversion"
    summary = "decodes features from embeddings, learnt from a few known records"
    needs = UPLINKS
    knows = frozenset({"records"})
    by_record = True

    def missing(self, view: View, auxiliary: FeatureAuxiliary) -> str | None:
        observations = uplinks_of(view, auxiliary.victim)
        return few_known(observations, auxiliary, "embeddings") if observations else _NO_EMBEDDINGS

    def run(self, view: View, auxiliary: FeatureAuxiliary) -> Guess:
        records, rows = last_and_mean(uplinks_of(view, auxiliary.victim))
        blocks = decode_features(records, rows, auxiliary).unsqueeze(0)
        return Guess(records, blocks)


@register("attack")
class FeatureInversionWhite(FeatureInference):
    """White box: the most likely features given all embeddings of a record, the model's parameters of each round known.

    It minimises Σ ‖f_t(x) - h_t‖²/σ² + ‖z‖² over z, with x = μ + zL, where μ and L belong to a Gaussian fitted to the
    known records. σ is the noise's std; without noise, a hundredth of the embeddings' spread. All rows of a message are
    optimised together, which undoes a clip of the whole batch, too. It knows the defences of outputs: σ of their noise
    (embedding-noise, client-noise), the step of quantised outputs, whose rounding has the deviation step/√12, and that
    a zero of top-k is an entry that was not sent, and says nothing. It starts from the black box's answer: from the
    mean, a ReLU that is active for a record but not for the mean would never become active.
    """

    name = "feature_inversion_white"
    summary = "finds the features that a known model maps to the embeddings seen"
    needs = UPLINKS
    knows = frozenset({"records", "model"})
    heavy = True
    adapts_to = frozenset({"embedding-noise", "client-noise", "quantised", "top-k"})

    def missing(self, view: View, auxiliary: FeatureAuxiliary) -> str | None:
        if auxiliary.victim not in auxiliary.models:
            return "the victim's model"
        rounds = auxiliary.models[auxiliary.victim].rounds
        seen = any(o.round in rounds for o in uplinks_of(view, auxiliary.victim))
        return None if seen else _NO_EMBEDDINGS

    def run(self, view: View, auxiliary: FeatureAuxiliary) -> Guess:
        model = auxiliary.models[auxiliary.victim]
        observations = recent([o for o in uplinks_of(view, auxiliary.victim) if o.round in model.rounds], _TIMES)
        records, positions = torch.cat([o.records for o in observations]).unique(return_inverse=True)
        mean, root = gaussian(auxiliary.block)
        spread = torch.cat([o.values for o in observations]).std()
        std = max(auxiliary.noise_std, _rounding(observations, auxiliary.defences), 0.01 * float(spread), 1e-6)
        start = (_black_box(observations, auxiliary, mean) - mean) @ torch.linalg.inv(root)
        batches = _by_size(observations, list(positions.split([len(o.records) for o in observations])), model)
        if "top-k" in auxiliary.defences:
            batches = [batch._replace(sent=(batch.embeddings != 0).to(batch.embeddings.dtype)) for batch in batches]
        z = _most_likely(start, mean, root, batches, model, std)
        blocks = (mean + z @ root).unsqueeze(0)
        return Guess(records, blocks)


class _Batches(NamedTuple):
    """Messages of one batch size, as replicas: parameters (n, …), positions (n, B) and embeddings (n, B, …).

    `sent` is 1 for each entry that was sent, 0 for each that was not; None if all were.
    """

    parameters: dict[str, Tensor]
    positions: Tensor
    embeddings: Tensor
    sent: Tensor | None = None


def _most_likely(
    start: Tensor, mean: Tensor, root: Tensor, batches: list[_Batches], model: KnownModel, std: float
) -> Tensor:
    """z (n, d) that minimises Σ ‖f_t(μ + zL) - h_t‖²/σ² + ‖z‖², by Adam."""
    z = start.detach().requires_grad_()
    optimiser = torch.optim.Adam([z], lr=_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, _STEPS, eta_min=_RATE / 50)
    for _ in range(_STEPS):
        optimiser.zero_grad()
        rows = mean + z @ root
        loss = z.square().sum()
        for parameters, positions, embeddings, sent in batches:
            batch = rows.index_select(0, positions.flatten()).unflatten(0, positions.shape)
            apart = model.apply(parameters, batch) - embeddings
            loss = loss + (apart if sent is None else apart * sent).square().sum() / std**2
        loss.backward()
        optimiser.step()
        schedule.step()
    return z.detach()


def _rounding(observations: list[Observation], defences: Defences) -> float:
    """The mean deviation by which quantised outputs differ from what they were; 0 where they are not quantised."""
    bits = defences.get("quantised", {}).get("bits")
    if bits is None:
        return 0.0
    ranges = torch.stack([o.values.max() - o.values.min() for o in observations])
    return float(ranges.mean()) / ((1 << int(bits)) - 1) / math.sqrt(12)


def _black_box(observations: list[Observation], auxiliary: FeatureAuxiliary, mean: Tensor) -> Tensor:
    """The black box's features of every record; the mean if too few known records were observed."""
    records, rows = last_and_mean(observations)
    if few_known(observations, auxiliary, "embeddings") is not None:
        return mean.expand(len(records), -1)
    return decode_features(records, rows, auxiliary)


def _by_size(observations: list[Observation], positions: list[Tensor], model: KnownModel) -> list[_Batches]:
    """Observations grouped by batch size."""
    groups = []
    for size in dict.fromkeys(len(o.records) for o in observations):
        chosen = [(o, p) for o, p in zip(observations, positions, strict=True) if len(o.records) == size]
        rounds = [model.rounds[o.round] for o, _ in chosen]
        parameters = {name: torch.cat([values[name] for values in rounds]) for name in rounds[0]}
        embeddings = torch.stack([o.values for o, _ in chosen])
        groups.append(_Batches(parameters, torch.stack([p for _, p in chosen]), embeddings))
    return groups
