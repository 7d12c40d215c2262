"""Sentences of the papers: each names a committed result or says why there is none, and verdicts follow figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.docs.test_results import DOCS, RESULTS
from tools.docs_markdown import PAPERS
from tools.docs_sentences import (
    CONFIRMED,
    CONTRADICTED,
    NOT_COMPARABLE,
    NOT_RUN,
    UNDECIDED,
    Sentence,
    find,
    sentences,
    verdicts_page,
)
from vflpriv.experiments.curves import LearningCurve
from vflpriv.experiments.reproduce.result import Figure, Reproduction, TrainedLine


def line(
    key: str, *values: float | None, low: float = 0.0, high: float = 100.0, measure: str = "accuracy"
) -> TrainedLine:
    """A row with one figure, whose curve is at 50 and 75 % after one and two rounds, 10 rounds later for `late`."""
    known = [value for value in values if value is not None]
    average = sum(known) / len(known) if known else None
    figure = Figure(measure=measure, paper=None, values=values, mean=average, low=low, high=high)
    rounds = (11, 12) if key == "late" else (1, 2)
    curves = tuple(LearningCurve(seed=i, rounds=rounds, accuracy=(0.5, 0.75), megabytes=()) for i in range(len(values)))
    return TrainedLine(key=key, title=key, engine="split", settings={}, figures=(figure,), curves=curves)


def stored(folder: Path, *lines: TrainedLine, quick: bool = False) -> Path:
    template = json.loads((RESULTS / "reproduce-dpzv-figure-7.json").read_text("utf-8"))
    seeds = len(lines[0].figures[0].values)
    report = Reproduction(**template | {"lines": lines, "seeds": seeds, "quick": quick})
    (folder / "reproduce-made.json").write_text(report.model_dump_json(), encoding="utf-8")
    return folder


def verdict(folder: Path, check: str, **settings: object) -> str:
    sentence = Sentence(
        paper="DPZV", place="", says="", confirms="", check=check, settings={"result": "made", **settings}
    )
    return find(sentence, folder).verdict


def test_the_page_is_what_the_file_says() -> None:
    assert (DOCS / "papers-verdicts.md").read_text("utf-8") == verdicts_page(), "run `make results`"


def test_every_sentence_names_a_result_a_claim_or_a_reason() -> None:
    listed = sentences()
    assert {sentence.paper for sentence in listed} == set(PAPERS)
    for sentence in listed:
        settings = sentence.settings
        assert sentence.says.endswith("."), sentence
        name = settings.get("result", settings.get("printed"))
        prefix = "attacks" if sentence.check == "attack" else "reproduce"
        if name is not None:
            assert (RESULTS / f"{prefix}-{name}.json").exists(), sentence
        elif sentence.check == "not_run":
            assert len(settings["not_run"].split()) > 4, sentence
        else:
            assert sentence.check in ("claim", "memory"), sentence


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [(80.0, 70.0, CONFIRMED), (70.0, 80.0, CONTRADICTED), (80.0, 79.5, UNDECIDED), (79.5, 80.0, UNDECIDED)],
)
def test_single_trainings_differ_by_more_than_a_point(tmp_path: Path, a: float, b: float, expected: str) -> None:
    folder = stored(tmp_path, line("a", a), line("b", b))
    assert verdict(folder, "higher", higher=[["a"], ["b"]]) == expected
    assert verdict(folder, "lower", lower=[["b"], ["a"]]) == expected


@pytest.mark.parametrize(("low", "expected"), [(70.5, CONFIRMED), (69.5, UNDECIDED)])
def test_several_trainings_differ_by_their_intervals(tmp_path: Path, low: float, expected: str) -> None:
    a, b = line("a", 71.0, 71.0, low=low, high=72.0), line("b", 69.0, 69.0, low=68.0, high=70.0)
    assert verdict(stored(tmp_path, a, b), "higher", higher=[["a"], ["b"]]) == expected


def test_one_row_that_goes_the_other_way_contradicts(tmp_path: Path) -> None:
    folder = stored(tmp_path, line("a", 80.0), line("b", 70.0), line("c", 90.0))
    assert verdict(folder, "higher", higher=[["a"], ["b", "c"]]) == CONTRADICTED


def test_never_reached_is_more_than_any_amount(tmp_path: Path) -> None:
    never, soon = line("a", None, measure="megabytes"), line("b", 100.0, measure="megabytes")
    folder = stored(tmp_path, never, soon)
    assert verdict(folder, "lower", lower=[["b"], ["a"]], measure="megabytes") == CONFIRMED
    assert verdict(folder, "lower", lower=[["a"], ["b"]], measure="megabytes") == CONTRADICTED


def test_rows_may_be_near_kept_reached_or_sooner(tmp_path: Path) -> None:
    folder = stored(tmp_path, line("a", 80.0), line("b", 78.5), line("late", 80.0))
    assert verdict(folder, "near", near=["a", "b"], within=2.0) == CONFIRMED
    assert verdict(folder, "near", near=["a", "b"], within=1.0) == CONTRADICTED
    assert verdict(folder, "keeps", keeps=[["b"], ["a"]], within=2.0) == CONFIRMED
    assert verdict(folder, "keeps", keeps=[["b"], ["a"]], within=1.0) == CONTRADICTED
    assert verdict(folder, "keeps", keeps=[["a"], ["b"]], within=0.0) == CONFIRMED
    assert verdict(folder, "least", least=["a"], value=80.0) == CONFIRMED
    assert verdict(folder, "least", least=["b"], value=80.0) == CONTRADICTED
    assert verdict(folder, "sooner", sooner=[["a"], ["late"]], share=0.75) == CONFIRMED
    assert verdict(folder, "sooner", sooner=[["late"], ["a"]], share=0.75) == CONTRADICTED
    assert verdict(folder, "sooner", sooner=[["a"], ["b"]], share=0.75) == UNDECIDED
    assert verdict(folder, "sooner", sooner=[["a"], ["late"]], share=0.9) == UNDECIDED


def test_quick_looks_and_reasons_decide_nothing(tmp_path: Path) -> None:
    folder = stored(tmp_path, line("a", 80.0), line("b", 70.0), quick=True)
    assert verdict(folder, "higher", higher=[["a"], ["b"]]) == NOT_COMPARABLE
    folder = stored(tmp_path, line("a", 80.0), line("b", 70.0))
    assert verdict(folder, "higher", higher=[["a"], ["b"]], not_comparable="b diverged") == NOT_COMPARABLE
    assert verdict(folder, "not_run", not_run="nobody has the data") == NOT_RUN


def test_a_sentence_with_two_checks_is_refused(tmp_path: Path) -> None:
    (tmp_path / "made.toml").write_text(
        '[[sentence]]\npaper = "DPZV"\nplace = ""\nsays = "x"\nconfirms = ""\nnear = []\nnot_run = "y"\n',
        encoding="utf-8",
    )
    with pytest.raises(ValueError, match="Expected one of"):
        sentences(tmp_path / "made.toml")
