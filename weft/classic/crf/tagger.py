"""Tags of words by linear-chain CRFs on symbolic features, one for each column of tags.

T words   K columns of tags
"""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from weft import jsonio
from weft.classic.crf.features import features
from weft.classic.crf.model import LinearCRF
from weft.classic.progress import Progress, ProgressCallback, no_callback
from weft.classic.weights_io import damaged_file_error
from weft.errors import UserError
from weft.registry import register
from weft.storage import write_text
from weft.tasks.annotation import Decoded
from weft.tasks.tag_vocabulary import TagSpace, read_column, require_annotations
from weft.text.annotation.schemes import allowed_transitions
from weft.text.example import TAG_COLUMN, Example, WordAnnotations
from weft.tokens.pretokenizer import Offsets, split_words
from weft.tokens.word_segmenter import WordSegmenter, save

LAYOUT, CUTS = "columns.json", "cuts.json"
EVERY = "*"
MOST = 100  # values of a column that "*" takes: the time a chain needs grows with their square
Given = str | Example
Row = Sequence[Sequence[str]]  # of a sentence: each word, then its columns that are features


@register("classic", "crf")
class Tagger:
    """Words, their neighbours and their looks under a linear-chain CRF (Lafferty et al. 2001).

    `columns` name columns that are features as well, as parts of speech are for chunks: by name or
    by number, "*" for all others of a column file that have few enough values. By default there are
    none: an annotator's name or a sentence number would be learned too. In a text that comes
    without them they are tagged first, by a CRF of their own. `l1` and `l2` are penalties on the
    weights; features count that occur `min_count` times.
    """

    seeded = False  # nothing in it is random
    is_structured = True

    def __init__(
        self,
        columns: list[str] = [],  # noqa: B006 -- never changed; a list is what a config holds
        l1: float = 0.0,
        l2: float = 1.0,
        min_count: int = 1,
        iterations: int = 100,
    ) -> None:
        self.columns = tuple(columns)
        self.settings: dict[str, Any] = {
            "l1": l1, "l2": l2, "min_count": min_count, "iterations": iterations,
        }  # fmt: skip
        LinearCRF(**self.settings)  # refuses what makes no sense
        self.before: list[LinearCRF] = []  # of each column that is a feature
        self.chains: list[LinearCRF] = []  # of each column of tags
        self.numbers: list[list[int]] = []  # of each chain, its labels as the task counts them
        self.cuts: WordSegmenter | None = (
            None  # how plain text is cut, where the training file taught it
        )

    def fit(
        self,
        given: Sequence[Example],
        targets: Sequence[np.ndarray],
        task: Any,
        space: TagSpace,
        seed: int = 0,
        watch: ProgressCallback = no_callback,
    ) -> None:
        """Learn from sentences and their tags (T, K)."""
        self.choose_features(given, space)
        self.cuts = WordSegmenter.train(given)
        count = len(self.columns) + len(space.names)
        shown = LazyFeatures([[(word,) for word in one.words] for one in given])
        for k, name in enumerate(self.columns):
            tags: list[Any] = [read_column(one, name) for one in given]
            self.before.append(
                self._learnt(shown, tags, "", partial(_report_progress, watch, name, k, count))
            )
        if self.columns:
            shown = LazyFeatures([self._row(one) for one in given])
        for k, (labels, scheme) in enumerate(space.size):
            tags = [[labels[number] for number in table[:, k]] for table in targets]
            on_progress = partial(
                _report_progress, watch, space.names[k], len(self.columns) + k, count
            )
            chain = self._learnt(shown, tags, scheme, on_progress)
            self.chains.append(chain)
            self.numbers.append([labels.index(label) for label in chain.labels])

    def choose_features(self, given: Sequence[Example], space: TagSpace) -> str:
        """Settle on the columns that are features; a line that says which."""
        self.columns = _chosen(self.columns, given, space)
        named = ", ".join(f"'{name}'" for name in self.columns)
        beside = f" and the columns {named}" if named else " (classic.columns names others)"
        return f"features: the words{beside}"

    def _learnt(
        self, shown: "LazyFeatures", tags: list, scheme: str, watch: ProgressCallback
    ) -> LinearCRF:
        chain = LinearCRF(**self.settings)
        rules = (lambda labels: allowed_transitions(labels, scheme)) if scheme else None
        chain.fit(shown, tags, rules, watch)
        return chain

    def scores(self, given: Sequence[Given]) -> list[Decoded]:
        """The tags of each sentence (T, K) and their probabilities, with the words and places."""
        cut = [self._words(one) for one in given]
        rows: list[Row] = [[(word,) for word in words] for words, _ in cut]
        if self.columns:
            rows = self._completed(given, rows)
        shown = [features(row) for row in rows]
        tables = [np.zeros((len(row), len(self.chains)), np.int64) for row in rows]
        chances = [np.ones(table.shape, np.float32) for table in tables]
        for k, (chain, numbers) in enumerate(zip(self.chains, self.numbers, strict=True)):
            for i, (path, shares) in enumerate(chain.tagged(shown)):
                tables[i][:, k] = np.array(numbers)[path]
                chances[i][:, k] = shares
        return [
            Decoded(table, share, words, places)
            for table, share, (words, places) in zip(tables, chances, cut, strict=True)
        ]

    def _words(self, one: Given) -> tuple[tuple[str, ...], Offsets]:
        """The words of an example, or those a plain text is cut into, and where they stand."""
        if isinstance(one, Example):
            return one.words, one.places
        return split_words(one) if self.cuts is None else self.cuts.words_of(one)

    def _completed(self, given: Sequence[Given], rows: list[Row]) -> list[Row]:
        """Rows with the columns that are features: those of the file, or found where it has none.

        A file that has only some of them is taken to have none.
        """
        bare = [i for i, one in enumerate(given) if not self._has_columns(one)]
        shown = [features(rows[i]) for i in bare]
        found = [chain.predict(shown) for chain in self.before]
        out = list(rows)
        for i, *tags in zip(bare, *found, strict=True):
            out[i] = [(*row, *more) for row, *more in zip(rows[i], *tags, strict=True)]
        known = set(range(len(rows))) - set(bare)
        for i in known:
            out[i] = self._row(given[i])
        return out

    def _has_columns(self, one: Given) -> bool:
        label = one.label if isinstance(one, Example) else None
        return isinstance(label, WordAnnotations) and all(
            name in label.columns for name in self.columns
        )

    def _row(self, one: Any) -> Row:
        return list(zip(one.words, *(read_column(one, name) for name in self.columns), strict=True))

    def parameters(self) -> int:
        """The number of learned weights in all chains."""
        return sum(chain.parameters() for chain in (*self.before, *self.chains))

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Refused: it has weights for symbols, not vectors."""
        raise UserError("A 'crf' model has no vectors. Use a neural tagger for them.")

    def save(self, folder: Path) -> None:
        """Write columns.json, a weights file for each chain, and the cuts that were learned."""
        layout = {"features": self.columns, "tags": self.numbers}
        write_text(folder / LAYOUT, json.dumps(layout, ensure_ascii=False))
        save(self.cuts, folder / CUTS)
        for name, chain in zip(_names(self), (*self.before, *self.chains), strict=True):
            chain.save(folder, name)

    @classmethod
    def load(cls, folder: Path, settings: dict[str, Any]) -> "Tagger":
        """The model that `save` wrote, under the settings it was made with."""
        model = cls(**{key: value for key, value in settings.items() if key != "kind"})
        path = folder / LAYOUT
        try:
            layout = jsonio.read(path)
            model.numbers = [[int(number) for number in row] for row in layout["tags"]]
            model.columns = tuple(map(str, layout["features"]))
        except FileNotFoundError:
            raise damaged_file_error("crf", path, "the file is missing") from None
        except (ValueError, KeyError, TypeError) as error:
            raise damaged_file_error("crf", path, repr(error)) from error
        model.cuts = WordSegmenter.load(folder / CUTS)
        chains = [LinearCRF.load(folder, model.settings, name) for name in _names(model)]
        count = len(model.columns)
        model.before, model.chains = chains[:count], chains[count:]
        if [len(chain.labels) for chain in model.chains] != [len(row) for row in model.numbers]:
            raise damaged_file_error("crf", path, "it does not match the weights")
        return model


class LazyFeatures(Sequence[list[list[str]]]):
    """The features of sentences, made when asked for: all of them would fill the memory."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows

    def __getitem__(self, i: Any) -> Any:
        return features(self.rows[i])

    def __len__(self) -> int:
        return len(self.rows)


def _chosen(columns: Sequence[str], given: Sequence[Example], space: TagSpace) -> tuple[str, ...]:
    """The columns that are features, with "*" written out."""
    tags = [read_column(one, space.names[0]) for one in given]
    present = list(require_annotations(given[0]).columns)
    columns = [
        name
        if name in present or not name.isdecimal() or int(name) >= len(present)
        else present[int(name)]
        for name in columns
    ]
    for name in columns:
        same = name != EVERY and [read_column(one, name) for one in given] == tags
        if name in space.names or same:
            raise UserError(
                f"classic 'crf': column '{name}' is what should be found; it cannot be a feature "
                "too. Remove it from classic.columns."
            )
    found = [name for name in columns if name != EVERY]
    if EVERY not in columns or require_annotations(given[0]).main != TAG_COLUMN:
        return tuple(found)  # what a treebank knows of a word is not known of plain text
    known = [one.words for one in given], [read_column(one, TAG_COLUMN) for one in given]
    for name in require_annotations(given[0]).columns:
        values = [read_column(one, name) for one in given]
        few = len({value for own in values for value in own}) <= MOST
        if few and values not in known and name not in (*found, *space.names):
            found.append(name)
    return tuple(found)


def _names(model: Tagger) -> list[str]:
    """The files of the chains: of features first, then of tags."""
    given = [f"feature-{k}.safetensors" for k in range(len(model.columns))]
    return [*given, *(f"tags-{k}.safetensors" for k in range(len(model.numbers)))]


def _report_progress(
    watch: ProgressCallback, name: str, done: int, count: int, progress: Progress
) -> bool:
    """Tell of one chain as a part of all; there is nothing to measure before the last iteration."""
    what = f"{name}: {progress.what}, loss {progress.loss:,.0f}"
    return watch(Progress((done + progress.share) / count, what))
