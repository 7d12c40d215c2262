"""The pages that a browser is shown: every section of either, with every kind of row."""

from __future__ import annotations

import numpy as np

from tests.report.examples import build, dpzv, joint, split
from tests.report.rows import one_run
from vflpriv.render_attacks import attacks_html
from vflpriv.render_html import render_html
from vflpriv.render_pictures import sheet
from vflpriv.report import CheckRow, Staleness, SuccessClaimRow
from vflpriv.report_attacks import AttackReport, Cell, FeatureCell, TrainedRow
from vflpriv.report_limits import Limit
from vflpriv.verdicts import Word

__all__ = ["attacks_page", "report_page"]


def report_page() -> str:
    """Violated, unsupported, consistent and not applicable claims; a system without any; a test in one run."""
    first, second, third = dpzv(), joint(), split()
    once = second.claims[0].model_copy(update={"measurements": (), "one_run": one_run(0.2)})
    stale = Staleness(reads=1000, never_sent=0.25, median=3, largest=17)
    first = first.model_copy(update={"staleness": stale, "importance": (0.5, 2.0, 0.1)})
    second = second.model_copy(update={"claims": (once, *second.claims[1:])})
    third = third.model_copy(update={"success_claims": (_about_attack(),), "checks": (_check(),)})
    return render_html(build(first, second, third, not_tested=("timing of messages",)))


def _about_attack() -> SuccessClaimRow:
    return SuccessClaimRow(
        key="defends",
        source="vfl-cascaded",
        where="Theorem V.1",
        statement="It can defend against existing attacks.",
        unit="label",
        adversary="device",
        attack="label_gradient",
        rate=0.2,
        success=1.0,
        low=0.997,
        high=1.0,
        chance=0.1,
        guesses=1437,
        p_adjusted=1e-9,
        verdict=Word.VIOLATED,
        reason="100.0 % of guesses are right, at most 20.0 % were claimed",
        reproduce="vflpriv audit --only split",
    )


def _check() -> CheckRow:
    words = {"audit": "noise", "subject": "scalar", "unit": "record", "reproduce": "vflpriv audit"}
    return CheckRow(**words, figure=0.5, verdict=Word.UNSUPPORTED, reason="the noise has half its declared std")


def attacks_page() -> str:
    """A leak, a defence against it, an attack that does not apply, and features with a picture."""
    row = TrainedRow(system="split", title="Split", engine="split", defence="none", settings={}, accuracy=0.9)
    trained = [row, row.model_copy(update={"defence": "rr"})]
    left_out = row.model_copy(update={"defence": "noise", "accuracy": None, "not_applicable": "no such setting"})
    found = AttackReport(
        tool_version="0.1.0",
        seed=0,
        confidence=0.95,
        seeds=5,
        labels_per_class=4,
        data={"name": "digits", "records": 1437, "devices": 4, "classes": 10},
        trained=(*trained, left_out),
        cells=(_cell("none", 1.0), _cell("rr", 0.12), _refused("none"), _refused("rr"), _norm()),
        features=(_feature(),),
    )
    held = found.held_to([Limit.parse("leakage>0.05")], "holm")
    assert held.breaches
    return attacks_html(held)


def _cell(defence: str, success: float) -> Cell:
    leak = success - 0.106
    return Cell(
        system="split",
        defence=defence,
        attack="label_direct",
        adversary="device(0)",
        success=success,
        success_low=success - 0.01,
        success_high=min(1.0, success + 0.01),
        success_error=0.004,
        chance=0.106,
        leakage=leak,
        low=leak - 0.01,
        high=leak + 0.01,
        leakage_error=0.004,
        epsilon=2.0,
        delta=1e-3,
        allowed=0.3,
        guesses=1437,
    )


def _refused(defence: str) -> Cell:
    why = "needs dual variables of each record; the server sends gradients"
    return Cell(system="split", defence=defence, attack="label_norm", adversary="device(0)", not_applicable=why)


def _norm() -> Cell:
    return _cell("none", 0.4).model_copy(update={"attack": "label_norm", "adversary": "eavesdropper"})


def _feature() -> FeatureCell:
    cell = _cell("none", 0.8).model_dump() | {"attack": "feature_inversion", "adversary": "server"}
    cell |= {"victim": 1, "knows": ("records",), "error": 0.1}
    return FeatureCell(**cell, picture=sheet(np.linspace(0, 1, 2 * 3 * 4 * 4).reshape(2, 3, 1, 4, 4)))
