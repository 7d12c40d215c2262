"""Plain words for adversaries and units, as sentences for readers without the vocabulary have them."""

from __future__ import annotations

from vflpriv.common.formatting import clean, count

__all__ = ["number_of", "observer", "what_of"]

_OBSERVERS = {
    "device": "any one device",
    "devices(all)": "all devices together",
    "eavesdropper": "an eavesdropper",
    "model": "whoever has the trained model",
    "outsider": "an outsider without the batches",
    "server": "the server",
}
_UNITS = {
    "label": "one record's label",
    "record": "one record",
    "features": "one record's features at a device",
    "add-remove": "whether a record was used",
    "client-zero": "whether a device has data at all",
    "client": "one device's data",
}


def observer(adversary: str) -> str:
    """An adversary.

    >>> observer("devices(all)"), observer("device(2)")
    ('all devices together', 'device(2)')
    """
    return _OBSERVERS.get(adversary, clean(adversary))


def what_of(unit: str) -> str:
    """What is protected.

    >>> what_of("label")
    "one record's label"
    """
    return _UNITS.get(unit, clean(unit))


def number_of(number: int, noun: str) -> str:
    """
    >>> number_of(1, "claim"), number_of(2_000, "claim")
    ('1 claim', '2,000 claims')
    """
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"
