"""The commands to begin with: a demonstration, and starter files for an audit of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vflpriv.cli.options import QuietOption

if TYPE_CHECKING:
    from rich.console import Console

    from vflpriv.report.audit import Report

__all__ = ["demo", "init"]

_DEMO = "split"
_NEXT = "vflpriv init label-dp my-audit"
ForceOption = Annotated[bool, typer.Option("--force", help="Replace files that are there and differ.")]


def init(
    kind: Annotated[
        str | None, typer.Argument(help="{starters}. Without it, they are described and nothing is written.")
    ] = None,
    folder: Annotated[Path, typer.Argument(help="Where to write the files.")] = Path(),
    force: ForceOption = False,
) -> None:
    """Write commented files to start an audit from, for one kind of system."""
    from rich.console import Console

    from vflpriv.cli.lists import print_rows
    from vflpriv.config.starters import STARTERS, starter_named, write_starter
    from vflpriv.render.console import print_line

    console = Console()
    if kind is None:
        print_rows((name, starter.summary) for name, starter in STARTERS.items())
        print_line(console, f"for example: {_NEXT}")
        return
    starter = starter_named(kind)
    for path in write_starter(starter, folder, force=force):
        print_line(console, f"wrote {path}")
    print_line(console, "next:")
    for command in (*([] if folder == Path() else [f"cd {folder}"]), *starter.commands):
        print_line(console, f"  {command}")


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the demonstration's files and its report.")] = Path(
        "vflpriv-demo"
    ),
    force: ForceOption = False,
    quiet: QuietOption = False,
) -> None:
    """Train split learning on bundled data, record it, audit it, and say what was found. Takes seconds.

    Exit code 0, whatever the audit says; its own exit code is printed.
    """
    from rich.console import Console

    from vflpriv.config.starters import starter_named, write_starter
    from vflpriv.render.console import print_line

    starter, console = starter_named(_DEMO), Console()
    paths = write_starter(starter, out, force=force)
    print_line(console, "Split learning of two parties and a server, on the breast-cancer data of scikit-learn.")
    print_line(console, f"Its files are {' and '.join(str(path) for path in paths)}. What runs:")
    for command in (f"cd {out}", *starter.commands):
        print_line(console, f"  $ {command}")
    report = _train_and_audit(out, quiet)
    _print_outcome(report, out, console)


def _train_and_audit(folder: Path, quiet: bool) -> Report:
    """Run the script, as `python train.py` in its folder would, and audit what it recorded."""
    import runpy
    from contextlib import chdir

    from rich.console import Console

    from vflpriv import api
    from vflpriv.recording.files.ending import end_recordings

    stages = Console(stderr=True, quiet=quiet)
    with chdir(folder):
        stages.print("training", highlight=False)
        try:
            runpy.run_path("train.py", run_name="__main__")
        finally:
            end_recordings()
        stages.print("auditing", highlight=False)
        return api.audit(transcript="transcript", ledger="ledger.toml", out="report", quiet=quiet or None)


def _print_outcome(report: Report, folder: Path, console: Console) -> None:
    """The claim, what an attack reads, the verdict, where the report is, and what to type next."""
    from vflpriv.common import formatting as f
    from vflpriv.render.console import Writer, print_line
    from vflpriv.render.shared import banner, best_attack, measurement_sentences

    writer, (system,) = Writer(console), report.systems
    attack = best_attack(system)
    rows = []
    for claim in system.claims:
        promise = f"ε = {f.epsilon(claim.epsilon)} at δ = {f.delta(claim.delta)}"
        rows.append(("claim", f"{claim.statement}: {promise} for one {claim.unit}, seen by any one {claim.adversary}"))
        rows += [("measured", sentence) for sentence in measurement_sentences(claim)]
    if attack is not None:
        read = f"{attack.attack} reads {f.percent(attack.success)} of {attack.target} off what {attack.adversary} sees"
        rows.append(("attack", f"{read}; guessing alone gets {f.percent(attack.chance)}"))
    writer.list(rows)
    icon = f"{report.verdict.icon} " if report.verdict else ""
    writer.line(f"{icon}{banner(report)}")
    print_line(console, f"The audit's own exit code is {report.exit_code}, so that a build would stop here.")
    console.print()
    print_line(console, f"report: {folder / 'report' / 'report.html'}")
    print_line(console, f"next:   {_NEXT}   (a system whose claim holds; `vflpriv init` lists other kinds)")
