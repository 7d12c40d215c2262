"""Settings of Sphinx, which `tools/docs_source.py` copies beside the pages that it writes."""

from __future__ import annotations

from typing import Any

from pygments.lexers.special import TextLexer

__all__ = ["setup"]

project = "vflpriv"
html_title = "vflpriv"
extensions = ["myst_parser", "sphinx_copybutton"]
myst_heading_anchors = 4  # links name headings as GitHub does
myst_enable_extensions = ["attrs_inline"]

html_theme = "pydata_sphinx_theme"
html_theme_options = {
    "header_links_before_dropdown": 8,
    "navbar_align": "left",
    "navbar_persistent": ["search-button"],
    "navbar_end": ["theme-switcher"],
    "collapse_navigation": True,
    "show_prev_next": False,
    "footer_start": [],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
html_sidebars = {name: [] for name in ("ci", "faq", "gallery")}  # nothing is below them
html_context = {"default_mode": "auto"}
html_static_path = ["static"]
html_extra_path = ["extra"]  # the reports of the gallery
html_css_files = ["pages.css"]
html_copy_source = False
html_show_sphinx = False


def setup(app: Any) -> None:
    """Drawings in letters have no syntax."""
    app.add_lexer("diagram", TextLexer)
