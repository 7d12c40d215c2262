"""Coverage-guided fuzzing, with atheris, of readers and of whole audits: `python -m tools.fuzz TARGET [options]`.

A target takes any bytes; `audit` takes cases (tools/audit_cases.py), changes them as cases, and starts from
tests/recording/cases. It passes if they are read, or refused by an `InputError` of one line; anything else is a bug,
which atheris stores as a file that `python -m tools.fuzz TARGET FILE` runs again. Options are libFuzzer's:
`-max_total_time=600` (seconds), `-runs=N`. The corpus starts from a few valid and invalid inputs.
"""

from __future__ import annotations

import importlib
import struct
import sys
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import vflpriv
from tests.recording.transcript_files import unprotected
from tools.audit_cases import CORPUS, check_bytes, mutated_bytes
from vflpriv.config.errors import parse_settings
from vflpriv.config.loading import load_config, read_tree
from vflpriv.data.loading import read as read_data
from vflpriv.data.tables import read_table
from vflpriv.errors import InputError
from vflpriv.recording.files.format import ANSWERS, HEAD, shard_name
from vflpriv.recording.ledger_file import is_ledger, load_ledger
from vflpriv.recording.transcripts import read_answers, read_transcript
from vflpriv.report.attacks import read_attacks
from vflpriv.report.audit import read_report

__all__ = ["TARGETS", "ends_well", "main", "seeds"]

Target = Callable[[bytes, Path], None]

LEDGER = """
key = "mine"
public = ["hello"]
batches = { batching = "fixed", size = 6 }
[[release]]
kind = "logits"
noise = "gaussian"
scale = 2.0
sensitivity = { label = 1.0, record = "unbounded" }
leak = { carrier = "the model", sensitivity = { label = 2.0 } }
[[claim]]
key = "labels"
unit = "label"
view = "device"
epsilon = 1.0
"""
CONFIG = '[data]\nname = "digits"\n[engine]\nname = "dpzv"\nrounds = 4\nbatch_size = 8\n[audit]\ntrials = 4\n'
LABELS = "id,label\na,1\nb,2\nc,1\nd,2\ne,1\n"
PARTY = 'id,age,job\nb,1,"x, y"\na,2,z\ne,3,z\nd,4,z\nc,5,z\n'
YAML = "data: {name: digits}\nengine: &e\n  name: dpzv\n  rounds: 4\n  batch_size: 8\naudit:\n  trials: 1e1\nx: *e\n"


def _file(name: str, read: Callable[[Path], object]) -> Target:
    def target(content: bytes, folder: Path) -> None:
        path = folder / name
        path.write_bytes(content)
        read(path)

    return target


def _transcript_file(name: str) -> Target:
    """One file of an otherwise valid transcript."""

    def target(content: bytes, folder: Path) -> None:
        transcript = folder / "transcript"
        if not transcript.exists():
            record(transcript)
        valid = (transcript / name).read_bytes()
        (transcript / name).write_bytes(content)
        try:
            recording = read_transcript(transcript)
            read_answers(transcript, recording.head)
        finally:
            (transcript / name).write_bytes(valid)

    return target


def _own_data(content: bytes, folder: Path) -> None:
    """A party's file of a user's own data, beside valid labels."""
    own = folder / "own"
    own.mkdir(exist_ok=True)
    (own / "labels.csv").write_text(LABELS, encoding="utf-8")
    (own / "party.csv").write_bytes(content)
    read_data("csv", folder=own, alignment="common")


def _read_ledger(path: Path) -> None:
    is_ledger(path)
    load_ledger(path)


TARGETS: dict[str, Target] = {
    "config": _file("audit.toml", load_config),
    "yaml": _file("audit.yaml", load_config),
    "ledger": _file("ledger.toml", _read_ledger),
    "report": _file("report.json", read_report),
    "attacks": _file("attacks.json", read_attacks),
    "head": _transcript_file(HEAD),
    "shard": _transcript_file(shard_name(0)),
    "answers": _transcript_file(ANSWERS),
    "csv": _own_data,
    "audit": check_bytes,
}


def record(folder: Path) -> Path:
    """Record two rounds of two devices, with labels and canaries, in version 2: in version 3 any change is found."""
    import torch

    labels, canaries = vflpriv.plant(torch.arange(12) % 3, classes=3, canaries=6, seed=1)
    with vflpriv.record(str(folder), devices=2, classes=3, records=12) as wire:
        wire.labels(labels, canaries=canaries)
        for round_ in range(2):
            ids = torch.arange(6) + 6 * round_
            for m in range(2):
                wire.up(round_, m, "logits", {"embedding": torch.ones(6, 3)}, ids)
                wire.down(round_, m, "zo-scalar", {"delta": torch.ones(())}, ids)
    return unprotected(folder)


def seeds(target: str) -> list[bytes]:
    """Inputs to start from: valid ones, and the shortest invalid ones."""
    texts = {"config": CONFIG, "yaml": YAML, "ledger": LEDGER, "report": "{}", "attacks": "{}", "csv": PARTY}
    if target == "audit":
        return [path.read_bytes() for path in sorted(CORPUS.glob("*.json"))]
    if target in texts:
        return [texts[target].encode(), b""]
    with tempfile.TemporaryDirectory() as folder:
        transcript = record(Path(folder) / "transcript")
        name = {"head": HEAD, "shard": shard_name(0), "answers": ANSWERS}[target]
        return [(transcript / name).read_bytes(), struct.pack("<Q", 2) + b"{}", b""]


def ends_well(target: str, content: bytes, folder: Path) -> bool:
    """True if the content is read, False if it is refused in one line; any other error is raised."""
    try:
        TARGETS[target](content, folder)
    except InputError as error:
        line = str(error)
        assert "\n" not in line, line
        assert line.isprintable(), ascii(line)
        assert len(line) < 1000, line
        return False
    return True


_AUDITING = (
    "vflpriv.api", "vflpriv.core.", "vflpriv.recording.", "vflpriv.run.", "vflpriv.audits.", "vflpriv.accountants.",
    "vflpriv.laws.", "vflpriv.report.",
)  # fmt: skip
"""The modules whose branches guide the fuzzing of whole audits."""


def _instrument(atheris: Any, target: str) -> None:
    """Count branches of the readers, or of what audits run: instrumenting all of torch would take minutes."""
    readers = (load_config, parse_settings, read_tree, load_ledger, read_transcript, read_table, InputError)
    names = {reader.__module__ for reader in readers}
    if target == "audit":
        TARGETS[target](seeds(target)[0], Path())  # imports what audits import
        names = {name for name in sys.modules if name.startswith(_AUDITING)}
    for name in sorted(names):
        module = importlib.import_module(name)
        for item in vars(module).values():
            if isinstance(item, FunctionType) and item.__module__ == module.__name__:
                item.__code__ = atheris.instrument_func(item).__code__
    for item in vars(tomllib._parser).values():  # type: ignore[attr-defined]
        if isinstance(item, FunctionType) and item.__module__ == "tomllib._parser":
            item.__code__ = atheris.instrument_func(item).__code__


def main() -> None:
    """Fuzz one target until told to stop."""
    import atheris

    name = sys.argv.pop(1) if len(sys.argv) > 1 else ""
    if name not in TARGETS:
        sys.exit(f"Expected one of {', '.join(TARGETS)}, found {name!r}.")
    _instrument(atheris, name)
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus"
        corpus.mkdir()
        for number, seed in enumerate(seeds(name)):
            (corpus / str(number)).write_bytes(seed)
        given = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
        atheris.Setup(
            [*sys.argv, *([] if given else [str(corpus)])],
            lambda content: ends_well(name, content, Path(folder)) or None,
            **({"custom_mutator": mutated_bytes} if name == "audit" else {}),
        )
        atheris.Fuzz()


if __name__ == "__main__":
    main()
