"""Targets that break the promise on purpose, to see that the harness notices each way to do so."""

import os
from pathlib import Path

from tests.fuzz.harness import Files, Target, register


def _seeds() -> list[Files]:
    return [{"data.txt": b"sound " * 50}]


def _damaged(folder: Path) -> bool:
    return (folder / "data.txt").read_bytes() != _seeds()[0]["data.txt"]


def _raises(folder: Path) -> None:
    if _damaged(folder):
        raise KeyError("no UserError")


def _hangs(folder: Path) -> None:
    while _damaged(folder):
        pass


def _eats(folder: Path) -> None:
    if _damaged(folder):
        bytearray(1 << 30)


def _dies(folder: Path) -> None:
    if _damaged(folder):
        os._exit(7)


for _run in (_raises, _hangs, _eats, _dies):
    register(Target(_run.__name__, _seeds, _run, seconds=0.2))
