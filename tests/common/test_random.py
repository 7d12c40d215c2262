"""Counter-based random numbers: the right distribution, and no dependence on batching."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from vflpriv.common.random import Randomness, Stream
from vflpriv.common.seeds import SecretKey, derive

CPU = torch.device("cpu")


def test_a_replica_draws_the_same_alone_and_among_others():
    together = Stream.of(3, "noise", [4, 9, 2], CPU).normal(37, 5, 1)
    for place, replica in enumerate([4, 9, 2]):
        assert torch.equal(Stream.of(3, "noise", [replica], CPU).normal(37, 5, 1)[0], together[place])


def test_many_sequences_at_once_equal_single_sequences():
    stream = Stream.of(3, "directions", [0, 1], CPU)
    rounds, parties = torch.tensor([7, 8, 9]), torch.tensor([2, 0, 2])
    block = stream.normal(10, rounds, parties)
    for k in range(3):
        assert torch.equal(block[:, k], stream.normal(10, int(rounds[k]), int(parties[k])))


def test_a_draw_from_a_later_block_is_the_tail_of_the_sequence():
    stream = Stream.of(3, "directions", [0], CPU)
    assert torch.equal(stream.normal(12, 1, 2)[:, 8:], stream.normal(4, 1, 2, first=2))


def test_streams_of_different_names_seeds_and_replicas_are_uncorrelated():
    draws = [
        Stream.of(seed, name, [replica], CPU).normal(64)
        for seed in (0, 1)
        for name in ("noise", "directions", "init")
        for replica in (0, 1)
    ]
    for i, a in enumerate(draws):
        for b in draws[:i]:
            assert abs(float(torch.corrcoef(torch.cat([a, b]))[0, 1])) < 0.6
            assert not torch.equal(a, b)


@pytest.mark.parametrize("source", ["seed", "secret"])
def test_normals_pass_the_kolmogorov_smirnov_test_and_ten_percent_wider_ones_fail(source):
    """Margin: secure draws are new each time; their p-value is below 1e-6 once in a million runs."""
    n = 200_000
    key = SecretKey.fresh() if source == "secret" else None
    drawn = Randomness(seed=11, key=key).stream("noise", [0], CPU).normal(n)[0]
    values = drawn.numpy().astype(np.float64)
    assert stats.kstest(values, "norm").pvalue > 1e-6
    assert stats.kstest(1.1 * values, "norm").pvalue < 1e-10
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 0.02


def test_unknown_streams_are_refused():
    with pytest.raises(ValueError, match="one of init"):
        derive(0, "nois")


def test_replicas_with_seeds_of_their_own_draw_what_each_seed_draws():
    together = Stream.of([3, 8], "noise", [0, 0], CPU).normal(5, 1)
    alone = [Stream.of(seed, "noise", [0], CPU).normal(5, 1)[0] for seed in (3, 8)]
    assert torch.equal(together, torch.stack(alone))
