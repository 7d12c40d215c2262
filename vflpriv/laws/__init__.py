"""Laws of noise and of responses, one file each: what they cost, how they are drawn, how observations are tested."""

from __future__ import annotations

from vflpriv.laws.correlated import CorrelatedGaussian
from vflpriv.laws.discrete_gaussian import DiscreteGaussian
from vflpriv.laws.discrete_laplace import DiscreteLaplace
from vflpriv.laws.exact import Exact
from vflpriv.laws.exponential import Exponential
from vflpriv.laws.gaussian import Gaussian
from vflpriv.laws.labels.alibi import Alibi
from vflpriv.laws.labels.label_sets import LabelSets
from vflpriv.laws.labels.randomised_response import RandomizedResponse
from vflpriv.laws.laplace import Laplace
from vflpriv.laws.opaque import Opaque

__all__ = [
    "Alibi",
    "CorrelatedGaussian",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Exact",
    "Exponential",
    "Gaussian",
    "LabelSets",
    "Laplace",
    "Opaque",
    "RandomizedResponse",
]
