"""Vertical learning with Flower, of the structure of its example `vertical-fl`: three nodes, a server with the labels.

The server asks the nodes for embeddings, and sends them the gradients by these. Three lines were added to the
ServerApp, beside their imports.
"""

from __future__ import annotations

import sys

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation
from sklearn.datasets import load_breast_cancer
from torch import nn

import vflpriv
from vflpriv.recording.adapters.flower import watch_grid

ROUNDS, NODES, WIDTH, RATE, RECORDS = 20, 3, 4, 0.5, 300
FOLDER = sys.argv[1] if len(sys.argv) > 1 else "transcript"


def load_data() -> tuple[torch.Tensor, torch.Tensor]:
    features, labels = (torch.tensor(values[:RECORDS]) for values in load_breast_cancer(return_X_y=True))
    return ((features - features.mean(0)) / features.std(0)).float(), labels


# The ClientApp: one model for each node, kept in the node's context between messages.

client_app = ClientApp()


def local_model(context: Context) -> tuple[nn.Linear, torch.Tensor, int]:
    position = int(context.node_config["partition-id"])
    block = load_data()[0].chunk(NODES, dim=1)[position]
    torch.manual_seed(position)
    model = nn.Linear(block.shape[1], WIDTH)
    if "model" in context.state:
        model.load_state_dict(context.state["model"].to_torch_state_dict())
    return model, block, position


@client_app.query("generate_embeddings")
def generate_embeddings(message: Message, context: Context) -> Message:
    model, block, position = local_model(context)
    arrays = ArrayRecord({"embedding": Array(model(block).detach().numpy())})
    content = RecordDict({"arrays": arrays, "config": ConfigRecord({"pos": position})})
    return Message(content, reply_to=message)


@client_app.train("apply_gradients")
def apply_gradients(message: Message, context: Context) -> Message:
    model, block, _ = local_model(context)
    gradient = torch.from_numpy(message.content["gradients"]["local-gradients"].numpy().copy())
    model(block).backward(gradient)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= RATE * parameter.grad
    context.state["model"] = ArrayRecord(model.state_dict())
    return Message(RecordDict(), reply_to=message)


# The ServerApp

server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    labels, canaries = vflpriv.plant(load_data()[1], classes=2, canaries=150, seed=1)  # added
    grid = watch_grid(grid, labels=labels, canaries=canaries, classes=2, folder=FOLDER, devices=NODES)  # added
    torch.manual_seed(7)
    head = nn.Linear(NODES * WIDTH, 1)
    optimiser, criterion = torch.optim.Adam(head.parameters(), lr=0.05), nn.BCEWithLogitsLoss()
    for _ in range(ROUNDS):
        asked = [
            Message(RecordDict(), dst_node_id=node, message_type="query.generate_embeddings")
            for node in grid.get_node_ids()
        ]
        embeddings, position_of = torch.zeros(len(labels), NODES * WIDTH), {}
        for reply in grid.send_and_receive(asked):
            position = reply.content["config"]["pos"]
            position_of[reply.metadata.src_node_id] = position
            array = reply.content["arrays"]["embedding"].numpy()
            embeddings[:, position * WIDTH : (position + 1) * WIDTH] = torch.from_numpy(array.copy())

        embeddings.requires_grad_()
        optimiser.zero_grad()
        criterion(head(embeddings)[:, 0], labels.float()).backward()
        optimiser.step()

        gradients = embeddings.grad.split(WIDTH, dim=1)
        told = [
            Message(
                RecordDict({"gradients": ArrayRecord({"local-gradients": Array(gradients[position].numpy().copy())})}),
                dst_node_id=node,
                message_type="train.apply_gradients",
            )
            for node, position in position_of.items()
        ]
        grid.send_and_receive(told)
    grid.finish()  # added


if __name__ == "__main__":
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server_app, client_app, num_supernodes=NODES, backend_config=resources)
