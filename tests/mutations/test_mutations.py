"""Broken systems are caught and sound ones are not accused, as the table in the documentation says.

`make mutations` audits all of them and rewrites that table; the tests here compare what audits say with it.
"""

from __future__ import annotations

import re

import pytest
import torch

from tests.mutations.case import Mutation
from tests.mutations.missed import UNEXPLAINED
from tests.mutations.suite import CONTROLS, MISSED, MUTATIONS, PAGE, SYSTEMS, Result, audited, read_results, rendered

FEW = 60
"""Trainings in each world where what is looked for needs no statistics."""


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _named(systems: tuple[Mutation, ...], *, fast: bool) -> list[object]:
    return [pytest.param(m, id=m.name) for m in systems if m.fast or not fast]


def test_the_results_are_of_the_systems_there_are():
    assert list(read_results()) == [m.name for m in SYSTEMS]
    assert [r.family for r in read_results().values()] == [m.family for m in SYSTEMS]


def test_the_page_shows_the_results():
    assert PAGE.read_text("utf-8") == rendered(read_results())


def test_there_are_enough_systems_and_each_says_what_it_is():
    assert len(MUTATIONS) >= 45
    assert len(CONTROLS) >= 16
    assert len(MISSED) >= 6
    assert len([m for m in MUTATIONS if m.fast]) <= 12
    for system in SYSTEMS:
        assert re.fullmatch(r"[a-z0-9-]+", system.name)
        assert system.fault
        assert not system.fault.endswith(".")


def _as_in_the_table(mutation: Mutation, result: Result, trials: int | None) -> None:
    """What the table says still holds. A fault that is now caught, too, is a reason to run `make mutations`."""
    outcome = audited(mutation, seed=1, trials=trials)
    assert mutation.caught(outcome) == bool(result.caught), outcome


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("mutation", _named(MUTATIONS, fast=True))
def test_what_needs_no_statistics_is_caught_with_few_trials(mutation):
    _as_in_the_table(mutation, read_results()[mutation.name], FEW)


@pytest.mark.slow
@pytest.mark.parametrize("mutation", _named(MUTATIONS, fast=False))
def test_broken_systems_are_caught(mutation):
    _as_in_the_table(mutation, read_results()[mutation.name], None)


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("control", _named(CONTROLS, fast=True))
def test_sound_systems_are_not_accused(control):
    assert [audited(control, seed, FEW).exit_code for seed in (1, 2)].count(1) == 0


@pytest.mark.slow
@pytest.mark.parametrize("control", _named(CONTROLS, fast=False))
def test_sound_systems_are_not_accused_with_other_seeds(control):
    """The table has twenty seeds; these are others."""
    accused = read_results()[control.name].caught > 0
    assert any(audited(control, 100 + seed).exit_code == 1 for seed in range(3)) == accused


LIMITS = PAGE.with_name("limits.md")
KNOWN = [pytest.param(m, id=m.name) for m in MISSED]


def test_the_page_of_limits_lists_the_broken_systems_that_are_missed():
    listed = re.findall(
        r"^- \[`(missed-[a-z-]+)`\]\(mutations\.md#known-to-be-missed\)", LIMITS.read_text("utf-8"), re.M
    )
    assert listed == [m.name for m in MISSED]


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("system", KNOWN)
def test_what_is_known_to_be_missed_leaks_and_is_not_caught(system):
    """If one is caught, good: give it to another family, and take it off the page of limits."""
    assert system.leaks()
    assert audited(system, seed=1, trials=FEW).exit_code == 0


@pytest.mark.parametrize("system", [pytest.param(m, id=m.name) for m in UNEXPLAINED])
def test_what_a_trace_alone_stops_at_leaks(system):
    assert system.leaks()


@pytest.mark.slow
@pytest.mark.parametrize("system", KNOWN)
def test_what_is_known_to_be_missed_is_not_caught_with_all_trials_either(system):
    assert audited(system, seed=1).exit_code == 0
