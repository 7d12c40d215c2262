"""The server's ADMM steps, for every record and replica at once (vimadmm.txt eqs 5, 6, 8; 19-21 are the same)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from vflpriv.training._targets import as_target

__all__ = ["auxiliary_and_duals", "newton_steps", "pull", "pull_through", "residuals"]


def auxiliary_and_duals(outputs: Tensor, labels: Tensor, duals: Tensor, *, penalty: float) -> tuple[Tensor, Tensor]:
    """The new z and λ, (…, C) each, from ŷ (…, C), the labels (…) or a posterior of them (…, C), and the old λ (…, C).

    Eq. (5): z = argmin CE(z, y) - λᵀz + ρ/2 ‖ŷ - z‖². Eq. (6): λ += ρ(ŷ - z). At the minimum the new λ is
    softmax(z) - onehot(y) (Lemma 1): whoever is sent λ reads the label off its one negative entry. A posterior q takes
    the place of onehot(y): the gradient of cross-entropy against it is softmax(z) - q.

    Computed in float64, so that Lemma 1 holds to float32's last digit; in float32 where the device has nothing wider.
    """
    wide = torch.float32 if outputs.device.type == "mps" else torch.float64
    y_hat, old = outputs.to(wide), duals.to(wide)
    rho, target = penalty, as_target(labels, y_hat)
    z = _proximal_log_sum_exp(y_hat + (old + target) / rho, rho)
    return z.to(outputs.dtype), (old + rho * (y_hat - z)).to(outputs.dtype)


def newton_steps(penalty: float) -> int:
    """How many steps reach float64's precision: 9 at ρ = 1, 11 at 0.1, 38 at 0.01. Known to the host: nothing waits."""
    return 8 + math.ceil(0.3 / penalty)


def _proximal_log_sum_exp(centre: Tensor, rho: float) -> Tensor:
    """argmin over z of logsumexp(z) + ρ/2 ‖z - a‖², for every row a of `centre`: eq. (5), its linear terms in a.

    Newton, with the Hessian diag(p + ρ) - ppᵀ inverted by Sherman-Morrison; its denominator 1 - Σ p²/(p + ρ) is
    ρ Σ p/(p + ρ), which cannot cancel. The step along the direction n has the length t = log(1 + r)/r with
    r = max n - min n: log-sum-exp's third derivative along n is at most r times its second, so that this t minimises an
    upper bound of the objective and every step descends, from any start; t → 1 keeps the convergence quadratic.
    The solution is a - p/ρ with p in the simplex: the start a - softmax(a)/ρ is never farther away than √2/ρ.
    """
    a = centre
    z = a - torch.softmax(a, -1) / rho
    for _ in range(newton_steps(rho)):
        p = torch.softmax(z, -1)
        share = p / (p + rho)
        n = (p + rho * (z - a)) / (p + rho)
        n = n + share * (p * n).sum(-1, keepdim=True) / (rho * share.sum(-1, keepdim=True))
        r = (n.amax(-1, keepdim=True) - n.amin(-1, keepdim=True)).clamp(min=1e-12)
        z = z - torch.log1p(r) / r * n
    return z


def residuals(outputs: Tensor, auxiliary: Tensor) -> Tensor:
    """Each device's s (M, R, B, C) = z minus what the other devices' outputs (M, R, B, C) add up to (eqs 8, 21)."""
    return outputs + (auxiliary - outputs.sum(0))


def pull(outputs: Tensor, duals: Tensor, residual: Tensor, *, penalty: float) -> Tensor:
    """The gradient, by the outputs o, of Σ λᵀo + ρ/2 ‖s - o‖²: what heads and bottoms descend (eqs 7, 9, 22, 23)."""
    return torch.add(duals, outputs - residual, alpha=penalty)


def pull_through(embedding: Tensor, head: Tensor, constant: Tensor, scale: float) -> Tensor:
    """`pull` by o = hW for linear heads, over the batch size b, records last: (k, C, B).

    It is constant + scale · o with scale = ρ/b and the constant (λ - ρs)/b, which a device's steps do not change.
    """
    return torch.baddbmm(constant, head.transpose(1, 2), embedding.transpose(1, 2), alpha=scale)
