"""Systems at a target budget: every engine, unit and view is calibrated, or refused with the release that stops it."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from vflpriv.audits.noise import NoiseAudit
from vflpriv.audits.wire import WireAudit
from vflpriv.common.registry import available, find
from vflpriv.config.loading import load_config
from vflpriv.config.models import Config
from vflpriv.core.audit import AuditContext
from vflpriv.core.claims import Verdict
from vflpriv.core.data import BaseData
from vflpriv.core.systems import DeclaredSystem, System
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.experiments.frontier.targets import AtTarget, at_target
from vflpriv.run.noise.search import NoiseTarget
from vflpriv.run.systems import claims_of, declare_system, load_data, read_data

DELTA = 1e-5
VIEWS = ("server", "device", "devices(all)", "eavesdropper", "outsider", "model")
OF_UPLINKS = [name for name, engine in available("engine").items() if "protection" in engine.settings_type.model_fields]
VARIANTS: dict[str, dict[str, Any]] = {
    **{f"{name}-{clip}": {"name": name, "protection": clip} for name in OF_UPLINKS for clip in ("client", "embedding")},
    **{f"dpzv-{rule}": {"name": "dpzv", "server_update": rule} for rule in ("sgd", "zo", "joint", "dp-sgd", "dp-zo")},
    "send-once": {"name": "send-once"},
}


def config_of(engine: dict[str, Any], **section: Any) -> Config:
    engine = {"rounds": 6, "batch_size": 8, "embedding": 4, **engine}
    return load_config({"data": {"name": "digits", "train": 60}, "system": [{"key": "a", "engine": engine, **section}]})


@cache
def arrays() -> BaseData:
    return read_data(config_of({"name": "split"}))


def target(unit: Unit, view: str, epsilon: float = 1.0) -> NoiseTarget:
    return NoiseTarget(epsilon=epsilon, delta=DELTA, unit=unit, view=view)


def spent(system: DeclaredSystem, unit: Unit, view: str, delta: float = DELTA) -> float:
    exposure = system.ledger.exposure(Adversary.parse(view), unit)
    upper: float = find("accountant", "auto")().budget(exposure, delta).upper
    return upper


def test_every_engine_has_a_variant() -> None:
    assert {engine["name"] for engine in VARIANTS.values()} == set(available("engine"))


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_unit_and_view_is_calibrated_or_refused_with_what_stops_it(variant: str) -> None:
    config, calibrated = config_of(VARIANTS[variant]), 0
    noised = {"noise": "given", "noise_std": 1.0, "server_noise_std": 1.0}
    fields = find("engine", VARIANTS[variant]["name"]).settings_type.model_fields
    given = declare_system(
        config_of(VARIANTS[variant] | {name: value for name, value in noised.items() if name in fields}), 0, arrays()
    )
    for view in VIEWS:
        for unit in Unit:
            found = at_target(config, 0, arrays(), target(unit, view))
            exposure = given.ledger.exposure(Adversary.parse(view), unit)
            if found.system is not None:
                calibrated += 1
                assert found.reason is None
                assert 0.99 < spent(found.system, unit, view) <= 1.0, (view, unit)
                assert not exposure.unprotected
                continue
            stopped = [exposure.not_applicable] if exposure.not_applicable else list(exposure.unprotected)
            assert stopped, (view, unit, found.reason)
            assert found.reason is not None
            assert found.reason.startswith(f"system.a.engine.protect = '{view}': expected a view for which noise_std")
            assert all(line in found.reason for line in stopped)
            assert "\n" not in found.reason
    assert calibrated >= 10


@pytest.mark.parametrize("variant", VARIANTS)
def test_calibrated_noise_is_for_what_the_paper_protects_if_nothing_else_is_said(variant: str) -> None:
    config = config_of(VARIANTS[variant] | {"noise": "calibrated", "epsilon": 2.0, "delta": 1e-4})
    system = declare_system(config, 0, arrays())
    (claim,) = claims_of(system, config.system[0])
    name = VARIANTS[variant]["name"]
    published = {"dpzv": (Unit.RECORD, "device"), "send-once": (Unit.RECORD, "devices(all)")}
    of_uplinks = (Unit.CLIENT_ZERO if variant.endswith("client") else Unit.FEATURES, "server")
    assert (claim.unit, str(claim.adversary)) == published.get(name, of_uplinks)
    assert (claim.key, claim.epsilon, claim.delta) == ("calibrated", 2.0, 1e-4)
    assert 0.99 * 2 < spent(system, claim.unit, str(claim.adversary), 1e-4) <= 2.0


def test_noise_of_two_kinds_is_found_together_unless_one_is_given() -> None:
    engine = VARIANTS["dpzv-dp-sgd"] | {"noise": "calibrated", "clip": 5.0, "server_clip": 0.5}
    together = declare_system(config_of(engine), 0, arrays()).settings
    assert together.server_noise_std == pytest.approx(together.noise_std / 10)
    own = 20 * together.server_noise_std
    given = declare_system(config_of(engine | {"server_noise_std": own}), 0, arrays()).settings
    assert given.server_noise_std == own
    assert given.noise_std < together.noise_std


LABELS = ("alibi", "rr", "rr-with-prior", "lp-mst")


@pytest.mark.parametrize("protection", LABELS)
@pytest.mark.parametrize("runs", [None, 2])
def test_labels_are_calibrated_by_their_own_noise(protection: str, runs: int | None) -> None:
    engine = {"name": "split", "label_protection": protection, "label_noise": 0.1}
    config = config_of(engine, **({} if runs is None else {"tuning_runs": runs}))
    found = at_target(config, 0, arrays(), target(Unit.LABEL, "devices(all)"))
    assert found.system is not None, found.reason
    assert 0.99 < spent(found.system, Unit.LABEL, "devices(all)") <= 1.0
    expected = 1.0 if runs is None else 1 / 3
    assert found.system.settings.label_epsilon >= 0.99 * expected
    (claim,) = claims_of(found.system, found.config.system[0])
    assert claim.epsilon == found.system.settings.label_epsilon


@pytest.mark.parametrize("protection", LABELS)
def test_label_epsilon_says_the_same_of_every_mechanism(protection: str) -> None:
    config = config_of({"name": "vimadmm", "label_protection": protection, "label_epsilon": 1.0})
    system = declare_system(config, 0, arrays())
    (claim,) = claims_of(system, config.system[0])
    assert (claim.key, claim.epsilon, claim.unit, claim.where) == ("labels", 1.0, Unit.LABEL, "label_epsilon")
    assert 0.99 < spent(system, Unit.LABEL, "devices(all)") <= 1.0


def refused(engine: dict[str, Any], unit: Unit, view: str, epsilon: float = 1.0) -> str:
    found: AtTarget = at_target(config_of(engine), 0, arrays(), target(unit, view, epsilon))
    assert found.system is None
    assert found.reason is not None
    return found.reason


def test_refusals_name_what_stops_a_calibration() -> None:
    drawn = {"name": "dpzv", "server_update": "joint", "label_protection": "lp-mst"}
    assert "noised-labels (every label once, by randomised response" in refused(drawn, Unit.RECORD, "device")
    assert "has no bounded sensitivity for the record unit" in refused(drawn, Unit.RECORD, "device")
    exact = {"name": "send-once"}
    assert "embeddings (features of all records, device to server, once)" in refused(exact, Unit.RECORD, "server")
    bare = refused({"name": "split"}, Unit.FEATURES, "server")
    assert bare.startswith("system.a.engine.protection = 'none': expected client or embedding with noise")
    kept = {"name": "fdml", "protection": "client", "label_protection": "rr", "label_noise": 3.0, "noise": "calibrated"}
    with pytest.raises(ValueError, match="is in noised-labels, whose noise noise_std does not change"):
        declare_system(config_of(kept | {"unit": "label", "protect": "eavesdropper"}), 0, arrays())
    spent_already = {"name": "dpzv", "server_update": "joint", "label_protection": "rr", "label_noise": 3.0}
    assert "epsilon = 1.0: expected more than" in refused(spent_already, Unit.RECORD, "device")
    assert "view = 'nobody'" in refused(exact, Unit.RECORD, "nobody")


TRAINED: dict[str, tuple[dict[str, Any], Unit, str]] = {
    "scalar": ({"name": "dpzv", "server_update": "joint", "smoothing": 0.05}, Unit.RECORD, "devices(all)"),
    "own step": ({"name": "dpzv", "server_update": "dp-sgd", "smoothing": 0.05}, Unit.LABEL, "model"),
    "outer product": ({"name": "send-once"}, Unit.ADD_REMOVE, "devices(all)"),
    "whole batch": ({"name": "vimadmm-j", "protection": "client", "local_steps": 2}, Unit.CLIENT_ZERO, "server"),
    "rows": ({"name": "vafl", "protection": "embedding"}, Unit.FEATURES, "server"),
    "pairs": ({"name": "cascaded", "protection": "embedding", "smoothing": 0.05}, Unit.FEATURES, "model"),
    **{kind: ({"name": "split", "label_protection": kind}, Unit.LABEL, "device") for kind in LABELS},
}


@pytest.mark.parametrize("mechanism", TRAINED)
def test_what_is_sent_carries_the_calibrated_noise(mechanism: str) -> None:
    engine, unit, view = TRAINED[mechanism]
    config = config_of(engine | {"rounds": 30})
    found = at_target(config, 0, load_data(config), target(unit, view))
    assert isinstance(found.system, System), found.reason
    context = AuditContext(claims=claims_of(found.system, found.config.system[0]))
    assert any(claim.epsilon <= 1.0 and claim.unit is unit for claim in context.claims)
    findings = [finding for audit in (WireAudit(), NoiseAudit()) for finding in audit.run(found.system, context)]
    assert {finding.verdict for finding in findings} == {Verdict.CONSISTENT}, [f.sentence for f in findings]
