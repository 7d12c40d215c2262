"""An audit of another package: one class behind an entry point is run, reported in every format, and decides."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from xml.etree import ElementTree as ET

import pytest

from tests.seams.plugins import Plugin, command_beside, installed
from tests.tiny import TINY
from vflpriv.core.claims import Verdict
from vflpriv.recording.files.ending import end_recordings
from vflpriv.report.audit import Report, read_report

AUDIT = """
from vflpriv.core.audit import Audit, Finding
from vflpriv.core.claims import Verdict

class Clock(Audit):
    name = "clock"
    summary = "compares the rounds of a training with a clock"

    def refusal(self, system, context):
        return None if context.claims else "there is no claim that rests on the clock"

    def work(self, system, context):
        return 7

    def run(self, system, context):
        context.progress.stage(f"{system.key}: clock")
        context.progress.advance(7)
        return [Finding(audit=self.name, subject="rounds", measure="seconds", FINDING)]
"""
PREMISE = """figure=3.5, interval=(3.0, 4.0), verdict=Verdict.VIOLATED,
            sentence=f"round 2 of {system.schedule.rounds} took longer than is declared" """
TEST = """figure=1.0, interval=(0.5, 1.5), verdict=Verdict.VIOLATED, claim=context.claims[0].key, p_value=P,
            sentence="the clock told the worlds apart" """
Run = Callable[[str], tuple[CompletedProcess[str], Report, Path]]


@pytest.fixture
def audit(tmp_path: Path) -> Run:
    """Audit the tiny configuration beside a package whose audit returns this finding."""

    def run(finding: str) -> tuple[CompletedProcess[str], Report, Path]:
        plugin = Plugin(tmp_path / "package", "vflpriv.audits", "Clock", AUDIT.replace("FINDING", finding))
        (tmp_path / "package" / "tiny.toml").write_text(TINY, encoding="utf-8")
        out = tmp_path / "out"
        files = ("--junit", str(out / "junit.xml"), "--sarif", str(out / "report.sarif"))
        done = plugin.command("audit", "tiny.toml", "--quiet", "--out", str(out), *files)
        assert (out / "report.json").exists(), done.stderr
        return done, read_report(out / "report.json"), out

    return run


def test_its_broken_premise_is_shown_in_every_format_and_violates_every_claim(audit: Run) -> None:
    done, report, out = audit(PREMISE)
    sound, split = report.systems
    sentence = "round 2 of 6 took longer than is declared"
    (row,) = (row for row in sound.checks if row.audit == "clock")
    assert (row.audit, row.subject, row.figure, row.verdict) == ("clock", "rounds", 3.5, Verdict.VIOLATED)
    assert row.reason == sentence
    assert row.reproduce.endswith("--only sound")
    assert sound.claims
    for claim in sound.claims:
        assert (claim.verdict, claim.reason) == (Verdict.VIOLATED, sentence)
    assert not [row for row in split.checks if row.audit == "clock"]
    assert "split: clock: there is no claim that rests on the clock" in report.not_tested
    assert done.returncode == report.exit_code == 1
    assert sentence in " ".join(done.stdout.split())
    for name in ("report.html", "report.md", "junit.xml", "report.sarif"):
        assert sentence in (out / name).read_text("utf-8"), name
    cases = [case.get("name") or "" for case in ET.parse(out / "junit.xml").iter("testcase")]
    assert any("clock" in name for name in cases)


@pytest.mark.parametrize(("p", "verdict"), [("1e-9", Verdict.VIOLATED), ("0.04", Verdict.CONSISTENT)])
def test_its_test_of_a_claim_is_corrected_with_all_others_and_decides(audit: Run, p: str, verdict: Verdict) -> None:
    """The four trials of the two-world audit make two tests with the clock's: 0.04 is no rejection then."""
    done, report, out = audit(TEST.replace("P,", f"{p},"))
    claim = report.systems[0].claims[0]
    (row,) = (row for row in report.systems[0].checks if row.audit == "clock")
    assert (row.audit, row.verdict) == ("clock", verdict)
    assert row.reason.startswith(f"the clock told the worlds apart; tests {claim.where}, p ")
    assert row.reason.endswith("after Holm's correction")
    assert claim.measurements[0].exact, "the exact figure comes first"
    for name in ("report.html", "report.md"):
        assert "exact, this pair" in (out / name).read_text("utf-8"), name
    assert "exact, this pair" in done.stdout
    assert all(row.p_adjusted <= 1.0 for row in claim.measurements[1:])
    refuted = verdict is Verdict.VIOLATED
    assert (claim.verdict is Verdict.VIOLATED) == refuted
    assert ("the clock audit refutes it: the clock told the worlds apart, p = 1.0e-9" in claim.reason) == refuted
    assert all(other.verdict is not Verdict.VIOLATED for other in report.systems[0].claims[1:])
    assert done.returncode == report.exit_code
    assert (report.exit_code == 1) == refuted
    for name in ("report.html", "report.md"):
        assert "the clock told the worlds apart" in (out / name).read_text("utf-8")


METER = """
from pydantic import BaseModel
from vflpriv.core.audit import MU, Audit, Finding
from vflpriv.core.claims import Verdict
from vflpriv.core.systems import Offer

class MeterSettings(BaseModel, frozen=True, extra="forbid"):
    gain: float = 1.0

class Meter(Audit):
    name = "meter"
    summary = "measures what messages tell"
    needs = frozenset({NEEDS})
    settings_type = MeterSettings

    def run(self, source, context):
        sent = len(source.messages)
        return [Finding(audit=self.name, subject="meter", measure=MU, figure=context.settings.gain * 7.77,
                        verdict=Verdict.VIOLATED, sentence=f"the meter read {sent > 0}", claim=claim.key, p_value=1e-12)
                for claim in context.claims]
"""
FORMATS = ("html", "md", "json", "junit", "sarif")


def source_of(kind: str, folder: Path, table: str) -> list[str]:
    """The arguments that name a small source of this kind, with a table of its audit section."""
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "engine":
        (folder / "tiny.toml").write_text(TINY.replace("[system.audit]", f"[system.audit]\n{table}"), encoding="utf-8")
        return ["tiny.toml", "--only", "sound"]
    own = kind.startswith("function")
    done = command_beside(folder, folder, "init", "two-worlds" if own else "split", ".")
    assert done.returncode == 0, done.stderr
    ledger = folder / "ledger.toml"
    ledger.write_text(_with(ledger, table), encoding="utf-8")
    if kind == "function of torch":
        train = folder / "train.py"
        sent = train.read_text("utf-8").replace('{"gradient": noised}', '{"gradient": torch.from_numpy(noised)}')
        train.write_text(sent.replace("import numpy as np", "import numpy as np\nimport torch"), encoding="utf-8")
    if own:
        return ["train.py:train", "--trials", "4"]
    if kind == "script":
        return ["train.py"]
    with installed(folder, folder):
        runpy.run_path("train.py", run_name="__main__")
        end_recordings()
    return ["transcript"]


def _with(ledger: Path, table: str) -> str:
    return f"{ledger.read_text('utf-8')}\n[audit]\n{table}\n"


def metered(tmp_path: Path, kind: str, table: str, needs: str = "Offer.MESSAGES") -> tuple[Report, Path, str]:
    plugin = Plugin(tmp_path / "package", "vflpriv.audits", "Meter", METER.replace("NEEDS", needs))
    arguments = source_of(kind, plugin.folder, table)
    out = tmp_path / "out"
    formats = [word for name in FORMATS for word in ("--format", name)]
    done = plugin.command("audit", *arguments, "--quiet", "--out", str(out), *formats)
    assert (out / "report.json").exists(), done.stderr
    return read_report(out / "report.json"), out, " ".join(done.stdout.split())


@pytest.mark.parametrize("kind", ["engine", "transcript", "function"])
def test_a_measuring_audit_runs_on_every_kind_of_source_and_its_figure_is_in_every_format(
    tmp_path: Path, kind: str
) -> None:
    report, out, printed = metered(tmp_path, kind, "meter = { gain = 1.0 }")
    claim = report.systems[0].claims[0]
    (row,) = (row for row in claim.measurements if row.audit == "meter")
    assert (row.figure, row.measure, row.refutes, claim.verdict) == (7.77, "μ", True, Verdict.VIOLATED)
    assert "μ ≥ 7.770" in printed
    for name in ("report.html", "report.md", "report.junit.xml", "report.sarif"):
        assert "7.77" in (out / name).read_text("utf-8"), name
    assert '"figure": 7.77' in (out / "report.json").read_text("utf-8")


FOLLOWER = """
from vflpriv.audits.flow.observation import observe
from vflpriv.audits.flow.sources import traceable
from vflpriv.core.audit import Audit, Finding
from vflpriv.core.claims import Verdict
from vflpriv.core.systems import Offer

class Meter(Audit):
    name = "meter"
    summary = "looks at the messages of the first rounds"
    needs = frozenset({NEEDS})

    def run(self, source, context):
        followed, claim = traceable(source), context.claims[0]
        pair = followed.traced_pair(claim, 3)
        messages = observe(pair.program(3), followed.traced_view(claim.adversary), followed.seed).messages
        return [Finding(audit=self.name, subject="first rounds", measure="messages", figure=float(len(messages)),
                        verdict=Verdict.CONSISTENT, sentence=f"seen: {sorted({m.state for m in messages})}")]
"""


@pytest.mark.parametrize(
    "kind", ["engine", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("function of torch", "script"))]
)
def test_an_audit_that_follows_programs_is_given_them_by_every_source_that_can_be_traced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setitem(globals(), "METER", FOLLOWER)
    report, _, _ = metered(tmp_path, kind, "flow = false", needs="Offer.TRACE")
    (row,) = (row for row in report.systems[0].evidence.findings if row.audit == "meter")
    assert row.figure > 0
    assert row.sentence.startswith("seen: ['")


@pytest.mark.parametrize("kind", ["engine", "transcript", "function"])
def test_it_can_be_turned_off_on_every_kind_of_source(tmp_path: Path, kind: str) -> None:
    report, _, _ = metered(tmp_path, kind, "meter = false")
    assert not [row for claim in report.systems[0].claims for row in claim.measurements if row.audit == "meter"]
    assert any("meter: turned off by audit.meter = false" in line for line in report.not_tested)


@pytest.mark.parametrize(("table", "runs"), [("", False), ("meter = true", True)])
def test_an_audit_on_request_runs_where_it_is_asked_for_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, runs: bool
) -> None:
    monkeypatch.setitem(
        globals(), "METER", METER.replace("    settings_type", "    on_request = True\n    settings_type")
    )
    report, _, _ = metered(tmp_path, "transcript", table)
    measured = [row.audit for claim in report.systems[0].claims for row in claim.measurements]
    assert ("meter" in measured) is runs
    assert not any("meter:" in line for line in report.not_tested)


def test_what_it_needs_and_a_source_does_not_offer_stands_under_not_tested(tmp_path: Path) -> None:
    report, _, _ = metered(tmp_path, "transcript", "meter = true", needs="Offer.RELEASE_POINTS")
    missing = "it needs release points that a probe can be attached to, which a transcript does not offer here"
    assert any(f"meter: {missing}" in line for line in report.not_tested)


def test_audits_of_all_three_kinds_of_source_are_registered_and_ask_what_a_source_offers(tmp_path: Path) -> None:
    report, _, _ = metered(tmp_path, "function", "meter = true", needs="Offer.WORLDS, Offer.MESSAGES")
    claim = report.systems[0].claims[0]
    assert [row.audit for row in claim.measurements if row.audit != "flow"] == ["two-world", "meter"]
    assert not [line for line in report.not_tested if "a transcript" in line and "does not offer" in line]
    missing = "it needs canaries in labels, whose coins are known, which a training function does not offer here"
    assert any(line.endswith(f"label-coins: {missing}") for line in report.not_tested)


@pytest.mark.parametrize(
    ("kind", "name", "audit"), [("transcript", "label-coins", "one-run"), ("function", "function-trials", "two-world")]
)
@pytest.mark.parametrize("table", [False, True])
def test_coins_and_trials_are_audits_that_a_table_turns_off(
    tmp_path: Path, kind: str, name: str, audit: str, table: bool
) -> None:
    report, _, _ = metered(tmp_path, kind, f"{name} = {str(table).lower()}")
    measured = [row.audit for claim in report.systems[0].claims for row in claim.measurements]
    assert (audit in measured) is table
    off = f"{name}: turned off by audit.{name} = false"
    assert any(off in line for line in report.not_tested) is not table


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("meter = { gian = 2.0 }", "meter.gian = 2.0"),
        ("mater = true", "mater = True"),
    ],
)
def test_wrong_settings_are_one_line(tmp_path: Path, table: str, message: str) -> None:
    plugin = Plugin(tmp_path / "package", "vflpriv.audits", "Meter", METER.replace("NEEDS", "Offer.MESSAGES"))
    for kind in ("engine", "transcript"):
        done = plugin.command(
            "audit", *source_of(kind, plugin.folder, table), "--quiet", "--out", str(tmp_path / "out")
        )
        assert done.returncode == 2
        assert message in done.stderr
