"""`vflpriv attack` on features: figures beside their ε, pictures, and one line for bad input."""

from __future__ import annotations

import base64
import json
import zlib
from functools import partial

import numpy as np
import pytest

from tests.cli.test_cli import run
from vflpriv.common.pictures import png, sheet

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


@pytest.mark.parametrize("channels", [1, 3])
def test_a_png_holds_its_pixels(channels):
    pixels = np.random.default_rng(0).integers(0, 256, (3, 5, channels), dtype=np.uint8)
    data = png(pixels)
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(data[16:20], "big") == 5
    start = data.index(b"IDAT") + 4
    lines = zlib.decompress(data[start : start + int.from_bytes(data[start - 8 : start - 4], "big")])
    found = np.frombuffer(lines, np.uint8).reshape(3, 1 + 5 * channels)
    assert (found[:, 0] == 0).all()
    assert (found[:, 1:].reshape(pixels.shape) == pixels).all()


def test_a_sheet_has_a_place_for_every_picture():
    address = sheet(np.zeros((2, 4, 1, 6, 3)))
    data = base64.b64decode(address.removeprefix("data:image/png;base64,"))
    assert (int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")) == (4 * 4 - 1, 2 * 7 - 1)
