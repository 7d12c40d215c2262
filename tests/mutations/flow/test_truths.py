"""The truths that the tracer is judged by, without it: on paper, by two plain runs, or by an adversary."""

from __future__ import annotations

import contextlib
import io
import math
import re

import pytest
import torch

from tests.mutations.flow.program import TracedProgram, run_plainly
from tests.mutations.flow.suite import PROGRAMS

RUNS = 5
"""Plain runs of each world by which an adversary shows that it tells them apart."""


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _each(*, having: str):
    chosen = [p for p in PROGRAMS if getattr(p, having) is not None]
    return pytest.mark.parametrize("program", [pytest.param(p, id=p.name) for p in chosen])


def test_there_are_enough_programs_and_each_says_what_it_is():
    assert sum(p.broken for p in PROGRAMS) >= 70
    assert sum(not p.broken for p in PROGRAMS) >= 50
    assert len({p.name for p in PROGRAMS}) == len(PROGRAMS)
    for program in PROGRAMS:
        assert re.fullmatch(r"[a-z0-9-]+", program.name)
        assert not program.why.endswith(".")
        assert program.exact or program.std or program.tells


@_each(having="exact")
def test_the_figure_of_the_pair_on_paper_decides_as_the_truth_says(program):
    assert (program.exact() > program.claimed * (1 + 1e-6)) == program.broken


def _plain(program: TracedProgram, *, neighbour: bool, seed: int, receipts=()):
    with contextlib.redirect_stdout(io.StringIO()):
        return run_plainly(program.train, neighbour=neighbour, seed=seed, receipts=receipts)


@_each(having="std")
def test_two_plain_runs_with_known_noise_decide_as_the_truth_says(program):
    """With the same draws and receipts the messages differ by what the noise hides: μ² is Σ gap²/σ²."""
    here = _plain(program, neighbour=False, seed=1)
    there = _plain(program, neighbour=True, seed=1, receipts=here)
    gaps = [
        (message.tensors[name].double() - other.tensors[name].double()).norm()
        for message, other in zip(here, there, strict=True)
        for name in message.tensors
    ]
    mu = float(torch.stack(gaps).norm()) / program.std
    # Margin: sums of forty numbers in single precision move by 2e-7 of μ between CPUs, and 1e-4 of it is allowed.
    if program.broken:
        assert mu > program.claimed * (1 + 1e-4)
    else:
        assert mu <= program.claimed * (1 + 1e-4)
    if program.exact:
        assert math.isclose(mu, program.exact(), rel_tol=1e-3)


@_each(having="tells")
def test_an_adversary_tells_the_worlds_apart(program):
    said = [
        program.tells(_plain(program, neighbour=neighbour, seed=seed)) == neighbour
        for neighbour in (False, True)
        for seed in range(RUNS)
    ]
    assert all(said)
    assert program.broken
