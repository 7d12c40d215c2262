"""The labels that reach a loss, read off its graph, against the labels of the records that the round names.

Whoever names the wrong records, by positions in a subset for example, pairs each message with the label of another
record, and no attack on the recording then succeeds. Labels may differ for a good reason: the training noises them, as
its ledger says. So differences are counted by record, and the audit compares them with the ledger.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["LabelCheck", "targets_of"]

_MOST_NODES = 24
"""Nodes of a graph that are looked at: losses lie near its root."""
_INDICES, _FACTORS = ("_saved_index", "_saved_indices"), ("_saved_other",)
"""Where losses that are written out keep labels: as what log-probabilities are gathered by, or multiplied with."""
_ALIKE = 0.999
"""The correlation of targets that were scaled or moved, in whatever precision."""


def targets_of(roots: Any) -> Iterator[Tensor]:
    """What the losses near these tensors compare predictions with."""
    import torch

    tensors = roots if isinstance(roots, list | tuple) else [roots]
    queue = deque(node for t in tensors if isinstance(t, torch.Tensor) and (node := t.grad_fn) is not None)
    for _ in range(_MOST_NODES):
        if not queue:
            return
        node = queue.popleft()
        targets = _saved(node, ("_saved_target",))
        yield from targets
        yield from (t for t in _saved(node, _INDICES) if t.dtype == torch.int64)
        yield from (t for t in _saved(node, _FACTORS) if t.dim() == 2)
        if not targets:
            queue.extend(child for child, _ in node.next_functions if child is not None)


def _saved(node: Any, names: Sequence[str]) -> list[Tensor]:
    """What a node has kept under these names, if it is no single number; nothing if it is freed."""
    import torch

    values: list[Any] = []
    for name in names:
        if hasattr(type(node), name):
            with suppress(RuntimeError):  # a second pass through a graph, whose first one was looked at
                value = getattr(node, name)
                values += value if isinstance(value, tuple) else [value]
    return [t for t in values if isinstance(t, torch.Tensor) and t.dim() and not t.requires_grad]


class LabelCheck:
    """Compares, record by record, and counts those whose label was another one in the loss."""

    def __init__(self, labels: Tensor, classes: int | None, canaries: Tensor | None = None) -> None:
        """`labels` are class numbers, -1 where unknown, or the targets of a regression; `canaries` some records."""
        import torch

        self._labels, self._classes = labels, classes
        self._canaries = torch.zeros(len(labels), dtype=torch.bool)
        if canaries is not None:
            self._canaries[canaries] = True
        self._told = labels >= 0 if classes is not None else labels.isfinite()
        self._seen = torch.zeros(len(labels), dtype=torch.bool)
        self._different = torch.zeros(len(labels), dtype=torch.bool)

    @property
    def compared(self) -> int:
        """How many records' labels were seen in a loss."""
        return int(self._seen.sum())

    @property
    def different(self) -> int:
        """Of these, how many were another label at least once."""
        return int(self._different.sum())

    def agrees(self, target: Tensor, ids: Tensor) -> bool | None:
        """Whether targets are the labels of these records; None if they are none, such as one for all."""
        import torch

        known = self._labels[ids]
        values = self._values(target.detach(), len(ids))
        if values is None or not len(ids):
            return None
        if self._classes is None:
            return _related(values.double(), known)
        if torch.equal(values, known) or bool((values == known)[known >= 0].all()):
            return True
        return None if bool((values == values[0]).all()) else False

    def confirm(self, ids: Tensor) -> None:
        """A loss had the labels of these records."""
        self._seen[ids] = self._told[ids]

    def count(self, target: Tensor, ids: Tensor) -> str | None:
        """Count records of a loss that did not have their labels; in words, what differs."""
        import torch

        known, values = self._labels[ids], self._values(target.detach(), len(ids))
        assert values is not None
        told = self._told[ids]
        wrong = (values != known) & told
        if self._classes is None:
            wrong = told & (torch.zeros_like(told) if _related(values.double(), known) else torch.ones_like(told))
        self._seen[ids[told]] = True
        self._different[ids[wrong]] = True
        if not bool(wrong.any()):
            return None
        if bool(self._canaries[ids[wrong]].all()):
            return (
                f"{int(wrong.sum())} canaries have the label in the loss that they had before vflpriv.plant: train on "
                "the labels that it returned"
            )
        count = f"{int(wrong.sum())} of {len(ids)} labels that reach the loss are not those of the round's records"
        return f"{count}: the ids are wrong, or the training noises labels, which its ledger has to say"

    def _values(self, target: Tensor, rows: int) -> Tensor | None:
        """A target as labels (rows,), if it can be that: classes, columns of one, or one-hot rows."""
        if target.device.type != "cpu":
            target = target.cpu()
        if target.numel() == rows and rows:
            values = target.reshape(-1)
            if self._classes is None:
                return values if values.is_floating_point() else None
            return self._classes_of(values)
        one_hot = target.dim() == 2 and target.shape == (rows, self._classes) and target.is_floating_point()
        if self._classes is None or not one_hot or not bool((target.max(1).values > 0.5).all()):
            return None
        return target.argmax(1)

    def _classes_of(self, values: Tensor) -> Tensor | None:
        """Class numbers; -1 and 1 are two classes, and numbers from 1 on begin with the first."""
        assert self._classes is not None
        whole = values.long()
        if values.is_floating_point() and not bool((whole == values).all()):
            return None
        least, most = int(whole.min()), int(whole.max())
        if self._classes == 2 and least == -1 and not bool((whole == 0).any()):
            return (whole + 1) // 2
        if 1 <= least <= most == self._classes:
            return whole - 1
        return whole if least >= 0 and most < self._classes else None


def _related(values: Tensor, known: Tensor) -> bool:
    """Whether targets are the known ones, moved and scaled."""
    told = known.isfinite()
    targets, labels = values[told] - values[told].mean(), known[told] - known[told].mean()
    size = float(targets.norm() * labels.norm())
    return size == 0 or abs(float(targets @ labels)) >= _ALIKE * size
