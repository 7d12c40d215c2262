"""No link of the documentation leads nowhere, the README's and the generated pages' included."""

from __future__ import annotations

import pytest

from tests.docs.blocks import ROOT
from tests.docs.links import anchors, broken
from tools.docs_source import sources


def test_no_link_leads_nowhere():
    top = {path.name: path.read_text("utf-8") for path in ROOT.glob("*.md")}
    assert not list(broken({**top, **{f"docs/{name}": text for name, text in sources().items()}}, ROOT))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[a](b.md)", []),
        ("[a](b.md#a-title)", []),
        ("[a](#here)\n\n# Here", []),
        ("![a](picture.png)", []),
        ("[a](https://example.org/nothing)", []),
        ("[a](c.md)", ["docs/a.md: c.md"]),
        ("[a](b.md#titles)", ["docs/a.md: b.md#titles"]),
        ("[a](#there)\n\n# Here", ["docs/a.md: #there"]),
        ("| a |\n|---|\n| ![a](no.png) |", ["docs/a.md: no.png"]),
    ],
)
def test_a_link_that_leads_nowhere_is_found(tmp_path, text, found):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "picture.png").touch()
    assert list(broken({"docs/a.md": text, "docs/b.md": "# A title"}, tmp_path)) == found


def test_headings_are_named_as_the_pages_name_them():
    text = "# Is `x` (A, B) – 1?\n\n## Again\n\n## Again\n\n```sh\n# no heading\n```"
    assert anchors(text) == ["is-x-a-b--1", "again", "again-1"]
