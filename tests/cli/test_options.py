"""Options that several commands share: what they are called, and what they were called once."""

from __future__ import annotations

import pytest

from tests.program import vflpriv
from vflpriv.cli.main import app

TRAINING = ("audit", "attack", "train", "papers", "reproduce", "frontier")


@pytest.mark.parametrize("command", TRAINING)
def test_the_accelerator_is_no_party(command: str) -> None:
    page = vflpriv(command, "--help").stdout
    assert "--torch-device" in page
    assert "--device " not in page


@pytest.mark.parametrize(
    "option", [("--torch-device", "tpu"), ("--torch-device=tpu",), ("--device", "tpu"), ("--device=tpu",)]
)
def test_its_old_name_still_works(option: tuple[str, ...]) -> None:
    run = vflpriv("train", *option)
    assert (run.returncode, run.stderr) == (2, "vflpriv: device = 'tpu': expected auto, cpu, cuda or mps\n")


def test_commands_without_an_accelerator_refuse_it() -> None:
    assert "No such option: --device" in vflpriv("account", "--device", "cpu").stderr


def test_every_command_shows_its_own_help() -> None:
    for command in app.registered_commands:
        name = command.name or command.callback.__name__
        assert f"Usage: vflpriv {name} " in vflpriv(name, "--help").stdout


def test_help_groups_the_commands() -> None:
    page = vflpriv("--help").stdout
    panels = ["Start here", "Audit", "Account", "Experiments", "Files", "What is registered"]
    places = [page.index(f"─ {panel} ─") for panel in panels]
    assert places == sorted(places)
    assert places[0] < page.index("│ trace ") < places[1] < page.index("│ verify ") < places[2]
