"""Where budgets go: the figures of a report against the ledger and accountant they come from."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from tests.support import make_system
from vflpriv.accountants.auto import AutoAccountant
from vflpriv.core.claims import Claim
from vflpriv.core.ledger import Reading
from vflpriv.core.systems import System
from vflpriv.report.rows import BudgetRow
from vflpriv.run.summary.budgets import account, budget_row, budget_rows, record_bins, spendings, view_budgets
from vflpriv.run.summary.rows import noise_source, release_rows, sampling_row

AUTO = AutoAccountant()


def claim_of(system: System) -> Claim:
    claim: Claim = system.engine.claims(system.settings, system.schedule)[0]
    return claim


def budgets_of(system: System, claim: Claim) -> list[BudgetRow]:
    exposures = [system.ledger.exposure(claim.adversary, claim.unit, reading=r) for r in Reading]
    return [budget_row(e, account(AUTO, e, claim.delta)) for e in exposures]


@pytest.mark.parametrize("variant", ["dpzv-sgd", "dpzv-joint"])
def test_the_last_round_and_the_worst_record_are_the_budget(variant: str) -> None:
    system = make_system(variant, rounds=30, noise_std=4.0)
    claim = claim_of(system)
    budgets = budgets_of(system, claim)
    found = spendings(system.ledger, claim, AUTO, budgets)
    assert [s.reading for s in found] == ["rigorous", "paper"]
    for spent, budget in zip(found, budgets, strict=True):
        assert spent.rounds[-1] == system.schedule.rounds
        assert spent.epsilon_upper[-1] == budget.epsilon_upper
        assert list(spent.epsilon_upper) == sorted(spent.epsilon_upper)
        assert sum(n for _, _, n in spent.records) == system.schedule.records
        assert spent.records[-1][1] == pytest.approx(budget.epsilon_upper)


def test_what_is_infinite_or_not_asked_is_not_spent() -> None:
    system = make_system("dpzv-joint", noise_std=4.0)
    claim = claim_of(system)
    first = budgets_of(system, claim)[0]
    infinite = first.model_copy(update={"epsilon_upper": math.inf})
    not_asked = first.model_copy(update={"not_applicable": "the server holds the labels"})
    assert spendings(system.ledger, claim, AUTO, [infinite, not_asked]) == ()


def test_views_are_named_as_asked_and_at_the_claims_delta() -> None:
    system = make_system("dpzv-sgd", rounds=30, noise_std=4.0)
    claim = claim_of(system)
    known = budget_rows(system.ledger, AUTO, claim.delta)
    views = view_budgets(system.ledger, claim, AUTO, known)
    assert [v.adversary for v in views] == ["device", "devices(all)", "eavesdropper", "outsider", "server", "model"]
    assert views == view_budgets(system.ledger, claim, AUTO)
    device = views[0]
    assert device.paper_reading is not None
    assert device.paper_reading < device.epsilon_upper < math.inf
    assert math.isinf(views[4].epsilon_upper)
    assert views[4].unprotected
    stricter = replace(claim, delta=claim.delta / 100)
    assert view_budgets(system.ledger, stricter, AUTO, known)[0].epsilon_upper > device.epsilon_upper


def test_many_records_are_binned_and_none_is_lost() -> None:
    epsilons = np.random.default_rng(0).gamma(2.0, size=5000)
    bins = record_bins(epsilons)
    assert len(bins) <= 40
    assert sum(n for _, _, n in bins) == 5000
    assert (bins[0][0], bins[-1][1]) == (epsilons.min(), epsilons.max())
    assert all(low <= high for low, high, _ in bins)
    assert all(a[1] < b[0] for a, b in pairwise(bins))
    for low, high, number in bins:
        assert number == np.count_nonzero((epsilons >= low) & (epsilons <= high))
    assert record_bins(None) == record_bins(np.empty(0)) == record_bins(np.array([1.0, math.inf])) == ()


def test_releases_and_sampling_are_those_of_the_run() -> None:
    system = make_system("dpzv-sgd", rounds=30)
    rows = {r.kind: r for r in release_rows(system.ledger)}
    assert rows["zo-scalar"].noise == "Gaussian(std=0.1)"
    assert rows["zo-scalar"].rounds == 30
    assert "record" in rows["zo-scalar"].protects
    assert rows["embedding-pair"].protects == ()
    sampling = sampling_row(system.schedule)
    assert (sampling.batching, sampling.records, sampling.most) == ("shuffle", 60, 8)
    assert sampling.fewest == system.schedule.size.min() == 60 % 8


def test_the_source_of_noise_names_every_secret_draw() -> None:
    noised = {"label_protection": "rr", "protection": "embedding", "noise_std": 1.0, "schedule": "poisson", "seed": 3}
    drawn = "batches, noise of releases, noised labels"
    assert noise_source(make_system("split-sum", **noised)).startswith(f"{drawn}: Philox4x32-10 from the seed 3, ")
    secret = noise_source(make_system("split-sum", **noised, secure_noise=True))
    assert secret.startswith(f"{drawn}: ChaCha20 under a key")
    assert "operating system" in secret
    assert noise_source(make_system("split-sum")) == "nothing secret is drawn"
    assert noise_source(make_system("split-sum", defence="top-k")) == "nothing secret is drawn"
    assert noise_source(make_system("split-sum", defence="max-norm")).startswith("draws of the defence: ")
