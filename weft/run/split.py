"""Which examples a trial learns from and which it is measured on."""

import hashlib
import os
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from weft.errors import UserError
from weft.run.data import Data, Source, alike, source
from weft.text.example import Example, Tally
from weft.text.source import missing

TEST_SHARE = 0.2  # of the training file, when there is neither a test file nor folds
BINS = 10  # strata of a numeric label


@dataclass(frozen=True)
class Splits:
    """Where the examples come from; dev and test may be absent."""

    train: Source
    dev: Source | None = None
    test: Source | None = None


def from_files(data: Data, tally: Tally | None = None) -> Splits:
    """Sources that read the configured files anew each time they are called."""
    if not data.train:
        raise UserError("No training file: pass --train FILE, or set train in [data].")
    for path in (data.dev, data.test):
        # Now, not when they are first read: that may be hours later.
        if path and path != "-" and not os.path.exists(path):
            raise missing(path)
    test = source(alike(data, data.test), data.test, tally) if data.test else None
    return _held_out(data, lambda e: False, test, tally)


def with_test(data: Data) -> Splits:
    """The configured files; without a test file, a share of train chosen by its texts."""
    if data.test:
        return from_files(data)
    texts = source(data, data.train)
    test = lambda: (e for e in texts() if in_test(e.text))  # noqa: E731
    return _held_out(data, lambda e: in_test(e.text), test)


def _held_out(
    data: Data, out: Callable[[Example], bool], test: Source | None, tally: Tally | None = None
) -> Splits:
    whole = source(data, data.train, tally, phrases=data.phrases)
    texts = source(data, data.train)
    if data.dev:
        dev: Source | None = source(alike(data, data.dev), data.dev, tally)
    else:
        dev = _dev_source(data, lambda: (e for e in texts() if not out(e)))
    train = _without(whole, texts, lambda e: out(e) or _dev(e, data), data.phrases)
    return Splits(train, dev, test)


def folded(data: Data, count: int, numbers: bool = False) -> list[Splits]:
    """One Splits a fold: the fold is the test, a share of the rest is dev; all held in memory."""
    examples = list(source(data, data.train)())
    owner = folds(examples, count, numbers=numbers)
    phrases = list(source(data, data.train, phrases=True)()) if data.phrases else examples
    return [_fold(data, examples, phrases, owner, number) for number in range(count)]


def folds(
    examples: Sequence[Example], count: int, seed: int = 0, numbers: bool = False
) -> list[int]:
    """The fold of each example: labels spread evenly, copies of one text in the same fold."""
    copies: dict[str, list[int]] = defaultdict(list)
    for i, example in enumerate(examples):
        copies[example.text].append(i)
    if len(copies) < count:
        raise UserError(
            f"{count} folds need at least {count} different texts; {len(copies)} found."
        )
    strata = _strata(examples, numbers)
    random = np.random.default_rng(seed)
    groups = list(copies.values())
    random.shuffle(groups)
    # The largest groups first, while there is still room to balance them.
    groups.sort(key=lambda group: -len(group))
    owner = [0] * len(examples)
    sizes = [0] * count
    held_by: dict[object, list[int]] = defaultdict(lambda: [0] * count)
    for group in groups:
        stratum = held_by[strata[group[0]]]
        fold = min(range(count), key=lambda k: (stratum[k], sizes[k]))
        stratum[fold] += len(group)
        sizes[fold] += len(group)
        for i in group:
            owner[i] = fold
    return owner


def held(text: str, share: float) -> bool:
    """Whether a text falls into the held-out share: decided by the text alone, so that copies of
    one text stay on one side, and a file larger than memory can be split while it streams."""
    return zlib.crc32(text.encode("utf-8", "surrogatepass")) < share * 2**32


def in_test(text: str, share: float = TEST_SHARE) -> bool:
    """Whether a text falls into the test share.

    Not `held` with another start value: two CRCs of one text differ by a constant, so the two
    choices would not be independent.
    """
    name = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4, person=b"test")
    return int.from_bytes(name.digest(), "big") < share * 2**32


def digest(path: str) -> str:
    """A hash of the contents of a file, or of every file in a folder."""
    total = hashlib.sha256()
    place = Path(path)
    files = sorted(p for p in place.rglob("*") if p.is_file()) if place.is_dir() else [place]
    for file in files:
        total.update(str(file.relative_to(place)).encode("utf-8", "surrogatepass") + b"\0")
        try:
            with open(file, "rb") as stream:
                while block := stream.read(1 << 20):
                    total.update(block)
        except OSError as error:
            raise UserError(f"{file}: cannot be read: {error.strerror or error}.") from None
    return total.hexdigest()


def _fold(
    data: Data,
    examples: list[Example],
    phrases: list[Example],
    owner: list[int],
    number: int,
) -> Splits:
    mine = [e for e, fold in zip(examples, owner, strict=True) if fold == number]
    rest = [e for e, fold in zip(examples, owner, strict=True) if fold != number]
    texts = {e.text for e in mine}
    train = _without(
        lambda: iter(phrases if data.phrases else rest),
        lambda: iter(examples),
        lambda e: e.text in texts or _dev(e, data),
        data.phrases,
    )
    return Splits(train, _dev_source(data, lambda: iter(rest)), lambda: iter(mine))


def _without(whole: Source, texts: Source, out: Callable[[Example], bool], phrases: bool) -> Source:
    """Training examples that are not held out; a phrase goes where its sentence goes."""
    if not phrases:
        return lambda: (e for e in whole() if not out(e))
    kept: set[str] = set()
    gone: set[str] = set()

    def examples() -> Iterator[Example]:
        if not kept:
            for e in texts():
                (gone if out(e) else kept).add(e.text if out(e) else e.where)
        return (e for e in whole() if e.where in kept and e.text not in gone)

    return examples


def _dev(example: Example, data: Data) -> bool:
    return not data.dev and held(example.text, data.share)


def _dev_source(data: Data, rest: Source) -> Source | None:
    if data.dev:
        return source(alike(data, data.dev), data.dev)
    return (lambda: (e for e in rest() if _dev(e, data))) if data.share else None


def _strata(examples: Sequence[Example], numbers: bool) -> list[object]:
    """What should be spread evenly: the label, or the part of the scale a number falls into."""
    if not numbers:
        return [example.label for example in examples]
    try:
        values = np.array([float(e.label) for e in examples])  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return [None] * len(examples)  # the task will say which label is no number, and where
    ranks = values.argsort(kind="stable").argsort(kind="stable")
    return list(ranks * BINS // max(1, len(values)))
