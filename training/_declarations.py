"""What an engine declares of itself before anything is trained: settings, ledger, claims, mechanisms, schedule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from vflpriv.claims import Claim, SuccessClaim
from vflpriv.data import VerticalData
from vflpriv.errors import InputError
from vflpriv.ledger import Ledger
from vflpriv.releases import Release
from vflpriv.schedules import Activation, Schedule
from vflpriv.training._labels import protected
from vflpriv.training._mechanisms import Mechanism
from vflpriv.training._parts import check_models, embedding_width
from vflpriv.training._settings import EngineSettings

__all__ = ["Declarations"]


class Declarations(ABC):
    """Read off the class by whoever accounts, calibrates or plans; no engine is made for it."""

    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]
    settings_type: ClassVar[type[EngineSettings]]
    asynchronous: ClassVar[bool]
    label_holders: ClassVar[frozenset[str]] = frozenset({"server"})
    bottoms: ClassVar[tuple[str, ...] | None] = None
    """The bottom models it can train; all if None."""
    many_canaries: ClassVar[bool] = False
    """Whether it says how each of many canaries moves what it releases."""

    @staticmethod
    @abstractmethod
    def releases(settings: Any, schedule: Schedule) -> tuple[Release, ...]:
        """What a run with these settings lets out, as if labels were used as they are."""

    @classmethod
    def ledger(cls, settings: Any, schedule: Schedule) -> Ledger:
        """All releases of a run, label protection included."""
        releases, mechanism = cls.releases(settings, schedule), settings.label_mechanism
        if mechanism is not None:
            releases = protected(releases, mechanism, schedule.rounds)
        return Ledger(schedule=schedule, releases=releases, label_holders=cls.label_holders)

    @staticmethod
    @abstractmethod
    def claims(settings: Any, schedule: Schedule) -> tuple[Claim, ...]:
        """What the engine's paper promises for these settings."""

    @staticmethod
    def success_claims(settings: Any, schedule: Schedule) -> tuple[SuccessClaim, ...]:
        """What its paper promises of attacks, without an ε."""
        return ()

    @staticmethod
    @abstractmethod
    def mechanisms(settings: Any, schedule: Schedule) -> Mapping[str, Mechanism]:
        """The mechanisms of a run by the kind of message they protect."""

    @staticmethod
    def published_noise(settings: Any, schedule: Schedule) -> float:
        """The noise std that the engine's paper prescribes for its claim."""
        raise InputError("noise", "paper", "calibrated or given: this engine has no published noise formula")

    @classmethod
    def check(cls, settings: Any, data: VerticalData) -> None:
        """Whether these settings' models fit this data; if not, an error that names the setting."""
        check_models(settings, data, cls.bottoms)

    @classmethod
    def draw_schedule(cls, settings: Any, *, records: int, devices: int, seed: int) -> Schedule:
        """Batches and active devices of all rounds."""
        return Schedule.draw(
            batching=settings.schedule,
            activation=settings.activation if cls.asynchronous else Activation.ALL,
            rates=settings.rates if cls.asynchronous else None,
            together=getattr(settings, "together", None) or devices,
            records=records,
            batch_size=settings.batch_size,
            rounds=settings.rounds,
            devices=devices,
            seed=seed,
        )

    @classmethod
    def state_bytes(cls, settings: Any, data: VerticalData) -> int:
        """Roughly the memory of one replica, by which an audit decides how many advance together."""
        widest: int = max(embedding_width(settings, data) * data.devices, *(b[0].numel() for b in data.blocks))
        evidence = 0 if settings.targets == "likeliest" else 4 * data.records * data.classes
        return 32 * (widest * widest + int(settings.batch_size) * widest) + evidence
