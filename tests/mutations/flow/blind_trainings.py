"""Private trainings with the parts that projects are made of, written before the tracer was tried on them."""

from __future__ import annotations

import copy
import io
import math

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset, TensorDataset, WeightedRandomSampler

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
    correlated_mu,
    epsilon_of,
)

__all__ = ["PROGRAMS"]

PROGRAMS = Theme("trainings, written blind")

_CLIP = 0.5
_RUN = gdp(math.sqrt(ROUNDS) / NOISE)
_ONCE = gdp(1 / NOISE)
_OTHER = float(OTHER_LABELS[TARGET])
_KEEP = math.e / (math.e + 1)


def _labels(wire) -> Tensor:
    return wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")


def _send(wire, kind, value, t=0):
    return wire.send(kind, value, sender="server", receiver=0, round_=t, records=EVERYONE)


def _clipped_sum(w: Tensor, y: Tensor, rows: Tensor = FEATURES) -> Tensor:
    """Sum of the gradients of the logistic loss, each clipped to length 1/2."""
    per_record = (torch.sigmoid(rows @ w) - y)[:, None] * rows
    return (per_record * (_CLIP / per_record.norm(dim=1, keepdim=True).clamp(min=1e-12)).clamp(max=1)).sum(0)


def _noised(value: Tensor) -> Tensor:
    return value + NOISE * torch.randn_like(value)


# Loaders and subsets -------------------------------------------------------------------------------------------------


def _folds(wire, folds) -> None:
    data, w = TensorDataset(FEATURES, _labels(wire)), torch.zeros(6)
    for t, indices in enumerate(folds):
        for rows, y in DataLoader(Subset(data, indices), batch_size=10, shuffle=True):
            w = w - 0.01 * _send(wire, "gradient", _noised(_clipped_sum(w, y, rows)), t)


@PROGRAMS.sound(claim=_ONCE, why="two subsets without a record in common, in shuffled batches", std=NOISE)
def disjoint_subsets(wire):
    _folds(wire, (range(20), range(20, 40)))


@PROGRAMS.broken(claim=_ONCE, why="two subsets overlap, and the claim counts each record once", std=NOISE)
def overlapping_subsets(wire):
    _folds(wire, (range(20), range(40)))


# Optimisers, schedules and mixed precision ---------------------------------------------------------------------------


@PROGRAMS.sound(
    claim=_RUN,
    why="AdamW with a warm-up and a cosine after it, by noised gradients that are in the grad field",
    std=NOISE,
)
def warm_up_and_cosine(wire):
    y, w = _labels(wire), nn.Parameter(torch.zeros(6))
    optimiser = torch.optim.AdamW([w], lr=0.02, weight_decay=0.05, amsgrad=True)
    schedule = torch.optim.lr_scheduler.SequentialLR(
        optimiser,
        [
            torch.optim.lr_scheduler.LinearLR(optimiser, 0.1, total_iters=2),
            torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, ROUNDS - 2),
        ],
        milestones=[2],
    )
    for t in range(ROUNDS):
        optimiser.zero_grad(set_to_none=True)
        w.grad = _noised(_clipped_sum(w.detach(), y))
        optimiser.step()
        schedule.step()
        _send(wire, "model", w.detach().clone(), t)


@PROGRAMS.broken(
    claim=_ONCE,
    why="AdamW makes steps of the rate's length of any gradient, and only the step is noised, by the rate",
    std=0.01,
)
def noise_on_the_step_of_adamw(wire):
    y, w = _labels(wire), nn.Parameter(torch.zeros(6))
    optimiser = torch.optim.AdamW([w], lr=0.01)
    nn.functional.binary_cross_entropy_with_logits(FEATURES @ w, y).backward()
    optimiser.step()
    _send(wire, "model", w.detach() + 0.01 * torch.randn(6))


def _scaled(wire, release) -> None:
    y, model = _labels(wire).long(), nn.Linear(4, 2)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    embeddings = nn.Parameter(nn.functional.normalize(torch.randn(RECORDS, 4), dim=1))
    optimiser = torch.optim.SGD([embeddings], lr=0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(embeddings)
    loss = nn.functional.cross_entropy(logits.float(), y, reduction="sum")
    scaler.scale(loss).backward()
    release(scaler, optimiser, embeddings)


def _clip_rows(g: Tensor) -> Tensor:
    return g * (_CLIP / g.norm(dim=1, keepdim=True).clamp(min=1e-9)).clamp(max=1)


@PROGRAMS.sound(claim=_ONCE, why="gradients of autocast are unscaled, then clipped and noised by row", std=NOISE)
def unscaled_before_the_clip(wire):
    def release(scaler, optimiser, embeddings):
        scaler.unscale_(optimiser)
        embeddings.grad = _noised(_clip_rows(embeddings.grad))
        _send(wire, "gradient", embeddings.grad)
        scaler.step(optimiser)
        scaler.update()

    _scaled(wire, release)


@PROGRAMS.broken(
    claim=_ONCE,
    why="noise is added to gradients that are still 1024 times too large, and is unscaled with them",
    std=NOISE / 1024,
)
def noised_before_unscaling(wire):
    def release(scaler, optimiser, embeddings):
        embeddings.grad.add_(NOISE * torch.randn_like(embeddings.grad))
        scaler.unscale_(optimiser)
        _send(wire, "gradient", embeddings.grad.clone())
        scaler.step(optimiser)
        scaler.update()

    _scaled(wire, release)


# Gradient accumulation -----------------------------------------------------------------------------------------------


@PROGRAMS.sound(
    claim=gdp(2 * math.sqrt(2) / NOISE),
    why="Opacus's optimiser adds up the clipped gradients of four micro-batches, and noises at the last",
    exact=lambda: 2 * math.sqrt(2) / NOISE,
)
def micro_batches_of_opacus(wire):
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer

    data = TensorDataset(FEATURES, _labels(wire).long())
    model = GradSampleModule(nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2)))
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimiser = DPOptimizer(sgd, noise_multiplier=NOISE, max_grad_norm=1.0, expected_batch_size=RECORDS)
    for epoch in range(2):
        for step, (rows, y) in enumerate(DataLoader(data, batch_size=10)):
            optimiser.signal_skip_step(do_skip=step < 3)
            nn.functional.cross_entropy(model(rows.requires_grad_()), y).backward()
            optimiser.step()
            optimiser.zero_grad()
        weights = {name: p.detach().clone() for name, p in model._module.named_parameters()}
        wire.send("model", weights, sender="server", receiver=0, round_=epoch)


@PROGRAMS.broken(
    claim=_RUN,
    why="gradients are never set to zero, so that each message has all rounds' gradients under one round's noise",
    std=NOISE,
)
def gradients_that_are_never_zeroed(wire):
    y, w = _labels(wire), nn.Parameter(torch.zeros(6))
    rows = nn.functional.normalize(FEATURES, dim=1)
    for t in range(ROUNDS):
        nn.functional.binary_cross_entropy_with_logits(rows @ w, y, reduction="sum").backward()
        arrived = _send(wire, "gradient", _noised(w.grad), t)
        with torch.no_grad():
            w -= 0.001 * arrived


# Early stopping and checkpoints --------------------------------------------------------------------------------------


def _losses(w: Tensor, y: Tensor) -> Tensor:
    """Each record's loss, at most 1."""
    return nn.functional.binary_cross_entropy_with_logits(FEATURES @ w, y, reduction="none").clamp(max=1.0)


@PROGRAMS.sound(
    claim=gdp(math.sqrt(2 * ROUNDS) / NOISE),
    why="stops when a noised sum of clamped losses has not fallen for two rounds; both are counted",
    exact=lambda: math.sqrt(2 * ROUNDS) / NOISE,
)
def patience_by_noised_losses(wire):
    y, w, best, waited = _labels(wire), torch.zeros(6), math.inf, 0
    for t in range(ROUNDS):
        w = w - 0.05 * _send(wire, "gradient", _noised(_clipped_sum(w, y)), t)
        loss = _noised(_losses(w, y).sum()).item()
        best, waited = (loss, 0) if loss < best else (best, waited + 1)
        if waited >= 2:
            break


@PROGRAMS.sound(
    claim=gdp(math.sqrt(2 * ROUNDS) / NOISE),
    why="the weights with the lowest noised loss are saved, read again, and sent",
    exact=lambda: math.sqrt(2 * ROUNDS) / NOISE,
)
def best_checkpoint_by_noised_loss(wire):
    y, model, best, saved = _labels(wire), nn.Linear(6, 1, bias=False), math.inf, {}
    nn.init.zeros_(model.weight)
    for _ in range(ROUNDS):
        w = model.weight.detach()[0]
        with torch.no_grad():
            model.weight -= 0.05 * _noised(_clipped_sum(w, y))
        loss = _noised(_losses(model.weight.detach()[0], y).sum())
        if loss < best:
            best, saved = loss, copy.deepcopy(model.state_dict())
    model.load_state_dict(saved)
    _send(wire, "model", {name: p.clone() for name, p in model.state_dict().items()})


_PLANS = torch.stack([FEATURES[TARGET], -FEATURES[TARGET]]) / 100


@PROGRAMS.broken(
    claim=_RUN,
    why="of two checkpoints that noised gradients made, the one with the lower exact loss is sent",
    tells=lambda sent: float(sent[-1].tensors["weight"] @ FEATURES[TARGET]) < 0,
)
def best_checkpoint_by_exact_loss(wire):
    y, best, saved = _labels(wire), math.inf, None
    for t in range(2):
        g = _send(wire, "gradient", _noised(_clipped_sum(torch.zeros(6), y)), t)
        model = {"weight": _PLANS[t] + 0.0001 * g.clamp(-1, 1)}
        # One record is held out for validation.
        loss = nn.functional.binary_cross_entropy_with_logits(FEATURES[TARGET] @ model["weight"], y[TARGET]).item()
        if loss < best:
            best, saved = loss, io.BytesIO()
            torch.save(model, saved)
    saved.seek(0)
    _send(wire, "model", torch.load(saved), 2)


@PROGRAMS.broken(
    claim=_ONCE,
    why="the checkpoint that is handed on has the optimiser's state, which is made of exact gradients",
    tells=lambda sent: torch.allclose(sent[0].tensors["momentum"], _clipped_sum(torch.zeros(6), OTHER_LABELS)),
)
def optimiser_state_in_a_checkpoint(wire):
    y, w = _labels(wire), nn.Parameter(torch.zeros(6))
    optimiser = torch.optim.SGD([w], lr=0.1, momentum=0.9)
    w.grad = _clipped_sum(w.detach(), y)
    optimiser.step()
    state = optimiser.state_dict()["state"][0]
    _send(wire, "model", {"weight": _noised(w.detach() / 0.1) * 0.1, "momentum": state["momentum_buffer"]})


# Labels --------------------------------------------------------------------------------------------------------------


@PROGRAMS.sound(
    claim=pure(1.0),
    why="labels are flipped once; the loss is corrected by the known probabilities, in mini-batches for three epochs",
    exact=lambda: epsilon_of([_KEEP, 1 - _KEEP], [1 - _KEEP, _KEEP]),
)
def corrected_loss_of_responses(wire):
    y = _labels(wire)
    responses = torch.where(torch.rand(RECORDS) < _KEEP, y, 1 - y).long()
    chances = torch.tensor([[_KEEP, 1 - _KEEP], [1 - _KEEP, _KEEP]])
    model = nn.Linear(6, 2)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(3):
        for batch in torch.randperm(RECORDS).split(8):
            optimiser.zero_grad()
            rows = FEATURES[batch].requires_grad_()
            corrected = torch.softmax(model(rows), 1) @ chances
            nn.functional.nll_loss(corrected.clamp(min=1e-6).log(), responses[batch]).backward()
            wire.send("gradient", rows.grad, sender="server", receiver=0, records=batch)
            optimiser.step()


def _draws_of(labels: Tensor) -> list[float]:
    """The chance of 40 draws of one record of class 1 that is in both worlds."""
    return [(0.5 / float(labels.sum())) ** RECORDS]


@PROGRAMS.broken(
    claim=pure(1.0),
    why="batches are balanced by exact labels, and the ids of their records are sent",
    exact=lambda: epsilon_of(_draws_of(LABELS), _draws_of(OTHER_LABELS)),
)
def sampler_balanced_by_exact_labels(wire):
    y = _labels(wire)
    responses = torch.where(torch.rand(RECORDS) < _KEEP, y, 1 - y)
    weights = (1.0 / torch.bincount(y.long(), minlength=2))[y.long()]
    ids = torch.tensor(list(WeightedRandomSampler(weights, RECORDS)))
    _send(wire, "ids", ids)
    _send(wire, "labels", responses[ids])


# What is sent of a gradient ------------------------------------------------------------------------------------------


@PROGRAMS.sound(
    claim=_RUN,
    why="the two largest noised entries are sent, and what is left is added to the next noised ones",
    exact=lambda: math.sqrt(ROUNDS) / NOISE,
)
def error_feedback_of_noised_gradients(wire):
    y, w, left = _labels(wire), torch.zeros(6), torch.zeros(6)
    for t in range(ROUNDS):
        g = _noised(_clipped_sum(w, y)) + left
        places = g.abs().topk(2).indices
        sparse = torch.zeros_like(g).scatter(0, places, g[places])
        left = g - sparse
        w = w - 0.05 * _send(wire, "gradient", sparse, t)


_SCORES = torch.where(EVERYONE == TARGET, 5.0, 1.0)


@PROGRAMS.broken(
    claim=gdp(5 / NOISE),
    why="noised entries are clamped to the range that the exact ones have",
    tells=lambda sent: float(sent[0].tensors[""].max()) < 4,
)
def clamped_to_the_exact_range(wire):
    scores = _labels(wire) * _SCORES
    _send(wire, "scores", torch.clamp(_noised(scores), scores.min(), scores.max()))


# Momentum and noise over the rounds ----------------------------------------------------------------------------------


@PROGRAMS.sound(
    claim=_RUN,
    why="averages over the rounds of exact gradients are no longer than one, and each has noise of its own",
    std=NOISE,
)
def noise_on_the_momentum(wire):
    y, w, momentum = _labels(wire), torch.zeros(6), torch.zeros(6)
    for t in range(ROUNDS):
        momentum = 0.9 * momentum + 0.1 * _clipped_sum(w, y)
        w = w - 0.05 * _send(wire, "momentum", _noised(momentum), t)


def _averaged() -> Tensor:
    """(rounds, rounds) by how much the noise of each round is in each message."""
    return torch.tensor([[0.1 * 0.9 ** (t - s) if s <= t else 0.0 for s in range(ROUNDS)] for t in range(ROUNDS)])


@PROGRAMS.broken(
    claim=_RUN,
    why="the noise is averaged over the rounds to make training smoother, and has a tenth of the std in the first",
    exact=lambda: correlated_mu(torch.ones(ROUNDS), NOISE * _averaged()),
)
def noise_averaged_over_the_rounds(wire):
    y, noise = _labels(wire), torch.zeros(6)
    for t in range(ROUNDS):
        noise = 0.9 * noise + 0.1 * NOISE * torch.randn(6)
        _send(wire, "gradient", _clipped_sum(torch.zeros(6), y) + noise, t)


# Several parties -----------------------------------------------------------------------------------------------------


@PROGRAMS.sound(
    claim=gdp(1 / NOISE),
    why="two clients add half of the variance each, and only their sum is sent on",
    exact=lambda: 1 / NOISE,
)
def half_of_the_variance_each(wire):
    y = _labels(wire)
    shares = [
        _clipped_sum(torch.zeros(6), y[half], FEATURES[half]) + math.sqrt(0.5) * NOISE * torch.randn(6)
        for half in EVERYONE.split(20)
    ]
    _send(wire, "sum", torch.stack(shares).sum(0))


@PROGRAMS.broken(
    claim=gdp(1 / NOISE),
    why="a client is late: its mask is told to all, and then its masked share arrives after all",
    exact=lambda: math.inf,
)
def mask_of_a_late_client(wire):
    y = _labels(wire)
    mask = torch.randn(6) * 1000
    shares = [_clipped_sum(torch.zeros(6), y[half], FEATURES[half]) for half in EVERYONE.split(20)]
    wire.send("sum", _noised(shares[1]) - mask, sender=1, receiver="server", round_=0)
    wire.send("mask", mask, sender="server", receiver=1, round_=0)
    wire.send("sum", shares[0] + mask, sender=0, receiver="server", round_=1)
