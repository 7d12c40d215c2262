from typing import overload

import numpy as np
from numpy.typing import NDArray

_Number = int | NDArray[np.int64]
_Floats = NDArray[np.float32]
_Doubles = NDArray[np.float64]
_Bits = NDArray[np.int64]

def words(
    keys: NDArray[np.int64],
    number: _Number,
    second: _Number,
    third: _Number,
    first: int,
    blocks: int,
    begin: int,
    target: NDArray[np.int64],
    /,
) -> None: ...
def bits(
    keys: NDArray[np.int64],
    number: _Number,
    second: _Number,
    third: _Number,
    first: int,
    blocks: int,
    begin: int,
    target: _Bits,
    /,
) -> None: ...
@overload
def noise(law: int, steps: float, width: int, rows: int, target: _Doubles, bits: _Bits, /) -> None: ...
@overload
def noise(
    law: int,
    steps: float,
    width: int,
    rows: int,
    target: _Doubles,
    keys: NDArray[np.int64],
    number: int,
    second: int,
    third: int,
    /,
) -> None: ...
def placed(
    values: _Floats, draws: _Doubles, rows: int, columns: int, steps: float, step: float, target: _Floats, /
) -> None: ...
def units(
    keys: NDArray[np.int64],
    number: _Number,
    second: _Number,
    third: _Number,
    first: int,
    blocks: int,
    begin: int,
    target: _Floats,
    /,
) -> None: ...
def polar(
    keys: NDArray[np.int64],
    number: _Number,
    second: _Number,
    third: _Number,
    first: int,
    blocks: int,
    begin: int,
    radii: _Floats,
    angles: _Floats,
    /,
) -> None: ...
def normals(lengths: _Floats, cosines: _Floats, sines: _Floats, target: _Floats, /) -> None: ...
