"""A sheet of small pictures as the data URL of a PNG, which a report holds and a page shows without another file."""

from __future__ import annotations

import base64
from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

__all__ = ["sheet"]

_GAP, _GREY = 1, 128
"""Pixels between two pictures, and their brightness."""


def sheet(pictures: NDArray[np.floating]) -> str:
    """(rows, n, channels, height, width) values in [0, 1], laid out in rows, as the data URL of a PNG."""
    rows, count, channels, height, width = pictures.shape
    shown = pictures if channels == 3 else pictures[:, :, :1]
    values = np.rint(255 * np.clip(np.nan_to_num(shown), 0, 1)).astype(np.uint8)
    apart = np.pad(values, ((0, 0), (0, 0), (0, 0), (0, _GAP), (0, _GAP)), constant_values=_GREY)
    lines = apart.transpose(0, 3, 1, 4, 2).reshape(rows * (height + _GAP), count * (width + _GAP), -1)
    pixels, file = lines[:-_GAP, :-_GAP], BytesIO()
    Image.fromarray(pixels if channels == 3 else pixels[..., 0]).save(file, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"
