"""Audits of systems that encrypt: a claim that rests on a ciphertext is never measured, and the report says on what."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import vflpriv
from vflpriv.common.registry import find
from vflpriv.core.claims import Verdict
from vflpriv.render.statement import statement
from vflpriv.report.formats import Context

RECORDS = 60
LEDGER = """
attacks = ["label_direct"]

[[release]]
kind = "logit-gradient"
noise = "opaque"
assumption = "Paillier with 2048 bits, key held by the arbiter"
readable_by = []

[[claim]]
key = "labels"
unit = "label"
view = "device"
epsilon = 1.0
delta = 1e-5
"""
ASSUMED = "logit-gradient is ciphertext, protected by assumption and not measured (Paillier with 2048 bits, key held"


def audited(folder, send):
    """The report on a system that sends each record's gradient in every round, all of them labels of canaries."""
    generator = np.random.default_rng(0)
    labels, canaries = vflpriv.plant(torch.arange(RECORDS) % 2, classes=2, canaries=40, seed=1)
    with vflpriv.record(folder / "t", devices=1, classes=2, records=RECORDS) as wire:
        wire.labels(labels, canaries=canaries)
        for round_ in range(3):
            gradient = torch.nn.functional.one_hot(1 - labels, 2) - 0.5
            wire.down(round_, 0, "logit-gradient", send(gradient.numpy(), generator), torch.arange(RECORDS))
    (folder / "ledger.toml").write_text(LEDGER)
    return vflpriv.audit(transcript=folder / "t", ledger=folder / "ledger.toml", quiet=True)


def test_coins_that_nobody_guesses_do_not_make_such_a_claim_consistent(tmp_path):
    """A test of what is in clear measures nothing of the ciphertext."""
    generator = np.random.default_rng(1)
    labels, canaries = vflpriv.plant(torch.arange(RECORDS) % 2, classes=2, canaries=54, seed=1)
    with vflpriv.record(tmp_path / "t", devices=1, classes=2, records=RECORDS) as wire:
        wire.labels(labels, canaries=canaries)
        wire.down(0, 0, "logit-gradient", encrypted(labels, generator), torch.arange(RECORDS))
        wire.up(0, 0, "embeddings", {"embedding": generator.normal(size=(RECORDS, 3))}, torch.arange(RECORDS))
    other = '[[release]]\nkind = "embeddings"\nnoise = "none"\nindependent_of = ["label"]\n'
    (tmp_path / "ledger.toml").write_text(LEDGER + other)
    report = vflpriv.audit(transcript=tmp_path / "t", ledger=tmp_path / "ledger.toml", quiet=True)
    (claim,) = report.systems[0].claims
    assert claim.deciding is not None
    assert (claim.verdict, report.exit_code) == (Verdict.UNMEASURED, 3)
    assert "its one test does not refute it" in claim.reason


def encrypted(gradient, generator):
    return vflpriv.opaque(generator.integers(0, 256, (len(gradient), 16), dtype=np.uint8))


def in_clear(gradient, generator):
    return {"gradient": gradient}


def test_a_claim_that_rests_on_a_ciphertext_is_unmeasured_and_names_the_assumption(tmp_path):
    report = audited(tmp_path, encrypted)
    (system,) = report.systems
    (claim,) = system.claims
    assert report.exit_code == 3
    assert claim.verdict is Verdict.UNMEASURED
    assert f"but it rests on an assumption: {ASSUMED}" in claim.reason
    assert claim.deciding is None  # nobody reads a message, not even a score that is learned
    assert claim.accounted.epsilon_upper == 0.0
    assert claim.accounted.assumed[0].startswith(ASSUMED)
    assert any(ASSUMED in line for line in claim.accounted.assumptions)
    assert any("key held by the arbiter, as the ledger says" in line for line in report.not_tested)
    assert system.traffic is not None
    assert system.traffic.down == 3 * RECORDS * 16
    assert all(attack.not_applicable for attack in system.attacks)
    lines = [line for _, lines in statement(report, system, claim) for line in lines]
    assert "logit-gradient (as the ledger file says): ciphertext, not measured; protected if Paillier" in str(lines)
    (trusted,) = [line for line in lines if f"need not be trusted beyond ε ≤ 0, batches known; if {ASSUMED}" in line]
    assert trusted.startswith("device, ")
    (check,) = [c for c in system.checks if c.audit == "ciphertext"]
    assert check.verdict is Verdict.UNMEASURED


@pytest.mark.parametrize("form", ["html", "md", "junit"])
def test_every_page_prints_the_assumption_beside_the_claim(tmp_path, form):
    text = find("format", form)().render(audited(tmp_path, encrypted), Context())
    assert "rests on an assumption: logit-gradient is ciphertext, protected by assumption and not measured" in text


def test_a_system_that_calls_its_gradients_opaque_is_caught(tmp_path):
    report = audited(tmp_path, in_clear)
    (system,) = report.systems
    (claim,) = system.claims
    assert report.exit_code == 1
    assert claim.verdict is Verdict.VIOLATED
    assert "hold float32 values in gradient, which is no ciphertext" in claim.reason
    assert claim.accounted.epsilon_upper == float("inf")
    assert max(a.success or 0.0 for a in system.attacks) == 1.0
