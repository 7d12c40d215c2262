"""The section `[trials]` of a ledger file: the sizes of a user's training, and what its two worlds differ in."""

from __future__ import annotations

from pydantic import Field, model_validator

from vflpriv.common.toml import Section
from vflpriv.core.claims import MIN_TRIALS
from vflpriv.core.units import Unit

__all__ = ["TrialsConfig"]


class TrialsConfig(Section):
    """What `vflpriv audit --train` has to be told about `train(wire, world, seed)`."""

    unit: Unit = Field(
        description="what differs between world 0 and world 1: label, features, record, add-remove, client, client-zero"
    )
    record: int | None = Field(
        None, ge=0, description="the id of the record that differs, or whose label or block does"
    )
    device: int | None = Field(
        None, ge=0, description="the device whose block differs; of the units record and add-remove all, if not given"
    )
    devices: int = Field(ge=1, le=10_000, description="how many devices there are")
    records: int = Field(ge=1, le=10_000_000, description="how many records there are; their ids are 0, 1, …")
    classes: int | None = Field(None, ge=2, le=100_000, description="how many labels there are; none in a regression")
    per_world: int = Field(200, ge=0, le=1_000_000, description="trainings in each world, if --trials does not say")
    min_trials: int = Field(
        MIN_TRIALS, ge=1, description="tested trials in each world below which no claim is called violated"
    )

    @model_validator(mode="after")
    def _told(self) -> TrialsConfig:
        for name, given, needed, count in (
            ("record", self.record, self.unit.per_record, self.records),
            ("device", self.device, self.unit.at_one_device, self.devices),
        ):
            if needed and given is None:
                raise ValueError(f"a {name}, 0 to {count - 1}, with unit = {self.unit.value!r}, found none")
            if given is not None and given >= count:
                raise ValueError(f"{name} to be 0 to {count - 1}, found {given}")
        if self.record is not None and not self.unit.per_record:
            raise ValueError(f"no record with unit = {self.unit.value!r}, found {self.record}")
        if self.device is not None and self.unit is Unit.LABEL:
            raise ValueError(f"no device with unit = 'label', found {self.device}")
        return self

    @property
    def owners(self) -> frozenset[int]:
        """The devices that hold part of what differs."""
        if self.unit is Unit.LABEL:
            return frozenset()
        return frozenset(range(self.devices)) if self.device is None else frozenset({self.device})

    @property
    def label_differs(self) -> bool:
        """Whether the record's label may differ between the worlds."""
        return self.unit in (Unit.LABEL, Unit.RECORD, Unit.ADD_REMOVE)
