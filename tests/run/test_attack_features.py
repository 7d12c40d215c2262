"""`vflpriv attack` on features: figures beside their ε, pictures, and one line for bad input."""

from __future__ import annotations

import base64
import json
from functools import partial
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from tests.cli.test_cli import run
from vflpriv.run.summary.cells import sheet

SMALL = """
[data]
name = "digits"
devices = 4
keep_shape = true
train = 400
[attack]
attacks = ["label_direct"]
seeds = 3
views = ["device(0)"]
[attack.features]
known_records = 80
sensitive_column = 10
[attack.defences.noise]
protection = "embedding"
noise_std = 1.0
[[system]]
key = "fdml"
[system.engine]
name = "fdml"
rounds = 12
batch_size = 50
"""


@pytest.fixture
def call(monkeypatch, capsys, tmp_path):
    path = tmp_path / "attack.toml"
    path.write_text(SMALL, encoding="utf-8")

    return partial(run, monkeypatch, capsys, "attack", str(path), "-q", "--out", str(tmp_path))


def test_figures_stand_beside_the_features_epsilon(call, tmp_path):
    """Margin: noised features lie 0.3 below what is allowed, and plain ones are recovered by linear equations."""
    code, out, _ = call("--fail-on", "leakage>0.5")
    assert code == 1
    report = json.loads((tmp_path / "attacks.json").read_text("utf-8"))
    cells = {(c["defence"], c["attack"], c["adversary"]): c for c in report["features"]}
    plain, noised = (cells[d, "feature_inversion", "server"] for d in ("none", "noise"))
    assert plain["success"] > 0.7 > 0.3 > noised["success"]
    assert plain["epsilon"] == "Infinity"
    assert 0 < noised["epsilon"] < 1e6
    assert plain["ssim"] > noised["ssim"]
    assert plain["victim"] == 3
    assert plain["knows"] == ["records"]
    assert cells["none", "feature_attribute", "server"]["measure"] == "AUC"
    assert any(
        (b["attack"], b["system"], b["defence"]) == ("feature_inversion", "fdml", "none") for b in report["breaches"]
    )
    assert "worst leak of features" in " ".join(out.split())
    assert "| fdml | noise |" in (tmp_path / "attacks.md").read_text("utf-8")
    page = (tmp_path / "attacks.html").read_text("utf-8")
    assert page.count('<img class="sheet" src="data:image/png;base64,') >= 4
    assert "img-src data:" in page
    assert page.count("<script") == 1


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("attack.features.victim=5", "attack.features.victim = 5: expected a device below 4"),
        ("attack.features.sensitive_column=99", "attack.features.sensitive_column = 99: expected a column below 16"),
        ("attack.features.defences=['x']", "attack.features.defences = 'x': expected one of none, noise"),
        ("attack.features.attacks=['label_direct']", "attack.features.attacks = 'label_direct': expected attacks on"),
        ("attack.attacks=['feature_esa']", "attack.attacks = 'feature_esa': expected attacks on labels; those on"),
        ("attack.features.known_records=1", "attack.features.known_records = 1: expected a number >= 4"),
    ],
)
def test_bad_input_is_one_line(call, setting, message):
    code, _, err = call("--set", setting)
    assert code == 2
    assert err.startswith(f"vflpriv: {message}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(("channels", "shown"), [(1, 1), (2, 1), (3, 3)])
def test_a_sheet_has_every_picture_in_its_place(channels, shown):
    pictures = np.random.default_rng(0).uniform(-0.5, 1.5, (2, 4, channels, 6, 3))
    pictures[0, 0, 0, 0, 0] = np.nan
    content = base64.b64decode(sheet(pictures).removeprefix("data:image/png;base64,"))
    pixels = np.asarray(Image.open(BytesIO(content))).reshape(2 * 7 - 1, 4 * 4 - 1, shown)
    for row, column in np.ndindex(2, 4):
        picture = pixels[7 * row : 7 * row + 6, 4 * column : 4 * column + 3].transpose(2, 0, 1)
        expected = np.rint(255 * np.clip(np.nan_to_num(pictures[row, column, :shown]), 0, 1))
        np.testing.assert_array_equal(picture, expected)
    assert (pixels[6] == 128).all()
    assert (pixels[:, 3::4] == 128).all()
