"""The base class of all engines: what an engine declares, and the one round loop in which everything is trained.

A round is: who is active, which batch, uplink, server, downlink, update; every message passes through the wire.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from vflpriv.common.lazy import no_grad, torch
from vflpriv.common.random import Stream
from vflpriv.core import engine as engine_contract
from vflpriv.core.data import BaseData, Part
from vflpriv.core.engine import DeviceModel, Evaluation, Probe
from vflpriv.core.kinds import Content
from vflpriv.core.law import Draws
from vflpriv.core.ledger import Ledger
from vflpriv.core.releases import Release
from vflpriv.core.schedules import Activation, Schedule
from vflpriv.core.views import Belongings
from vflpriv.core.wire import SERVER, Payload, Wire, device
from vflpriv.errors import InputError
from vflpriv.training.clocks import timed_order
from vflpriv.training.defence import Exchange, Guard, defended
from vflpriv.training.malicious import amplifier_of
from vflpriv.training.mechanisms.base import Mechanism, NoiseSource, ReleasePoint
from vflpriv.training.mechanisms.labels import NoisedBefore, as_target, posterior, protected
from vflpriv.training.mechanisms.priors import DrawnLabels, PriorLabels
from vflpriv.training.model_factory import check_choice, check_models, device_models, embedding_width, word_vectors
from vflpriv.training.models.bank import Bank
from vflpriv.training.models.base import Mlp, Model, initialise
from vflpriv.training.settings import EngineSettings

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Engine"]

_RECORDS_TOGETHER = 1024


class Engine(engine_contract.Engine):
    """R replicas of one training run. A variant overrides the hooks and declares its ledger and its claims."""

    settings_type: ClassVar[type[EngineSettings]]
    bottoms: ClassVar[tuple[str, ...] | None] = None
    """The bottom models it can train; all if None."""

    bank: Bank
    """The devices' models; `setup` makes it."""
    top: Model | None = None
    """The server's model, if there is one."""
    top_parameters: dict[str, Tensor]

    # Declarations --------------------------------------------------------------------------------------------------

    @staticmethod
    @abstractmethod
    def releases(settings: Any, schedule: Schedule) -> tuple[Release, ...]:
        """The releases of a run with these settings, as if labels were used as they are."""

    @classmethod
    def ledger(cls, settings: Any, schedule: Schedule) -> Ledger:
        releases, mechanism = cls.releases(settings, schedule), settings.label_mechanism
        if mechanism is not None:
            holds = "server" in cls.label_holders
            releases = protected(releases, mechanism, schedule.rounds, server_holds=holds)
        return Ledger(schedule=schedule, releases=releases, label_holders=cls.label_holders)

    @classmethod
    def check(cls, settings: Any, data: BaseData) -> None:
        check_models(settings, data, cls.bottoms)
        prior = settings.label_prior
        if prior is not None and len(prior) != data.classes:
            raise InputError("label_prior", prior, f"{data.classes} probabilities, one for each class")

    @classmethod
    def draw_schedule(cls, settings: Any, *, records: int, devices: int, seed: int) -> Schedule:
        several = Activation.ALL if settings.subset is None else Activation.SEVERAL
        activation = settings.activation if cls.asynchronous else several
        together, rounds, delays = cls.devices_together(settings, devices), settings.rounds, settings.delays
        timed = None
        if delays is not None:
            timed = timed_order(delays, activation, rounds=rounds, devices=devices, together=together, seed=seed)
        return Schedule.draw(
            batching=settings.schedule,
            activation=activation,
            rates=settings.rates if cls.asynchronous else None,
            together=together,
            timed_order=timed,
            records=records,
            batch_size=settings.batch_size,
            rounds=rounds,
            devices=devices,
            seed=seed,
        )

    @classmethod
    def devices_together(cls, settings: Any, devices: int) -> int:
        """How many of the devices take part in a round that waits for several of them."""
        return settings.subset or devices

    # What a variant does -------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        settings, schedule = self.settings, self.schedule
        check_choice(settings, self.data, self.bottoms)
        self.embedding = embedding_width(settings, self.data)
        self._as_given = self.data
        self._drawn_labels: DrawnLabels | None = None
        self._protect_labels()
        self._order = torch.from_numpy(schedule.order).to(self.torch_device)
        self._amplifiers = {
            m: amplifier_of(conduct, settings.device_rate, settings.momentum)
            for m, conduct in self.conducts.items()
            if conduct.gain
        }
        self.top_parameters = {}
        self.release_points: list[ReleasePoint] = []
        defence = settings.defence
        self._at_work: Guard | None = None
        if defence is not None:
            self._at_work = defence.guard(self.stream("defence") if defence.draws else self.public_stream("init"))
        if self._at_work is not None and defence is not None and defence.of_texts:
            self._replace_texts(self._at_work)
        self.setup()

    def _replace_texts(self, guard: Guard) -> None:
        """Every replica trains on what a defence leaves of all texts; labels stay as they are."""
        data, where = self.data, self.torch_device
        everyone, vectors = torch.arange(data.records, device=where), word_vectors(self.settings).to(where)
        own = {m: data.features(m, everyone) for m in range(data.devices)}
        texts = {m: ids if data.differs(m) else ids.unsqueeze(0) for m, ids in own.items()}
        relabelled = data.overrides is not None and data.overrides.labels is not None
        self.data = data.override(
            range(data.records),
            labels=data.labels_of(everyone) if relabelled else None,
            blocks={m: guard.texts(ids, vectors, m) for m, ids in texts.items()},
        )

    @abstractmethod
    def setup(self) -> None:
        """Make models, state and release points."""

    def uplink(self, round_: int, m: int, records: Tensor) -> Payload:
        """What device m sends."""
        raise TypeError(f"Expected {type(self).__name__} to define uplink() or uplinks().")

    def uplinks(self, round_: int, members: Sequence[int], records: Tensor) -> Mapping[int, Payload]:
        """What the active devices send; engines that compute them all at once override this one."""
        return {m: self.uplink(round_, m, records) for m in members}

    def questions(self, round_: int) -> Mapping[int, Tensor]:
        """The devices that the server asks for more before it answers, and the records it asks for."""
        return {}

    def answer(self, round_: int, m: int, records: Tensor) -> Payload:
        """What device m sends when it is asked."""
        raise TypeError(f"Expected {type(self).__name__} to define answer() beside questions().")

    def receive(self, m: int, records: Tensor, answer: Mapping[str, Tensor]) -> None:
        """What the server does with an answer."""
        raise TypeError(f"Expected {type(self).__name__} to define receive() beside questions().")

    @abstractmethod
    def serve(self, round_: int, records: Tensor, uplinks: Mapping[int, Mapping[str, Tensor]]) -> Mapping[int, Payload]:
        """What the server answers to each active device, its own update included."""

    def update(self, round_: int, m: int, records: Tensor, reply: Mapping[str, Tensor]) -> None:
        """Device m's update."""
        raise TypeError(f"Expected {type(self).__name__} to define update() or updates().")

    def updates(self, round_: int, records: Tensor, replies: Mapping[int, Mapping[str, Tensor]]) -> None:
        """The active devices' updates; engines that compute them all at once override this one."""
        for m, reply in replies.items():
            self.update(round_, m, records, reply)

    @abstractmethod
    def predict(self, blocks: Sequence[Tensor], replicas: int) -> Tensor:
        """(replicas, B, classes) logits of the first replicas with the current models."""

    def server_parameters(self) -> Mapping[str, Tensor]:
        return self.top_parameters

    # The round loop ------------------------------------------------------------------------------------------------

    def run(
        self,
        wire: Wire,
        *,
        advance: Callable[[int], None] | None = None,
        stop: Callable[[int], bool] | None = None,
    ) -> None:
        for round_ in range(self.schedule.rounds):
            self.round(round_, wire)
            if advance is not None:
                advance(1)
            if stop is not None and stop(round_):
                return

    def round(self, round_: int, wire: Wire) -> None:
        if self._drawn_labels is not None:
            self._drawn_labels.begin(round_)
        begin, size = int(self.schedule.start[round_]), int(self.schedule.size[round_])
        records = self._order[begin : begin + size]
        members = self.schedule.members(round_)
        outputs = self._defended(Content.OUTPUTS, round_, records, self.uplinks(round_, members, records))
        # After the defence: no defence of its own takes back what a dishonest device forges.
        sent = {m: self._forged(round_, m, records, payload) for m, payload in outputs.items()}
        uplinks = {m: payload.send(wire, round_, device(m), SERVER, records) for m, payload in sent.items()}
        for m, stale in self.questions(round_).items():
            Payload("refresh-request", {}).send(wire, round_, SERVER, device(m), stale)
            answers = self._defended(Content.OUTPUTS, round_, stale, {m: self.answer(round_, m, stale)})
            answer = answers[m].send(wire, round_, device(m), SERVER, stale)
            self.receive(m, stale, self._behind_layer(round_, m, answer))
        # A layer stands behind the wire: adversaries see what was sent, the server trains on what comes out of it.
        read = {m: self._behind_layer(round_, m, tensors) for m, tensors in uplinks.items()}
        answers = self._defended(Content.GRADIENT, round_, records, self.serve(round_, records, read), uplinks)
        replies = {}
        for m, payload in answers.items():
            forged = self._answered(round_, m, records, uplinks.get(m, {}), payload)
            replies[m] = self._misread(round_, m, records, forged.send(wire, round_, SERVER, device(m), records))
        # Around the honest update: an amplifier reads the step off the parameters, whatever optimiser makes it.
        amplifiers = {m: self._amplifiers[m] for m in replies if m in self._amplifiers}
        for m, amplifier in amplifiers.items():
            amplifier.before(self.bank.parameters[m])
        self.updates(round_, records, replies)
        for m, amplifier in amplifiers.items():
            amplifier.after(self.bank.parameters[m])

    def _defended(
        self,
        content: Content,
        round_: int,
        records: Tensor,
        payloads: Mapping[int, Payload],
        received: Mapping[int, Mapping[str, Tensor]] | None = None,
    ) -> Mapping[int, Payload]:
        """What these payloads are under the settings' defence, if it is one of this content."""
        if self._at_work is None or self.settings.defence.content is not content:
            return payloads
        labels = self.data.labels_of(records).expand(len(self.replicas), -1)
        known = {m: tensors["embedding"] for m, tensors in (received or {}).items() if "embedding" in tensors}
        exchange = Exchange(round=round_, party=0, labels=labels, received=known)
        return defended(self._at_work, content, payloads, exchange)

    def _behind_layer(self, round_: int, m: int, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """What the server trains on of what device m sent: the output of a defence's layer, if it has one."""
        if self._at_work is None or "embedding" not in tensors:
            return tensors
        return {**tensors, "embedding": self._at_work.received(tensors["embedding"], round_, m)}

    def _forged(self, round_: int, m: int, records: Tensor, payload: Payload) -> Payload:
        """What device m really sends."""
        conduct = self.conducts.get(m)
        if conduct is None or conduct.forge is None:
            return payload
        return replace(payload, tensors=conduct.forge(round_, records, payload.tensors))

    def _answered(self, round_: int, m: int, records: Tensor, sent: Mapping[str, Tensor], payload: Payload) -> Payload:
        """What the server really sends device m, which sent this."""
        conduct = self.conducts.get(SERVER.index)
        if conduct is None or conduct.answer is None:
            return payload
        return replace(payload, tensors=conduct.answer(round_, m, records, sent, payload.tensors))

    def _misread(self, round_: int, m: int, records: Tensor, reply: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """What device m really updates its model with."""
        conduct = self.conducts.get(m)
        return reply if conduct is None or conduct.read is None else conduct.read(round_, records, reply)

    # What all variants share ---------------------------------------------------------------------------------------

    def release_point(
        self, kind: str, mechanism: Mechanism, *, stream: str = "noise", internal: bool = False
    ) -> ReleasePoint:
        """A place where protected values leave in messages of this kind, with noise from the named stream."""
        # Without noise the draws are thrown away, and nothing is secret.
        source = self.stream(stream) if mechanism.noise.noised else self.public_stream("init")
        noise = NoiseSource(source, name=stream, law=mechanism.on_grid)
        point = ReleasePoint(kind, mechanism, noise, internal=internal)
        self.release_points.append(point)
        return point

    def attach(self, probe: Probe) -> None:
        for point in self.release_points:
            point.probe = probe
        self._protect_labels(probe)

    def redraw_noise(self, seed: int, replicas: Sequence[int]) -> None:
        for point in self.release_points:
            point.noise = point.noise.redrawn(seed, replicas)

    def stream(self, name: str) -> Draws:
        """One of the run's named random streams, a sequence of its own for each replica."""
        return self.randomness.stream(name, self.replicas, self.torch_device)

    def public_stream(self, name: str) -> Stream:
        """The same of one that is declared public, whose sequences can be drawn many at once."""
        return self.randomness.public(name, self.replicas, self.torch_device)

    def device_models(self, width: int, *, activate: bool, mlp: Callable[..., Model] = Mlp) -> list[Model]:
        """The devices' bottom models with outputs of this width; `mlp` makes MLPs of the engine's own kind."""
        return device_models(self.settings, self.data, width, activate=activate, mlp=mlp)

    def _protect_labels(self, probe: Probe | None = None) -> None:
        """Noise the labels once where the settings ask for it: all that follows reads the noised.

        It is a release like those of the release points, from a stream that gives the same noise again: a probe that is
        attached later is shown the noised labels, and may put others in their place. Labels that are drawn during
        training are shown when they are drawn.
        """
        mechanism, given = self.settings.label_mechanism, self._as_given
        if mechanism is None:
            return
        every = torch.arange(given.records, device=self.torch_device)
        labels, stream = given.labels_of(every).expand(len(self.replicas), -1), self.stream("labels")
        if isinstance(mechanism, PriorLabels):
            drawn = DrawnLabels(mechanism, labels, given.classes, stream=stream, schedule=self.schedule)
            if probe is not None:
                drawn.attach(probe)
            self._drawn_labels, self.data = drawn, given.with_labels(drawn.labels)
            return
        assert isinstance(mechanism, NoisedBefore)
        observed = mechanism.observe(labels, given.classes, stream)
        if probe is not None:
            observed = probe.observed(observed, every)
        evidence = None if self.settings.targets == "likeliest" else mechanism.evidence(observed)
        self.data = given.with_labels(observed.argmax(-1), evidence)

    def labels_of(self, records: Tensor, logits: Callable[[], Tensor]) -> Tensor:
        guard = self._at_work

        def prior() -> Tensor:
            return logits() if guard is None else guard.decoded(logits())

        labels, known = self._labels_by_now(records, prior)
        targets = labels if guard is None else guard.targets(labels, self.data.classes)
        if known is None:
            return targets
        current = logits().detach()
        # A target that the model predicts already moves nothing.
        return torch.where(known.unsqueeze(-1), as_target(targets, current), torch.softmax(current, dim=-1))

    def _labels_by_now(self, records: Tensor, prior: Callable[[], Tensor]) -> tuple[Tensor, Tensor | None]:
        """Labels (R, B), or their posterior, and (R, B) which are known by now; None where all are."""
        if self._drawn_labels is not None:
            return self._drawn_labels.visit(records, prior)
        if self.data.replica_evidence is None:
            return self.data.labels_of(records).expand(len(self.replicas), -1), None
        evidence = self.data.replica_evidence.index_select(1, records)
        return posterior(evidence, prior() if self.settings.targets == "iterative" else None), None

    def _shared_model(self, m: int) -> Model:
        """Device m's model; those of one group are one function, so that attacks see at once which devices share it."""
        return self.bank.models[next(group[0] for group in self.bank.groups if m in group)]

    def device_model(self, m: int) -> DeviceModel:
        model = self._shared_model(m)
        return DeviceModel(model.apply, self.bank.parameters[m], model.published)

    def server_model(self) -> DeviceModel | None:
        concatenates = getattr(self.settings, "aggregation", "concat") == "concat"
        if self.top is None or not self.top_parameters or not concatenates:
            return None
        return DeviceModel(self.top.apply, self.top_parameters)

    def belongings(self, m: int) -> Belongings:
        model = self._shared_model(m)
        return Belongings(
            features=self.data.blocks[m].flatten(1).clone(),
            apply=model.apply,
            initial=initialise(model, self.stream("init"), m),
            trained={name: value.clone() for name, value in self.bank.parameters[m].items()},
            conduct=self.conducts[m].name if m in self.conducts else "honest",
        )

    def trained(self, replica: int = 0) -> dict[str, Tensor]:
        parties = enumerate(self.bank.parameters)
        devices = {f"device.{m}.{name}": value[replica] for m, named in parties for name, value in named.items()}
        layer = {} if self._at_work is None else self._at_work.parameters()
        server = {**self.server_parameters(), **{f"defence.{name}": value for name, value in layer.items()}}
        return devices | {f"server.{name}": value[replica] for name, value in server.items()}

    @no_grad
    def evaluate(self, *, replicas: int = 32, records: int = 4096, part: Part = "test") -> Evaluation:
        count = min(replicas, len(self.replicas))
        labels = self.data.labels[:records].expand(count, -1)
        logits = self.predicted([block[:records] for block in self.data.blocks], count)
        loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels, reduction="none").mean(1)
        held_out, true_labels = self.data.held_out(part)
        guesses = self.predicted(held_out, count)
        accuracy = (guesses.argmax(-1) == true_labels).to(torch.float32).mean(1)
        return Evaluation(accuracy=accuracy, loss=loss, logits=guesses, labels=true_labels)

    def predicted(self, blocks: Sequence[Tensor], replicas: int) -> Tensor:
        # Some records at a time: the maps of a convolutional network over all of them would fill memory.
        starts = range(0, max(1, len(blocks[0])), _RECORDS_TOGETHER)
        parts = [self.predict([b[i : i + _RECORDS_TOGETHER] for b in blocks], replicas) for i in starts]
        logits = torch.cat(parts, dim=1)
        return logits if self._at_work is None else self._at_work.decoded(logits)

    def outputs_read(self, blocks: Sequence[Tensor], replicas: int) -> list[Tensor]:
        """(replicas, B, width) of each device: what the server predicts from, behind a defence's layer if any."""
        outputs = self.device_outputs(blocks, replicas)
        return outputs if self._at_work is None else [self._at_work.read(own, m) for m, own in enumerate(outputs)]

    def device_outputs(self, blocks: Sequence[Tensor], replicas: int) -> list[Tensor]:
        """(replicas, B, width) of each device: its model's outputs without clip and noise."""
        return self.bank.predict(blocks, replicas)
