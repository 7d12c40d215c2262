"""A user's training function as a source: the messages of one recorded training, and two worlds to train in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from vflpriv.audits.two_world.plan import first_replica
from vflpriv.common.store import Store
from vflpriv.common.tasks import Executor, Progress
from vflpriv.core.canaries import Canary
from vflpriv.core.systems import Offer
from vflpriv.core.views import Adversary
from vflpriv.recording.system import RecordedSystem
from vflpriv.recording.worlds_file import TrialsConfig
from vflpriv.run.own_training.function import OwnTraining
from vflpriv.run.own_training.reference import Reference
from vflpriv.run.own_training.trials import TrainedFeatures, TrialPlan, trained_features
from vflpriv.run.recordings.views import hidden_kinds

__all__ = ["TrainingFunction"]


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainingFunction(RecordedSystem):
    """A training function with the recording of its first training, which is audited as any transcript is."""

    kind: ClassVar[str] = "a training function"
    how_to_offer: ClassVar[Mapping[Offer, str]] = {}
    training: OwnTraining
    worlds: TrialsConfig
    reference: Reference
    code: str | None
    """A hash of the function's code, under which trials are stored; None if it cannot be known."""
    progress_of: Callable[[int], Progress]
    """Shows the progress of so many trainings."""

    @classmethod
    def of(cls, recorded: RecordedSystem, **own: Any) -> TrainingFunction:
        """The function whose first training is recorded."""
        return cls(**{field.name: getattr(recorded, field.name) for field in fields(recorded)}, **own)

    @property
    def offers(self) -> frozenset[Offer]:
        return super().offers | {Offer.WORLDS}

    def train_worlds(
        self, hidden: Mapping[Adversary, frozenset[str]], *, store: Path | None, executor: Executor
    ) -> tuple[Canary, TrainedFeatures]:
        """Train in both worlds, as often as the ledger file says; what differs, and what views saw of each training.

        `hidden` are the kinds of messages that each view cannot read, beside those that the ledger hides from it.
        """
        unseen = {view: kinds | hidden_kinds(self.config, view) for view, kinds in hidden.items()}
        plan = TrialPlan.of(self.training, self.worlds, self.reference, unseen, seed=self.config.seed)
        count = self.worlds.per_world
        progress = self.progress_of(2 * count)
        progress.stage(f"{self.training.name}: 2 × {count} trainings in two worlds")
        # Another number of trials has other trainings: none is tested again because of what it showed.
        first = first_replica(count, 0, count)
        trained = trained_features(
            plan,
            range(first, first + 2 * count),
            code=self.code,
            digest=self.reference.digest,
            store=Store(store),
            executor=executor,
            progress=progress,
        )
        return plan.canary, trained
