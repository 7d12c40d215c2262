"""A report as `vflpriv attack` would leave it: two systems, a defence, labels and features, a limit broken."""

from __future__ import annotations

from typing import Any

from vflpriv.core.units import Unit
from vflpriv.report.attacks import AttackReport, Cell, FeatureCell, TrainedRow
from vflpriv.run.limits import Limit, held_to
from vflpriv.run.summary.cells import sheet

__all__ = ["attack_report", "cell", "member"]


def cell(attack: str, leakage: float | None, *, error: float = 0.01, **words: Any) -> Cell:
    """Five seeds; chance is one in ten. Without leakage the attack does not apply."""
    names = {"system": "split", "defence": "none", "attack": attack, "adversary": "device(0)", **words}
    if leakage is None:
        return Cell(**names, not_applicable="needs gradients, dpzv sends one scalar")
    reach = 2.776 * error
    return Cell(
        **names,
        success=0.1 + leakage,
        success_low=0.1 + leakage - reach,
        success_high=0.1 + leakage + reach,
        success_error=error,
        chance=0.1,
        leakage=leakage,
        low=leakage - reach,
        high=leakage + reach,
        leakage_error=error,
        guesses=1437,
    )


def member(**words: Any) -> FeatureCell:
    """A figure of membership, as an audit has it."""
    names = {"system": "split", "defence": "none", "adversary": "server", "attack": "feature_membership"}
    numbers = {"success": 0.6, "success_low": 0.55, "success_high": 0.65, "success_error": 0.02, "chance": 0.5}
    numbers |= {"leakage": 0.1, "low": 0.05, "high": 0.15, "leakage_error": 0.02, "epsilon": 2.0, "delta": 1e-5}
    numbers |= {"advantage": 0.1, "advantage_low": 0.0, "advantage_high": 0.2}
    numbers |= {"found": 0.02, "found_low": 0.0, "found_high": 0.1}
    numbers |= {"rarely_found": 0.003, "rarely_found_low": 0.001, "rarely_found_high": 0.017}
    words = {"knows": ("labels", "membership"), "unit": Unit.RECORD, "measure": "AUC", "guesses": 300, **words}
    return FeatureCell(**{**names, **numbers, **words})


def attack_report(limits: tuple[str, ...] = ("leakage>0.05",), correction: str = "holm") -> AttackReport:
    import numpy as np

    cells = (
        cell("label_direct", 0.9, error=0.0),
        cell("label_direct", None, system="dpzv"),
        cell("label_norm", 0.07, error=0.007, adversary="eavesdropper"),
        cell("label_norm", 0.02, defence="alibi"),
        cell("label_norm", -0.01, system="dpzv"),
    )
    names = {"system": "split", "defence": "none", "adversary": "server", "victim": 1, "knows": ("records",)}
    picture = sheet(np.zeros((2, 3, 1, 4, 4)))
    numbers = {"success": 0.7, "success_low": 0.6, "success_high": 0.8, "success_error": 0.03, "chance": 0.0}
    numbers |= {"leakage": 0.7, "low": 0.6, "high": 0.8, "leakage_error": 0.03, "epsilon": 3.0, "delta": 1e-5}
    features = (
        FeatureCell(**names, attack="feature_inversion", picture=picture, **numbers),
        FeatureCell(**names, attack="feature_esa", not_applicable="needs summed logits"),
    )
    rows = [("split", "none", None), ("split", "alibi", None), ("dpzv", "none", None), ("dpzv", "alibi", "no setting")]
    trained = tuple(
        TrainedRow(
            system=system,
            title=f"{system} learning",
            engine=system,
            defence=defence,
            settings={"rounds": 4},
            accuracy=None if why else 0.9,
            not_applicable=why,
        )
        for system, defence, why in rows
    )
    report = AttackReport(
        tool_version="0.1.0",
        seed=0,
        confidence=0.95,
        seeds=5,
        labels_per_class=4,
        data={"name": "digits", "records": 1437, "devices": 4, "classes": 10},
        trained=trained,
        cells=cells,
        features=features,
    )
    return held_to(report, [Limit.parse(text) for text in limits], correction)
