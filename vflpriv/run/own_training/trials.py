"""Trials of a user's training in two worlds: trained by an executor in shards, each kept as soon as it is done.

Of each training only features of the views are kept: those of `WholeView`, which know the record that differs, and all
values, shapes and messages as they were sent, as far as they are few.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vflpriv.audits.learned.layout import ViewLayout
from vflpriv.audits.two_world.whole_view import LARGEST, WholeView, feature_key
from vflpriv.common.numerics import Floats
from vflpriv.common.seeds import derive
from vflpriv.common.store import Entry, Store, TensorForm
from vflpriv.common.tasks import Executor, Progress, Tasks, Worker
from vflpriv.core.canaries import Canary, CanaryKind
from vflpriv.core.views import Adversary, View
from vflpriv.core.wire import Message, Transcript
from vflpriv.recording.checked_wire import MemoryWire
from vflpriv.recording.worlds_file import TrialsConfig
from vflpriv.run.own_training.function import OwnTraining
from vflpriv.run.own_training.reference import Reference, sizes

__all__ = ["TrainedFeatures", "TrialPlan", "trained_features", "training_seed"]

SHARD = 8
"""Trainings of a shard. It is the same everywhere: a killed audit loses at most as many per worker."""
_BATCHES = "batches"
_SEEDS = 1 << 31
_STRIDE = 0x9E3779B1
"""Odd, hence no two trainings have the same seed; and far from 0, hence `seed + 1` is not another training's."""
Shard = dict[str, Tensor]


def training_seed(seed: int, number: int) -> int:
    """The seed of a training by its number: below 2³¹, which every library takes.

    >>> len({training_seed(0, number) for number in range(1000)})
    1000
    """
    return (derive(seed, "canary") + number * _STRIDE) % _SEEDS


@dataclass(frozen=True, eq=False, kw_only=True)
class TrialPlan:
    """What all trials need; it is sent to every worker."""

    training: OwnTraining
    config: TrialsConfig
    seed: int
    canary: Canary
    labels: Tensor
    rounds: int
    layouts: Mapping[Adversary, ViewLayout]
    hidden: Mapping[Adversary, frozenset[str]]
    """Kinds of messages that the ledger says an adversary does not see."""

    @classmethod
    def of(
        cls,
        training: OwnTraining,
        config: TrialsConfig,
        reference: Reference,
        hidden: Mapping[Adversary, frozenset[str]],
        *,
        seed: int,
    ) -> TrialPlan:
        """A plan for the views whose hidden kinds are given."""
        canary = Canary(
            kind=CanaryKind.NATURAL,
            record=config.record or 0,
            world=torch.zeros(0),
            labels=reference.record_labels,
            unit=config.unit,
        )
        layouts = {
            view: ViewLayout.within([seen_by(sent, view, config, kinds) for sent in reference.worlds], LARGEST)
            for view, kinds in hidden.items()
        }
        return cls(
            training=training,
            config=config,
            seed=seed,
            canary=canary,
            labels=reference.labels,
            rounds=reference.rounds,
            layouts=layouts,
            hidden=hidden,
        )

    def features(self, view: Adversary, messages: Sequence[Message]) -> Floats:
        """(F,) what this view saw of one training, with the same meaning in every training that sends alike."""
        seen = seen_by(messages, view, self.config, self.hidden[view])
        whole = WholeView(
            self.canary,
            [view],
            labels=self.labels,
            devices=self.config.devices,
            replicas=1,
            rounds=self.rounds,
        )
        for message in seen:
            whole.record(message)
        summed = whole.features()[str(view)][0].double().numpy()
        return np.concatenate([summed, np.zeros(max(0, LARGEST - len(summed))), self.layouts[view].vector(seen)])

    @property
    def key(self) -> str:
        """What decides the features of a training, beside its code and its number."""
        fields = self.config.model_dump(exclude={"per_world", "min_trials"})
        views = sorted((str(view), *sorted(kinds)) for view, kinds in self.hidden.items())
        return hashlib.sha256(repr((fields, self.seed, self.canary.labels, views)).encode()).hexdigest()


def seen_by(
    messages: Sequence[Message], view: Adversary, config: TrialsConfig, hidden: frozenset[str]
) -> tuple[Message, ...]:
    """The messages that an adversary sees."""
    shown = Transcript()
    shown.messages.extend(message for message in messages if message.kind not in hidden)
    return View.of(shown, view, devices=config.devices, classes=config.classes or 0).messages


def trained_shard(plan: TrialPlan, numbers: range, worker: Worker) -> Shard:
    """Train with these numbers, even ones in world 0 and odd ones in world 1, and keep features of each view."""
    rows: dict[str, list[Floats]] = {feature_key(str(view)): [] for view in plan.layouts}
    batches = []
    for number in numbers:
        wire = MemoryWire(**sizes(plan.config))
        plan.training.run(wire, number % 2, training_seed(plan.seed, number))
        wire.close()
        messages = wire.transcript.messages
        for view in plan.layouts:
            rows[feature_key(str(view))].append(plan.features(view, messages))
        batches.append(_batch_digest(messages))
        worker.progress.advance(1)
    shard = {name: torch.from_numpy(np.stack(features)) for name, features in rows.items()}
    return {**shard, _BATCHES: torch.tensor(batches)}


def _batch_digest(messages: Sequence[Message]) -> int:
    """A checksum of the record ids of all messages."""
    digest = 0
    for message in messages:
        if message.contributors is not None:
            digest = zlib.crc32(message.contributors.contiguous().numpy().tobytes(), digest)
    return digest


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainedFeatures:
    """The features of all trials by view, (2n, F), worlds in turns; and whether all had the same batches."""

    features: Mapping[Adversary, Floats]
    same_batches: bool


def trained_features(
    plan: TrialPlan,
    numbers: range,
    *,
    code: str | None,
    digest: str,
    store: Store,
    executor: Executor,
    progress: Progress,
) -> TrainedFeatures:
    """Train with these numbers, but for those that an earlier run has stored; each shard is stored as it arrives.

    `code` and `digest` say whether stored trials are of the same code, data and libraries. Without a code none is kept.
    """
    name, prefix = plan.training.name, store.key(code, plan.training.name, digest, plan.key)
    names = [*(feature_key(str(view)) for view in plan.layouts), _BATCHES]
    parts = [numbers[start : start + SHARD] for start in range(0, len(numbers), SHARD)]
    entries = [
        Entry(
            key=prefix and f"{prefix}/{part.start}/{part.stop}",
            form=TensorForm(names=names, rows=len(part)),
            work=len(part),
        )
        for part in parts
    ]

    def tasks(missing: Sequence[int]) -> Tasks[TrialPlan, range, Shard]:
        chosen = [parts[place] for place in missing]
        return Tasks(
            function=trained_shard,
            common=plan,
            items=chosen,
            names=[f"{name}, trainings {part.start} to {part.stop - 1}" for part in chosen],
            isolated=True,
        )

    shards = store.results(entries, tasks, executor=executor, progress=progress)
    features = {view: torch.cat([shard[feature_key(str(view))] for shard in shards]).numpy() for view in plan.layouts}
    batches = torch.cat([shard[_BATCHES] for shard in shards])
    return TrainedFeatures(features=features, same_batches=bool((batches == batches[0]).all()))
