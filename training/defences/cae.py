"""CAE and DCAE: the server trains on soft labels that an autoencoder confuses, and decodes predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from vflpriv.common.devices import widest_float
from vflpriv.common.lazy import torch
from vflpriv.common.registry import register
from vflpriv.core.kinds import Content
from vflpriv.training.defence import Defence, Exchange, Guard, Protected
from vflpriv.training.defences.discrete import Discrete
from vflpriv.training.models.base import Mlp, first_replicas, initialise

if TYPE_CHECKING:
    from torch import Tensor

    from vflpriv.core.law import Draws

__all__ = ["Autoencoder", "Cae", "Dcae"]

_STEPS = 300
_RATE = 3e-3


class Autoencoder:
    """Encoder and decoder of one-hot labels, of R replicas, trained once on all C of them, before anything else.

    Each is an MLP with a hidden layer of 6·C units and a softmax. The loss of a label y with the soft label e and the
    decoded one d is CE(y, d) - confusion · CE(y, e) - entropy · H(e). The second term has no bound: steps are few.
    """

    def __init__(self, stream: Draws, classes: int, *, confusion: float, entropy: float) -> None:
        self._model = Mlp((classes, 6 * classes, classes), activate=False)
        device = stream.device
        wide = widest_float(device)
        # In float64, so that equal replicas stay equal whatever they are trained beside.
        halves = [{n: w.to(wide) for n, w in initialise(self._model, stream, k).items()} for k in (0, 1)]
        onehot = torch.eye(classes, dtype=wide, device=device).expand(stream.replicas, -1, -1)
        self._train(halves, onehot, confusion, entropy)
        encoder, self.decoder = ({n: w.detach().to(torch.float32) for n, w in half.items()} for half in halves)
        self.soft = torch.softmax(self._model.apply(encoder, onehot.to(torch.float32)), dim=-1)
        """(R, C, C): the soft label of each class."""

    def _train(self, halves: list[dict[str, Tensor]], onehot: Tensor, confusion: float, entropy: float) -> None:
        weights = [w.requires_grad_() for half in halves for w in half.values()]
        adam = torch.optim.Adam(weights, lr=_RATE)
        for _ in range(_STEPS):
            with torch.enable_grad():
                soft = torch.log_softmax(self._model.apply(halves[0], onehot), dim=-1)
                decoded = torch.log_softmax(self._model.apply(halves[1], soft.exp()), dim=-1)
                gain = confusion * (onehot * soft).sum(-1) + entropy * (soft.exp() * soft).sum(-1)
                loss = (gain - (onehot * decoded).sum(-1)).mean(1).sum()
            for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
                weight.grad = gradient
            adam.step()

    def decoded(self, soft: Tensor) -> Tensor:
        """(replicas, B, C) log-probabilities of labels, from soft ones (replicas, B, C) of the first replicas."""
        return torch.log_softmax(self._model.apply(first_replicas(self.decoder, len(soft)), soft), dim=-1)


@register("defence")
class Cae(Defence):
    """A confusional autoencoder turns each label into a soft one that is largest at another class, and is trained on.

    "Defending Batch-Level Label Inference and Replacement Attacks in Vertical Federated Learning" (Zou et al., IEEE
    Transactions on Big Data 2022). Whoever reads labels off gradients reads the soft ones; predictions are decoded. All
    records of a class share one soft label, so that a few known labels undo it. It promises no ε. Weights and Adam on
    all one-hot labels are those of FATE's implementation, with 6·C instead of (6·C)² hidden units.
    """

    name = "cae"
    summary = "the server trains on confused soft labels, and decodes predictions"
    source = "Zou et al. 2022, CAE"
    content = Content.GRADIENT
    confusion: float = Field(1.0, ge=0, description="λ₁, how far the soft label is kept from the label")
    entropy: float = Field(2.0, ge=0, description="λ₂, the weight of the soft label's entropy")

    def guard(self, stream: Draws) -> Guard:
        return _Confused(stream, self.confusion, self.entropy)


class _Confused(Guard):
    def __init__(self, stream: Draws, confusion: float, entropy: float) -> None:
        self._stream, self._confusion, self._entropy = stream, confusion, entropy
        self._held: Autoencoder | None = None

    def _autoencoder(self, classes: int) -> Autoencoder:
        if self._held is None:
            self._held = Autoencoder(self._stream, classes, confusion=self._confusion, entropy=self._entropy)
        return self._held

    def targets(self, labels: Tensor, classes: int) -> Tensor:
        soft = self._autoencoder(classes).soft
        if labels.is_floating_point():
            return torch.bmm(labels, soft)
        return soft.gather(1, labels.unsqueeze(-1).expand(-1, -1, classes))

    def decoded(self, logits: Tensor) -> Tensor:
        return self._autoencoder(logits.shape[-1]).decoded(torch.softmax(logits, dim=-1))


@register("defence")
class Dcae(Cae):
    """CAE, and every gradient rounded to a few steps (`discrete`), so that less of the soft labels shows.

    "Defending Batch-Level Label Inference and Replacement Attacks in Vertical Federated Learning" (Zou et al., IEEE
    Transactions on Big Data 2022), DCAE. It promises no ε.
    """

    name = "dcae"
    summary = "the server trains on confused soft labels, and rounds its gradients to a few steps"
    source = "Zou et al. 2022, DCAE"
    steps: int = Field(12, ge=1, description="number of intervals between -bound and bound")
    bound: float = Field(2.0, gt=0, description="bound in multiples of the root mean square of a batch's entries")

    def guard(self, stream: Draws) -> Guard:
        return _ConfusedAndRounded(self, stream)


class _ConfusedAndRounded(_Confused):
    def __init__(self, defence: Dcae, stream: Draws) -> None:
        super().__init__(stream, defence.confusion, defence.entropy)
        self._rounded = Discrete(steps=defence.steps, bound=defence.bound).guard(stream)

    def protect(self, values: Tensor, exchange: Exchange) -> Protected:
        return self._rounded.protect(values, exchange)
