"""Starter files: each is complete, says what its audit will find, and its audit finds that.

Three of them are what strangers bring: an MLP with noised embeddings, logistic regression with residuals, and split
learning under label differential privacy, each audited with at most three added lines.
"""

from __future__ import annotations

import re
import runpy
import tomllib
from importlib.resources import files

import pytest

import vflpriv
from tests.cli.test_cli import run
from tests.tree import ROOT
from vflpriv.config.starters import STARTERS, starter_named, write_starter
from vflpriv.errors import InputError
from vflpriv.recording.files.ending import end_recordings
from vflpriv.report.audit import read_report

_WORDS = {"Violated": "violated", "Unsupported": "unsupported", "Unmeasured": "unmeasured", "Consistent": "consistent"}
_PROMISED = re.compile(r"((?:^#.*\n)+)\[\[(?:attack_)?claim\]\]\nkey = \"([\w-]+)\"", re.MULTILINE)
RECORDED = ("residuals", "noised-embeddings", "label-dp")


def audited(monkeypatch, folder, kind, *changes, ledger=()):
    """The verdicts and the exit code of a starter, after some texts of its script and of its ledger were replaced."""
    write_starter(starter_named(kind), folder)
    for name, replaced in (("train.py", changes), ("ledger.toml", ledger)):
        text = (folder / name).read_text("utf-8")
        for old, new in replaced:
            assert old in text
            text = text.replace(old, new)
        (folder / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(folder)
    runpy.run_path("train.py", run_name="__main__")
    end_recordings()
    report = vflpriv.audit(transcript="transcript", ledger="ledger.toml")
    return report, {claim.key: str(claim.verdict) for system in report.systems for claim in system.all_claims}


def promised_verdicts(ledger: str) -> dict[str, str]:
    """The verdict that the comment above each claim begins with."""
    return {
        key: _WORDS[comment.rpartition("\n\n")[2].split()[1].rstrip(":,")] for comment, key in _PROMISED.findall(ledger)
    }


def promised_code(text: str) -> int:
    return int(re.search(r"# exit code (\d)", text)[1])


@pytest.mark.parametrize("kind", RECORDED)
def test_a_recorded_starter_finds_what_it_says(monkeypatch, tmp_path, kind):
    report, verdicts = audited(monkeypatch, tmp_path, kind)
    promised = promised_verdicts((tmp_path / "ledger.toml").read_text("utf-8"))
    assert promised
    assert verdicts == promised
    assert report.exit_code == promised_code((tmp_path / "train.py").read_text("utf-8"))
    assert not report.broken_premise


def test_the_demonstration_is_the_first_starter_and_finds_what_it_says(monkeypatch, capsys, tmp_path):
    out = tmp_path / "demo"
    code, printed, error = run(monkeypatch, capsys, "demo", "--out", str(out))
    assert (code, error.splitlines()) == (0, ["training", "auditing"])
    report = read_report(out / "report" / "report.json")
    assert {c.key: str(c.verdict) for c in report.systems[0].claims} == promised_verdicts(
        (out / "ledger.toml").read_text()
    )
    assert report.exit_code == promised_code((out / "train.py").read_text("utf-8")) == 1
    for text in (
        "The claim is violated",
        "no party learns a customer's label: ε = 1.00",
        "of labels off what device(",
        "The audit's own exit code is 1",
        f"report: {out / 'report' / 'report.html'}",
        "next: vflpriv init label-dp my-audit",
    ):
        assert text in " ".join(printed.split())
    assert (out / "report" / "report.html").is_file()
    assert {name: (out / name).read_text("utf-8") for name in STARTERS["split"].texts()} == STARTERS["split"].texts()


def test_the_engine_starter_finds_what_it_says(monkeypatch, tmp_path):
    write_starter(STARTERS["engine"], tmp_path)
    report = vflpriv.audit(tmp_path / "audit.toml")
    text = (tmp_path / "audit.toml").read_text("utf-8")
    assert report.exit_code == promised_code(text)
    assert str(report.verdict) == re.search(r"# exit code \d: (\w+)", text)[1]


@pytest.mark.usefixtures("few_trees")
def test_the_two_worlds_starter_finds_what_it_says(tmp_path):
    write_starter(STARTERS["two-worlds"], tmp_path)
    text = (tmp_path / "train.py").read_text("utf-8")
    report = vflpriv.audit(train=f"{tmp_path / 'train.py'}:train", ledger=tmp_path / "ledger.toml", workers=1)
    verdicts = {claim.key: str(claim.verdict) for claim in report.systems[0].claims}
    assert verdicts == promised_verdicts((tmp_path / "ledger.toml").read_text("utf-8"))
    assert report.exit_code == promised_code(text)
    (tmp_path / "train.py").write_text(text.replace("STD = 5.0", "STD = 0.05"), encoding="utf-8")
    report = vflpriv.audit(
        train=f"{tmp_path / 'train.py'}:train", ledger=tmp_path / "ledger.toml", trials=60, workers=1
    )
    assert str(report.systems[0].claims[0].verdict) == "violated"


@pytest.mark.parametrize("kind", ["split", *RECORDED])
def test_at_most_three_lines_are_added_to_a_strangers_script(kind):
    script = STARTERS[kind].texts()["train.py"]
    code = script.partition('"""\n\n')[2]
    marked = [line for line in code.splitlines() if line.endswith(("# added", "# optional"))]
    added = [line for line in marked if line.endswith("# added")]
    assert len(added) == (3 if kind == "residuals" else 2)
    assert len(marked) == len(added) + 1
    unmarked = [line for line in code.splitlines() if line not in marked and line != "import vflpriv"]
    assert not [line for line in unmarked if "vflpriv" in line or "wire" in line]


def test_residuals_are_read_with_three_lines_alone(monkeypatch, tmp_path):
    planted = "labels, canaries = vflpriv.plant(labels, classes=2, canaries=200, seed=1)  # optional\n"
    report, verdicts = audited(monkeypatch, tmp_path, "residuals", (planted, ""), (" canaries=canaries,", ""))
    assert verdicts == {"labels": "unsupported", "guessing": "violated"}
    assert report.exit_code == 1


def test_labels_that_are_not_noised_as_said_are_found(monkeypatch, tmp_path):
    report, verdicts = audited(monkeypatch, tmp_path, "label-dp", ("noised[records]", "labels[records]"))
    assert verdicts == {"labels": "violated"}
    assert report.exit_code == 1


def test_recorded_embeddings_that_are_not_noised_as_said_are_named(monkeypatch, tmp_path):
    """Whether their noise is missing or they were processed after it, no recording tells: nobody is accused of it."""
    ledger = STARTERS["noised-embeddings"].texts()["ledger.toml"]
    (leak,) = re.findall(r"^leak = \{.*\}$", ledger, re.MULTILINE)
    report, verdicts = audited(
        monkeypatch, tmp_path, "noised-embeddings", ("STD = 8.0", "STD = 0.8"), ledger=[(leak, 'leak = "none"')]
    )
    assert verdicts == {"features": "unmeasured", "labels": "violated"}
    noise = next(check for check in report.systems[0].checks if check.audit == "noise")
    assert (noise.subject, str(noise.verdict)) == ("embeddings", "unmeasured")
    assert "too small to hold it" in noise.reason


def test_without_a_leak_noised_embeddings_are_supported_and_unmeasured(monkeypatch, tmp_path):
    text = STARTERS["noised-embeddings"].texts()["ledger.toml"]
    (leak,) = re.findall(r"^leak = \{.*\}$", text, re.MULTILINE)
    _, verdicts = audited(monkeypatch, tmp_path, "noised-embeddings", ledger=[(leak, 'leak = "none"')])
    assert verdicts["features"] == "unmeasured"


def test_every_template_is_a_starter_and_is_packaged():
    folder = files("vflpriv.config").joinpath("templates")
    assert {item.name for item in folder.iterdir() if item.is_dir()} == set(STARTERS)
    for starter in STARTERS.values():
        texts = starter.texts()
        assert set(texts) == ({"audit.toml"} if starter.name == "engine" else {"ledger.toml", "train.py"})
        for name, text in texts.items():
            assert starter.commands[-1] in text or name == "ledger.toml"
            if name.endswith(".toml"):
                tomllib.loads(text)


def test_wheels_carry_every_template():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    folder = ROOT / "vflpriv" / "config"
    carried = {path for pattern in settings["package-data"]["vflpriv.config"] for path in folder.glob(pattern)}
    templates = {path for path in folder.rglob("templates/*/*") if path.is_file() and path.suffix != ".pyc"}
    assert len(templates) == 11
    assert templates <= carried


def test_starters_are_described_and_never_overwrite(monkeypatch, capsys, tmp_path):
    code, printed, _ = run(monkeypatch, capsys, "init")
    assert code == 0
    assert all(name in printed for name in STARTERS)
    assert all(name in run(monkeypatch, capsys, "init", "--help")[1] for name in STARTERS)
    code, _, error = run(monkeypatch, capsys, "init", "nothing")
    assert (code, error) == (2, f"vflpriv: KIND = 'nothing': expected one of {', '.join(STARTERS)}\n")
    folder = tmp_path / "mine"
    code, printed, _ = run(monkeypatch, capsys, "init", "label-dp", str(folder))
    assert code == 0
    assert f"cd {folder}" in printed
    assert run(monkeypatch, capsys, "init", "label-dp", str(folder))[0] == 0  # nothing would change
    (folder / "train.py").write_text("mine = True\n", encoding="utf-8")
    code, _, error = run(monkeypatch, capsys, "init", "label-dp", str(folder))
    assert (code, error.count("\n")) == (2, 1)
    assert "without a train.py of your own, or --force" in error
    assert run(monkeypatch, capsys, "demo", "--out", str(folder))[0] == 2
    assert (folder / "train.py").read_text("utf-8") == "mine = True\n"
    assert run(monkeypatch, capsys, "init", "label-dp", str(folder), "--force")[0] == 0
    assert "vflpriv.watch" in (folder / "train.py").read_text("utf-8")


def test_an_unknown_starter_is_an_error():
    with pytest.raises(InputError, match="KIND = 'x': expected one of split"):
        starter_named("x")
