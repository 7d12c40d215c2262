"""The gallery of example reports: what makes them, and what the page shows of them."""

from __future__ import annotations

import pytest

from tests.docs.blocks import blocks
from tools.docs_gallery import EXAMPLES, FOLDER, STORED, Example, gallery_page, write_gallery

MAKE = "from pathlib import Path\nPath('report.html').write_text('<p>made')\nraise SystemExit({code})\n"


def example(code: int) -> Example:
    files = {"make.py": MAKE.format(code=code)}
    return Example(key="made", title="", shows="", commands=("python make.py",), report="report.html", files=files)


def test_commands_make_a_report_and_results_are_drawn(tmp_path):
    write_gallery(tmp_path / FOLDER, [example(1)], ["frontier-mnist-record"])
    pages = {path.name: path.read_text("utf-8") for path in (tmp_path / FOLDER).iterdir()}
    assert sorted(pages) == ["frontier-mnist-record.html", "made.html"]
    assert pages["made.html"] == "<p>made"
    assert "97.1" in pages["frontier-mnist-record.html"]


def test_a_command_that_fails_is_named(tmp_path):
    with pytest.raises(RuntimeError, match=r"made: 'python make.py' ended with 2"):
        write_gallery(tmp_path, [example(2)], [])


def test_the_page_shows_every_report_with_its_commands():
    page = gallery_page()
    for key in (*(one.key for one in EXAMPLES), *STORED):
        assert f'<iframe src="{FOLDER}/{key}.html"' in page
        assert f'<a href="{FOLDER}/{key}.html">' in page
    shown = [line for block in blocks(page) if block.language == "sh" for line in block.text.splitlines()]
    assert shown[: len(shown) - len(STORED)] == [command for one in EXAMPLES for command in one.commands]
