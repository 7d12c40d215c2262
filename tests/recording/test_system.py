"""A recorded training as a system: what reports and accountants ask of every system, answered without an engine."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import vflpriv
from vflpriv.core.claims import Claim
from vflpriv.core.systems import Source, System
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.recording.ledger_file import LedgerConfig
from vflpriv.recording.system import RecordedSystem, read_recording

LEDGER = {
    "key": "mine",
    "seed": 4,
    "delta": 1e-6,
    "release": [
        {"kind": "zo-scalar", "noise": "gaussian", "scale": 1.0, "sensitivity": {"label": 0.5}, "shared": True}
    ],
    "claim": [{"key": "quiet", "unit": "label", "view": "devices(all)", "epsilon": 2.0}],
    "attack_claim": [{"key": "rare", "unit": "label", "view": "device", "attack": "label_zo_scalar", "rate": 0.5}],
}


@pytest.fixture
def system(tmp_path: Path) -> RecordedSystem:
    with vflpriv.record(tmp_path / "run", devices=2, classes=2, records=8, name="theirs") as wire:
        for t in range(3):
            ids = torch.arange(4) + t
            for m in range(2):
                wire.up(t, m, "question", {"x": torch.ones(1)}, ids)
                wire.down(t, m, "zo-scalar", {"delta": torch.tensor(0.1 * t)}, ids)
    return read_recording(tmp_path / "run", LedgerConfig.model_validate(LEDGER))


def test_it_is_a_system_that_cannot_be_trained(system: RecordedSystem) -> None:
    assert isinstance(system, Source)
    assert not isinstance(system, System)
    assert not hasattr(system, "train")
    assert not hasattr(system, "engine")


def test_it_answers_what_reports_ask(system: RecordedSystem) -> None:
    assert (system.key, system.title, system.engine_name, system.seed) == ("mine", "theirs", "recorded", 4)
    assert (system.rounds, system.classes, system.delta) == (3, 2, 1e-6)
    assert (system.noise_std, system.secure_noise, system.answers) == (None, None, None)
    assert not system.staleness()
    assert system.shared_kinds == {"zo-scalar"}
    facts = {"name": "theirs", "records": 8, "devices": 2, "classes": 2}
    assert system.data_facts == facts | {"messages": {"question": 6, "zo-scalar": 6}, "protection": "hash chain"}
    assert system.settings_facts["claim"][0]["key"] == "quiet"


def test_its_ledger_and_claims_are_those_of_the_file_and_of_the_wire(system: RecordedSystem) -> None:
    kinds = [release.kind for release in system.ledger.releases]
    assert kinds == ["zo-scalar", "question", "models"], "what the file leaves out is counted, too"
    (claim,) = system.claims
    assert isinstance(claim, Claim)
    assert (claim.key, claim.unit, claim.epsilon) == ("quiet", Unit.LABEL, 2.0)
    (about_attack,) = system.success_claims
    assert (about_attack.rate, about_attack.classes) == (0.5, 2)


def test_a_device_sees_what_another_device_sends_it(tmp_path: Path) -> None:
    """Noised messages between devices cost their reader a budget; a kind sent to the server alone does not."""
    costs = {}
    for way in ("across", "up"):
        with vflpriv.record(tmp_path / way, devices=2, classes=2, records=8) as wire:
            for t in range(4):
                send = wire.across if way == "across" else wire.up
                to = (1,) if way == "across" else ()
                send(t, 0, *to, "note", {"x": torch.ones(1)}, torch.arange(8))
        release = {"kind": "note", "noise": "gaussian", "scale": 1.0, "sensitivity": {"features": 0.5}}
        release |= {"carried": False}
        system = read_recording(tmp_path / way, LedgerConfig.model_validate({"release": [release]}))
        for view in ("device(1)", "server"):
            exposure = system.ledger.exposure(Adversary.parse(view), Unit.FEATURES)
            costs[way, view] = sum(event.count for event in exposure.events)
    assert costs == {("across", "device(1)"): 4, ("across", "server"): 0, ("up", "device(1)"): 0, ("up", "server"): 4}
