"""Features from embeddings of an unknown model: a curious server learns to decode them from records it knows."""

from __future__ import annotations

from vflpriv.attacks._decoder import decode
from vflpriv.attacks._feature_base import FeatureInference
from vflpriv.attacks._observations import UPLINKS, known_rows, last_and_mean, uplinks_of
from vflpriv.common.registry import register
from vflpriv.core.attack import FeatureAuxiliary, FeatureGuess
from vflpriv.core.views import View

__all__ = ["FeatureInversion"]


@register("attack")
class FeatureInversion(FeatureInference):
    """Black box: pairs of a known record's embedding and its features train a decoder for everyone else's."""

    name = "feature_inversion"
    summary = "decodes features from embeddings, learnt from a few known records"
    needs = UPLINKS
    knows = frozenset({"records"})

    def missing(self, view: View, auxiliary: FeatureAuxiliary) -> str | None:
        seen = uplinks_of(view, auxiliary.victim)
        if not seen:
            return "embeddings of the victim; this view holds none"
        places, _ = known_rows(last_and_mean(seen)[0], auxiliary.records)
        return None if len(places) >= 3 else f"embeddings of known records; it saw {len(places)}"

    def run(self, view: View, auxiliary: FeatureAuxiliary) -> FeatureGuess:
        records, rows = last_and_mean(uplinks_of(view, auxiliary.victim))
        places, known = known_rows(records, auxiliary.records)
        made = decode(rows.index_select(0, places), auxiliary.block.index_select(0, known), rows)
        return FeatureGuess(device=auxiliary.victim, records=records, blocks=made.unsqueeze(0))
