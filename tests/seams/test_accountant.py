"""An accountant of another package: listed, used by name, and asked by `auto` where it says that it is tight."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.seams.plugins import Plugin

SOURCE = """
    from vflpriv.core.budgets import Budget, Tightness

    class Sure:
        name = "sure"
        summary = "a bound that it is sure of"
        tightness = Tightness.EXACT

        def supports(self, exposure):
            return None if exposure.events and not exposure.unprotected else "nothing is released with noise"

        def budget(self, exposure, delta):
            return Budget(
                accountant=self.name, method="by heart", delta=delta, lower=0.0, estimate=0.0625, upper=0.0625
            )
"""

CONFIG = """
seed = 1
[data]
name = "digits"
train = 60
devices = 2
[[system]]
key = "sound"
engine = { name = "dpzv", rounds = 6, batch_size = 8, server_update = "joint", noise_std = 2.0, noise = "given" }
"""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Plugin:
    return _plugin(tmp_path_factory.mktemp("plugin"), SOURCE)


def _plugin(folder: Path, source: str) -> Plugin:
    plugin = Plugin(folder, "vflpriv.accountants", "Sure", source)
    (folder / "system.toml").write_text(CONFIG, encoding="utf-8")
    return plugin


def _budgets(plugin: Plugin, accountant: str) -> list[dict[str, Any]]:
    done = plugin.command("account", "system.toml", "--accountant", accountant, "--format", "json")
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)["systems"][0]["budgets"]
    return [row for row in rows if row["unit"] == "label" and row["adversary"] == "devices(all)"]


def test_it_is_listed(plugin: Plugin) -> None:
    """In a new interpreter, as a user starts it."""
    listed = plugin.process("accountants")
    assert "a bound that it is sure of" in listed.stdout
    assert "gdp" in listed.stdout


@pytest.mark.parametrize("accountant", ["sure", "auto"])
def test_it_is_used_by_name_and_by_auto(plugin: Plugin, accountant: str) -> None:
    rows = _budgets(plugin, accountant)
    assert rows
    assert {row["epsilon"] for row in rows} == {0.0625}


@pytest.mark.parametrize("tightness", ["", "tightness = Tightness.LOOSE"])
def test_auto_prefers_a_tighter_one(tmp_path: Path, tightness: str) -> None:
    plugin = _plugin(tmp_path / "plugin", SOURCE.replace("tightness = Tightness.EXACT", tightness))
    rows = _budgets(plugin, "auto")
    assert rows
    assert all(row["epsilon"] > 1 for row in rows)
