"""The pages that a browser is shown: every section of either, with every kind of row."""

from __future__ import annotations

from tests.rendered import page_of
from tests.report.attack_report import attack_report
from tests.report.examples import build, dpzv, joint, split
from tests.report.rows import one_run
from vflpriv.core.claims import Verdict
from vflpriv.report.attacks import ColumnRow, FeatureCell
from vflpriv.report.audit import CheckRow, Staleness, SuccessClaimRow

__all__ = ["attacks_page", "report_page"]


def report_page() -> str:
    """Violated, unsupported, consistent and not applicable claims; a system without any; a test in one run."""
    first, second, third = dpzv(), joint(), split()
    once = second.claims[0].model_copy(update={"measurements": (one_run(0.2),)})
    stale = Staleness(reads=1000, never_sent=0.25, median=3, largest=17)
    first = first.model_copy(update={"staleness": stale, "importance": (0.5, 2.0, 0.1)})
    second = second.model_copy(update={"claims": (once, *second.claims[1:]), "features": _features("joint")})
    third = third.model_copy(update={"success_claims": (_about_attack(),), "checks": (_check(),)})
    return page_of(build(first, second, third, not_tested=("timing of messages",)))


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
        verdict=Verdict.VIOLATED,
        reason="100.0 % of guesses are right, at most 20.0 % were claimed",
        reproduce="vflpriv audit --only split",
    )


def _check() -> CheckRow:
    words = {"audit": "noise", "subject": "scalar", "unit": "record", "reproduce": "vflpriv audit"}
    return CheckRow(**words, figure=0.5, verdict=Verdict.UNSUPPORTED, reason="the noise has half its declared std")


def attacks_page() -> str:
    """A leak that breaks a limit, a defence, attacks that do not apply, and features with a picture."""
    return page_of(attack_report().model_copy(update={"features": _features("split")}))


def _features(system: str) -> tuple[FeatureCell, ...]:
    """With a map and every column, with a picture alone, without any; and membership."""
    plain, refused = (c.model_copy(update={"system": system}) for c in attack_report().features)
    columns = (ColumnRow(error=0.1, mean_error=0.3, value=0.7, low=0.6, high=0.8), ColumnRow(error=0.3, mean_error=0.3))
    mapped = plain.model_copy(update={"attack": "feature_cafe", "map": plain.picture, "columns": columns})
    rates = {"advantage": 0.2, "advantage_low": 0.1, "advantage_high": 0.3, "found": 0.04}
    words = {"attack": "feature_membership", "measure": "AUC", "unit": "record", "picture": None, "victim": None}
    return plain, mapped, refused, plain.model_copy(update={**words, **rates})
