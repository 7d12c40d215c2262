"""The unit of privacy: what differs between two neighbouring data sets."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["FEATURE_UNITS", "Unit"]


class Unit(StrEnum):
    """An adjacency relation: which pairs of data sets count as neighbours. Every budget is for one of them."""

    LABEL = "label"
    RECORD = "record"
    FEATURES = "features"
    ADD_REMOVE = "add-remove"
    CLIENT_ZERO = "client-zero"
    CLIENT = "client"

    @property
    def description(self) -> str:
        """What differs between two neighbours, as a phrase."""
        return _DESCRIPTIONS[self]

    @property
    def per_record(self) -> bool:
        """Whether the unit is part of one record, so that only the rounds of that record count."""
        return self not in (Unit.CLIENT, Unit.CLIENT_ZERO)

    @property
    def at_one_device(self) -> bool:
        """Whether the unit lies at one device, so that of the devices' own messages only that device's count."""
        return self in (Unit.FEATURES, Unit.CLIENT, Unit.CLIENT_ZERO)

    def implies(self, other: Unit) -> bool:
        """Whether a guarantee for this unit is also one for `other`, with the same budget.

        It is if every pair of neighbours under `other` is a pair of neighbours under this unit.

        >>> Unit.RECORD.implies(Unit.LABEL), Unit.LABEL.implies(Unit.RECORD)
        (True, False)
        """
        return other is self or other in _IMPLIED.get(self, ())


_DESCRIPTIONS = {
    Unit.LABEL: "one record's label replaced",
    Unit.RECORD: "one record (features and label) replaced",
    Unit.FEATURES: "one record's block at one device replaced",
    Unit.ADD_REMOVE: "one record present or absent",
    Unit.CLIENT_ZERO: "one device's whole block replaced by zeros",
    Unit.CLIENT: "one device's whole block replaced by anything",
}

_IMPLIED = {
    Unit.RECORD: (Unit.LABEL, Unit.FEATURES),
    Unit.CLIENT: (Unit.CLIENT_ZERO, Unit.FEATURES),
}


FEATURE_UNITS = frozenset(Unit) - {Unit.LABEL}
"""The units that cover features: all but a label alone."""
