"""A stand-in for the parts of Flower that vertical apps use, with the same names: messages, grid, apps, a simulation.

Flower's requirements exclude versions that this repository is tested with, so that most test environments lack it.
"""

from __future__ import annotations

import itertools
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import torch

__all__ = ["Array", "ArrayRecord", "ConfigRecord", "Message", "MetricRecord", "RecordDict", "SimulatedGrid", "install"]


class Array:
    """An array as it travels: the receiver gets a copy that cannot be written to."""

    def __init__(self, values):
        self._bytes, self._like = values.tobytes(), values

    def numpy(self):
        return np.frombuffer(self._bytes, dtype=self._like.dtype).reshape(self._like.shape)


class ArrayRecord(dict):
    def __init__(self, arrays):
        super().__init__(
            {k: Array(v.detach().numpy()) if isinstance(v, torch.Tensor) else v for k, v in arrays.items()}
        )

    def to_torch_state_dict(self):
        return {name: torch.from_numpy(array.numpy().copy()) for name, array in self.items()}


class ConfigRecord(dict):
    pass


class MetricRecord(dict):
    pass


class RecordDict(dict):
    @property
    def array_records(self):
        return {name: record for name, record in self.items() if isinstance(record, ArrayRecord)}

    @property
    def metric_records(self):
        return {name: record for name, record in self.items() if isinstance(record, MetricRecord)}


class Message:
    _ids = itertools.count()

    def __init__(self, content=None, *, dst_node_id=None, message_type=None, reply_to=None):
        self._content = content
        about = reply_to.metadata if reply_to is not None else None
        self.metadata = SimpleNamespace(
            message_id=str(next(self._ids)),
            message_type=message_type if about is None else about.message_type,
            dst_node_id=dst_node_id if about is None else 0,
            src_node_id=0 if about is None else about.dst_node_id,
        )

    def has_content(self):
        return self._content is not None

    @property
    def content(self):
        if self._content is None:
            raise ValueError("Message content is None.")
        return self._content


class ServerApp:
    def main(self):
        def keep(function):
            self.run = function
            return function

        return keep


class ClientApp:
    def __init__(self):
        self.functions = {}

    def _on(self, category, action):
        return lambda function: self.functions.setdefault(f"{category}.{action}", function)

    def query(self, action):
        return self._on("query", action)

    def train(self, action):
        return self._on("train", action)


class SimulatedGrid:
    """Nodes in this process, with ids in no order, that answer in another order than they are asked."""

    def __init__(self, client_app, nodes):
        self._app, self._replies = client_app, {}
        self._contexts = {
            7919 * (nodes - n): SimpleNamespace(node_config={"partition-id": n}, state={}) for n in range(nodes)
        }

    def get_node_ids(self):
        return list(self._contexts)

    def push_messages(self, messages):
        for message in messages:
            function = self._app.functions[message.metadata.message_type]
            self._replies[message.metadata.message_id] = function(message, self._contexts[message.metadata.dst_node_id])
        return [message.metadata.message_id for message in messages]

    def pull_messages(self, message_ids):
        return [self._replies.pop(name) for name in reversed(list(message_ids))]

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(messages))


def run_simulation(server_app, client_app, num_supernodes, **_):
    server_app.run(SimulatedGrid(client_app, num_supernodes), SimpleNamespace())


def install(monkeypatch):
    """Put the stand-in in the place of Flower."""
    here = sys.modules[__name__]
    for name in ("flwr", "flwr.app", "flwr.clientapp", "flwr.serverapp", "flwr.simulation"):
        module = ModuleType(name)
        names = (
            "Array",
            "ArrayRecord",
            "ConfigRecord",
            "Message",
            "RecordDict",
            "ClientApp",
            "ServerApp",
            "run_simulation",
        )
        for known in names:
            setattr(module, known, getattr(here, known))
        module.Context, module.Grid = SimpleNamespace, SimulatedGrid
        monkeypatch.setitem(sys.modules, name, module)
