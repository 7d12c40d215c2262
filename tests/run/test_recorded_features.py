"""Recorded features: attacks on them are tried through every view that can see something, and scored by them."""

from __future__ import annotations

import pytest
import torch

import vflpriv
from tests.run.recorded_systems import audited
from vflpriv.config.errors import parse_settings
from vflpriv.recording.ledger_file import LedgerConfig
from vflpriv.render.results.features import FeatureSection
from vflpriv.report.audit import read_report

RECORDS, WIDTH = 160, 4


def blocks(devices):
    """Independent binary and real columns, so that one device's features tell nothing of another's."""
    rows = 2 * torch.rand(RECORDS, devices * WIDTH, generator=torch.Generator().manual_seed(3)) - 1
    rows[:, ::WIDTH] = (rows[:, ::WIDTH] > 0).float()
    return rows.split(WIDTH, dim=1)


def recorded(folder, *, devices=2, features=(1,), noise=0.0, across=False, block=None, column=0, **options):
    """A few rounds of linear embeddings; replies are the sum of all embeddings."""
    generator = torch.Generator().manual_seed(4)
    rows, order = blocks(devices), torch.arange(RECORDS)
    weights = torch.randn(devices, WIDTH, 5, generator=generator)
    with vflpriv.record(folder, devices=devices, classes=2, records=RECORDS, fresh=True) as wire:
        wire.labels(torch.arange(RECORDS) % 2)
        for m in features:
            wire.features(m, rows[m] if block is None else block, sensitive_column=column, **options)
        for t in range(8):
            order = order if t % 2 else torch.randperm(RECORDS, generator=generator)
            ids = order[: RECORDS // 2] if t % 2 else order[RECORDS // 2 :]
            sent = [rows[m][ids] @ weights[m] for m in range(devices)]
            sent = [(1 - noise) * x + noise * torch.randn(x.shape, generator=generator) for x in sent]
            for m in range(devices):
                wire.up(t, m, "embeddings", {"embedding": sent[m]}, ids)
                wire.down(t, m, "embedding-gradient", {"gradient": sum(sent) / 60}, ids)
            if across:
                wire.across(t, 1, 0, "embeddings", {"embedding": sent[1]}, ids)
    return folder


def ledger(**changes):
    kinds = [{"kind": kind, "noise": "none"} for kind in ("embeddings", "embedding-gradient")]
    return parse_settings(LedgerConfig, {"release": kinds} | changes, "ledger")


def cells(folder, **changes):
    (system,) = audited(folder, ledger(**changes)).systems
    return {(cell.victim, cell.attack, cell.adversary): cell for cell in system.features}


def test_exact_embeddings_give_features_and_the_attribute_away(tmp_path):
    """Margin: both reach 1, as linear equations are solved."""
    found = cells(recorded(tmp_path / "run"))
    for adversary in ("server", "eavesdropper"):
        for attack, measure in (
            ("feature_inversion", "R²"),
            ("feature_reconstruction", "R²"),
            ("feature_attribute", "AUC"),
        ):
            cell = found[1, attack, adversary]
            assert (cell.measure, cell.guesses) == (measure, RECORDS - RECORDS // 2)
            assert cell.low > 0
            assert cell.epsilon == float("inf")
        assert found[1, "feature_inversion", adversary].success > 0.95
        assert found[1, "feature_attribute", adversary].success > 0.95
    assert {cell.victim for cell in found.values()} == {1}


def test_embeddings_of_noise_give_nothing_away(tmp_path):
    found = cells(recorded(tmp_path / "run", noise=1.0))
    measured = [cell for cell in found.values() if cell.success is not None]
    assert len(measured) >= 4
    assert all(cell.low <= 0 for cell in measured)


def test_a_device_reads_replies_beside_its_own_features(tmp_path):
    cell = cells(recorded(tmp_path / "run", features=(0, 1)))[1, "feature_downlink", "device(0)"]
    assert cell.low > 0.3
    assert cell.blind < 0.1


def test_a_device_reads_embeddings_that_were_sent_to_it(tmp_path):
    """Margin: both reach 1, as linear equations are solved."""
    found = cells(recorded(tmp_path / "run", across=True))
    assert found[1, "feature_inversion", "device(0)"].success > 0.95
    assert found[1, "feature_attribute", "device(0)"].success > 0.95


def test_what_a_recording_cannot_give_is_said(tmp_path):
    found = cells(recorded(tmp_path / "run"))
    for attack in ("feature_cafe", "feature_esa"):
        assert found[1, attack, "server"].not_applicable.startswith("needs the parameters of the victim's model")
    assert "features of device(0) itself were not recorded" in found[1, "feature_downlink", "device(0)"].not_applicable
    assert (1, "feature_grn", "server") not in found
    named = cells(tmp_path / "run", attacks=["feature_grn"])
    assert {key[1] for key in named} == {"feature_grn"}


def test_only_records_whose_features_were_recorded_are_told_and_scored(tmp_path):
    """Margin: 0.9997 is reached, as linear equations are solved."""
    half = range(0, RECORDS, 2)
    folder = recorded(tmp_path / "run", block=blocks(2)[1][::2], records=half)
    assert cells(folder)[1, "feature_inversion", "server"].guesses == len(half) - len(half) // 2
    assert cells(folder)[1, "feature_inversion", "server"].success > 0.95


def test_of_many_records_a_sample_is_attacked(tmp_path, monkeypatch):
    """Margin: 0.996 is reached by both, as linear equations are solved."""
    monkeypatch.setattr("vflpriv.run.recordings.features._MOST_RECORDS", 60)
    report = audited(recorded(tmp_path / "run", features=(0, 1)), ledger())
    assert f"recorded: features of {RECORDS - 60} of {RECORDS} records: 60 were drawn at random" in report.not_tested
    measured = {(c.attack, c.adversary): c for c in report.features if c.victim == 1 and c.success is not None}
    assert {c.guesses for c in measured.values()} == {30}
    assert measured["feature_inversion", "server"].success > 0.95
    assert measured["feature_downlink", "device(0)"].success > 0.5
    assert measured["feature_reconstruction", "server"].low > 0  # it reads whole batches, whatever is scored


def test_features_of_another_order_are_not_reconstructed(tmp_path):
    """The score compares record by record: the same rows under other ids are worth nothing."""
    folder = recorded(tmp_path / "run", block=blocks(2)[1].flip(0))
    assert cells(folder)[1, "feature_inversion", "server"].low <= 0


def test_several_devices_are_told_apart_and_the_rest_is_named(tmp_path):
    report = audited(recorded(tmp_path / "run", devices=6, features=range(5)), ledger(attacks=["feature_inversion"]))
    (system,) = report.systems
    assert {cell.victim for cell in system.features} == {0, 1, 2, 3}
    assert {cell.adversary for cell in system.features if cell.victim == 2} == {
        "server",
        "eavesdropper",
        "device(0)",
        "devices(0, 1, 3, 4, 5)",
    }
    assert any(line.startswith("recorded: features of devices 4, 5: ") for line in report.not_tested)
    section = FeatureSection(report.features)
    assert "devices 0, 1, 2, 3" in section.caption
    assert section.attack(system.features[0]) == "feature_inversion, device 0"


def test_pictures_are_shown_beside_their_reconstructions(tmp_path):
    block = blocks(2)[1].reshape(RECORDS, 2, 2) / 2 + 0.5
    report = audited(recorded(tmp_path / "run", block=block), ledger(attacks=["feature_inversion"]))
    report.save(tmp_path / "out", ["json", "html", "md"])
    (system,) = read_report(tmp_path / "out" / "report.json").systems
    cell = next(cell for cell in system.features if cell.success is not None)
    assert cell.ssim is not None
    assert cell.picture in (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "feature\\_inversion" in (tmp_path / "out" / "report.md").read_text("utf-8")


@pytest.mark.parametrize("column", [None, 0])
def test_what_is_the_same_for_all_records_is_not_scored(column, tmp_path):
    found = cells(recorded(tmp_path / "run", block=torch.ones(RECORDS, 2), column=column))
    assert not [cell for cell in found.values() if cell.success is not None]
    assert found[1, "feature_inversion", "server"].not_applicable.startswith("no guess to score")
    expected = "a sensitive column" if column is None else "known records with and without"
    assert expected in found[1, "feature_attribute", "server"].not_applicable


def test_without_features_the_report_says_what_to_record(tmp_path):
    folder = recorded(tmp_path / "run", features=())
    report = audited(folder, ledger())
    assert any("wire.features(device, block)" in line for line in report.not_tested)
    assert not report.features
    (cell,) = cells(folder, attacks=["feature_inversion"]).values()
    assert "wire.features(device, block)" in cell.not_applicable


def test_no_attack_is_given_the_file(tmp_path):
    """Features of the victim alone change nothing that a view holds: without messages there is nothing to read."""
    with vflpriv.record(tmp_path / "run", devices=2, classes=2, records=RECORDS) as wire:
        wire.features(1, blocks(2)[1])
        wire.down(0, 0, "embedding-gradient", {"gradient": torch.ones(RECORDS, 2)}, range(RECORDS))
    assert not [cell for cell in cells(tmp_path / "run").values() if cell.success is not None]


def test_the_same_seed_gives_the_same_report_and_another_tells_other_records(tmp_path):
    folder = recorded(tmp_path / "run", noise=0.3)
    first, again, other = (cells(folder, seed=seed)[1, "feature_inversion", "server"] for seed in (0, 0, 1))
    assert first == again
    assert first.success != other.success
