"""Reports that every format is rendered from: a whole one, one claim alone, and one with names that would do harm."""

from __future__ import annotations

import pytest

from tests.report.examples import HOSTILE, build, dpzv, dpzv_device_claim, whole
from tests.report.rows import attack, budget, measured, one_run, releases, spending, views
from vflpriv.report.audit import ChangeRow, Fingerprint, Report


@pytest.fixture(scope="session")
def report() -> Report:
    """Everything: violated, unsupported, consistent and not applicable claims, infinities, a system without claims."""
    return whole()


@pytest.fixture(scope="session")
def small() -> Report:
    """One system, one claim."""
    return build(dpzv().model_copy(update={"claims": (dpzv_device_claim(),), "budgets": ()}))


@pytest.fixture(scope="session")
def hostile() -> Report:
    """Every free text is an attempt to escape from the format it is printed in."""
    bad = {"title": HOSTILE, "engine": HOSTILE, "settings": {HOSTILE: HOSTILE}, "data": {HOSTILE: [HOSTILE]}}
    row = budget("device", None, reading=HOSTILE, unprotected=(HOSTILE,), assumptions=(HOSTILE,), method=HOSTILE)
    measurement = measured("natural", 0.5, (90, 100)).model_copy(
        update={"subject": HOSTILE, "description": HOSTILE, "adversary": HOSTILE, "method": HOSTILE, "effort": HOSTILE}
    )
    words = dict.fromkeys(("key", "source", "where", "statement", "unit_description", "reason", "reproduce"), HOSTILE)
    once = one_run(decides=False).model_copy(
        update={"subject": HOSTILE, "outcome": HOSTILE, "notes": (HOSTILE,), "tool": HOSTILE, "assumptions": (HOSTILE,)}
    )
    seen = tuple(v.model_copy(update={"adversary": HOSTILE, "unprotected": (HOSTILE,)}) for v in views())
    rows = {"accounted": row, "measurements": (measurement, once), "views": seen}
    rows |= {"spending": (spending(HOSTILE, (1.0, 2.0)),)}
    rows |= {"broken": (HOSTILE,), "changes": (ChangeRow(sentence=HOSTILE, settings={HOSTILE: HOSTILE}),)}
    claims = (dpzv_device_claim().model_copy(update=words | rows),)
    texts = dict.fromkeys(("audit", "subject", "unit", "reason", "reproduce"), HOSTILE)
    checks = tuple(check.model_copy(update=texts) for check in dpzv().checks)
    bad |= {"noise_source": HOSTILE, "key": HOSTILE}
    bad |= {"releases": tuple(r.model_copy(update={"kind": HOSTILE, "what": HOSTILE}) for r in releases())}
    attacks = (attack(HOSTILE, HOSTILE, None, None, HOSTILE), attack(HOSTILE, "device", 0.5, 0.1))
    system = dpzv().model_copy(update=bad | {"claims": claims, "budgets": (row,), "checks": checks, "attacks": attacks})
    whole = build(system, not_tested=(HOSTILE,))
    printed = {"date": HOSTILE, "fingerprints": (Fingerprint(name=HOSTILE, sha256=HOSTILE),)}
    return whole.model_copy(update={"config": {HOSTILE: HOSTILE}, **printed})
