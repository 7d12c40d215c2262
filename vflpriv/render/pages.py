"""The page of a kind of result that lies above this layer: its overview, its Markdown and its HTML.

`vflpriv/experiments` registers one for each experiment, and the formats find it by the result's stem.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from vflpriv.common.registry import available
from vflpriv.render.overview import Overview

__all__ = ["Page", "page_of"]


class Page(ABC):
    """How one kind of result is shown."""

    name: ClassVar[str]
    """The stem of the result."""
    summary: ClassVar[str]

    @abstractmethod
    def overview(self, result: Any) -> Overview:
        """What a shell or a notebook shows of it."""

    @abstractmethod
    def markdown(self, result: Any) -> str:
        """The whole page as Markdown."""

    @abstractmethod
    def html(self, result: Any) -> str:
        """The whole page as HTML."""


def page_of(result: object) -> Page | None:
    """The registered page of this kind of result; None for results of this layer."""
    found = available("page").get(getattr(result, "stem", ""))
    return None if found is None else found()
