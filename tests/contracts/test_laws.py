"""What every registered law keeps to: its sampler, its tests of observations, its pair, and what others ask of it."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, kstest

from tests.accountants.exposures import event, expose
from tests.tree import ROOT, modules
from vflpriv.accountants.auto import AutoAccountant
from vflpriv.accountants.prv import PrvAccountant
from vflpriv.accountants.rdp import RdpAccountant
from vflpriv.common.random import SecretStream, Stream
from vflpriv.common.registry import available
from vflpriv.common.seeds import SecretKey
from vflpriv.core.law import Draws, Law, Pair
from vflpriv.laws import (
    Alibi,
    CorrelatedGaussian,
    Exponential,
    LabelSets,
    Opaque,
    RandomizedResponse,
)
from vflpriv.laws.correlated import toeplitz_encoder, tree_encoder
from vflpriv.laws.grid import GridLaw

SPECIAL: dict[str, list[Law]] = {
    "exponential": [Exponential(0.8), Exponential(2.0, monotonic=True)],
    "correlated-gaussian": [
        CorrelatedGaussian(3.0, tree_encoder(5)),
        CorrelatedGaussian(2.0, toeplitz_encoder((1.0, 0.5, 0.25), 6), separation=3),
    ],
    "rr": [RandomizedResponse(1.0), RandomizedResponse(0.2)],
    "label-sets": [LabelSets(0.5), LabelSets(2.0)],
    "opaque": [Opaque("AES-GCM")],
}
"""Examples of laws that more than a number describes, or that none scales."""


def examples(law: Any) -> list[Law]:
    """Of any registered law: at two sizes, on a grid in coarse, fine and many steps; those without a size once."""
    if law.name in SPECIAL:
        return SPECIAL[law.name]
    if law.sized_by is None:
        return [law()]
    if issubclass(law, GridLaw):
        return [law(**{law.sized_by: size, "step": step, "entries": n}) for size, step, n in GRIDS]
    return [law(**{law.sized_by: size}) for size in (2.0, 1.5)]


GRIDS = [(3.0, 1.0, 1), (0.7, 0.5, 1), (4.0, 0.01, 16)]
LAWS = {name: examples(law) for name, law in available("law").items()}
EVERY = [law for laws in LAWS.values() for law in laws]
NOISED = [law for law in EVERY if law.noised]
SAMPLED = [law for law in NOISED if type(law).draw is not Law.draw]
CPU = torch.device("cpu")
NUMBER = 50_000


def seeded(seed: int = 0) -> Draws:
    return Stream.of(seed, "noise", [0], CPU)


def secret() -> Draws:
    return SecretStream(SecretKey.fresh(), "noise", [0], CPU)


def source_of(kind: str, law: Law) -> Draws:
    return seeded() if kind == "seeded" else secret()


def noise_and_signal(law: Law, source: Draws) -> tuple[Any, Any]:
    """Noise on values that are nothing but a grid's steps, or the choice among eight utilities."""
    random = np.random.default_rng(1)
    if not law.independent:
        rounds = len(law.encoder[0])  # type: ignore[attr-defined]
        zeros = torch.zeros(1, NUMBER // rounds)
        drawn = [law.release(zeros, law.draw(source, NUMBER // rounds, t, 1)) for t in range(rounds)]
        return torch.cat(drawn).double().numpy(), None
    shape = (NUMBER, 8) if law.selects else (1, NUMBER)
    signal = torch.from_numpy(random.normal(size=shape) * (law.level or 1.0)).float()
    if law.grid:
        signal = torch.round(signal / law.grid) * law.grid
    draws = law.draw(source, signal.numel(), 3, 1).reshape(shape)
    released = law.release(signal, draws).double().numpy()
    return released - signal.double().numpy(), signal.double().numpy()


def p_value(law: Law, noise: Any, signal: Any) -> float:
    """Kolmogorov and Smirnov's p-value of "standard normal" for the scores of this law."""
    random: Any = np.random.default_rng(2)
    scores = law.scores(noise, signal, random) if law.independent else law.whitened(noise)  # type: ignore[attr-defined]
    assert scores is not None
    return float(kstest(np.ravel(scores), "norm").pvalue)


def test_every_registered_law_says_what_it_is() -> None:
    for name, law in available("law").items():
        assert law.name == name
        assert law.summary


@pytest.mark.parametrize("law", EVERY, ids=str)
def test_it_is_a_value_with_a_text(law: Law) -> None:
    assert str(law)
    assert hash(law) == hash(law.scaled(1.0)) or law.level is None
    assert law.noised == (not law.exact and not law.sealed_by)
    assert law.strength(0.0) in (0.0, law.strength(1.0))


@pytest.mark.parametrize("kind", ["seeded", "secret"])
@pytest.mark.parametrize("law", SAMPLED, ids=str)
def test_the_right_scale_passes_and_a_wrong_one_fails(law: Law, kind: str) -> None:
    """Margin: one of a million secret draws of the right scale has a smaller p-value; of wrong ones it is 1e-12."""
    noise, signal = noise_and_signal(law, source_of(kind, law))
    assert p_value(law, noise, signal) > 1e-6
    for factor in (0.9, 1.1):
        assert p_value(law.scaled(factor), noise, signal) < 1e-6


@pytest.mark.parametrize("law", [law for law in SAMPLED if law.independent], ids=str)
def test_seeded_draws_return_and_differ_by_path(law: Law) -> None:
    first, again, other = (law.draw(seeded(), 64, t, 0) for t in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(law.draw(secret(), 64, 1, 0), law.draw(secret(), 64, 1, 0))


@pytest.mark.parametrize("law", [law for law in SAMPLED if law.independent and not law.selects], ids=str)
def test_the_deviation_is_that_of_the_noise(law: Law) -> None:
    noise, _ = noise_and_signal(law, seeded())
    assert float(noise.std()) == pytest.approx(law.deviation, rel=0.02)


@pytest.mark.parametrize("law", [law for law in EVERY if law.bounds_size], ids=str)
def test_sums_of_sizes_are_seldom_below_their_bound(law: Law) -> None:
    """Margin: the draws are the same everywhere, and three standard errors are allowed."""
    noise, _ = noise_and_signal(law, seeded())
    rows = np.reshape(noise, (-1, 50))
    p_values = law.lower_tail(law.sizes(rows).sum(1), np.full(len(rows), 50))
    assert np.mean(p_values < 0.05) <= 0.05 + 3 * math.sqrt(0.05 / len(rows))
    # Half of the noise, and none, are noticed.
    assert float(law.lower_tail(float(law.sizes(rows / 2).sum()), rows.size)) < 1e-9
    assert float(law.lower_tail(0.0, 500)) < 1e-9


@pytest.mark.parametrize("law", NOISED, ids=str)
@given(small=st.floats(0.05, 3.0), factor=st.floats(1.0, 4.0))
def test_more_sensitivity_and_less_noise_cost_more(law: Law, small: float, factor: float) -> None:
    assert law.strength(small) <= law.strength(small * factor) * (1 + 1e-12)
    assert law.scaled(factor).strength(small) <= law.strength(small) * (1 + 1e-12)
    assert law.square(small, 3) >= 3 * law.square(small, 1) * (1 - 1e-12)
    assert np.all(np.asarray(law.square(small, np.array([1, 2]))) <= law.square(small * factor, 2) * (1 + 1e-12))


@pytest.mark.parametrize("law", NOISED, ids=str)
def test_moments_are_those_of_the_masses(law: Law) -> None:
    """The moments against the sum of P e^{(a-1) loss} over fine intervals of the loss."""
    pair = law.pair(1.0)
    if pair.by_moments:
        pytest.skip("its masses are not known")
    low, high = pair.reach(1e-30)
    edges = np.concatenate([[-math.inf], np.linspace(low - 1e-9, high + 1e-9, 200_001), [math.inf]])
    upper, lower = pair.masses(edges)
    assert math.fsum(upper) == pytest.approx(1.0, abs=1e-9)
    assert math.fsum(lower) == pytest.approx(1.0, abs=1e-9)
    middle = np.concatenate([[low], (edges[1:-2] + edges[2:-1]) / 2, [high]])
    for order in (1.5, 2.0, 4.0):
        integral = math.log(math.fsum(upper * np.exp((order - 1) * middle)))
        assert float(pair.log_moments((order,))[0]) == pytest.approx(integral, rel=2e-3, abs=1e-6)


@pytest.mark.parametrize("law", NOISED, ids=str)
@pytest.mark.parametrize("count", [1, 7])
def test_bounds_enclose_what_dp_accounting_computes(law: Law, count: int) -> None:
    pair, delta = law.pair(0.5), 1e-5
    if (distribution := pair.in_dp_accounting(1e-4)) is None or (count > 1 and not law.independent):
        pytest.skip("dp-accounting knows no such event")
    theirs = distribution.self_compose(count).get_epsilon_for_delta(delta)
    budget = PrvAccountant().budget(expose(event(law, 0.5, count)), delta)
    assert budget.lower <= theirs * (1 + 1e-6) + 1e-9
    assert budget.upper == pytest.approx(theirs, rel=5e-3, abs=1e-3)


@pytest.mark.parametrize("law", NOISED, ids=str)
def test_every_accountant_agrees_on_the_order_of_its_bounds(law: Law) -> None:
    exposure = expose(event(law, 0.5, 4))
    auto, rdp = AutoAccountant().budget(exposure, 1e-6), RdpAccountant().budget(exposure, 1e-6)
    assert 0 <= auto.lower <= auto.upper <= rdp.upper * (1 + 1e-9) < math.inf
    pure = law.pair(0.5).pure_epsilon
    assert auto.upper <= 4 * pure * (1 + 1e-9)


@pytest.mark.parametrize("law", [law for law in EVERY if law.table(2) is not None], ids=str)
@pytest.mark.parametrize("inputs", [2, 3, 10])
def test_a_table_adds_up_and_keeps_to_epsilon(law: Law, inputs: int) -> None:
    table = law.table(inputs)
    assert table is not None
    np.testing.assert_allclose(table.sum(1), 1.0, atol=1e-12)
    largest = (table[:, None] / table[None]).max()
    assert largest <= math.exp(law.strength(law.level or 1.0)) * (1 + 1e-9)


@pytest.mark.parametrize("law", [Alibi(1.0), LabelSets(0.5), LabelSets(2.0), RandomizedResponse(1.0)], ids=str)
@pytest.mark.parametrize("classes", [2, 10])
def test_labels_are_observed_as_often_as_their_law_says(law: Any, classes: int) -> None:
    """Margin: the draws are the same everywhere: p is 0.14 and more, of weaker laws 3e-6 and less."""
    truth = np.arange(30_000) % classes
    labels = torch.from_numpy(truth).unsqueeze(0)
    observed = law.observe(labels, classes, Stream.of(0, "labels", [0], CPU))
    kept = int((observed.argmax(-1) == labels).sum())
    assert binomtest(kept, truth.size, law.kept(classes)).pvalue > 1e-4
    weaker = law.scaled(1.25) if law.level is not None else replace(law, epsilon=1.25 * law.epsilon)
    assert binomtest(kept, truth.size, weaker.kept(classes)).pvalue < 1e-4


@pytest.mark.parametrize("law", [law for law in EVERY if not law.noised], ids=str)
def test_without_noise_nothing_is_bounded(law: Law) -> None:
    assert law.strength(1.0) == math.inf
    assert AutoAccountant().budget(expose(event(law)), 1e-5).upper == math.inf


def kinds_of(base: type) -> Iterator[type]:
    """All classes that are made of one."""
    for kind in base.__subclasses__():
        yield kind
        yield from kinds_of(kind)


def ours(kind: type) -> bool:
    return kind.__module__.startswith(("vflpriv.core", "vflpriv.laws"))


def test_nobody_asks_which_law_it_is() -> None:
    """Outside `vflpriv/laws/` no module tests for a class of laws or of their pairs: they ask the law."""
    names = {kind.__name__ for base in (Law, Pair) for kind in (base, *kinds_of(base)) if ours(kind)}
    assert {"GridLaw", "LabelLaw", "Continuous", "GaussianPair", "Gaussian"} <= names
    asking = []
    for module, path in modules().items():
        if module.startswith("vflpriv.laws"):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
                kinds = {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)}
                if kinds & names:
                    asking.append(f"{path.relative_to(ROOT)}:{node.lineno}: {sorted(kinds & names)}")
    assert not asking, "\n".join(asking)
