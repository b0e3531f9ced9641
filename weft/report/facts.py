"""What was in the data: rows of each split, labels and their counts, and what was left out."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from weft.run.data import Data, source
from weft.run.split import Splits
from weft.text.example import Example, Tally

MANY = 20  # different values with fractions that make a label column a scale
DISTINCT = 10_000  # labels counted apart; a column of free text would otherwise fill the memory


@dataclass(frozen=True)
class Facts:
    """Counts of a data set, for the page."""

    files: tuple[tuple[str, str], ...]  # (what it is for, path)
    rows: dict[str, int]  # by split
    labels: dict[str, dict[str, int]]  # by label, then by split
    numeric: bool  # the labels are numbers
    notes: tuple[str, ...]  # rows that the reader left out


def looks_numeric(examples: Iterable[Example]) -> bool:
    """Whether the labels can only be meant as numbers: typed so, or many and with fractions."""
    seen: set[float] = set()
    fractions = False
    for example in examples:
        value = example.label
        try:
            number = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            return False
        fractions = fractions or isinstance(value, float) or number != int(number)
        if len(seen) < MANY:
            seen.add(number)
    return fractions and (len(seen) >= MANY or isinstance(value, float))


def facts(data: Data, splits: Splits, folds: int = 0, numbers: bool = False) -> Facts:
    """Go through every split once and count."""
    sources = {"train": splits.train, "dev": splits.dev, "test": splits.test}
    parts: dict[str, Iterable[Example]]
    if folds:
        parts = {f"all, in {folds} folds": source(data, data.train)()}
    else:
        parts = {name: examples() for name, examples in sources.items() if examples}
    rows: Counter[str] = Counter()
    labels: dict[str, Counter[str]] = {}
    for split, examples in parts.items():
        rows[split] = 0
        for example in examples:
            rows[split] += 1
            for name in _names(example):
                if name in labels or len(labels) < DISTINCT:
                    labels.setdefault(name, Counter())[split] += 1
    files = [("train", data.train), ("dev", data.dev), ("test", data.test)]
    given = tuple((what, path) for what, path in files if path)
    ordered = dict(sorted(labels.items(), key=lambda item: (-item[1].total(), item[0])))
    return Facts(
        files=given,
        rows=dict(rows),
        labels={name: dict(counts) for name, counts in ordered.items()},
        numeric=numbers,
        notes=_left_out(data, [path for _, path in given]),
    )


def _names(example: Example) -> Sequence[str]:
    label = example.label
    if label is None:
        return ("(no label)",)
    return label if isinstance(label, tuple) else (str(label),)


def _left_out(data: Data, paths: Sequence[str]) -> tuple[str, ...]:
    if data.problems == "error":  # then a bad row has stopped us already
        return ()
    tally = Tally()
    for path in paths:
        for _ in source(data, path, tally)():
            pass
    return tuple(f"rows skipped: {line}" for line in tally.lines())
