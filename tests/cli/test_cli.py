"""The command line as a user meets it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from vflpriv.cli.main import main
from vflpriv.report.audit import read_report

pytestmark = pytest.mark.usefixtures("few_trees")
SMALL = """
seed = 1
[data]
name = "digits"
train = 640

[[system]]
key = "published"
[system.engine]
name = "dpzv"
rounds = 12
batch_size = 64
activation = "round-robin"
embedding = 4
[system.audit]
trials = { worst-case = 96, natural = 8 }

[[system]]
key = "sound"
[system.engine]
name = "dpzv"
rounds = 8
batch_size = 64
activation = "round-robin"
embedding = 4
server_update = "joint"
noise = "calibrated"
[system.audit]
trials = 16
canaries = ["worst-case"]

[[system]]
key = "split"
[system.engine]
name = "split"
aggregation = "sum"
rounds = 8
batch_size = 64
"""


def run(monkeypatch, capsys, *arguments: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["vflpriv", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    captured = capsys.readouterr()
    return int(stopped.value.code or 0), captured.out, captured.err


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "audit.toml"
    path.write_text(SMALL, encoding="utf-8")
    return str(path)


def test_an_audit_from_configuration_to_report(monkeypatch, capsys, tmp_path, config):
    """Margin: noise hides all; 0.1 is nine standard errors of a guess by chance."""
    out = tmp_path / "report"
    code, printed, _ = run(monkeypatch, capsys, "audit", config, "--out", str(out), "--quiet")
    assert code == 1
    assert "violated" in printed
    assert {p.name for p in out.iterdir()} == {"report.html", "report.json", "report.md", "trials", "witnesses"}
    report = read_report(out / "report.json")
    published, sound, split = report.systems
    claims = {c.key: c for c in published.claims}
    assert claims["dpzv-devices"].verdict == "violated"
    assert claims["dpzv-devices"].epsilon == pytest.approx(1.0)
    assert claims["dpzv-model"].verdict == "violated"  # the trained model is traced, and carries no noise
    (calibrated,) = sound.claims
    assert calibrated.verdict == "consistent"
    assert calibrated.accounted.epsilon_upper == pytest.approx(1.0, abs=1e-6)
    assert calibrated.accounted.epsilon_upper <= 1.0
    assert [a.success for a in split.attacks if a.attack == "label_direct"] == [1.0, 1.0]
    assert {a.attack for a in published.attacks if not a.not_applicable} == {
        "label_completion_passive",
        "label_embedding_clusters",
        "label_pcat",
        "label_zo_scalar",
    }
    assert all(a.success - a.blind < 0.1 for a in published.attacks if a.blind is not None)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert "Theorem VI.5" in page


def test_the_same_seed_gives_the_same_bytes_fresh_or_resumed(monkeypatch, capsys, tmp_path, config):
    # Few rounds: the search for crafted features takes a short training of many replicas.
    small = ("--set", "system.0.engine.rounds=5", "--set", "data.train=150")
    only = ("--only", "published", "--trials", "12", *small, "--quiet", "--format", "json")
    for out in ("a", "b", "b"):
        run(monkeypatch, capsys, "audit", config, "--out", str(tmp_path / out), *only)
    first, again = ((tmp_path / out / "report.json").read_bytes() for out in ("a", "b"))
    assert first == again


def test_another_seed_is_another_training(monkeypatch, capsys, tmp_path, config):
    for seed in ("1", "2"):
        only = ("--only", "split", "--seed", seed, "--quiet", "--format", "json")
        run(monkeypatch, capsys, "audit", config, "--out", str(tmp_path / seed), *only)
    (one,), (other,) = (read_report(tmp_path / seed / "report.json").systems for seed in ("1", "2"))
    assert one.attacks != other.attacks


def test_a_report_is_rendered_again_from_its_json(monkeypatch, capsys, tmp_path, config):
    out = tmp_path / "report"
    run(monkeypatch, capsys, "audit", config, "--out", str(out), "--only", "split", "--quiet")
    before = {p.name: p.read_bytes() for p in out.iterdir() if p.is_file()}
    for name in ("report.html", "report.md"):
        (out / name).unlink()
    code, printed, _ = run(monkeypatch, capsys, "report", str(out))
    assert code == 0
    assert "label_direct" in printed
    assert {p.name: p.read_bytes() for p in out.iterdir() if p.is_file()} == before
    assert "<dt>date<dd>not given</div>" in (out / "report.html").read_text("utf-8")
    assert run(monkeypatch, capsys, "report", str(out), "--date", "2026-11-17")[0] == 0
    assert "<dt>date<dd>2026-11-17</div>" in (out / "report.html").read_text("utf-8")
    assert (out / "report.json").read_bytes() == before["report.json"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["audit", "missing.toml"], "vflpriv: config = 'missing.toml': expected a readable TOML file"),
        (["audit", "--only", "nobody"], "vflpriv: --only = 'nobody': expected one of dpzv-published"),
        (["audit", "--date", "17.11.2026"], "vflpriv: --date = '17.11.2026': expected a day as YYYY-MM-DD"),
        (["audit", "--trials", "-3"], "vflpriv: --trials = -3: expected a whole number >= 0"),
        (["audit", "--set", "seed"], "vflpriv: --set = 'seed': expected FIELD=VALUE"),
        (["audit", "--set", "system.9.engine.rounds=3"], "vflpriv: --set = 'system.9.engine.rounds'"),
        (["audit", "--set", "system.0.engine.noise_std=-2.0"], "engine.noise_std = -2.0: expected a number >= 0"),
        (["audit", "--set", "system.0.engine.batch_size=2000"], "batch_size = 2000: expected at most the 1437 records"),
        (
            ["audit", "--format", "pdf"],
            "--format = 'pdf': expected one of html, json, junit, md, sarif, summary, toml",
        ),
        (["audit", "--trials", "few"], "vflpriv: --trials = 'few': expected a whole number >= 0"),
        (["audit", "--sed", "2"], "vflpriv: No such option: --sed"),
        (["audit", "--confidence", "2"], "vflpriv: confidence = 2: expected a number < 1"),
        (["report", "nowhere.json"], "vflpriv: report = 'nowhere.json': expected a readable report.json"),
        (["data", "fetch", "imagenet"], "imagenet"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(monkeypatch, capsys, tmp_path, arguments, line):
    monkeypatch.chdir(tmp_path)
    code, printed, error = run(monkeypatch, capsys, *arguments)
    assert code == 2
    assert printed == ""
    assert line in error
    assert error.count("\n") == 1


def test_an_output_that_cannot_be_written_fails_before_the_work(monkeypatch, capsys, tmp_path):
    (tmp_path / "file").write_text("kept")
    code, _, error = run(monkeypatch, capsys, "audit", "--out", str(tmp_path / "file" / "report"))
    assert code == 2
    assert "expected a folder that can be written to" in error
    assert (tmp_path / "file").read_text() == "kept"


def test_text_where_a_number_belongs_is_a_usage_error(monkeypatch, capsys):
    code, _, error = run(monkeypatch, capsys, "audit", "--seed", "many")
    assert code == 2
    assert error == "vflpriv: seed = 'many': expected a whole number\n"


def test_a_bug_is_not_hidden_and_not_taken_for_a_verdict(monkeypatch, capsys):
    import vflpriv.cli.lists

    def broken(kind: str) -> None:
        raise ZeroDivisionError(kind)

    monkeypatch.setattr(vflpriv.cli.lists, "print_registered", broken)
    code, _, error = run(monkeypatch, capsys, "engines")
    assert code == 4
    assert "ZeroDivisionError: engine" in error


def test_a_damaged_report_is_refused(monkeypatch, capsys, tmp_path):
    (tmp_path / "report.json").write_text(json.dumps({"seed": 1}))
    code, _, error = run(monkeypatch, capsys, "report", str(tmp_path))
    assert code == 2
    assert "report.json" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("engines", ["dpzv", "split"]),
        ("attacks", ["label_direct"]),
        ("audits", ["sensitivity", "two-world"]),
        ("accountants", ["auto", "gdp", "prv", "rdp"]),
        ("data", ["digits", "mnist", "fashion-mnist"]),
    ],
)
def test_lists_show_what_is_registered(monkeypatch, capsys, command, names):
    code, printed, _ = run(monkeypatch, capsys, command)
    assert code == 0
    assert [line.split()[0] for line in printed.splitlines() if line.split()[0] in names] != []
    for name in names:
        assert name in printed


def test_validate_builds_without_training(monkeypatch, capsys, config):
    code, printed, _ = run(monkeypatch, capsys, "validate", config)
    assert code == 0
    assert printed.splitlines() == ["published: ok", "sound: ok", "split: ok"]


def test_help_imports_nothing_heavy():
    program = (
        "import sys\n"
        "from vflpriv.cli.main import main\n"
        "sys.argv = ['vflpriv', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'opacus', 'matplotlib', 'scipy', 'sklearn'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "audit" in done.stdout


@pytest.mark.parametrize("command", ["audit", "attack", "train"])
def test_a_device_that_is_not_there_is_one_line(monkeypatch, capsys, tmp_path, config, command):
    """`meta` computes nothing, on any machine; without CUDA the same holds for `cuda`."""
    out = ["--save" if command == "train" else "--out", str(tmp_path / "out")]
    for device in ("meta", *([] if torch.cuda.is_available() else ["cuda"])):
        code, printed, error = run(monkeypatch, capsys, command, config, "--set", f"device={device}", "-q", *out)
        expected = f"vflpriv: device = '{device}': expected auto or cpu, since torch finds no {device} here\n"
        assert (code, printed, error) == (2, "", expected)
