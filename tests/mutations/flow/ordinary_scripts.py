"""Whole training scripts as engineers write them: modules, optimisers, hooks, loaders, logs; and the slips in them."""

from __future__ import annotations

import logging
import math

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.utils.data import DataLoader, TensorDataset

from tests.mutations.flow.private_optimiser import Bottom, NoisyBackward, PrivacyConfig, RowPrivacy, privatise
from tests.mutations.flow.program import HABIT, SKETCH, Theme, gdp
from tests.mutations.flow.worlds import EVERYONE, FEATURES, LABELS, OTHER_LABELS, RECORDS, TARGET

__all__ = ["PROGRAMS"]

PROGRAMS = Theme("ordinary scripts")

_CONFIG = PrivacyConfig(max_norm=0.1, noise_multiplier=4.0)
_STEPS = 3
_MU = _CONFIG.mu(2 * _STEPS)
"""Two devices receive a row each in every step, and the target is in all steps."""
_CLAIM = gdp(_MU)
_STD = _CONFIG.max_norm * _CONFIG.noise_multiplier


def _labels(wire) -> Tensor:
    return wire.private(LABELS.long(), OTHER_LABELS.long(), what="labels", owner="server")


class SplitLearning:
    """Two bottoms and a top, with a method for each thing that a script may want to do otherwise."""

    def __init__(self, wire, *, optimiser=torch.optim.Adam, privacy=None):
        self.wire = wire
        self.bottoms = [Bottom(3), Bottom(3)]
        self.top = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 2))
        self.privacy = privacy or RowPrivacy(_CONFIG)
        self.optimisers = [optimiser(model.parameters(), lr=0.01) for model in self.bottoms]
        self.labels = _labels(wire)

    def step(self, round_: int, batch: Tensor) -> Tensor:
        embeddings = [b(FEATURES[batch, 3 * k : 3 * k + 3]) for k, b in enumerate(self.bottoms)]
        received = [
            self.wire.send("embedding", e, sender=k, receiver="server", round_=round_, records=batch).requires_grad_()
            for k, e in enumerate(embeddings)
        ]
        loss = self.loss(self.top(torch.cat(received, dim=1)), batch)
        gradients = torch.autograd.grad(loss, received)
        for k, (e, g) in enumerate(zip(embeddings, gradients, strict=True)):
            g = self.reply(g)
            g = self.wire.send("gradient", g, sender="server", receiver=k, round_=round_, records=batch)
            self.optimisers[k].zero_grad()
            e.backward(g.to(e.dtype))
            self.update(k)
        return loss.detach()

    def loss(self, logits: Tensor, batch: Tensor) -> Tensor:
        return nn.functional.cross_entropy(logits, self.labels[batch])

    def reply(self, gradient: Tensor) -> Tensor:
        return self.privacy(gradient)

    def update(self, device: int) -> None:
        self.optimisers[device].step()

    def train(self) -> None:
        for round_ in range(_STEPS):
            self.step(round_, torch.randperm(RECORDS))


@PROGRAMS.sound(
    claim=_CLAIM, why="two bottoms with batch norm and dropout, rows clipped and noised", origin=SKETCH, std=_STD
)
def split_learning(wire):
    SplitLearning(wire).train()


def _gradient_shows(sent) -> bool:
    """All rows of one class have gradients near each other: the target's is nearer to those of its class."""
    message = next(m for m in sent if m.kind == "gradient")
    rows = nn.functional.normalize(message.tensors[""].float())
    records = message.tensors["records"]
    place = int((records == TARGET).nonzero())
    others = records != TARGET
    ones = rows[others & (LABELS[records] == 1)].mean(0)
    zeros = rows[others & (LABELS[records] == 0)].mean(0)
    return bool((rows[place] @ ones > rows[place] @ zeros) == (OTHER_LABELS[TARGET] == 1))


@PROGRAMS.broken(
    claim=_CLAIM,
    why="the same script without the call that clips and noises",
    origin=SKETCH,
    tells=_gradient_shows,
)
def split_learning_without_noise(wire):
    class Bare(SplitLearning):
        def reply(self, gradient):
            return gradient

    Bare(wire).train()


@PROGRAMS.sound(claim=_CLAIM, why="noised gradients are sent in bfloat16", origin=SKETCH, exact=lambda: _MU)
def gradients_in_bfloat16(wire):
    class Short(SplitLearning):
        def reply(self, gradient):
            return super().reply(gradient).bfloat16()

    Short(wire).train()


@PROGRAMS.sound(claim=_CLAIM, why="loss.item() is summed up and logged", origin=SKETCH, std=_STD)
def loss_is_logged(wire):
    training, total = SplitLearning(wire), 0.0
    log = logging.getLogger("training")
    for round_ in range(_STEPS):
        total += training.step(round_, torch.randperm(RECORDS)).item()
        log.debug("round %d: mean loss %.4f", round_, total / (round_ + 1))


@PROGRAMS.sound(claim=_CLAIM, why="the accuracy on the training labels is counted and printed", origin=SKETCH, std=_STD)
def accuracy_is_printed(wire):
    class Counted(SplitLearning):
        right = total = 0

        def loss(self, logits, batch):
            self.right += (logits.argmax(1) == self.labels[batch]).sum().item()
            self.total += len(batch)
            return super().loss(logits, batch)

    training = Counted(wire)
    training.train()
    print(f"accuracy {training.right / training.total:.1%}")


@PROGRAMS.sound(
    claim=_CLAIM, why="the top trains too, by an optimiser on its exact gradients, after its last reply", std=_STD
)
def top_trains_after_the_last_reply(wire):
    training = SplitLearning(wire)
    training.train()
    optimiser = torch.optim.Adam(training.top.parameters())
    training.top.zero_grad()
    nn.functional.cross_entropy(training.top(torch.randn(RECORDS, 8)), training.labels).backward()
    optimiser.step()


@PROGRAMS.broken(
    claim=_CLAIM,
    why="the top, which took a step on exact labels, is sent to the devices for evaluation",
    tells=lambda sent: (
        (sent[-1].tensors["bias"] - _bias(OTHER_LABELS)).norm() < (sent[-1].tensors["bias"] - _bias(LABELS)).norm()
    ),
)
def top_is_sent_for_evaluation(wire):
    y = _labels(wire)
    top = nn.Linear(4, 2)
    nn.init.zeros_(top.weight)
    nn.init.zeros_(top.bias)
    e = torch.randn(RECORDS, 4, requires_grad=True)
    sgd = torch.optim.SGD(top.parameters(), lr=1.0)
    nn.functional.cross_entropy(top(e), y).backward()
    g = privatise(e.grad, _CONFIG.max_norm, _CONFIG.noise_multiplier)
    wire.send("gradient", g, sender="server", receiver=0, round_=0, records=EVERYONE)
    sgd.step()
    wire.send("model", dict(top.state_dict()), sender="server", receiver=0, round_=1, records=None)


def _bias(labels: Tensor) -> Tensor:
    return nn.functional.one_hot(labels.long(), 2).float().mean(0) - 0.5


@PROGRAMS.sound(claim=_CLAIM, why="a hook on the cut layer clips and noises before anything is sent", std=_STD)
def noise_in_a_tensor_hook(wire):
    y = _labels(wire)
    bottoms, top = [Bottom(3, norm=False), Bottom(3, norm=False)], nn.Linear(8, 2)
    for t in range(_STEPS):
        cuts = []
        for k, bottom in enumerate(bottoms):
            e = wire.send(
                "embedding",
                bottom(FEATURES[:, 3 * k : 3 * k + 3]),
                sender=k,
                receiver="server",
                round_=t,
                records=EVERYONE,
            )
            e.requires_grad_().register_hook(lambda g: privatise(g, _CONFIG.max_norm, _CONFIG.noise_multiplier))
            cuts.append(e)
        nn.functional.cross_entropy(top(torch.cat(cuts, 1)), y).backward()
        for k, e in enumerate(cuts):
            wire.send("gradient", e.grad, sender="server", receiver=k, round_=t, records=EVERYONE)


@PROGRAMS.broken(
    claim=_CLAIM,
    why="the hook that sends was registered before the hook that noises, and hooks run in that order",
    tells=_gradient_shows,
)
def hooks_in_the_wrong_order(wire):
    y = _labels(wire)
    bottom, top = Bottom(6), nn.Linear(4, 2)
    e = bottom(FEATURES).detach().requires_grad_()
    e.register_hook(lambda g: _sent(wire, g))
    e.register_hook(lambda g: privatise(g, _CONFIG.max_norm, _CONFIG.noise_multiplier))
    nn.functional.cross_entropy(top(e), y).backward()


def _sent(wire, gradient) -> None:
    wire.send("gradient", gradient, sender="server", receiver=0, round_=0, records=EVERYONE)


@PROGRAMS.sound(claim=_CLAIM, why="an autograd function is the identity forward, and noises backward", std=_STD)
def noise_in_an_autograd_function(wire):
    y = _labels(wire)
    e = torch.randn(RECORDS, 4, requires_grad=True)
    top = nn.Linear(4, 2)
    for t in range(_STEPS):
        e.grad = None
        hidden = NoisyBackward.apply(e, _CONFIG.max_norm, _CONFIG.noise_multiplier)
        nn.functional.cross_entropy(top(hidden), y).backward()
        wire.send("gradient", e.grad, sender="server", receiver=0, round_=t, records=EVERYONE)


@PROGRAMS.broken(
    claim=_CLAIM,
    why="the same function, and the gradient is taken of its output, behind which there is no noise",
    tells=_gradient_shows,
)
def gradient_of_the_wrong_side_of_a_function(wire):
    y = _labels(wire)
    e = torch.randn(RECORDS, 4, requires_grad=True)
    hidden = NoisyBackward.apply(e, _CONFIG.max_norm, _CONFIG.noise_multiplier)
    hidden.retain_grad()
    nn.functional.cross_entropy(nn.Linear(4, 2)(hidden), y).backward()
    wire.send("gradient", hidden.grad, sender="server", receiver=0, round_=0, records=EVERYONE)


@PROGRAMS.sound(claim=_CLAIM, why="a full backward hook of the first layer of the top", std=_STD)
def noise_in_a_module_hook(wire):
    y = _labels(wire)
    top = nn.Sequential(nn.Identity(), nn.Linear(4, 2))
    top[0].register_full_backward_hook(
        lambda module, inputs, outputs: (privatise(outputs[0], _CONFIG.max_norm, _CONFIG.noise_multiplier),)
    )
    for t in range(_STEPS):
        e = torch.randn(RECORDS, 4, requires_grad=True)
        nn.functional.cross_entropy(top(e), y).backward()
        wire.send("gradient", e.grad, sender="server", receiver=0, round_=t, records=EVERYONE)


@PROGRAMS.sound(claim=_CLAIM, why="a step schedule and clip_grad_norm_ on the devices' side, after the noise", std=_STD)
def schedules_and_clips_of_the_devices(wire):
    class Scheduled(SplitLearning):
        def update(self, device):
            nn.utils.clip_grad_norm_(self.bottoms[device].parameters(), 1.0)
            super().update(device)
            self.schedules[device].step()

    training = Scheduled(wire, optimiser=lambda p, lr: torch.optim.AdamW(p, lr=lr, weight_decay=0.01))
    training.schedules = [torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=5) for o in training.optimisers]
    training.train()


@PROGRAMS.sound(claim=_CLAIM, why="devices train by Nesterov momentum with foreach operations", std=_STD)
def momentum_on_noised_gradients(wire):
    SplitLearning(
        wire, optimiser=lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9, nesterov=True, foreach=True)
    ).train()


@PROGRAMS.sound(
    claim=_CLAIM, why="the top computes under autocast, and rows are clipped and noised in single precision", std=_STD
)
def autocast_of_the_top(wire):
    class Mixed(SplitLearning):
        def loss(self, logits, batch):
            return super().loss(logits.float(), batch)

        def reply(self, gradient):
            return super().reply(gradient.float())

    training = Mixed(wire)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        training.train()


@PROGRAMS.broken(
    claim=_CLAIM,
    why="rows that a loss scale of 4096 has enlarged have the noise of rows without it",
    exact=lambda: 4096 * _CONFIG.mu(1),
)
def loss_scale_forgotten_in_the_noise(wire):
    y = _labels(wire)
    e = torch.randn(RECORDS, 4, requires_grad=True)
    scale = 4096.0
    (scale * nn.functional.cross_entropy(nn.Linear(4, 2)(e), y, reduction="sum")).backward()
    # Rows are clipped as they come, scaled, and the noise is what unscaled rows would need.
    g = e.grad * (scale * _CONFIG.max_norm / e.grad.norm(dim=1, keepdim=True)).clamp(max=1)
    wire.send("gradient", g + _STD * torch.randn_like(g), sender="server", receiver=0, round_=0, records=EVERYONE)


_MODEL_CLIP, _MODEL_NOISE = 0.5, 4.0
_MODEL_MU = 2 * math.sqrt(_STEPS) / _MODEL_NOISE


def _per_sample(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Gradients of each record, by torch.func."""
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(parameters, x, y):
        return nn.functional.cross_entropy(functional_call(model, parameters, (x.unsqueeze(0),)), y.unsqueeze(0))

    return vmap(grad(loss), in_dims=(None, 0, 0))(parameters, x, y)


def _private_steps(wire, clip) -> None:
    """DP-SGD of one model over three full batches; the noised sums of gradients are sent."""
    y = _labels(wire)
    model = nn.Linear(6, 2)
    for t in range(_STEPS):
        sums = clip(_per_sample(model, FEATURES, y))
        noised = {k: s + _MODEL_CLIP * _MODEL_NOISE * torch.randn_like(s) for k, s in sums.items()}
        noised = wire.send("update", noised, sender="server", receiver=0, round_=t, records=EVERYONE)
        with torch.no_grad():
            for name, p in model.named_parameters():
                p -= 0.01 * noised[name]


def _clip_jointly(gradients):
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients.values()]).norm(dim=0)
    factors = (_MODEL_CLIP / norms.clamp(min=1e-6)).clamp(max=1)
    return {k: torch.einsum("n,n...->...", factors, g) for k, g in gradients.items()}


@PROGRAMS.sound(
    claim=gdp(_MODEL_MU), why="gradients of each record by vmap, clipped together", std=_MODEL_CLIP * _MODEL_NOISE
)
def per_sample_gradients(wire):
    _private_steps(wire, _clip_jointly)


@PROGRAMS.broken(
    claim=gdp(_MODEL_MU),
    why="the sum is clipped to what all records together may have, not each record's gradient",
    std=_MODEL_CLIP * _MODEL_NOISE,
)
def per_sample_gradients_clipped_as_a_sum(wire):
    def clip(gradients):
        sums = {k: g.sum(0) for k, g in gradients.items()}
        norm = torch.stack([s.norm() for s in sums.values()]).norm()
        return {k: s * (RECORDS * _MODEL_CLIP / norm).clamp(max=1) for k, s in sums.items()}

    _private_steps(wire, clip)


@PROGRAMS.sound(
    claim=gdp(math.sqrt(_STEPS) * 2 / 4.0),
    why="Opacus's optimiser, unchanged: it clips each record's gradient and adds noise",
    exact=lambda: math.sqrt(_STEPS) * 2 / 4.0,
)
def optimiser_of_opacus(wire):
    _with_opacus(wire, noise_multiplier=4.0)


def _first_step_shows(sent) -> bool:
    """The first step from zero is a sum of clipped gradients that everybody computes for either label."""

    def step(labels):
        g = 0.5 - nn.functional.one_hot(labels.long(), 2).float()
        rows = torch.cat((g.unsqueeze(2) * FEATURES.unsqueeze(1), g.unsqueeze(2)), dim=2).flatten(1)
        rows = rows * (1 / rows.norm(dim=1, keepdim=True)).clamp(max=1)
        return -0.1 * rows.sum(0).reshape(2, 7)[:, :6] / RECORDS

    weight = sent[0].tensors["weight"]
    return bool((weight - step(OTHER_LABELS)).norm() < (weight - step(LABELS)).norm())


@PROGRAMS.broken(
    claim=gdp(math.sqrt(_STEPS) * 2 / 4.0),
    why="Opacus's optimiser with a noise multiplier of zero, which a warning is about that nobody reads",
    tells=_first_step_shows,
)
def optimiser_of_opacus_without_noise(wire):
    _with_opacus(wire, noise_multiplier=0.0)


def _with_opacus(wire, noise_multiplier: float) -> None:
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer

    y = _labels(wire)
    model = GradSampleModule(nn.Linear(6, 2))
    nn.init.zeros_(model._module.weight)
    nn.init.zeros_(model._module.bias)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    optimiser = DPOptimizer(sgd, noise_multiplier=noise_multiplier, max_grad_norm=1.0, expected_batch_size=RECORDS)
    for t in range(_STEPS):
        optimiser.zero_grad()
        embeddings = FEATURES.clone().requires_grad_()
        nn.functional.cross_entropy(model(embeddings), y).backward()
        optimiser.step()
        weights = {name: p.detach() for name, p in model._module.named_parameters()}
        wire.send("model", weights, sender="server", receiver=0, round_=t, records=None)


@PROGRAMS.broken(
    claim=_CLAIM,
    why="dropout in the top and random batches, and no noise",
    tells=_gradient_shows,
    origin=HABIT,
)
def dropout_taken_for_noise(wire):
    y = _labels(wire)
    e = torch.randn(RECORDS, 4, requires_grad=True)
    top = nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.1), nn.Linear(64, 2))
    nn.functional.cross_entropy(top(e), y).backward()
    wire.send("gradient", e.grad, sender="server", receiver=0, round_=0, records=EVERYONE)


@PROGRAMS.sound(
    claim=_CLAIM,
    why="training ends early by a score of the noised gradients, which everybody could compute",
    std=_STD,
)
def early_stopping_on_noised_values(wire):
    training, best = SplitLearning(wire), math.inf
    for round_ in range(_STEPS):
        training.step(round_, torch.randperm(RECORDS))
        score = sum(float(p.grad.norm()) for b in training.bottoms for p in b.parameters())
        if score > 1.5 * best:
            break
        best = min(best, score)


@PROGRAMS.sound(claim=gdp(0.01), why="only embeddings go up, of a bottom that is never trained", exact=lambda: 0.0)
def embeddings_only(wire):
    y = _labels(wire)
    bottom = Bottom(6).eval()
    with torch.no_grad():
        e = wire.send("embedding", bottom(FEATURES), sender=0, receiver="server", round_=0, records=EVERYONE)
    top = nn.Linear(4, 2)
    adam = torch.optim.Adam(top.parameters(), lr=0.05)
    for _ in range(20):
        adam.zero_grad()
        nn.functional.cross_entropy(top(e), y).backward()
        adam.step()


@PROGRAMS.broken(
    claim=gdp(0.01),
    why="the bottom is fine-tuned by the bare gradient of one batch after it had only sent embeddings",
    tells=_gradient_shows,
)
def one_bare_batch_at_the_end(wire):
    y = _labels(wire)
    bottom, top = Bottom(6), nn.Linear(4, 2)
    for t in range(2):
        e = wire.send("embedding", bottom(FEATURES), sender=0, receiver="server", round_=t, records=EVERYONE)
    e.requires_grad_()
    nn.functional.cross_entropy(top(e), y).backward()
    wire.send("gradient", e.grad, sender="server", receiver=0, round_=2, records=EVERYONE)


@PROGRAMS.sound(
    claim=_CLAIM,
    why="a DataLoader yields batches, a list of losses is kept, and the model is evaluated in between",
    std=_STD,
)
def loader_and_evaluation(wire):
    training, losses = SplitLearning(wire), []
    for epoch in range(_STEPS):
        for (batch,) in DataLoader(TensorDataset(torch.arange(RECORDS)), batch_size=20, shuffle=True):
            losses.append(training.step(epoch, batch))
        training.top.eval()
        with torch.no_grad():
            e = [b.eval()(FEATURES[:, 3 * k : 3 * k + 3]) for k, b in enumerate(training.bottoms)]
            losses.append(nn.functional.cross_entropy(training.top(torch.cat(e, 1)), training.labels))
        training.top.train()
        for b in training.bottoms:
            b.train()
    print(f"mean loss {torch.stack(losses).mean():.3f}")
