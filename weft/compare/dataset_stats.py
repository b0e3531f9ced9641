"""What was in the data: rows of each split, labels and their counts, and what was left out."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft import registry
from weft.compare.sentence_scores import names
from weft.config import Config
from weft.doctor.survey import STRAY, parse_number
from weft.errors import UserError
from weft.predict.preprocess import preprocess
from weft.run.data import Data, example_source
from weft.run.split import Splits
from weft.run.train import infer_task_settings
from weft.tasks.annotation import Annotation
from weft.tasks.task import build_task
from weft.text.example import Example, Tally

LOOKED = 200  # rows after which words among the numbers say that they are none
MANY = 20  # different values with fractions that make a label column a scale
DISTINCT = 10_000  # labels counted apart; a column of free text would otherwise fill the memory

Gold = Callable[[Example], Annotation | None]  # what is right; None where a bad row is skipped


@dataclass(frozen=True)
class Facts:
    """Counts of a data set, for the page."""

    files: tuple[tuple[str, str], ...]  # (what it is for, path)
    rows: dict[str, int]  # by split
    labels: dict[str, dict[str, int]]  # by label, then by split
    numeric: bool  # the labels are numbers
    notes: tuple[str, ...]  # rows that the reader left out, and what else is to be known
    kind: str = ""  # of the structures, where answers are about the words of a text
    words: dict[str, int] = field(default_factory=dict)  # by split, where the file has words
    writes: str = ""  # the task, where texts are written; then there are no labels to count


def looks_numeric(examples: Iterable[Example]) -> bool:
    """Whether the labels can only be meant as numbers: typed so, or many and with fractions."""
    seen: set[float] = set()
    fractions = typed = False
    rows = strays = 0
    for example in examples:
        value = example.label
        if value is None:
            continue  # which is said when it is learned
        rows += 1
        found = parse_number(value)
        if found is None:  # n/a: an error of its row, and not what the others are
            strays += 1
            if strays > STRAY * max(rows, LOOKED):
                return False
            continue
        typed = typed or isinstance(value, float)
        fractions = fractions or isinstance(value, float) or found != int(found)
        if len(seen) < MANY:
            seen.add(found)
    return fractions and strays <= STRAY * rows and (len(seen) >= MANY or typed)


def facts(
    data: Data,
    splits: Splits,
    folds: int = 0,
    numbers: bool = False,
    gold: Gold | None = None,
    writes: str = "",
) -> Facts:
    """Go through every split once and count; `gold` says what is right of a text's words."""
    sources = {"train": splits.train, "dev": splits.dev, "test": splits.test}
    parts: dict[str, Iterable[Example]]
    if folds:
        parts = {f"all, in {folds} folds": example_source(data, data.train)()}
    else:
        parts = {name: examples() for name, examples in sources.items() if examples}
    rows: Counter[str] = Counter()
    words: Counter[str] = Counter()
    labels: dict[str, Counter[str]] = {}
    kind = ""
    for split, examples in parts.items():
        rows[split] = 0
        for example in examples:
            rows[split] += 1
            right = gold(example) if gold else None
            if right is not None:
                kind = right.kind
                if kind != "answer":  # whose words are the answer alone
                    words[split] += len(right.words)
            if writes:
                words[split] += len(example.text.split())
                continue
            for name in names(right) if right else _names(example):
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
        kind=kind,
        words=dict(words),
        writes=writes,
    )


def right(config: Config, data: Data) -> Gold | None:
    """What a task says is right of the words of an example; None where it answers whole texts."""
    task: Any = registry.find("task", config["task"].get("kind", "classify"))
    if not hasattr(task, "gold") or data.parser:  # then there are texts, and no trees to count in
        return None
    examples = example_source(data, data.train)
    task = build_task(config.sections, **infer_task_settings(config, examples))
    prepare = getattr(task, "prepare", lambda example, tally: example)
    tally, skip = Tally(), data.on_bad_row == "skip"
    space = task.space(preprocess(examples(), task, tally, data.on_bad_row))

    def gold(example: Example) -> Annotation | None:
        try:
            return task.gold(prepare(example, tally), space)
        except UserError:
            if not skip:
                raise
            return None

    return gold


def _names(example: Example) -> Sequence[str]:
    label = example.label
    if label is None:
        return ("(no label)",)
    return label if isinstance(label, tuple) else (str(label),)


def _left_out(data: Data, paths: Sequence[str]) -> tuple[str, ...]:
    if data.on_bad_row == "error":  # then a bad row has stopped us already
        return ()
    tally = Tally()
    for path in paths:
        for _ in example_source(data, path, tally)():
            pass
    return tuple(f"rows skipped: {line}" for line in tally.lines())
