"""Attacks on texts from a configuration: which are tried, what the report shows, and what does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.attacks.text.test_nearest import encoder, split, texts  # noqa: F401 (a fixture)
from tests.support import toy_data
from vflpriv.common.registry import available
from vflpriv.config.models import Config
from vflpriv.core.attack import NO_DEFENCE
from vflpriv.core.claims import Verdict
from vflpriv.core.data import VerticalData
from vflpriv.errors import InputError
from vflpriv.render import document as d
from vflpriv.render.results.features import features_section
from vflpriv.run.audit import audit_context, audit_system
from vflpriv.run.build import build_report
from vflpriv.run.features import FeaturePlan


def config_of(features: dict[str, Any], engine: dict[str, Any] | None = None) -> Config:
    system = {"key": "s", "engine": {"name": "split", "rounds": 2, "batch_size": 4, **(engine or {})}}
    attack = {"seeds": 1, "features": {"views": ["server"], **features}}
    return Config.model_validate({"data": {"name": "digits"}, "system": [system], "attack": attack})


def test_texts_are_attacked_by_what_reads_texts_alone() -> None:
    targets = {attack.target for attack in FeaturePlan.of(config_of({}), texts()).attacks}
    assert targets == {"tokens", "attribute", "property", "membership"}
    targets = {attack.target for attack in FeaturePlan.of(config_of({}), toy_data()).attacks}
    assert targets == {"features", "attribute", "property", "membership"}
    assert {kind.target for kind in available("attack").values()} == targets | {"tokens", "labels", "integrity"}


@pytest.mark.parametrize(
    ("features", "data", "message"),
    [
        ({"attacks": ["feature_inversion"]}, texts(), "expected attacks on texts, since device 0 holds token ids"),
        ({"attacks": ["text_nearest"]}, toy_data(), "expected attacks on numbers, since device 2 holds no token ids"),
        ({"attacks": ["text_nearest"]}, texts(), "expected a system that starts from published weights"),
        ({"sensitive_column": 200}, texts(), "expected a token id of 1 to 199, since device 0 holds texts"),
        ({"sensitive_column": 0}, texts(), "expected a token id of 1 to 199, since device 0 holds texts"),
    ],
)
def test_what_does_not_fit_is_one_line(features: dict[str, Any], data: VerticalData, message: str) -> None:
    with pytest.raises(InputError) as error:
        FeaturePlan.of(config_of(features), data)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_report_shows_tokens_texts_and_what_a_text_mentions(encoder: Path) -> None:  # noqa: F811
    """Margin: all tokens are read where 0.95 are asked."""
    system = split(encoder, "split-concat", rounds=4)
    config = config_of({"sensitive_column": 1, "known_records": 12}, {"encoder": str(encoder)})
    plan = FeaturePlan.of(config, system.data)
    plan = FeaturePlan(config=config, attacks=plan.observing, adversaries=plan.adversaries)
    cells = plan.cells("s", system, defence=NO_DEFENCE, advance=lambda _: None)
    tokens, mentions = (next(c for c in cells if c.attack == name) for name in ("text_nearest", "feature_attribute"))
    assert (tokens.measure, tokens.exact, tokens.rouge) == ("tokens", 1.0, 1.0)
    assert tokens.success is not None
    assert tokens.success > 0.95
    assert mentions.measure == "AUC"
    assert mentions.not_applicable is None
    page = str(features_section(cells))
    assert "Right tokens" in page
    assert "ROUGE-L" in page
    assert "share of right tokens" in page
    assert d.Section


@pytest.mark.parametrize("noised", [False, True])
def test_theorem_v1_is_refuted_by_tokens_read_off_exact_states_and_not_by_noised_ones(
    encoder: Path,  # noqa: F811
    noised: bool,
) -> None:
    """Margin: exact states give every token away, and noise of 70 clips none."""
    protection = {"protection": "embedding", "clip": 1.0, "noise_std": 70.0} if noised else {}
    system = split(encoder, rounds=4, **protection)
    config = config_of({}, {"name": "cascaded"})
    config = config.model_copy(update={"attack": config.attack.model_copy(update={"features": None})})
    unchecked = {"trials": 0, "noise": False, "sensitivity": False, "state": False, "wire": False}
    unchecked |= {"success_trainings": 4, "audits": {"flow": False, "float": False, "two-world": False}}
    section = config.system[0]
    section = section.model_copy(update={"audit": section.audit.model_copy(update=unchecked)})
    audited = audit_system(system, section, config, audit_context(system, section, config))
    (tokens,) = [
        row
        for row in build_report([audited], config, reproduce="").systems[0].success_claims
        if row.key == "losses-tokens"
    ]
    assert tokens.verdict is (Verdict.CONSISTENT if noised else Verdict.VIOLATED), tokens.reason
    assert tokens.trainings == 4
    assert tokens.success is not None
    assert tokens.success < 0.05 if noised else tokens.success > 0.9
    assert "blind guesses" in tokens.reason
