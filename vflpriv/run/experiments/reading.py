"""Data of many trainings, read once."""

from __future__ import annotations

from vflpriv.config.models import Config, DataConfig
from vflpriv.core.data import VerticalData
from vflpriv.run.systems import load_data

__all__ = ["Loaded"]


class Loaded:
    """The data of configurations; those with the same data share one copy."""

    def __init__(self) -> None:
        self._read: dict[tuple[DataConfig, int | None], VerticalData] = {}

    def data(self, config: Config) -> VerticalData:
        """The data set of a configuration; where its features are noised, that of its seed."""
        key = config.data, config.seed if config.data.noisy_devices else None
        if key not in self._read:
            self._read[key] = load_data(config)
        return self._read[key]
