"""Array types that several layers share; a module of its own because nothing else is below all of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Floats"]

Floats = NDArray[np.float64]
"""An array of double-precision numbers of any shape."""
