"""Attack reports of one system under defences with given accuracy and leakage."""

from __future__ import annotations

import math

from tests.report.attack_report import cell
from vflpriv.report.attacks import AttackReport, Cell, TrainedRow

__all__ = ["report_of"]


def report_of(variants: dict[str, tuple[float, ...]], *, error: float = 0.01, loss: float = 0.05) -> AttackReport:
    """`variants` has test accuracy, leakage and perhaps ε by defence; one weaker attack is tried beside the best."""
    trained, cells = [], []
    for defence, (accuracy, leakage, *epsilon) in variants.items():
        trained.append(_trained(defence, accuracy))
        cells += _cells(defence, leakage, epsilon[0] if epsilon else None, error)
    return AttackReport(
        tool_version="1",
        seed=0,
        confidence=0.95,
        seeds=5,
        labels_per_class=4,
        affordable_loss=loss,
        data={"name": "digits", "devices": 4},
        trained=tuple(trained),
        cells=tuple(cells),
    )


def _trained(defence: str, accuracy: float) -> TrainedRow:
    return TrainedRow(
        system="split",
        title="split learning",
        engine="split",
        defence=defence,
        settings={},
        accuracy=accuracy,
        accuracy_low=accuracy - 0.02,
        accuracy_high=accuracy + 0.02,
    )


def _cells(defence: str, leakage: float, epsilon: float | None, error: float) -> list[Cell]:
    allowed = None if epsilon is None else math.tanh(epsilon / 2)
    budget = {"defence": defence, "error": error, "epsilon": epsilon, "allowed": allowed}
    best = cell("label_batch", leakage, **budget)
    weaker = cell("label_norm", leakage - 0.1, **budget, adversary="eavesdropper")
    return [weaker, best, cell("label_dual", None, **budget)]
