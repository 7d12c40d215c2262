"""The documentation site: what is generated, its navigation and, where Sphinx is installed, the whole of it."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.docs.blocks import ROOT
from tests.docs.links import anchors
from tools.docs_markdown import PAPERS
from tools.docs_pages import TRIALS, filled, pages, power_rows
from tools.docs_source import navigation, sources, write_source
from vflpriv.audits.statistics.power import power_gdp
from vflpriv.cli.lists import LISTED
from vflpriv.common.registry import available
from vflpriv.config.models import AuditConfig


@pytest.fixture(scope="module")
def generated() -> dict[str, str]:
    return pages()


def test_there_is_a_page_for_everything_that_is_registered(generated):
    for kind in LISTED:
        for name, item in available(kind).items():
            page = generated[f"{kind}s/{name}.md"]
            assert page.startswith(f"# {name}\n")
            assert item.__doc__.split("\n")[0][:20].replace("_", "\\_") in page
            assert f"({name}.md)" in generated[f"{kind}s/index.md"]


def test_every_page_has_one_place_in_the_navigation():
    below = navigation()
    listed = [name for names in below.values() for name in names]
    assert sorted([*listed, "index.md"]) == sorted(sources())
    depth = {"index.md": 0}
    for page, names in below.items():
        depth |= dict.fromkeys(names, depth[page] + 1)
    assert max(depth.values()) <= 3


def test_pages_say_what_is_declared(generated):
    assert "| goes after | labels |" in generated["attacks/label_direct.md"]
    assert "a white box" in generated["attacks/feature_esa.md"]
    assert "labels_per_class" not in generated["attacks/feature_esa.md"]
    assert "labels_per_class" in generated["attacks/label_batch.md"]
    assert "send something else (random-queries)" in generated["attacks/label_zo_query.md"]
    assert "| `smoothing` | number > 0 | `0.001` |" in generated["engines/dpzv.md"]
    assert "| `zo-scalar` |" in generated["engines/dpzv.md"]
    assert "[`label_dual`](../attacks/label_dual.md)" in generated["engines/vimadmm.md"]
    assert "| `dpzv-device` | [DPZV](../papers.md#dpzv), Theorem VI.5 |" in generated["engines/dpzv.md"]
    assert "no answer: " in generated["accountants/gdp.md"]
    for name in AuditConfig.model_fields:
        assert f"| `{name}` |" in generated["reference/configuration.md"]


def test_papers_and_tables_are_there(generated):
    papers = (ROOT / "docs" / "papers.md").read_text("utf-8")
    assert set(PAPERS.values()) <= set(anchors(papers))
    assert all(f"\n## {name}\n" in papers for name in PAPERS)
    for path in (ROOT / "docs").glob("*.md"):
        assert "<!-- table:" not in filled(path.read_text("utf-8")), path.name
    reading = filled((ROOT / "docs" / "reading-a-report.md").read_text("utf-8"))
    for mu, *cells in power_rows():
        powers = [f"{100 * power_gdp(float(mu), n, 0.001, excess=x):.1f} %" for n in TRIALS for x in (1.2, 2.0)]
        assert ", ".join(cells) == ", ".join(powers)
        assert f"| {mu} | {' | '.join(cells)} |" in reading
    assert "| `client-zero` |" in filled((ROOT / "docs" / "units.md").read_text("utf-8"))


@pytest.mark.slow
def test_the_site_is_built_and_asks_nobody_for_anything(tmp_path):
    for name in ("sphinx", "myst_parser", "pydata_sphinx_theme", "sphinx_copybutton"):
        pytest.importorskip(name, reason="needs pip install 'vflpriv[docs]'")
    write_source(tmp_path / "source")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", tmp_path / "source", tmp_path / "site"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    built = {path.relative_to(tmp_path / "site").as_posix() for path in (tmp_path / "site").rglob("*.html")}
    assert {name.replace(".md", ".html") for name in sources()} <= built
    for name in built:
        for tag in re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", (tmp_path / "site" / name).read_text("utf-8")):
            assert not re.search(r'(?:src|href)="(?:https?:)?//', tag), (name, tag)
