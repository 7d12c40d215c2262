"""The whole documentation as plain Markdown, whatever turns it into pages: `python -m tools.docs_source FOLDER`.

Pages of `docs/` are copied with their tables and learning curves filled in, generated pages are added, and each page
that has others below it ends with the list of them. Only that list (`_contents`) is particular to Sphinx.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.docs_gallery import FOLDER, write_gallery
from tools.docs_pages import filled, generated_below, pages
from tools.docs_results import with_curves

__all__ = ["NAVIGATION", "navigation", "sources", "write_source"]

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"

NAVIGATION: Mapping[str, Sequence[str]] = {
    "index.md": ("engineer.md", "reviewer.md", "author.md", "ci.md", "faq.md", "gallery.md", "reference.md"),
    "engineer.md": (
        *(
            "trace.md",
            "own-system.md",
            "starting.md",
            "adapters.md",
            "tutorial.md",
            "configure.md",
            "attack.md",
            "frontier.md",
        ),
        *("library.md", "scaling.md"),
    ),
    "reviewer.md": (
        *("reading-a-report.md", "threat-models.md", "units.md", "limits.md", "mutations.md", "what-a-trace-proves.md"),
    ),
    "author.md": ("budgets.md", "papers.md", "papers-verdicts.md", "reproductions.md", "published-figures.md"),
    "reference.md": (
        *(
            "reference/configuration.md",
            "reference/commands.md",
            "transcripts.md",
            "architecture.md",
            "life-of-an-audit.md",
        ),
        *("engines/index.md", "defences/index.md", "attacks/index.md", "audits/index.md", "accountants/index.md"),
    ),
}
"""The pages below a page, in the order of the navigation. Every written page is somewhere in it once."""


def navigation() -> dict[str, Sequence[str]]:
    """The navigation with the generated pages."""
    return {**NAVIGATION, **generated_below()}


def sources() -> dict[str, str]:
    """Text by path of every page, written and generated."""
    written = {path.relative_to(DOCS).as_posix(): path.read_text("utf-8") for path in sorted(DOCS.rglob("*.md"))}
    return {name: filled(text) for name, text in written.items()} | pages()


def write_source(folder: Path) -> None:
    """Write all pages, pictures and settings; what an earlier call left in the folder goes."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "extra" / FOLDER).mkdir(parents=True)
    below = navigation()
    for name, text in sources().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(with_curves(text, folder / "pictures") + _contents(below.get(name, ())), encoding="utf-8")


def _contents(below: Sequence[str]) -> str:
    """The list of the pages below a page, in the syntax of Sphinx; the navigation shows it, the page does not."""
    if not below:
        return ""
    return "\n".join(
        ["", "```{toctree}", ":hidden:", "", *(f"/{name.removesuffix('.md')}" for name in below), "```", ""]
    )


if __name__ == "__main__":
    write_source(Path(sys.argv[1]))
    write_gallery(Path(sys.argv[1]) / "extra" / FOLDER)
