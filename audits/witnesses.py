"""Witnesses of the sensitivity search, saved so that anyone can compute the difference again."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from vflpriv.audits.sensitivity import Finding
from vflpriv.errors import InputError
from vflpriv.files import atomically, write_atomically
from vflpriv.training._clips import ClientClip, EmbeddingClip
from vflpriv.training._mechanisms import Mechanism, NoNoise, ScalarMean, VectorMean
from vflpriv.units import Unit

__all__ = ["Replayed", "replay_witness", "save_witnesses"]

_SUFFIX = ".json"
_KINDS = {kind.__name__: kind for kind in (ClientClip, EmbeddingClip, NoNoise, ScalarMean, VectorMean)}


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """What a witness shows when it is computed again."""

    mechanism: str
    unit: Unit
    declared: float
    observed: float

    @property
    def holds(self) -> bool:
        return self.observed <= self.declared * (1 + 1e-9)


def save_witnesses(
    folder: Path, system: str, mechanisms: Mapping[str, Mechanism], findings: Sequence[Finding]
) -> dict[int, Path]:
    """One pair of files a finding, `.json` in words and `.safetensors` with the two inputs; their names by `id`."""
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for finding in findings:
        mechanism = mechanisms[finding.mechanism]
        path = folder / f"{system}-{finding.mechanism}-{finding.unit}{_SUFFIX}"
        pair = {"values": finding.values.contiguous(), "neighbour": finding.neighbour.contiguous()}
        with atomically(path.with_suffix(".safetensors")) as temporary:
            save_file(pair, temporary)
        words = {
            "mechanism": type(mechanism).__name__,
            "settings": dataclasses.asdict(mechanism),
            "unit": finding.unit.value,
            "declared": finding.declared,
            "observed": finding.observed,
            "witness": finding.witness,
        }
        write_atomically(path, json.dumps(words, indent=2, ensure_ascii=False, default=str) + "\n")
        written[id(finding)] = path
    return written


def replay_witness(path: Path) -> Replayed:
    """Build the mechanism again, and take the difference of its two saved inputs."""
    try:
        words = json.loads(path.read_text(encoding="utf-8"))
        pair = load_file(path.with_suffix(".safetensors"))
        mechanism: Mechanism = _KINDS[words["mechanism"]](**words["settings"])
        unit = Unit(words["unit"])
        values, neighbour = pair["values"], pair["neighbour"]
    except (OSError, SafetensorError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise InputError("witness", str(path), f"a witness that an audit saved ({error})") from error
    gap = _noiseless(mechanism, values) - _noiseless(mechanism, neighbour)
    declared = mechanism.declared.get(unit, math.inf)
    return Replayed(mechanism=words["mechanism"], unit=unit, declared=declared, observed=float(gap.norm()))


def _noiseless(mechanism: Mechanism, values: Tensor) -> Tensor:
    return mechanism.noiseless(values.unsqueeze(0))
