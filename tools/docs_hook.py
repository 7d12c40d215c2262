"""What mkdocs calls: adds the generated pages to those that are written by hand."""

from __future__ import annotations

from typing import Any

from mkdocs.structure.files import File

from tools.docs_pages import filled, navigation, pages
from tools.docs_results import with_curves

__all__ = ["on_config", "on_files", "on_page_markdown"]


def on_config(config: Any) -> Any:
    """Put the generated sections where the navigation has a place for them."""
    place = next(i for i, item in enumerate(config.nav) if isinstance(item, dict) and "Reference" in item)
    config.nav = [*config.nav[:place], *navigation(), *config.nav[place:]]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Generate the pages."""
    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put tables and learning curves in their places."""
    return with_curves(filled(markdown))
