"""`vflpriv account` and `vflpriv calibrate` as a user meets them."""

from __future__ import annotations

import csv
import json
import math
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import vflpriv
from tests.cli.test_cli import run
from vflpriv.accountants import cross_checks
from vflpriv.core.budgets import epsilon_of
from vflpriv.core.units import Unit
from vflpriv.render.plots.curves import curves_picture
from vflpriv.report.account import Curves

CONFIG = """
[data]
name = "digits"

[[system]]
key = "published"
[system.engine]
name = "dpzv"
rounds = 1122
batch_size = 64
activation = "round-robin"

[[system]]
key = "secret"
[system.engine]
name = "dpzv"
rounds = 60
batch_size = 64
schedule = "poisson"
server_update = "joint"
encrypted_uplink = true

[[system]]
key = "sound"
[system.engine]
name = "dpzv"
rounds = 92
batch_size = 64
server_update = "joint"
noise = "calibrated"

[[system]]
key = "split"
[system.engine]
name = "split"
aggregation = "sum"
rounds = 23
batch_size = 64
label_protection = "rr"
label_noise = 0.5
"""
SIZE = ("--records", "1437", "--devices", "4", "--rounds", "1122", "--batch-size", "64")
TARGET = ("--epsilon", "1", "--delta", "1e-5", "--engine", "dpzv", *SIZE)


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "account.toml"
    path.write_text(CONFIG, encoding="utf-8")
    return str(path)


def accounts(monkeypatch, capsys, *arguments: str):
    code, out, err = run(monkeypatch, capsys, "account", *arguments, "--format", "json")
    assert code == 0, err
    return {system["key"]: system for system in json.loads(out)["systems"]}


def test_claimed_beside_accounted(monkeypatch, capsys, config):
    found = accounts(monkeypatch, capsys, config)
    claims = {c["key"]: c for c in found["published"]["claims"]}
    assert claims["dpzv-devices"]["epsilon"] == pytest.approx(1.0)
    # PRIVACY.md: 13 participations for one device, 49 for all of them; then nothing useful, then nothing at all.
    assert claims["dpzv-device"]["paper_reading"]["epsilon_upper"] == pytest.approx(2.90, abs=0.01)
    assert claims["dpzv-devices"]["paper_reading"]["epsilon_upper"] == pytest.approx(6.71, abs=0.01)
    assert claims["dpzv-devices"]["accounted"]["epsilon_upper"] > 1e5
    # Corollary 5.2: embeddings tell no more of labels than the scalars, of which the wire has what all devices have.
    embeddings = claims["dpzv-embeddings"]
    assert (embeddings["unit"], embeddings["adversary"]) == ("label", "eavesdropper")
    assert embeddings["epsilon"] == pytest.approx(1.0)
    for reading in ("paper_reading", "accounted"):
        assert embeddings[reading]["epsilon_upper"] == claims["dpzv-devices"][reading]["epsilon_upper"]
    model = claims["dpzv-model"]["accounted"]
    assert model["epsilon_upper"] == "Infinity"
    assert model["unprotected"] == ["server-model (the trained w0, moved by exact labels) carries no noise"]


def test_all_views_and_all_units(monkeypatch, capsys, config):
    found = accounts(monkeypatch, capsys, config, "--delta", "1e-5")
    for system in found.values():
        rows = system["budgets"]
        views = {row["adversary"].split("(")[0] for row in rows}
        assert views == {"device", "devices", "eavesdropper", "outsider", "server", "model"}
        for view in views:
            assert {r["unit"] for r in rows if r["adversary"].split("(")[0] == view} == {u.value for u in Unit}
        assert {row["delta"] for row in rows} == {1e-5}
    (secret,) = [r for r in found["secret"]["budgets"] if (r["adversary"], r["unit"]) == ("outsider", "label")]
    assert secret["method"].startswith("prv: privacy-loss distribution")
    assert any("Poisson" in note for note in secret["assumptions"])
    assert list(secret["approximations"]) == ["central limit (not a bound)"]


def test_the_accountant_on_request_and_pure_epsilon(monkeypatch, capsys, config):
    def label(*arguments: str) -> dict:
        rows = accounts(monkeypatch, capsys, config, "--only", "secret", *arguments)["secret"]["budgets"]
        return next(r for r in rows if (r["adversary"], r["unit"]) == ("outsider", "label"))

    auto, rdp = label(), label("--accountant", "rdp")
    assert "Rényi" in rdp["method"]
    assert auto["epsilon_upper"] < rdp["epsilon_upper"]
    refused = label("--accountant", "gdp")
    assert refused["epsilon_upper"] == "Infinity"
    assert "not a bound" in refused["method"]
    split = accounts(monkeypatch, capsys, config, "--only", "split", "--delta", "0")["split"]["budgets"]
    found = next(r for r in split if (r["adversary"], r["unit"]) == ("devices(all)", "label"))
    assert found["epsilon_upper"] == pytest.approx(0.5)


def test_the_tables_are_aligned_and_name_what_leaks(monkeypatch, capsys, config):
    monkeypatch.setenv("COLUMNS", "110")
    code, out, _ = run(monkeypatch, capsys, "account", config, "--only", "published")
    assert code == 0
    lines = out.splitlines()
    head = next(line for line in lines if line.startswith("seen by"))
    body = [line for line in lines if line.startswith(("device", "eavesdropper", "outsider", "server ", "model"))]
    assert len(body) >= 8
    ends = {head.index(unit.value) + len(unit.value) for unit in (Unit.LABEL, Unit.CLIENT)}
    assert all(line[end - 1] != " " and line[end : end + 1] in ("", " ") for line in body for end in ends)
    assert any("server-model" in line and "carries no noise" in line for line in lines)
    assert any("although it does" in line for line in lines)


def test_curves_are_written(monkeypatch, capsys, tmp_path, config):
    out = tmp_path / "curves"
    code, _, err = run(monkeypatch, capsys, "account", config, "--only", "sound", "--curves", str(out))
    assert code == 0
    name = "sound-device-record-rigorous"
    endings = ("-delta.csv", "-tradeoff.csv", "-rounds.csv", "-records.csv", ".json", ".svg")
    names = [f"sound-device-record-{reading}" for reading in ("rigorous", "paper")]
    assert {f"{stem}{end}" for stem in names for end in endings} == {p.name for p in out.iterdir()}
    assert err.count("wrote") == len(list(out.iterdir()))
    whole = json.loads((out / f"{name}.json").read_text())
    assert whole["claimed_epsilon"] == pytest.approx(1.0)
    assert whole["rounds_epsilon_upper"][-1] == pytest.approx(1.0)
    # Of records the law's own ε is drawn, without what its sampler adds.
    assert max(whole["record_epsilons"]) == pytest.approx(1.0)
    assert len(rows_of(out / f"{name}-records.csv")) == 1437
    assert [float(r["beta"]) for r in rows_of(out / f"{name}-tradeoff.csv")] == pytest.approx(whole["betas"])
    assert len(rows_of(out / f"{name}-rounds.csv")) == len(whole["rounds"])
    assert [float(r["delta"]) for r in rows_of(out / f"{name}-delta.csv")] == whole["deltas"]
    picture = (out / f"{name}.svg").read_text(encoding="utf-8")
    assert curves_picture(Curves.model_validate(whole)) == picture, "same curves, same bytes"
    shown = {"".join(text.itertext()) for text in ET.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")}
    assert {"sound: record unit seen by device", "δ(ε)", "claimed", "worst record: 1.00"} <= shown
    assert "<style>" in picture


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def test_curves_of_one_view_and_unit(monkeypatch, capsys, tmp_path, config):
    arguments = ("--only", "split", "--curves", str(tmp_path), "--view", "devices(all)", "--unit", "label")
    code, _, _ = run(monkeypatch, capsys, "account", config, *arguments)
    assert code == 0
    whole = json.loads((tmp_path / "split-devicesall-label-rigorous.json").read_text())
    assert whole["record_epsilons"] is None
    assert whole["claimed_mu"] is None
    assert max(whole["epsilon_upper"]) <= 0.5 + 1e-9


def calibrate(monkeypatch, capsys, *arguments: str):
    code, out, err = run(monkeypatch, capsys, "calibrate", *arguments, "--format", "json")
    assert code == 0, err
    return json.loads(out)


@pytest.mark.parametrize(
    ("view", "changes"),
    [
        ("device", ("--set", "server_update=joint")),
        ("devices(all)", ("--set", "server_update=joint")),
        ("device", ("--reading", "paper")),
        ("device", ()),
        ("outsider", ("--set", "server_update=joint", "--set", "schedule=poisson", "--unit", "label")),
        ("model", ("--set", "server_update=joint", "--set", "schedule=poisson", "--unit", "label")),
        ("model", ("--set", "server_update=joint", "--set", "schedule=fixed", "--unit", "label")),
    ],
)
def test_calibration_round_trips(monkeypatch, capsys, tmp_path, view, changes):
    """The noise that is printed, put into a configuration, is accounted at the target, to 0.1 % and never above."""
    found = calibrate(monkeypatch, capsys, *TARGET, "--view", view, *changes)
    assert 0.999 <= found["budget"]["epsilon_upper"] <= 1
    fields = dict(text.split("=") for text in changes if "=" in text)
    lines = "\n".join(f'{key} = "{value}"' for key, value in fields.items())
    path = tmp_path / "one.toml"
    path.write_text(
        f'[data]\nname = "digits"\n[engine]\nname = "dpzv"\nrounds = 1122\nbatch_size = 64\nnoise = "given"\n'
        f"noise_std = {found['noise']!r}\n{lines}\n",
        encoding="utf-8",
    )
    (system,) = accounts(monkeypatch, capsys, str(path), "--delta", "1e-5").values()
    unit, reading = found["budget"]["unit"], found["budget"]["reading"]
    rows = [r for r in system["budgets"] if r["unit"] == unit and r["reading"] == reading]
    again = next(r for r in rows if r["adversary"].split("(")[0] == view.split("(")[0])
    assert again["epsilon_upper"] == pytest.approx(found["budget"]["epsilon_upper"], rel=1e-9)


def test_calibration_in_words(monkeypatch, capsys):
    code, out, _ = run(monkeypatch, capsys, "calibrate", *TARGET, "--view", "device", "--set", "server_update=joint")
    assert code == 0
    words = dict(line.split(maxsplit=1) for line in out.splitlines() if line.startswith(("noise_std", "unit")))
    std = float(words["noise_std"])
    count = int(re.search(r"takes part (\d+) times", out)[1])
    assert count >= 1122 * 64 / 1437, "device(0) reads what rounds without it moved: all rounds count"
    assert epsilon_of(20 / 64 * math.sqrt(count) / std, 1e-5) == pytest.approx(1.0, rel=1e-3)


def test_calibration_of_label_noise(monkeypatch, capsys):
    arguments = ("--epsilon", "1", "--delta", "0.000001", "--engine", "split", *SIZE, "--set", "aggregation=sum")
    alibi = ("--field", "label_noise", "--unit", "label", "--view", "devices(all)", "--set", "label_protection=alibi")
    found = calibrate(monkeypatch, capsys, *arguments, *alibi)
    assert found["noise"] == pytest.approx(2 * math.sqrt(2), rel=1e-3)
    for protection in ("alibi", "rr", "lp-mst"):
        sought = ("--field", "label_epsilon", *alibi[2:-1], f"label_protection={protection}")
        found = calibrate(monkeypatch, capsys, *arguments, *sought)
        assert found["noise"] == pytest.approx(1.0, rel=1e-3)
        assert 0.99 < found["budget"]["epsilon_upper"] <= 1.0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("account", "missing.toml"), "config = 'missing.toml'"),
        (("account", "--format", "xml"), "--format = 'xml': expected text or json"),
        (("account", "--delta", "2"), "--delta = 2.0"),
        (("account", "--only", "nobody"), "--only = 'nobody'"),
        (("account", "--accountant", "none"), "accountant = 'none': expected one of auto, gdp, prv, rdp"),
        (("account", "--view", "device"), "--curves = 'nothing': expected a folder"),
        (("account", "--curves", "x", "--unit", "person"), "--unit = 'person': expected one of label"),
        (("calibrate", "--epsilon", "1"), "Missing option"),
        (("calibrate", *TARGET, "--epsilon", "-1"), "epsilon = -1.0: expected a finite number > 0"),
        (("calibrate", *TARGET, "--epsilon", "one"), "Invalid value for '--epsilon'"),
        (("calibrate", *TARGET, "--view", "nobody"), "view = 'nobody'"),
        (("calibrate", *TARGET, "--unit", "person"), "--unit = 'person'"),
        (("calibrate", *TARGET, "--reading", "loose"), "--reading = 'loose': expected one of rigorous, paper"),
        (("calibrate", *TARGET, "--engine", "none"), "engine = 'none'"),
        (("calibrate", *TARGET, "--batch-size", "9999"), "batch_size = 9999"),
        (("calibrate", *TARGET, "--devices", "0"), "--devices = 0: expected a number >= 1"),
        (("calibrate", *TARGET, "--set", "clip=-1"), "engine.clip = -1: expected a number > 0"),
        (("calibrate", *TARGET, "--field", "rounds"), "--field = 'rounds'"),
        (("calibrate", *TARGET, "--view", "model"), "server-model (the trained w0, moved by exact labels)"),
        (("calibrate", *TARGET, "--view", "server", "--unit", "label"), "the server holds the labels"),
        (("calibrate", *TARGET, "--view", "server"), "--view = 'server': expected a view for which noise_std keeps"),
        (("calibrate", *TARGET, "--field", "label_epsilon"), "engine.label_epsilon = 1.0: expected nothing without"),
        (("calibrate", *TARGET, "--field", "label_epsilon", "--set", "label_protection=rr"),
         "engine.noise_std = None: expected a number when noise = 'given'"),
        (("calibrate", *TARGET, "--field", "label_noise", "--set", "noise=paper", "--set", "label_protection=alibi"),
         "engine.noise = 'paper': expected given, while label_noise is sought"),
        (("calibrate", *TARGET, "--field", "label_noise", "--set", "noise_std=1", "--set", "label_protection=rr"),
         "engine.label_protection = 'rr': expected alibi, whose label_noise is a standard deviation"),
        (("calibrate", *TARGET, "--accountant", "gdp", "--set", "schedule=poisson", "--view", "outsider", "--unit",
          "label", "--reading", "paper", "--set", "encrypted_uplink=true"), "not a bound"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_exit_code_2(monkeypatch, capsys, tmp_path, arguments, words):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(monkeypatch, capsys, *arguments)
    assert code == 2
    assert out == ""
    assert len(err.splitlines()) == 1
    assert words in err
    assert list(tmp_path.iterdir()) == []


def test_claims_of_the_configuration_are_accounted_for_too(monkeypatch, capsys, tmp_path):
    path = tmp_path / "own.toml"
    mine = '[[system.claim]]\nkey = "mine"\nunit = "label"\nview = "devices(all)"\nepsilon = 3.0\n'
    path.write_text(CONFIG + mine, encoding="utf-8")
    claims = accounts(monkeypatch, capsys, str(path), "--only", "split")["split"]["claims"]
    found = {c["key"]: c for c in claims}["mine"]
    assert found["epsilon"] == 3.0
    assert found["accounted"]["epsilon_upper"] == pytest.approx(0.5, rel=1e-3)


def test_curves_have_the_papers_reading_where_its_budget_differs(monkeypatch, capsys, tmp_path, config):
    """In a `joint` DPZV system no state leaks, but the paper counts only the rounds that a device takes part in."""
    options = ("--only", "sound", "--curves", str(tmp_path / "curves"), "--format", "json")
    code, out, _ = run(monkeypatch, capsys, "account", config, *options)
    assert code == 0
    (claim,) = json.loads(out)["systems"][0]["claims"]
    rigorous, paper = claim["accounted"], claim["paper_reading"]
    assert rigorous["epsilon_upper"] > paper["epsilon_upper"]
    assert not any("although it does" in note for note in paper["assumptions"])
    for reading, budget in (("rigorous", rigorous), ("paper", paper)):
        curves = json.loads((tmp_path / "curves" / f"sound-device-record-{reading}.json").read_text())
        assert curves["reading"] == reading
        assert curves["rounds_epsilon_upper"][-1] == pytest.approx(budget["epsilon_upper"])


CHECKED = """
[data]
train = 60
[engine]
name = "dpzv"
rounds = 60
batch_size = 6
schedule = "poisson"
server_update = "joint"
noise = "given"
noise_std = 5.0
[audit]
claims = ["dpzv-devices", "dpzv-model"]
"""


def test_other_libraries_are_asked_beside_ours(monkeypatch, capsys, tmp_path):
    path = tmp_path / "checked.toml"
    path.write_text(CHECKED, encoding="utf-8")
    monkeypatch.setenv("COLUMNS", "150")
    code, out, _ = run(monkeypatch, capsys, "account", str(path), "--cross-check")
    assert code == 0
    lines = [line.rstrip() for line in out.splitlines()]
    place = lines.index("Other libraries beside ours")
    devices, model = "dpzv-devices  rigorous  ", "dpzv-model    rigorous  "
    exact, bounds = "8.65687  8.65687", "1.40071  1.40092"
    unknown = "does not know sampled batches in which a record is replaced"
    assert lines[place + 1 : place + 3] == [
        "                                               its      our      our",
        "claim         reading   library                ε ≤      ε ≥      ε ≤  note",
    ]
    assert lines[place + 4 : place + 12] == [
        f"{devices}dp-accounting PLD  8.65723  {exact}",
        f"{devices}opacus RDP          9.5902  {exact}  orders up to 63: never below 0.0286 at this δ",
        f"{devices}opacus PRV         8.66755  {exact}  stated error 0.01",
        f"{devices}prv-accountant     8.66755  {exact}  stated error 0.01, but it can lie further below the truth",
        f"{model}dp-accounting PLD  1.40221  {bounds}  its RDP accountant would not double the sensitivity",
        f"{model}opacus RDP               –  {bounds}  not asked: {unknown}",
        f"{model}opacus PRV               –  {bounds}  not asked: {unknown}",
        f"{model}prv-accountant           –  {bounds}  not asked: {unknown}",
    ]
    accounts = vflpriv.account(path, cross_check=True)
    claims = json.loads(accounts.to_json())["systems"][0]["claims"]
    found = {check["library"]: check for check in claims[0]["cross_checks"]}
    assert found["opacus PRV"]["epsilon"] == pytest.approx(8.66755, abs=1e-4)
    assert found["opacus PRV"]["error"] == 0.01
    assert not any(check["too_low"] for claim in claims for check in claim["cross_checks"])
    assert claims[1]["cross_checks"][1]["refusal"] == unknown
    assert [claim.cross_checks for claim in vflpriv.account(path).systems[0].claims] == [(), ()]


def test_a_figure_that_lies_below_ours_is_marked(monkeypatch, capsys, tmp_path):
    path = tmp_path / "checked.toml"
    path.write_text(CHECKED, encoding="utf-8")
    monkeypatch.setenv("COLUMNS", "150")
    wrong = (lambda merged, delta: 8.6, 0.01, lambda merged, delta: "stated error 0.01")
    monkeypatch.setattr(cross_checks, "LIBRARIES", {"opacus PRV": wrong})
    _, out, _ = run(monkeypatch, capsys, "account", str(path), "--cross-check")
    note = "TOO LOW: below our lower bound; stated error 0.01"
    lines = [line.rstrip() for line in out.splitlines()]
    assert f"dpzv-devices  rigorous  opacus PRV  8.6  8.65687  8.65687  {note}" in lines
