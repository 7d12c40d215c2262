"""The learned score of canaries: what it reads, that it never reads a counted coin, and that its bound covers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from vflpriv.audits.learned.recorded import Split, learned_scores, record_features
from vflpriv.audits.one_run import LEARNED, guess_coins
from vflpriv.audits.statistics.one_run import epsilon_one_run
from vflpriv.core.canaries import Canaries, plant
from vflpriv.core.views import Adversary, View
from vflpriv.core.wire import SERVER, Message, device

DEVICE = Adversary.parse("device(0)")


def view(*messages, classes=2):
    return View(DEVICE, tuple(messages), classes)


def message(round_, tensors, records, kind="hints"):
    given = {name: value.unsqueeze(0) for name, value in tensors.items()}
    return Message(round=round_, sender=SERVER, receiver=device(0), kind=kind, tensors=given, records=records)


def columns(seen, records, count):
    return record_features(seen, records, count).columns


def has_column(table, values):
    """Whether one column is these values, up to scale and shift."""
    wanted = torch.as_tensor(values, dtype=torch.float64)
    centred, target = table - table.mean(0), wanted - wanted.mean()
    cosines = (centred * target.unsqueeze(1)).sum(0) / (centred.norm(dim=0) * target.norm())
    return bool((cosines.abs() > 1 - 1e-6).any())


def test_rows_of_any_kind_are_summed_up_by_record():
    first, second = torch.arange(4), torch.tensor([3, 1])
    rows = torch.tensor([[1.0, 5.0], [2.0, -6.0], [4.0, 7.0], [9.0, -8.0]])
    later = torch.tensor([[1.5, 0.5], [-3.0, 2.0]])
    table = columns(view(message(0, {"x": rows}, first), message(1, {"x": later}, second)), [0, 1, 2, 3], 4)
    assert has_column(table, [1.0, -0.5, 4.0, 5.25])  # means
    assert has_column(table, rows[:, 0])  # first
    assert has_column(table, [1.0, -3.0, 4.0, 1.5])  # last
    assert has_column(table, [1, 2, 1, 2])  # how many


def test_the_batch_axis_may_come_last_and_a_batch_of_one_is_a_row():
    values = torch.tensor([[1.0, 2.0, 4.0], [3.0, 9.0, 1.0]])
    table = columns(view(message(0, {"differences": values}, torch.arange(3))), [0, 1, 2], 3)
    assert has_column(table, [3, 9, 1])
    alone = [message(i, {"x": torch.tensor([float(i * i)])}, torch.tensor([i])) for i in range(4)]
    assert has_column(columns(view(*alone), [0, 1, 2, 3], 4), [0, 1, 4, 9])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64])
def test_low_bits_are_read_in_every_type(dtype):
    secret = torch.tensor([0, 1, 1, 0, 1, 0])
    plain = torch.tensor([8, 3, 17, 12, 30, 5]) * 4
    if dtype is torch.int64:
        rows = plain + secret
    else:
        whole = {torch.float64: torch.int64, torch.float32: torch.int32}.get(dtype, torch.int16)
        bits = (plain * 0.37).to(dtype).view(whole)
        rows = ((bits & ~1) | secret.to(whole)).view(dtype)
    assert has_column(columns(view(message(0, {"x": rows.unsqueeze(1)}, torch.arange(6))), range(6), 6), secret)


def test_wide_rows_are_projected():
    rows = torch.randn(8, 5000, generator=torch.Generator().manual_seed(0))
    table = columns(view(message(0, {"x": rows}, torch.arange(8))), range(8), 8)
    assert table.shape[1] < 1500
    assert has_column(table, rows[:, 3])


def test_totals_are_regressed_on_who_took_part():
    generator = torch.Generator().manual_seed(0)
    share = torch.randn(12, generator=generator)
    messages = []
    for t in range(60):
        ids = torch.randperm(12, generator=generator)[:5]
        messages.append(message(t, {"total": share[ids].sum() + 3.0 * t}, ids))
    table = columns(view(*messages), range(12), 12)
    cosines = torch.corrcoef(torch.cat((share.double().unsqueeze(1), table), dim=1).T)[0, 1:]
    assert cosines.max() > 0.999


def test_messages_without_ids_or_records_tell_nothing():
    nothing = view(message(0, {"x": torch.ones(3)}, None), message(1, {"x": torch.ones(0)}, torch.arange(0)))
    assert columns(nothing, [0, 1], 60).shape == (2, 0)
    labels, drawn = plant(torch.arange(60) % 2, classes=2, canaries=40, seed=0)
    assert learned_scores(drawn, labels, nothing, Split.of(drawn, labels, seed=0), seed=0) is None


def test_rows_of_all_records_need_no_ids_and_the_order_of_ids_is_read():
    rows = torch.tensor([3.0, 1.0, 2.0, 7.0, 5.0])
    assert has_column(columns(view(message(0, {"x": rows}, None)), range(5), 5), rows)
    order = torch.tensor([4, 0, 2, 1, 3])
    table = columns(view(message(0, {}, order)), range(5), 5)
    assert has_column(table, order.argsort())


def test_rows_in_another_order_than_their_ids_are_read_by_their_sums():
    generator = torch.Generator().manual_seed(1)
    share = torch.randn(12, generator=generator)
    messages = []
    for t in range(80):
        ids = torch.randperm(12, generator=generator)[:5]
        shuffled = share[ids][torch.randperm(5, generator=generator)]
        messages.append(message(t, {"x": shuffled}, ids))
    table = columns(view(*messages), range(12), 12)
    assert torch.corrcoef(torch.cat((share.double().unsqueeze(1), table), dim=1).T)[0, 1:].max() > 0.999


def test_a_third_is_set_aside_and_told_to_attacks_only_where_other_labels_are_too_few():
    labels, drawn = plant(torch.arange(90) % 3, classes=3, canaries=60, seed=0)
    split = Split.of(drawn, labels, seed=0)
    assert (len(split.told), len(split.choosing), len(split.counted)) == (0, 20, 40)
    labels, drawn = plant(torch.arange(90) % 3, classes=3, canaries=90, seed=0)
    split = Split.of(drawn, labels, seed=0)
    assert (len(split.told), len(split.choosing), len(split.counted)) == (15, 15, 60)
    assert sorted(np.concatenate((split.aside, split.counted)).tolist()) == list(range(90))


def response(seed, epsilon, *, classes=2, canaries=150, records=200):
    """Rows of an unknown kind that hold labels under randomised response, and columns of noise; scored and guessed."""
    generator = torch.Generator().manual_seed(seed)
    own = torch.randint(0, classes, (records,), generator=generator)
    labels, drawn = plant(own, classes=classes, canaries=canaries, seed=seed)
    keep = math.exp(epsilon) / (math.exp(epsilon) + classes - 1)
    kept = torch.rand(records, generator=generator) < keep
    shift = torch.randint(1, classes, (records,), generator=generator)
    noised = torch.where(kept, labels, (labels + shift) % classes)
    rows = torch.cat((noised.unsqueeze(1).float(), torch.randn(records, 3, generator=generator)), dim=1)
    seen = view(message(0, {"x": rows}, torch.arange(records)), classes=classes)
    split = Split.of(drawn, labels, seed=0)
    return drawn, labels, seen, split


def bound(seed, epsilon, **shape):
    drawn, labels, seen, split = response(seed, epsilon, **shape)
    scores = learned_scores(drawn, labels, seen, split, seed=0)
    return epsilon_one_run(guess_coins(drawn, split, {}, {DEVICE: scores}).guesses, 0.0, 0.95)


def exceeded(epsilon, repetitions, **shape):
    return sum(bound(seed, epsilon, **shape) > epsilon for seed in range(repetitions))


def test_the_bound_of_a_learned_score_covers_a_mechanism_that_is_exactly_at_epsilon():
    # 40 runs at 5 %: 2 expected at most, 6 are 2.9 standard deviations more.
    assert exceeded(1.0, 40) <= 6


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "classes"), [(0.0, 2), (1.0, 2), (2.5, 2), (1.0, 5)])
def test_the_bound_of_a_learned_score_covers(epsilon, classes):
    # 400 runs at 5 %: 20 expected at most, 34 are 3.2 standard deviations more.
    assert exceeded(epsilon, 400, classes=classes) <= 34


def test_the_same_simulation_catches_a_score_that_learns_from_counted_canaries():
    above = 0
    for seed in range(20):
        drawn, labels, seen, split = response(seed, 0.0)
        everyone = np.arange(len(drawn.records))
        cheating = Split(told=split.told, choosing=everyone, counted=split.counted)
        scores = learned_scores(drawn, labels, seen, cheating, seed=0)
        above += epsilon_one_run(guess_coins(drawn, cheating, {}, {DEVICE: scores}).guesses, 0.0, 0.95) > 0
    assert above > 6


@pytest.mark.parametrize("classes", [2, 7])
def test_no_score_depends_on_a_counted_coin(classes):
    drawn, labels, seen, split = response(3, 1.0, classes=classes, canaries=60, records=64)
    turned = drawn.worlds.clone()
    turned[0, split.counted] = 1 - turned[0, split.counted]
    other = Canaries(records=drawn.records, labels=drawn.labels, worlds=turned)
    changed = labels.clone()
    changed[list(drawn.records)] = other.labels.gather(1, turned[0].unsqueeze(1)).squeeze(1)
    assert np.array_equal(split.told, Split.of(other, changed, seed=0).told)
    scores = [learned_scores(*pair, seen, split, seed=0) for pair in ((drawn, labels), (other, changed))]
    assert np.array_equal(*scores)


def test_a_strong_leak_is_guessed_by_the_learned_score():
    assert bound(0, 8.0) > 2
    drawn, labels, seen, split = response(0, 8.0, classes=5)
    found = guess_coins(drawn, split, {}, {DEVICE: learned_scores(drawn, labels, seen, split, seed=0)})
    assert found.how.startswith(LEARNED)
    assert found.guesses.right > 0.9 * found.guesses.made


def test_labels_of_one_record_in_five_are_found_by_the_surest_guesses():
    """Margin: the exposed labels are all guessed right, which gives ε ≥ 1.9; one wrong guess costs less than 0.4."""
    generator = torch.Generator().manual_seed(5)
    labels, drawn = plant(torch.randint(0, 2, (900,), generator=generator), classes=2, canaries=600, seed=5)
    exposed = (torch.arange(900) % 5 == 0).float()
    rows = torch.stack((exposed * (2.0 * labels - 1), *torch.randn(3, 900, generator=generator)), dim=1)
    split = Split.of(drawn, labels, seed=0)
    seen = view(message(0, {"x": rows}, torch.arange(900)))
    found = guess_coins(drawn, split, {}, {DEVICE: learned_scores(drawn, labels, seen, split, seed=0)})
    assert found.guesses.made < 200
    assert epsilon_one_run(found.guesses, 0.0, 0.95) > 1
