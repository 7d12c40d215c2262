"""`vflpriv attack` as a user meets it."""

from __future__ import annotations

import json
import math
import re
import shutil
from functools import partial
from xml.etree import ElementTree as ET

import pytest

from tests.cli.test_cli import run
from tests.report.attack_report import attack_report
from vflpriv.audits.scoring.trials import Trials
from vflpriv.common.registry import available
from vflpriv.config.loading import load_config
from vflpriv.report.attacks import AttackReport, read_attacks

SMALL = """
[data]
name = "digits"
[attack]
seeds = 2
views = ["device(0)", "eavesdropper"]
[attack.defences.rr]
label_protection = "rr"
label_noise = 1.0
[attack.defences.scalar]
noise = "paper"
[[system]]
key = "split"
[system.engine]
name = "split"
aggregation = "sum"
rounds = 23
batch_size = 64
"""


@pytest.fixture
def call(monkeypatch, capsys, tmp_path):
    path = tmp_path / "attack.toml"
    path.write_text(SMALL, encoding="utf-8")

    return partial(run, monkeypatch, capsys, "attack", str(path), "-q", "--out", str(tmp_path))


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    return tmp_path_factory.mktemp("finished") / "attacked"


@pytest.fixture
def finished(call, tmp_path, shelf):
    """The folder after a run without options, which one test waits for."""
    if not shelf.exists():
        assert call()[0] == 0
        shutil.copytree(tmp_path, shelf)
    shutil.copytree(shelf, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_it_writes_the_matrix_and_fails_on_a_leak(call, finished, tmp_path):
    """Margin: 0.23 of 1,429 labels are read under noise, six standard errors less than 0.3."""
    code, out, _ = call("--fail-on", "leakage>0.05")
    assert code == 1
    assert "+89.4" in out
    assert "Not applicable, for reasons that the report gives:" in " ".join(out.split())
    report = json.loads((tmp_path / "attacks.json").read_text("utf-8"))
    cells = {(c["defence"], c["attack"], c["adversary"]): c for c in report["cells"]}
    plain, noised = (cells[d, "label_direct", "device(0)"] for d in ("none", "rr"))
    assert plain["success"] == 1.0
    assert noised["success"] < 0.3
    assert plain["chance"] < plain["leakage"] == pytest.approx(1 - plain["chance"])
    assert cells["none", "label_dual", "device(0)"]["not_applicable"].startswith("needs dual variables")
    first = report["breaches"][0]
    assert [first[k] for k in ("limit", "attack", "system", "defence")] == [
        "leakage>0.05",
        "label_direct",
        "split",
        "none",
    ]
    applies = sum(c["leakage"] is not None for c in report["cells"])
    assert (
        f"limits: {applies} tests with Holm's correction: the chance of any false alarm is at most 5.0 %"
        in " ".join(out.split())
    )
    markdown = (tmp_path / "attacks.md").read_text("utf-8")
    assert "**+89.4** (100.0 %)" in markdown
    page = (tmp_path / "attacks.html").read_text("utf-8")
    assert re.search(r"class=[\"']?[^>]*leak4", page)
    assert page.count("<script") == 1


def test_beside_each_figure_stands_what_is_accounted_and_what_that_allows(finished, tmp_path):
    report = AttackReport.model_validate_json((tmp_path / "attacks.json").read_bytes())
    direct = {c.defence: c for c in report.cells if (c.attack, c.adversary) == ("label_direct", "device(0)")}
    assert (direct["none"].epsilon, direct["none"].allowed) == (math.inf, 1.0)
    assert direct["rr"].epsilon == pytest.approx(1.0, rel=1e-3)
    assert direct["rr"].allowed == pytest.approx(math.tanh(0.5), rel=1e-3)
    assert direct["rr"].leakage < direct["rr"].allowed


def test_a_second_run_takes_what_is_finished_and_writes_the_same(call, finished, tmp_path, monkeypatch):
    first, kept = (tmp_path / "attacks.json").read_bytes(), sorted((tmp_path / "trials").iterdir())
    assert len(kept) == 2
    kept[0].unlink()
    trained = []
    monkeypatch.setattr(Trials, "run", lambda self, *a, run=Trials.run, **k: trained.append(self) or run(self, *a, **k))
    call()
    assert len(trained) == 1
    kept[1].write_bytes(kept[1].read_bytes()[:40])
    call()
    assert len(trained) == 2
    assert (tmp_path / "attacks.json").read_bytes() == first
    assert call("--format", "json", "--fresh")[0] == 0
    assert len(trained) == 4
    assert (tmp_path / "attacks.json").read_bytes() == first


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--correction", "bonferroni"), "vflpriv: --correction = 'bonferroni': expected one of holm, none"),
        (("--junit", "."), "vflpriv: --junit = '.': expected a file, not a folder"),
        (("--fail-on", "leaks"), "vflpriv: --fail-on = 'leaks': expected leakage>NUMBER or success>NUMBER"),
        (("--only", "nobody"), "vflpriv: --only = 'nobody': expected one of split"),
        (("--set", "attack.views=['device(9)']"), "vflpriv: view = 'device(9)': expected device numbers below 4"),
        (("--set", "attack.seeds=0"), "vflpriv: attack.seeds = 0: expected a number >= 1"),
        (("--set", "attack.attacks=['none']"), "vflpriv: attack = 'none': expected one of"),
    ],
)
def test_bad_input_is_one_line(call, arguments, message):
    code, _, err = call(*arguments)
    assert code == 2
    assert err.startswith(message)
    assert err.count("\n") == 1


def test_files_for_ci_and_a_baseline(call, finished, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = ("--junit", "junit.xml", "--sarif", "a.sarif", "--summary", "summary.md", "--format", "json")
    assert call("--fail-on", "leakage>0.05", *files)[0] == 1
    suite = ET.parse(tmp_path / "junit.xml").getroot()[0]
    report = read_attacks(tmp_path / "attacks.json")
    assert [int(suite.get(n, "")) for n in ("tests", "failures")] == [len(report.cells), len(report.breaches)]
    results = json.loads((tmp_path / "a.sarif").read_text("utf-8"))["runs"][0]["results"]
    assert {r["ruleId"] for r in results} == {"limit-broken"}
    place = results[0]["locations"][0]["physicalLocation"]["region"]
    assert place == {"startLine": SMALL.split("\n").index('key = "split"') + 1}
    assert "**+89.4** (100.0 %)" in (tmp_path / "summary.md").read_text("utf-8")
    (tmp_path / "attacks.json").rename(tmp_path / "old.json")
    assert call("--baseline", "old.json", "--format", "json")[0] == 0
    code, out, _ = call(
        "--baseline", "old.json", "--set", "attack.defences.rr.label_noise=6.0", "--junit", "junit.xml",
        "--tolerance", "accuracy=1",
    )  # fmt: skip
    assert code == 1
    assert "worse than the baseline: split: attack success of label_direct seen by device(0), defence rr" in out
    assert ET.parse(tmp_path / "junit.xml").getroot()[-1].get("failures") != "0"


def test_reports_are_rendered_again_and_compared(monkeypatch, capsys, tmp_path):
    (tmp_path / "attacks.json").write_text(attack_report().to_json(), encoding="utf-8")
    code, out, _ = run(monkeypatch, capsys, "report", str(tmp_path), "--junit", str(tmp_path / "j.xml"))
    assert code == 1
    assert "leakage>0.05 label_direct on split" in " ".join(out.split())
    assert {p.name for p in tmp_path.iterdir()} == {"attacks.json", "attacks.html", "attacks.md", "j.xml"}
    assert run(monkeypatch, capsys, "compare", str(tmp_path), str(tmp_path / "attacks.json"))[0] == 0
    (tmp_path / "report.json").write_text("{}", encoding="utf-8")
    code, _, error = run(
        monkeypatch, capsys, "report", str(tmp_path / "attacks.json"), "--baseline", str(tmp_path / "report.json")
    )
    assert (code, error.count("\n")) == (2, 1)


def test_the_embedded_matrix_has_every_engine_and_every_defence():
    from importlib.resources import files
    from pathlib import Path

    config = load_config(Path(str(files("vflpriv.config").joinpath("attack.toml"))))
    assert {s.engine["name"] for s in config.system} == set(available("engine"))
    named = [v.changes["defence"] for v in config.attack.variants if "defence" in v.changes]
    # Its data are numbers: texts are attacked, and their defences tried, where a configuration has texts.
    of_numbers = {name for name, defence in available("defence").items() if not defence.of_texts}
    assert {d if isinstance(d, str) else d["name"] for d in named} == of_numbers
    assert len(named) > len(of_numbers)
    assert any(s.positive_classes for s in config.system)


def test_a_report_reads_back():
    report = AttackReport(
        tool_version="1", seed=0, confidence=0.95, seeds=2, labels_per_class=4, data={}, trained=(), cells=()
    )
    assert AttackReport.model_validate_json(report.to_json()) == report
    assert report.headline == "no attack applies"
