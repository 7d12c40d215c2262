"""A user's training function: found in a file or a module, called with a wire, a world and a seed.

An error in the user's code becomes one line that says where in the user's file it happened.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import io
import random
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import cloudpickle
import numpy as np

from vflpriv.common.files import regular
from vflpriv.common.sources import code_hash
from vflpriv.errors import InputError
from vflpriv.recording.checked_wire import CheckedWire

__all__ = ["OwnTraining", "Train", "find_training"]

Train = Callable[[Any, int, int], object]
"""A function of (wire, world, seed) that trains once; worlds 0 and 1 differ in one unit."""
_FIELD = "--train"
_FORM = "FILE.py:FUNCTION or MODULE:FUNCTION, such as train.py:train"
_PREFIX = "vflpriv_train_"
_LOADED: dict[str, ModuleType] = {}
"""The files that this process has loaded, by a hash of their path and text."""


@dataclass(frozen=True, eq=False, kw_only=True)
class OwnTraining:
    """A training function and the name by which errors and reports call it; it can be sent to other processes.

    A file travels as its text, so that all trainings run the same code even if the file is edited meanwhile.
    """

    name: str
    path: Path | None = None
    text: str = ""
    module: str = ""
    attribute: str = ""
    given: Train | None = field(default=None)

    @property
    def function(self) -> Train:
        """The function, loaded in this process if it was not before."""
        loaded: Any = self.given or self._loaded()
        for part in self.attribute.split(".") if self.given is None else ():
            loaded = getattr(loaded, part, None)
        if not callable(loaded):
            raise InputError(_FIELD, self.name, f"the name of a function: there is no {self.attribute} in it")
        self._check_signature(loaded)
        return cast(Train, loaded)

    def _check_signature(self, function: Any) -> None:
        try:
            taken = inspect.signature(function)
        except (TypeError, ValueError):
            return  # a function in C does not say what it takes
        try:
            taken.bind(None, 0, 0)
        except TypeError as error:
            expected = f"a function of (wire, world, seed), not {self.attribute}{taken}"
            raise InputError(_FIELD, self.name, expected) from error

    def code(self) -> str | None:
        """A hash of all code that decides what it does; None if not all of it can be read."""
        return code_hash(inspect.unwrap(self.function))

    def run(self, wire: CheckedWire, world: int, seed: int) -> None:
        """Train once. Global random generators are seeded, too; what is printed is not shown."""
        function = self.function
        with _undisturbed(seed), redirect_stdout(io.StringIO()):
            try:
                function(wire, world, seed)
            except (Exception, SystemExit) as error:
                where = f"in world {world} with seed {seed}"
                raise InputError(
                    _FIELD, self.name, f"a training without errors; {where}: {self._line(error)}"
                ) from error

    def _loaded(self) -> ModuleType:
        try:
            if self.path is None:
                _extend_path(Path.cwd())
                return importlib.import_module(self.module)
            return _load_file(self.path, self.text)
        except ModuleNotFoundError as error:
            if error.name is not None and self.path is None and f"{self.module}.".startswith(f"{error.name}."):
                raise InputError(
                    _FIELD, self.name, f"a module that can be imported; there is no {error.name}"
                ) from error
            raise InputError(_FIELD, self.name, f"code that can be loaded: {self._line(error)}") from error
        except (Exception, SystemExit) as error:
            raise InputError(_FIELD, self.name, f"code that can be loaded: {self._line(error)}") from error

    def _line(self, error: BaseException) -> str:
        """An error in one line: what it says, and the last line of the user's own code that it passed through."""
        said = " ".join(str(error).split())
        text = said if isinstance(error, InputError) else f"{type(error).__name__}: {said}".rstrip(": ")
        if isinstance(error, SyntaxError):
            return text
        own = self._own_file()
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if own is not None and frame.filename == own]
        return f"{text} ({Path(own).name}, line {lines[-1]})" if own is not None and lines else text

    def _own_file(self) -> str | None:
        if self.path is not None:
            return str(self.path)
        if self.given is not None:
            code = getattr(inspect.unwrap(self.given), "__code__", None)
            return None if code is None else str(code.co_filename)
        return getattr(sys.modules.get(self.module), "__file__", None)


def find_training(given: str | Train) -> OwnTraining:
    """The training that is meant, loaded once in this process so that mistakes show before any work is done."""
    if callable(given):
        name = f"{getattr(given, '__module__', '?')}:{getattr(given, '__qualname__', type(given).__name__)}"
        training = OwnTraining(name=name, attribute=name.rpartition(":")[2], given=given)
        _check_portable(training)
        _ = training.function
        return training
    source, colon, attribute = str(given).rpartition(":")
    if not colon or not source or not all(part.isidentifier() for part in attribute.split(".")):
        raise InputError(_FIELD, str(given), _FORM)
    if source.endswith(".py") or "/" in source or "\\" in source:
        path = Path(source)
        training = OwnTraining(
            name=f"{path.name}:{attribute}", path=path.absolute(), text=_read(path, str(given)), attribute=attribute
        )
    else:
        training = OwnTraining(name=str(given), module=source, attribute=attribute)
    _ = training.function
    return training


def _check_portable(training: OwnTraining) -> None:
    try:
        cloudpickle.dumps(training)
    except Exception as error:
        why = " ".join(str(error).split())
        expected = f"a function that can be sent to another process ({why}), or {_FORM}"
        raise InputError(_FIELD, training.name, expected) from error


def _read(path: Path, given: str) -> str:
    try:
        return regular(path).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise InputError(_FIELD, given, f"a file that exists; there is no {path}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(_FIELD, given, f"a Python file that can be read ({error})") from error


def _load_file(path: Path, text: str) -> ModuleType:
    """The module of a file with this text: executed once in each process, under a name that no other module has."""
    key = hashlib.sha256(f"{path}\0{text}".encode()).hexdigest()
    if key not in _LOADED:
        _extend_path(path.parent)
        module = ModuleType(f"{_PREFIX}{key[:16]}")
        module.__file__ = str(path)
        sys.modules[module.__name__] = module
        try:
            with redirect_stdout(io.StringIO()):
                exec(compile(text, str(path), "exec"), module.__dict__)  # noqa: S102 (the user's own file)
        except BaseException:
            del sys.modules[module.__name__]
            raise
        _LOADED[key] = module
    return _LOADED[key]


def _extend_path(folder: Path) -> None:
    """Let modules beside the user's be imported, after all others: none of them takes the place of a library."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


@contextmanager
def _undisturbed(seed: int) -> Iterator[None]:
    """Seed the global random generators, and put them and torch's global settings back afterwards."""
    import torch

    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002 (what scripts use)
    dtype, gradients, threads = torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads()
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    torch.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        torch.set_rng_state(states[2])
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(gradients)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
