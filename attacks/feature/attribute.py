"""A sensitive column of the features: a classifier that predicts it from the messages about a record."""

from __future__ import annotations

import torch
from torch import Tensor

from vflpriv.attacks._base import FeatureInference, own_features
from vflpriv.attacks._estimators import decode
from vflpriv.attacks._observations import (
    REPLIES,
    UPLINKS,
    Observation,
    known_positions,
    last_and_mean,
    replies_to_own,
    uplinks_of,
)
from vflpriv.common.registry import register
from vflpriv.core.attack import FeatureAuxiliary, Guess
from vflpriv.core.views import View

__all__ = ["FeatureAttribute", "FeatureAttributeOthers"]


@register("attack")
class FeatureAttribute(FeatureInference):
    """Kernel ridge regression on the victim's embeddings, fitted to records whose attribute the adversary knows.

    A curious device that does not see the embeddings uses the replies about each record and its own features.
    """

    name = "feature_attribute"
    summary = "predicts a sensitive column from embeddings, learnt from a few known records"
    target = "attribute"
    needs = UPLINKS | REPLIES
    knows = frozenset({"attribute"})
    by_record = True

    def missing(self, view: View, auxiliary: FeatureAuxiliary) -> str | None:
        if auxiliary.attribute is None or bool((auxiliary.attribute == auxiliary.attribute[:1]).all()):
            return "known records with and without the attribute"
        return None if _observed(view, auxiliary.victim) else "messages about each record; this view holds none"

    def run(self, view: View, auxiliary: FeatureAuxiliary) -> Guess:
        records, rows = last_and_mean(_observed(view, auxiliary.victim))
        if view.own:
            rows = torch.cat((rows, own_features(view).index_select(0, records)), dim=1)
        return _classify(records, rows, auxiliary)

    def blind(self, view: View, auxiliary: FeatureAuxiliary) -> Guess | None:
        if not view.own:
            return None
        rows = own_features(view)
        return _classify(torch.arange(len(rows), device=rows.device), rows, auxiliary)


@register("attack")
class FeatureAttributeOthers(FeatureInference):
    """The same classifier, fitted to what the adversary sees of a training of its own on other people, whose attribute
    it knows; it knows nothing of any record of the victim.

    It models a curious server, or whoever listens. Its training begins at the same first parameters, which come from a
    public seed: the first message about each record is therefore read, of which both devices' models are nearly the
    same. Where outputs are noised, all of a record's messages are averaged. Shadow models for the attributes of one
    record are those of "Membership Inference Attacks Against Machine Learning Models" (Shokri et al., S&P 2017) turned
    to messages. Chance level: an AUC of 0.5.
    """

    name = "feature_attribute_others"
    summary = "predicts a sensitive column, learnt from a training of its own on other people"
    target = "attribute"
    needs = UPLINKS
    knows = frozenset({"others"})

    def missing(self, view: View, auxiliary: FeatureAuxiliary) -> str | None:
        if not uplinks_of(view, auxiliary.victim):
            return "what the victim sends of each record; this view holds none of it"
        others = auxiliary.others
        if others is None or bool((others.attribute == others.attribute[:1]).all()):
            return "a training of its own, on held-out records with and without the attribute"
        return None

    def run(self, view: View, auxiliary: FeatureAuxiliary) -> Guess:
        others = auxiliary.others
        assert others is not None
        records, rows = _read(uplinks_of(view, auxiliary.victim), auxiliary)
        known, inputs = _read(uplinks_of(others.view, auxiliary.victim), auxiliary)
        target = others.attribute.index_select(0, known).to(rows.dtype).unsqueeze(1)
        return Guess(records, decode(inputs, target, rows, bounded=False)[:, 0].unsqueeze(0))


def _read(observations: list[Observation], auxiliary: FeatureAuxiliary) -> tuple[Tensor, Tensor]:
    """Records (n,), sorted, and (n, width) what was sent of each first; where it is noised, the mean of all."""
    records, rows = last_and_mean(observations[::-1])
    width = rows.shape[1] // 2
    return records, rows[:, width:] if auxiliary.noise_std else rows[:, :width]


def _observed(view: View, victim: int) -> list[Observation]:
    return uplinks_of(view, victim) or replies_to_own(view)


def _classify(records: Tensor, rows: Tensor, auxiliary: FeatureAuxiliary) -> Guess:
    assert auxiliary.attribute is not None
    positions, known = known_positions(records, auxiliary.records)
    target = auxiliary.attribute.index_select(0, known).to(rows.dtype).unsqueeze(1)
    scores = decode(rows.index_select(0, positions), target, rows, bounded=False)[:, 0]
    return Guess(records, scores.unsqueeze(0))
