"""Private values that leave torch: NumPy, lists, numbers, files, threads, and come back or do not."""

from __future__ import annotations

import io
import math
import threading

import numpy as np
import torch
from torch import nn

from tests.mutations.flow.program import HABIT, SIDE, Theme, gdp, pure
from tests.mutations.flow.worlds import (
    ANSWERED,
    ANSWERS,
    EVERYONE,
    FEATURES,
    LABELS,
    NOISE,
    OTHER_LABELS,
    RECORDS,
    ROUNDS,
    TARGET,
)

__all__ = ["PROGRAMS"]

PROGRAMS = Theme("NumPy and the host")

_ROW = gdp(math.sqrt(2))


def _is_other(sent) -> bool:
    """The adversary who reads the label."""
    return bool((sent[0].tensors[""].reshape(-1)[TARGET] > 0.5) == (OTHER_LABELS[TARGET] > 0))


def _bare(wire, launder) -> None:
    """Sends what is left of the labels after they have left torch and come back."""
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    wire.send("gradient", launder(y), sender="server", receiver=0, round_=0, records=EVERYONE)


@PROGRAMS.broken(claim=_ROW, why="labels through NumPy and back", tells=_is_other)
def labels_through_numpy(wire):
    _bare(wire, lambda y: torch.from_numpy(y.numpy().copy()))


@PROGRAMS.broken(claim=_ROW, why="labels through a list and back", tells=_is_other)
def labels_through_a_list(wire):
    _bare(wire, lambda y: torch.tensor([float(label) for label in y.tolist()]))


@PROGRAMS.broken(claim=_ROW, why="labels through float() of each", tells=_is_other)
def labels_through_numbers(wire):
    _bare(wire, lambda y: torch.tensor([float(label) for label in y]))


@PROGRAMS.broken(claim=_ROW, why="labels choose among Python's constants", tells=_is_other)
def labels_through_an_if(wire):
    _bare(wire, lambda y: torch.stack([torch.ones(()) if label else torch.zeros(()) for label in y.bool()]))


@PROGRAMS.broken(claim=_ROW, why="labels through a file in memory", tells=_is_other)
def labels_through_a_file(wire):
    def launder(y):
        file = io.BytesIO()
        torch.save(y, file)
        file.seek(0)
        return torch.load(file, weights_only=True)

    _bare(wire, launder)


@PROGRAMS.sound(
    claim=gdp(math.sqrt(2) / NOISE),
    why="a model that took one noised step goes through a file before it is sent",
    exact=lambda: math.sqrt(2) / NOISE,
)
def noised_model_through_a_file(wire):
    y = wire.private(LABELS.long(), OTHER_LABELS.long(), what="labels", owner="server")
    model, file = nn.Linear(6, 2), io.BytesIO()
    g = (0.5 - nn.functional.one_hot(y, 2).float()).T @ nn.functional.normalize(FEATURES)
    model.weight.data.sub_(0.1 * (g + NOISE * torch.randn_like(g)))
    torch.save(model.state_dict(), file)
    file.seek(0)
    saved = dict(torch.load(file, weights_only=True))
    wire.send("model", saved, sender="server", receiver=0, round_=0, records=None)


@PROGRAMS.broken(claim=_ROW, why="labels through their text", tells=_is_other)
def labels_through_their_text(wire):
    _bare(wire, lambda y: torch.tensor([float(text) for text in str(y.int().tolist()).strip("[]").split(",")]))


@PROGRAMS.broken(claim=_ROW, why="labels through a thread", tells=_is_other)
def labels_through_a_thread(wire):
    def launder(y):
        copied = []
        thread = threading.Thread(target=lambda: copied.append(y * 1.0))
        thread.start()
        thread.join()
        return copied[0]

    _bare(wire, launder)


@PROGRAMS.broken(claim=_ROW, why="positions of the ones, which index a public table", tells=_is_other)
def labels_as_positions(wire):
    _bare(wire, lambda y: torch.zeros(RECORDS).index_fill(0, y.nonzero()[:, 0], 1.0))


@PROGRAMS.broken(claim=_ROW, why="a Python set of the records of class 1", tells=_is_other)
def labels_as_a_set(wire):
    def launder(y):
        ones = {i for i, label in enumerate(y.numpy()) if label}
        return torch.tensor([1.0 if i in ones else 0.0 for i in range(RECORDS)])

    _bare(wire, launder)


@PROGRAMS.broken(claim=_ROW, why="NumPy writes labels into a tensor's memory", tells=_is_other)
def labels_written_into_shared_memory(wire):
    def launder(y):
        buffer = torch.zeros(RECORDS)
        buffer.numpy()[:] = y.numpy()
        return buffer

    _bare(wire, launder)


@PROGRAMS.broken(
    claim=_ROW,
    why="a scikit-learn-like fit in NumPy, whose coefficients are sent",
    tells=lambda sent: (
        (sent[0].tensors[""] - _least_squares(OTHER_LABELS.numpy())).norm()
        < (sent[0].tensors[""] - _least_squares(LABELS.numpy())).norm()
    ),
)
def coefficients_fitted_in_numpy(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    wire.send("model", _least_squares(y.numpy()), sender="server", receiver=0, round_=0, records=EVERYONE)


def _least_squares(labels):
    return torch.from_numpy(np.linalg.lstsq(FEATURES.numpy(), labels - 0.5, rcond=None)[0])


@PROGRAMS.sound(claim=_ROW, why="rows of NumPy are noised by NumPy, and become a tensor", std=1.0)
def noised_in_numpy(wire):
    y = wire.private(LABELS.long(), OTHER_LABELS.long(), what="labels", owner="server").numpy()
    g = 0.5 - np.eye(2)[y]
    noised = torch.from_numpy(g + np.random.normal(size=g.shape))  # noqa: NPY002
    wire.send("gradient", noised, sender="server", receiver=0, round_=0, records=EVERYONE)


@PROGRAMS.broken(
    claim=_ROW,
    why="the same with a tenth of the noise",
    exact=lambda: 10 * math.sqrt(2),
    std=0.1,
)
def noised_in_numpy_too_little(wire):
    y = wire.private(LABELS.long(), OTHER_LABELS.long(), what="labels", owner="server").numpy()
    g = 0.5 - np.eye(2)[y]
    noised = torch.from_numpy(g + np.random.normal(scale=0.1, size=g.shape))  # noqa: NPY002
    wire.send("gradient", noised, sender="server", receiver=0, round_=0, records=EVERYONE)


@PROGRAMS.sound(claim=_ROW, why="torch's gradients under NumPy's noise, which enters by from_numpy", std=1.0)
def numpy_noise_on_torch_gradients(wire):
    y = wire.private(LABELS.long(), OTHER_LABELS.long(), what="labels", owner="server")
    g = 0.5 - nn.functional.one_hot(y, 2).float()
    z = torch.from_numpy(np.random.standard_normal(g.shape).astype(np.float32))  # noqa: NPY002
    wire.send("gradient", g + z, sender="server", receiver=0, round_=0, records=EVERYONE)


@PROGRAMS.sound(claim=_ROW, why="noised rows go through NumPy on their way", std=1.0)
def noised_rows_through_numpy(wire):
    y = wire.private(LABELS.long(), OTHER_LABELS.long(), what="labels", owner="server")
    noised = 0.5 - nn.functional.one_hot(y, 2) + torch.randn(RECORDS, 2)
    wire.send(
        "gradient",
        torch.from_numpy(noised.numpy().astype(np.float32)),
        sender="server",
        receiver=0,
        round_=0,
        records=EVERYONE,
    )


@PROGRAMS.sound(claim=_ROW, why="noised rows go through a list on their way", std=1.0)
def noised_rows_through_a_list(wire):
    y = wire.private(LABELS.long(), OTHER_LABELS.long(), what="labels", owner="server")
    noised = 0.5 - nn.functional.one_hot(y, 2) + torch.randn(RECORDS, 2)
    wire.send("gradient", torch.tensor(noised.tolist()), sender="server", receiver=0, round_=0, records=EVERYONE)


@PROGRAMS.sound(
    claim=ANSWERS,
    why="counts and losses are read on the host for a table that is printed at the end",
    exact=lambda: ANSWERED,
)
def table_of_losses(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    w, table = torch.zeros(6), {"loss": [], "accuracy": []}
    for t in range(ROUNDS):
        logits = FEATURES @ w
        table["loss"].append(float(nn.functional.binary_cross_entropy_with_logits(logits, y)))
        table["accuracy"].append(int(((logits > 0) == (y > 0)).sum()) / len(y))
        m = ((torch.sigmoid(logits) - y) * FEATURES[:, t]).clamp(-0.5, 0.5).sum() + NOISE * torch.randn(1)
        w = w - 0.05 * wire.send("answer", m, sender="server", receiver=0, round_=t, records=EVERYONE)
    print("\n".join(f"{loss:.3f} {share:.1%}" for loss, share in zip(*table.values(), strict=True)))


@PROGRAMS.sound(
    claim=pure(1.0),
    why="features are public: they go through pandas-like code in NumPy and are sent",
    exact=lambda: 0.0,
)
def public_features_through_numpy(wire):
    wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    x = FEATURES.numpy()
    standardised = (x - x.mean(0)) / x.std(0)
    wire.send("embedding", torch.from_numpy(standardised), sender=0, receiver="server", round_=0, records=EVERYONE)


@PROGRAMS.broken(
    claim=ANSWERS,
    why="float() of the exact answer is written into the tensor that was noised",
    tells=lambda sent: (
        abs(float(sent[0].tensors[""][0]) - _first(OTHER_LABELS)) < abs(float(sent[0].tensors[""][0]) - _first(LABELS))
    ),
    origin=SIDE,
)
def number_written_over_the_noise(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    m = _shares(y).sum() + NOISE * torch.randn(2)
    m[0] = float(_shares(y).sum())
    wire.send("answer", m, sender="server", receiver=0, round_=0, records=EVERYONE)


def _shares(labels):
    return ((0.5 - labels) * FEATURES[:, 0]).clamp(-0.5, 0.5)


def _first(labels) -> float:
    return float(_shares(labels).sum())


@PROGRAMS.broken(
    claim=ANSWERS,
    why="the size of the noise is set by the exact loss, read as a number",
    # std 2 or a little more, by how the label fits: two normal laws of different std have an unbounded ratio.
    exact=lambda: math.inf,
)
def noise_annealed_by_the_loss(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    for t in range(ROUNDS):
        loss = nn.functional.binary_cross_entropy_with_logits(FEATURES[:, 0], y).item()
        m = ((0.5 - y) * FEATURES[:, t]).clamp(-0.5, 0.5).sum() + NOISE * (1 + loss) * torch.randn(1)
        wire.send("answer", m, sender="server", receiver=0, round_=t, records=EVERYONE)


@PROGRAMS.sound(
    claim=ANSWERS,
    why="a check that the labels are 0 or 1 raises if they are not, as in any loader",
    exact=lambda: ANSWERED,
    origin=HABIT,
)
def labels_are_checked_first(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    if not bool(((y == 0) | (y == 1)).all()):
        raise ValueError(f"Expected labels 0 or 1, found {y.unique().tolist()}.")
    for t in range(ROUNDS):
        m = ((0.5 - y) * FEATURES[:, t]).clamp(-0.5, 0.5).sum() + NOISE * torch.randn(1)
        wire.send("answer", m, sender="server", receiver=0, round_=t, records=EVERYONE)


@PROGRAMS.broken(
    claim=pure(1.0),
    why="responses that are drawn with three times the budget take the way of a list",
    exact=lambda: 3.0,
)
def responses_through_a_list(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    kept = torch.rand(RECORDS) < math.exp(3.0) / (math.exp(3.0) + 1)
    responses = torch.where(kept, y, 1 - y).long()
    wire.send("labels", torch.tensor(responses.tolist()), sender="server", receiver=0, round_=0, records=EVERYONE)
