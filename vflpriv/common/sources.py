"""A hash of the code that decides a result: of this program, of the libraries it computes with, and of plug-ins.

Stored results carry it in their key, so that none outlives a change of what computed it.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, cached_property, partial
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, GetSetDescriptorType, MemberDescriptorType, ModuleType
from typing import Any

__all__ = ["code_hash", "deciding_packages", "program_hash"]

_PROGRAM = "vflpriv"
_SHOWING = frozenset({"cli", "config", "render", "report", "testing"})
"""The sub-packages that read, show or check results. All others decide them, new ones included."""
_FOLDERS = frozenset({"accountants", "attacks", "audits", "training"})
"""The sub-packages that do not lie in this program's folder where it is installed from its repository."""
_LIBRARIES = ("numpy", "pydantic", "scipy", "scikit-learn", "torch", "vflpriv")
_KNOWN_BY_VERSION = frozenset({"numpy", "pydantic", "scipy", "sklearn", "torch"})
"""The top-level packages of libraries: a class that derives from one of theirs is not defined by their source."""
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_IMPORTED = (".py", *EXTENSION_SUFFIXES)
"""How the names of files end that Python imports: a changed C source counts once it is compiled."""
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...))
_WITHOUT_MEANING = ("__annot", "__dict__", "__doc__", "__firstline", "__module__", "__pydantic", "__signature__",
                    "__static_", "__weakref__", "_abc_")  # fmt: skip
"""How the names of attributes begin that say nothing of what a class does."""


@cache
def program_hash() -> str:
    """A hash of this program's source, compiled modules and version, and of the versions of Python and libraries."""
    digest = hashlib.sha256(f"{sys.version_info[:2]}".encode())
    for library in _LIBRARIES:
        digest.update(f"\0{library} {_version(library)}".encode())
    for name in deciding_packages():
        spec = find_spec(f"{_PROGRAM}.{name}")
        for folder in (spec and spec.submodule_search_locations) or ():
            _add_code(digest.update, Path(folder), Path(folder).rglob("*"))
    return digest.hexdigest()


def deciding_packages() -> list[str]:
    """The sub-packages whose source decides what is trained, how it is scored and what is stored."""
    here = Path(__file__).parent.parent
    return sorted({path.parent.name for path in here.glob("*/__init__.py")} - _SHOWING | _FOLDERS)


def code_hash(*items: Any) -> str | None:
    """A hash of `program_hash` and of all code that defines these classes, their bases included.

    Of a class from elsewhere: the source and compiled files of its package (or of the folder of its module), those of
    modules in use that lie outside installed libraries, and the loaded code with the values it refers to. None if it
    cannot be told whether the code is the same next time: a class of a notebook that refers to an object of unknown
    content.
    """
    reader = _CodeReader()
    for item in items:
        reader.read(item)
    return reader.digest.hexdigest() if reader.complete else None


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "unknown"


def _add_code(add: Callable[[bytes], object], folder: Path, paths: Iterable[Path]) -> None:
    """Add the files among these that are imported: source, and what was compiled, whose source is not what runs."""
    for path in sorted(paths):
        if path.name.endswith(_IMPORTED) and path.is_file():
            content = path.read_bytes()
            add(f"\0{path.relative_to(folder).as_posix()}\0{len(content)}\0".encode())
            add(content)


class _CodeReader:
    """Follows classes and functions to everything from outside this program and the libraries that they use."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256(program_hash().encode())
        self.complete = True
        self._known: dict[int, Any] = {}
        self._folders: set[Path] = set()
        self._own: set[str] = set()
        """Top-level packages of the classes, which count as a whole even if they are installed."""

    def read(self, item: Any) -> None:
        """Add a class, and the packages of its bases."""
        for base in getattr(item, "__mro__", (item,)):
            top = str(base.__module__).partition(".")[0]
            if top not in _KNOWN_BY_VERSION:
                self._own.add(top)
            self._add(base)

    def _add(self, value: Any, *, sourced: bool = True) -> None:
        """Add a value; `sourced` says that a source file, which is added too, defines it."""
        if isinstance(value, _PLAIN):
            self._text(repr(value))
        elif isinstance(value, CodeType):
            self._code(value, sourced)
        elif id(value) not in self._known:
            self._known[id(value)] = value  # keeps it alive, so that no other value gets its id
            self._compound(value, sourced)

    def _compound(self, value: Any, sourced: bool) -> None:
        if isinstance(value, ModuleType):
            self._module(value.__name__)
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, FunctionType):
            self._function(value)
        elif isinstance(value, list | tuple | set | frozenset | Mapping):
            self._container(value, sourced)
        elif isinstance(value, classmethod | staticmethod):
            self._add(value.__func__, sourced=sourced)
        elif isinstance(value, property):
            self._container((value.fget, value.fset, value.fdel), sourced)
        elif isinstance(value, cached_property):
            self._add(value.func, sourced=sourced)
        elif isinstance(value, partial):
            self._container((value.func, value.args, value.keywords), sourced)
        else:
            self._instance(value, sourced)

    def _instance(self, value: Any, sourced: bool) -> None:
        """An object: its class and, where they are known, its values."""
        self._text(f"{type(value).__module__}.{type(value).__qualname__}")
        if isinstance(value, Enum):
            self._text(value.name)
        elif is_dataclass(value):
            self._add(type(value), sourced=sourced)
            self._container({f.name: getattr(value, f.name, None) for f in fields(value)}, sourced)
        elif isinstance(value, BuiltinFunctionType | GetSetDescriptorType | MemberDescriptorType):
            self._text(value.__qualname__)
            if isinstance(getattr(value, "__module__", None), str):
                self._module(value.__module__)  # a function of a compiled module, which counts as its files do
        elif hasattr(value, "__array__") and hasattr(value, "shape"):
            array = value.detach().cpu().numpy() if hasattr(value, "detach") else value
            self._text(f"{array.dtype} {tuple(array.shape)}")
            self.digest.update(array.tobytes())
        elif type(value).__module__.partition(".")[0] == "typing" or hasattr(value, "__origin__"):
            self._text(repr(value))
        else:
            self.complete = self.complete and sourced

    def _container(self, values: Any, sourced: bool) -> None:
        self._text(f"{type(values).__name__} {len(values)}")
        if isinstance(values, Mapping):
            values = [part for pair in sorted(values.items(), key=lambda pair: repr(pair[0])) for part in pair]
        elif isinstance(values, set | frozenset):
            values = sorted(values, key=repr)
        for part in values:
            self._add(part, sourced=sourced)

    def _class(self, value: type) -> None:
        self._text(f"{value.__module__}.{value.__qualname__}")
        if not self._module(value.__module__):
            return
        for base in value.__bases__:
            self._add(base)
        sourced = self._is_sourced(value.__module__)
        for name, part in sorted(vars(value).items()):
            if name not in _WITHOUT_MEANING and not name.startswith(
                ("__pydantic", "_abc_", "__static_", "__firstline")
            ):
                self._text(name)
                self._add(part, sourced=sourced)

    def _function(self, value: FunctionType) -> None:
        self._text(f"{value.__module__}.{value.__qualname__}")
        if not self._module(str(value.__module__)):
            return
        sourced = self._is_sourced(str(value.__module__))
        self._code(value.__code__, sourced)
        self._container((value.__defaults__, value.__kwdefaults__ or {}), sourced)
        for cell in value.__closure__ or ():
            # Closures differ between classes of the same source, such as those that a function makes.
            content = _content(cell)
            self._add(content, sourced=sourced)
        for name in _names(value.__code__):
            if name in value.__globals__:
                self._text(name)
                self._add(value.__globals__[name], sourced=sourced)

    def _code(self, code: CodeType, sourced: bool) -> None:
        self._text(f"{code.co_names} {code.co_varnames} {code.co_freevars} {code.co_flags}")
        self.digest.update(code.co_code)
        for constant in code.co_consts:
            self._add(constant, sourced=sourced)

    def _module(self, name: str) -> bool:
        """Add what is known of a module; whether the values in it are to be followed."""
        top = name.partition(".")[0]
        if top == _PROGRAM or (top in sys.stdlib_module_names and top != "__main__"):
            return False
        file = _file(name)
        if file is None:
            return True
        if _INSTALLED & set(file.parts) and top not in self._own:
            self._text(f"{top} {getattr(sys.modules.get(top), '__version__', '')}")
            return False
        folder, whole = _root(top, file)
        if folder not in self._folders:
            self._folders.add(folder)
            _add_code(self.digest.update, folder, folder.rglob("*") if whole else folder.glob("*"))
        return True

    @staticmethod
    def _is_sourced(module: str) -> bool:
        return _file(module) is not None

    def _text(self, text: str) -> None:
        self.digest.update(f"\0{text}".encode())


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None  # a name that has no value yet


def _names(code: CodeType) -> list[str]:
    """The names that a function and those inside it look up in the module or as attributes."""
    inner = [name for part in code.co_consts if isinstance(part, CodeType) for name in _names(part)]
    return sorted({*code.co_names, *inner})


def _file(module: str) -> Path | None:
    """The source file of a loaded module, or None."""
    name = getattr(sys.modules.get(module), "__file__", None)
    return Path(name) if name is not None and Path(name).is_file() else None


def _root(top: str, file: Path) -> tuple[Path, bool]:
    """The folder whose source counts, and whether its sub-folders do: a package, or the folder of a single module."""
    for folder in getattr(sys.modules.get(top), "__path__", ()):
        if file.is_relative_to(folder):
            return Path(folder), True
    return file.parent, False
