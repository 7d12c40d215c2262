"""An audit of another package: one class behind an entry point is run, reported in every format, and decides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from xml.etree import ElementTree as ET

import pytest

from tests.seams.plugins import Plugin
from tests.tiny import TINY
from vflpriv.core.claims import Verdict
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
    assert claim.measurements[0].p_adjusted <= 1.0
    refuted = verdict is Verdict.VIOLATED
    assert (claim.verdict is Verdict.VIOLATED) == refuted
    assert ("the clock audit refutes it: the clock told the worlds apart, p = 1.0e-9" in claim.reason) == refuted
    assert all(other.verdict is not Verdict.VIOLATED for other in report.systems[0].claims[1:])
    assert done.returncode == report.exit_code
    assert (report.exit_code == 1) == refuted
    for name in ("report.html", "report.md"):
        assert "the clock told the worlds apart" in (out / name).read_text("utf-8")
