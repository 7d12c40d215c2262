"""Which score serves a view, a unit and a canary; or why none does."""

from __future__ import annotations

from dataclasses import dataclass

from vflpriv.audits._thresholds import secret_threshold
from vflpriv.canaries import Canary, CanaryKind
from vflpriv.ledger import Ledger, Reading
from vflpriv.releases import Gaussian
from vflpriv.schedules import Batching
from vflpriv.systems import System
from vflpriv.units import Unit
from vflpriv.views import Adversary

__all__ = ["Method", "canary_unit", "method_of", "threshold_of"]


@dataclass(frozen=True)
class Method:
    """How a trial is scored: by a name of `SCORERS`, or not at all for the reason given."""

    name: str = ""
    refusal: str | None = None


def canary_unit(ledger: Ledger, unit: Unit, kind: CanaryKind) -> Unit:
    """What a canary of this kind changes to test a claim about `unit`.

    A record's contribution sits at the clip as a whole. A record of the data set has its label replaced where noised
    releases speak of labels, its features where they do not.
    """
    if unit is not Unit.RECORD or kind is CanaryKind.WORST_CASE:
        return unit
    noised = [r for r in ledger.releases if isinstance(r.noise, Gaussian)]
    return Unit.LABEL if any(Unit.LABEL in r.sensitivity for r in noised) else Unit.FEATURES


def method_of(system: System, adversary: Adversary, unit: Unit, kind: CanaryKind) -> Method:
    """The likelihood ratio where the ledger allows it, a learned score elsewhere."""
    ledger = system.ledger
    exposure = ledger.exposure(adversary, unit, reading=Reading.PAPER)
    gaussian = any(isinstance(e.noise, Gaussian) for e in exposure.events)
    worst = kind is CanaryKind.WORST_CASE
    if exposure.not_applicable is not None:
        return Method(refusal=f"two-world has nothing to tell: {exposure.not_applicable}")
    if not exposure.events and not exposure.unprotected:
        return Method(refusal=f"nothing that {adversary} sees depends on the {unit} unit")
    if not adversary.knows_batches:
        return _in_secret(system, adversary, exposure.unprotected, worst, gaussian)
    if worst and not gaussian:
        return Method(refusal=f"two-world needs a noised release before {adversary}'s eyes, and there is none")
    if unit.per_record and exposure.events and (exposure.counts is None or not exposure.counts.any()):
        return Method(refusal="two-world needs a record that takes part")
    if unit is Unit.ADD_REMOVE:
        return Method(refusal="two-world has no canary that is present in one world and absent in the other")
    if worst:
        return Method("likelihood ratio")
    if exposure.unprotected or any(not isinstance(e.noise, Gaussian) for e in exposure.events):
        return Method("learned")
    leaks = any(r.leak is not None and unit in r.leak.sensitivity for r in ledger.releases)
    label = canary_unit(ledger, unit, kind) is Unit.LABEL
    return Method("likelihood ratio" if label and not leaks else "twins")


def _in_secret(
    system: System, adversary: Adversary, unprotected: tuple[str, ...], worst: bool, gaussian: bool
) -> Method:
    """Views that do not know the batches: the trained model, or releases of Poisson batches."""
    if adversary.kind == "model" and unprotected and not worst and hasattr(system.engine, "server_noise"):
        return Method("shadow models")
    hidden = system.schedule.batching is Batching.POISSON and hasattr(system.settings, "clip_rule")
    if adversary.kind == "outsider" and worst and gaussian and hidden:
        return Method("secret batches")
    return Method(refusal=f"two-world needs a view that knows the batches, and {adversary} does not")


def threshold_of(system: System, canary: Canary, method: str, *, trials: int, confidence: float) -> float:
    """Where world 0 begins: at zero, or far out where batches are secret."""
    if method != "secret batches":
        return 0.0
    (release,) = (r for r in system.ledger.releases if isinstance(r.noise, Gaussian) and r.additive)
    assert isinstance(release.noise, Gaussian)
    assert canary.rate is not None
    return secret_threshold(
        ratio=release.sensitivity[Unit.RECORD] / release.noise.std,
        rate=canary.rate,
        rounds=int(release.rounds.sum()),
        trials=trials,
        confidence=confidence,
        seed=system.seed,
    )
