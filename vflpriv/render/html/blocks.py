"""The back end for pages: each block of a document as HTML, with every text escaped."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from markupsafe import escape as escape_markup

from vflpriv.common.formatting import NOTHING, clean_lines
from vflpriv.core.claims import Verdict
from vflpriv.render import document as d

__all__ = ["BlockWriter", "element", "escape", "icon", "slug", "table_rows"]


def escape(text: object) -> str:
    """A text as it is shown: no markup, and no control characters, which would make the page invalid."""
    return str(escape_markup(clean_lines(str(text))))


def slug(verdict: Verdict | None) -> str:
    """The CSS class of a verdict."""
    return "none" if verdict is None else verdict.value.replace(" ", "-")


def icon(verdict: Verdict | None) -> str:
    """The sign of a verdict."""
    return NOTHING if verdict is None else verdict.icon


_ENDED_BY_WHAT_FOLLOWS = ("dd", "dt", "li", "tbody", "td", "th", "thead", "tr")
"""HTML lets their end tags be left out; a page of many claims has tens of thousands of them."""


def element(tag: str, *inside: str, **attributes: str) -> str:
    """An element around what is HTML already; an attribute that is empty is left out, a final underscore dropped."""
    texts = {name.rstrip("_").replace("_", "-"): escape(text) for name, text in attributes.items() if text}
    named = "".join(f" {name}={_quoted(text)}" for name, text in texts.items() if text)
    end = "" if tag in _ENDED_BY_WHAT_FOLLOWS else f"</{tag}>"
    return f"<{tag}{named}>{''.join(inside)}{end}"


def _quoted(text: str) -> str:
    """The value of an attribute, in quotes where it needs them."""
    return text if re.fullmatch(r"[\w#.:-]+", text, re.ASCII) else f'"{text}"'


class BlockWriter:
    """Writes blocks, and collects the list of contents on the way."""

    def __init__(self, static: Callable[[str], str], medium: d.Medium = d.PAGE) -> None:
        self.contents: list[tuple[str, str]] = []
        """The id of each section that has a name in the list of contents, and that name."""
        self._static = static
        self._medium = medium
        self._figures, self._known_axes = 0, 0
        self._drawn_axes: dict[str, str] = {}

    def blocks(self, blocks: Iterable[d.Block]) -> str:
        """All blocks that pages show."""
        return "\n".join(filter(None, (self._block(block) for block in blocks if block.only & self._medium)))

    def _block(self, block: d.Block) -> str:
        writers: dict[type[d.Block], Callable[[Any], str]] = {
            d.Bullets: self._bullets,
            d.Card: self._card,
            d.Code: self._code,
            d.Command: self._command,
            d.Figure: self._figure,
            d.Fold: self._fold,
            d.Group: self._group,
            d.Heading: self._heading,
            d.Number: self._number,
            d.Pairs: self._pairs,
            d.Paragraph: self._paragraph,
            d.Picture: self._picture,
            d.Section: self._section,
            d.Static: self._template,
            d.Table: self._table,
            d.Terms: self._terms,
        }
        return writers[type(block)](block)

    def inline(self, content: d.Content) -> str:
        """A text with what stands out in it."""
        if isinstance(content, str):
            return escape(content)
        if isinstance(content, tuple):
            return "".join(map(self.inline, content))
        if isinstance(content, d.Badge):
            # The style sheet puts the sign of the verdict before it.
            text = escape(content.text or content.verdict)
            return element("span", text, class_=f"chip {slug(content.verdict)}" if content.verdict else "chip")
        return self._span(content) if isinstance(content, d.Span) else self._block(content)

    def _span(self, span: d.Span) -> str:
        if span is d.BREAK:
            return "<br>"
        text = escape(span.text)
        if span.link:
            text = element("a", text, href=f"#{span.link}", aria_label=span.label)
        if span.style == "reference":
            return f" {text}"
        if span.style == "breakable":
            # A name that may be broken after its underscores, so that its column is as wide as its longest part.
            return text.replace("_", "_<wbr>")
        if span.style in ("strong", "code", "em"):
            return element(span.style, text, title=span.exact)
        if span.style.startswith("mark "):
            return element("span", text, class_=span.style, aria_hidden="true")
        if span.style == "alarm":
            return element("strong", text, class_="alarm")
        return element("span", text, class_=span.style, title=span.exact) if span.style or span.exact else text

    def _paragraph(self, block: d.Paragraph) -> str:
        return element("p", self.inline(block.text), class_=block.style)

    def _heading(self, block: d.Heading) -> str:
        return element(f"h{block.level}", self.inline(block.text), id=block.place)

    def _bullets(self, block: d.Bullets) -> str:
        """A list whose items have ids where they are numbered."""
        name = block.numbered
        items = (
            element("li", self.inline(item), id=f"{name}-{n}" if name else "") for n, item in enumerate(block.items, 1)
        )
        return element("ol" if name else "ul", *items, class_="plain") if block.items else ""

    def _terms(self, block: d.Terms) -> str:
        pairs = (element("dt", self.inline(term)) + element("dd", self.inline(said)) for term, said in block.rows)
        if not block.rows:
            return ""
        if block.style:
            return element("dl", *(element("div", pair) for pair in pairs), class_=block.style)
        return element("dl", *pairs, class_="glossary")

    def _pairs(self, block: d.Pairs) -> str:
        return element("span", *(f"<i>{escape(name)}</i> {escape(said)} " for name, said in block.rows), class_="pairs")

    def _command(self, block: d.Command) -> str:
        label = "Command that reproduces it"
        command = element("code", escape(block.text))
        pre = element("pre", command, class_="command", tabindex="0", role="group", aria_label=label)
        return element("div", pre, class_="reproduce")

    def _code(self, block: d.Code) -> str:
        return element("pre", escape(block.text), tabindex="0", role="group", aria_label=block.label)

    def _number(self, block: d.Number) -> str:
        figure = element("b", escape(block.value), title=block.exact, class_="" if block.figure else "words")
        lines = [element("p", escape(block.label), class_="label")]
        lines.append(element("p", f"{escape(block.sign)} " if block.sign else "", figure, class_="value"))
        lines.append(element("p", escape(block.second), class_="second") if block.second else "")
        for line in block.lines:
            alarm = isinstance(line, d.Span) and line.style == "alarm"
            lines.append(element("p", escape(d.plain(line)) if alarm else self.inline(line), class_="alarm" * alarm))
        return element("div", *lines, class_=f"big {block.style}".strip())

    def _template(self, block: d.Static) -> str:
        return self._static(block.name)

    def _group(self, block: d.Group) -> str:
        inside = self.blocks(block.blocks)
        return element("div", inside, class_=block.style) if inside else ""

    def _fold(self, block: d.Fold) -> str:
        inside = element("summary", self.inline(block.summary)) + self.blocks(block.blocks)
        return element("details", inside, class_=block.style).replace("<details", "<details open", int(block.opened))

    def _section(self, block: d.Section) -> str:
        place = len(self.contents)
        if block.contents:
            self.contents.append((block.place, block.contents))
        inside = self.blocks(block.blocks)
        if not inside:
            del self.contents[place:]
            return ""
        name = f"{block.place}-title" if block.place else ""
        note = element("small", escape(block.note)) if block.note else ""
        level = "h3" if block.folded else f"h{block.level}"
        heading = element(level, self.inline(block.title), f" {note}" if note else "", id=name)
        if not block.folded:
            return element("section", heading, inside, id=block.place, class_=block.style, aria_labelledby=name)
        section = element("section", inside, class_=block.style, aria_labelledby=name)
        return element("details", element("summary", heading), section, class_="part", id=block.place)

    def _card(self, block: d.Card) -> str:
        name = f"{block.place}-title"
        if block.style == "claim":
            heading = element("h4", self.inline(block.title), id=name)
            start = element("header", heading, self.inline(block.badge))
        else:
            start = element("h3", self.inline(block.title), id=name)
        classes = f"{block.style} {slug(block.badge.verdict)}"
        return element(
            "article", start, self.blocks(block.blocks), id=block.place, class_=classes, aria_labelledby=name
        )

    def _figure(self, block: d.Figure) -> str:
        drawn = block.draw()
        plots = [drawn] if isinstance(drawn, d.Plot) else drawn or ()
        return "".join(self._plot(plot, block.name or plot.caption) for plot in plots)

    def _plot(self, plot: d.Plot, name: str) -> str:
        """The plot with its caption, and the figures that it was drawn from in a section that opens."""
        names = ";".join([plot.header[0], *(f">{name}" for name in plot.header[1:])])
        table = self._table(d.table_of(names, plot.rows, caption=f"Figures of {name}", style="narrow"))
        figures = element("details", element("summary", "The figures"), table, class_="figures")
        self._figures += 1
        # A page holds several plots: the ids inside of each are its own.
        picture = re.sub(r' id="|"#|\(#', lambda start: f"{start[0]}g{self._figures}-", plot.svg)
        picture = re.sub(r'<g class="axes">.*?</g></g>', self._axes, picture)
        return element("figure", picture, element("figcaption", escape(plot.caption)), figures)

    def _axes(self, axes: re.Match[str]) -> str:
        """Axes that a plot of this page has already are drawn by reference to it."""
        place = self._drawn_axes.setdefault(axes[0], f"axes-{len(self._drawn_axes)}")
        own = len(self._drawn_axes) > self._known_axes
        self._known_axes = len(self._drawn_axes)
        return axes[0].replace("<g", f"<g id={place}", 1) if own else f'<use href="#{place}"/>'

    def _picture(self, block: d.Picture) -> str:
        images = (
            f'<img class="sheet" src="{escape(source)}" alt="{escape(description)}">'
            for source, description in block.images
        )
        return element("figure", *images, element("figcaption", escape(block.caption)))

    def _table(self, block: d.Table) -> str:
        head, body = table_rows(self, block, self._medium)
        caption, narrow = self.inline(block.caption), block.style == "narrow"
        if block.style == "claims":
            return element(
                "table", element("caption", caption, class_="unseen", id=block.place), head, body, class_="claims"
            )
        caption = element("caption", element("span", caption, class_="stay"), id=block.place)
        table = element("table", caption, head, body, class_=" ".join([block.style, *_numbers(block, self._medium)]))
        name = {"aria_labelledby": block.place} if block.place else {"aria_label": d.plain(block.caption)}
        return element("div", table, class_="scroll narrow" if narrow else "scroll", role="group", tabindex="0", **name)


def _numbers(block: d.Table, medium: d.Medium) -> Iterator[str]:
    """The classes of a table whose columns of numbers the style sheet aligns: no cell has to say it of itself."""
    return (f"n{place}" for place, column in enumerate(block.shown(medium)[0], 1) if column.number)


def table_rows(writer: BlockWriter, block: d.Table, medium: d.Medium) -> tuple[str, str]:
    """The head and the body of a table: on a page, the first cell of each row names it."""
    columns, rows = block.shown(medium)
    heads = (
        element("th", writer.inline(d.Span(column.title, column.style)), class_="n" * column.number)
        for column in columns
    )
    lines = []
    for row, cells in zip(block.rows, rows, strict=True):
        tags = ["th" if medium is d.PAGE else "td", *["td"] * len(cells)]
        lines.append(
            element("tr", *(_cell(writer, block, medium, *x) for x in zip(tags, columns, cells, strict=False)))
        )
        if block.below is not None and medium is d.PAGE:
            meaning = element("td", writer.inline(block.below(row)), colspan=str(len(columns)))
            lines.append(element("tr", meaning, class_="meaning"))
    return element("thead", element("tr", *heads)), element("tbody", *lines)


def _cell(writer: BlockWriter, block: d.Table, medium: d.Medium, tag: str, column: d.Column, cell: d.Cell) -> str:
    text = writer.inline(cell.text)
    if medium is not d.PAGE:
        return element("td", text, f" ({escape(cell.below)})" if cell.below else "", class_="n" * column.number)
    if cell.exact:
        text = element("span", text, title=cell.exact, class_="infinite" * (cell.text == "∞"))
    if cell.tone == "alarm":
        text = element("strong", text, class_="alarm")
    if block.style == "claims" and column.number:
        text = element("span", text, class_="main")
    for part in cell.detail or (cell.below,) * bool(cell.below):
        line = writer.inline(part)
        text += line if isinstance(part, d.Block) else element("span", line, class_="sub")
    number = "n" if column.number and block.style == "claims" else ""
    classes = (number, cell.tone.replace("alarm", ""), column.style.replace("breakable", "").replace("notes", ""))
    label = column.title if block.style == "claims" and tag == "td" else ""
    return element(tag, text, class_=" ".join(filter(None, classes)), data_label=label)
