"""report.json is the source of every other format: it comes back whole, and in the same bytes."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from vflpriv.core.claims import Verdict
from vflpriv.errors import InputError
from vflpriv.experiments.curves import LearningCurve
from vflpriv.render.shared import banner, best_attack
from vflpriv.report.audit import Report, read_report, write_atomically


def test_round_trip_in_the_same_bytes(report: Report, hostile: Report, tmp_path: Path) -> None:
    for one in (report, hostile):
        path = tmp_path / "report.json"
        write_atomically(path, one.to_json())
        back = read_report(path)
        assert back == one
        assert back.to_json() == one.to_json()
        assert list(tmp_path.iterdir()) == [path]


def test_infinities_are_valid_json_and_come_back(report: Report) -> None:
    def refuse(name: str) -> float:
        raise AssertionError(f"{name} is not JSON")

    json.loads(report.to_json(), parse_constant=refuse)
    model = Report.model_validate_json(report.to_json()).systems[0].claims[2]
    assert math.isinf(model.accounted.epsilon_upper)
    assert math.isinf(model.measurements[0].mu_accounted or 0)


def test_a_broken_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text('{"seed": "seven"}', encoding="utf-8")
    with pytest.raises(InputError, match="report"):
        read_report(path)
    with pytest.raises(InputError, match="readable"):
        read_report(tmp_path / "none.json")


def test_the_verdict_in_a_sentence(report: Report, small: Report) -> None:
    assert banner(report) == "2 of 5 claims are violated"
    assert banner(small) == "The claim is violated"
    dpzv, joint, split = report.systems
    alone = {
        "1 of 2 claims is consistent with what was measured": joint,
        "No claim to check": split,
        "1 of 2 claims is unsupported": dpzv.model_copy(
            update={"claims": (dpzv.claims[2], joint.claims[0]), "checks": ()}
        ),
        "The claim is unmeasured: only the ledger speaks for it": joint.model_copy(
            update={"claims": (joint.claims[0].model_copy(update={"verdict": Verdict.UNMEASURED}),)}
        ),
        "A premise is broken: sensitivity of scalar, clip = paper (dpzv)": dpzv.model_copy(
            update={"claims": (dpzv.claims[2], joint.claims[0])}
        ),
        "The claim is not applicable": joint.model_copy(update={"claims": joint.claims[1:]}),
    }
    for sentence, system in alone.items():
        assert banner(report.model_copy(update={"systems": (system,)})) == sentence
    assert report.verdict is Verdict.VIOLATED


def test_a_broken_premise_is_named_where_there_is_no_claim(report: Report) -> None:
    dpzv = report.systems[0].model_copy(update={"claims": ()})
    lone = report.model_copy(update={"systems": (dpzv,)})
    assert lone.verdict is Verdict.VIOLATED
    assert lone.headline == "no claim to check; broken premise: sensitivity of scalar, clip = paper (dpzv)"


def test_a_trusted_ledger_is_said(report: Report) -> None:
    joint = report.systems[1]
    claim = joint.claims[0].model_copy(update={"verdict": Verdict.UNMEASURED})
    systems = (joint.model_copy(update={"claims": (claim,)}),)
    trusted = report.model_copy(update={"systems": systems, "ledger_trusted": True})
    assert banner(trusted) == "The claim is unmeasured: only the ledger speaks for it, which was trusted"
    assert trusted.headline == "1 claim checked: 1 unmeasured; the ledger was trusted"


def test_the_measurement_that_stands_for_a_claim(report: Report) -> None:
    dpzv, joint, split = report.systems
    best = dpzv.claims[0].deciding
    assert best is not None
    assert best.subject == "worst-case"
    assert joint.claims[1].deciding is None
    attack = best_attack(split)
    assert attack is not None
    assert attack.success == 1.0
    assert best_attack(split.model_copy(update={"attacks": ()})) is None


def test_lists_of_numbers_are_on_one_line_and_texts_stay_as_they_are() -> None:
    curve = LearningCurve(
        seed=0,
        rounds=(5, 10),
        accuracy=(float(torch.tensor(0.9)), 1e-12),
        megabytes=(1e-30, float("inf")),
        unmet=("[ 1,\n 2 ]",),
    )
    text = curve.to_json()
    assert '"rounds": [5, 10],' in text
    assert '"accuracy": [0.9, 0.0],' in text
    assert '"megabytes": [\n' in text  # infinity is a text
    assert LearningCurve.model_validate_json(text) == curve


def test_a_report_of_version_2_is_read_with_its_sensitivities_among_the_checks(report: Report, tmp_path: Path) -> None:
    older = json.loads(report.to_json())
    older["schema_version"] = "vflpriv-report/2"
    rows = [
        {"mechanism": "delta", "unit": "label", "declared": 1.0, "observed": 2.0, "searched": 512, "witness": "5 and 3",
         "holds": holds, "replay": "vflpriv replay a.json"}
        for holds in (True, False)
    ]  # fmt: skip
    for system in older["systems"]:
        system["sensitivity"] = rows
        system["checks"] = [
            {name: value for name, value in check.items() if name not in ("measure", "limit")}
            for check in system["checks"]
        ]
    path = tmp_path / "report.json"
    path.write_text(json.dumps(older), encoding="utf-8")
    read = read_report(path)
    for before, system in zip(report.systems, read.systems, strict=True):
        first, second, *others = system.checks
        assert (first.verdict, second.verdict) == (Verdict.CONSISTENT, Verdict.VIOLATED)
        assert (second.figure, second.limit, second.reproduce) == (2.0, 1.0, "vflpriv replay a.json")
        assert second.reason == "512 pairs of neighbours moved by 2.0 at most, 1.0 is declared (5 and 3)"
        assert [check.reason for check in others] == [check.reason for check in before.checks]
    assert read_report(read.save(tmp_path / "again")[0].parent / "report.json") == read
    older["schema_version"] = "vflpriv-report/1"
    path.write_text(json.dumps(older), encoding="utf-8")
    with pytest.raises(InputError, match="schema_version"):
        read_report(path)
