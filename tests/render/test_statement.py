"""The differential-privacy statement: every field, from the report alone."""

from __future__ import annotations

import pytest

from tests.rendered import page_of
from tests.report.rows import one_run
from vflpriv.render.statement import statement
from vflpriv.report.audit import Report

FIELDS = (
    "Unit and adjacency",
    "δ",
    "ε, claimed",
    "ε, accounted",
    "Seen by",
    "Sampling assumed",
    "Sampling done",
    "Releases covered",
    "Trust in each party",
    "Contribution cap",
    "Tuning runs",
    "Randomness",
    "Empirical bound",
    "Attacks and trials",
    "Not tested",
)


@pytest.fixture(scope="module")
def terms(report: Report) -> dict[str, str]:
    system = report.systems[0]
    return {name: " | ".join(lines) for name, lines in statement(report, system, system.claims[0])}


def test_every_field_is_there_for_every_claim(report: Report) -> None:
    for system in report.systems:
        for claim in system.claims:
            found = statement(report, system, claim)
            assert tuple(name for name, _ in found) == FIELDS
            assert all(lines and all(lines) for _, lines in found)


def test_it_says_what_the_report_says(terms: dict[str, str]) -> None:
    assert "one record (features and label) replaced" in terms["Unit and adjacency"]
    assert "both neighbouring worlds have 1,437 records" in terms["Unit and adjacency"]
    assert terms["δ"] == "1e-3, above one in the 1,437 records"
    assert "rigorous: ε ≤ 39,500 by gdp (closed form); no error but rounding" in terms["ε, accounted"]
    assert "paper’s reading: ε ≤ 2.90" in terms["ε, accounted"]
    assert "no amplification" in terms["Sampling assumed"]
    assert terms["Sampling done"].startswith("shuffle: epochs in a fresh random order; 29 to 64 of 1,437 records")
    assert terms["Randomness"] == "Philox4x32-10 from the seed 7"
    assert "not counted" in terms["Tuning runs"]
    assert "paper’s reading: the worst record takes part in 13 of the releases seen" in terms["Contribution cap"]
    assert "changes a release by at most 0.3125" in terms["Contribution cap"]
    assert "μ ≥ 0.750 at 95 % confidence" in terms["Empirical bound"]
    assert "worst-case canary, likelihood ratio: 400 trainings in each of two worlds" in terms["Attacks and trials"]
    assert "1 of 2 attacks (through each view) apply: label_zo" in terms["Attacks and trials"]
    assert "timing of messages" in terms["Not tested"]


def test_releases_are_covered_or_not_for_these_eyes(report: Report, terms: dict[str, str]) -> None:
    assert (
        "scalar (clipped loss difference): covered, Gaussian(std=1.2003), sent 1,122 times" in terms["Releases covered"]
    )
    assert "model (the server's parameters): not seen by this adversary" in terms["Releases covered"]
    system = report.systems[0]
    of_model = dict(statement(report, system, system.claims[2]))["Releases covered"]
    assert "model (the server's parameters): not covered, no noise, no bound for this unit" in of_model
    label = system.claims[2].model_copy(update={"unit": "label"})
    assert not any("embedding" in line for line in dict(statement(report, system, label))["Releases covered"])


def test_each_party_is_trusted_or_bounded(terms: dict[str, str]) -> None:
    trust = terms["Trust in each party"]
    assert "device: need not be trusted beyond ε ≤ 39,500 (2.90 in the paper’s reading), batches known" in trust
    assert "model: must be trusted with it: model (the server's parameters) carries no noise" in trust
    assert "server: not applicable, the server holds the labels" in trust


def test_error_bounds_and_one_run_are_named(report: Report) -> None:
    system = report.systems[0]
    loose = system.claims[0].accounted.model_copy(update={"epsilon_lower": 1.25, "epsilon": 1.5, "epsilon_upper": 2.0})
    claim = system.claims[0].model_copy(update={"accounted": loose, "measurements": (one_run(),)})
    found = {name: " | ".join(lines) for name, lines in statement(report, system, claim)}
    assert "true value between 1.25 and 2" in found["ε, accounted"]
    assert "131 of 180 guesses right about 400 canaries" in found["Empirical bound"]
    assert "one training with 400 canaries, 180 guesses" in found["Attacks and trials"]


def test_what_others_left_out_is_not_this_ones(report: Report) -> None:
    more = report.model_copy(update={"not_tested": ("joint: no trials were run", "dpzv: no attack", "timing")})
    assert dict(statement(more, more.systems[0], more.systems[0].claims[0]))["Not tested"] == [
        "dpzv: no attack",
        "timing",
    ]


def test_the_page_has_one_for_every_claim(report: Report) -> None:
    page = page_of(report)
    assert page.count("<summary>Differential-privacy statement</summary>") == 5
    assert all(page.count(f"<dt>{name}<dd>") >= 5 for name in FIELDS)
