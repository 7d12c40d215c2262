"""Pieces of a plain reading of zeroth-order algorithms: one replica, one record, one parameter vector at a time."""

from __future__ import annotations

import torch

from vflpriv.core.wire import Transcript, Wire

__all__ = ["bottom", "first", "gradient_of_top", "loss", "mean_step", "run", "same_start", "shift"]


def run(system, replicas=(0,), data=None):
    transcript = Transcript()
    engine = system.train(replicas, data=data)
    wire = Wire(transcript)
    engine.run(wire)
    return engine, transcript, wire


def first(parameters):
    """Replica 0's parameters, copied."""
    return {name: value[0].clone() for name, value in parameters.items()}


def bottom(w, x):
    return torch.relu(x @ w["weight0"] + w["bias0"])


def loss(w, rows, label):
    hidden = torch.relu(rows.flatten() @ w["weight0"] + w["bias0"])
    logits = hidden @ w["weight1"] + w["bias1"]
    return torch.logsumexp(logits, 0) - logits[label]


def shift(w, u, step):
    return {name: w[name] + step * u[name] for name in w}


def gradient_of_top(w, table, ids, labels, size):
    """The gradient of the batch's loss by the top model's parameters."""
    leaves = {name: value.clone().requires_grad_() for name, value in w.items()}
    total = sum(loss(leaves, table[i], int(labels[i])) for i in ids) / size
    return dict(zip(leaves, torch.autograd.grad(total, list(leaves.values())), strict=True))


def same_start(engine):
    """Give every replica the models of replica 0: they then differ in their directions alone."""
    for parameters in (*engine.bottom_parameters, engine.top_parameters):
        for value in parameters.values():
            value[:] = value[:1].clone()


def mean_step(before, after, rate):
    """(R, d) the estimates that moved these parameters."""
    return torch.cat([(before[n] - after[n]).flatten(1) / rate for n in before], dim=1)
