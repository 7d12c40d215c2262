"""The commands about transcripts: draft a ledger, and merge the parties' own transcripts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vflpriv.errors import InputError

__all__ = ["ledger", "merge"]


def ledger(
    transcript: Annotated[Path, typer.Argument(help="The folder of a recorded training.")],
    out: Annotated[Path | None, typer.Option(help="File for the draft; printed if not given.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Draft the ledger of a recorded training: what was sent, and how much noise it can hold at most.

    What a person must decide is marked with DECIDE; until it is settled, `vflpriv validate` names it.
    """
    from rich.console import Console

    from vflpriv.common.files import write_atomically
    from vflpriv.render.console import print_line
    from vflpriv.run.drafting import draft_ledger

    if out is not None and out.exists() and not force:
        raise InputError("--out", str(out), "a file that is not there, or --force to replace it")
    text = draft_ledger(transcript)
    if out is None:
        print(text, end="")  # noqa: T201
        return
    write_atomically(out, text)
    print_line(Console(), f"wrote {out}")
    print_line(Console(), f"next: decide what it marks with DECIDE, then vflpriv validate {out}")


def merge(
    transcripts: Annotated[list[Path], typer.Argument(help="Folders that parties of one training recorded.")],
    out: Annotated[Path, typer.Option(help="Folder for the transcript of the whole training.")],
    force: Annotated[bool, typer.Option("--force", help="Replace a transcript that is there.")] = False,
) -> None:
    """Merge the transcripts that parties recorded in processes of their own.

    A message that both its ends recorded counts once, and must be the same in both.
    """
    from rich.console import Console

    from vflpriv.recording.merging import merge_transcripts
    from vflpriv.render.console import print_line

    merged, console = merge_transcripts(transcripts, out, fresh=force), Console()
    print_line(console, f"wrote {out}: {merged.rounds} rounds, {merged.messages} messages")
    print_line(console, f"recorded by more than one party, the same each time: {merged.both_ends} messages")
    source = "none were recorded" if merged.labels_from is None else f"from {merged.labels_from}"
    print_line(console, f"labels, by which attacks are scored: {source}")
    if merged.cut_off_by is not None:
        reason = f"{merged.cut_off_by} is unfinished"
        print_line(console, f"rounds from {merged.rounds} on are left out: {reason}")
