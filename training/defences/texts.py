"""Sanitised texts: every token is replaced, once, by one that is drawn among those that are near it.

All that a device sends of a sanitised text is post-processing of it. Padding stays, so that the length of a text is not
hidden. The ledger gives no credit: its units are whole records, of which these guarantees speak token by token.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from vflpriv.common.lazy import torch
from vflpriv.common.registry import register
from vflpriv.training.defence import Defence, Guard

if TYPE_CHECKING:
    from torch import Tensor

    from vflpriv.core.law import Draws

__all__ = ["CusText", "SanText"]

_PADDING = 0
_TOGETHER = 256
"""Tokens whose distances to all others are held at a time."""


class _TextDefence(Defence):
    """Base of defences that replace tokens. A subclass says how likely each replacement is (`probabilities`)."""

    of_texts: ClassVar[bool] = True
    epsilon: float = Field(1.0, gt=0, description="ε of one token")

    def guard(self, stream: Draws) -> Guard:
        return _Replaced(self, stream)

    @abstractmethod
    def outputs(self, vectors: Tensor) -> Tensor | None:
        """(V, K) the tokens that each may be replaced by; None if that is any but padding."""

    @abstractmethod
    def probabilities(self, distances: Tensor) -> Tensor:
        """(n, K) of distances (n, K) between the vectors of tokens and of what may replace them."""


@register("defence")
class SanText(_TextDefence):
    """Token x becomes y with probability ∝ e^{-ε d(x, y)/2}, d the distance of their published word vectors.

    "Differential Privacy for Text Analytics via Natural Text Sanitization" (Yue et al., Findings of ACL 2021),
    SanText: metric differential privacy, P[y | x] ≤ e^{ε d(x, x')} P[y | x'], since weights and their sum change by at
    most e^{ε d/2} each. For two texts of n tokens ε is at most ε n D, with D the largest distance of two words.
    """

    name = "santext"
    summary = "devices replace every token by one that is drawn by its distance"
    source = "Yue et al. 2021, SanText"

    @property
    def promise(self) -> str:
        return f"token ε = {self.epsilon:.3g} for each unit of distance"

    def outputs(self, vectors: Tensor) -> Tensor | None:
        return None

    def probabilities(self, distances: Tensor) -> Tensor:
        return torch.softmax(-self.epsilon * distances / 2, dim=-1)


@register("defence")
class CusText(_TextDefence):
    """Tokens are parted into sets of `size` near ones; x becomes y of its own set with probability ∝ e^{ε u(x, y)/2}.

    "A Customized Text Sanitization Mechanism with Differential Privacy" (Chen et al., Findings of ACL 2023): u is the
    nearness, from 0 for the farthest of the set to 1, so that an exponential mechanism with sensitivity 1 keeps ε
    between two tokens of one set. Two tokens of different sets are told apart for certain: it hides which of `size`
    words was written, and not which set.
    """

    name = "custext"
    summary = "devices replace every token by one of a small set of near ones"
    source = "Chen et al. 2023, CusText"
    size: int = Field(20, ge=2, description="tokens of one set")

    @property
    def promise(self) -> str:
        return f"token ε = {self.epsilon:.3g} within sets of {self.size}"

    def outputs(self, vectors: Tensor) -> Tensor | None:
        """Sets are made greedily: of the tokens that are left the first one and those nearest to it."""
        sets = torch.zeros(len(vectors), min(self.size, len(vectors) - 1), dtype=torch.int64, device=vectors.device)
        left = torch.arange(1, len(vectors), device=vectors.device)
        while len(left):
            count = min(sets.shape[1], len(left))
            near = torch.cdist(vectors[left[:1]], vectors[left])[0].topk(count, largest=False).indices
            members = left[near]
            # The last set may be smaller: its first token then stands there several times, for all of the set alike.
            sets[members] = torch.cat((members, members[:1].expand(sets.shape[1] - count)))
            kept = torch.ones(len(left), dtype=torch.bool, device=left.device)
            kept[near] = False
            left = left[kept]
        return sets

    def probabilities(self, distances: Tensor) -> Tensor:
        least, most = distances.amin(-1, keepdim=True), distances.amax(-1, keepdim=True)
        nearness = 1 - (distances - least) / (most - least).clamp(min=1e-30)
        return torch.softmax(self.epsilon * nearness / 2, dim=-1)


class _Replaced(Guard):
    """Draws the replacements of all tokens of all texts of a device."""

    def __init__(self, defence: _TextDefence, stream: Draws) -> None:
        self._defence, self._stream = defence, stream

    def texts(self, ids: Tensor, vectors: Tensor, party: int) -> Tensor:
        outputs, replicas = self._defence.outputs(vectors), self._stream.replicas
        uniform = self._stream.uniform(ids[0].numel(), party).double()
        given = ids.expand(replicas, *ids.shape[1:]).flatten(1)
        drawn = given.clone()
        present = given.unique()
        for tokens in present[present != _PADDING].split(_TOGETHER):
            candidates = torch.arange(1, len(vectors), device=ids.device) if outputs is None else outputs[tokens]
            places = vectors[candidates] if outputs is not None else vectors[candidates].unsqueeze(0)
            distances = torch.cdist(vectors[tokens].unsqueeze(1), places.expand(len(tokens), -1, -1))[:, 0]
            steps = self._defence.probabilities(distances.double()).cumsum(-1)
            for row, token in enumerate(tokens.tolist()):
                here = given == token
                place = torch.searchsorted(steps[row], uniform[here] * steps[row, -1]).clamp(max=steps.shape[1] - 1)
                drawn[here] = (candidates if outputs is None else candidates[row])[place]
        return drawn.view(replicas, *ids.shape[1:])
