"""A user's script as a program: it is run from its first line, with wires in place of its recordings.

Every run starts afresh. Generators of random numbers, arguments and modules that lie beside the script are restored
afterwards, and what it prints is not shown. A global seed that the script fixes stands for a secret one, which is
another one in each run; data are loaded in the process of the script, where they can be followed.
"""

from __future__ import annotations

import hashlib
import io
import os
import random
import runpy
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from vflpriv.audits.flow.plain.twins import seeded
from vflpriv.audits.flow.plain.wire import FlowWire
from vflpriv.audits.flow.tracer.lines import program_line
from vflpriv.common.files import regular
from vflpriv.errors import InputError
from vflpriv.recording.elsewhere import WireMaker, wires_made_by
from vflpriv.recording.recorder import RecordingWire
from vflpriv.run.traced.wire import Ended

__all__ = ["Script", "find_script"]

_SECRET = 1 << 48
"""Seeds from here on are too many to be tried out."""
_STEP = 0x9E3779B97F4A7C15


def _words(digest: bytes) -> list[int]:
    """As NumPy takes them."""
    return [int.from_bytes(digest[place : place + 4], "big") for place in range(0, len(digest), 4)]


@dataclass(frozen=True, eq=False, kw_only=True)
class Script:
    """A script, as it was when it was found, and its arguments."""

    path: Path
    arguments: tuple[str, ...] = ()
    fixed_seeds: dict[str, None] = field(default_factory=dict)
    """Lines that fix the seed of a global generator; they are known after a run."""

    @property
    def name(self) -> str:
        """How reports call it."""
        return self.path.name

    @property
    def seed_notes(self) -> list[str]:
        """A sentence for each line that fixes a seed."""
        return [
            f"{line}: the seed is fixed; whoever knows it can draw the same noise and subtract it. It is taken to be "
            "secret here: leave it out where the script runs for real"
            for line in self.fixed_seeds
            if line
        ]

    def run(self, maker: WireMaker) -> None:
        """Run it; an error of the user's code is one line that says where it happened."""
        try:
            with wires_made_by(maker), self._as_a_program():
                runpy.run_path(str(self.path), run_name="__main__")
        except Ended:
            return
        except SystemExit as stopped:
            if stopped.code not in (None, 0):
                raise InputError("script", self.name, f"a script that ends; it stops with {stopped.code!r}") from None
        except Exception as error:
            raise InputError("script", self.name, f"a script without errors: {self._line(error)}") from error

    def record(self, folder: Path, seed: int) -> None:
        """Run it, and keep what it sends in a folder of this tool's own."""
        wires: list[RecordingWire] = []

        def maker(**head: Any) -> RecordingWire:
            if wires:
                raise InputError("script", self.name, "a script that makes one wire; this one makes several")
            wires.append(RecordingWire(folder, **head | {"name": self.name}))
            return wires[0]

        try:
            with seeded(seed):
                self.run(maker)
            for wire in wires:
                wire.finish()
        finally:
            for wire in wires:
                wire.abandon()

    def _line(self, error: Exception) -> str:
        said = " ".join(str(error).split())
        text = said if isinstance(error, InputError) else f"{type(error).__name__}: {said}".rstrip(": ")
        own = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(self.path)]
        return f"{text} ({self.name}, line {own[-1]})" if own else text

    @contextmanager
    def _as_a_program(self) -> Iterator[None]:
        modules, folder = set(sys.modules), str(self.path.parent)
        states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
        dtype, gradients = torch.get_default_dtype(), torch.is_grad_enabled()
        quiet = io.StringIO()
        try:
            with ExitStack() as stack:
                changes: list[AbstractContextManager[Any]] = [
                    patch.object(sys, "argv", [str(self.path), *self.arguments]),
                    patch.object(sys, "path", [folder, *sys.path]),
                    patch.object(torch, "manual_seed", self._seeding(torch.manual_seed)),
                    patch.object(torch.random, "manual_seed", self._seeding(torch.random.manual_seed)),
                    patch.object(np.random, "seed", self._noted(np.random.seed, _words)),
                    patch.object(random, "seed", self._noted(random.seed, bytes)),
                    patch.object(DataLoader, "__init__", _loading_here(DataLoader.__init__)),
                    patch.object(_BaseDataLoaderIter, "__init__", _unseen(_BaseDataLoaderIter.__init__)),
                    patch.object(_BaseDataLoaderIter, "_next_index", _unseen(_BaseDataLoaderIter._next_index)),
                    patch.dict(os.environ, {"MPLBACKEND": "Agg"}),
                    redirect_stdout(quiet),
                    redirect_stderr(quiet),
                    warnings.catch_warnings(),
                ]
                for change in changes:
                    stack.enter_context(change)
                warnings.simplefilter("ignore")
                yield
        finally:
            for name in set(sys.modules) - modules:
                if str(getattr(sys.modules[name], "__file__", None) or "").startswith(f"{folder}{os.sep}"):
                    del sys.modules[name]
            random.setstate(states[0])
            np.random.set_state(states[1])  # noqa: NPY002
            torch.set_rng_state(states[2])
            torch.set_default_dtype(dtype)
            torch.set_grad_enabled(gradients)

    def _seeding(self, original: Callable[[int], Any]) -> Callable[[int], Any]:
        """`torch.manual_seed` with another seed in each run, the same for the same one of the script."""
        base = torch.initial_seed()

        def manual_seed(seed: int) -> Any:
            self.fixed_seeds[program_line()] = None
            return original(((base + (int(seed) + 1) * _STEP) % (1 << 63)) | _SECRET)

        return manual_seed

    def _noted(self, original: Callable[..., Any], form: Callable[[bytes], Any]) -> Callable[..., Any]:
        """A seed of NumPy's or Python's global generator, in the same way: several words, as long as a secret one."""
        base = str(torch.initial_seed()).encode()

        def seed(*args: Any, **kwargs: Any) -> Any:
            if not args and not kwargs:
                return original()
            self.fixed_seeds[program_line()] = None
            digest = hashlib.blake2b(base + repr((args, kwargs)).encode(), digest_size=16).digest()
            return original(form(digest))

        return seed


def find_script(path: str | Path, arguments: tuple[str, ...] = ()) -> Script:
    """The script in a file, which is read but not run."""
    try:
        text = regular(Path(path)).read_text(encoding="utf-8")
        compile(text, str(path), "exec")
    except FileNotFoundError as error:
        raise InputError("script", str(path), "a file that exists") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("script", str(path), f"a Python file that can be read ({error})") from error
    except (SyntaxError, ValueError) as error:
        where = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise InputError("script", str(path), f"Python code ({getattr(error, 'msg', error)}{where})") from error
    return Script(path=Path(path).absolute(), arguments=arguments)


def _unseen(original: Callable[..., Any]) -> Callable[..., Any]:
    """Which records are in a batch is no secret: draws of loaders, of any sampler, are no part of what is followed."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        with FlowWire.unseen():
            return original(self, *args, **kwargs)

    return method


_OF_WORKERS = {"prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout", "worker_init_fn"}
_PLACES = ("batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn", "pin_memory")
"""Arguments of a data loader by their place."""


def _loading_here(original: Callable[..., None]) -> Callable[..., None]:
    """Data loaders without workers: what another process loads cannot be followed."""

    def made(loader: Any, dataset: Any, *args: Any, **kwargs: Any) -> None:
        given = dict(zip(_PLACES, args, strict=False)) | kwargs
        kept = {name: value for name, value in given.items() if name not in _OF_WORKERS | {"pin_memory"}}
        original(loader, dataset, **kept | {"num_workers": 0})

    return made
