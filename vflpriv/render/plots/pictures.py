"""Small pictures laid out in one PNG as a data URL, so that a page stays one file."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

__all__ = ["png", "sheet"]

_GAP = 1
_GREY, _COLOUR = 0, 2


def sheet(pictures: NDArray[np.floating]) -> str:
    """(rows, n, channels, height, width) values in [0, 1], laid out in rows, as a data URL."""
    rows, count, channels, height, width = pictures.shape
    shape = (rows * (height + _GAP) - _GAP, count * (width + _GAP) - _GAP, 3 if channels == 3 else 1)
    pixels = np.full(shape, 128, dtype=np.uint8)
    values = np.rint(255 * np.clip(np.nan_to_num(pictures), 0, 1)).astype(np.uint8)
    for i in range(rows):
        for j in range(count):
            top, left = i * (height + _GAP), j * (width + _GAP)
            picture = values[i, j] if channels == 3 else values[i, j, :1]
            pixels[top : top + height, left : left + width] = picture.transpose(1, 2, 0)
    return f"data:image/png;base64,{base64.b64encode(png(pixels)).decode('ascii')}"


def png(pixels: NDArray[np.uint8]) -> bytes:
    """A PNG file of (height, width, 1 or 3) bytes, without a filter."""
    height, width, channels = pixels.shape
    kind = _COLOUR if channels == 3 else _GREY
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in parts)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
