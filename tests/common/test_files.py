"""Files are replaced as a whole; what is no file is written into."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from vflpriv.common.files import write_atomically
from vflpriv.errors import OutputError


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def test_a_pipe_is_written_into_and_stays_one(pipe: Path) -> None:
    # A link to it, as `/dev/stdout` is one.
    (pipe.parent / "link").symlink_to(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(pipe.parent / "link", "all of it")
    assert os.read(reader, 100) == b"all of it"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert (pipe.parent / "link").is_symlink()


def test_a_pipe_that_nobody_reads_is_not_waited_for(pipe: Path) -> None:
    with pytest.raises(OutputError, match=r"pipe could not be written: No such device"):
        write_atomically(pipe, "nothing")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
