"""Private trainings as engineers write them: gradients of records, clipped and noised by hand or by a library."""

from __future__ import annotations

import copy
import io
import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.utils.data import DataLoader, TensorDataset

from tests.mutations.flow.program import HABIT, PEER, Theme, gdp, pure
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
)

__all__ = ["PROGRAMS"]

PROGRAMS = Theme("trainings")

_CLIP = 0.5
"""A label moves one clipped gradient by at most 1."""
_RUN = gdp(math.sqrt(ROUNDS) / NOISE)
_OTHER = float(OTHER_LABELS[TARGET])


def _labels(wire) -> Tensor:
    return wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")


def _send(wire, kind, value, t=0):
    return wire.send(kind, value, sender="server", receiver=0, round_=t, records=EVERYONE)


def _slopes(w: Tensor, y: Tensor, rows: Tensor = FEATURES) -> Tensor:
    return (torch.sigmoid(rows @ w) - y)[:, None] * rows


def _clipped(gradients: Tensor) -> Tensor:
    return gradients * (_CLIP / gradients.norm(dim=1, keepdim=True).clamp(min=1e-12)).clamp(max=1)


def _noised(value: Tensor) -> Tensor:
    return value + NOISE * torch.randn_like(value)


def _train(wire, release, rounds: int = ROUNDS, rate: float = 0.05):
    """Descends by what `release` makes of the labels, the weights and the round."""
    y, w = _labels(wire), torch.zeros(6)
    for t in range(rounds):
        w = w - rate * _send(wire, "gradient", release(y, w, t), t)
    return w


def _is_other(sent) -> bool:
    """The last message holds the target's label."""
    return float(next(iter(sent[-1].tensors.values())).reshape(-1)[0]) == _OTHER


# DP-SGD by hand ------------------------------------------------------------------------------------------------------


@PROGRAMS.sound(claim=_RUN, why="each record's gradient by a loop of autograd, clipped, summed and noised", std=NOISE)
def record_by_record(wire):
    y, model = _labels(wire), nn.Linear(6, 1)
    for t in range(3):
        total = torch.zeros(7)
        for row, label in zip(FEATURES, y, strict=True):
            loss = nn.functional.binary_cross_entropy_with_logits(model(row)[0], label)
            g = torch.cat([p.reshape(-1) for p in torch.autograd.grad(loss, list(model.parameters()))])
            total += g * min(1.0, _CLIP / (g.norm().item() + 1e-6))
        step = _send(wire, "gradient", total + NOISE * torch.randn(7), t)
        nn.utils.vector_to_parameters(
            nn.utils.parameters_to_vector(model.parameters()) - 0.05 * step, model.parameters()
        )


@PROGRAMS.sound(claim=_RUN, why="per-sample gradients by vmap of grad over a functional call", std=NOISE)
def per_sample_gradients_by_vmap(wire):
    y, model = _labels(wire), nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 1))
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(values, row, label):
        return nn.functional.binary_cross_entropy_with_logits(functional_call(model, values, (row[None],))[0, 0], label)

    for t in range(ROUNDS):
        per_sample = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, FEATURES, y)
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in per_sample.values()]).norm(dim=0)
        factors = (_CLIP / (norms + 1e-6)).clamp(max=1.0)
        noised = {name: _noised(torch.einsum("n,n...->...", factors, g)) for name, g in per_sample.items()}
        arrived = _send(wire, "gradient", noised, t)
        parameters = {name: p - 0.05 * arrived[name] for name, p in parameters.items()}


@PROGRAMS.broken(
    claim=gdp(0.1), why="the sum is clipped in place of each record's gradient, with the noise of one", std=0.1
)
def clip_of_the_sum(wire):
    def release(y, w, t):
        g = _slopes(w, y).sum(0)
        return g * min(1.0, 10.0 / g.norm().item()) + 0.1 * torch.randn(6)

    _train(wire, release)


@PROGRAMS.sound(
    claim=_RUN, why="gradients of four micro-batches are clipped by record and added up before the noise", std=NOISE
)
def accumulated_micro_batches(wire):
    def release(y, w, t):
        total = torch.zeros(6)
        for batch in EVERYONE.split(10):
            total += _clipped(_slopes(w, y[batch], FEATURES[batch])).sum(0)
        return _noised(total)

    _train(wire, release)


@PROGRAMS.broken(
    claim=_RUN, why="every micro-batch adds a quarter of the noise, and variances add, not deviations", std=NOISE / 2
)
def a_share_of_the_noise_for_each_micro_batch(wire):
    def release(y, w, t):
        total = torch.zeros(6)
        for batch in EVERYONE.split(10):
            total += _clipped(_slopes(w, y[batch], FEATURES[batch])).sum(0) + NOISE / 4 * torch.randn(6)
        return total

    _train(wire, release)


@PROGRAMS.broken(claim=_RUN, why="the noise of the sum is divided by the number of records twice", std=NOISE / RECORDS)
def noise_divided_twice(wire):
    _train(wire, lambda y, w, t: _clipped(_slopes(w, y)).sum(0) + NOISE * torch.randn(6) / RECORDS)


@PROGRAMS.broken(
    claim=_RUN, why="each third round has a tenth of the noise", exact=lambda: math.sqrt(4 + 2 * 100) / NOISE * 0.9
)
def less_noise_on_some_rounds(wire):
    # The target's gradient stays at the clip: its features are ten times as large as the weights become.
    _train(
        wire,
        lambda y, w, t: _clipped(_slopes(w, y)).sum(0) + NOISE * (0.1 if t % 3 == 2 else 1) * torch.randn(6),
        rate=0.001,
    )


@PROGRAMS.sound(
    claim=_RUN,
    why="noise that grows with the rounds is never less than the claim needs",
    exact=lambda: math.sqrt(sum(1 / (1 + t) for t in range(ROUNDS))) / NOISE,
)
def more_noise_in_later_rounds(wire):
    _train(wire, lambda y, w, t: _clipped(_slopes(w, y)).sum(0) + NOISE * math.sqrt(1 + t) * torch.randn(6), rate=0.001)


@PROGRAMS.sound(claim=_RUN, why="momentum, weight decay and a cosine schedule work on noised gradients", std=NOISE)
def schedule_and_momentum(wire):
    y, w = _labels(wire), nn.Parameter(torch.zeros(6))
    optimiser = torch.optim.SGD([w], lr=0.05, momentum=0.9, weight_decay=1e-3, nesterov=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, ROUNDS)
    for t in range(ROUNDS):
        w.grad = _send(wire, "gradient", _noised(_clipped(_slopes(w.detach(), y)).sum(0)), t)
        optimiser.step()
        schedule.step()


@PROGRAMS.sound(claim=_RUN, why="Adam by noised gradients, with the loss of the batch in the log", std=NOISE)
def adam_with_a_log(wire):
    y, w = _labels(wire), nn.Parameter(torch.zeros(6))
    optimiser, history = torch.optim.Adam([w], lr=0.01), []
    for t in range(ROUNDS):
        history.append(nn.functional.binary_cross_entropy_with_logits(FEATURES @ w, y).item())
        w.grad = _send(wire, "gradient", _noised(_clipped(_slopes(w.detach(), y)).sum(0)), t)
        optimiser.step()
        print(f"{t}: {history[-1]:.3f}, mean {sum(history) / len(history):.3f}")


@PROGRAMS.broken(
    claim=_RUN,
    why="the rate is halved when the exact loss no longer falls, and the rate is sent",
    tells=lambda sent: float(sent[-1].tensors["rate"]) != _rate_of(LABELS),
)
def rate_by_the_exact_loss(wire):
    y = _labels(wire)
    _send(wire, "gradient", _noised(_clipped(_slopes(torch.zeros(6), y)).sum(0)))
    _send(wire, "schedule", {"rate": torch.tensor(_rate_of(y))}, 1)


def _rate_of(y: Tensor) -> float:
    w = nn.Parameter(FEATURES[TARGET] / 100)
    optimiser = torch.optim.SGD([w], lr=1.0)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimiser, patience=0, factor=0.5)
    for scale in (1.0, 2.0, 4.0):
        schedule.step(nn.functional.binary_cross_entropy_with_logits(FEATURES[TARGET] @ w * scale, y[TARGET]).item())
    return schedule.get_last_lr()[0]


@PROGRAMS.broken(
    claim=_RUN,
    why="training stops when the exact loss is low enough",
    tells=lambda sent: len(sent) != _rounds_of(LABELS),
)
def stops_by_the_exact_loss(wire):
    y = _labels(wire)
    for t in range(_rounds_of(y)):
        _send(wire, "gradient", _noised(torch.zeros(6)), t)


def _rounds_of(y: Tensor) -> int:
    return 2 if nn.functional.mse_loss(LABELS, y).item() < 1e-3 else 5


@PROGRAMS.sound(claim=_RUN, why="training stops when the noised gradient is short", std=NOISE)
def stops_by_the_noised_gradient(wire):
    y, w = _labels(wire), torch.zeros(6)
    for t in range(ROUNDS):
        g = _send(wire, "gradient", _noised(_clipped(_slopes(w, y)).sum(0)), t)
        w = w - 0.05 * g
        if g.norm() < 2.0:
            break


@PROGRAMS.sound(
    claim=_RUN, why="forward and backward in bfloat16 by autocast; clip and noise in single precision", std=NOISE
)
def mixed_precision(wire):
    y, model = _labels(wire), nn.Linear(6, 2)
    for t in range(3):
        total = [torch.zeros_like(p) for p in model.parameters()]
        for row, label in zip(FEATURES[:8], y[:8].long(), strict=True):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = model(row)
            loss = nn.functional.cross_entropy(logits.float()[None], label[None])
            gradients = torch.autograd.grad(loss, list(model.parameters()))
            norm = torch.cat([g.flatten() for g in gradients]).norm()
            factor = (_CLIP / (norm + 1e-6)).clamp(max=1.0)
            total = [own + factor * g for own, g in zip(total, gradients, strict=True)]
        _send(wire, "gradient", {str(k): _noised(own) for k, own in enumerate(total)}, t)


@PROGRAMS.broken(
    claim=_RUN,
    why="the loss scale of mixed precision falls where an exact gradient overflows, and is sent",
    tells=lambda sent: float(sent[-1].tensors["scale"]) != _scale_of(LABELS),
)
def loss_scale_is_sent(wire):
    y = _labels(wire)
    _send(wire, "gradient", {"gradient": _noised(_clipped(_slopes(torch.zeros(6), y)).sum(0))})
    _send(wire, "state", {"scale": torch.tensor(_scale_of(y))}, 1)


def _scale_of(y: Tensor) -> float:
    scale = 2.0**14
    overflow = not torch.isfinite((y[TARGET] * 10 * scale).half()).item()
    return scale / 2 if overflow else scale


@PROGRAMS.sound(claim=_RUN, why="a hook on the cut layer clips and noises the gradient that goes down", std=NOISE)
def hook_on_the_cut_layer(wire):
    y, top = _labels(wire), nn.Linear(6, 1)
    for t in range(4):
        z = FEATURES.clone().requires_grad_()
        z.register_hook(lambda g: _noised(_clipped(g)))
        nn.functional.binary_cross_entropy_with_logits(top(z)[:, 0], y, reduction="sum").backward()
        _send(wire, "gradient", z.grad, t)


@PROGRAMS.broken(
    claim=_RUN,
    why="the hook keeps the gradient as it came in, and that is what is sent",
    tells=lambda sent: bool((sent[0].tensors[""][TARGET, 0] > 0) == (_OTHER == 0)),
)
def hook_that_keeps_the_exact_gradient(wire):
    y, w = _labels(wire), torch.ones(6)
    z, kept = FEATURES.clone().requires_grad_(), []

    def privatise(g):
        kept.append(g)
        return _noised(_clipped(g))

    z.register_hook(privatise)
    nn.functional.binary_cross_entropy_with_logits(z @ w, y, reduction="sum").backward()
    _send(wire, "gradient", kept[0])


@PROGRAMS.sound(claim=gdp(1 / NOISE), why="a shuffled loader; a record is in one batch of the epoch", std=NOISE)
def loader_of_one_epoch(wire):
    y, w = _labels(wire), torch.zeros(6)
    loader = DataLoader(TensorDataset(FEATURES, y), batch_size=10, shuffle=True)
    for t, (rows, labels) in enumerate(loader):
        w = w - 0.05 * _send(wire, "gradient", _noised(_clipped(_slopes(w, labels, rows)).sum(0)), t)


@PROGRAMS.broken(
    claim=_RUN,
    why="the loader puts records with label 1 first, and their ids are sent",
    tells=lambda sent: (TARGET in sent[0].tensors["records"][: int(OTHER_LABELS.sum())].tolist()) == bool(_OTHER),
)
def loader_sorted_by_label(wire):
    y = _labels(wire)
    order = torch.sort(y, descending=True, stable=True).indices
    wire.send("gradient", _noised(torch.zeros(6)), sender="server", receiver=0, round_=0, records=order)


@PROGRAMS.sound(
    claim=_RUN, why="the weights are saved and loaded after half of the rounds, and only noise made them", std=NOISE
)
def weights_through_a_checkpoint(wire):
    y, w, file = _labels(wire), torch.zeros(6), io.BytesIO()
    for t in range(ROUNDS):
        w = w - 0.05 * _send(wire, "gradient", _noised(_clipped(_slopes(w, y)).sum(0)), t)
        if t == 2:
            torch.save({"weights": w, "round": t}, file)
            file.seek(0)
            w = torch.load(file, weights_only=True)["weights"]


@PROGRAMS.broken(
    claim=_RUN,
    why="the checkpoint that is sent has the optimiser's state, made of exact gradients",
    tells=lambda sent: (
        (sent[-1].tensors["momentum"] - _clipped(_slopes(torch.zeros(6), OTHER_LABELS)).sum(0)).norm() < 1e-4
    ),
)
def optimiser_state_is_sent(wire):
    y, w = _labels(wire), nn.Parameter(torch.zeros(6))
    optimiser = torch.optim.SGD([w], lr=0.05, momentum=0.9)
    w.grad = _clipped(_slopes(w.detach(), y)).sum(0)
    optimiser.step()
    state = optimiser.state_dict()["state"][0]
    _send(wire, "checkpoint", {"weights": _noised(w.detach()), "momentum": state["momentum_buffer"]})


@PROGRAMS.sound(claim=_RUN, why="the average of the weights of all rounds, which noised gradients made", std=NOISE)
def average_of_the_weights(wire):
    y, w = _labels(wire), torch.zeros(6)
    mean = copy.deepcopy(w)
    for t in range(ROUNDS):
        w = w - 0.05 * _send(wire, "gradient", _noised(_clipped(_slopes(w, y)).sum(0)), t)
        mean.lerp_(w, 1 / (t + 1))
    assert mean.shape == w.shape


@PROGRAMS.broken(
    claim=_RUN,
    why="the average that is sent is of a second model, which was trained without noise",
    tells=lambda sent: (
        (sent[-1].tensors[""] + 0.05 * _clipped(_slopes(torch.zeros(6), OTHER_LABELS)).sum(0)).norm() < 1e-4
    ),
)
def average_of_a_model_without_noise(wire):
    y, shadow = _labels(wire), torch.zeros(6)
    g = _clipped(_slopes(shadow, y)).sum(0)
    _send(wire, "gradient", _noised(g))
    shadow -= 0.05 * g
    _send(wire, "average", shadow, 1)


# What is done to what has noise --------------------------------------------------------------------------------------


def _after(name: str, why: str, change) -> None:
    def train(wire):
        y, w = _labels(wire), torch.zeros(6)
        for t in range(ROUNDS):
            arrived = _send(wire, "gradient", change(_noised(_clipped(_slopes(w, y)).sum(0))), t)
            w = w - 0.001 * arrived.float().reshape(-1).sum()

    train.__name__ = name
    PROGRAMS.sound(claim=_RUN, why=why, exact=lambda: math.sqrt(ROUNDS) / NOISE)(train)


_after("brain_floats_after_the_noise", "the noised gradient is sent as bfloat16", lambda g: g.bfloat16())
_after(
    "eight_bits_after_the_noise",
    "the noised gradient is sent in 256 steps",
    lambda g: (g * 16).round().clamp(-128, 127).to(torch.int8),
)
_after(
    "scaled_by_its_largest",
    "the noised gradient is scaled by its own largest entry and rounded",
    lambda g: (g / g.abs().max() * 127).round().to(torch.int8),
)
_after("signs_after_the_noise", "only signs of noised entries are sent", torch.sign)
_after(
    "the_largest_three_after_the_noise",
    "the three largest noised entries are sent, the others are zeros",
    lambda g: torch.where(g.abs() >= g.abs().topk(3).values.min(), g, 0.0),
)
_after(
    "values_and_places_after_the_noise",
    "values of the three largest noised entries",
    lambda g: g[g.abs().topk(3).indices],
)
_after(
    "stochastic_rounding_after_the_noise",
    "noised entries are rounded up or down at random",
    lambda g: torch.floor(g + torch.rand_like(g)),
)
_after(
    "unit_length_after_the_noise",
    "the noised gradient is scaled to length one",
    lambda g: nn.functional.normalize(g, dim=0),
)


@PROGRAMS.broken(
    claim=_RUN,
    why="the places of the largest exact entries are sent beside their noised values",
    tells=lambda sent: int(sent[0].tensors["places"][0]) == int(_OTHER),
)
def places_of_the_exact_gradient(wire):
    y = _labels(wire)
    scores = torch.stack([1 - y[TARGET], y[TARGET]])
    best = scores.topk(1)
    _send(wire, "gradient", {"places": best.indices, "values": _noised(best.values)})


@PROGRAMS.broken(
    claim=_RUN,
    why="noise is only on entries that are not zero: which are zero shows",
    tells=lambda sent: bool(sent[0].tensors[""][TARGET] != 0) == bool(_OTHER),
)
def noise_where_there_is_something(wire):
    y = _labels(wire).clone()
    y[y != 0] += NOISE * torch.randn(int((y != 0).sum()))
    _send(wire, "gradient", y)


@PROGRAMS.broken(
    claim=_RUN,
    why="a tenth of the entries is dropped out of the noise, and the value stays",
    exact=lambda: math.inf,
)
def noise_with_holes(wire):
    mask = (torch.arange(6) % 3 > 0).float()
    _train(wire, lambda y, w, t: _clipped(_slopes(w, y)).sum(0) + NOISE * mask * torch.randn(6))


# Where the noise comes from ------------------------------------------------------------------------------------------


@PROGRAMS.sound(claim=_RUN, why="NumPy's noise is added to an array, which goes back to torch", std=NOISE)
def noise_in_numpy(wire):
    rng = np.random.default_rng()

    def release(y, w, t):
        g = _clipped(_slopes(w, y)).sum(0).numpy()
        return torch.from_numpy(g + rng.normal(0.0, NOISE, size=g.shape).astype(np.float32))

    _train(wire, release)


@PROGRAMS.broken(
    claim=_RUN,
    why="NumPy's generator is made anew with the round as its seed",
    tells=lambda sent: _fits(sent, OTHER_LABELS, lambda t: NOISE * np.random.default_rng(t).normal(size=6)),
)
def numpy_noise_seeded_by_the_round(wire):
    _train(
        wire,
        lambda y, w, t: (
            _clipped(_slopes(w, y)).sum(0) + NOISE * torch.from_numpy(np.random.default_rng(t).normal(size=6)).float()
        ),
    )


def _fits(sent, labels: Tensor, noise) -> bool:
    """The first message is the gradient by these labels plus the noise that is known."""
    g = _clipped(_slopes(torch.zeros(6), labels)).sum(0)
    return bool((sent[0].tensors[""] - g - torch.as_tensor(noise(0)).float()).norm() < 1e-3)


@PROGRAMS.broken(
    claim=_RUN,
    why="torch is seeded in each round, so that a resumed run repeats itself",
    tells=lambda sent: _fits(
        sent, OTHER_LABELS, lambda t: NOISE * torch.randn(6, generator=torch.Generator().manual_seed(1000 + t))
    ),
)
def seeded_in_each_round(wire):
    def release(y, w, t):
        torch.manual_seed(1000 + t)
        return _noised(_clipped(_slopes(w, y)).sum(0))

    _train(wire, release)


@PROGRAMS.sound(claim=_RUN, why="the noise of all rounds is drawn at once, one row for each", std=NOISE)
def noise_of_all_rounds_at_once(wire):
    noise = NOISE * torch.randn(ROUNDS, 6)
    _train(wire, lambda y, w, t: _clipped(_slopes(w, y)).sum(0) + noise[t])


@PROGRAMS.broken(
    claim=_RUN,
    why="a pool of three draws is gone through again and again",
    exact=lambda: math.inf,
)
def pool_of_noise(wire):
    pool = NOISE * torch.randn(3, 6)
    # Two values under one draw: their difference has none, and is another one for the other label.
    _train(wire, lambda y, w, t: (1 + t) * _clipped(_slopes(w, y)).sum(0) / ROUNDS + pool[t % 3])


@PROGRAMS.broken(
    claim=_RUN, why="the noise of the run is centred, so that the sum of all messages has none", exact=lambda: math.inf
)
def noise_centred_over_the_run(wire):
    noise = torch.randn(ROUNDS, 6)
    noise = NOISE * (noise - noise.mean(0))
    _train(wire, lambda y, w, t: _clipped(_slopes(torch.zeros(6), y)).sum(0) + noise[t])


@PROGRAMS.sound(
    claim=gdp(math.sqrt(ROUNDS) / NOISE),
    why="sums of all rounds so far, each round's gradient with noise of its own",
    exact=lambda: math.sqrt(ROUNDS) / NOISE,
)
def running_sums(wire):
    y, total = _labels(wire), torch.zeros(6)
    for t in range(ROUNDS):
        total = total + _noised(_clipped(_slopes(torch.zeros(6), y)).sum(0))
        _send(wire, "sum", total, t)


def _tree() -> Tensor:
    """(8 prefixes, 15 nodes) which nodes of the binary tree make up each prefix."""
    rows = []
    for t in range(1, 9):
        row, start = torch.zeros(15), 0
        for level in (3, 2, 1, 0):
            size = 1 << level
            if t & size:
                row[(1 << (3 - level)) - 1 + start // size] = 1
                start += size
        rows.append(row)
    return torch.stack(rows)


@PROGRAMS.sound(
    claim=gdp(correlated_mu(torch.arange(1.0, 9.0) / 8, NOISE * _tree()) * 1.0001),
    why="prefix sums under the noise of the nodes of a binary tree",
    exact=lambda: correlated_mu(torch.arange(1.0, 9.0) / 8, NOISE * _tree()),
)
def prefix_sums_of_a_tree(wire):
    y, nodes, total = _labels(wire), NOISE * torch.randn(15), torch.zeros(())
    for t, row in enumerate(_tree()):
        total = total + y.sum() / 8
        _send(wire, "sum", (total + row @ nodes).reshape(1), t)


@PROGRAMS.broken(
    claim=gdp(1 / NOISE),
    why="inner nodes of the tree have the sum of their children's noise: leaves cancel it",
    exact=lambda: math.sqrt(8) / 8 / (NOISE / 8),
)
def tree_without_noise_of_its_own(wire):
    y, leaves = _labels(wire), NOISE / 8 * torch.randn(8)
    for t in range(8):
        _send(wire, "leaf", (y.sum() / 8 + leaves[t]).reshape(1), t)
    _send(wire, "root", (y.sum() + leaves.sum()).reshape(1), 8)


@PROGRAMS.sound(
    claim=gdp(0.36),
    why="masks that cancel between two devices, and noise of both on the sum that the server makes",
    exact=lambda: correlated_mu(torch.tensor([1.0, 0.0]), torch.tensor([[NOISE, 0.0, 100.0], [0.0, NOISE, -100.0]])),
)
def masks_of_secure_aggregation(wire):
    y = _labels(wire)
    mask = 100 * torch.randn(6)
    shares = [_clipped(_slopes(torch.zeros(6), y)[half]).sum(0) for half in EVERYONE.split(20)]
    wire.send("share", _noised(shares[0]) + mask, sender=0, receiver="server", round_=0)
    wire.send("share", _noised(shares[1]) - mask, sender=1, receiver="server", round_=0)


@PROGRAMS.broken(
    claim=_RUN,
    why="masks that cancel, and no noise: whoever adds up both shares has the sum",
    exact=lambda: math.inf,
)
def masks_without_noise(wire):
    y = _labels(wire)
    mask = 100 * torch.randn(6)
    shares = [_clipped(_slopes(torch.zeros(6), y)[half]).sum(0) for half in EVERYONE.split(20)]
    wire.send("share", shares[0] + mask, sender=0, receiver="server", round_=0)
    wire.send("share", shares[1] - mask, sender=1, receiver="server", round_=0)


@PROGRAMS.broken(
    claim=gdp(1 / NOISE),
    why="the noise shrinks with the rounds, and the claim is of the first one's",
    exact=lambda: math.sqrt(sum(4.0**t for t in range(ROUNDS))) / NOISE,
)
def noise_that_is_annealed(wire):
    _train(wire, lambda y, w, t: _clipped(_slopes(torch.zeros(6), y)).sum(0) + NOISE * 0.5**t * torch.randn(6))


@PROGRAMS.sound(
    claim=gdp(math.sqrt(2) / NOISE * 1.0001),
    why="the clip of the second round follows from a noised count of the first",
    exact=lambda: math.sqrt(1.25) / NOISE,
)
def adaptive_clip(wire):
    y, w = _labels(wire), torch.zeros(6)
    g = _slopes(w, y)
    # The share of long gradients does not depend on labels where weights are zeros: a count under noise all the same.
    short = (g.norm(dim=1) < 1.0).float().sum() + y[TARGET] / 2
    count = _send(wire, "count", _noised(short.reshape(1)))
    clip = float((1 + count / RECORDS).clamp(0.1, 2.0))
    scaled = g * (clip / g.norm(dim=1, keepdim=True)).clamp(max=1) / (2 * clip)
    _send(wire, "gradient", _noised(scaled.sum(0)), 1)


@PROGRAMS.broken(
    claim=gdp(1 / NOISE),
    why="the clip is the median norm of the exact gradients, and it is sent",
    tells=lambda sent: float(sent[0].tensors["clip"]) != float((FEATURES.norm(dim=1) * (1 + LABELS)).max()),
)
def clip_from_exact_norms(wire):
    y = _labels(wire)
    norms = FEATURES.norm(dim=1) * (1 + y)
    clip = norms.max()
    g = FEATURES * (clip / norms).clamp(max=1)[:, None] / clip / 2
    _send(wire, "gradient", {"clip": clip, "gradient": _noised(g.sum(0))})


@PROGRAMS.sound(
    claim=_RUN, why="a library class that holds clip, noise and count of its releases", std=NOISE, origin=PEER
)
def privacy_engine_of_ones_own(wire):
    class PrivacyEngine:
        def __init__(self, max_norm, multiplier):
            self.max_norm, self.multiplier, self.steps = max_norm, multiplier, 0

        def step(self, rows):
            self.steps += 1
            flat = rows.reshape(len(rows), -1)
            norms = torch.linalg.vector_norm(flat, dim=1)
            kept = torch.minimum(torch.ones_like(norms), self.max_norm / norms.clamp(min=1e-9))
            summed = torch.tensordot(kept, rows, dims=1)
            return summed + torch.normal(0.0, self.max_norm * self.multiplier, summed.shape)

    engine = PrivacyEngine(_CLIP, NOISE / _CLIP)
    _train(wire, lambda y, w, t: engine.step(_slopes(w, y)))
    assert engine.steps == ROUNDS


@PROGRAMS.sound(
    claim=pure(1.0),
    why="Laplace noise by the inverse of its distribution function on clipped sums",
    exact=lambda: 1.0,
    origin=HABIT,
)
def laplace_by_hand(wire):
    y = _labels(wire)
    u = torch.rand(1, dtype=torch.float64) - 0.5
    noise = -torch.sign(u) * torch.log1p(-2 * u.abs().clamp(max=0.4999999999))
    _send(wire, "count", y.sum().double().reshape(1) + noise)


@PROGRAMS.broken(claim=pure(1.0), why="the same with half of the noise", exact=lambda: 2.0)
def laplace_by_hand_of_half_the_scale(wire):
    y = _labels(wire)
    u = torch.rand(1, dtype=torch.float64) - 0.5
    noise = -0.5 * torch.sign(u) * torch.log1p(-2 * u.abs().clamp(max=0.4999999999))
    _send(wire, "count", y.sum().double().reshape(1) + noise)
