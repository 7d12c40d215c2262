"""Releases of vectors, counts and choices, written before the tracer was tried on them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn

from tests.mutations.flow.program import Theme, gdp, pure
from tests.mutations.flow.worlds import (
    EVERYONE,
    FEATURES,
    LABELS,
    NOISE,
    OTHER_LABELS,
    RECORDS,
    ROUNDS,
    TARGET,
    epsilon_of,
    other_rows,
)

__all__ = ["PROGRAMS"]

PROGRAMS = Theme("releases, written blind")

_LIMITS = torch.arange(1.0, 7) / 2
"""How far each column of a clipped gradient may reach."""
_RUN = gdp(math.sqrt(ROUNDS) / NOISE)


def _labels(wire) -> Tensor:
    return wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")


def _rows(wire, rows: Tensor = FEATURES) -> Tensor:
    return wire.private(rows, other_rows(rows, -rows[TARGET]), what="block 0", owner=0)


def _send(wire, kind, value, t=0):
    return wire.send(kind, value, sender="server", receiver=0, round_=t, records=EVERYONE)


def _gradient_of_columns(y: Tensor) -> Tensor:
    return ((0.5 - y)[:, None] * FEATURES).clamp(-_LIMITS, _LIMITS).sum(0)


# Vectors -------------------------------------------------------------------------------------------------------------


@PROGRAMS.sound(
    claim=gdp(math.sqrt(6) / NOISE),
    why="each column is clipped to a range of its own, with noise of a std of its own",
    exact=lambda: math.sqrt(6) / NOISE,
)
def a_std_for_each_column(wire):
    scales = NOISE * 2 * _LIMITS
    _send(wire, "gradient", _gradient_of_columns(_labels(wire)) + torch.normal(torch.zeros(6), scales))


@PROGRAMS.broken(
    claim=gdp(math.sqrt(6) / NOISE),
    why="the std of each column is that of another: they were sorted the other way",
    exact=lambda: float((_LIMITS / _LIMITS.flip(0)).norm()) / NOISE,
)
def the_std_of_another_column(wire):
    scales = NOISE * 2 * _LIMITS.sort(descending=True).values
    _send(wire, "gradient", _gradient_of_columns(_labels(wire)) + torch.normal(torch.zeros(6), scales))


@PROGRAMS.sound(
    claim=_RUN,
    why="all layers are written into one flat buffer, which is noised in place at the end",
    std=NOISE,
)
def one_flat_buffer(wire):
    y, weights = _labels(wire), torch.zeros(6)
    for t in range(ROUNDS):
        errors = torch.sigmoid(FEATURES @ weights) - y
        per_record = torch.cat([errors[:, None] * FEATURES, errors[:, None]], 1)
        per_record = per_record / per_record.norm(dim=1, keepdim=True).clamp(min=0.5) * 0.5
        flat = torch.zeros(7)
        flat[:6].copy_(per_record[:, :6].sum(0))
        flat.narrow(0, 6, 1).add_(per_record[:, 6].sum())
        flat.add_(torch.randn(7), alpha=NOISE)
        weight, bias = _send(wire, "gradient", flat, t).split([6, 1])
        weights = weights - 0.05 * weight - 0.0 * bias


@PROGRAMS.broken(
    claim=_RUN,
    why="the noise is added to rows that an index selects, which are a copy",
    tells=lambda sent: bool(torch.equal(sent[0].tensors[""], _gradient_of_columns(OTHER_LABELS))),
)
def noise_on_a_copy(wire):
    gradient = _gradient_of_columns(_labels(wire))
    trainable = torch.tensor([0, 1, 2, 3, 4, 5])
    gradient[trainable].add_(NOISE * torch.randn(6))
    _send(wire, "gradient", gradient)


@PROGRAMS.sound(
    claim=gdp(math.sqrt(2) / NOISE),
    why="a noised sum is divided by a noised count, and only the ratio is sent",
    exact=lambda: math.sqrt(2) / NOISE,
)
def ratio_of_two_noised_sums(wire):
    y = _labels(wire)
    total = (y * FEATURES[:, 1].clamp(-1, 1)).sum() + torch.empty(()).normal_(0, NOISE)
    count = y.sum() + torch.empty(()).normal_(0, NOISE)
    _send(wire, "mean", (total / count.clamp(min=1.0)).reshape(1))


@PROGRAMS.broken(
    claim=gdp(math.sqrt(2) / NOISE),
    why="the exact count goes along, for weighting the mean by it",
    tells=lambda sent: float(sent[0].tensors["n"]) == float(OTHER_LABELS.sum()),
)
def mean_with_its_count(wire):
    y = _labels(wire)
    total = (y * FEATURES[:, 1].clamp(-1, 1)).sum() + torch.empty(()).normal_(0, NOISE)
    _send(wire, "mean", {"mean": total / y.sum().clamp(min=1.0), "n": y.sum()})


# NumPy ---------------------------------------------------------------------------------------------------------------


@PROGRAMS.sound(
    claim=gdp(math.sqrt(2) / NOISE),
    why="a histogram by NumPy with NumPy's normal noise on each bin",
    exact=lambda: math.sqrt(2) / NOISE,
)
def histogram_by_numpy(wire):
    rng = np.random.default_rng()
    histogram = np.bincount(_labels(wire).numpy().astype(np.int64), minlength=2)
    _send(wire, "histogram", torch.from_numpy(histogram + rng.normal(scale=NOISE, size=histogram.shape)))


@PROGRAMS.broken(
    claim=gdp(math.sqrt(2) / NOISE),
    why="NumPy broadcasts one draw over all bins, so that their difference is exact",
    exact=lambda: math.inf,
)
def one_draw_broadcast_by_numpy(wire):
    rng = np.random.default_rng()
    histogram = np.bincount(_labels(wire).numpy().astype(np.int64), minlength=2)
    _send(wire, "histogram", torch.from_numpy(histogram + rng.normal(scale=NOISE, size=1)))


@PROGRAMS.sound(
    claim=gdp(math.sqrt(8) / RECORDS / 0.1 * 1.0001),
    why="means of clipped columns as a NumPy array under noise of multivariate normals",
    exact=lambda: math.sqrt(8) / RECORDS / 0.1,
)
def means_by_numpy(wire):
    x = np.clip(_rows(wire).numpy()[:, :2], -1.0, 1.0)
    noise = np.random.default_rng().multivariate_normal(np.zeros(2), 0.01 * np.eye(2))
    means = x.mean(axis=0) + noise
    wire.send("means", torch.as_tensor(means, dtype=torch.float32), sender=0, receiver="server", round_=0)


@PROGRAMS.broken(
    claim=gdp(0.5),
    why="a library's median moves by more than one record's share of the range, which its noise is for",
    std=0.001,
)
def median_with_the_noise_of_a_mean(wire):
    median = _rows(wire)[:, :2].clamp(-1, 1).median(0).values
    noise = torch.from_numpy(np.random.default_rng().normal(scale=0.001, size=2)).float()
    wire.send("medians", median + noise, sender=0, receiver="server", round_=0)


# Hooks and layers ----------------------------------------------------------------------------------------------------


def _train_by_hooks(wire, hook) -> None:
    y, model = _labels(wire), nn.Linear(6, 1, bias=False)
    nn.init.zeros_(model.weight)
    rows = nn.functional.normalize(FEATURES, dim=1)
    hook(model.weight)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for t in range(ROUNDS):
        optimiser.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(rows)[:, 0], y, reduction="sum").backward()
        _send(wire, "gradient", model.weight.grad.clone(), t)
        optimiser.step()


def _noised_when_accumulated(parameter) -> None:
    def add_noise(p):
        p.grad.add_(NOISE * torch.randn_like(p.grad))

    parameter.register_post_accumulate_grad_hook(add_noise)


def _noise_that_is_not_returned(parameter) -> None:
    def add_noise(gradient):
        gradient = gradient + NOISE * torch.randn_like(gradient)

    parameter.register_hook(add_noise)


def _first_gradient(y: Tensor) -> Tensor:
    return (0.5 - y) @ nn.functional.normalize(FEATURES, dim=1)


@PROGRAMS.sound(
    claim=_RUN, why="rows of length one, and a hook that noises a weight's gradient once it is accumulated", std=NOISE
)
def noised_once_accumulated(wire):
    _train_by_hooks(wire, _noised_when_accumulated)


@PROGRAMS.broken(
    claim=_RUN,
    why="a hook computes the noised gradient and returns nothing",
    tells=lambda sent: (
        float((sent[0].tensors[""][0] - _first_gradient(OTHER_LABELS)).norm())
        < float((sent[0].tensors[""][0] - _first_gradient(LABELS)).norm())
    ),
)
def hook_that_returns_nothing(wire):
    _train_by_hooks(wire, _noise_that_is_not_returned)


class _GaussianNoise(nn.Module):
    """Adds noise while training, as layers against overfitting do."""

    def __init__(self, sigma: float):
        super().__init__()
        self.register_buffer("sigma", torch.tensor(sigma))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.sigma * torch.randn_like(x) if self.training else x


class _UnitLength(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.normalize(x, dim=-1)


def _bottom() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 3), nn.Tanh(), _UnitLength(), _GaussianNoise(NOISE))


@PROGRAMS.sound(claim=gdp(2 / NOISE), why="a layer of the bottom noises embeddings of length one", std=NOISE)
def noise_as_a_layer(wire):
    wire.send("embedding", _bottom()(_rows(wire)), sender=0, receiver="server", round_=0)


@PROGRAMS.broken(
    claim=gdp(2 / NOISE),
    why="the bottom is put into evaluation, where its layer of noise does nothing",
    tells=lambda sent: not torch.allclose(*sent[0].tensors["embedding"][[0, TARGET]], atol=1e-4),
)
def layer_of_noise_in_evaluation(wire):
    bottom = _bottom().eval()
    x = FEATURES.clone()
    x[TARGET] = x[0]
    x = wire.private(x, other_rows(x, -3 * x[0] + 1), what="block 0", owner=0)
    wire.send("embedding", {"embedding": bottom(x)}, sender=0, receiver="server", round_=0)


# Whole numbers and types ---------------------------------------------------------------------------------------------


@PROGRAMS.sound(
    claim=gdp(1 / NOISE),
    why="noise rounded to whole numbers on a whole count is the rounded sum",
    exact=lambda: 1 / NOISE,
)
def rounded_noise_on_a_count(wire):
    count = _labels(wire).long().sum()
    _send(wire, "count", (count + torch.round(NOISE * torch.randn(())).long()).reshape(1))


@PROGRAMS.broken(
    claim=gdp(1 / NOISE),
    why="noise is cut towards zero, which has twice the mass that it should",
    exact=lambda: 2 * stats.norm.ppf((1 + stats.norm.cdf(1 / NOISE) - stats.norm.cdf(-1 / NOISE)) / 2),
)
def noise_cut_towards_zero(wire):
    count = _labels(wire).long().sum()
    _send(wire, "count", (count + (NOISE * torch.randn(())).to(count.dtype)).reshape(1))


@PROGRAMS.sound(
    claim=gdp(math.sqrt(2) / NOISE),
    why="the middle bin of a histogram follows from its noised counts",
    exact=lambda: math.sqrt(2) / NOISE,
)
def middle_bin_of_noised_counts(wire):
    bins = torch.bucketize(_rows(wire)[:, 0].contiguous(), torch.linspace(-2, 2, 7))
    counts = torch.zeros(8).scatter_add_(0, bins, torch.ones(RECORDS)) + NOISE * torch.randn(8)
    shares = counts.clamp(min=0).cumsum(0)
    wire.send("bin", torch.searchsorted(shares, shares[-1:] / 2), sender=0, receiver="server", round_=0)


# Choices -------------------------------------------------------------------------------------------------------------

_CODES = torch.arange(RECORDS) % 4
_OTHER_CODES = _CODES.clone()
_OTHER_CODES[TARGET] = 0
_FOUR = math.e / (math.e + 3)
"""How often one class of four is kept at ε = 1."""


def _counts(codes: Tensor) -> Tensor:
    return torch.bincount(codes, minlength=4).double()


def _epsilon_of_two_places(scale: float) -> float:
    """ε of the two largest counts in order under Gumbel noise of this scale: one softmax draw after another."""
    laws = []
    for counts in (_counts(_CODES), _counts(_OTHER_CODES)):
        weights = torch.exp((counts - counts.max()) / scale).tolist()
        whole = sum(weights)
        laws.append(
            [
                weights[a] / whole * weights[b] / (whole - weights[a])
                for a, b in itertools.permutations(range(len(weights)), 2)
            ]
        )
    return epsilon_of(laws[0], laws[1])


def _two_largest(wire, scale: float) -> None:
    codes = wire.private(_CODES, _OTHER_CODES, what="labels", owner="server")
    counts = torch.bincount(codes, minlength=4).float()
    noised = counts + scale * -torch.log(-torch.log(torch.rand(4)))
    _send(wire, "classes", torch.topk(noised, 2).indices)


@PROGRAMS.sound(
    claim=pure(4.0),
    why="the two largest of the counts under Gumbel noise, in order, are two draws of the exponential mechanism",
    exact=lambda: _epsilon_of_two_places(1.0),
)
def two_largest_by_gumbel(wire):
    _two_largest(wire, 1.0)


@PROGRAMS.broken(
    claim=pure(1.0),
    why="two places are chosen with the budget for one",
    exact=lambda: _epsilon_of_two_places(1.0),
)
def two_largest_with_the_budget_of_one(wire):
    _two_largest(wire, 1.0)


@PROGRAMS.sound(
    claim=pure(1.0),
    why="codes are replaced where a mask says so, by masked_scatter with uniform codes",
    exact=lambda: epsilon_of([_FOUR, (1 - _FOUR) / 3], [(1 - _FOUR) / 3, _FOUR]),
)
def replaced_by_masked_scatter(wire):
    codes = wire.private(_CODES, _OTHER_CODES, what="labels", owner="server")
    mask = torch.rand(RECORDS) < (1 - _FOUR) * 4 / 3
    responses = codes.masked_scatter(mask, torch.randint(0, 4, (RECORDS,)))
    _send(wire, "labels", responses)


@PROGRAMS.broken(
    claim=pure(1.0),
    why="which responses were replaced is sent as well, as a mask of those that are valid",
    exact=lambda: math.inf,
)
def mask_of_the_valid(wire):
    codes = wire.private(_CODES, _OTHER_CODES, what="labels", owner="server")
    mask = torch.rand(RECORDS) < (1 - _FOUR) * 4 / 3
    responses = codes.masked_scatter(mask, torch.randint(0, 4, (RECORDS,)))
    _send(wire, "labels", {"labels": responses, "valid": ~mask})


# By class ------------------------------------------------------------------------------------------------------------

_UNIT = nn.functional.normalize(FEATURES, dim=1)


@PROGRAMS.sound(
    claim=gdp(math.sqrt(2) / NOISE),
    why="sums of unit rows by class, which a mask picks: one label moves a row from one sum to the other",
    exact=lambda: math.sqrt(2) / NOISE,
)
def prototypes_of_classes(wire):
    y = _labels(wire)
    prototypes = torch.stack([_UNIT[y == code].sum(0) for code in (0, 1)])
    _send(wire, "prototypes", prototypes + NOISE * torch.randn(2, 6))


@PROGRAMS.sound(
    claim=gdp(math.sqrt(2) / NOISE),
    why="sums over the places of the ones, in two rounds",
    exact=lambda: math.sqrt(2) / NOISE,
)
def sums_over_places(wire):
    y = _labels(wire)
    for t in range(2):
        places = y.nonzero().squeeze(1)
        _send(wire, "sum", FEATURES[places, 1].clamp(-1, 1).sum() + NOISE * torch.randn(1), t)


@PROGRAMS.broken(
    claim=gdp(1 / NOISE),
    why="the mean over the rows of a class has noise for the mean over all records, and its number is exact",
    exact=lambda: float((_mean_of_ones(OTHER_LABELS) - _mean_of_ones(LABELS)).norm()) / 0.001,
)
def mean_of_a_class(wire):
    _send(wire, "mean", _mean_of_ones(_labels(wire)) + 0.001 * torch.randn(6))


def _mean_of_ones(y: Tensor) -> Tensor:
    return FEATURES[y == 1].clamp(-1, 1).mean(0)


@PROGRAMS.broken(
    claim=gdp(1 / NOISE),
    why="the rows of one class are sent under noise, and there are as many as there are",
    tells=lambda sent: len(sent[0].tensors[""]) == int(OTHER_LABELS.sum()),
)
def rows_of_a_class(wire):
    rows = _UNIT[_labels(wire) == 1]
    _send(wire, "rows", rows + NOISE * torch.randn(rows.shape))


@PROGRAMS.broken(
    claim=gdp(1 / NOISE),
    why="the rows of one class stand first in a tensor of all records, and zeros follow",
    tells=lambda sent: int((sent[0].tensors[""] != 0).any(1).sum()) == int(OTHER_LABELS.sum()),
)
def rows_of_a_class_with_padding(wire):
    rows, padded = _UNIT[_labels(wire) == 1], torch.zeros(RECORDS, 6)
    padded[: len(rows)] = rows
    _send(wire, "rows", padded)


# Number formats ------------------------------------------------------------------------------------------------------


def _noised_sum(wire) -> Tensor:
    return (_labels(wire)[:, None] * _UNIT).sum(0) + NOISE * torch.randn(6)


@PROGRAMS.sound(
    claim=gdp(1 / NOISE), why="the upper half of the bits of noised numbers is sent", exact=lambda: 1 / NOISE
)
def upper_bits(wire):
    bits = _noised_sum(wire).view(torch.int32)
    _send(wire, "sum", (bits >> 16).to(torch.int16).view(torch.bfloat16))


@PROGRAMS.sound(claim=gdp(1 / NOISE), why="noised numbers of eight bits, by float8", exact=lambda: 1 / NOISE)
def eight_bits_by_float8(wire):
    _send(wire, "sum", _noised_sum(wire).to(torch.float8_e4m3fn).float())


@PROGRAMS.broken(
    claim=gdp(1 / NOISE),
    why="noise of half precision is added to sums of double precision, whose last digits show",
    tells=lambda sent: _digits(sent[0].tensors[""], OTHER_LABELS) and not _digits(sent[0].tensors[""], LABELS),
)
def noise_of_half_precision(wire):
    total = (_labels(wire)[:, None].double() * _UNIT.double()).sum(0)
    _send(wire, "sum", total + (NOISE * torch.randn(6)).half().double())


def _digits(sent: Tensor, y: Tensor) -> bool:
    """What is left without the sum of these labels has no more digits than half precision."""
    noise = sent - (y[:, None].double() * _UNIT.double()).sum(0)
    return bool((noise - noise.half().double()).abs().max() < 1e-12)


@PROGRAMS.sound(
    claim=gdp(1 / NOISE), why="L-BFGS fits a model to a noised sum, and the model is sent", exact=lambda: 1 / NOISE
)
def fitted_by_lbfgs(wire):
    total, weight = _noised_sum(wire), nn.Parameter(torch.zeros(6))
    optimiser = torch.optim.LBFGS([weight], max_iter=3)

    def closure():
        optimiser.zero_grad()
        loss = (weight - total).square().sum()
        loss.backward()
        return loss

    optimiser.step(closure)
    _send(wire, "model", weight.detach().clone())
