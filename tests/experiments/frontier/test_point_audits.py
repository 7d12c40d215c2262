"""Audits of points: as many trials as they need, on systems that are smaller where that changes nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vflpriv.audits.two_world.audit import TwoWorldAudit
from vflpriv.common.tasks import InProcess
from vflpriv.core.canaries import CanaryKind
from vflpriv.core.claims import Verdict
from vflpriv.core.systems import System
from vflpriv.core.views import Adversary
from vflpriv.experiments.frontier import point_audits
from vflpriv.experiments.frontier.point_audits import PointAudits
from vflpriv.experiments.frontier.profile import FrontierConfig
from vflpriv.experiments.frontier.result import Point
from vflpriv.experiments.frontier.runner import _Search

ALL = Adversary.parse("devices(all)")


def question(**fields: Any) -> FrontierConfig:
    candidate = {
        "key": "once",
        "engine": {"name": "send-once", "joint_features": "scattering", "grid": 1, "clip": 0.3},
        "tries": [{"rounds": 6, "server_rate": 10.0}],
        "audit": {"joint_features": "none", "features": "random", "embedding": 2},
        "images": True,
    }
    data = {"name": "digits", "devices": 2, "partition": "rows", "train": 200}
    return FrontierConfig.model_validate({"data": data, "candidate": [candidate], "audit_records": 20, **fields})


def audited(config: FrontierConfig, epsilon: float) -> Point:
    (candidate,) = config.candidate
    search = _Search(config, [candidate])
    system = search.at(candidate, candidate.tries[0], epsilon, seed=0).system
    assert isinstance(system, System)
    point = Point(
        epsilon=epsilon,
        accounted=epsilon,
        key="once",
        title="send once",
        engine="send-once",
        settings=system.settings_facts,
        mean=0.9,
        low=0.9,
        high=0.9,
        curves=(),
        tuning_runs=None,
    )
    audits = PointAudits(config=config, system_at=search.at, records=200, executor=InProcess(), store=None, quiet=True)
    return audits.audited(candidate, point)


def test_a_point_is_audited_on_a_smaller_system_with_as_many_trials_as_it_needs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(point_audits, "_FULL_SIZE", 40)
    audit = audited(question(trials=3000, tightness=0.8), 8.0).audit
    assert audit is not None
    assert audit.verdict is Verdict.CONSISTENT
    assert audit.trials == 1000
    assert audit.records == 20
    assert audit.tightness is not None
    assert audit.tightness > 0.8
    assert {r.setting: (r.point, r.audited) for r in audit.reduced} == {
        "joint_features": ("scattering", "none"),
        "features": ("raw", "random"),
        "embedding": (16, 2),
    }
    assert audit.full_size is not None
    assert audit.full_size.same
    assert audit.full_size.distance == pytest.approx(audit.accounted_mu, rel=1e-3)


def test_nothing_is_reduced_where_that_changes_the_distance_of_the_worlds(monkeypatch: pytest.MonkeyPatch):
    distances = iter((1.0, 1.1))
    monkeypatch.setattr(PointAudits, "_distance", lambda *_: next(distances))
    audit = audited(question(trials=40), 8.0).audit
    assert audit is not None
    assert audit.reduced == ()
    assert audit.full_size is not None
    assert not audit.full_size.same


def test_either_size_gives_the_same_scores():
    """Scores over their deviation are normal, with deviation 1 and means that are μ apart, whatever the size."""
    config, trials = question(), 400
    (candidate,) = config.candidate
    search = _Search(config, [candidate])
    found = []
    for settings in (candidate.tries[0], {**candidate.tries[0], **candidate.audit}):
        system = search.at(candidate, settings, 2.0, seed=0, train=20).system
        assert isinstance(system, System)
        trial = TwoWorldAudit().measure(system, [ALL], CanaryKind.WORST_CASE, trials=trials, full=8)[ALL]
        assert trial.replay_refusal is None
        assert trial.replayed == trials - 8
        found.append((np.sqrt(trial.strengths), np.concatenate((trial.scores[0], -trial.scores[1]))))
    (mu, scores), (small_mu, small_scores) = found
    np.testing.assert_allclose(mu, small_mu, rtol=1e-4)
    for each in (scores / mu, small_scores / mu):
        assert each.mean() == pytest.approx(mu[0] / 2, abs=4 / np.sqrt(2 * trials))
        assert each.std() == pytest.approx(1.0, abs=4 / np.sqrt(4 * trials))
