"""A run into the folder of an earlier one uses what is stored there only if nothing that decides it has changed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_cli import run
from tests.seams.plugins import Plugin
from vflpriv.common.files import BLANK, SEAL
from vflpriv.common.store import Store, foreign_results
from vflpriv.config.loading import load_config
from vflpriv.errors import StoreWarning
from vflpriv.report.attacks import TrainedRow
from vflpriv.run.attack import SystemResults, results_entries
from vflpriv.run.systems import build_system, load_data

pytestmark = pytest.mark.usefixtures("few_trees")
ENGINE = '''
    """DPZV under another name, whose clip is a number in this file; the ledger takes it to be the settings'."""

    from dataclasses import dataclass

    from vflpriv.training.engines.dpzv import Dpzv
    from vflpriv.training.mechanisms.base import ScalarMean

    class Clipped(ScalarMean):
        def contributions(self, values):
            return values.mul(100).clamp(-1.0 * self.clip, 1.0 * self.clip)

    class Mine(Dpzv):
        name = "mine"
        summary = "DPZV from elsewhere"

        @staticmethod
        def mechanisms(settings, schedule):
            (own,) = Dpzv.mechanisms(settings, schedule).values()
            return {"zo-scalar": Clipped(noise_std=own.noise_std, clip=own.clip, batch_size=own.batch_size)}
'''
AUDIT = """
[data]
name = "digits"
devices = 2
train = 80
[engine]
name = "mine"
rounds = 6
batch_size = 8
embedding = 3
server_update = "joint"
noise = "calibrated"
[audit]
trials = 8
canaries = ["natural"]
attacks = []
sensitivity = false
noise = false
state = false
"""
ATTACK = """
[data]
name = "digits"
train = 60
[attack]
seeds = 1
views = ["device(0)"]
attacks = ["label_direct"]
[engine]
name = "split"
aggregation = "sum"
rounds = 4
batch_size = 8
"""


def audited(plugin: Plugin, out: str) -> tuple[Any, set[str]]:
    """The measurement of the first claim, and the names of the stored trials."""
    done = plugin.command("audit", "audit.toml", "--quiet", "--out", out, "--format", "json")
    assert done.returncode in (0, 1, 3), done.stderr
    assert not done.stderr
    report = json.loads((plugin.folder / out / "report.json").read_text("utf-8"))
    return report["systems"], {path.name for path in (plugin.folder / out / "trials").iterdir()}


def test_trials_of_an_engine_whose_file_has_changed_are_not_used(tmp_path: Path) -> None:
    plugin = Plugin(tmp_path, "vflpriv.engines", "Mine", ENGINE)
    (tmp_path / "audit.toml").write_text(AUDIT, encoding="utf-8")
    sound, first = audited(plugin, "out")
    assert audited(plugin, "out") == (sound, first), "the same code uses the same trials"
    source = tmp_path / "plugin_package.py"
    source.write_text(source.read_text("utf-8").replace("1.0 *", "8.0 *"), encoding="utf-8")
    resumed, second = audited(plugin, "out")
    fresh, third = audited(plugin, "elsewhere")
    assert resumed == fresh
    assert resumed != sound
    assert (second - first, first <= second) == (third, True)


def test_fresh_deletes_the_stored_results_and_no_other_file(monkeypatch, capsys, tmp_path: Path) -> None:
    config, trials = tmp_path / "attack.toml", tmp_path / "trials"
    config.write_text(ATTACK, encoding="utf-8")
    arguments = ["attack", str(config), "-q", "--format", "json", "--out", str(tmp_path)]
    assert run(monkeypatch, capsys, *arguments)[0] == 0
    (own,) = trials.iterdir()
    written, foreign = own.stat().st_mtime_ns, ["notes.txt", f"{'0' * 24}.json", f"{'1' * 24}.safetensors", "copy.json"]
    for name in foreign:
        (trials / name).write_text("mine", encoding="utf-8")
    (trials / "folder").mkdir()
    (trials / f".{own.name}.123").write_text("half of a write", encoding="utf-8")
    assert run(monkeypatch, capsys, *arguments)[0] == 0
    assert own.stat().st_mtime_ns == written
    assert run(monkeypatch, capsys, *arguments, "--fresh")[0] == 0
    assert own.stat().st_mtime_ns != written
    assert {path.name for path in trials.iterdir()} == {own.name, "folder", *foreign}
    assert all((trials / name).read_text("utf-8") == "mine" for name in foreign)


@pytest.fixture
def stored(tmp_path: Path) -> Any:
    """A file of the attack store, and a function that loads it."""
    config = load_config(_written(tmp_path / "attack.toml", ATTACK))
    store, system = Store(tmp_path / "trials"), build_system(config, 0, load_data(config))
    row = TrainedRow(system="split", title="split", engine="split", defence="none", settings={})
    results = SystemResults(accuracy=0.5, accuracy_low=0.4, accuracy_high=0.6, cells=())
    (entry,) = results_entries(config, [(row, system)], store, [1])
    store.save(entry, results)
    (path,) = (tmp_path / "trials").iterdir()
    assert store.load(entry) == results
    return path, lambda: store.load(entry)


def _written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_stored_result_of_attacks_with_any_changed_byte_is_not_used(stored: Any) -> None:
    path, load = stored
    content = path.read_bytes()
    field = re.search(rf'"{SEAL}": ?"'.encode(), content)
    assert field is not None
    mark = field.end() + len(BLANK) // 2
    assert foreign_results(path.parent) == 0
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ (1 + place % 255)]) + content[place + 1 :])
        if mark <= place < mark + len(BLANK) // 2 and chr(path.read_bytes()[place]) in "0123456789abcdef":
            # Without a signing key a file with another mark is read, and the report names it as somebody else's.
            assert load() is not None
            assert foreign_results(path.parent) == 1
            continue
        with pytest.warns(StoreWarning, match=path.name):
            assert load() is None
    for other in (b"", content[:-1], content + b"\n", content.replace(b"0.5", b"0.9")):
        path.write_bytes(other)
        with pytest.warns(StoreWarning, match=path.name):
            assert load() is None
    path.write_bytes(content)
    assert load() is not None


def test_a_damaged_result_of_attacks_is_one_line_and_computed_again(monkeypatch, capsys, tmp_path: Path) -> None:
    config = _written(tmp_path / "attack.toml", ATTACK)
    arguments = ["attack", str(config), "-q", "--format", "json", "--out", str(tmp_path)]
    run(monkeypatch, capsys, *arguments)
    first = (tmp_path / "attacks.json").read_bytes()
    (path,) = (tmp_path / "trials").iterdir()
    path.write_bytes(path.read_bytes().replace(b'"accuracy":', b'"accuracy": '))
    code, _, error = run(monkeypatch, capsys, *arguments)
    assert code == 0
    expected = (
        f"vflpriv: warning: {path} is not what this program wrote: it is not used, and its content is computed again\n"
    )
    assert error == expected
    assert (tmp_path / "attacks.json").read_bytes() == first
