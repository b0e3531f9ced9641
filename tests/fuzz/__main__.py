"""Fuzz by hand: `python -m tests.fuzz --inputs 70000 --seed 1 [--only NAME] [--keep FOLDER]`."""

import argparse
import sys
from pathlib import Path

from tests.fuzz import targets
from tests.fuzz.harness import fuzz


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=1000, help="how many, over all targets")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--only", action="append", default=[], help="targets that begin so")
    parser.add_argument("--keep", type=Path, default=None, help="folder for inputs that fail")
    parser.add_argument("--list", action="store_true", help="show the targets")
    asked = parser.parse_args()
    names = [name for name in targets.SOUND if not asked.only or name.startswith(tuple(asked.only))]
    if asked.list or not names:
        print("\n".join(targets.SOUND))
        return 0 if asked.list else 2
    total = sum(targets.ALL[name].weight for name in names)
    reports = []
    for name in names:  # one after the other, to see how far it is
        count = max(1, round(asked.inputs * targets.ALL[name].weight / total))
        reports += fuzz([name], count, asked.seed, first=asked.first, keep=asked.keep)
        print("\n".join(reports[-1].lines()), flush=True)
    failed = sum(len(report.failures) for report in reports)
    inputs = sum(report.inputs for report in reports)
    slowest = max(report.slowest[0] for report in reports)
    peak = max(report.peak for report in reports)
    print(
        f"{inputs:,} inputs, {failed} failures; slowest {slowest:.2f} s; "
        f"peak {peak / 2**20:.0f} MiB"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
