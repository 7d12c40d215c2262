import numpy as np
from numpy.typing import NDArray

_Number = int | NDArray[np.int64]
_Floats = NDArray[np.float32]

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
