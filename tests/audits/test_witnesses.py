"""Saved witnesses of the sensitivity search replay to the same figure, by function and by command."""

from __future__ import annotations

import math
import sys

import pytest

from tests.support import ENGINES, make_system
from vflpriv.audits.sensitivity import SensitivityAudit, replay_witness, save_witnesses
from vflpriv.cli.main import main
from vflpriv.core.units import Unit
from vflpriv.errors import InputError


def mechanisms_of(variant: str, **changes):
    one = make_system(variant, **changes)
    return one, one.engine.mechanisms(one.settings, one.schedule)


NOISED = [v for v in ENGINES if any(m.noise_std for m in mechanisms_of(v)[1].values())]


@pytest.mark.parametrize("variant", NOISED)
def test_every_mechanism_of_every_engine_holds_and_is_reached(variant):
    one, mechanisms = mechanisms_of(variant)
    findings = SensitivityAudit(candidates=256).search_all(mechanisms, batch_size=one.schedule.batch_size, seed=0)
    assert findings
    for f in findings:
        bound = mechanisms[f.mechanism].sensitivity[f.unit]
        if math.isinf(bound):
            # What is not clipped has no bound, and the search goes beyond the one that was published.
            assert f.observed > f.declared
        else:
            assert 0.95 * bound < f.observed <= bound * (1 + 1e-9), (f.unit, f.observed / bound)
        assert f.holds == (f.declared >= bound)


def saved(tmp_path, **changes):
    one, mechanisms = mechanisms_of("dpzv-joint", **changes)
    findings = SensitivityAudit().search_all(mechanisms, batch_size=one.schedule.batch_size, seed=0)
    return findings, save_witnesses(tmp_path / "witnesses", "toy", mechanisms, findings)


@pytest.mark.parametrize("rule", ["paper", "two-sided"])
def test_a_saved_witness_replays(tmp_path, rule, monkeypatch, capsys):
    findings, files = saved(tmp_path, clip_rule=rule)
    for finding in findings:
        found = replay_witness(files[finding.name])
        assert found.observed == pytest.approx(finding.observed)
        assert found.declared == finding.declared
        assert found.holds == finding.holds == (rule == "two-sided")
    monkeypatch.setattr(sys, "argv", ["vflpriv", "replay", str(files[findings[0].name])])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == (rule == "paper")
    assert ("beyond" if rule == "paper" else "within") in capsys.readouterr().out


def test_one_pair_replays_against_the_proven_and_the_published_bound(tmp_path):
    one, mechanisms = mechanisms_of("vimadmm-client", clip=0.5)
    findings = SensitivityAudit().search_all(mechanisms, batch_size=one.schedule.batch_size, seed=0)
    files = save_witnesses(tmp_path, "toy", mechanisms, findings)
    both = {f.published: replay_witness(files[f.name]) for f in findings if f.unit is Unit.CLIENT_ZERO}
    assert both[False].observed == both[True].observed
    assert both[False].holds
    assert both[True].declared == 0.5
    assert not both[True].holds


def test_a_file_that_is_no_witness_is_refused(tmp_path):
    path = tmp_path / "x.json"
    with pytest.raises(InputError, match=r"witness = .*x\.json.*a witness that an audit saved"):
        replay_witness(path)
    path.write_text("{}")
    with pytest.raises(InputError, match="a witness that an audit saved"):
        replay_witness(path)
