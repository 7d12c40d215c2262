"""Faults on purpose: what is killed, cut off, doctored or run twice must end in order, and never in a wrong result.

    python -m tools.chaos              # every fault; about three CPU minutes
    python -m tools.chaos --kills 4    # fewer kills

A command that is killed at a random moment must, run again, end with the result of one that never was: the same bytes,
the same exit code. A file that was changed must be refused in one line, and a report must not hold. Prints each fault
that was survived in another way, then how many were tried and how many failed; exit code 1 if any did.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

__all__ = ["FAULTS", "Place", "main", "survived"]

AUDIT = """
[data]
name = "digits"
train = 60
[engine]
name = "dpzv"
rounds = 6
batch_size = 8
embedding = 3
server_update = "joint"
noise = "calibrated"
[audit]
trials = 12
min_trials = 6
full_trials = 4
whole_view = 0
canaries = ["natural", "worst-case"]
attacks = []
sensitivity = false
noise = false
state = false
"""
ATTACK = """
[data]
name = "digits"
train = 60
[engine]
name = "split"
rounds = 4
batch_size = 8
[attack]
attacks = ["label_direct"]
seeds = 2
"""
PROFILE = """
title = "A table"
source = "A paper"
chosen = "as published"
measures = ["accuracy"]
seeds = 2
data = { name = "digits", devices = 2, partition = "rows", train = 100 }
engine = { rounds = 6, batch_size = 8 }
[[row]]
key = "one"
engine = { name = "split" }
[[row]]
key = "two"
engine = { name = "fedbcd" }
"""
FRONTIER = """
epsilons = [8.0]
seeds = 1
trials = 0
data = { name = "digits", devices = 2, partition = "rows", train = 100 }
[[candidate]]
key = "labels"
units = ["label"]
engine = { name = "split", rounds = 4, batch_size = 32, label_protection = "rr", label_epsilon = 1.0 }
"""
COMMANDS = {
    "audit": (AUDIT, "report.json"),
    "attack": (ATTACK, "attacks.json"),
    "reproduce": (PROFILE, "reproduction.json"),
    "frontier": (FRONTIER, "frontier.json"),
}
RECORDING = """
import sys, time, torch, vflpriv

wire = vflpriv.record(sys.argv[1], devices=1, classes=2, labels=[0, 1] * 10, resume=True)
for t in range(wire.next_round, 150):
    wire.up(t, 0, "note", {"x": torch.full((2, 3), float(t))}, [t % 20, (t + 1) % 20])
    wire.down(t, 0, "note", {"x": torch.full((2, 3), float(t))}, [t % 20, (t + 1) % 20])
    time.sleep(0.01)
wire.finish()
"""
CLOCK = """
import random, sys, time
for name in ("time", "monotonic", "perf_counter"):
    real = getattr(time, name)
    setattr(time, name, lambda real=real: real() + random.choice((-1e8, 0.0, 1e8)))
from vflpriv.cli.main import main
main()
"""
LEDGER = """
[[release]]
kind = "note"
noise = "none"
[[claim]]
key = "mine"
unit = "label"
view = "device"
epsilon = 1.0
delta = 1e-5
"""
_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
Outcome = tuple[str, bool]
"""What was done, and whether it was survived."""


class Place:
    """A folder to break things in, with what comes of each command when nothing is broken."""

    def __init__(self, folder: Path, *, kills: int, seed: int) -> None:
        self.folder, self.kills, self.random = folder, kills, random.Random(seed)
        self.environment = os.environ | {"OMP_NUM_THREADS": "1", "XDG_STATE_HOME": str(folder / "state")}
        self.whole: dict[str, tuple[bytes, int, float]] = {}
        for name, (text, _) in COMMANDS.items():
            (folder / f"{name}.toml").write_text(text, encoding="utf-8")
        (folder / "ledger.toml").write_text(LEDGER, encoding="utf-8")

    def command(self, name: str, out: str) -> list[str]:
        """A command that writes its result to this folder."""
        return ["-m", "vflpriv", name, f"{name}.toml", "--out", out, "--format", "json", "--quiet"]

    def start(self, command: Sequence[str], **options: object) -> subprocess.Popen[str]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        command = [sys.executable, *command]
        return subprocess.Popen(command, cwd=self.folder, env=self.environment, text=True, **pipes)  # type: ignore[call-overload,no-any-return]

    def run(self, command: Sequence[str], **options: object) -> tuple[int, str, str]:
        """Exit code, output and errors."""
        process = self.start(command, **options)
        out, error = process.communicate(timeout=600)
        return process.returncode, out or "", error or ""

    def result(self, name: str, out: str) -> tuple[bytes, int]:
        """The result of a command that is run to its end, and its exit code."""
        code, _, error = self.run(self.command(name, out))
        if "Traceback" in error:
            raise AssertionError(error)
        return (self.folder / out / COMMANDS[name][1]).read_bytes(), code

    def unbroken(self, name: str) -> tuple[bytes, int, float]:
        """The result and exit code of a command that nothing happened to, and its seconds."""
        if name not in self.whole:
            started = time.monotonic()
            self.whole[name] = (*self.result(name, f"{name}-whole"), time.monotonic() - started)
        return self.whole[name]

    def same(self, name: str, out: str) -> bool:
        """Whether the command, run to its end in this folder, has the result of one that nothing happened to."""
        return self.result(name, out) == self.unbroken(name)[:2]

    def stopped(self, command: Sequence[str], seconds: float, number: int) -> int:
        """The exit code of a command that got a signal after so many seconds."""
        process = self.start(command)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(number)
        process.communicate(timeout=600)
        return process.returncode


def killed_commands(place: Place) -> Iterator[Outcome]:
    """kill -9 at random moments, again and again in one folder, then the command to its end."""
    for name in COMMANDS:
        seconds = place.unbroken(name)[2]
        for number in range(place.kills // (len(COMMANDS) + 1) or 1):
            place.stopped(place.command(name, f"{name}-killed"), place.random.uniform(0, seconds), signal.SIGKILL)
            left = place.folder / f"{name}-killed" / COMMANDS[name][1]
            whole = not left.exists() or left.read_bytes() == place.unbroken(name)[0]
            yield f"{name} killed, {number}: no half result", whole
        yield f"{name} killed, then run to its end", place.same(name, f"{name}-killed")


def killed_recordings(place: Place) -> Iterator[Outcome]:
    """kill -9 of a recording: what is there is read, and the recording goes on with it."""
    from vflpriv.errors import InputError
    from vflpriv.recording.transcripts import read_transcript

    folder, before = place.folder / "recorded", 0
    for number in range(place.kills // (len(COMMANDS) + 1) or 1):
        place.stopped(["-c", RECORDING, str(folder)], place.random.uniform(1, 7), signal.SIGKILL)
        rounds = before
        try:
            rounds = read_transcript(folder).rounds if (folder / "transcript.json").exists() else 0
        except InputError as error:
            # Nothing was written yet; any other line would mean that a file is half.
            yield f"recording killed, {number}: {error}", "at least one message" in str(error)
        yield f"recording killed, {number}: {rounds} rounds after {before}", rounds >= before
        before = rounds
    code, _, error = place.run(["-c", RECORDING, str(folder)])
    recording = read_transcript(folder)
    complete = (code, recording.rounds, recording.head.finished, len(recording.transcript.messages))
    yield f"recording killed, then to its end {error[-200:]}", complete == (0, 150, True, 300)


def signals(place: Place) -> Iterator[Outcome]:
    """SIGTERM, SIGHUP and SIGINT end a command in order, and it goes on afterwards."""
    seconds = place.unbroken("audit")[2]
    for number in _SIGNALS:
        code = place.stopped(place.command("audit", f"audit-{number}"), place.random.uniform(0.5, 1) * seconds, number)
        # The program may be at its end, or not yet listen.
        yield f"audit, {number.name}: exit code {code}", code in (128 + number, -number, place.unbroken("audit")[1])
        yield f"audit, {number.name}, then run to its end", place.same("audit", f"audit-{number}")


def full_disks(place: Place) -> Iterator[Outcome]:
    """No file may become longer than so many bytes: one line, exit code 2, and no half result."""
    for limit in (0, 500, 5000):

        def limited(limit: int = limit) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        out = f"audit-full-{limit}"
        code, _, error = place.run(place.command("audit", out), preexec_fn=limited)
        in_order = code == 2 and "Traceback" not in error and not (place.folder / out / "report.json").exists()
        yield f"audit, files of at most {limit} bytes: exit code {code}, {error[-200:]!r}", in_order
        yield f"audit, files of at most {limit} bytes, then with room", place.same("audit", out)
        folder = place.folder / f"recorded-{limit}"
        code, _, error = place.run(["-c", RECORDING, str(folder)], preexec_fn=limited)
        yield f"recording, files of at most {limit} bytes: {error[-200:]!r}", code == 1 and "vflpriv.errors." in error


def two_at_once(place: Place) -> Iterator[Outcome]:
    """Two audits in one folder end alike; of two recordings one is refused."""
    both = [place.start(place.command("audit", "audit-twice")) for _ in range(2)]
    codes = [process.communicate(timeout=600) and process.returncode for process in both]
    yield f"two audits in one folder: exit codes {codes}", codes == [place.unbroken("audit")[1]] * 2
    yield "two audits in one folder, then one", place.same("audit", "audit-twice")
    folder = place.folder / "recorded-twice"
    recordings = [place.start(["-c", RECORDING, str(folder)]) for _ in range(2)]
    said = [process.communicate(timeout=600)[1] for process in recordings]
    ended = sorted(process.returncode for process in recordings)
    yield f"two recordings in one folder: exit codes {ended}", ended == [0, 1] and "another recording" in "".join(said)


def damaged_files(place: Place) -> Iterator[Outcome]:
    """Bits that flip, and files that are cut or gone: of a transcript, of stored trials."""
    from vflpriv.errors import InputError
    from vflpriv.recording.files.scoring_files import read_features, read_members
    from vflpriv.recording.transcripts import read_answers, read_names, read_transcript

    folder, copy = place.folder / "sound", place.folder / "damaged"
    place.run(["-c", RECORDING, str(folder)])
    for number in range(60):
        shutil.copytree(folder, copy)
        path = place.random.choice(sorted(path for path in copy.iterdir() if path.stat().st_size))
        done = _damage(path, place.random)
        try:
            head = read_transcript(copy).head
            for read in (read_answers, read_names, read_features, read_members):
                read(copy, head)
            refused = False
        except InputError:
            refused = True
        yield f"transcript, {number}: {path.name} {done}", refused
        shutil.rmtree(copy)
    place.unbroken("audit")
    shutil.copytree(place.folder / "audit-whole", place.folder / "audit-damaged")
    for path in (place.folder / "audit-damaged" / "trials").iterdir():
        _damage(path, place.random)
    yield "audit with damaged trials", place.same("audit", "audit-damaged")


def _damage(path: Path, draw: random.Random) -> str:
    content = bytearray(path.read_bytes())
    kind = draw.choice(("bit flipped", "cut", "gone"))
    if kind == "bit flipped":
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        path.write_bytes(content)
    elif kind == "cut":
        path.write_bytes(content[: draw.randrange(len(content))])
    else:
        path.unlink()
    return kind


def doctored_reports(place: Place) -> Iterator[Outcome]:
    """Every number and verdict of a claim, changed by itself: the report does not hold."""
    report = json.loads(place.unbroken("audit")[0])
    claim = report["systems"][0]["claims"][0]
    sound = place.folder / "sound.json"
    sound.write_text(json.dumps(report), encoding="utf-8")
    yield "the report as it was written", place.run(["-m", "vflpriv", "verify", str(sound)])[0] == 0
    from vflpriv.report.audit import read_report
    from vflpriv.run.verify import verify

    changes: list[tuple[str, Callable[[dict[str, object]], object]]] = [
        (name, lambda c, n=name: c.update({n: float(c[n]) * 1.5 + 1})) for name in ("epsilon", "mu", "delta")
    ]
    verdicts = ("violated", "consistent", "unsupported", "unmeasured", "not applicable")
    changes += [
        (verdict, lambda c, v=verdict: c.update(verdict=v)) for verdict in verdicts if verdict != claim["verdict"]
    ]
    changes += [("accounted", lambda c: c["accounted"].update(epsilon_upper=1e-3, epsilon=1e-3, epsilon_lower=0.0))]
    changes += [("measurements", lambda c: c.update(measurements=[]))]
    for name, change in changes:
        doctored = json.loads(json.dumps(report))
        change(doctored["systems"][0]["claims"][0])
        path = place.folder / "doctored.json"
        path.write_text(json.dumps(doctored), encoding="utf-8")
        yield f"doctored: {name}", bool(verify(read_report(path)).problems)


def clocks(place: Place) -> Iterator[Outcome]:
    """Clocks that jump by three years each time they are read."""
    command = ["-c", CLOCK, *place.command("audit", "audit-clock")[2:]]
    code, _, error = place.run(command)
    left = place.folder / "audit-clock" / "report.json"
    same = left.exists() and (left.read_bytes(), code) == place.unbroken("audit")[:2]
    yield f"audit under clocks that jump {error[-200:]!r}", same


def closed_pipes(place: Place) -> Iterator[Outcome]:
    """Nobody reads the output, or there is none."""
    place.unbroken("audit")
    command = ["-m", "vflpriv", "report", "audit-whole", "--format", "md"]
    reading, writing = os.pipe()
    os.close(reading)
    code, _, error = place.run(command, stdout=writing)
    os.close(writing)
    yield f"report into a closed pipe: exit code {code}", code == 141 and not error
    code, _, error = place.run(command, preexec_fn=lambda: os.close(1))
    yield f"report without a standard output: exit code {code}", "Traceback" not in error
    code, _, error = place.run([*command[:3], "nothing"], preexec_fn=lambda: os.close(2))
    yield f"an error without a standard error: exit code {code}", code == 2


FAULTS = (
    *(killed_commands, killed_recordings, signals, full_disks, two_at_once),
    *(damaged_files, doctored_reports, clocks, closed_pipes),
)


def survived(kills: int, seed: int, faults: Sequence[Callable[[Place], Iterator[Outcome]]] = FAULTS) -> tuple[int, int]:
    """How many faults were tried, and how many of them failed; each that failed is printed."""
    tried = failed = 0
    with tempfile.TemporaryDirectory(prefix="vflpriv-chaos-") as folder:
        place = Place(Path(folder), kills=kills, seed=seed)
        for fault in faults:
            for what, well in fault(place):
                tried += 1
                if not well:
                    failed += 1
                    print(f"FAILED: {what}", flush=True)
            print(f"{fault.__name__}: {tried} tried so far, {failed} failed", flush=True)
    return tried, failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="how many times something is killed with kill -9")
    parser.add_argument("--seed", type=int, default=0, help="decides when, and what is damaged")
    parser.add_argument("--only", action="append", help="names of faults: " + ", ".join(f.__name__ for f in FAULTS))
    options = parser.parse_args()
    chosen = [fault for fault in FAULTS if not options.only or fault.__name__ in options.only]
    tried, failed = survived(options.kills, options.seed, chosen)
    print(f"{tried} tried, {failed} failed")
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
