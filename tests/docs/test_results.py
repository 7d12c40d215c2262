"""Pages that are rendered from committed results: what the files render to, whether there are none or several."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from tests.docs.blocks import blocks
from tools.docs_markdown import part
from tools.docs_results import (
    RESULTS,
    adaptive_marvell,
    frontier_page,
    pictures,
    reproductions_page,
    stored,
    with_curves,
    write_pages,
)
from vflpriv.cli.options import assignments
from vflpriv.experiments.curves import LearningCurve, Try
from vflpriv.experiments.frontier.profile import load_frontier
from vflpriv.experiments.frontier.result import Entry, FrontierReport, Point
from vflpriv.experiments.reproduce.profile import load_profile, profile_names
from vflpriv.experiments.reproduce.result import Figure, Reproduction, TrainedLine
from vflpriv.report.attacks import AttackReport

ROOT = RESULTS.parents[1]
DOCS = ROOT / "docs"
LARGEST = 120_000
CURVE = LearningCurve(seed=0, rounds=(1, 2), accuracy=(0.5, 0.75), megabytes=(1.0, 2.0))


def table() -> Reproduction:
    figure = Figure(measure="accuracy", paper=80.0, values=(75.0,), mean=75.0, low=75.0, high=75.0)
    line = TrainedLine(key="a", title="Row A", engine="split", settings={}, figures=(figure,), curves=(CURVE,))
    return Reproduction(
        tool_version="1",
        name="cascaded-table-2",
        title="Table II",
        source="A paper",
        setting="",
        chosen="as printed",
        command="vflpriv reproduce cascaded-table-2",
        versions={"vflpriv": "1"},
        hardware={"machine": "m", "cores": 2},
        seed=0,
        seeds=1,
        quick=False,
        confidence=0.95,
        target=None,
        data={"name": "digits"},
        lines=(line,),
    )


def frontier(*, points: bool = True) -> FrontierReport:
    tried = (Try(settings={}, accuracy=0.7),) if points else ()
    best = Point(
        epsilon=1.0,
        accounted=1.0,
        key="a",
        title="a way",
        engine="split",
        settings={},
        mean=0.72,
        low=0.7,
        high=0.74,
        curves=(CURVE, CURVE),
        tuning_runs=None,
    )
    return FrontierReport(
        tool_version="1",
        command="vflpriv frontier --set data.name=digits",
        versions={"vflpriv": "1"},
        hardware={"machine": "m", "cores": 2},
        seed=0,
        seeds=2,
        confidence=0.95,
        data={"name": "digits"},
        unit="record",
        view="devices(all)",
        delta=1e-5,
        validation=9,
        entries=(Entry(key="a", title="a way", epsilon=1.0, tried=tried, refusal=None if points else "no noise"),),
        points=(best,) if points else (),
    )


@pytest.mark.parametrize("name", ["reproductions.md", "frontier.md"])
def test_pages_are_what_the_committed_results_render_to(name: str) -> None:
    pages = {
        "reproductions.md": lambda: reproductions_page(stored(Reproduction)),
        "frontier.md": lambda: frontier_page(stored(FrontierReport)),
    }
    assert (DOCS / name).read_text("utf-8") == pages[name](), "run `make results`"


def test_each_frontier_has_its_picture_and_no_other_is_there() -> None:
    """Each is what its result is drawn as."""
    drawn = pictures(stored(FrontierReport))
    assert {path.name: path.read_text("utf-8") for path in (DOCS / "pictures").glob("frontier-*.svg")} == drawn


def test_committed_results_are_small_and_name_a_profile_that_is_there() -> None:
    for name, report in stored(Reproduction).items():
        words = shlex.split(report.command)
        assert (words[:2], words[2], name) == (["vflpriv", "reproduce"], report.name, f"reproduce-{report.name}")
        assert report.name in profile_names()
        assert {line.key for line in report.lines} <= {row.key for row in load_profile(report.name).row}
    for name, best in stored(FrontierReport).items():
        words = shlex.split(best.command)
        source = ROOT / words[2] if len(words) > 2 and not words[2].startswith("-") else None
        config = load_frontier(source, assignments([value for option, value in pairwise(words) if option == "--set"]))
        asked = (config.data.name, config.unit.value, config.view, config.delta, config.seeds, config.seed)
        assert asked == (best.data["name"], best.unit, best.view, best.delta, best.seeds, best.seed), name
    for path in (*RESULTS.glob("reproduce-*.json"), *RESULTS.glob("frontier-*.json")):
        assert path.stat().st_size <= LARGEST, path.name


@pytest.mark.parametrize("name", sorted(stored(Reproduction)))
def test_a_committed_result_is_what_its_profile_asks_for_today(name: str) -> None:
    """Its command would train the same rows with the same settings, and explain them in the same words."""
    report = stored(Reproduction)[name]
    profile = load_profile(report.name)
    for field in ("title", "source", "setting", "chosen", "target"):
        assert getattr(report, field) == getattr(profile, field), field
    share = None if report.share == 1 else report.share
    for line in report.lines:
        row = next(row for row in profile.row if row.key == line.key)
        assert line.explained == row.explained, line.key
        config = profile.config(row, {}, seed=0, quick=report.quick, share=share, device="cpu")
        tried = {setting for each in profile.tried_by(row).tries for setting in each}
        given = {key: value for key, value in config.system[0].engine.items() if key not in {"name", *tried}}
        asked = {key: value for key, value in given.items() if not isinstance(value, dict)}
        assert {key: line.settings[key] for key in asked} == json.loads(json.dumps(asked)), line.key


@pytest.mark.parametrize("rounds", [60, 240])
def test_what_marvell_leaves_is_a_result_of_the_command_beside_it(rounds: int) -> None:
    text = (DOCS / "attack.md").read_text("utf-8")
    assert part(text, "marvell") == adaptive_marvell() + "\n", "run `make results`"
    asked = next(tomllib.loads(block.text) for block in blocks(text) if block.name == "adaptive.toml")
    result = AttackReport.model_validate_json((RESULTS / f"adaptive-marvell-{rounds}.json").read_bytes())
    (knowing,) = [cell for cell in result.cells if cell.defence == "marvell" and cell.attack == "label_rounds"]
    assert knowing.low is not None
    assert (knowing.low > 0) == (rounds == 240), "the text says that fewer rounds do not tell labels"
    assert result.data["name"] == asked["data"]["name"]
    assert {trained.defence for trained in result.trained} == {"none", *asked["attack"]["defences"]}
    for trained in result.trained:
        wanted = {**asked["engine"], "rounds": rounds}
        assert trained.engine == wanted.pop("name")
        assert {name: trained.settings[name] for name in wanted} == wanted


def test_pages_without_results_say_so() -> None:
    for page in (reproductions_page({}), frontier_page({})):
        assert page.startswith("# ")
        assert page.endswith("No result is stored yet.\n")


def test_pages_are_written_from_the_files_alone(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "frontier-old.svg").write_text("", encoding="utf-8")
    for name, report in {
        "reproduce-a": table(),
        "frontier-a": frontier(),
        "frontier-b": frontier(points=False),
    }.items():
        (tmp_path / f"{name}.json").write_text(report.model_dump_json(), encoding="utf-8")
    write_pages(tmp_path, tmp_path)
    tables, best = ((tmp_path / name).read_text("utf-8") for name in ("reproductions.md", "frontier.md"))
    assert "| Row A | test accuracy, % | 80.00 | 75.00 | one seed | -5.00 | not explained |" in tables
    assert (
        "- Table II: 0 of 1 printed percentages are reached within a point; 1 row differs for no known reason.\n"
        in tables
    )
    assert "```sh\nvflpriv reproduce cascaded-table-2\n```" in tables
    assert "`reproduce-a.json`: vflpriv 1, on m with 2 cores, seed 0." in tables
    assert best.index("At ε = 1 use a way: 72.0 %") < best.index("(pictures/frontier-a.svg)") < best.index("no noise")
    assert "frontier-b.svg" not in best
    assert "seeds 0 to 1." in best
    assert [path.name for path in (tmp_path / "pictures").iterdir()] == ["frontier-a.svg"]
    said = (tmp_path / "pictures" / "frontier-a.svg").read_text("utf-8")
    assert said.startswith("<svg ")
    assert "at ε = 1 a way reaches 72.0 %" in said


def test_curves_are_drawn_where_the_page_has_a_place_for_them(tmp_path: Path) -> None:
    (tmp_path / "reproduce-a.json").write_text(table().model_dump_json(), encoding="utf-8")
    page = with_curves(reproductions_page({"reproduce-a": table()}), tmp_path / "pictures", tmp_path)
    assert "<!--" not in page
    linked = re.findall(r"!\[Test accuracy[^\]]*\]\(pictures/([\w.-]+)\)", page)
    assert linked == ["reproduce-a-0.svg", "reproduce-a-1.svg"]
    assert all((tmp_path / "pictures" / name).read_text("utf-8").startswith("<svg ") for name in linked)
    assert with_curves("no place", tmp_path) == "no place"
