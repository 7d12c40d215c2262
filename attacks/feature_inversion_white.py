"""Features from embeddings of a known model: a curious server looks for the rows that the model maps to them."""

from __future__ import annotations

import torch
from torch import Tensor

from vflpriv.attacks._decoder import decode
from vflpriv.attacks._feature_base import FeatureInference
from vflpriv.attacks._gaussian import gaussian
from vflpriv.attacks._observations import UPLINKS, Seen, known_rows, last_and_mean, uplinks_of
from vflpriv.common.registry import register
from vflpriv.core.attack import FeatureAuxiliary, FeatureGuess, KnownModel
from vflpriv.core.views import View

__all__ = ["FeatureInversionWhite"]

_STEPS = 400
_RATE = 0.1
_RESTS = 6
"""Of each record the last so many rounds are used."""


@register("attack")
class FeatureInversionWhite(FeatureInference):
    """White box: the likeliest rows given all embeddings of a record, its model's parameters of each round known.

    It minimises Σ ‖f_t(x) - h_t‖²/σ² + ‖z‖² over z, with x = μ + zL: μ and L of a Gaussian that the known records
    suggest. σ is the noise's std; without noise, a hundredth of the embeddings' spread. Rows of one message move
    together, so that a clip of the whole batch is undone too. It begins with what a black box would say: from the mean
    a ReLU that was open for a record but is shut for the mean would never open.
    """

    name = "feature_inversion_white"
    summary = "finds the features that a known model maps to the embeddings seen"
    needs = UPLINKS
    knows = frozenset({"records", "model"})
    heavy = True

    def missing(self, view: View, auxiliary: FeatureAuxiliary) -> str | None:
        if auxiliary.victim not in auxiliary.models:
            return "the victim's model"
        rounds = auxiliary.models[auxiliary.victim].rounds
        if not any(s.round in rounds for s in uplinks_of(view, auxiliary.victim)):
            return "embeddings of the victim; this view holds none"
        return None

    def run(self, view: View, auxiliary: FeatureAuxiliary) -> FeatureGuess:
        model = auxiliary.models[auxiliary.victim]
        seen = _recent([s for s in uplinks_of(view, auxiliary.victim) if s.round in model.rounds])
        records, place = torch.cat([s.records for s in seen]).unique(return_inverse=True)
        mean, spread = gaussian(auxiliary.block)
        spreads = torch.cat([s.values for s in seen]).std()
        std = max(auxiliary.noise_std, 0.01 * float(spreads), 1e-6)
        hidden = (_first(seen, auxiliary, mean) - mean) @ torch.linalg.inv(spread)
        hidden = hidden.detach().requires_grad_()
        groups = _by_size(seen, list(place.split([len(s.records) for s in seen])), model)
        optimiser = torch.optim.Adam([hidden], lr=_RATE)
        fade = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, _STEPS, eta_min=_RATE / 50)
        for _ in range(_STEPS):
            optimiser.zero_grad()
            rows = mean + hidden @ spread
            loss = hidden.square().sum()
            for parameters, places, values in groups:
                batch = rows.index_select(0, places.flatten()).unflatten(0, places.shape)
                loss = loss + (model.apply(parameters, batch) - values).square().sum() / std**2
            loss.backward()
            optimiser.step()
            fade.step()
        made = (mean + hidden.detach() @ spread).unsqueeze(0)
        return FeatureGuess(device=auxiliary.victim, records=records, blocks=made)


_Group = tuple[dict[str, Tensor], Tensor, Tensor]


def _first(seen: list[Seen], auxiliary: FeatureAuxiliary, mean: Tensor) -> Tensor:
    """What the known records' decoder says of every record; the mean if too few of them were seen."""
    records, rows = last_and_mean(seen)
    places, known = known_rows(records, auxiliary.records)
    if len(places) < 3:
        return mean.expand(len(records), -1)
    return decode(rows.index_select(0, places), auxiliary.block.index_select(0, known), rows)


def _recent(seen: list[Seen]) -> list[Seen]:
    """The messages in which some record appears for one of its last few times."""
    kept, times = [], torch.zeros(1 + max(int(s.records.max()) for s in seen), dtype=torch.int64)
    for s in reversed(seen):
        records = s.records.cpu()
        if bool((times[records] < _RESTS).any()):
            kept.append(s)
            times[records] += 1
    return kept[::-1]


def _by_size(seen: list[Seen], places: list[Tensor], model: KnownModel) -> list[_Group]:
    """Messages of one batch size as replicas of one pass: parameters (n, …), places (n, B), embeddings (n, B, …)."""
    sizes = dict.fromkeys(len(s.records) for s in seen)
    groups = []
    for size in sizes:
        chosen = [(s, p) for s, p in zip(seen, places, strict=True) if len(s.records) == size]
        each = [model.rounds[s.round] for s, _ in chosen]
        parameters = {name: torch.cat([one[name] for one in each]) for name in each[0]}
        groups.append((parameters, torch.stack([p for _, p in chosen]), torch.stack([s.values for s, _ in chosen])))
    return groups
