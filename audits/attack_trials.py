"""Attacks on one system: one training of several seeds at once, a view for each adversary, every attack on each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vflpriv.attempts import Attack
from vflpriv.audits.attack_success import NOTHING_TO_SCORE, Leakage, draw_auxiliary, leakage, score, untold
from vflpriv.conducts import Conduct
from vflpriv.systems import System
from vflpriv.views import Adversary, View
from vflpriv.wire import Message, Transcript, Wire

__all__ = ["AttackTrials", "Outcome", "Tried", "Watched"]

_NOBODY: Mapping[int, Conduct] = {}


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One attack through one view, or the reason why it was not tried."""

    attack: str
    target: str
    adversary: Adversary
    leakage: Leakage | None
    refusal: str | None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What was tried on one system, and how well its models do where all devices are honest: mean over the seeds."""

    tried: tuple[Tried, ...]
    accuracy: float


@dataclass
class Watched:
    """What attacks read of a training: all messages of the kinds they need, and one of each other kind and device.

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
        return Transcript(messages=[*self.transcript.messages, *self._samples.values()])


@dataclass(frozen=True, kw_only=True)
class AttackTrials:
    """Trains a system once for all attacks of honest devices, and once for each dishonest conduct that applies.

    Each seed is a replica of its own, with its own few known labels. Neither these nor the truth reach an attack in any
    other way than as its `Auxiliary`; success is scored here.
    """

    system: System
    seeds: int
    labels_per_class: int
    confidence: float

    def run(
        self,
        attacks: Sequence[Attack],
        adversaries: Sequence[Adversary],
        *,
        advance: Callable[[int], None] | None = None,
    ) -> Outcome:
        """Every attack through every view."""
        known = frozenset(release.kind for release in self.system.ledger.releases)
        needed = frozenset().union(*(a.needs for a in attacks)) & known
        honest, engine = self.train(adversaries, _NOBODY, needed, advance)
        tried = []
        for attack in attacks:
            for adversary in adversaries:
                view, refusal = honest[adversary], attack.refusal(honest[adversary])
                if refusal is None and attack.conduct is not None and view.own:
                    conducts = dict.fromkeys(adversary.members(self.system.data.devices), attack.conduct)
                    view = self.train([adversary], conducts, needed)[0][adversary]
                found = None if refusal else self.success(attack, view)
                refusal = NOTHING_TO_SCORE if found is None and refusal is None else refusal
                words = {"attack": attack.name, "target": attack.target}
                tried.append(Tried(**words, adversary=adversary, leakage=found, refusal=refusal))
        return Outcome(tried=tuple(tried), accuracy=float(engine.evaluate().accuracy.mean()))

    def train(
        self,
        adversaries: Sequence[Adversary],
        conducts: Mapping[int, Conduct],
        kinds: frozenset[str],
        advance: Callable[[int], None] | None = None,
    ) -> tuple[dict[Adversary, View], Any]:
        """All seeds at once; what each adversary saw, and the engine."""
        data = self.system.data
        watched = Watched(kinds, self._links(adversaries))
        engine: Any = self.system.train(range(self.seeds), conducts=conducts)
        engine.run(Wire(watched), advance=advance)
        whole, shape = watched.whole, {"devices": data.devices, "classes": data.classes}
        members = {m for adversary in adversaries for m in adversary.members(data.devices)}
        own = {m: engine.belongings(m) for m in sorted(members)}
        return {adversary: View.of(whole, adversary, own=own, **shape) for adversary in adversaries}, engine

    def _links(self, adversaries: Sequence[Adversary]) -> frozenset[int] | None:
        """The devices whose messages somebody sees; all of them if somebody is no device."""
        if not all(adversary.is_device for adversary in adversaries):
            return None
        return frozenset(m for adversary in adversaries for m in adversary.members(self.system.data.devices))

    def success(self, attack: Attack, view: View) -> Leakage | None:
        """One attack on what it saw of each seed; None if in one of them there is no guess to score."""
        scores = []
        data = self.system.data
        truth = data.labels.to(self.system.torch_device)
        for r in range(self.seeds):
            per_class = self.labels_per_class if attack.auxiliary else 0
            auxiliary = draw_auxiliary(truth, data.classes, per_class=per_class, seed=self.system.seed, replica=r)
            mine = view.replica(r)
            blind = attack.blind(mine.silent(), auxiliary)
            guess = attack.run(mine, auxiliary)
            if not bool(untold(guess, auxiliary).any()):
                return None
            scores.append(score(guess, truth, auxiliary=auxiliary, blind=blind))
        return leakage(scores, confidence=self.confidence)
