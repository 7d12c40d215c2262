"""The program in this process: a new interpreter would take seconds to import torch."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from subprocess import CompletedProcess
from unittest import mock

from vflpriv.cli.main import main

__all__ = ["vflpriv"]


def vflpriv(*arguments: object) -> CompletedProcess[str]:
    """`vflpriv` with these arguments: its exit code and what it printed."""
    out, err, argv = io.StringIO(), io.StringIO(), ["vflpriv", *map(str, arguments)]
    with mock.patch.object(sys, "argv", argv), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as stopped:
            return CompletedProcess(argv, int(stopped.code or 0), out.getvalue(), err.getvalue())
    raise AssertionError("The program returned; it ends by SystemExit.")
