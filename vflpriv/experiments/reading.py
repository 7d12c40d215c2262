"""Data of many trainings, read once."""

from __future__ import annotations

from dataclasses import replace

from vflpriv.config.models import Config
from vflpriv.core.data import VerticalData
from vflpriv.run.systems import load_data

__all__ = ["Loaded"]


class Loaded:
    """The data of configurations, with at most `tested` test records; those with the same data share one copy."""

    def __init__(self, *, tested: int | None = None) -> None:
        self._tested = tested
        self._read: dict[tuple[str, int | None], VerticalData] = {}

    def data(self, config: Config) -> VerticalData:
        """The data set of a configuration; where its features are noised, that of its seed."""
        key = config.data.model_dump_json(), config.seed if config.data.noisy_devices else None
        if key not in self._read:
            data, end = load_data(config), self._tested
            blocks = tuple(block[:end] for block in data.test_blocks)
            self._read[key] = replace(data, test_blocks=blocks, test_labels=data.test_labels[:end])
        return self._read[key]
