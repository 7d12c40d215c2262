"""What to change, by what is wrong: a number where one can be computed, the obstacle where none can."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.run.noise.test_repair import accountant, claim, declared
from vflpriv.audits.sensitivity import WorstPair
from vflpriv.audits.verdict import CorrectedFinding, exceeds
from vflpriv.core.audit import Finding
from vflpriv.core.claims import Claim, Verdict
from vflpriv.core.systems import DeclaredSystem
from vflpriv.core.units import Unit
from vflpriv.run.summary.advice import Advised, broken_premises, changes
from vflpriv.run.summary.budgets import account

EMPTY = torch.empty(0)


def advised(system: DeclaredSystem, made: Claim, verdict: Verdict, *findings: CorrectedFinding, **more: Any) -> Advised:
    exposure = system.ledger.exposure(made.adversary, made.unit)
    budget = account(accountant(), exposure, made.delta)
    facts = {"budget": budget, "exposure": exposure, "within": not exceeds(budget, made), **more}
    return Advised(system=system, ledger=system.ledger, claim=made, verdict=verdict, findings=findings, **facts)


def sentences(one: Advised) -> list[str]:
    return [row.sentence for row in changes(one, accountant())]


def finding(audit: str, verdict: Verdict = Verdict.VIOLATED, **fields: Any) -> Finding:
    words = {"subject": "zo-scalar", "sentence": "seen", "figure": 2.0, "measure": "μ"}
    return Finding(audit=audit, verdict=verdict, **words, **fields)


def premise(audit: str, **fields: Any) -> CorrectedFinding:
    return CorrectedFinding(finding=finding(audit, **fields))


def test_too_little_noise_has_a_number_and_the_claim_that_holds() -> None:
    system, made = declared(server_update="joint", noise_std=1.0), claim("device")
    first, second = sentences(advised(system, made, Verdict.UNSUPPORTED))
    assert first.startswith("Calibrate the noise for known batches: noise_std 1 → ")
    spent = account(accountant(), system.ledger.exposure(made.adversary, made.unit), made.delta)
    claimed = float(second.removeprefix("Or claim what is accounted: ε = ").partition(" ")[0])
    assert spent.upper <= claimed <= 1.001 * spent.upper


def test_another_setting_is_named_with_its_old_value() -> None:
    (only,) = sentences(advised(declared(server_update="sgd"), claim("model"), Verdict.UNSUPPORTED))
    assert only.startswith("Set server_update = joint (now sgd), and calibrate the noise for ")


def test_the_message_in_the_way_is_named() -> None:
    made = claim("server", Unit.FEATURES)
    (only,) = sentences(advised(declared(server_update="joint"), made, Verdict.UNSUPPORTED))
    assert only.startswith("No level of noise keeps it: embedding-pair (embeddings, device to server) carries no noise")
    assert only.endswith("Protect that message, keep it from server, or withdraw the claim.")


def test_no_message_is_blamed_where_none_is_in_the_way() -> None:
    """An engine that cannot be described with other noise: nothing was found, and nothing more is said."""
    system = declared(server_update="joint")

    class Narrow(system.engine):  # type: ignore[name-defined, misc]
        @staticmethod
        def releases(settings: Any, schedule: Any) -> Any:
            if settings != system.settings:
                raise ZeroDivisionError
            return system.engine.releases(settings, schedule)

    first, *_ = sentences(advised(replace(system, engine=Narrow), claim("device"), Verdict.UNSUPPORTED))
    assert first == "No setting was found that keeps it: add noise, train fewer rounds, or claim a larger ε."


@pytest.mark.parametrize(
    ("audit", "start"),
    [
        ("ledger", "List zo-scalar in the ledger"),
        ("noise", "Add the noise that is declared to zo-scalar"),
        ("server-state", "Keep the state behind zo-scalar"),
        ("wire", "Declare what else zo-scalar carries"),
        ("clock", "Repair what the clock audit found in zo-scalar."),
    ],
)
def test_a_broken_premise_has_its_repair(audit: str, start: str) -> None:
    one = advised(declared(server_update="joint", noise_std=99.0), claim("device"), Verdict.VIOLATED, premise(audit))
    assert [text[: len(start)] for text in sentences(one)] == [start]
    assert broken_premises(one) == (f"{audit} of zo-scalar",)


@pytest.mark.parametrize(("observed", "scale"), [(5.0, ", or declare that and make its noise 10 times"), (1e400, ".")])
def test_a_broken_sensitivity_says_by_how_much(observed: float, scale: str) -> None:
    pair = WorstPair(
        mechanism="zo-scalar", unit=Unit.RECORD, declared=0.5, observed=observed, searched=1, values=EMPTY,
        neighbour=EMPTY,
    )  # fmt: skip
    broken = premise("sensitivity", repair=pair.repair)
    one = advised(declared(server_update="joint", noise_std=99.0), claim("device"), Verdict.VIOLATED, broken)
    (only,) = sentences(one)
    assert only.startswith(f"Bound what one record moves in zo-scalar: it can move by {observed:.4g}, and 0.5 is")
    assert f"declared{scale}" in only


def test_a_premise_of_other_claims_is_left_aside() -> None:
    other = premise("noise", claim_units=frozenset({Unit.LABEL}))
    one = advised(declared(server_update="joint", noise_std=99.0), claim("device"), Verdict.CONSISTENT, other)
    assert broken_premises(one) == ()


def test_trials_that_show_more_than_the_ledger_ask_for_its_mistake() -> None:
    test = replace(premise("two-world"), finding=finding("two-world", claim="c", p_value=1e-9), refutes=True)
    one = advised(declared(server_update="joint", noise_std=99.0), claim("device"), Verdict.VIOLATED, test)
    (only,) = sentences(one)
    assert only.startswith("Find what device is sent that the ledger does not describe")


def test_what_nothing_measured_is_to_be_measured_and_what_holds_is_left_alone() -> None:
    system = declared(server_update="joint", noise_std=99.0)
    assert "audit.trials" in sentences(advised(system, claim("device"), Verdict.UNMEASURED))[0]
    assert sentences(advised(system, claim("device"), Verdict.CONSISTENT)) == []
