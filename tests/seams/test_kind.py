"""A message kind of another package: recorded and read with checks, and given to the attack that names it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.seams.plugins import Plugin

SOURCE = """
    import torch

    from vflpriv.core.attack import Guess
    from vflpriv.core.kinds import Direction, Kind

    SIGNS = Kind(
        name="residual-signs",
        summary="the sign of each record's residual, one for each class",
        direction=Direction.DOWN,
        forms=({"signs": ("batch", "classes")},),
    )

    class SignAttack:
        name = "label_signs"
        summary = "the class whose residual is negative is the label"
        target = "labels"
        needs = frozenset({"residual-signs"})
        auxiliary = False
        conduct = None
        heavy = False

        def refusal(self, view):
            return None if self.needs & view.kinds else "needs signs of residuals"

        def run(self, view, auxiliary):
            messages = view.of_kind(*self.needs)
            signs = torch.cat([m.tensors["signs"] for m in messages], dim=1)
            return Guess(torch.cat([m.records for m in messages]), signs.argmin(-1))

        def blind(self, view, auxiliary):
            return None
"""

RECORD = """
    import torch
    import vflpriv
    from vflpriv.errors import InputError

    labels, errors = torch.arange(40) % 4, []

    def attempt(*arguments):
        try:
            wire.down(0, 0, "residual-signs", *arguments)
        except InputError as error:
            errors.append(str(error))

    with vflpriv.record("run", devices=1, classes=4, records=40) as wire:
        wire.labels(labels)
        signs = 1 - 2 * torch.nn.functional.one_hot(labels, 4).to(torch.int8)
        attempt({"sign": signs}, range(40))
        attempt({"signs": signs[:, :3]}, range(40))
        attempt({"signs": signs})
        wire.down(0, 0, "residual-signs", {"signs": signs}, range(40))
    (message,) = vflpriv.read_transcript(__import__("pathlib").Path("run")).transcript.messages
    result = [errors, list(message.tensors["signs"].shape), str(message.tensors["signs"].dtype)]
"""

LEDGER = """
key = "signs"
attacks = ["label_signs"]

[[release]]
kind = "residual-signs"
noise = "none"
"""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Plugin:
    made = Plugin(tmp_path_factory.mktemp("plugin"), "vflpriv.kinds", "SIGNS", SOURCE)
    points = next(made.folder.glob("*.dist-info")) / "entry_points.txt"
    points.write_text(
        points.read_text("utf-8") + "[vflpriv.attacks]\nlabel_signs = plugin_package:SignAttack\n", "utf-8"
    )
    return made


def test_it_is_recorded_with_checks_and_read_back(plugin: Plugin) -> None:
    errors, shape, dtype = plugin.python(RECORD)
    assert ["tensors" in errors[0], "40 (batch) × 4 (classes)" in errors[1], "records" in errors[2]] == [True] * 3
    assert (shape, dtype) == ([1, 40, 4], "torch.int8")


def test_an_attack_that_names_it_reads_it(plugin: Plugin) -> None:
    if not (plugin.folder / "run").exists():
        plugin.python(RECORD)
    Path(plugin.folder, "ledger.toml").write_text(LEDGER, encoding="utf-8")
    done = plugin.command("audit", "--transcript", "run", "--ledger", "ledger.toml", "--format", "json")
    assert "wrote vflpriv-report/report.json" in done.stdout, done.stderr
    report = json.loads((plugin.folder / "vflpriv-report" / "report.json").read_text("utf-8"))
    rows = [row for row in report["systems"][0]["attacks"] if row["adversary"] == "device(0)"]
    assert [(row["attack"], row["success"], row["not_applicable"]) for row in rows] == [("label_signs", 1.0, None)]
