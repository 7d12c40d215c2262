"""Gradients where they arrive at the party that sent an output: behind all hooks on their way.

Noise is added to a gradient by hooks of tensors, of modules or of nodes in the graph. A hook before the node that made
the output comes after those of tensors and of modules, and one that is registered when the backward pass begins comes
after others like it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Listening"]

_MOST = 256
"""Outputs whose hooks may still move; a loop without backward passes keeps no more graphs."""
Receive = Callable[["Tensor"], "Tensor | None"]
"""Is given a gradient; returns what takes its place, or None."""


class Listening:
    """Hooks on the outputs of the passes so far, until a backward pass has begun."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Any, Any, Callable[..., Any]]] = deque(maxlen=_MOST)

    def listen(self, sent: Tensor, receive: Receive) -> None:
        """Hand over each gradient by this output."""
        node, place = sent.grad_fn, sent.output_nr
        if node is None:
            if sent.requires_grad:
                sent.register_hook(receive)
            return

        def received(gradients: tuple[Any, ...]) -> tuple[Any, ...] | None:
            arrived = None if gradients[place] is None else receive(gradients[place])
            return None if arrived is None else (*gradients[:place], arrived, *gradients[place + 1 :])

        self._waiting.append((node.register_prehook(received), node, received))

    def be_last(self) -> None:
        """A pass begins: whatever hooks others have registered meanwhile come before ours."""
        for handle, node, received in self._waiting:
            hooks = handle.hooks_dict_ref()
            if hooks is not None and next(reversed(hooks)) != handle.id:
                handle.remove()
                node.register_prehook(received)
        self._waiting.clear()
