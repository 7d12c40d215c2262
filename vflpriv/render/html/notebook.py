"""The back end for shells and notebooks: one line, or a headline and small tables as HTML or as Markdown."""

from __future__ import annotations

from markupsafe import Markup

from vflpriv.common.registry import register
from vflpriv.render.document import NOTEBOOK, Badge, Block, Content, Paragraph, Table, describe, plain
from vflpriv.render.html.blocks import BlockWriter, element, escape, icon, table_rows
from vflpriv.render.html.page import environment
from vflpriv.render.markdown import escape as escape_markdown
from vflpriv.render.markdown import written_blocks

__all__ = ["HtmlDisplay", "LineDisplay", "MarkdownDisplay"]


@register("display")
class LineDisplay:
    """The `repr` of a result."""

    name = "line"
    summary = "one line, for a shell"

    def render(self, result: object) -> str:
        """The type and the one line of the document."""
        document = describe(result)
        return f"<{type(result).__name__}: {document.line or document.headline}>"


@register("display")
class HtmlDisplay:
    """What a notebook shows of a result."""

    name = "html"
    summary = "a fragment of HTML with its own style"

    def render(self, result: object) -> str:
        """Every text in it is escaped."""
        document, writer = describe(result), _Fragments(str, NOTEBOOK)
        shown = Markup(writer.blocks(document.blocks))
        return environment().get_template("notebook.html.j2").render(document=document, shown=shown)


class _Fragments(BlockWriter):
    """Tables without captions or anchors, and lines: a notebook has a style of its own."""

    def inline(self, content: Content) -> str:
        """A text in which only the sign of a verdict stands out."""
        if isinstance(content, tuple):
            return "".join(map(self.inline, content))
        sign = f"{icon(content.verdict)} " if isinstance(content, Badge) and content.verdict else ""
        return escape(f"{sign}{plain(content)}")

    def _block(self, block: Block) -> str:
        if isinstance(block, Table):
            return element("table", *table_rows(self, block, NOTEBOOK)) if block.rows else ""
        return element("div", self.inline(block.text)) if isinstance(block, Paragraph) else super()._block(block)


@register("display")
class MarkdownDisplay:
    """What is shown of a result where only Markdown can be shown."""

    name = "markdown"
    summary = "a headline and tables in Markdown"

    def render(self, result: object) -> str:
        """Every text in it is escaped."""
        document = describe(result)
        blocks = (block for block in document.blocks if not isinstance(block, Table) or block.rows)
        return "\n\n".join([f"**{escape_markdown(document.sentence)}**", *written_blocks(blocks, NOTEBOOK)]) + "\n"
