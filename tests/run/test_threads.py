"""The same seed gives the same bytes, whatever the number of threads."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from threadpoolctl import threadpool_info

from vflpriv import api
from vflpriv.common.machine import single_threaded
from vflpriv.common.registry import available
from vflpriv.training.engines.split import Split

SPLIT = {"name": "split", "aggregation": "sum", "rounds": 3, "batch_size": 32}
SMALL: dict[str, Any] = {
    "data": {"name": "digits", "train": 60, "devices": 2},
    "engine": SPLIT,
    "audit": {"attacks": [], "sensitivity": False, "noise": False, "state": False},
    "attack": {"seeds": 1, "views": ["device(0)"], "attacks": ["label_direct"]},
}
ALL_ATTACKS = """
seed = 1
[data]
name = "digits"
train = 100
devices = 2
[attack]
seeds = 1
views = ["device(0)", "server"]
attacks = [{attacks}]
[attack.features]
known_records = 20
views = ["device(0)", "server"]
[[system]]
key = "split"
engine = {{ name = "split", aggregation = "sum", rounds = 5, batch_size = 32 }}
[[system]]
key = "dpzv"
engine = {{ name = "dpzv", rounds = 5, batch_size = 32, noise = "paper" }}
[[system]]
key = "vimadmm"
engine = {{ name = "vimadmm", rounds = 3, batch_size = 32 }}
"""


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.mark.parametrize("command", [api.train, api.attack, api.audit])
def test_every_command_computes_on_one_thread(monkeypatch, two_threads, command) -> None:
    seen: set[int] = set()
    update = Split.updates

    def watched(*arguments: Any) -> None:
        seen.update({torch.get_num_threads()} | blas_threads())
        update(*arguments)

    monkeypatch.setattr(Split, "updates", watched)
    command(SMALL, quiet=True)
    assert seen == {1}
    assert torch.get_num_threads() == 2


def test_threads_are_given_back_after_an_error(two_threads) -> None:
    before = blas_threads()
    with pytest.raises(KeyError), single_threaded():
        raise KeyError
    assert (torch.get_num_threads(), blas_threads()) == (2, before)


@pytest.mark.slow
def test_all_attacks_write_the_same_bytes_on_one_thread_and_on_two(tmp_path: Path) -> None:
    names = [name for name, attack in available("attack").items() if attack.target == "labels"]
    config = tmp_path / "attack.toml"
    config.write_text(ALL_ATTACKS.format(attacks=", ".join(f'"{name}"' for name in names)), encoding="utf-8")
    files = []
    for threads in ("1", "2"):
        out = tmp_path / threads
        command = [sys.executable, "-m", "vflpriv", "attack", str(config), "-q", "--format", "json", "--out", str(out)]
        subprocess.run(command, check=True, capture_output=True, env=os.environ | {"OMP_NUM_THREADS": threads})
        files.append((out / "attacks.json").read_bytes())
    assert files[0] == files[1]
    others, attacks = ("integrity", "tokens"), available("attack").items()
    light = [name for name, a in attacks if not a.heavy and a.target not in others and not getattr(a, "forges", False)]
    assert all(f'"{name}"'.encode() in files[0] for name in (*names, *light))
