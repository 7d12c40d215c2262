"""Whole audits of cases that are mostly valid: the corpus of `make fuzz`, and changes of it."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tools.audit_cases import CORPUS, check, mutate, mutated_bytes
from vflpriv.accountants.auto import AutoAccountant
from vflpriv.core.budgets import Budget

FILES = sorted(CORPUS.glob("*.json"))


def load(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_case_of_the_corpus_is_audited_and_holds(path: Path, tmp_path: Path) -> None:
    assert check(load(path), tmp_path)


def outcomes(number: int, seed: int, tmp_path: Path) -> Counter[bool]:
    rng = random.Random(seed)
    cases = [load(path) for path in FILES]
    seen: Counter[bool] = Counter()
    for attempt in range(number):
        case = mutate(rng.choice(cases), rng)
        folder = tmp_path / str(attempt)
        folder.mkdir()
        audited = check(case, folder)
        seen[audited] += 1
        if audited and len(cases) < 60:
            cases.append(case)
    return seen


def test_ten_changed_cases_hold_and_some_are_audited(tmp_path: Path) -> None:
    assert outcomes(10, 3, tmp_path)[True] >= 2


@pytest.mark.slow
def test_two_hundred_changed_cases_hold_and_many_are_audited(tmp_path: Path) -> None:
    assert outcomes(200, 11, tmp_path)[True] >= 50


def test_an_accountant_that_forgets_a_release_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A budget that falls where a release is added: the check is no formality."""
    budget = AutoAccountant.budget

    def forgetful(self: AutoAccountant, exposure: Any, delta: float) -> Budget:
        known = budget(self, exposure, delta)
        cost = 5.0 / (1 + len(exposure.events))
        return Budget(accountant="auto", method=known.method, delta=delta, lower=cost, estimate=cost, upper=cost)

    monkeypatch.setattr(AutoAccountant, "budget", forgetful)
    case = load(CORPUS / "poisson.json")
    with pytest.raises(AssertionError, match="without"):
        check(case, tmp_path)


def test_the_mutator_gives_cases_whatever_it_is_given() -> None:
    assert mutated_bytes(b"\xff", 10_000, 1) != mutated_bytes(b"\xff", 10_000, 2)
    for data in (b"", b"[]", b"{}", b"\xff", FILES[0].read_bytes()):
        assert isinstance(json.loads(mutated_bytes(data, 10_000, 3)), dict)
