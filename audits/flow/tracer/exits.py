"""Where private values leave torch: numbers, NumPy, branches, prints, pickles, other threads; and where draws come in.

The dispatcher does not see these. A function mode does, and for as long as a program is traced NumPy's generators give
arrays that are known as draws.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from vflpriv.audits.flow.draws.families import DISCRETE, GEOMETRIC
from vflpriv.audits.flow.draws.rows import no_columns
from vflpriv.audits.flow.plain.generators import Origin
from vflpriv.audits.flow.plain.host import HostLaw, host_draws
from vflpriv.audits.flow.tracer.announcements import Announcements
from vflpriv.audits.flow.tracer.dispatch import Trace
from vflpriv.audits.flow.tracer.events import FILE, PLACE, HostRead
from vflpriv.audits.flow.tracer.lines import program_line
from vflpriv.audits.flow.tracer.numbers import MarkedArray, marked, plain_functions, tensor_of
from vflpriv.audits.flow.tracer.sampling import counted, enter_draw
from vflpriv.audits.flow.tracer.storages import NOTHING, State
from vflpriv.common.random import listening

__all__ = ["Exits"]

_READS = {
    "__bool__": "a branch",
    "__float__": "a plain real number",
    "__int__": "a plain number",
    "__index__": "a plain number",
    "__complex__": "a plain number",
    "tolist": "a list",
    "data_ptr": "its address",
    "__dlpack__": "another library",
    "share_memory_": "another process",
    "equal": "a branch",
    "allclose": "a branch",
    "is_nonzero": "a branch",
}
_LOGS = {
    "__repr__": "a log",
    "__format__": "a log",
    "__str__": "a log",
    "__reduce_ex__": FILE,
    "share_memory_": "another process",
}
_WATCHED = frozenset({"item", "numpy", "__array__", *_READS, *_LOGS})
_DROPOUTS = frozenset(
    {f"{kind}dropout{end}" for kind in ("", "alpha_", "feature_", "feature_alpha_") for end in ("", "_")}
)
_LISTED = 1024
"""Lists of more numbers are not followed one by one."""
_MADE = frozenset({"tensor", "as_tensor", "asarray", "scalar_tensor"})


class Exits(TorchFunctionMode):
    """Notices reads of private values and of draws by the host."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self.trace = trace
        self.marks = False
        """Whether there is any marked number or array."""

    def paused(self) -> AbstractContextManager[None]:
        """Operations of the tracer itself."""
        return self.trace.paused()

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.trace.pausing:
            return func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if name in _WATCHED and args and isinstance(first := args[0], Tensor):
            if name == "item":
                with self.paused():
                    value = func(*args, **kwargs)
                return self._number(first, value)
            if name == "tolist" and first.dtype != torch.bool and 0 < first.numel() <= _LISTED:
                return self._list(first, func(*args, **kwargs))
            if name in ("numpy", "__array__"):
                return self._array(first, func, args, kwargs)
            if name in _READS:
                self.read(PLACE if self._chooses(name, first) else _READS[name], first)
                with self.paused():
                    return func(*args, **kwargs)
            if name in _LOGS:
                self.read(_LOGS[name], first, log=True)
                with self.paused():
                    return func(*args, **kwargs)
        if name == "one_hot" and (len(args) > 1 or kwargs.get("num_classes", -1) > 0):
            # It looks whether every number is a class, and nothing else follows from that.
            with self.trace.unread():
                return func(*args, **kwargs)
        if name in _DROPOUTS and not self._of_noise(args):
            self.trace.dropping += 1
            try:
                return func(*args, **kwargs)
            finally:
                self.trace.dropping -= 1
        if self.marks and (_any_marked(args) or (kwargs and _any_marked(tuple(kwargs.values())))):
            return self._with_numbers(name, func, args, kwargs)
        return func(*args, **kwargs)

    def _of_noise(self, args: tuple[Any, ...]) -> bool:
        """Whether it is noise that dropout thins: then it hides less than it seems."""
        first = args[0] if args and isinstance(args[0], Tensor) and args[0].layout == torch.strided else None
        state = None if first is None else self.trace.table.of(first)
        return state is not None and state.random and not state.taint

    def read(self, how: str, tensor: Tensor, *, log: bool = False) -> None:
        """Note a read of a tensor, if it is private or drawn."""
        if not self.trace.pausing:
            with self.paused():
                self.trace.host_read(tensor, how, log=log)

    def _chooses(self, name: str, tensor: Tensor) -> bool:
        """Whether a whole number is one that chooses an entry of something."""
        state = self.trace.table.of(tensor) if tensor.layout == torch.strided else None
        return name == "__index__" or (name == "__int__" and state is not None and state.place)

    def _touched(self, state: State) -> None:
        """The host gets a number that is followed: it may go ways on which it is not."""
        self.marks = True
        self.trace.contact = self.trace.contact or bool(state.taint)

    def _number(self, tensor: Tensor, value: Any) -> Any:
        """`item()`: a number that is followed."""
        state = self.trace.table.of(tensor) if tensor.layout == torch.strided else None
        if state is None or not (state.taint or state.random or state.seals):
            return value
        if isinstance(value, bool):
            self.read("a branch", tensor)
            return value
        self._touched(state)
        if state.place:
            self.read(PLACE, tensor)
        wide = torch.float64 if isinstance(value, float) else torch.int64
        return marked(value, tensor.detach().reshape(()).to(wide, copy=True), self)

    def _list(self, tensor: Tensor, values: Any) -> Any:
        """`tolist()`: numbers that are followed, each for itself."""
        state = self.trace.table.of(tensor) if tensor.layout == torch.strided else None
        if state is None or not (state.taint or state.random or state.seals):
            return values
        self._touched(state)
        wide = tensor.detach().to(torch.float64 if tensor.is_floating_point() else torch.int64, copy=True)

        def nested(entries: Any, part: Tensor) -> Any:
            if not isinstance(entries, list):
                return marked(entries, part, self)
            return [nested(entry, part[place]) for place, entry in enumerate(entries)]

        return nested(values, wide)

    def _array(self, tensor: Tensor, func: Any, args: Any, kwargs: Any) -> Any:
        state = self.trace.table.of(tensor) if tensor.layout == torch.strided else None
        if state is None:
            return func(*args, **kwargs)
        if tensor.requires_grad or kwargs or len(args) > 1:
            self.read("an array", tensor)
            return func(*args, **kwargs)
        self._touched(state)
        # Indices into other arrays are not seen.
        self.read("an array", tensor)
        return MarkedArray.of(tensor, self)

    def _with_numbers(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        """A function that is given marked numbers or arrays takes their tensors."""
        if name in _MADE:
            made = _tensor(args[0])
            floats = made.is_floating_point() and not isinstance(args[0], MarkedArray)
            return made.to(kwargs.get("dtype") or (torch.get_default_dtype() if floats else made.dtype))
        if name in ("full", "full_like", "new_full", "fill_", "new_tensor"):
            return self._filled(name, func, args, kwargs)
        try:
            return func(*_replaced(args), **{key: _replaced((value,))[0] for key, value in kwargs.items()})
        except (TypeError, RuntimeError):
            out = func(*args, **kwargs)
        # The operation takes plain numbers only, such as a factor of a fused update.
        states = [self.trace.table.of(t) for t in map(tensor_of, (*args, *kwargs.values())) if t is not None]
        taint = NOTHING.union(*[state.taint for state in states if state is not None])
        for result in out if isinstance(out, list | tuple) else (out, *args[:1]):
            if isinstance(result, Tensor) and taint:
                state = self.trace.table.enter(result)
                state.taint, state.masked = state.taint | taint, False
        if taint:
            self.trace.lose(f"{name} takes a number that was read from a private value")
        return out

    def _filled(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        """A tensor full of a marked number: zeros plus that number."""
        place = 0 if name == "new_tensor" else 1
        number = tensor_of(args[place] if len(args) > place else kwargs.get("fill_value"))
        if number is None:
            return func(*args, **kwargs)
        if name == "fill_":
            return args[0].copy_(number)
        if "fill_value" in kwargs:
            kwargs = kwargs | {"fill_value": 0.0}
        else:
            args = (*args[:place], 0.0, *args[place + 1 :])
        return func(*args, **kwargs).copy_(number)

    # What comes in

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Follow for as long as a program runs."""
        with ExitStack() as stack:
            stack.enter_context(patch.object(torch, "from_numpy", self._from_numpy(torch.from_numpy)))
            stack.enter_context(patch.object(torch, "save", self._saving(torch.save)))
            stack.enter_context(patch.object(threading.Thread, "start", self._thread(threading.Thread.start)))
            stack.enter_context(host_draws(self.drawn))
            stack.enter_context(plain_functions())
            stack.enter_context(listening(Announcements(self.trace)))
            with self:
                yield

    def _from_numpy(self, original: Any) -> Any:
        def from_numpy(array: Any) -> Any:
            tensor = array.followed if isinstance(array, MarkedArray) else None
            return original(np.asarray(array)) if tensor is None else tensor

        return from_numpy

    def _saving(self, save: Any) -> Any:
        """`torch.save` writes storages, which no operation of torch shows."""

        def saving(value: Any, *args: Any, **kwargs: Any) -> None:
            for tensor in tree_leaves(value.state_dict() if isinstance(value, torch.nn.Module) else value):
                if isinstance(tensor, Tensor):
                    self.read(FILE, tensor, log=True)
            save(value, *args, **kwargs)

        return saving

    def _thread(self, start: Any) -> Any:
        def noticed(thread: threading.Thread) -> None:
            if self.trace.sources and not self.trace.pausing:
                self.trace.reads.append(HostRead(how="another thread", where=program_line()))
            start(thread)

        return noticed

    def drawn(self, values: Any, name: str, law: HostLaw, origin: Origin) -> Any:
        """NumPy's draws as an array, or a number, that is known as a draw."""
        moved = any(isinstance(value, MarkedArray) or tensor_of(value) is not None for value in (law.shift, law.scale))
        if moved and not self.trace.pausing and np.isrealobj(values):
            given = self._around(values, name, law, origin)
        else:
            with self.paused():
                given = self._entered(values, name, law, origin)
        self.trace.draws.position += 1
        return given

    def _around(self, values: Any, name: str, law: HostLaw, origin: Origin) -> Any:
        """A draw around a number that is followed, or of such a scale: that number plus a standard draw times it."""
        shift, scale = (_tensor(np.asarray(v) if isinstance(v, list | tuple) else v) for v in (law.shift, law.scale))
        with self.paused():
            plain = torch.from_numpy(np.asarray(values, dtype=np.float64).copy())
            standard = (plain - shift.detach().double()) / scale.detach().double()
            self._enter(standard, name, HostLaw(law.family), origin)
        return self._known(values, shift.double() + scale.double() * standard)

    def _entered(self, values: Any, name: str, law: HostLaw, origin: Origin) -> Any:
        trace = self.trace
        if not (trace.sources or trace.early) or trace.pausing > 1 or not np.isrealobj(values):
            return values
        tensor = torch.from_numpy(np.array(values))
        if law.family is DISCRETE:
            # A number of another law: what is computed from it is known to depend on a draw.
            trace.mark(tensor, NOTHING, NOTHING, masked=False).opaque = no_columns()
        else:
            self._enter(tensor, name, law, origin)
        return self._known(values, tensor)

    def _enter(self, tensor: Tensor, name: str, law: HostLaw, origin: Origin) -> None:
        self.trace.draws.seed(origin.seed)
        shift, scale = (torch.as_tensor(np.asarray(value, dtype=np.float64)) for value in (law.shift, law.scale))
        enter_draw(self.trace, tensor, f"numpy {name}", (law.family, shift, scale), origin.state)
        if law.family is GEOMETRIC:
            counted(self.trace, tensor, law.rate)

    def _known(self, values: Any, tensor: Tensor) -> Any:
        """What the program gets: values that are followed as this tensor."""
        self.marks = True
        if tensor.dim() == 0:
            return marked(values.item() if isinstance(values, np.generic) else values, tensor, self)
        return MarkedArray.of(tensor, self)


def _any_marked(values: tuple[Any, ...]) -> bool:
    for value in values:
        if tensor_of(value) is not None or isinstance(value, MarkedArray):
            return True
        if isinstance(value, list | tuple) and value and _any_marked(tuple(value)):
            return True
    return False


def _replaced(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        value.followed if isinstance(value, MarkedArray) else value if (t := tensor_of(value)) is None else t
        for value in values
    )


def _tensor(value: Any) -> Any:
    """A tensor of numbers, arrays and lists of them, some of them marked."""
    if isinstance(value, MarkedArray):
        followed = value.followed
        return torch.from_numpy(np.asarray(value)) if followed is None else followed.clone()
    number = tensor_of(value)
    if number is not None:
        return number.clone()
    if isinstance(value, list | tuple):
        entries = [_tensor(entry) for entry in value]
        return torch.stack([entry if isinstance(entry, Tensor) else torch.tensor(entry) for entry in entries])
    return torch.tensor(value)
