"""A user's training function as a source: the messages of one recorded training, and two worlds to train in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from vflpriv.audits.flow.plain.wire import Program, View
from vflpriv.audits.flow.sources import TracedPair
from vflpriv.audits.recorded.trials import tested_views, worlds_refusal
from vflpriv.audits.two_world.plan import first_replica
from vflpriv.common.store import Store
from vflpriv.common.tasks import Executor, Progress
from vflpriv.core.canaries import Canary
from vflpriv.core.claims import Claim
from vflpriv.core.systems import Offer
from vflpriv.core.views import Adversary
from vflpriv.recording.system import RecordedSystem
from vflpriv.recording.worlds_file import TrialsConfig
from vflpriv.run.own_training.function import OwnTraining
from vflpriv.run.own_training.program import function_program, handed_over
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
        return super().offers | {Offer.WORLDS, Offer.TRACE}

    def traced_view(self, adversary: Adversary) -> View:
        """The view of a program that this adversary has; of any one device, that of the first that can be tested."""
        if not adversary.is_device:
            return adversary.kind
        first = next(iter(tested_views(self, adversary)), adversary)
        members = frozenset(first.members(self.worlds.devices))
        return next(iter(members)) if len(members) == 1 else frozenset[str | int](members)

    def traced_pair(self, claim: Claim, rounds: int) -> TracedPair | str:
        """The two worlds of the function, if they differ in what the claim is about."""
        reason = worlds_refusal(self, claim)
        if reason is not None:
            return reason
        held = self._handed_over
        if isinstance(held, str):
            return held

        def program(first: int) -> Program:
            hidden = hidden_kinds(self.config, claim.adversary) | self._ciphertexts(claim.adversary)
            return function_program(self.training, self.worlds, held, hidden=hidden, rounds=first)

        return TracedPair(what=f"the two worlds of {self.training.name}", program=program)

    @cached_property
    def _handed_over(self) -> list[Tensor | None] | str:
        return handed_over(self.training, self.worlds, self.seed)

    def _ciphertexts(self, adversary: Adversary) -> frozenset[str]:
        """Kinds of messages that are ciphertext to an adversary."""
        return frozenset(
            r.kind for r in self.config.release if r.noise == "opaque" and adversary.kind not in (r.readable_by or ())
        )

    def train_worlds(
        self,
        hidden: Mapping[Adversary, frozenset[str]],
        *,
        count: int,
        fresh: bool,
        store: Path | None,
        executor: Executor,
    ) -> tuple[Canary, TrainedFeatures]:
        """Train so often in both worlds; what differs, and what views saw of each training.

        `hidden` are the kinds of messages that each view cannot read, beside those that the ledger hides from it. With
        `fresh` no training is one of those without.
        """
        unseen = {view: kinds | hidden_kinds(self.config, view) for view, kinds in hidden.items()}
        plan = TrialPlan.of(self.training, self.worlds, self.reference, unseen, seed=self.config.seed)
        progress = self.progress_of(2 * count)
        progress.stage(f"{self.training.name}: 2 × {count} trainings in two worlds")
        # Another number of trials has other trainings: none is tested again because of what it showed.
        first = first_replica(count, 0, count, fresh=fresh)
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
