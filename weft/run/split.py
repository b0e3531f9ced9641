"""Split examples into train, dev and test; folds for cross-validation."""

import hashlib
import zlib
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cache, partial
from itertools import chain, compress, islice
from pathlib import Path

import numpy as np

from weft.errors import UserError
from weft.protocols import ReadMode, Section
from weft.run.data import (
    Data,
    Source,
    choose_columns,
    example_source,
    has_classes,
    like_train,
    read_mode,
)
from weft.storage import atomic_write
from weft.text.example import (
    CharSpans,
    Example,
    GoldAnswers,
    SkipCounter,
    WordAnnotations,
    sentence_label,
)
from weft.text.formats.parallel import resolve_files
from weft.text.line_source import file_not_found, open_stored
from weft.text.shards import list_shards, source_exists

TEST_FRACTION = 0.2  # of the training file, when there is neither a test file nor folds
LABEL_BINS = 10  # strata of a numeric label
MAX_CLASSES_SHOWN = 5  # classes named in a note
NO_FOLD = -1  # of a text that every fold learns from and none is measured on


@dataclass(frozen=True)
class Splits:
    """The sources of the examples; dev and test may be absent."""

    train: Source
    dev: Source | None = None
    test: Source | None = None
    note: Callable[[], str] = str  # what to say of classes that were kept in train
    # All parts, read together where one file holds several: (name of the part, example)
    together: Callable[[], Iterator[tuple[str, Example]]] | None = None

    def read_together(self) -> Iterator[tuple[str, Example]]:
        """Yield every example with the name of its part, in no order of parts."""
        if self.together is not None:
            return self.together()
        parts = {"train": self.train, "dev": self.dev, "test": self.test}
        return ((name, e) for name, source in parts.items() if source for e in source())


def open_splits(
    data: Data,
    task: Section,
    tally: SkipCounter | None = None,
    splits: Splits | None = None,
) -> tuple[Data, Splits, tuple[str, ...]]:
    """Choose the columns of the configured files and open them; return lines on the choice, too.

    Given `splits`, as in a comparison, nothing is left to choose.
    """
    if splits is not None:
        return data, splits, ()
    check_files(data)
    data, lines = choose_columns(data, task)
    return data, from_files(data, tally, read_mode(task), has_classes(task)), lines


def from_files(
    data: Data, tally: SkipCounter | None = None, mode: ReadMode = "labelled", classes: bool = False
) -> Splits:
    """Return sources that read the configured files again on every call.

    With `classes`, labels are classes: a dev part of the training file never takes all rows of a
    class, which the model could then not learn.

    For running text, dev is the end of the training file: neighbouring lines are alike, so lines
    drawn from between training lines would be too easy to predict.
    """
    check_files(data)
    if mode != "labelled":
        return _sequential_splits(data, tally, mode)

    def in_dev(example: Example) -> bool:
        return in_holdout(group_key(example), data.dev_fraction)

    def assign(example: Example) -> Part:
        return Part.DEV if in_dev(example) else Part.TRAIN

    if not classes or data.dev or not data.dev_fraction:
        return _split_files(data, assign, tally)

    @cache
    def stays() -> UntrainableClasses:
        return find_untrainable_classes(example_source(data, data.train)(), in_dev)

    def assign_kept(example: Example) -> Part:
        kept = not in_dev(example) or stays().contains_text(example)
        return Part.TRAIN if kept else Part.DEV

    part = _split_files(data, assign_kept, tally)
    return replace(part, note=lambda: stays().note("dev"))


@dataclass(frozen=True)
class UntrainableClasses:
    """Classes whose rows would all be held out, and the texts of those rows."""

    labels: tuple[str, ...]
    texts: frozenset[int]

    def contains_text(self, example: Example) -> bool:
        """Return True if a row, or a copy of its text, must stay in train."""
        return bool(self.texts) and text_hash(group_key(example)) in self.texts

    def note(self, part: str) -> str:
        if not self.labels:
            return ""
        shown = ", ".join(f"'{label}'" for label in self.labels[:MAX_CLASSES_SHOWN])
        more = (
            f", … ({len(self.labels) - MAX_CLASSES_SHOWN:,} more)"
            if len(self.labels) > MAX_CLASSES_SHOWN
            else ""
        )
        return f"kept in train, as {part} would have taken every row of them: {shown}{more}"


def find_untrainable_classes(
    examples: Iterable[Example], out: Callable[[Example], bool]
) -> UntrainableClasses:
    """Find the classes whose rows would all be held out, in one pass."""
    learned: set[str] = set()
    waiting: dict[str, list[int]] = {}
    for example in examples:
        names = _classes(example)
        if learned.issuperset(names):
            continue  # as nearly all rows: none of the classes is waiting
        if names and not out(example):
            learned.update(names)
        for name in names:
            if name in learned:
                waiting.pop(name, None)
            else:
                waiting.setdefault(name, []).append(text_hash(group_key(example)))
    if not learned:  # nothing at all is left to learn from, which the task will say
        waiting = {}
    return UntrainableClasses(tuple(sorted(waiting)), frozenset(chain(*waiting.values())))


def _classes(example: Example) -> tuple[str, ...]:
    """Return the classes of a text; none if its words are labelled, which may be new in dev."""
    return _class_names(_stratum(example))


def _class_names(stratum: object) -> tuple[str, ...]:
    if stratum is None or stratum == "":
        return ()
    return stratum if isinstance(stratum, tuple) else (str(stratum),)


def check_files(data: Data) -> None:
    """Raise UserError for a missing file now, not when it is read hours later."""
    if not data.train:
        raise UserError("No training file: pass --train FILE, or set train in [data].")
    for path in filter(None, (data.train, data.dev, data.test)):
        for file in resolve_files(path, data.target, data.references):
            if not source_exists(file):
                raise file_not_found(file)


def _sequential_splits(data: Data, tally: SkipCounter | None, mode: ReadMode) -> Splits:
    """Return the files in order; without a dev file, dev is the end of the training file."""

    def file(path: str) -> Source:
        return example_source(like_train(data, path), path, tally, mode=mode)

    test = file(data.test) if data.test else None
    whole = example_source(data, data.train, tally, mode=mode)
    if data.dev or not data.dev_fraction:
        return Splits(whole, file(data.dev) if data.dev else None, test)

    @cache
    def first() -> int:
        rows = sum(1 for _ in example_source(data, data.train, mode=mode)())
        return rows - int(data.dev_fraction * rows + 0.5)

    return Splits(
        lambda: islice(whole(), first()),
        lambda: islice(example_source(data, data.train, mode=mode)(), first(), None),
        test,
    )


@dataclass(frozen=True)
class Holdout:
    """The texts of the training file held out for dev and test, as hashes that copies share."""

    dev: frozenset[int] = frozenset()
    test: frozenset[int] = frozenset()
    note: str = ""  # on classes that were kept in train

    def save(self, path: Path) -> None:
        dev, test = (np.array(sorted(side), np.uint64) for side in (self.dev, self.test))
        with atomic_write(path) as part, part.open("wb") as file:
            np.savez(file, dev=dev, test=test)

    @classmethod
    def load(cls, path: Path) -> "Holdout":
        with np.load(path) as sides:
            dev, test = (frozenset(sides[name].tolist()) for name in ("dev", "test"))
            return cls(dev, test)


def choose_holdout(data: Data, numbers: bool = False, mixed: bool = False) -> Holdout:
    """Choose the dev and test texts from train if they have no file.

    Every label gives the same share, to the nearest text; sentences that are labelled word by word
    are drawn from one pot, as is all that is `mixed`, where labels are texts. Copies of a text (up
    to case and spaces) go together. Dev is what `held` would take, evened out over the labels. No
    class loses all of its rows. One pass, which keeps two hashes and a label's number of each row,
    and another one if a class has to be saved.
    """
    shares = {
        "test": 0.0 if data.test else TEST_FRACTION,
        "dev": 0.0 if data.dev else data.dev_fraction,
    }
    if not any(shares.values()):
        return Holdout()
    keys, order, values = array("Q"), array("L"), array("d")
    names: dict[object, int] = {}
    for example in example_source(data, data.train)():
        key = group_key(example)
        keys.append(text_hash(key))
        order.append(_hash_order(key))
        stratum = None if mixed else _stratum(example)
        name = _label_number(example) if numbers else names.setdefault(stratum, len(names))
        values.append(name)
    texts, first = np.unique(np.array(keys, np.uint64), return_index=True)
    strata = np.array(values)[first]
    strata = _quantile_bins(strata) if numbers else strata
    lots = {"test": texts, "dev": np.array(order)[first]}
    chosen, free = {}, np.ones(len(texts), bool)
    for side, share in shares.items():
        taken = _choose_lowest(lots[side], strata, free, share)
        chosen[side] = frozenset(texts[taken].tolist())
        free &= ~taken
    if numbers or mixed:
        return Holdout(chosen["dev"], chosen["test"])
    out = chosen["dev"] | chosen["test"]
    kept = ~np.isin(np.array(keys, np.uint64), np.fromiter(out, np.uint64, len(out)))
    numbers_kept = set(np.unique(np.array(values)[kept]).tolist())
    learned = {c for s, number in names.items() if number in numbers_kept for c in _class_names(s)}
    if all(learned.issuperset(_class_names(stratum)) for stratum in names):
        return Holdout(chosen["dev"], chosen["test"])
    stays = find_untrainable_classes(
        example_source(data, data.train)(), lambda e: text_hash(group_key(e)) in out
    )
    dev, test = (chosen[side] - stays.texts for side in ("dev", "test"))
    return Holdout(dev, test, stays.note("dev and test"))


def _choose_lowest(
    lots: np.ndarray, strata: np.ndarray, free: np.ndarray, fraction: float
) -> np.ndarray:
    """Return a mask of the free rows with the lowest lots in each stratum."""
    taken = np.zeros(len(lots), bool)
    rows = np.flatnonzero(free)
    rows = rows[np.lexsort((lots[rows], strata[rows]))]
    starts = np.flatnonzero(np.diff(strata[rows], prepend=np.nan))
    for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        taken[rows[start : start + int(fraction * (end - start) + 0.5)]] = True
    return taken


def apply_holdout(data: Data, chosen: Holdout) -> Splits:
    """Return the configured files; parts without a file come from train as chosen."""

    def assign(example: Example) -> Part:
        key = text_hash(group_key(example))
        return Part.TEST if key in chosen.test else Part.DEV if key in chosen.dev else Part.TRAIN

    return _split_files(data, assign, holds_test=True)


def group_key(example: Example) -> str:
    """Return the text whose copies stay in one split: for a question, its passage."""
    if example.group:
        return example.group
    label, passage = example.label, example.other
    if not passage:
        return example.text
    # Without a label it is a question as well, one without an answer: other rows need one.
    requested = isinstance(label, GoldAnswers) or label is None
    found = isinstance(label, tuple) and all(one in passage for one in label)
    return passage if requested or found else example.text


def text_hash(text: str) -> int:
    """Return a hash that copies of a text share, ignoring case and spaces."""
    plain = " ".join(text.casefold().split()).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(plain, digest_size=8).digest(), "big")


class Part(IntEnum):
    """The part to which a row of the training file belongs."""

    TRAIN = 0
    DEV = 1
    TEST = 2


class RowParts:
    """The part of each row of a file, which is found out once and then kept: a byte a row."""

    def __init__(self, source: Source, assign: Callable[[Example], Part]):
        self.source, self.assign = source, assign
        self._known: bytearray | None = None

    def select(self, part: Part, source: Source) -> Iterator[Example]:
        """Yield the rows of a part; `source` yields the same rows as the one of this object."""
        if self._known is not None:
            chosen = self._known.translate(bytes(number == part for number in range(256)))
            yield from compress(source(), chosen)
            return
        known = bytearray()
        for example in source():
            found = self.assign(example)
            known.append(found)
            if found == part:
                yield example
        self._known = known

    def label(self) -> Iterator[tuple[int, Example]]:
        """Yield every row with its part."""
        if self._known is not None:
            yield from zip(self._known, self.source(), strict=False)
            return
        known = bytearray()
        for example in self.source():
            found = self.assign(example)
            known.append(found)
            yield found, example
        self._known = known


def _split_files(
    data: Data,
    assign: Callable[[Example], Part],
    tally: SkipCounter | None = None,
    holds_test: bool = False,
) -> Splits:
    """Return the three parts; `assign` selects the rows of parts without a file.

    Without a test file, rows become test only where `assign` `holds_test`.
    """
    texts = example_source(data, data.train)
    inside = {Part.TEST: holds_test and not data.test,
              Part.DEV: bool(data.dev_fraction) and not data.dev}  # fmt: skip

    def assign_rest(example: Example) -> Part:
        part = assign(example)
        return part if inside.get(part) else Part.TRAIN

    parts = RowParts(texts, assign_rest)

    def open_part(path: str, part: Part) -> Source | None:
        if path:
            return example_source(like_train(data, path), path, tally)
        return (lambda: parts.select(part, texts)) if inside[part] else None

    test, dev = open_part(data.test, Part.TEST), open_part(data.dev, Part.DEV)
    whole = example_source(data, data.train, tally, augmented=True)
    if not any(inside.values()):
        return Splits(whole, dev, test)
    if data.augments:
        train = _remaining(whole, texts, lambda e: assign_rest(e) != Part.TRAIN, data.phrases)
    else:
        train = partial(parts.select, Part.TRAIN, whole)
        return Splits(train, dev, test, together=lambda: _read_together(parts, data, dev, test))
    return Splits(train, dev, test)


def _read_together(
    parts: RowParts, data: Data, dev: Source | None, test: Source | None
) -> Iterator[tuple[str, Example]]:
    """Yield the rows of the training file with their parts, then those of the other files."""
    names = {int(part): part.name.lower() for part in Part}
    yield from ((names[part], example) for part, example in parts.label())
    for name, path, source in (("dev", data.dev, dev), ("test", data.test, test)):
        if path and source is not None:
            yield from ((name, example) for example in source())


def cross_validation_splits(data: Data, count: int, numbers: bool = False) -> list[Splits]:
    """Return one Splits per fold: the fold is test, a fraction of the rest dev; all in memory."""
    examples = list(example_source(data, data.train)())
    owner = assign_folds(examples, count, numbers=numbers)
    alone = (
        UntrainableClasses((), frozenset()) if numbers else _classes_in_one_fold(examples, owner)
    )
    owner = [NO_FOLD if alone.contains_text(e) else k for e, k in zip(examples, owner, strict=True)]
    whole = list(example_source(data, data.train, augmented=True)()) if data.augments else examples
    return [
        replace(
            _make_fold(data, examples, whole, owner, number, not numbers),
            note=lambda: alone.note("one fold"),
        )
        for number in range(count)
    ]


def _classes_in_one_fold(examples: Sequence[Example], owner: Sequence[int]) -> UntrainableClasses:
    """Find the classes of which one fold has every row, so that it could not learn them."""
    places: dict[str, set[int]] = defaultdict(set)
    texts: dict[str, set[int]] = defaultdict(set)
    for example, fold in zip(examples, owner, strict=True):
        for name in _classes(example):
            places[name].add(fold)
            texts[name].add(text_hash(group_key(example)))
    alone = sorted(name for name, found in places.items() if len(found) == 1)
    return UntrainableClasses(tuple(alone), frozenset(chain(*(texts[name] for name in alone))))


def assign_folds(
    examples: Sequence[Example], count: int, seed: int = 0, numbers: bool = False
) -> list[int]:
    """Return the fold of each example: labels spread evenly, copies of a text in one fold."""
    copies: dict[int, list[int]] = defaultdict(list)
    for i, example in enumerate(examples):
        copies[text_hash(group_key(example))].append(i)
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


def in_holdout(text: str, fraction: float) -> bool:
    """Return True if a text is held out. The text alone decides, so that copies stay together and
    a file larger than memory can be split while it streams."""
    return _hash_order(text) < fraction * 2**32


def _hash_order(text: str) -> int:
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))


def file_digest(path: str) -> str:
    """Return a hash of the contents of a file, or of every file in a folder."""
    total = hashlib.sha256()
    place = Path(path)
    if place.is_dir():
        files = {str(p.relative_to(place)): str(p) for p in place.rglob("*") if p.is_file()}
    else:
        files = {Path(p).name: p for p in list_shards(path)} or {".": path}
    for name, file in sorted(files.items()):
        total.update(name.encode("utf-8", "surrogatepass") + b"\0")
        try:
            with open_stored(file) as stream:
                while block := stream.read(1 << 20):
                    total.update(block)
        except OSError as error:
            raise UserError(f"{file}: cannot be read: {error.strerror or error}.") from None
    return total.hexdigest()


def _make_fold(
    data: Data,
    examples: list[Example],
    whole: list[Example],
    owner: list[int],
    number: int,
    classes: bool,
) -> Splits:
    mine = [e for e, fold in zip(examples, owner, strict=True) if fold == number]
    rest = [e for e, fold in zip(examples, owner, strict=True) if fold != number]
    texts = {text_hash(group_key(e)) for e in mine}
    stays = find_untrainable_classes(rest if classes else (), lambda e: _in_dev(e, data))

    def in_dev(example: Example) -> bool:
        return _in_dev(example, data) and not stays.contains_text(example)

    train = _remaining(
        lambda: iter(whole if data.augments else rest),
        lambda: iter(examples),
        lambda e: text_hash(group_key(e)) in texts or in_dev(e),
        data.phrases,
    )
    return Splits(train, _dev_source(data, lambda: iter(rest), in_dev), lambda: iter(mine))


def _remaining(
    whole: Source, texts: Source, out: Callable[[Example], bool], phrases: bool
) -> Source:
    """Return the training examples that are not held out; phrases follow their sentence."""
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


def _in_dev(example: Example, data: Data) -> bool:
    return not data.dev and in_holdout(group_key(example), data.dev_fraction)


def _dev_source(data: Data, rest: Source, in_dev: Callable[[Example], bool]) -> Source | None:
    if data.dev:
        return example_source(like_train(data, data.dev), data.dev)
    return (lambda: filter(in_dev, rest())) if data.dev_fraction else None


def _strata(examples: Sequence[Example], numbers: bool) -> list[object]:
    """Return the stratum of each example: its label, or the quantile bin of a number."""
    if not numbers:
        return [_stratum(example) for example in examples]
    return list(_quantile_bins(np.array([_label_number(example) for example in examples])))


def _stratum(example: Example) -> object:
    """Return the stratum of a text; None if its words are labelled."""
    label = sentence_label(example.label)
    return None if isinstance(label, (WordAnnotations, CharSpans, GoldAnswers)) else label


def _quantile_bins(values: np.ndarray) -> np.ndarray:
    """Return the quantile bin of each value."""
    ranks = values.argsort(kind="stable").argsort(kind="stable")
    return ranks * LABEL_BINS // max(1, len(values))


def _label_number(example: Example) -> float:
    try:
        return float(example.label)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return 0.0  # the task will say that this is no number, and where
