"""Attacks in a minute, for every run of CI: the systems as they are, with caps on what takes long."""

from __future__ import annotations

from typing import Any

from vflpriv.config.models import Config

__all__ = ["MOST", "quickly_attacked"]

MOST = {"seeds": 3, "rounds": 200, "candidates": 100, "shadow_models": 8}
"""Trainings of each system, rounds of each, candidates for membership, and models of who attacks it: no more than so
many. With them an attack on one of the embedded systems takes less than a CPU minute (tests/run/test_quick.py)."""


def quickly_attacked(config: Config) -> Config:
    """The configuration without its defences and with what `MOST` leaves of its sizes; smaller ones stay as they are.

    What is attacked is the same, and so is the risk that a run in CI looks for: that a change leaks more than before.
    """
    attack = config.attack
    changes: dict[str, Any] = {"defences": {}, "seeds": min(attack.seeds, MOST["seeds"])}
    if attack.features is not None:
        sizes = {name: min(getattr(attack.features, name), MOST[name]) for name in ("candidates", "shadow_models")}
        changes["features"] = attack.features.model_copy(update={**sizes, "defences": None})
    systems = tuple(
        system.model_copy(update={"engine": {**system.engine, "rounds": min(system.engine["rounds"], MOST["rounds"])}})
        if isinstance(system.engine.get("rounds"), int)
        else system
        for system in config.system
    )
    return config.model_copy(update={"attack": attack.model_copy(update=changes), "system": systems})
