"""CPU time of the attack matrix (`vflpriv attack` without a configuration), by attack and by system."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from vflpriv.config.loading import load_config
from vflpriv.run.attack import AttackPlan, attack_variant, variants_of
from vflpriv.run.systems import load_data

__all__ = ["matrix"]

_CALLS = ("run", "run_together", "blind", "blind_together", "run_and_blind", "refusal")
_QUICK = ("split", "czofo-sum")


class _Timed:
    """An attack whose calls add their CPU time to its name's."""

    def __init__(self, attack: Any, seconds: dict[str, float]) -> None:
        self._attack, self._seconds = attack, seconds

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._attack, name)
        return self._timed(value) if name in _CALLS else value

    def _timed(self, call: Any) -> Any:
        def timed(*arguments: Any) -> Any:
            begun = time.process_time()
            answer = call(*arguments)
            self._seconds[self._attack.name] += time.process_time() - begun
            return answer

        return timed


def matrix(quick: bool, device: str) -> None:
    """Every attack on every system under every defence; with `quick`, on two systems."""
    print("Attack matrix, embedded configuration                                 CPU seconds   share, %")
    path = Path(str(files("vflpriv.config").joinpath("attack.toml")))
    config = load_config(path, {"device": device})
    data = load_data(config)
    by_attack, by_system = defaultdict[str, float](float), defaultdict[str, float](float)
    plan = AttackPlan.of(config, data)
    timed: Any = {
        name: [_Timed(a, by_attack) for a in getattr(plan.features, name)] for name in ("attacks", "memberships")
    }
    labels: Any = [_Timed(attack, by_attack) for attack in plan.attacks]
    plan = replace(plan, attacks=labels, features=replace(plan.features, **timed))
    for place, section in enumerate(config.system):
        if quick and section.key not in _QUICK:
            continue
        begun = time.process_time()
        for row, system in variants_of(config, place, data):
            if system is not None:
                attack_variant(row, system, plan)
        by_system[section.key] += time.process_time() - begun
    total = sum(by_system.values())
    by_attack["trainings, scores and budgets"] = total - sum(by_attack.values())
    for name, seconds in (*_falling(by_attack), *_falling(by_system), ("whole matrix", total)):
        print(f"  {name:<68} {seconds:>10.1f} {100 * seconds / total:>10.1f}")


def _falling(seconds: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(seconds.items(), key=lambda item: -item[1])
