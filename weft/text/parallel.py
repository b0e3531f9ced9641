"""Two files line by line: a text and, in the other, what it should become."""

import os
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from weft.errors import UserError
from weft.text.example import Example, Tally
from weft.text.source import EMPTY, SKIP, Handling, Problems, Source, decoded, missing, peel


def beside(path: str | os.PathLike[str], ending: str) -> str:
    """The file with the other side: of train.en, with the ending "de", train.de.

    What it is packed with stays: train.en.gz has train.de.gz beside it.
    """
    name = os.fspath(path)
    bare = name[: len(peel(name)[0])]
    packing = name[len(bare) :]
    if not Path(bare).suffix:
        raise UserError(
            f"{name}: its name has no ending to put '{ending}' in place of. Name the two files "
            f"alike, such as train.en and train.{ending}."
        )
    found = str(Path(bare).with_suffix(f".{ending.lstrip('.')}")) + packing
    if found == name:
        raise UserError(f"{name}: source and target are one file. Give the ending of the other.")
    return found


def read_parallel(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    problems: Handling = "error",
    tally: Tally | None = None,
) -> Iterator[Example]:
    """An Example for each pair of lines, the line of the target as its label.

    Files of different length are an error even where problems are skipped: from some line on they
    do not belong together, and nobody knows from which.
    """
    for path in (source, target):
        if not os.path.exists(path):
            raise missing(os.fspath(path))
    one, two = Source(source), Source(target)
    watches = [Problems(side.name, problems, tally) for side in (one, two)]
    for number, raws in enumerate(zip_longest(one.raw(), two.raw()), 1):
        if None in raws:
            short, long = (one, two) if raws[0] is None else (two, one)
            raise UserError(
                f"{short.name} ends after line {number - 1}, but {long.name} goes on. Look for a "
                "line that one of them lacks or that is broken in two."
            )
        pair = [decoded(raw, number, w) for raw, w in zip(raws, watches, strict=True)]
        for side, watch in zip(pair, watches, strict=True):
            if side is not None and not side.strip():
                told = "an empty line. Fill it, or remove it from both files"
                watch.found(EMPTY, number, f"{told}, or {SKIP}.")
                break
        else:
            text, said = pair
            if text is not None and said is not None:
                yield Example(text, said, "", one.name, number)
