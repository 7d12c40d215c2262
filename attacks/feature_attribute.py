"""A sensitive column of the features: a classifier from what is seen of a record to whether it is 1."""

from __future__ import annotations

import torch
from torch import Tensor

from vflpriv.attacks._decoder import decode
from vflpriv.attacks._feature_base import FeatureInference, own_features
from vflpriv.attacks._observations import REPLIES, UPLINKS, Seen, known_rows, last_and_mean, replies_of_own, uplinks_of
from vflpriv.common.registry import register
from vflpriv.core.attack import AttributeGuess, FeatureAuxiliary
from vflpriv.core.views import View

__all__ = ["FeatureAttribute"]


@register("attack")
class FeatureAttribute(FeatureInference):
    """Least squares with a kernel, from records whose attribute it knows, on the victim's embeddings.

    A curious device, which does not see these, takes what it is sent of each record, beside its own features.
    """

    name = "feature_attribute"
    summary = "predicts a sensitive column from embeddings, learnt from a few known records"
    target = "attribute"
    needs = UPLINKS | REPLIES
    knows = frozenset({"attribute"})

    def missing(self, view: View, auxiliary: FeatureAuxiliary) -> str | None:
        if auxiliary.attribute is None or bool((auxiliary.attribute == auxiliary.attribute[:1]).all()):
            return "known records with the attribute and without"
        return (
            None if _signal(view, auxiliary.victim) else "something that depends on each record; this view has nothing"
        )

    def run(self, view: View, auxiliary: FeatureAuxiliary) -> AttributeGuess:
        records, rows = last_and_mean(_signal(view, auxiliary.victim))
        if view.own:
            rows = torch.cat((rows, own_features(view).index_select(0, records)), dim=1)
        return _classify(records, rows, auxiliary)

    def blind(self, view: View, auxiliary: FeatureAuxiliary) -> AttributeGuess | None:
        if not view.own:
            return None
        rows = own_features(view)
        return _classify(torch.arange(len(rows), device=rows.device), rows, auxiliary)


def _signal(view: View, victim: int) -> list[Seen]:
    return replies_of_own(view) if view.own else uplinks_of(view, victim)


def _classify(records: Tensor, rows: Tensor, auxiliary: FeatureAuxiliary) -> AttributeGuess:
    assert auxiliary.attribute is not None
    places, known = known_rows(records, auxiliary.records)
    target = auxiliary.attribute.index_select(0, known).to(rows.dtype).unsqueeze(1)
    scores = decode(rows.index_select(0, places), target, rows, bounded=False)[:, 0]
    return AttributeGuess(device=auxiliary.victim, records=records, scores=scores.unsqueeze(0))
