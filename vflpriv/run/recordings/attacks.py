"""Which attacks are tried on a recorded training."""

from __future__ import annotations

from typing import Any

from vflpriv.common.registry import available, find
from vflpriv.core.attack import made_for
from vflpriv.errors import InputError
from vflpriv.recording.ledger_file import LedgerConfig

__all__ = ["chosen_attacks"]


def chosen_attacks(config: LedgerConfig) -> list[Any]:
    """The attacks that the ledger names; if it names none, all but those that take long, and those of claims.

    What defends a recorded training is not known: attacks that are made against defences are tried if they are named. A
    claim about an attack is about its share of right guesses, which only attacks on labels have.
    """
    asked = {name: find("attack", name) for name in config.attack_names}
    for claim in config.attack_claim:
        if asked[claim.attack].target != "labels":
            expected = "an attack on labels: others are measured by R² or AUC, not by a rate of right guesses"
            raise InputError("ledger.attack_claim.attack", claim.attack, expected)
    usual = {name: kind for name, kind in available("attack").items() if not kind.heavy and made_for(kind, {})}
    return [attack() for attack in (asked if config.attacks is not None else usual | asked).values()]
