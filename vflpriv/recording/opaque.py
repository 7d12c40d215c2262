"""Messages that were sent encrypted, as a recording holds them: their bytes, or no more than how many there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflpriv.core.wire import CIPHERTEXT, CIPHERTEXT_BYTES
from vflpriv.errors import InputError

__all__ = ["opaque"]

_EXPECTED = "ciphertexts as bytes, as whole numbers or as an array of uint8, or the number of their bytes"


def opaque(content: Any) -> Mapping[str, Any]:
    """The tensors of a message that was sent encrypted, for `wire.up`, `wire.down` and `wire.across`.

    `content` are the ciphertexts, in the order of the message's records: a list of `bytes` or of whole numbers (as
    those of Paillier's scheme), or an array of uint8, ciphertexts × bytes. Or it is the number of bytes alone: then
    nothing can be checked of them. Hand over ciphertexts as they are, without headers and without text encodings: an
    audit looks whether the bytes can be those of a ciphertext. Shorter ones are filled up with zeros on the left.

    >>> opaque([2**15, 1])["ciphertext"].tolist()
    [[128, 0], [0, 1]]
    >>> opaque(4096)
    {'ciphertext-bytes': 4096}
    """
    if isinstance(content, int) and not isinstance(content, bool):
        if not 0 <= content < 2**53:
            raise InputError("opaque", content, "a number of bytes; a list of ciphertexts if it is one: [ciphertext]")
        return {CIPHERTEXT_BYTES: content}
    if isinstance(content, bytes | bytearray | memoryview):
        content = [bytes(content)]
    return {CIPHERTEXT: _rows(content)}


def _rows(content: Any) -> NDArray[np.uint8]:
    """Ciphertexts × bytes."""
    if hasattr(content, "__array__"):
        array = np.asarray(content)
        if array.dtype != np.uint8 or array.ndim not in (1, 2):
            raise InputError("opaque", f"{array.dtype} {array.shape}", _EXPECTED)
        return np.atleast_2d(array)
    if not isinstance(content, Sequence) or isinstance(content, str):
        raise InputError("opaque", type(content).__name__, _EXPECTED)
    ciphertexts = [_bytes(value) for value in content]
    width = max(map(len, ciphertexts), default=0)
    joined = b"".join(value.rjust(width, b"\0") for value in ciphertexts)
    return np.frombuffer(joined, dtype=np.uint8).reshape(len(ciphertexts), width).copy()


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InputError("opaque", value if isinstance(value, int | float | str) else type(value).__name__, _EXPECTED)
    return value.to_bytes((value.bit_length() + 7) // 8 or 1, "big")
