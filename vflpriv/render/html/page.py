"""Self-contained HTML pages: the frame with its style and its one small script around the blocks of a document."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vflpriv.common.formatting import clean_lines
from vflpriv.core.claims import Verdict
from vflpriv.render.document import Document
from vflpriv.render.html.blocks import BlockWriter, icon, slug
from vflpriv.render.plots.chart import COLOURS

__all__ = ["environment", "to_page"]


def to_page(document: Document) -> str:
    """The page of a document. The same document gives the same bytes."""
    writer = BlockWriter(static=lambda name: environment().get_template(f"{name}.html.j2").render())
    said, main = Markup(writer.blocks(document.said)), Markup(writer.blocks(document.blocks))
    frame = environment().get_template("base.html.j2")
    return frame.render(document=document, said=said, main=main, contents=writer.contents)


@cache
def environment() -> Environment:
    """Every value is escaped; a name that a template does not get is an error."""
    environment = Environment(
        loader=PackageLoader("vflpriv.render.html", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_finalize,
    )
    script = files("vflpriv.render.html").joinpath("templates", "page.js.j2").read_text(encoding="utf-8")
    environment.filters |= {"slug": slug, "icon": icon}
    environment.globals |= {
        "inks": COLOURS,
        "verdicts": list(Verdict),
        "script": Markup(script),
        "script_hash": _hash(script),
    }
    return environment


def _hash(script: str) -> str:
    """The script's hash, as the page's content security policy names the only script that may run."""
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def _finalize(item: Any) -> Any:
    """Text without control characters, which would make the page invalid; our own markup stays as it is."""
    return clean_lines(item) if type(item) is str else item
