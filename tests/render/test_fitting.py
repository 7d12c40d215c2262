"""A terminal of 80 columns: no name is folded in what any command prints, and no line is wider."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

import vflpriv
from tests.report.attack_report import attack_report, cell
from tests.report.rows import utility
from vflpriv.common.registry import available
from vflpriv.experiments.frontier.result import FrontierReport
from vflpriv.experiments.reproduce.result import Reproduction
from vflpriv.render.console import Writer
from vflpriv.render.fitting import ColumnWidths
from vflpriv.render.terminal import print_result
from vflpriv.report.audit import Report, Staleness, Traffic
from vflpriv.report.rows import read_row
from vflpriv.report.train import TrainReport, TrainRow

RESULTS = sorted((Path(__file__).parents[2] / "benchmarks" / "results").glob("[fr]*.json"))


def printed(show: Callable[[Console], None], width: int) -> str:
    file = io.StringIO()
    show(Console(file=file, width=width, color_system=None, _environ={}))
    return file.getvalue()


def check(show: Callable[[Console], None]) -> str:
    """Every word at 80 columns is one at 400, so none was broken."""
    text = printed(show, 80)
    words = {word for word in text.split() if set(word) != {"─"}}
    assert words - set(printed(show, 400).split()) == set()
    assert max(cell_len(line) for line in text.split("\n")) <= 80
    return text


def test_audit(report: Report) -> None:
    assert "dpzv-vi5-devices" in check(lambda console: print_result(report, console))


def test_train() -> None:
    stale = Staleness(reads=1000, never_sent=0.25, median=3, largest=17)
    traffic = Traffic(up=576_000_000, down=1_738_510_000, ids=0, messages={})
    names = ("cascaded-published-with-noise", "split")
    rows = tuple(
        TrainRow(
            key=key, title=key, engine="syn-zoo-vfl", settings={}, rounds=100_000, parameters=1, utility=utility(0.873),
            traffic=traffic, staleness=stale, auc=0.9, seconds=1234.5,
        )
        for key in names
    )  # fmt: skip
    report = TrainReport(tool_version="0", seed=0, confidence=0.95, data={}, systems=rows)
    text = check(lambda console: print_result(report, console))
    assert text.count("cascaded-published-with-noise") > 1
    assert "2.3026 → 0.4127" in text


def test_account() -> None:
    accounts = vflpriv.account(only=("dpzv-published", "split-sum"))
    text = check(lambda console: print_result(accounts, console))
    assert "dpzv-embeddings" in text
    assert "no useful bound" in text


def test_attack() -> None:
    """Every attack on a system and under a defence with long names."""
    report, names = attack_report(), list(available("attack"))
    words = {"system": "cascaded-published", "defence": "gradient-noise (noise_std 0.01)"}
    features = [
        report.features[0].model_copy(update={"attack": name, **words}) for name in names if name.startswith("feature_")
    ]
    cells = [cell(name, 0.5, **words) for name in names if name.startswith("label_")]
    trained = tuple(row.model_copy(update=words) for row in report.trained[:1])
    update = {"cells": (*report.cells, *cells), "features": tuple(features), "trained": (*report.trained, *trained)}
    text = check(lambda console: print_result(report.model_copy(update=update), console))
    assert text.count("cascaded-published,") > 1


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_frontier_and_reproduce(path: Path) -> None:
    if path.stem.startswith("frontier"):
        best = read_row(FrontierReport, path, "frontier.json")
        check(lambda console: print_result(best, console))
    else:
        reproduction = read_row(Reproduction, path, "reproduction.json")
        check(lambda console: print_result(reproduction, console))


def test_columns_that_do_not_fit_go_into_a_second_table() -> None:
    rows = [("a-long-name-of-a-system", *(f"{n}.{n}{n}" for n in range(1, 7)))]
    columns = ["system", *(f">a-long-head-{n}" for n in range(6))]
    text = printed(lambda console: Writer(console).table("T", columns, rows), 60)
    assert text.count("a-long-name-of-a-system") == 3
    assert all(f"a-long-head-{n}" in text for n in range(6))


def test_a_word_wider_than_half_the_terminal_is_folded_after_all() -> None:
    assert ColumnWidths.of(["x" * 100], rigid=False, most=40).least == 40
    text = printed(lambda console: Writer(console).table("T", "name;>n", [("x" * 100, "1")]), 60)
    assert text.count("x") == 100
    assert max(map(len, text.split("\n"))) <= 60
