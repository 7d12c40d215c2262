"""Philox4x32-10, a counter-based generator: arrays of words, uniforms and normals from keys and places.

They are computed in one of three ways: by a small C extension on the CPU, by tensor operations where that was not built
and on other devices, and on CUDA by one fused kernel. All give the same words and uniforms, and on one device the same
normals, since logarithms, roots, sines and cosines are always torch's. A report does not depend on which it was. On the
device `meta`, where nothing has a value, nothing is computed.

`keys` is (R, 2), two words for each replica. A `path` of up to three numbers names a sequence; where one is a tensor of
K numbers, K sequences are drawn at once, and the results have an axis K behind the replicas'. `first` and `blocks` are
the part of each sequence that is drawn, in blocks of four numbers.
"""

from __future__ import annotations

import math
import subprocess
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vflpriv.common.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

    Number = int | Tensor
    Units = tuple[Tensor, Tensor, Tensor, Tensor]

try:
    from vflpriv.common import _philox as extension
except ImportError:  # There was no C compiler where this was installed.
    extension = None  # type: ignore[assignment]

__all__ = [
    "Fused",
    "bits",
    "compiled",
    "extension",
    "native",
    "normals",
    "philox",
    "sized",
    "uniforms",
    "units",
    "words",
]

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_WORDS_ALIVE = 10
"""Words for each block at the end of a round: four old ones, two products, four new ones."""
_CPU_PIECE, _ACCELERATOR_PIECE = 1 << 16, 1 << 24
"""Blocks drawn at once: on a CPU what stays in its caches; elsewhere the 67 million normals of a large model."""


def compiled() -> bool:
    """Whether draws on the CPU are made by the C extension; if not, they are the same and take longer."""
    return extension is not None


def native(*tensors: Tensor) -> bool:
    """Whether the C extension may compute with these tensors: plain ones on the CPU that are not empty."""
    return compiled() and all(
        type(tensor) is torch.Tensor and tensor.is_cpu and tensor.is_contiguous() and tensor.numel()
        for tensor in tensors
    )


def watched() -> bool:
    """Whether something follows the operations of tensors, which sees none of what the C extension computes."""
    return bool(torch._C._len_torch_dispatch_stack())


def arrays(keys: Tensor, path: Sequence[Number]) -> tuple[Any, Any, Any, Any]:
    """Keys and the three numbers of a path as the C extension takes them."""
    return _arrays(keys, _numbers(keys, path, 0, 0)[0])


def words(keys: Tensor, path: Sequence[Number], blocks: int, first: int = 0) -> tuple[Tensor, ...]:
    """Four 32-bit words for each block, as int64: four tensors (R, blocks) or (R, K, blocks)."""
    numbers, shape = _numbers(keys, path, blocks, first)
    if not _native(keys):
        drawn = _words(_index(keys, first, blocks), keys, *_columns(numbers))
        return tuple(word.reshape(*shape, blocks) for word in drawn)
    block = torch.empty((*shape, blocks, 4), dtype=torch.int64)
    extension.words(*_arrays(keys, numbers), first, blocks, 0, block.numpy())
    return block.unbind(-1)


def bits(keys: Tensor, path: Sequence[Number], blocks: int) -> Tensor:
    """(R, 2 · blocks) int64 of 63 random bits each, of one sequence."""
    if not _native(keys):
        a, b, c, d = words(keys, path, blocks)
        return _interleave((a << 31) ^ b, (c << 31) ^ d)
    numbers, _ = _numbers(keys, path, blocks, 0)
    drawn = np.empty((len(keys), 2 * blocks), dtype=np.int64)
    extension.bits(*_arrays(keys, numbers), 0, blocks, 0, drawn)
    return torch.from_numpy(drawn)


def uniforms(keys: Tensor, path: Sequence[Number], blocks: int, first: int = 0) -> Tensor:
    """Float32 in (0, 1], from all 32 bits of a word: (R, 4 · blocks) or (R, K, 4 · blocks)."""
    numbers, shape = _numbers(keys, path, blocks, first)
    if not _native(keys):
        return _interleave(*_units(keys, numbers, blocks, first)).reshape(*shape, 4 * blocks)
    drawn = torch.empty(*shape, 4 * blocks, dtype=torch.float32)
    extension.units(*_arrays(keys, numbers), first, blocks, 0, drawn.numpy())
    return drawn


def normals(keys: Tensor, path: Sequence[Number], blocks: int, first: int = 0) -> Tensor:
    """Standard normals by Box-Muller on pairs of words: (R, 4 · blocks) or (R, K, 4 · blocks).

    A long draw is made in pieces, since what is computed on the way needs several times the memory of the normals.
    """
    numbers, shape = _numbers(keys, path, blocks, first)
    if _native(keys):
        drawn = torch.empty(*shape, 4 * blocks, dtype=torch.float32)
        _fill_natively(drawn, keys, numbers, blocks, first)
        return drawn
    at_once = _CPU_PIECE if keys.device.type == "cpu" else _ACCELERATOR_PIECE
    piece = max(1, at_once // max(1, math.prod(shape)))
    if blocks <= piece:
        return _box_muller(*_units(keys, numbers, blocks, first)).reshape(*shape, 4 * blocks)
    drawn = torch.empty(*shape, 4 * blocks, dtype=torch.float32, device=keys.device)
    for start in range(0, blocks, piece):
        end = min(start + piece, blocks)
        part = _box_muller(*_units(keys, numbers, end - start, first + start))
        drawn[..., 4 * start : 4 * end] = part.reshape(*shape, -1)
    return drawn


def _numbers(keys: Tensor, path: Sequence[Number], blocks: int, first: int) -> tuple[list[Number], tuple[int, ...]]:
    """Three numbers of a path, and the shape of what is drawn up to the blocks: (R,) or (R, K)."""
    numbers: list[Number] = [0, 0, 0]
    if len(path) > len(numbers):
        raise ValueError(f"Expected a path of at most {len(numbers)} numbers, got {len(path)}.")
    if first < 0 or first + blocks > _MASK + 1:
        raise ValueError(
            f"Expected 0 <= first={first} and first + blocks={blocks} <= {_MASK + 1}, a sequence's length."
        )
    sequences = None
    for i, number in enumerate(path):
        if isinstance(number, torch.Tensor):
            numbers[i] = column = number.to(keys.device, torch.int64).reshape(-1)
            sequences = len(column) if sequences is None or sequences == 1 else sequences
        elif 0 <= number <= _MASK:
            numbers[i] = int(number)
        else:
            raise ValueError(f"Expected number {i} of the path to lie in [0, {_MASK}], got {number}.")
    return numbers, (len(keys),) if sequences is None else (len(keys), sequences)


def _native(keys: Tensor) -> bool:
    return compiled() and type(keys) is torch.Tensor and keys.is_cpu


def _arrays(keys: Tensor, numbers: Sequence[Number]) -> tuple[Any, Any, Any, Any]:
    """Keys and numbers as the C extension takes them; arrays share the tensors' memory."""
    a, b, c = (n.contiguous().numpy() if isinstance(n, torch.Tensor) else n for n in numbers)
    return keys.contiguous().numpy(), a, b, c


def _fill_natively(drawn: Tensor, keys: Tensor, numbers: Sequence[Number], blocks: int, first: int) -> None:
    sequences, target = _arrays(keys, numbers), drawn.numpy().reshape(-1)
    cells = len(target) // 4
    piece = max(1, min(cells, _CPU_PIECE))
    radii, angles, cosines = (torch.empty(2 * piece, dtype=torch.float32) for _ in range(3))
    for begin in range(0, cells, piece):
        end = min(begin + piece, cells)
        if end - begin < piece:
            radii, angles, cosines = (part[: 2 * (end - begin)] for part in (radii, angles, cosines))
        # Arrays share the tensors' memory: lengths and sines come to stand where radii and angles were.
        lengths, sines = radii.numpy(), angles.numpy()
        extension.polar(*sequences, first, blocks, begin, lengths, sines)
        torch.cos(angles, out=cosines)
        angles.sin_()
        radii.log_()
        lengths *= -2.0
        radii.sqrt_()
        extension.normals(lengths, cosines.numpy(), sines, target[4 * begin : 4 * end])


def philox(counter: Sequence[Any], key: Sequence[Any]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Philox4x32-10 (Salmon et al. 2011) on int64 tensors that hold 32-bit words; all arguments broadcast.

    A word of the counter may be an int: no copy to a device is needed for it, and less is computed in the first rounds.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        # The low 64 bits of a product are the same for signed and unsigned words.
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = ((p1 >> 32) & _MASK) ^ c1 ^ k0, p1 & _MASK, ((p0 >> 32) & _MASK) ^ c3 ^ k1, p0 & _MASK
        k0, k1 = (k0 + _KEY_STEPS[0]) & _MASK, (k1 + _KEY_STEPS[1]) & _MASK
    return c0, c1, c2, c3


def units(index: Tensor, keys: Tensor, *numbers: Number) -> Units:
    """Uniforms in (0, 1] of the four words of each block: four tensors (R, K, blocks)."""
    a, b, c, d = (word.to(torch.float32).add_(0.5).mul_(2.0**-32) for word in _words(index, keys, *numbers))
    return a, b, c, d


def sized(index: Tensor, keys: Tensor, *numbers: Number) -> Units:
    """Tensors as large as those of `units`, with as much memory taken on the way, for the device `meta`.

    A training that is rehearsed there for its memory draws many times, and operations without values are slow.
    """
    sequences = max((len(n) for n in numbers if isinstance(n, torch.Tensor)), default=1)
    shape = (len(keys), sequences, len(index))
    torch.empty((_WORDS_ALIVE, *shape), dtype=torch.int64, device=keys.device)
    a, b, c, d = (torch.empty(shape, dtype=torch.float32, device=keys.device) for _ in range(4))
    return a, b, c, d


class Fused:
    """`units` as one kernel made by `torch.compile`; single operations from the first time on that this fails.

    Places are handed over as tensors, since a kernel is compiled anew for each int. It takes no part in gradients, so
    that a change of mode does not compile it anew either.
    """

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._function: Callable[..., Units] | None = None
        self.works = True

    def __call__(self, index: Tensor, keys: Tensor, *numbers: Number) -> Units:
        if self.works:
            try:
                return self._run(index, keys, *numbers)
            except torch.OutOfMemoryError:
                raise
            except (RuntimeError, OSError, subprocess.SubprocessError) as failure:
                self.works = False
                reason = str(failure).partition("\n")[0]
                warnings.warn(
                    f"Random numbers are drawn operation by operation, since torch.compile failed here: {reason}. They "
                    "are the same numbers; a draw takes longer.",
                    RuntimeWarning,
                    stacklevel=2,
                )
        return units(index, keys, *numbers)

    def _run(self, index: Tensor, keys: Tensor, *numbers: Number) -> Units:
        if self._function is None:
            self._function = torch.compile(units, dynamic=True, **self._options)
        sequences = math.prod(torch.broadcast_shapes(*(n.shape for n in numbers if isinstance(n, torch.Tensor))))
        columns = [
            n.expand(sequences, 1).contiguous()
            if isinstance(n, torch.Tensor)
            else torch.full((sequences, 1), n, dtype=torch.int64, device=keys.device)
            for n in numbers
        ]
        with torch.no_grad():
            return self._function(index, keys, *columns)


_WAYS: dict[str, Callable[..., Units]] = {"cuda": Fused(), "meta": sized}
"""How `units` is computed on a type of device, where not operation by operation."""


def _units(keys: Tensor, numbers: Sequence[Number], blocks: int, first: int) -> Units:
    way = _WAYS.get(keys.device.type, units)
    return way(_index(keys, first, blocks), keys, *_columns(numbers))


def _words(index: Tensor, keys: Tensor, *numbers: Number) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return philox((index, *numbers), (keys[:, 0, None, None], keys[:, 1, None, None]))


def _index(keys: Tensor, first: int, blocks: int) -> Tensor:
    return torch.arange(first, first + blocks, dtype=torch.int64, device=keys.device)


def _columns(numbers: Sequence[Number]) -> list[Number]:
    """(K, 1) where there are K numbers, of which 32 bits count."""
    return [n.unsqueeze(-1) & _MASK if isinstance(n, torch.Tensor) else n for n in numbers]


def _box_muller(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    lengths, angles = _interleave(a, c).log_().mul_(-2.0).sqrt_(), _interleave(b, d).mul_(2 * math.pi)
    cosines = angles.cos()
    return _interleave(cosines.mul_(lengths), angles.sin_().mul_(lengths))


def _interleave(*parts: Tensor) -> Tensor:
    return torch.stack(parts, dim=-1).flatten(-2)
