"""Dataset statistics: rows per split, label counts and skipped rows."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from weft.compare.sentence_scores import label_names
from weft.config import Config
from weft.doctor.survey import STRAY, parse_number
from weft.errors import UserError
from weft.predict.preprocess import preprocess
from weft.run.data import Data, example_source, find_task
from weft.run.split import Splits
from weft.run.train import infer_task_settings
from weft.tasks.annotation import Annotation
from weft.tasks.task import build_task
from weft.text.example import Example, SkipCounter, sentence_label

MIN_ROWS_FOR_STRAYS = 200  # rows before stray words rule out numeric labels
MIN_SCALE_VALUES = 20  # distinct fractional values that make a label column a scale
MAX_COUNTED_LABELS = 10_000  # distinct labels; a column of free text would fill the memory

Gold = Callable[[Example], Annotation | None]  # the gold structure; None for a skipped row


@dataclass(frozen=True)
class DatasetStats:
    """Counts of a dataset, shown in the report."""

    files: tuple[tuple[str, str], ...]  # (split, path)
    rows: dict[str, int]  # by split
    labels: dict[str, dict[str, int]]  # by label, then by split
    numeric: bool  # the labels are numbers
    notes: tuple[str, ...]  # skipped rows and other notes
    kind: str = ""  # of the structures, for tasks that label words
    words: dict[str, int] = field(default_factory=dict)  # by split, if the file has words
    writes: str = ""  # the generation task; it has no labels to count


def has_numeric_labels(examples: Iterable[Example]) -> bool:
    """Return True if labels are clearly numbers: typed as floats, or many distinct fractions."""
    seen: set[float] = set()
    fractions = typed = False
    rows = strays = 0
    for example in examples:
        value = example.label
        if value is None:
            continue  # training reports it
        rows += 1
        parsed = parse_number(value)
        if parsed is None:  # such as n/a: an error of this row alone
            strays += 1
            if strays > STRAY * max(rows, MIN_ROWS_FOR_STRAYS):
                return False
            continue
        typed = typed or isinstance(value, float)
        fractions = fractions or isinstance(value, float) or parsed != int(parsed)
        if len(seen) < MIN_SCALE_VALUES:
            seen.add(parsed)
    return fractions and strays <= STRAY * rows and (len(seen) >= MIN_SCALE_VALUES or typed)


def compute_stats(
    data: Data,
    splits: Splits,
    folds: int = 0,
    numbers: bool = False,
    gold: Gold | None = None,
    writes: str = "",
) -> DatasetStats:
    """Count every split in one pass; `gold` returns the gold structure of an example."""
    sources = {"train": splits.train, "dev": splits.dev, "test": splits.test}
    examples: Iterable[tuple[str, Example]]
    if folds:
        whole = f"all, in {folds} folds"
        rows = {whole: 0}
        examples = ((whole, example) for example in example_source(data, data.train)())
    else:
        rows = {name: 0 for name, source in sources.items() if source}
        examples = splits.read_together()
    words: Counter[str] = Counter()
    labels: dict[str, Counter[str]] = {}
    kind = ""
    for split, example in examples:
        rows[split] += 1
        structure = gold(example) if gold else None
        if structure is not None:
            kind = structure.kind
            if kind != "answer":  # its words are only the answer
                words[split] += len(structure.words)
        if writes:
            words[split] += len(example.text.split())
            continue
        for name in label_names(structure) if structure else _label_names(example):
            if name in labels or len(labels) < MAX_COUNTED_LABELS:
                labels.setdefault(name, Counter())[split] += 1
    files = [("train", data.train), ("dev", data.dev), ("test", data.test)]
    paths = tuple((split, path) for split, path in files if path)
    ordered = dict(sorted(labels.items(), key=lambda item: (-item[1].total(), item[0])))
    return DatasetStats(
        files=paths,
        rows=rows,
        labels={name: dict(counts) for name, counts in ordered.items()},
        numeric=numbers,
        notes=_skipped_rows(data, [path for _, path in paths]),
        kind=kind,
        words=dict(words),
        writes=writes,
    )


def build_gold(config: Config, data: Data) -> Gold | None:
    """Return a function from examples to gold structures; None for tasks that label whole texts."""
    if (
        not find_task(config["task"].get("kind", "classify")).is_structured or data.parser
    ):  # plain texts: no trees to count
        return None
    examples = example_source(data, data.train)
    task = build_task(config.sections, **infer_task_settings(config, examples))
    tally, skip = SkipCounter(), data.on_bad_row == "skip"
    space = task.space(preprocess(examples(), task, tally, data.on_bad_row))

    def gold(example: Example) -> Annotation | None:
        try:
            return task.gold(task.prepare(example, tally), space)
        except UserError:
            if not skip:
                raise
            return None

    return gold


def _label_names(example: Example) -> Sequence[str]:
    label = sentence_label(example.label)
    if label is None:
        return ("(no label)",)
    return label if isinstance(label, tuple) else (str(label),)


def _skipped_rows(data: Data, paths: Sequence[str]) -> tuple[str, ...]:
    if data.on_bad_row == "error":  # a bad row has stopped us already
        return ()
    tally = SkipCounter()
    for path in paths:
        for _ in example_source(data, path, tally)():
            pass
    return tuple(f"rows skipped: {line}" for line in tally.lines())
