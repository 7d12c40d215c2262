"""The documentation site: what is generated, and, where mkdocs is installed, the whole of it."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.docs.blocks import ROOT
from tools.docs_markdown import PAPERS
from tools.docs_pages import TRIALS, filled, navigation, pages, power_rows
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
    listed = str(navigation())
    assert all(f"{kind}s/{name}.md" in listed for kind in LISTED for name in available(kind))


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
    assert all(f"## {name} {{ #{anchor} }}" in papers for name, anchor in PAPERS.items())
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
    pytest.importorskip("material", reason="needs pip install 'vflpriv[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    pages_ = list((tmp_path / "site").rglob("*.html"))
    assert len(pages_) > 50
    for path in pages_:
        for tag in re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", path.read_text("utf-8")):
            assert not re.search(r'(?:src|href)="(?:https?:)?//', tag), (path.name, tag)
