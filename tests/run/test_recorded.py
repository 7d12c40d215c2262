"""Systems that are not ours, from their own script to the verdict; and engines of other packages."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import vflpriv
from tests.recording.transcript_files import unprotected
from tests.seams.plugins import command_beside
from vflpriv.cli.main import main
from vflpriv.core.claims import Verdict
from vflpriv.report.audit import read_report

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "split_learning"
PACKAGE = ROOT / "examples" / "engine_package"


def run(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["vflpriv", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main()
    captured = capsys.readouterr()
    return int(stopped.value.code or 0), captured.out, captured.err


@pytest.fixture
def audit(monkeypatch, capsys, tmp_path):
    """Audit a transcript by the text of a ledger; the exit code and the report."""

    def go(transcript, text):
        (tmp_path / "ledger.toml").write_text(text)
        ledger, out = tmp_path / "ledger.toml", tmp_path / "report"
        paths = ("--transcript", transcript, "--ledger", ledger, "--out", out)
        code, _, err = run(monkeypatch, capsys, "audit", *paths, "--quiet")
        assert err == ""
        report = read_report(out / "report.json")
        assert report.exit_code == code
        return code, report

    return go


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """What the example's script records."""
    folder = tmp_path_factory.mktemp("digits") / "transcript"
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    runpy.run_path(str(EXAMPLE / "train.py"))["main"](str(folder))
    torch.set_num_threads(threads)
    return folder


def test_a_plain_pytorch_system_is_audited_end_to_end(digits, audit, tmp_path):
    """Margin: the accuracy is 0.94 where 0.8 is asked, and exact gradients give every label away."""
    code, report = audit(digits, (EXAMPLE / "ledger.toml").read_text())
    assert code == 1
    (system,) = report.systems
    claim, about_attack = system.all_claims
    assert (claim.key, claim.verdict) == ("labels-stay", Verdict.VIOLATED)
    assert claim.accounted.epsilon_upper == float("inf")
    assert claim.deciding.epsilon > 3
    assert (claim.deciding.trials, claim.deciding.facts["set_aside"]) == (200, 100)
    assert "label_direct on one recorded training" in claim.reason
    assert (about_attack.verdict, about_attack.success > 0.99) == (Verdict.VIOLATED, True)
    assert (system.engine, system.rounds, system.data["messages"]["logits"]) == ("recorded", 115, 230)
    assert system.data["accuracy"] > 0.8
    assert any("two worlds" in line and "vflpriv.engines" in line for line in report.not_tested)
    assert {check.verdict for check in system.checks} == {Verdict.CONSISTENT}
    assert "--transcript" in claim.reproduce
    assert "--only" not in claim.reproduce
    page = (tmp_path / "report" / "report.html").read_text()
    assert "Do the premises hold?" in page
    assert "one training with 200 canaries" in page
    assert "all 230 recorded messages are in the ledger" in (tmp_path / "report" / "report.md").read_text()


def test_a_message_that_the_ledger_leaves_out_is_a_finding(digits, audit):
    code, report = audit(digits, 'public = ["logits"]')
    assert code == 1
    (check,) = report.systems[0].checks
    assert (check.subject, check.verdict) == ("logit-gradient", Verdict.VIOLATED)
    assert check.reason == "230 recorded messages are not in the ledger, and label_direct learns labels from them"
    gradients = '[[release]]\nkind = "logit-gradient"\nnoise = "none"'
    code, report = audit(digits, gradients)
    assert (code, report.systems[0].checks[1].verdict) == (1, Verdict.VIOLATED)
    assert "label_embedding_clusters learns labels from them" in report.systems[0].checks[1].reason
    code, report = audit(digits, f'attacks = ["label_direct"]\n{gradients}')
    assert (code, report.systems[0].checks[1].verdict) == (3, Verdict.UNSUPPORTED)


NOISED = """
key = "noised"
model_follows_releases = true
public = ["question"]
[[release]]
kind = "zo-scalar"
noise = "gaussian"
scale = {scale}
sensitivity = {{ label = 0.25, record = 0.25 }}
shared = true
leak = "none"
[[claim]]
key = "mine"
unit = "label"
view = "{view}"
mu = {mu}
delta = 1e-5
"""


def noised(folder, std=1.0, rounds=40, labels=True, canaries=0):
    """A server that answers with one noised number, the same for both devices."""
    generator = torch.Generator().manual_seed(3)
    truth, planted = torch.arange(50) % 2, None
    if canaries:
        truth, planted = vflpriv.plant(truth, classes=2, canaries=canaries, seed=0)
    with vflpriv.record(folder, devices=2, classes=2, records=50) as wire:
        if labels:
            wire.labels(truth, canaries=planted)
        for t in range(rounds):
            ids = torch.randperm(50, generator=generator)[:8]
            delta = 0.25 * truth[ids].float().mean() + std * torch.randn((), generator=generator)
            for m in range(2):
                wire.up(t, m, "question", {"x": torch.ones(1)}, ids)
                wire.down(t, m, "zo-scalar", {"delta": delta}, ids)
    return folder


def test_a_sound_system_is_consistent_with_what_it_can_account_for(audit, tmp_path):
    folder = noised(tmp_path / "run", canaries=48)
    messages = vflpriv.read_transcript(folder).transcript.messages
    times = torch.zeros(50).index_add_(
        0, torch.cat([m.records for m in messages if m.kind == "zo-scalar"]), torch.ones(640)
    )
    exact = 0.25 * float(times.max() / 2) ** 0.5
    code, report = audit(folder, NOISED.format(scale=1.0, view="devices(all)", mu=1.001 * exact))
    (claim,) = report.systems[0].claims
    assert (code, claim.verdict) == (0, Verdict.CONSISTENT)
    assert claim.deciding.trials == 32
    assert claim.accounted.mu == pytest.approx(exact)
    code, report = audit(folder, NOISED.format(scale=1.0, view="device", mu=0.99 * exact))
    assert (code, report.systems[0].claims[0].verdict) == (3, Verdict.UNSUPPORTED)


def test_a_ledger_that_is_trusted_ends_well_and_the_report_says_so(monkeypatch, capsys, tmp_path):
    folder, ledger, out = noised(tmp_path / "run"), tmp_path / "ledger.toml", tmp_path / "out"
    arguments = ("audit", "--transcript", folder, "--ledger", ledger, "--out", out, "--trust-ledger")
    ledger.write_text(NOISED.format(scale=1.0, view="device", mu=9.0), "utf-8")
    code, text, _ = run(monkeypatch, capsys, *arguments)
    report = read_report(out / "report.json")
    assert (code, report.exit_code, report.verdict, report.ledger_trusted) == (0, 0, Verdict.UNMEASURED, True)
    assert "only the ledger speaks for it, which was trusted" in " ".join(text.split())
    page = (out / "report.html").read_text("utf-8")
    assert 'class="banner unmeasured"' in page
    assert "the ledger was trusted where nothing was measured" in page
    ledger.write_text(NOISED.format(scale=1.0, view="device", mu=0.1), "utf-8")
    assert run(monkeypatch, capsys, *arguments)[0] == 3, "unsupported is not unmeasured"


def test_noise_that_is_not_there_is_found(audit, tmp_path):
    code, report = audit(noised(tmp_path / "run", std=0.2), NOISED.format(scale=1.0, view="device", mu=9.0))
    noise = next(check for check in report.systems[0].checks if check.audit == "noise")
    assert (code, noise.verdict) == (3, Verdict.UNMEASURED)
    assert "too small" in noise.reason
    assert {claim.verdict for claim in report.systems[0].claims} == {Verdict.UNMEASURED}


def test_without_labels_attacks_say_what_they_need_and_a_cut_recording_is_named(audit, tmp_path):
    folder = unprotected(noised(tmp_path / "run", labels=False))
    head = json.loads((folder / "transcript.json").read_text())
    (folder / "transcript.json").write_text(json.dumps(head | {"finished": False, "files": None, "rounds": None}))
    _, report = audit(folder, 'public = ["question"]\n[[release]]\nkind = "logit-gradient"\nnoise = "none"')
    assert any("cut off" in line for line in report.not_tested)
    assert any("never recorded" in line for line in report.not_tested)
    assert any("vflpriv.plant" in line for line in report.not_tested)
    assert all(row.success is None for row in report.systems[0].attacks)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--transcript", "x"], "go together"),
        (["--ledger", "x"], "go together"),
        (["--transcript", "x", "--ledger", "y", "--seed", "1"], "the ledger file says it"),
        (["--transcript", "x", "--ledger", "nothing.toml"], "readable TOML"),
    ],
)
def test_bad_usage_is_one_line(monkeypatch, capsys, tmp_path, arguments, complaint):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(monkeypatch, capsys, "audit", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert complaint in err


def test_a_claim_about_a_device_that_is_not_there(monkeypatch, capsys, tmp_path):
    folder, ledger = noised(tmp_path / "run"), tmp_path / "ledger.toml"
    ledger.write_text(NOISED.format(scale=1.0, view="device(7)", mu=1.0))
    code, _, err = run(
        monkeypatch, capsys, "audit", "--transcript", folder, "--ledger", ledger, "--out", tmp_path / "r"
    )
    assert (code, err.count("\n")) == (2, 1)
    assert "device numbers below 2" in err


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The example package, and one that cannot be imported, installed into a folder of their own."""
    place = tmp_path_factory.mktemp("packages")
    shutil.copytree(PACKAGE, place / "source")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    command += ["--disable-pip-version-check", "--target", str(place / "site"), str(place / "source")]
    subprocess.run(command, check=True, capture_output=True, text=True)
    broken = place / "site" / "broken_engine-1.0.dist-info"
    broken.mkdir()
    (broken / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-engine\nVersion: 1.0\n")
    (broken / "entry_points.txt").write_text("[vflpriv.engines]\nbroken = broken_engine:Engine\n")
    (place / "site" / "broken_engine.py").write_text("import a_module_that_nobody_has\n")
    return place / "site"


def test_an_engine_of_another_package_is_listed_and_audited(installed, tmp_path):
    """Listed by a new interpreter, and audited in this one."""
    program = [sys.executable, "-m", "vflpriv", "engines"]
    environment = os.environ | {"PYTHONPATH": str(installed), "COLUMNS": "200"}
    listed = subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert "sign-split" in listed.stdout
    assert "dpzv" in listed.stdout
    assert "broken_engine:Engine of broken-engine cannot be loaded" in listed.stderr
    arguments = ("audit", PACKAGE / "audit.toml", "--quiet", "--format", "json", "--set", "engine.rounds=25")
    done = command_beside(installed, tmp_path, *arguments)
    assert done.returncode == 1, done.stderr
    (system,) = read_report(tmp_path / "vflpriv-report" / "report.json").systems
    assert (system.engine, system.success_claims[0].verdict) == ("sign-split", Verdict.VIOLATED)


def test_a_plug_in_that_cannot_be_imported_says_so_when_it_is_asked_for(installed, tmp_path):
    (tmp_path / "audit.toml").write_text('[engine]\nname = "broken"\nrounds = 1\nbatch_size = 8\n')
    done = command_beside(installed, tmp_path, "validate", "audit.toml")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "ModuleNotFoundError: No module named 'a_module_that_nobody_has'" in done.stderr


def test_public_names_are_there_and_bring_nothing_along():
    code = "import sys, vflpriv\nassert 'torch' not in sys.modules\n"
    code += "assert all(callable(getattr(vflpriv, n)) for n in ('record', 'plant', 'read_transcript'))"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        vflpriv.nothing  # noqa: B018


def test_a_recording_is_accounted_for_without_attacks(monkeypatch, capsys, tmp_path):
    folder = noised(tmp_path / "run")
    ledger = tmp_path / "ledger.toml"
    ledger.write_text(NOISED.format(scale=1.0, view="devices(all)", mu=0.5), encoding="utf-8")
    paths = ("--transcript", str(folder), "--ledger", str(ledger))
    code, out, _ = run(monkeypatch, capsys, "account", *paths, "--format", "json")
    (system,) = json.loads(out)["systems"]
    (claim,) = system["claims"]
    assert (code, system["key"], system["records"], claim["key"]) == (0, "noised", 50, "mine")
    run(monkeypatch, capsys, "audit", *paths, "--out", str(tmp_path / "out"), "--format", "json")
    audited = json.loads((tmp_path / "out" / "report.json").read_text("utf-8"))["systems"][0]
    assert claim["accounted"] == audited["claims"][0]["accounted"]
    assert {b["adversary"].split("(")[0] for b in system["budgets"]} >= {"device", "devices", "outsider", "model"}
    code, _, _ = run(monkeypatch, capsys, "account", *paths, "--curves", str(tmp_path / "curves"))
    assert code == 0
    assert (tmp_path / "curves" / "noised-devicesall-label-rigorous.json").exists()
    assert "accounted" in run(monkeypatch, capsys, "account", *paths)[1].lower()


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (("--ledger", "x.toml"), "--transcript = 'nothing': expected a path: --transcript and --ledger go together"),
        (("audit.toml", "--transcript", "t", "--ledger", "l"), "CONFIG = 'audit.toml': expected nothing beside"),
        (("--transcript", "t", "--ledger", "l", "--set", "a=1"), "--set = 'a=1': expected nothing beside"),
        (("--transcript", "t", "--ledger", "none.toml"), "--ledger = 'none.toml': expected a readable TOML file"),
    ],
)
def test_account_says_what_a_recording_needs(monkeypatch, capsys, more, line):
    code, out, error = run(monkeypatch, capsys, "account", *more)
    assert (code, out, error.count("\n")) == (2, "", 1)
    assert error.startswith(f"vflpriv: {line}")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (("scale = 1.0", "scale = 0.0"), "ledger.release.0.scale = 0.0: expected a number >= 1e-30"),
        (("[[release]]", "[[realease]]"), "ledger.realease = "),
        (("[[release]]", "attacks = ['nothing']\n[[release]]"), "attack = 'nothing': expected one of"),
        (("[[release]]", "accountant = 'x'\n[[release]]"), "accountant = 'x': expected one of"),
    ],
)
def test_a_ledger_alone_is_validated(monkeypatch, capsys, tmp_path, change, line):
    ledger, text = tmp_path / "ledger.toml", NOISED.format(scale=1.0, view="device", mu=0.5)
    ledger.write_text(text, encoding="utf-8")
    assert run(monkeypatch, capsys, "validate", str(ledger))[:2] == (0, "noised: ok\n")
    ledger.write_text(text.replace(*change), encoding="utf-8")
    code, _, error = run(monkeypatch, capsys, "validate", str(ledger))
    assert (code, error.count("\n")) == (2, 1)
    assert error.startswith(f"vflpriv: {line}")


def test_a_recording_that_was_cut_off_leaves_no_claim_consistent(audit, tmp_path):
    folder = noised(tmp_path / "run", canaries=48)
    code, whole = audit(folder, NOISED.format(scale=1.0, view="devices(all)", mu=9.0))
    assert (code, whole.claims[0].verdict) == (0, Verdict.CONSISTENT)
    assert whole.systems[0].data["protection"] == "hash chain"
    head = json.loads((unprotected(folder) / "transcript.json").read_text())
    (folder / "transcript.json").write_text(json.dumps(head | {"finished": False, "files": None, "rounds": None}))
    code, report = audit(folder, NOISED.format(scale=1.0, view="devices(all)", mu=9.0))
    assert (code, report.claims[0].verdict) == (3, Verdict.UNMEASURED)
    assert "no rounds after" in report.claims[0].reason
    assert report.systems[0].data["protection"] == "unprotected"
    assert any("unprotected" in line for line in report.not_tested)
