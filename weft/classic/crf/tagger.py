"""Tag words by linear-chain CRFs on symbolic features, one CRF per column of tags.

T words   K columns of tags
"""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import overload

import numpy as np

from weft import jsonio
from weft.classic.crf.features import features
from weft.classic.crf.model import LinearCRF
from weft.classic.progress import DevSplit, FitProgress, ProgressCallback, no_callback
from weft.classic.weights_io import damaged_file_error
from weft.errors import UserError
from weft.protocols import ClassicModel, Section
from weft.registry import register
from weft.storage import write_text
from weft.tasks.annotation import Decoded, SentenceDistribution
from weft.tasks.tag_vocabulary import TagSpace, read_column, require_annotations
from weft.tasks.task import AnyTask, class_groups
from weft.text.annotation.schemes import allowed_transitions
from weft.text.class_balance import Balance, sample_balanced
from weft.text.example import TAG_COLUMN, Example, WordAnnotations
from weft.tokens.pretokenizer import Offsets, split_words
from weft.tokens.word_segmenter import WordSegmenter, save

LAYOUT, CUTS = "columns.json", "cuts.json"
ALL_COLUMNS = "*"
HIDDEN_WORD = "\ue000"  # stands for a hidden word: in no vocabulary, and of no known shape
MAX_COLUMN_VALUES = 100  # of a column that "*" takes: the time of a chain grows with their square
Row = Sequence[Sequence[str]]  # of each word of a sentence: the word and its feature columns


@register("classic", "crf")
class Tagger(ClassicModel):
    """Words, their neighbours and their shapes under a linear-chain CRF (Lafferty et al. 2001).

    `columns` are features as well, such as parts of speech for chunking: by name or number, "*" for
    all others of a column file with few enough values. The default is none: an annotator's name or
    a sentence number would be learned too. If a text lacks them, they are tagged first, each by a
    CRF. `patterns` adds the kinds of words that a pattern recognises, such as e-mail addresses,
    URLs, phone numbers and numbers. `l1` and `l2` are penalties on the weights; features that occur
    fewer than `min_count` times are ignored.
    """

    kind = "crf"
    is_structured = True
    balances = ("sampling",)
    takes_weights = True

    def __init__(
        self,
        columns: list[str] = [],  # noqa: B006 -- never changed; a list is what a config holds
        l1: float = 0.0,
        l2: float = 1.0,
        min_count: int = 1,
        iterations: int = 100,
        patterns: bool = False,
    ) -> None:
        self.columns, self.patterns = tuple(columns), patterns
        self.settings: Section = {
            "l1": l1, "l2": l2, "min_count": min_count, "iterations": iterations,
        }  # fmt: skip
        LinearCRF(**self.settings)  # checks the settings
        self.before: list[LinearCRF] = []  # one per column that is a feature
        self.chains: list[LinearCRF] = []  # one per column of tags
        self.numbers: list[list[int]] = []  # of each chain, the task's numbers of its labels
        self.cuts: WordSegmenter | None = None  # splits plain text, if it was trained

    def fit(
        self,
        texts: Sequence[Example],
        targets: Sequence[np.ndarray],
        task: AnyTask,
        space: TagSpace,
        seed: int = 0,
        watch: ProgressCallback = no_callback,
        dev: DevSplit | None = None,
        metric: str = "",
        balance: Balance | None = None,
        row_weights: np.ndarray | None = None,
    ) -> None:
        """Learn from sentences and their tags (T, K); weights are whole numbers, of copies."""
        self.choose_features(texts, space)
        self.cuts = WordSegmenter.train(texts)
        if balance is not None and balance.kind == "sampling":
            groups = class_groups(targets, task, space)
            order = sample_balanced(groups, len(texts), np.random.default_rng(seed % 2**63))
            texts, targets = [texts[i] for i in order], [targets[i] for i in order]
            row_weights = None if row_weights is None else row_weights[order]
        if row_weights is not None:
            repeated = _repeat_rows(row_weights, texts)
            texts, targets = [texts[i] for i in repeated], [targets[i] for i in repeated]
        count = len(self.columns) + len(space.names)
        shown = LazyFeatures([[(word,) for word in one.words] for one in texts], self.patterns)
        for k, name in enumerate(self.columns):
            tags: list[Sequence[str]] = [read_column(one, name) for one in texts]
            self.before.append(
                self._fit_chain(shown, tags, "", partial(_report_progress, watch, name, k, count))
            )
        if self.columns:
            shown = LazyFeatures([self._row(one) for one in texts], self.patterns)
        for k, (labels, scheme) in enumerate(space.size):
            tags = [[labels[number] for number in table[:, k]] for table in targets]
            on_progress = partial(
                _report_progress, watch, space.names[k], len(self.columns) + k, count
            )
            chain = self._fit_chain(shown, tags, scheme, on_progress)
            self.chains.append(chain)
            self.numbers.append([labels.index(label) for label in chain.labels])

    def choose_features(self, texts: Sequence[Example], space: TagSpace) -> str:
        """Choose the columns that are features; return a line that names them."""
        self.columns = _choose_columns(self.columns, texts, space)
        named = ", ".join(f"'{name}'" for name in self.columns)
        beside = f" and the columns {named}" if named else " (classic.columns names others)"
        return f"features: the words{beside}"

    def _fit_chain(
        self,
        shown: "LazyFeatures",
        tags: list[Sequence[str]],
        scheme: str,
        watch: ProgressCallback,
    ) -> LinearCRF:
        chain = LinearCRF(**self.settings)
        rules = (lambda labels: allowed_transitions(labels, scheme)) if scheme else None
        chain.fit(shown, tags, rules, watch)
        return chain

    def predict(self, texts: Sequence[str | Example]) -> list[Decoded]:
        """Return the tags of each sentence (T, K) and their probabilities."""
        split, shown = self._read(texts)
        tables = [np.zeros((len(row), len(self.chains)), np.int64) for row in shown]
        probs = [np.ones(table.shape, np.float32) for table in tables]
        for k, (chain, numbers) in enumerate(zip(self.chains, self.numbers, strict=True)):
            for i, (path, marginals) in enumerate(chain.decode(shown)):
                tables[i][:, k] = np.array(numbers)[path]
                probs[i][:, k] = marginals
        return [
            Decoded(table, own, words, offsets)
            for table, own, (words, offsets) in zip(tables, probs, split, strict=True)
        ]

    def label_scores(self, one: Example, hidden: np.ndarray, step: int, column: int) -> np.ndarray:
        """A hidden word is a word without known features, in every column."""
        given = self._row(one) if self.columns and self._has_columns(one) else None
        shown = []
        for gone in hidden:
            words = [HIDDEN_WORD if off else w for w, off in zip(one.words, gone, strict=True)]
            row: Row = [(word,) for word in words]
            if given is not None:
                nothing = (HIDDEN_WORD,) * len(given[0])
                row = [nothing if off else cell for cell, off in zip(given, gone, strict=True)]
            elif self.columns:
                bare = Example("", words=tuple(words))
                row = self._add_columns([bare], [row])[0]
            shown.append(features(row, self.patterns))
        found = self.chains[column].label_scores(shown, step)  # (M, C) in the chain's order
        out = np.full((len(hidden), max(self.numbers[column]) + 1), -np.inf)
        out[:, self.numbers[column]] = found
        return out

    def feature_weights(self, one: Example, step: int, column: int) -> list[tuple[str, np.ndarray]]:
        chain, numbers = self.chains[column], self.numbers[column]
        (shown,) = self._read([one])[1]
        out = []
        for name, own in chain.feature_weights(shown[step]):
            weights = np.zeros(max(numbers) + 1)
            weights[numbers] = own
            out.append((name, weights))
        return out

    def distributions(
        self, texts: Sequence[str | Example], space: TagSpace
    ) -> list[SentenceDistribution]:
        """Return the marginal probabilities of all tags of each sentence."""
        from weft.decode.heads.averaging import TagProbs

        split, shown = self._read(texts)
        columns: list[list[np.ndarray]] = [[] for _ in split]
        for chain, numbers, labels in zip(self.chains, self.numbers, space.entries, strict=True):
            for own, marginals in zip(columns, chain.marginals(shown), strict=True):
                probs = np.zeros((len(marginals), len(labels)))
                probs[:, numbers] = marginals
                own.append(probs)
        return [
            SentenceDistribution(TagProbs(tuple(own), True) if words else None, words, offsets)
            for own, (words, offsets) in zip(columns, split, strict=True)
        ]

    def _read(
        self, texts: Sequence[str | Example]
    ) -> tuple[list[tuple[tuple[str, ...], Offsets]], list[list[list[str]]]]:
        """Return the words and offsets of each text, and the features of its words."""
        split = [self._words(one) for one in texts]
        rows: list[Row] = [[(word,) for word in words] for words, _ in split]
        if self.columns:
            rows = self._add_columns(texts, rows)
        return split, [features(row, self.patterns) for row in rows]

    def _words(self, one: str | Example) -> tuple[tuple[str, ...], Offsets]:
        """Return the words of an example or of a plain text, with their offsets."""
        if isinstance(one, Example):
            return one.words, one.places
        return split_words(one) if self.cuts is None else self.cuts.words_of(one)

    def _add_columns(self, texts: Sequence[str | Example], rows: list[Row]) -> list[Row]:
        """Return rows with the columns that are features: those of the file, or predicted ones.

        If a file lacks one of them, all are predicted.
        """
        bare = [i for i, one in enumerate(texts) if not self._has_columns(one)]
        shown = [features(rows[i], self.patterns) for i in bare]
        predicted = [chain.predict(shown) for chain in self.before]
        out = list(rows)
        for i, *tags in zip(bare, *predicted, strict=True):
            out[i] = [(*row, *more) for row, *more in zip(rows[i], *tags, strict=True)]
        for i, one in enumerate(texts):
            if isinstance(one, Example) and self._has_columns(one):
                out[i] = self._row(one)
        return out

    def _has_columns(self, one: str | Example) -> bool:
        label = one.label if isinstance(one, Example) else None
        return isinstance(label, WordAnnotations) and all(
            name in label.columns for name in self.columns
        )

    def _row(self, one: Example) -> Row:
        return list(zip(one.words, *(read_column(one, name) for name in self.columns), strict=True))

    def parameters(self) -> int:
        """Return the number of learned weights in all chains."""
        return sum(chain.parameters() for chain in (*self.before, *self.chains))

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        raise UserError("A 'crf' model has no vectors. Use a neural tagger for them.")

    def save(self, folder: Path) -> None:
        """Write columns.json, a weights file for each chain, and the word segmenter."""
        layout = {"features": self.columns, "tags": self.numbers}
        write_text(folder / LAYOUT, json.dumps(layout, ensure_ascii=False))
        save(self.cuts, folder / CUTS)
        for name, chain in zip(_names(self), (*self.before, *self.chains), strict=True):
            chain.save(folder, name)

    @classmethod
    def load(cls, folder: Path, settings: Section) -> "Tagger":
        """Load what `save` wrote, with the settings it was built with."""
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
    """The features of sentences, computed on access: all at once would not fit in memory."""

    def __init__(self, rows: Sequence[Row], patterns: bool = False) -> None:
        self.rows, self.patterns = rows, patterns

    @overload
    def __getitem__(self, i: int) -> list[list[str]]: ...
    @overload
    def __getitem__(self, i: slice) -> list[list[list[str]]]: ...
    def __getitem__(self, i: int | slice) -> list[list[str]] | list[list[list[str]]]:
        if isinstance(i, slice):
            return [features(row, self.patterns) for row in self.rows[i]]
        return features(self.rows[i], self.patterns)

    def __len__(self) -> int:
        return len(self.rows)


def _choose_columns(
    columns: Sequence[str], examples: Sequence[Example], space: TagSpace
) -> tuple[str, ...]:
    """Return the columns that are features, with "*" resolved."""
    tags = [read_column(one, space.names[0]) for one in examples]
    present = list(require_annotations(examples[0]).columns)
    columns = [
        name
        if name in present or not name.isdecimal() or int(name) >= len(present)
        else present[int(name)]
        for name in columns
    ]
    for name in columns:
        same = name != ALL_COLUMNS and [read_column(one, name) for one in examples] == tags
        if name in space.names or same:
            raise UserError(
                f"classic 'crf': column '{name}' is the target, so it cannot be a feature. "
                "Remove it from classic.columns."
            )
    chosen = [name for name in columns if name != ALL_COLUMNS]
    if ALL_COLUMNS not in columns or require_annotations(examples[0]).main != TAG_COLUMN:
        return tuple(chosen)  # plain text lacks the columns of a treebank
    used = [one.words for one in examples], [read_column(one, TAG_COLUMN) for one in examples]
    for name in present:
        values = [read_column(one, name) for one in examples]
        few = len({value for column in values for value in column}) <= MAX_COLUMN_VALUES
        if few and values not in used and name not in (*chosen, *space.names):
            chosen.append(name)
    return tuple(chosen)


def _repeat_rows(weights: np.ndarray, texts: Sequence[Example]) -> list[int]:
    """Return the row numbers, each as often as its weight says: CRFsuite has no other weights."""
    broken = np.flatnonzero(weights != weights.round())
    if len(broken):
        at = int(broken[0])
        raise UserError(
            f"{texts[at].where}: the weight is {weights[at]:g}, but CRFsuite takes whole numbers "
            "only. Round the weights, or use a neural recipe: --recipe tagger-bilstm."
        )
    repeated: list[int] = np.repeat(np.arange(len(weights)), weights.astype(np.int64)).tolist()
    return repeated


def _names(model: Tagger) -> list[str]:
    """Return the files of the chains: of features first, then of tags."""
    features = [f"feature-{k}.safetensors" for k in range(len(model.columns))]
    return [*features, *(f"tags-{k}.safetensors" for k in range(len(model.numbers)))]


def _report_progress(
    watch: ProgressCallback, name: str, done: int, count: int, progress: FitProgress
) -> bool:
    """Report one chain as a part of all; nothing can be evaluated before the last iteration."""
    what = f"{name}: {progress.what}, loss {progress.loss:,.0f}"
    return watch(FitProgress((done + progress.share) / count, what))
