"""The ε that a traced script has: its derived ledger and its whole schedule, given to the accountants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from vflpriv.common.registry import find
from vflpriv.core.budgets import Accountant, Budget
from vflpriv.core.ledger import Exposure, Ledger
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.core.wire import SERVER, Message, Party, device
from vflpriv.errors import InputError
from vflpriv.recording.ledger_file import LedgerConfig
from vflpriv.recording.schedule import RecordedSchedule
from vflpriv.run.noise.search import NoiseTarget, find_noise
from vflpriv.run.summary.budgets import account
from vflpriv.run.traced.derived import DerivedKind
from vflpriv.run.traced.ledger import derived_config
from vflpriv.run.traced.training import SentOnce, TracedScript

__all__ = ["DerivedBudgets", "ledger_of"]


@dataclass(frozen=True, eq=False)
class DerivedBudgets:
    """Budgets of a script by what its trace derives."""

    traced: TracedScript
    kinds: Sequence[DerivedKind]
    delta: float
    """Where no claim names another one."""

    @property
    def accountant(self) -> Accountant:
        chosen: Accountant = find("accountant", "auto")()
        return chosen

    def budget(self, unit: Unit, view: str, delta: float) -> tuple[Exposure, Budget]:
        """What one unit is exposed to, and its ε, infinite where something is unprotected."""
        exposure = self._exposure(unit, view, 1.0)
        return exposure, account(self.accountant, exposure, delta)

    def times(self, unit: Unit, view: str, epsilon: float, delta: float) -> float | None:
        """How many times as much noise keeps this ε; None where no noise of these places does."""
        target = NoiseTarget(epsilon=epsilon, delta=delta, unit=unit, view=view)
        exposures: Callable[[float], Exposure] = cache(lambda noisier: self._exposure(unit, view, noisier))
        try:
            return find_noise(exposures, target, self.accountant, field="the noise")
        except InputError:
            return None

    def _exposure(self, unit: Unit, view: str, noisier: float) -> Exposure:
        config = derived_config(self.traced, self.kinds, noisier=noisier)
        return ledger_of(self.traced, config).exposure(Adversary.parse(view), unit)


def ledger_of(traced: TracedScript, config: LedgerConfig) -> Ledger:
    """The ledger of all rounds that the script has, with the releases of a ledger file."""
    messages = _messages(traced.sent)
    recorded = RecordedSchedule.of(
        messages,
        records=traced.wire.head.records,
        devices=traced.devices,
        shared=frozenset(release.kind for release in config.release if release.shared),
        public=frozenset(config.public),
        sampled=config.batches.sampled(),
    )
    ways: dict[str, set[str]] = {}
    for message in messages:
        way = "across" if message.across else "down" if message.sender.is_server else "up"
        ways.setdefault(message.kind, set()).add(way)
    return Ledger(
        schedule=recorded.schedule,
        releases=config.releases(recorded, {kind: frozenset(own) for kind, own in ways.items()}),
        label_holders=frozenset(config.label_holders),
        tuning_runs=config.tuning_runs,
    )


def _messages(sent: Sequence[SentOnce]) -> list[Message]:
    """The messages of the plain run, one to each receiver, without their values."""
    return [
        Message(
            round=message.round,
            sender=_party(message.sender),
            receiver=_party(receiver),
            kind=message.kind,
            tensors={},
            records=message.records,
        )
        for message in sent
        for receiver in message.receivers
    ]


def _party(name: str | int) -> Party:
    return device(name) if isinstance(name, int) else SERVER
