"""Shell completion: every command and option is offered, by a program that imports nothing heavy."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def vflpriv(*arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "vflpriv", *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )
    return done.stdout


def completed(words: str) -> set[str]:
    line = {"COMP_WORDS": f"vflpriv {words}", "COMP_CWORD": str(1 + words.count(" "))}
    return set(vflpriv(_VFLPRIV_COMPLETE="complete_bash", **line).split())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("a", {"account", "accountants", "attack", "attacks", "audit", "audits"}),
        ("audit --b", {"--baseline"}),
        ("data f", {"fetch"}),
    ],
)
def test_words_are_completed(words, expected):
    assert completed(words) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_asks_this_program(shell):
    told = vflpriv("--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert f"_VFLPRIV_COMPLETE=complete_{shell}" in told
