"""The augmented Lagrangian of an ADMM training by rounds, and what VIMADMM's Theorem 1 asks of a training.

"Improving Privacy-Preserving Vertical Federated Learning by Efficient Communication with ADMM" (Xie et al., here
VIMADMM). Theorem 1: the Lagrangian decreases in every round, if ρ lies between two bounds and all steps are exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from vflpriv.common.lazy import no_grad, torch
from vflpriv.core.wire import Wire
from vflpriv.training.engines.admm import AdmmEngine
from vflpriv.training.engines.vimadmm import Vimadmm

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["followed_round", "unmet_conditions"]

_SMOOTH = 0.5
"""L: the Hessian of cross-entropy by logits, diag(p) - ppᵀ, has no eigenvalue above 1/2."""


def followed_round(engine: AdmmEngine, round_: int, wire: Wire) -> Tensor:
    """Train one round, and return its Lagrangian, (R,)."""
    regularisers = engine.regularisers()
    engine.round(round_, wire)
    return engine.constrained_loss() + regularisers


def unmet_conditions(engine: AdmmEngine) -> tuple[str, ...]:
    """The conditions of Theorem 1 that a training does not meet, by its settings and its models as they are now."""
    if not isinstance(engine, Vimadmm) or engine.settings.heads != "linear":
        return ("The theorem is about Algorithm 1 with linear heads.",)
    return tuple(_unmet(engine))


def _unmet(engine: Vimadmm) -> Iterator[str]:
    s, records, least = engine.settings, engine.data.records, int(engine.schedule.size.min())
    if least < records:
        yield f"Every round must use all {records} records; the smallest batch has {least}."
    yield f"Every step must reach its minimum; heads take one SGD step in a round, and devices {s.local_steps}."
    yield "The Lagrangian must be strongly convex in the devices' parameters; behind ReLU it is not convex."
    # Cross-entropy is not strongly convex, so that the quadratic term alone gives μ_z = ρ.
    lower = max(_SMOOTH, 2 * _SMOOTH**2 / s.penalty)
    if s.penalty <= lower:
        yield f"ρ must be above max(L, 2L²/μ_z) = {lower:.3g}; it is {s.penalty:.3g}."
    upper = _upper_bound(engine)
    if s.penalty >= upper:
        yield f"ρ must be below μ_W/σ_θ², which is {upper:.3g} on the last batch; it is {s.penalty:.3g}."


@no_grad
def _upper_bound(engine: Vimadmm) -> float:
    """The largest ρ that every head allows, μ_W/σ_θ², over the embeddings of the last batch.

    As a function of one head the Lagrangian has the Hessian β + ρ HHᵀ/b for each class; its least eigenvalue is μ_W.
    σ_θ is the largest norm of an embedding.
    """
    s, embeddings = engine.settings, engine.embeddings().double()
    gram = torch.bmm(embeddings.transpose(1, 2), embeddings) / embeddings.shape[1]
    convexity = s.weight_decay + s.penalty * torch.linalg.eigvalsh(gram)[:, 0].clamp(min=0)
    return float((convexity / embeddings.square().sum(2).amax(1)).min())
