"""Laws of noise and of responses, one file each: what they cost, how they are drawn, how observations are tested."""

from __future__ import annotations

from vflpriv.laws.exact import Exact
from vflpriv.laws.gaussian import Gaussian
from vflpriv.laws.laplace import Laplace
from vflpriv.laws.opaque import Opaque
from vflpriv.laws.randomised_response import RandomizedResponse

__all__ = ["Exact", "Gaussian", "Laplace", "Opaque", "RandomizedResponse"]
