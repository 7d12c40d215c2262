"""Audits every mutation and every control, prints a table, and rewrites the results and the page about them.

`python -m tests.mutations [NAME …] [--seeds N]`; without names all are audited. Controls are audited with N seeds. The
small programs are examined without names, and by the name `traced`.
"""

from __future__ import annotations

import argparse
import sys
import time

import torch

from tests.mutations.flow.table import write_traced
from tests.mutations.suite import RESULTS, SYSTEMS, Result, audited, read_results, write_results

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """1 if a mutation is missed, one that is known to be missed is caught, or a control is accused."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations")
    parser.add_argument("names", nargs="*", help="systems or families to audit; all if none is given")
    parser.add_argument("--seeds", type=int, default=20, help="seeds with which each control is audited")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    chosen = [m for m in SYSTEMS if not options.names or {m.name, m.family} & set(options.names)]
    results = read_results() if RESULTS.exists() else {}
    wrong, width = 0, max(len(m.name) for m in SYSTEMS)
    for place, mutation in enumerate(chosen, start=1):
        start, control = time.perf_counter(), mutation.family == "control"
        seeds = min(options.seeds, mutation.seeds) if control else 1
        result = Result.of(mutation, [audited(mutation, 1 + seed) for seed in range(seeds)])
        results[mutation.name] = result
        wrong += bool(result.caught) if control or mutation.family == "missed" else result.caught < seeds
        if control:
            said = "accused" if result.caught else "clear"
        else:
            said = "caught" if result.caught == seeds else "missed"
        seconds = time.perf_counter() - start
        print(
            f"{place:3}/{len(chosen)}  {mutation.name:{width}}  {said:7}  exit {result.exit_code}  {seconds:6.1f} s  "
            f"{', '.join(result.caught_by)}",
            flush=True,
        )
    if not options.names or "traced" in options.names:
        traced = write_traced()
        accused = sum(row.verdict == ("consistent" if row.truth == "broken" else "violated") for row in traced)
        print(f"{accused} of {len(traced)} traced programs are judged wrongly")
        wrong += accused
    write_results(results)
    print(f"{wrong} are not as they should be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
