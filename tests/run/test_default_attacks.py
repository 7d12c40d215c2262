"""What is attacked when nothing is named: model completion too, and in the summary of the embedded audit."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from tests.rendered import summary_of
from vflpriv.config.errors import parse_settings
from vflpriv.config.loading import load_config
from vflpriv.recording.ledger_file import LedgerConfig
from vflpriv.run.attack import AttackPlan
from vflpriv.run.audit import audit_config
from vflpriv.run.recorded import chosen_attacks
from vflpriv.run.systems import load_data

PASSIVE, ACTIVE = "label_completion_passive", "label_completion_active"


def embedded(name: str, *only: str):
    config = load_config(Path(str(files("vflpriv.config").joinpath(f"{name}.toml"))), {})
    kept = tuple(section for section in config.system if not only or section.key in only)
    return config.model_copy(update={"system": kept})


def test_completion_is_in_the_matrix_and_tried_on_transcripts():
    config = embedded("attack")
    plan = AttackPlan.of(config, load_data(config))
    assert {PASSIVE, ACTIVE} <= {attack.name for attack in plan.attacks}
    assert not any(attack.heavy for attack in (*plan.attacks, *plan.features.attacks))
    ledger = parse_settings(LedgerConfig, {"release": [{"kind": "embeddings", "noise": "none"}]}, "ledger")
    assert PASSIVE in {attack.name for attack in chosen_attacks(ledger)}


def test_the_summary_of_the_default_audit_shows_completion_features_and_membership():
    config = embedded("default", "split-sum")
    (section,) = config.system
    unchecked = section.audit.model_copy(update={"trials": 0, "noise": False, "sensitivity": False, "state": False})
    brief = section.model_copy(update={"engine": {**section.engine, "rounds": 8}, "audit": unchecked})
    changes = {
        "system": (brief,),
        "data": config.data.model_copy(update={"train": 160}),
        "attack": config.attack.model_copy(update={"seeds": 1}),
    }
    report = audit_config(config.model_copy(update=changes), store=None, command="", quiet=True)
    (system,) = report.systems
    tried = {row.attack: row for row in system.attacks if row.adversary == "device(0)"}
    assert tried[PASSIVE].success is not None
    assert "an audit trains honest ones" in tried[ACTIVE].not_applicable
    summary = summary_of(report)
    for attack in (PASSIVE, "feature_inversion", "feature_membership"):
        assert attack.replace("_", "\\_") in summary
