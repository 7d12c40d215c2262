"""Settings that mend a claim: with them the budget is within the claim, and with a little less noise it is not."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from vflpriv.common.registry import find
from vflpriv.config.loading import load_config
from vflpriv.core.budgets import Accountant
from vflpriv.core.claims import Claim
from vflpriv.core.data import BaseData
from vflpriv.core.releases import Release
from vflpriv.core.systems import DeclaredSystem
from vflpriv.core.units import Unit
from vflpriv.laws import Exact, Gaussian
from vflpriv.run.noise.repair import Repair, find_repair, rounded_up
from vflpriv.run.summary.budgets import account
from vflpriv.run.systems import declare_system, read_data

DELTA = 1e-5


def declared(**engine: Any) -> DeclaredSystem:
    settings = {"name": "dpzv", "rounds": 12, "batch_size": 8, "embedding": 3, "noise": "given", "noise_std": 0.1}
    system = {"key": "a", "engine": {**settings, **engine}}
    config = load_config({"data": {"name": "digits", "train": 60}, "system": [system]})
    return declare_system(config, 0, data())


@cache
def data() -> BaseData:
    return read_data(load_config({"data": {"name": "digits", "train": 60}, "engine": {"name": "split", "rounds": 1}}))


@cache
def accountant() -> Accountant:
    found: Accountant = find("accountant", "auto")()
    return found


def claim(view: str, unit: Unit = Unit.RECORD, epsilon: float = 1.0) -> Claim:
    words = {"key": "c", "source": "s", "where": "w", "statement": "t"}
    return Claim.of_epsilon(epsilon, DELTA, **words, unit=unit, view=view)


def repaired(system: DeclaredSystem, made: Claim, **more: Release) -> Repair | None:
    ledger = replace(system.ledger, releases=(*system.ledger.releases, *more.values()))
    return find_repair(system, ledger, made, accountant())


def spent(made: Claim, **engine: Any) -> float:
    exposure = declared(**engine).ledger.exposure(made.adversary, made.unit)
    return account(accountant(), exposure, made.delta).upper


@pytest.mark.parametrize("view", ["device", "devices(all)", "model"])
def test_the_noise_keeps_the_claim_and_a_little_less_does_not(view: str) -> None:
    made = claim(view)
    repair = repaired(declared(server_update="joint"), made)
    assert repair is not None
    assert (repair.field, repair.before, repair.others) == ("noise_std", 0.1, {})
    assert spent(made, server_update="joint", noise_std=repair.after) <= made.epsilon
    assert spent(made, server_update="joint", noise_std=0.99 * repair.after) > made.epsilon


def test_where_noise_alone_does_not_do_the_setting_that_does_is_found() -> None:
    made = claim("model")
    repair = repaired(declared(server_update="sgd", clip_rule="paper"), made)
    assert repair is not None
    assert repair.others == {"clip_rule": ("paper", "two-sided"), "server_update": ("sgd", "joint")}
    assert repair.settings.keys() == {"noise", "noise_std", "clip_rule", "server_update"}
    assert spent(made, **repair.settings) <= made.epsilon


def test_a_message_without_noise_stands_in_the_way() -> None:
    # The server reads the embeddings, which no setting of this engine protects.
    assert repaired(declared(server_update="joint"), claim("server", Unit.FEATURES)) is None


def test_what_was_found_on_the_wire_stands_in_the_way_too() -> None:
    system = declared(server_update="joint")
    seen = replace(system.ledger.releases[0], kind="extra", noise=Exact(), seen_by=frozenset({"device"}))
    assert repaired(system, claim("device"), undeclared=seen) is None


def test_an_engine_that_knows_its_own_settings_alone_gets_no_advice_and_no_error() -> None:
    system = declared(server_update="joint")

    class Narrow(system.engine):  # type: ignore[name-defined, misc]
        @staticmethod
        def releases(settings: Any, schedule: Any) -> Any:
            if settings.noise_std != 0.1:
                raise ZeroDivisionError
            return system.engine.releases(settings, schedule)

    assert repaired(replace(system, engine=Narrow), claim("device")) is None


def test_noise_on_labels_is_their_epsilon() -> None:
    system = declared(name="split", noise_std=0.0, label_protection="rr", label_epsilon=8.0)
    made = claim("device", Unit.LABEL)
    repair = repaired(system, made)
    assert repair is not None
    assert (repair.field, repair.before) == ("label_epsilon", 8.0)
    assert repair.after == pytest.approx(1.0, rel=1e-3)
    kept = {"name": "split", "noise_std": 0.0, "label_protection": "rr", "label_epsilon": repair.after}
    assert spent(made, **kept) <= made.epsilon


def test_the_noise_of_a_ledger_file_is_scaled() -> None:
    system = declared(server_update="joint")
    releases = tuple(
        replace(release, noise=Gaussian(release.noise.std)) for release in system.ledger.releases
        if isinstance(release.noise, Gaussian)
    )  # fmt: skip
    recorded = _Recorded(replace(system.ledger, releases=releases))
    repair = find_repair(recorded, recorded.ledger, claim("devices(all)"), accountant())  # type: ignore[arg-type]
    whole = repaired(system, claim("devices(all)"))
    assert repair is not None
    assert whole is not None
    assert repair.settings == {f"{releases[0].kind}.scale": pytest.approx(whole.after, rel=1e-3)}


class _Recorded:
    """A system of which only the ledger is known."""

    def __init__(self, ledger: Any) -> None:
        self.ledger = ledger


@pytest.mark.parametrize("value", [1.2345678, 999.96, 0.00012341, 5.0])
def test_rounding_is_on_the_safe_side(value: float) -> None:
    assert value <= rounded_up(value) <= value * 1.001
    assert value * 0.999 <= rounded_up(value, up=False) <= value
