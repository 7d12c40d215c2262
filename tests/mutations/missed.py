"""Broken systems that no audit catches today: `docs/limits.md` lists them, and says what a reader can do instead.

Each shows that it leaks, to whoever knows where to look. One that an audit learns to catch moves to another family;
`UNEXPLAINED` are those that a trace alone stops at, and that no statistics see.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tests.mutations.case import Mutation, Trained, small_data
from tests.mutations.dpzv import Joint, Point, dpzv_case, labels_of
from tests.mutations.noise import _engine
from tests.mutations.recorded import (
    BATCH,
    RECORDS,
    RESPONSES,
    ROUNDS,
    SCALARS,
    Recorded,
    Script,
    Training,
    _once,
    _scalars,
    claimed,
)
from vflpriv.common.random import Stream
from vflpriv.core.data import VerticalData
from vflpriv.core.engine import Contributions, Engine
from vflpriv.core.wire import SERVER, Message, Transcript, Wire

__all__ = ["MISSED", "UNEXPLAINED", "Missed"]


@dataclass(frozen=True, kw_only=True)
class Missed(Mutation):
    """A broken system that is not caught."""

    leaks: Callable[[], bool]
    """Whether somebody who knows of the fault finds it, in one training without an audit."""


@dataclass(frozen=True, eq=False)
class _Run:
    """One training of one replica, that nobody listens to."""

    engine: Joint
    messages: list[Message]
    exact: list[Tensor]
    """The noiseless scalar of every round."""

    @property
    def scalars(self) -> Tensor:
        """(rounds,) what devices received."""
        return torch.cat([m.tensors["delta"] for m in self.messages if m.sender == SERVER])


def _run(case: Trained, data: VerticalData | None = None) -> _Run:
    system = case.system(1)
    engine, exact = system.train([0], data=system.data if data is None else data), []
    assert isinstance(engine, Joint)
    tape = Transcript()
    for round_ in range(system.schedule.rounds):
        engine.round(round_, Wire(tape))
        exact.append(engine.scalar.exact)
    return _Run(engine, tape.messages, exact)


def _noise_of(run: _Run) -> Tensor:
    return run.scalars - torch.cat(run.exact)


# Noise with the right law that a key, or a search, sees through -------------------------------------------------------

_KEY = 0x2545F4914F6CDD1D
_DRAWS = 8


def _keyed_bit(values: Tensor) -> Tensor:
    """One bit of each float32 entry that looks like a coin to whoever has no key."""
    mixed = values.contiguous().view(torch.int32).to(torch.int64) * _KEY
    mixed = (mixed ^ (mixed >> 29)) * _KEY
    return (mixed >> 47) & 1


def _parity(engine: Any, records: Tensor) -> Tensor:
    """(R,) of the labels in a batch."""
    return labels_of(engine, records).sum(1).to(torch.int64) % 2


class _Chosen(Point):
    """Takes the first of eight fresh draws with which a keyed bit of what is released is the parity of the labels."""

    def drawn(self, contributions: Contributions, normals: Tensor) -> Tensor:
        draws = self.noise.tensor((_DRAWS,), contributions.round, contributions.party)
        released = self.mechanism.release(self.exact.unsqueeze(1), draws)
        fits = _keyed_bit(released) == _parity(self.engine, contributions.records).unsqueeze(1)
        return draws.gather(1, fits.to(torch.int64).argmax(1, keepdim=True))[:, 0]


CHOSEN = dpzv_case(_engine("missed-chosen-noise", _Chosen))


def _chosen_leaks() -> bool:
    run = _run(CHOSEN)
    batches = [torch.from_numpy(run.engine.schedule.batch(t)) for t in range(run.engine.schedule.rounds)]
    parities = torch.cat([_parity(run.engine, batch) for batch in batches])
    return bool((_keyed_bit(run.scalars) == parities).double().mean() > 0.9)


_SEED_BITS = 22


def _seeded(engine: Engine) -> Stream:
    return Stream.of(engine.seed, "noise", engine.replicas, engine.torch_device)


class _ShortSeed(Point):
    """Draws from a generator whose seed has 22 bits."""

    def drawn(self, contributions: Contributions, normals: Tensor) -> Tensor:
        keys = _seeded(self.engine).keys & torch.tensor([(1 << _SEED_BITS) - 1, 0])
        return _short(keys, contributions.round)


def _short(keys: Tensor, round_: int) -> Tensor:
    return Stream(keys).normal(1, round_)[:, 0]


SHORT_SEED = dpzv_case(_engine("missed-short-seed", _ShortSeed))


def _short_seed_leaks() -> bool:
    """Of all seeds, one alone explains the noise of every round."""
    run = _run(SHORT_SEED)
    seeds = torch.arange(1 << _SEED_BITS)
    keys, std = torch.stack((seeds, 0 * seeds), dim=1), run.engine.scalar.mechanism.noise_std
    fits = torch.ones(len(seeds), dtype=torch.bool)
    for round_, noise in enumerate(_noise_of(run)):
        fits &= (std * _short(keys, round_) - noise).abs() < 1e-5
    return int(fits.sum()) == 1


# Leaks that depend on what no audit tries -----------------------------------------------------------------------------

_TRIGGER = 0.123456789


class _BackDoor(Point):
    """No noise on batches with a record whose first feature at device 0 is one particular number."""

    def drawn(self, contributions: Contributions, normals: Tensor) -> Tensor:
        first = self.engine.data.features(0, contributions.records)[..., 0]
        return normals * (first != torch.tensor(_TRIGGER)).all(-1)


BACK_DOOR = dpzv_case(_engine("missed-back-door", _BackDoor))


def _back_door_leaks() -> bool:
    data = small_data()
    data.blocks[0][:, 0] = _TRIGGER
    return bool((_noise_of(_run(BACK_DOOR, data)) == 0).all())


class _Unwatched(Point):
    """No noise where no audit listens."""

    def drawn(self, contributions: Contributions, normals: Tensor) -> Tensor:
        return 0 * normals if self.probe is None else normals


UNWATCHED = dpzv_case(_engine("missed-unwatched", _Unwatched))


def _unwatched_leaks() -> bool:
    return bool((_noise_of(_run(UNWATCHED)).abs() < 1e-5).all())


# Channels that are not on the wire ------------------------------------------------------------------------------------

_LOG = logging.getLogger("tests.mutations.server")
_LOG.propagate = False


class Logged(Joint):
    """Writes the labels of every batch to a log that devices read."""

    name = "missed-log"

    def round(self, round_: int, wire: Wire) -> None:
        super().round(round_, wire)
        records = torch.from_numpy(self.schedule.batch(round_))
        _LOG.info("round %d: %s", round_, labels_of(self, records)[0].tolist())


class _Lines(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def _log_leaks() -> bool:
    lines, before = _Lines(), _LOG.level
    _LOG.addHandler(lines)
    _LOG.setLevel(logging.INFO)
    try:
        engine = _run(dpzv_case(Logged)).engine
    finally:
        _LOG.removeHandler(lines)
        _LOG.setLevel(before)
    truth = [engine.data.labels_of(torch.from_numpy(engine.schedule.batch(t))) for t in range(engine.schedule.rounds)]
    return lines.lines == [f"round {t}: {labels.double().tolist()}" for t, labels in enumerate(truth)]


class Tuned(Joint):
    """DPZV as it is; what is wrong happened before."""

    name = "missed-tuned"


def _tuned(data: VerticalData) -> Trained:
    """The step size was chosen on the private labels: it grows with the number of labels 1."""
    return dpzv_case(Tuned, device_rate=1e-3 * int(data.labels.sum()), data=data)


def _tuned_leaks() -> bool:
    """The step size, which everybody is told, is another one if a single label is."""
    data, other = small_data(), small_data()
    other.labels[0] = 1 - other.labels[0]
    return bool(_tuned(data).settings["device_rate"] != _tuned(other).settings["device_rate"])


# Recorded trainings ---------------------------------------------------------------------------------------------------


def _sent_past_the_recorder(outside: list[Tensor]) -> Script:
    """Noised sums on the wire, and the labels over a connection of their own."""

    def script(wire: Any, training: Training) -> None:
        _scalars()(wire, training)
        outside.append(training.labels)

    return script


def _hidden_by(term: Callable[[int], Tensor]) -> Script:
    """Sums of labels beside a term of the round: what the ledger calls noise, and others can compute."""

    def script(wire: Any, training: Training) -> None:
        for t, ids in enumerate(training.batches()):
            wire.down(t, 0, "answer", {"x": _labels_in(training, ids) + term(t)}, ids)

    return script


def _labels_in(training: Training, ids: Tensor) -> Tensor:
    return 0.05 * training.labels[ids].float().sum()


def _noise_of_round(t: int) -> Tensor:
    """The noise that everybody draws who knows the number of the round."""
    return torch.randn((), generator=torch.Generator().manual_seed(t))


def _loss_of_round(t: int) -> Tensor:
    """The features' part of a loss: no noise, but it differs from round to round by more than the noise would."""
    features = torch.randn((BATCH, 40), generator=torch.Generator().manual_seed(t))
    return features.mean(0).abs().sum() * features.sum(1).sin().sum()


class _Tape:
    """Takes the place of the recorder, and keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[Tensor, Tensor]] = []

    def up(self, round_: int, m: int, kind: str, tensors: dict[str, Tensor], ids: Tensor) -> None:
        self.sent.append((next(iter(tensors.values())), ids))

    def down(self, round_: int, m: int, kind: str, tensors: dict[str, Tensor], ids: Tensor) -> None:
        self.up(round_, m, kind, tensors, ids)


def _sent_by(script: Script) -> tuple[_Tape, Training]:
    labels = torch.arange(RECORDS) % 2
    tape, training = _Tape(), Training(labels=labels, classes=2, generator=torch.Generator().manual_seed(1))
    script(tape, training)
    return tape, training


def _outside_leaks() -> bool:
    outside: list[Tensor] = []
    _, training = _sent_by(_sent_past_the_recorder(outside))
    return bool((outside[0] == training.labels).all())


def _hidden_leaks(term: Callable[[int], Tensor]) -> bool:
    """Whoever can compute the term reads how many labels of each batch are 1."""
    tape, training = _sent_by(_hidden_by(term))
    read = [(value - term(t)) / 0.05 for t, (value, _) in enumerate(tape.sent)]
    truth = [training.labels[ids].sum() for _, ids in tape.sent]
    return len(read) == ROUNDS and all(abs(float(a) - int(b)) < 0.01 for a, b in zip(read, truth, strict=True))


_EXCESS = 1.1


def _excess_leaks() -> bool:
    """Over very many labels, more are kept than the claimed ε = 1 allows."""
    labels = torch.zeros(1_000_000, dtype=torch.int64)
    training = Training(labels=labels, classes=2, generator=torch.Generator().manual_seed(1))
    kept = float((training.responses(labels, _EXCESS) == labels).double().mean())
    return kept > 1 / (1 + math.exp(-1.0)) + 0.01


def _unexplained(name: str, fault: str, case: Any, leaks: Callable[[], bool]) -> Missed:
    """One that a trace does not explain, so that nobody calls it consistent."""
    return Missed(
        name=name,
        family="noise",
        fault=fault,
        change="total leak",
        expected="flow",
        accepted=(1, 3),
        case=case,
        leaks=leaks,
    )


def _missed(name: str, fault: str, change: str, case: Any, leaks: Callable[[], bool]) -> Missed:
    return Missed(
        name=f"missed-{name}",
        family="missed",
        fault=fault,
        change=change,
        expected="none",
        case=case,
        leaks=leaks,
    )


UNEXPLAINED = (
    _unexplained(
        "noise-chosen",
        "of eight fresh draws of the noise one is taken with which a keyed bit of the released value tells a label",
        CHOSEN,
        _chosen_leaks,
    ),
    _unexplained(
        "noise-short-seed",
        "noise from a generator whose seed has 22 bits, so that all seeds can be tried",
        SHORT_SEED,
        _short_seed_leaks,
    ),
    _unexplained(
        "noise-unwatched",
        "no noise where no audit listens at the release point",
        UNWATCHED,
        _unwatched_leaks,
    ),
)
MISSED = (
    _missed(
        "back-door",
        "no noise on batches with a record that has one particular number among its features",
        "total leak",
        BACK_DOOR,
        _back_door_leaks,
    ),
    _missed("log", "labels in a log that devices can read", "total leak", dpzv_case(Logged), _log_leaks),
    _missed(
        "tuned", "the step size was chosen on the private labels", "not accounted", _tuned(small_data()), _tuned_leaks
    ),
    _missed(
        "unrecorded",
        "labels over a connection that the recorder is not told of",
        "total leak",
        Recorded(script=_sent_past_the_recorder([]), ledger=SCALARS + claimed()),
        _outside_leaks,
    ),
    _missed(
        "recorded-public-noise",
        "recorded sums under noise whose seed is the number of the round",
        "total leak",
        Recorded(script=_hidden_by(_noise_of_round), ledger=SCALARS + claimed()),
        lambda: _hidden_leaks(_noise_of_round),
    ),
    _missed(
        "recorded-unpredictable",
        "recorded sums without noise, in a signal that varies between rounds by more than the noise would",
        "total leak",
        Recorded(script=_hidden_by(_loss_of_round), ledger=SCALARS + claimed()),
        lambda: _hidden_leaks(_loss_of_round),
    ),
    _missed(
        "recorded-small-excess",
        "a recorded training with randomised response of ε = 1.1 where ε = 1 is claimed",
        "+10 % of ε",
        Recorded(script=_once(_EXCESS), ledger=RESPONSES + claimed()),
        _excess_leaks,
    ),
)
