"""The parts of the sensitivity search: which inputs it tries, how it climbs, what it says, and what it saves."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from vflpriv.audits.sensitivity import (
    SensitivityAudit,
    WorstPair,
    _bounds,
    _distance,
    _finding,
    proved_bounds,
    replay_witness,
    save_witnesses,
)
from vflpriv.core.claims import Verdict
from vflpriv.core.units import Unit
from vflpriv.training.mechanisms.base import Mechanism, NoNoise, ScalarMean, VectorMean
from vflpriv.training.mechanisms.uplink import ClientClip, EmbeddingClip, Emptied, Unclipped

SCALAR = ScalarMean(noise_std=1.0, clip=1.5, batch_size=7)
VECTOR = VectorMean(noise_std=1.0, clip=1e6, batch_size=3)


def pair(observed: float = 3.0, declared: float = 2.0, unit: Unit = Unit.LABEL, **changes: object) -> WorstPair:
    values = {"values": torch.tensor([0.5, 1.0]), "neighbour": torch.tensor([-2.5, 1.0])} | changes
    return WorstPair(mechanism="x", unit=unit, declared=declared, observed=observed, searched=96, **values)


# What a pair says


def test_a_bound_is_broken_beyond_a_billionth_of_it() -> None:
    for share, holds in ((1.0, True), (1 + 5e-10, True), (1 + 1e-9, True), (1 + 1.5e-9, False), (0.5, True)):
        assert pair(2.0 * share).holds == holds


def test_a_witness_is_described_by_what_differs() -> None:
    assert pair().witness == "record 0: 0.5 against -2.5"
    rows = {"values": torch.tensor([[3.0, 4.0], [9.0, 9.0]]), "neighbour": torch.tensor([[0.0, 8.0], [9.0, 9.0]])}
    assert pair(**rows).witness == "record 0: norm 5 against 8, distance 5"
    assert pair(unit=Unit.CLIENT, **rows).witness == "inputs of norm 13.67 and 15.03"


def test_what_is_said_of_a_bound() -> None:
    assert (pair(1.0).sentence, pair(1.0, published=True).sentence) == (
        "none of 96 pairs of neighbours moved x by more than 1, within the declared 2",
        "none of 96 pairs of neighbours moved x by more than 1, within the published 2",
    )
    assert pair().sentence == (
        "the sensitivity search found a witness beyond the declared bound: x declares 2 for the label unit, "
        "found 3 (record 0: 0.5 against -2.5)"
    )
    assert "beyond the published bound: x has a published bound of 2 for" in pair(published=True).sentence
    assert "and releases a value that is not finite for a finite input (record" in pair(math.inf).sentence
    assert (pair(published=True).name, pair().name) == ("x-label-published", "x-label")
    assert (pair(published=True).subject, pair().subject) == ("x, published bound", "x")


def test_a_repair_says_how_much_more_noise_a_true_bound_takes() -> None:
    assert pair().repair == (
        "Bound what one label moves in x: it can move by 3, and 2 is declared, or declare that and make its noise "
        "1.5 times as large."
    )
    assert "12 times as large" in pair(declared=0.25).repair
    for unbounded in (pair(math.inf), pair(declared=0.0)):
        assert "times as large" not in unbounded.repair


def test_a_finding_bears_on_what_rests_on_the_bound() -> None:
    keys = frozenset({"theirs"})
    held, broken = _finding(pair(1.0), Path("a b/c.json"), keys), _finding(pair(published=True), None, keys)
    assert (held.verdict, held.repair, held.claim_keys) == (Verdict.CONSISTENT, "", None)
    assert (broken.verdict, broken.repair, broken.claim_keys) == (
        Verdict.VIOLATED, pair(published=True).repair, keys,
    )  # fmt: skip
    assert (held.reproduce, broken.reproduce) == ("vflpriv replay 'a b/c.json'", "")
    assert (broken.figure, broken.limit, broken.unit, broken.claim_units) == (3.0, 2.0, Unit.LABEL, {Unit.LABEL})


# Bounds and distances


def test_the_finite_bounds_are_the_proven_one_and_a_smaller_published_one() -> None:
    client = ClientClip(noise_std=1.0, clip=3.0, emptied=Emptied.NON_NEGATIVE)
    assert _bounds(client, Unit.CLIENT_ZERO) == {False: pytest.approx(3 * math.sqrt(2)), True: 3.0}
    assert _bounds(client, Unit.CLIENT) == {False: 6.0}
    one_sided = ScalarMean(noise_std=1.0, clip=1.5, batch_size=7, two_sided=False)
    assert _bounds(one_sided, Unit.LABEL) == {False: 3 / 7}, "nothing is proven"
    assert _bounds(NoNoise(depends_on=frozenset({Unit.LABEL})), Unit.LABEL) == {}


def test_distances_hold_beyond_the_squares_that_a_double_holds() -> None:
    firsts = [[3.0, 0.0], [3e200, 0.0], [3e-200, 0.0], [0.0, 0.0], [math.inf, 0.0], [1.0, math.nan]]
    values = torch.tensor(firsts, dtype=torch.float64)
    others = torch.zeros_like(values)
    others[:3, 1] = torch.tensor([4.0, 4e200, 4e-200], dtype=torch.float64)
    found = _distance(values, others).tolist()
    assert found == pytest.approx([5.0, 5e200, 5e-200, 0.0, math.inf, math.inf], rel=1e-12, abs=0)


# What is tried


@pytest.mark.parametrize("shape", [(6,), (6, 8)])
def test_inputs_are_directions_times_magnitudes(shape: tuple[int, ...]) -> None:
    inputs = SensitivityAudit(candidates=8000)._inputs(shape, 2.5, torch.Generator().manual_seed(1))
    assert inputs.shape == (8000, *shape)
    rows = inputs.reshape(8000, 6, -1)
    lengths = rows.norm(dim=-1) / 2.5
    edges = torch.tensor([0.0, 0.5, 1.0, 2.0, 10.0, 1e3], dtype=torch.float64)
    at_edge = (lengths.unsqueeze(-1) - edges).abs().amin(-1) < 1e-9
    for magnitude, special in ((lengths[:, 0], at_edge[:, 0]), (lengths[:, 1], at_edge[:, 1])):
        assert float(special.double().mean()) == pytest.approx(0.5, abs=0.03)
        for edge in edges:
            share = float(((magnitude - edge).abs() < 1e-9).double().mean())
            assert share == pytest.approx(1 / 12, abs=0.015)
        heavy = magnitude[~special].log10()
        assert (float(heavy.min()), float(heavy.max())) == pytest.approx((-3, 3), abs=0.01)
        assert float(heavy.mean()) == pytest.approx(0.0, abs=0.1)
    torch.testing.assert_close(lengths[:, 1:], lengths[:, 1:2].expand(-1, 5))
    assert not torch.allclose(lengths[:, 0], lengths[:, 1]), "record 0 has a magnitude of its own"
    usable = (lengths > 0).all(1)
    towards = rows / (2.5 * lengths.unsqueeze(-1))
    agree = ((towards - towards[:, :1]).abs() < 1e-9).all(2).all(1)
    for remainder, expected in ((0, False), (1, True), (2, True), (3, False)):
        chosen = agree[remainder::4][usable[remainder::4]]
        assert float(chosen.double().mean()) == pytest.approx(float(expected), abs=0.1)
    assert float(towards[usable].mean()) == pytest.approx(0.0, abs=0.02), "all directions alike"


class Recorded(SensitivityAudit):
    """A search that keeps what it tries."""

    def _best(self, mechanism, unit, pair):
        self.tried = [*getattr(self, "tried", []), pair]
        return super()._best(mechanism, unit, pair)


@pytest.mark.parametrize(("mechanism", "size", "shape"), [(SCALAR, 7, (7,)), (VECTOR, 200, (64, 8))])
def test_a_search_tries_opposite_and_orthogonal_inputs_and_then_climbs(mechanism, size, shape) -> None:
    search = Recorded(candidates=65, climbs=2)
    found = search.search("x", mechanism, Unit.RECORD, batch_size=size, seed=5)
    first, *climbs = search.tried
    assert first.shape == (2, 65, *shape)
    assert found.searched == 65 * 3
    assert len(climbs) == 2
    for place in range(0, 65, 2):
        assert torch.equal(first[1, place], -first[0, place])
    assert not any(torch.equal(first[1, place], -first[0, place]) for place in range(1, 65, 4))
    right = first[:, 3::4]
    assert (right[0, ..., ::2] == 0).all()
    assert (right[1, ..., 1::2] == 0).all()
    assert (right[0, ..., 1::2] != 0).any()
    assert (right[1, ..., ::2] != 0).any()
    best, _ = SensitivityAudit._best(search, mechanism, Unit.RECORD, first)
    uphill = search._uphill(mechanism, Unit.RECORD, best)
    moved = climbs[0]
    assert moved.shape == first.shape
    assert torch.equal(moved[:, 0], best)
    changes = (moved[:, 1:33] - best.unsqueeze(1)).reshape(2, 32, -1)
    along = uphill.reshape(2, 1, -1)
    if len(shape) == 1 and not along.any():
        # Numbers at their clip climb along rounding errors, or, where the CPU makes none, not at all.
        assert not changes.any()
    else:
        steps = (changes * along).sum((0, 2)) / along.square().sum()
        torch.testing.assert_close(changes, steps[None, :, None] * along, rtol=1e-6, atol=1e-9)
        assert ((steps > 0.9e-3) & (steps < 10.1)).all()
        assert steps.log10().min() < -2
        assert steps.log10().max() > 0.5
    noisy = ((moved[:, 33:] / best.unsqueeze(1)) - 1).reshape(2, 32, -1)
    spread = torch.where(noisy.isfinite(), noisy, 0.0).square().mean((0, 2)).sqrt().log10()
    assert -3.6 < float(spread.min()) < -2
    assert 0.4 < float(spread.max()) < 1.6
    assert abs(float(torch.where(noisy.isfinite(), noisy.sign(), 0.0).mean())) < 0.2
    expected = mechanism.noiseless(found.values.unsqueeze(0)) - mechanism.noiseless(found.neighbour.unsqueeze(0))
    assert found.observed == pytest.approx(float(expected.norm()))
    differ = (found.values != found.neighbour).reshape(len(found.values), -1).any(1)
    assert differ.tolist() == [True] + [False] * (len(differ) - 1)


def test_uphill_is_the_gradient_as_long_as_the_pair() -> None:
    """A linear mechanism: only record 0 of each world moves the difference, in opposite directions."""
    generator = torch.Generator().manual_seed(2)
    both = torch.randn(2, 3, 8, generator=generator, dtype=torch.float64)
    uphill = SensitivityAudit()._uphill(VECTOR, Unit.RECORD, both)
    gap = both[0, 0] - both[1, 0]
    expected = torch.zeros_like(both)
    expected[0, 0], expected[1, 0] = gap, -gap
    torch.testing.assert_close(uphill, expected * both.norm() / expected.norm())
    both[0, 0], both[1, 0] = 0.0, both[1, 0] / 10
    uphill = SensitivityAudit()._uphill(EmbeddingClip(clip=1.0, batch_size=3), Unit.RECORD, both)
    assert (uphill[0, 0] == 0).all(), "a norm has no derivative at zero: the row stays"
    assert (uphill[1, 0] != 0).all()


def test_the_best_pair_is_the_farthest_of_finite_ones() -> None:
    both = torch.zeros(2, 4, 3, dtype=torch.float64)
    both[0, :, 0] = torch.tensor([1.0, 1.4, math.inf, 0.3])
    both[1, :, 0] = torch.tensor([0.0, -1.0, 0.0, math.nan])
    best, observed = SensitivityAudit()._best(SCALAR, Unit.LABEL, both)
    assert torch.equal(best, both[:, 1])
    assert observed == pytest.approx(2.4 / 7)
    same = both[:, [3, 0]]
    assert torch.equal(SensitivityAudit()._best(SCALAR, Unit.LABEL, same)[0], same[:, 1])


def test_units_that_replace_a_record_share_a_search_and_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[tuple[Unit, int, int]] = []

    def search(self, name, mechanism, unit, *, batch_size, seed):
        searched.append((unit, batch_size, seed))
        return pair(observed=float(len(searched)), unit=unit, declared=-1.0)

    monkeypatch.setattr(SensitivityAudit, "search", search)
    client = ClientClip(noise_std=1.0, clip=3.0, emptied=Emptied.NON_NEGATIVE)
    mechanisms: dict[str, Mechanism] = {"x": SCALAR, "y": client, "z": Unclipped(noise_std=1.0, clip=1.0, batch_size=3)}
    pairs = SensitivityAudit().search_all(mechanisms, batch_size=7, seed=9)
    expected = [Unit.LABEL, Unit.ADD_REMOVE, Unit.CLIENT_ZERO, Unit.CLIENT]
    expected += [Unit.RECORD, Unit.ADD_REMOVE, Unit.CLIENT_ZERO, Unit.CLIENT]
    assert [unit for unit, *_ in searched] == expected
    assert {(size, seed) for _, size, seed in searched} == {(7, 9)}
    scalar = pairs[: len(SCALAR.sensitivity)]
    assert [p.proved for p in scalar] == pytest.approx([p.declared for p in scalar])
    told = {(p.unit, p.published): (p.observed, p.declared) for p in pairs[len(SCALAR.sensitivity) :]}
    assert told[Unit.RECORD, False] == told[Unit.FEATURES, False] == (5.0, 6.0)
    assert told[Unit.CLIENT_ZERO, True] == (7.0, 3.0)
    assert told[Unit.CLIENT_ZERO, False] == (7.0, pytest.approx(3 * math.sqrt(2)))


# What is saved


def test_what_is_saved_is_the_pair_with_its_mechanism(tmp_path: Path) -> None:
    vector = VectorMean(noise_std=0.7, clip=2.0, batch_size=3)
    generator = torch.Generator().manual_seed(2)
    values = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    other = torch.cat((-values[:1], values[1:]))
    gap = float((vector.noiseless(values[None]) - vector.noiseless(other[None])).norm())
    worst = pair(gap, vector.sensitivity[Unit.RECORD], Unit.RECORD, values=values, neighbour=other)
    save_witnesses(tmp_path / "new" / "folder", "toy", {"x": vector}, [replace(worst, observed=0.0)])
    files = save_witnesses(tmp_path / "new" / "folder", "toy", {"x": vector}, [worst])
    path = tmp_path / "new" / "folder" / "toy-x-record.json"
    assert files == {"x-record": path}
    described = json.loads(path.read_text())
    assert (described["mechanism"], described["unit"], described["published"]) == ("VectorMean", "record", False)
    assert described["settings"] == {"noise_std": 0.7, "law": None, "clip": 2.0, "batch_size": 3, "largest": None}
    assert (described["declared"], described["observed"]) == pytest.approx((4 / 3, gap))
    inputs = load_file(path.with_suffix(".safetensors"))
    assert torch.equal(inputs["values"], values)
    assert torch.equal(inputs["neighbour"], other)
    again = replay_witness(path)
    assert (again.mechanism, again.unit, again.declared) == ("VectorMean", Unit.RECORD, pytest.approx(4 / 3))
    assert again.observed == pytest.approx(gap)
    for share, holds in ((1.0, True), (1 + 1e-9, True), (1 + 1.5e-9, False)):
        assert type(again)(mechanism="x", unit=Unit.RECORD, declared=2.0, observed=2.0 * share).holds == holds


# What is proved along the operations


def test_a_bound_is_proved_up_to_a_billionth_of_it_and_otherwise_searched() -> None:
    told = {1.0: "proved", 1 + 1e-9: "proved", 1 + 2e-9: "searched", math.inf: "searched"}
    assert {share: pair(proved=2.0 * share).basis for share in told} == told


@pytest.mark.parametrize(("batch_size", "largest", "records"), [(2, None, 3), (5, None, 5), (5, 9, 9), (3, 2, 3)])
def test_proofs_are_of_the_largest_batch(batch_size: int, largest: int | None, records: int) -> None:
    vector = VectorMean(noise_std=1.0, clip=2.0, batch_size=3, largest=largest)
    scalar = ScalarMean(noise_std=1.0, clip=2.0, batch_size=3, largest=largest)
    for mechanism in (vector, scalar):
        proved = proved_bounds(mechanism, batch_size)
        assert set(proved) == set(Unit)
        for unit in (Unit.LABEL, Unit.RECORD, Unit.FEATURES):
            assert (proved[unit].bound, proved[unit].why) == (pytest.approx(4 / 3), "")
        assert proved[Unit.ADD_REMOVE].bound == pytest.approx(2 / 3)
        assert proved[Unit.CLIENT].bound == proved[Unit.CLIENT_ZERO].bound == pytest.approx(4 * records / 3)


def test_proofs_know_what_a_device_without_data_sends() -> None:
    factors = {Emptied.ZEROS: 1.0, Emptied.NON_NEGATIVE: math.sqrt(2), Emptied.ANYTHING: 2.0}
    for emptied, factor in factors.items():
        proved = proved_bounds(ClientClip(noise_std=1.0, clip=3.0, emptied=emptied), 4)
        assert proved[Unit.CLIENT_ZERO].bound == pytest.approx(3 * factor), emptied
        assert proved[Unit.CLIENT].bound == pytest.approx(6.0)
    one_sided = ScalarMean(noise_std=1.0, clip=1.5, batch_size=7, two_sided=False)
    unclipped = Unclipped(noise_std=1.0, clip=1.0, batch_size=3)
    for open_ended in (one_sided, unclipped):
        proof = next(iter(proved_bounds(open_ended, 4).values()))
        assert (proof.bound, bool(proof.why)) == (math.inf, True)
