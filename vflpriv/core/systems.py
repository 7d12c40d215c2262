"""A system under audit: an engine with its settings, data and schedule; everything an audit trains from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vflpriv.core.attack import Conduct
from vflpriv.core.data import VerticalData
from vflpriv.core.engine import Engine, Probe
from vflpriv.core.ledger import Ledger
from vflpriv.core.schedules import Schedule

if TYPE_CHECKING:
    import torch

__all__ = ["System"]


@dataclass(frozen=True, eq=False, kw_only=True)
class System:
    """`engine` is a registered engine class; `settings` are complete, its noise a number."""

    key: str
    engine: type[Engine]
    settings: Any
    data: VerticalData
    schedule: Schedule
    seed: int
    torch_device: torch.device

    @property
    def ledger(self) -> Ledger:
        return self.engine.ledger(self.settings, self.schedule)

    def train(
        self,
        replicas: Sequence[int],
        *,
        data: VerticalData | None = None,
        probe: Probe | None = None,
        conducts: Mapping[int, Conduct] | None = None,
    ) -> Engine:
        """An engine ready to run these replicas.

        `data` takes the place of the system's own, `probe` is attached to its release points, and `conducts` are those
        of dishonest devices.
        """
        engine = self.engine(
            self.data if data is None else data,
            self.settings,
            schedule=self.schedule,
            seed=self.seed,
            replicas=replicas,
            torch_device=self.torch_device,
            conducts=conducts,
        )
        if probe is not None:
            engine.attach(probe)
        return engine

    def fingerprint(self) -> str:
        """A hash of all that decides what a training of this system does."""
        digest = hashlib.sha256()
        for part in (self.engine.name, self.settings.model_dump_json(), self.seed, self.data.name):
            digest.update(f"{part}\0".encode())
        for tensor in (*self.data.blocks, self.data.labels):
            digest.update(tensor.cpu().contiguous().numpy().tobytes())
        for array in (self.schedule.order, self.schedule.start, self.schedule.size, self.schedule.active):
            digest.update(array.tobytes())
        return digest.hexdigest()
