"""Feature-space hijacking: a server that teaches a device to send its features in a code of the server's choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from vflpriv.attacks._base import FeatureInference, decode_features, few_known
from vflpriv.attacks._observations import UPLINKS, last_and_mean, recent, uplinks_of
from vflpriv.common.registry import register
from vflpriv.core.attack import Answer, FeatureAuxiliary, Guess
from vflpriv.core.kinds import Content, names_of
from vflpriv.core.views import View

__all__ = ["FeatureHijack"]

_GRADIENTS = names_of(content=Content.GRADIENT)
_SPREAD = 3.0
"""The codes' distance from zero in their standard deviations: outputs behind a ReLU cannot be negative."""
_GROWTH, _CUT = 1.1, 0.5


@register("attack")
class FeatureHijack(FeatureInference):
    """The server sends the victim gradients of its own loss in place of the task's: the mean squared distance of the
    outputs of known records from a code c(x) of their features. The victim's model learns c, for all its records; the
    server then decodes what is sent, as `feature_inversion` does.

    It models a malicious server; no other device is sent anything but honest answers, and the victim cannot tell a
    forged gradient from an honest one. c is the first principal components of the known rows, as many as the output is
    wide. How far a step goes in the victim's model is not known: the gradients grow while the distance falls, and are
    halved when it rises.

    "Unleashing the Tiger: Inference Attacks on Split Learning" (Pasquini, Ateniese, Bernaschi, CCS 2021): there the
    code is a pilot network's, and a discriminator stands for the distance, since the server has public records only.
    Here it knows records that take part and their ids, as all attacks with `records` do, so that no network is trained.

    Chance level: R² = 0, the mean of every feature. What an honest server reaches is `feature_inversion`'s R².
    """

    name = "feature_hijack"
    summary = "a malicious server teaches the victim's model to send its features in a code"
    needs = UPLINKS | _GRADIENTS
    knows = frozenset({"records"})
    forges: ClassVar[bool] = True
    times: ClassVar[int] = 2
    """Of each record so many last outputs are decoded: the first ones are not in the code yet."""

    def missing(self, view: View, auxiliary: FeatureAuxiliary) -> str | None:
        if view.adversary.kind != "server":
            return "to be the server, which sends forged gradients"
        if not view.kinds & _GRADIENTS:
            return "to send gradients of each record, which it forges"
        observations = uplinks_of(view, auxiliary.victim)
        if not observations:
            return "embeddings of the victim; this view holds none"
        return few_known(observations, auxiliary, "embeddings")

    def answers(self, auxiliaries: Sequence[FeatureAuxiliary]) -> Answer:
        """What the server sends in a training of these replicas."""
        return _Hijack(auxiliaries)

    def run(self, view: View, auxiliary: FeatureAuxiliary) -> Guess:
        observations = uplinks_of(view, auxiliary.victim)
        late = recent(observations, self.times)
        # A record that is never sent again late has its earlier outputs.
        if few_known(late, auxiliary, "embeddings") is not None:
            late = observations
        records, rows = last_and_mean(late)
        return Guess(records, decode_features(records, rows, auxiliary).unsqueeze(0))


class _Hijack:
    """The forged gradients of one training of several replicas, each with known records of its own."""

    def __init__(self, auxiliaries: Sequence[FeatureAuxiliary]) -> None:
        self._victim = auxiliaries[0].victim
        self._known = [auxiliary.records for auxiliary in auxiliaries]
        self._rows = [auxiliary.block.flatten(1).to(torch.float32) for auxiliary in auxiliaries]
        self._codes: list[Tensor] = []
        self._gain = [1.0] * len(auxiliaries)
        self._distance = [float("inf")] * len(auxiliaries)

    def __call__(
        self, round_: int, m: int, records: Tensor, sent: Mapping[str, Tensor], honest: Mapping[str, Tensor]
    ) -> Mapping[str, Tensor]:
        del round_
        if m != self._victim or "gradient" not in honest or "embedding" not in sent:
            return honest
        outputs, forged = sent["embedding"], torch.zeros_like(honest["gradient"])
        if not self._codes:
            self._codes = [_code(rows, outputs.shape[-1]) for rows in self._rows]
        for r, known in enumerate(self._known):
            places = torch.isin(records, known.to(records)).nonzero().flatten()
            if len(places):
                code = self._codes[r].to(outputs)[torch.searchsorted(known.to(records), records[places])]
                forged[r, places, : code.shape[1]] = self._slope(r, outputs[r, places, : code.shape[1]] - code)
        return {**honest, "gradient": forged}

    def _slope(self, r: int, apart: Tensor) -> Tensor:
        """The gradient of half the mean squared distance, scaled by what steps have done so far."""
        distance = float(apart.square().mean())
        # Batches differ: only a clear rise says that the last step went too far.
        self._gain[r] *= _CUT if distance > 2 * self._distance[r] else _GROWTH
        self._distance[r] = distance if distance > 2 * self._distance[r] else min(distance, 1.5 * self._distance[r])
        return self._gain[r] * apart / len(apart)


def _code(rows: Tensor, width: int) -> Tensor:
    """(n, k) the first principal components of these rows, with one deviation for all, away from zero."""
    centred = rows - rows.mean(0)
    _, sizes, directions = torch.linalg.svd(centred, full_matrices=False)
    scores = centred @ directions[: min(width, int((sizes > 1e-6 * sizes[0]).sum()))].T
    code: Tensor = _SPREAD + scores / scores.std().clamp(min=1e-6)
    return code
