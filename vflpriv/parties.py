"""Parties: the server, and devices counted from 0."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SERVER", "Party", "device"]


@dataclass(frozen=True, order=True)
class Party:
    """One end of a message. `index` is the device's number, or -1 for the server.

    >>> str(SERVER), str(device(2))
    ('server', 'device(2)')
    """

    index: int

    @property
    def is_server(self) -> bool:
        return self.index < 0

    def __str__(self) -> str:
        return "server" if self.is_server else f"device({self.index})"


SERVER = Party(-1)


def device(index: int) -> Party:
    """The device with this number."""
    if index < 0:
        raise ValueError(f"Expected index={index} >= 0 for a device.")
    return Party(index)
