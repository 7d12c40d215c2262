"""How results show themselves: one line in a shell, tables in a notebook, plain data for programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vflpriv.render_notebook import Picture

__all__ = ["Shown"]


class Shown:
    """A result with displays. Notebooks call the methods with underscores by themselves."""

    def to_dict(self) -> dict[str, Any]:
        """The canonical JSON as Python values; infinities are strings, as there."""
        from pydantic import BaseModel

        assert isinstance(self, BaseModel)
        found: dict[str, Any] = json.loads(self.model_dump_json())
        return found

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._picture().line}>"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        from vflpriv.render_notebook import as_html

        return as_html(self._picture())

    def _repr_markdown_(self) -> str:
        from vflpriv.render_notebook import as_markdown

        return as_markdown(self._picture())

    def _picture(self) -> Picture:
        from vflpriv.render_notebook import picture

        return picture(self)
