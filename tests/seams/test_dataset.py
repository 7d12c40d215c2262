"""A data set of another package: one entry, and every command knows it by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.seams.plugins import Plugin

SOURCE = """
    import hashlib
    from pathlib import Path

    import numpy as np

    from vflpriv.data.files import Dataset, Raw, contents

    TABLE = b"\\n".join(b"%d,%d,%d,%d" % (i, i * i % 7, (3 * i) % 5, i % 2) for i in range(40))

    class Copied:
        def download(self, work, files, progress):
            progress("copying")
            for name in files:
                (work / name).write_bytes(TABLE)
            return work

    def read(dataset, folder):
        ((content, _),) = contents(dataset, folder).values()
        table = np.array([line.split(b",") for line in content.split(b"\\n")], dtype=float)
        features, labels = table[:, :3], table[:, 3].astype(int)
        return Raw(features=features[:30], labels=labels[:30], test_features=features[30:], test_labels=labels[30:])

    PARITY = Dataset(
        name="parity",
        summary="30 + 10 numbers, odd or even",
        classes=2,
        partition="slices",
        scale=None,
        read=read,
        source=Copied(),
        files={"table.csv": hashlib.sha256(TABLE).hexdigest()},
    )
"""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Plugin:
    return Plugin(tmp_path_factory.mktemp("plugin"), "vflpriv.datasets", "PARITY", SOURCE)


def test_it_is_listed_fetched_and_trained_on(plugin: Plugin) -> None:
    listed = plugin.process("data")
    assert "parity" in listed.stdout
    assert "30 + 10 numbers, odd or even" in listed.stdout
    fetched = plugin.command("data", "fetch", "parity", "--folder", "files")
    assert fetched.returncode == 0, fetched.stderr
    assert (plugin.folder / "files" / "parity" / "table.csv").is_file()
    config = plugin.folder / "system.toml"
    config.write_text(
        'device = "cpu"\n[data]\nname = "parity"\ndevices = 3\nfolder = "files"\n'
        '[[system]]\nkey = "tiny"\nengine = { name = "split", rounds = 6, batch_size = 10 }\n',
        encoding="utf-8",
    )
    trained = plugin.command("train", str(config), "--format", "json")
    assert trained.returncode == 0, trained.stderr + trained.stdout
    assert "parity" in json.dumps(json.loads(trained.stdout))
    unfetched = plugin.command("train", str(config), "--set", "data.folder=elsewhere")
    assert unfetched.returncode == 2
    assert "`vflpriv data fetch parity`" in unfetched.stderr


def test_a_broken_or_double_one_is_named_and_harms_no_other(tmp_path: Path) -> None:
    double = Plugin(tmp_path / "a", "vflpriv.datasets", "PARITY", SOURCE.replace('name="parity"', 'name="digits"'))
    listed = double.command("data")
    assert "1437 + 360 handwritten digits" in listed.stdout
    assert "the name 'digits' is taken" in listed.stderr
    wrong = Plugin(tmp_path / "b", "vflpriv.datasets", "plugin", "plugin = 3")
    loaded = wrong.command("data", "fetch", "plugin")
    assert loaded.returncode == 2
    assert "expected a Dataset, found a int" in loaded.stderr
