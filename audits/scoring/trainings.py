"""Trainings that attacks are tried on: what is recorded of them, and what each adversary sees of them afterwards.

Attacks on labels and on features that leave all devices honest read one and the same training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from vflpriv.common.devices import precise_device
from vflpriv.common.lazy import no_grad
from vflpriv.core.attack import Attack, Conduct, KnownModel, PublishedEncoder, ServerStart
from vflpriv.core.data import VerticalData
from vflpriv.core.engine import Engine
from vflpriv.core.systems import System
from vflpriv.core.views import Adversary, View
from vflpriv.core.wire import Message, Transcript, Wire

__all__ = ["Training", "Watched", "attempt_work", "known_model", "needed_kinds", "train", "views_of"]

_MEMORY = 1 << 30
"""Bytes of parameters that are kept for white-box attacks."""
_ATTEMPTS = 10
"""How many attempts take about as long as a training."""


@dataclass
class Watched:
    """Records what attacks read of a training: all messages of the kinds they need, one of each other kind and device.

    One message is enough for an attack to say why it does not apply.
    """

    kinds: frozenset[str]
    devices: frozenset[int] | None = None
    transcript: Transcript = field(init=False)
    _samples: dict[tuple[str, int], Message] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.transcript = Transcript(kinds=self.kinds, devices=self.devices)

    def record(self, message: Message) -> None:
        self.transcript.record(message)
        if message.kind not in self.kinds:
            self._samples.setdefault((message.kind, message.device.index), message)

    @property
    def whole(self) -> Transcript:
        """All recorded messages."""
        return Transcript(messages=[*self.transcript.messages, *self._samples.values()])


def needed_kinds(system: System, attacks: Iterable[Attack]) -> frozenset[str]:
    """The kinds of messages that these attacks read and the system sends."""
    sent = frozenset(release.kind for release in system.ledger.releases)
    return frozenset().union(*(attack.needs for attack in attacks)) & sent


def views_of(
    transcript: Transcript, engine: Engine, data: VerticalData, adversaries: Sequence[Adversary]
) -> dict[Adversary, View]:
    """What each adversary saw of a finished training: its messages, and its own features and models.

    They lie where attacks compute in float64: on the device that trained, or on the CPU if that one has no float64.
    """
    members = {m for adversary in adversaries for m in adversary.members(data.devices)}
    own = {m: engine.belongings(m) for m in sorted(members)}
    shape = {"devices": data.devices, "classes": data.classes}
    views = {adversary: View.of(transcript, adversary, own=own, **shape) for adversary in adversaries}
    where = precise_device(engine.torch_device)
    return views if where == engine.torch_device else {adversary: view.to(where) for adversary, view in views.items()}


@dataclass(frozen=True, eq=False, kw_only=True)
class Training:
    """A finished training of all seeds: its engine, what was recorded of it, and all devices' models as white boxes."""

    system: System
    engine: Engine
    transcript: Transcript
    models: Mapping[int, KnownModel]
    start: ServerStart | None = None
    """The server's model before the first round."""

    @property
    def published(self) -> dict[int, PublishedEncoder]:
        """The encoders that devices with texts started from, where these are published."""
        return {m: encoder for m in range(self.system.data.devices) if (encoder := _published(self, m)) is not None}

    def views(self, adversaries: Sequence[Adversary]) -> dict[Adversary, View]:
        """What each adversary saw."""
        return views_of(self.transcript, self.engine, self.system.data, adversaries)


def _published(training: Training, m: int) -> PublishedEncoder | None:
    """What device m's model started from; None where not all of it is published, or it reads no texts."""
    model, data = training.engine.device_model(m), training.system.data
    if model.published is None or data.vocabulary is None:
        return None
    where = precise_device(training.system.torch_device)
    start = {name: value.to(where).unsqueeze(0) for name, value in model.published.items()}

    @no_grad
    def apply(ids: Tensor) -> Tensor:
        return model.apply(start, ids)[0]

    return PublishedEncoder(apply=apply, vocabulary=data.vocabulary, tokens=data.blocks[m].shape[1])


def attempt_work(system: System) -> int:
    """What one attack through one view counts for beside the rounds of a training; for the progress bar."""
    return max(1, system.schedule.rounds // _ATTEMPTS)


def train(
    system: System,
    seeds: int,
    kinds: frozenset[str],
    *,
    devices: frozenset[int] | None = None,
    white: bool = False,
    conducts: Mapping[int, Conduct] | None = None,
    advance: Callable[[int], None] | None = None,
) -> Training:
    """Train all seeds at once and record messages of these kinds, on the links of these devices or of all.

    With `white`, all devices' models of as many last rounds are kept as `_MEMORY` holds.
    """
    watched = Watched(kinds, devices)
    engine = system.train(range(seeds), conducts=conducts or {})
    start = _start(engine, system.data.devices)
    models = _run(engine, system, watched, advance, white=white)
    return Training(system=system, engine=engine, transcript=watched.whole, models=models, start=start)


def _start(engine: Engine, devices: int) -> ServerStart | None:
    """The server's model before the first round; None where there is none."""
    model, where = engine.server_model(), precise_device(engine.torch_device)
    if model is None:
        return None
    parameters = {name: value.to(where).clone() for name, value in model.parameters.items()}
    return ServerStart(apply=model.apply, parameters=parameters, devices=devices)


def _run(
    engine: Engine, system: System, watched: Watched, advance: Callable[[int], None] | None, *, white: bool
) -> dict[int, KnownModel]:
    """Run all rounds; the devices' models, if white-box attacks are to have them."""
    models = [engine.device_model(m).parameters for m in range(system.data.devices)] if white else []
    rounds = system.schedule.rounds
    size = sum(value.numel() * value.element_size() for model in models for value in model.values())
    first = max(0, rounds - _MEMORY // max(1, size))
    kept: dict[int, dict[int, dict[str, Tensor]]] = {m: {} for m in range(len(models))}

    def keep(round_: int) -> None:
        for m in kept if round_ >= first else ():
            kept[m][round_] = {name: value.clone() for name, value in engine.device_model(m).parameters.items()}

    wire = Wire(watched)
    for round_ in range(rounds):
        keep(round_)
        engine.round(round_, wire)
        if advance is not None:
            advance(1)
    keep(rounds)
    where = precise_device(system.torch_device)
    for model in (model for by_round in kept.values() for model in by_round.values()):
        model.update({name: value.to(where) for name, value in model.items()})
    return {m: known_model(engine, m, parameters) for m, parameters in kept.items()}


def known_model(engine: Engine, m: int, rounds: Mapping[int, Mapping[str, Tensor]]) -> KnownModel:
    """Device m's model as a white box: what the device sends but for the noise, so after clipping."""
    model, mechanism = engine.device_model(m), engine.mechanisms(engine.settings, engine.schedule).get("embeddings")

    def apply(parameters: Mapping[str, Tensor], rows: Tensor) -> Tensor:
        outputs: Tensor = model.apply(parameters, rows)
        return outputs if mechanism is None else mechanism.noiseless(outputs)

    return KnownModel(apply=apply, rounds=rounds)
