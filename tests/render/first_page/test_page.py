"""The page that is signed answers what was claimed, whether it is true, how sure that is, what was not looked at, and
what must change."""

from __future__ import annotations

import json

import pytest

from tests.report.examples import NOISE, build, dpzv, joint, split
from tests.report.rows import budget, claim
from vflpriv.core.claims import SEVERITY, Verdict
from vflpriv.render.first_page.grounds import checked, risks, trusted
from vflpriv.render.first_page.page import FirstPage, meaning
from vflpriv.render.markdown import written_blocks
from vflpriv.render.results.findings import findings, shortened
from vflpriv.report.audit import ChangeRow, CheckRow, Report, SuccessClaimRow


def test_findings_come_worst_first_and_passed_claims_apart(report: Report) -> None:
    page = FirstPage(report)
    verdicts = [SEVERITY.index(group.verdict) for group in page.findings]
    assert verdicts == sorted(verdicts)
    shown = [line.claim.key for group in page.findings for line in group.lines]
    assert sorted(shown) == ["dpzv-model", "dpzv-vi5-device", "dpzv-vi5-devices"]
    assert page.passed_summary == "1 consistent, 1 not applicable: joint-device, joint-outsider"
    assert [title for _, title, _ in page.unclaimed] == ["Split learning without noise"]


def test_claims_that_the_same_settings_mend_share_the_change() -> None:
    change = (ChangeRow(sentence=NOISE, settings={"noise_std": 5.633}),)
    other = (ChangeRow(sentence="Calibrate the noise for secret batches.", settings={"noise_std": 5.633}),)
    claims = (
        claim("a", budget("model", None), Verdict.UNSUPPORTED, changes=other),
        claim("b", budget("device", None), Verdict.VIOLATED, changes=change),
        claim("c", budget("server", None), Verdict.VIOLATED, changes=(ChangeRow(sentence="Send less."),)),
    )
    (system,) = build(dpzv().model_copy(update={"claims": claims, "checks": ()})).systems
    first, second = FirstPage(build(system)).findings
    assert [line.claim.key for line in first.lines] == ["b", "a"]
    assert (first.verdict, first.changes, first.scope) == (Verdict.VIOLATED, (NOISE,), "for all 2")
    assert (second.changes, second.scope) == (("Send less.",), "")


def test_a_broken_premise_is_a_finding_once_and_only_where_no_claim_names_it() -> None:
    def premises(system: object) -> list[str]:
        return [group.premise for group in FirstPage(build(system)).findings if not group.lines]

    assert premises(dpzv()) == ["sensitivity of scalar, clip = paper: min{δ, C} has no lower bound: δ = −1e6 passes"]
    named = tuple(c.model_copy(update={"broken": ("sensitivity of scalar, clip = paper",)}) for c in dpzv().claims)
    assert premises(dpzv().model_copy(update={"claims": named})) == []
    words = {"audit": "noise", "subject": "scalar", "unit": "", "figure": 0.5, "reproduce": ""}
    check = CheckRow(**words, verdict=Verdict.VIOLATED, reason="half of it", changes=(ChangeRow(sentence="Add it."),))
    found = FirstPage(build(split().model_copy(update={"checks": (check, check)}))).findings
    assert [(group.premise, group.changes) for group in found] == [("noise of scalar: half of it", ("Add it.",))]


@pytest.mark.parametrize(
    ("verdict", "fields", "sentence"),
    [
        (Verdict.VIOLATED, {"broken": ("noise of scalar",)}, "The claim rests on the noise of scalar, which does not"),
        (Verdict.VIOLATED, {"reason": "coins were guessed"}, "Refuted: coins were guessed."),
        (Verdict.UNSUPPORTED, {}, "Nothing was tested, and nothing useful bounds what any one device can learn of one"),
        (Verdict.UNMEASURED, {}, "The number follows from the ledger; nothing measured whether"),
        (Verdict.CONSISTENT, {}, "The accounted bound is within the claim"),
        (Verdict.NOT_APPLICABLE, {"reason": "the server holds the labels"}, "The question does not arise: the server"),
    ],
)
def test_every_verdict_has_a_plain_sentence(verdict: Verdict, fields: dict[str, object], sentence: str) -> None:
    assert meaning(claim("c", budget("device", None), verdict, **fields)).startswith(sentence)


def test_a_claim_about_an_attack_has_one_too() -> None:
    row = SuccessClaimRow(
        key="k", source="s", where="w", statement="t", unit="label", adversary="device", attack="label_batch", rate=0.2,
        success=0.9, low=0.8, high=1.0, chance=0.1, guesses=10, p_adjusted=0.0, verdict=Verdict.VIOLATED, reason="",
        reproduce="",
    )  # fmt: skip
    assert meaning(row) == "label_batch is right in 90.0 % of its guesses; at most 20.0 % is claimed."
    assert "Nobody measured" in meaning(row.model_copy(update={"success": None}))


def test_what_verdicts_rest_on_is_counted(report: Report) -> None:
    page = FirstPage(report)
    assert checked(page.report)[0] == "4 claims tested by trials in two worlds, up to 2 × 400 each: 2 refuted"
    assert "sensitivity, 2 checks: 1 consistent, 1 violated" in checked(page.report)
    assert "every party follows the protocol, and learns what it can from what it sees" in trusted(page.report)
    assert "the noise: Philox4x32-10 from the seed 7" in trusted(page.report)
    assert not any("devices(all)" in line for line in trusted(page.report))
    assert risks(page.report)[0] == "3 claims protect nobody until the changes above are made and audited again"
    assert any(line.startswith("joint-device: not refuted is not proven") for line in risks(page.report))
    assert any(line.startswith("split: label_gradient (device(0)) gets 100.0 %") for line in risks(page.report))


def test_long_lists_end_with_how_many_more_there_are() -> None:
    assert shortened(["a"] * 6) == ["a"] * 6
    assert shortened([str(n) for n in range(9)])[4:] == ["4", "and 4 more, in the sections below"]


def test_markdown_says_the_same(report: Report) -> None:
    text = "\n\n".join(written_blocks(findings(FirstPage(report))))
    assert text.index("**violated**") < text.index("**unsupported**") < text.index("**consistent**")
    assert "<details><summary>1 consistent, 1 not applicable: joint-device, joint-outsider</summary>" in text
    assert "noise\\_std 1.2 → 5.633" in text
    assert "date 2026-11-17, seed 7, configuration 0123456789abcdef (SHA-256)" in text
    assert text.count("<details>") == text.count("</details>") == 2


def test_older_reports_are_read_and_say_what_they_lack(report: Report) -> None:
    values = json.loads(report.to_json())
    for name in ("fingerprints", "date"):
        del values[name]
    for one in (c for s in values["systems"] for c in s["claims"]):
        del one["changes"], one["broken"]
    old = Report.model_validate(values)
    assert FirstPage(old).findings[0].changes == ("Not computed in this report: audit again with this version.",)
    assert "date not given, seed 7" in "\n\n".join(written_blocks(findings(FirstPage(old))))


def test_a_report_without_findings_says_so() -> None:
    page = FirstPage(build(joint()))
    assert (page.findings, len(page.passed)) == ([], 2)
