"""A linear-chain CRF on symbolic features (Lafferty et al. 2001): the tagger before neural ones.

CRFsuite learns the weights; reading, answering and the files are our own, so that a saved model
answers without that library, keeps to allowed transitions, and its loader executes nothing.
B sentences   T words   C labels   A features
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from weft.classic.crf import crfsuite
from weft.classic.progress import ProgressCallback, no_callback
from weft.classic.weights_io import WEIGHTS, damaged_file_error, read
from weft.errors import UserError
from weft.protocols import Section
from weft.storage import atomic_write

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Features = Sequence[Sequence[str]]  # of a sentence: those of each word
Rules = Callable[[list[str]], tuple[np.ndarray, np.ndarray, np.ndarray]]
WHERE = "classic 'crf'"
KINDS = {
    "features": np.uint8,
    "labels": np.uint8,
    "starts": np.int64,
    "columns": np.int32,
    "values": np.float32,
    "transitions": np.float32,
    "rules": np.uint8,
}


class LinearCRF:
    """Tags from weighted features of each word and from what tag follows what.

    Learned by L-BFGS with penalties `l1` and `l2` on the weights, on features that occur at least
    `min_count` times. The same data give the same model: there is nothing random in it.
    """

    seeded = False

    def __init__(
        self, l1: float = 0.0, l2: float = 1.0, min_count: int = 1, iterations: int = 200
    ) -> None:
        for name, found in (("l1", l1), ("l2", l2)):
            if not 0 <= found < np.inf:
                raise UserError(f"{WHERE}: {name} is {found}; it should be 0 or more.")
        for name, found in (("min_count", min_count), ("iterations", iterations)):
            if found < 1:
                raise UserError(f"{WHERE}: {name} is {found}; it should be 1 or more.")
        self.l1, self.l2, self.minimum, self.iterations = l1, l2, min_count, iterations
        self.labels: list[str] = []
        self.features: dict[str, int] = {}
        self.table: csr_matrix | None = None  # (A, C)
        self.transitions = np.zeros((0, 0), np.float32)  # (C, C) from row to column
        self.rules = np.zeros((2, 0), bool)  # (C + 2, C): may begin, may end, may follow

    def fit(
        self,
        sentences: Sequence[Features],
        tags: Sequence[Sequence[str]],
        allowed: Rules | None = None,
        watch: ProgressCallback = no_callback,
    ) -> None:
        """Train on sentences whose words have features and a tag each.

        `allowed` maps the labels to those that may begin, follow each other (from row to column)
        and end; predictions respect it.
        """
        _check(sentences, tags)
        settings = (self.l1, self.l2, self.minimum, self.iterations)
        learned = crfsuite.learn(sentences, tags, *settings, watch=watch)
        size = len(learned.labels)
        self.labels = learned.labels
        self.features = {name: row for row, name in enumerate(learned.features)}
        self.table = _sparse(learned.states, (len(learned.features), size))
        self.transitions = _sparse(learned.pairs, (size, size)).toarray()
        start, pairs, end = allowed(self.labels) if allowed else (True, True, True)
        self.rules = np.ones((size + 2, size), bool)
        self.rules[0], self.rules[1], self.rules[2:] = start, end, pairs

    def predict(self, sentences: Sequence[Features]) -> list[list[str]]:
        """The best allowed tags of each sentence."""
        out: list[list[str]] = [[] for _ in sentences]
        for places, own in self._group_by_length(sentences):
            for place, path in zip(places, self._viterbi(own).tolist(), strict=True):
                out[place] = [self.labels[label] for label in path]
        return out

    def marginals(self, sentences: Sequence[Features]) -> list[np.ndarray]:
        """The probability of each label for each word (T, C) of each sentence."""
        out = [np.zeros((0, len(self.labels))) for _ in sentences]
        for places, own in self._group_by_length(sentences):
            found = self._marginals(own)  # (T, B, C)
            for row, place in enumerate(places):
                out[place] = found[:, row]
        return out

    def label_scores(self, sentences: Sequence[Features], step: int) -> np.ndarray:
        """(n, C) the log-probability of each label of one word, in sentences of one length."""
        ((_, own),) = self._group_by_length(sentences)
        return self._log_marginals(own)[step]

    def decode(self, sentences: Sequence[Features]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the best label ids (T,) of each sentence and their probabilities (T,)."""
        out = [(np.zeros(0, np.int64), np.zeros(0))] * len(sentences)
        for places, own in self._group_by_length(sentences):
            paths = self._viterbi(own)  # (B, T)
            shares = self._marginals(own).transpose(1, 0, 2)  # (B, T, C)
            chances = np.take_along_axis(shares, paths[:, :, None], 2)[:, :, 0]  # (B, T)
            for row, place in enumerate(places):
                out[place] = paths[row], chances[row]
        return out

    def feature_weights(self, word: Sequence[str]) -> list[tuple[str, np.ndarray]]:
        """Return the features of a word that training met, each with its weights (C,)."""
        table = self._table()
        return [
            (name, table[self.features[name]].toarray()[0].astype(np.float64))
            for name in dict.fromkeys(word)
            if name in self.features
        ]

    def parameters(self) -> int:
        """Return the number of learned weights."""
        return self._table().nnz + self.transitions.size

    def save(self, folder: Path, name: str = WEIGHTS) -> None:
        """Write one file: the names of features and labels, and their weights."""
        from safetensors.numpy import save_file

        table = self._table()
        arrays: list[np.ndarray] = [
            _pack(self.features),
            _pack(self.labels),
            table.indptr,
            table.indices,
            table.data,
            self.transitions,
            self.rules,
        ]
        named = zip(KINDS.items(), arrays, strict=True)
        with atomic_write(folder / name) as file:
            save_file(
                {part: np.ascontiguousarray(array, kind) for (part, kind), array in named}, file
            )

    @classmethod
    def load(cls, folder: Path, settings: Section, name: str = WEIGHTS) -> LinearCRF:
        """The model that `save` wrote, under the settings it was made with."""
        from scipy.sparse import csr_matrix

        model = cls(**{key: value for key, value in settings.items() if key != "kind"})
        path = folder / name
        arrays = read("crf", path, KINDS)
        for part, kind in KINDS.items():
            if arrays[part].dtype != kind:
                raise damaged_file_error("crf", path, f"'{part}' has a wrong type")
        try:
            names, model.labels = (_unpack(arrays[part]) for part in ("features", "labels"))
            size = len(model.labels)
            values, columns, starts = (arrays[part] for part in ("values", "columns", "starts"))
            _check_rows(values, columns, starts, len(names), size)
            model.table = csr_matrix((values, columns, starts), shape=(len(names), size))
            model.table.check_format(full_check=True)
        except ValueError as error:
            raise damaged_file_error("crf", path, str(error)) from error
        model.features = {name: row for row, name in enumerate(names)}
        model.transitions, model.rules = arrays["transitions"], arrays["rules"].astype(bool)
        if model.transitions.shape != (size, size) or model.rules.shape != (size + 2, size):
            raise damaged_file_error("crf", path, "its shapes do not match")
        return model

    def _table(self) -> csr_matrix:
        assert self.table is not None, "fit or load comes first"
        return self.table

    def _weights(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Scores of beginning, of ending, and of one label after another; -inf where forbidden."""
        never = np.where(self.rules, 0.0, -np.inf)
        return never[0], never[1], self.transitions + never[2:]

    def _group_by_length(
        self, sentences: Sequence[Features]
    ) -> Iterator[tuple[list[int], np.ndarray]]:
        """Sentences of the same length together: their places, and their emissions (T, B, C)."""
        groups: dict[int, list[int]] = {}
        for place, sentence in enumerate(sentences):
            groups.setdefault(len(sentence), []).append(place)
        groups.pop(0, None)
        for length, places in groups.items():
            words = [word for place in places for word in sentences[place]]
            own = self._emissions(words).reshape(len(places), length, len(self.labels))
            yield places, own.transpose(1, 0, 2)

    def _emissions(self, words: Features) -> np.ndarray:
        """The summed weights of the features of each word (n, C)."""
        from scipy.sparse import csr_matrix

        table, known = self._table(), self.features
        rows = [[known[name] for name in word if name in known] for word in words]
        starts = np.cumsum([0, *map(len, rows)])
        columns = np.array([row for each in rows for row in each], np.int32)
        counts = csr_matrix(
            (np.ones(len(columns), np.float32), columns, starts), (len(words), table.shape[0])
        )
        return (counts @ table).toarray().astype(np.float64)

    def _marginals(self, own: np.ndarray) -> np.ndarray:
        """The probability of each label (T, B, C), of emissions (T, B, C)."""
        return np.asarray(np.exp(self._log_marginals(own)))

    def _log_marginals(self, own: np.ndarray) -> np.ndarray:
        """The log-probability of each label by forward–backward; -inf where it is forbidden."""
        start, end, step = self._weights()
        left, right = np.empty_like(own), np.empty_like(own)  # (T, B, C)
        left[0], right[-1] = own[0] + start, end
        for t in range(1, len(own)):
            left[t] = _log_sum(left[t - 1][:, :, None] + step) + own[t]
            right[-1 - t] = _log_sum((right[-t] + own[-t])[:, :, None] + step.T)
        total = _log_sum((left[-1] + end)[:, :, None])[:, 0]  # (B,)
        self._possible(total, len(own))
        return np.asarray(left + right - total[:, None])

    def _viterbi(self, own: np.ndarray) -> np.ndarray:
        """The best path through each sentence (B, T), of emissions (T, B, C)."""
        start, end, step = self._weights()
        best = own[0] + start  # (B, C)
        origins = []
        for now in own[1:]:
            ways = best[:, :, None] + step  # (B, C, C)
            origins.append(ways.argmax(1))
            best = ways.max(1) + now
        best = best + end
        self._possible(best.max(1), len(own))
        path = [best.argmax(1)]  # (B,)
        for origin in reversed(origins):
            path.append(np.take_along_axis(origin, path[-1][:, None], 1)[:, 0])
        return np.stack(path[::-1], 1)

    def _possible(self, scores: np.ndarray, length: int) -> None:
        if np.isneginf(scores).any():
            raise UserError(
                f"{WHERE}: no sequence of {length} of its labels ({', '.join(self.labels)}) is "
                "allowed. Loosen the rules, or train on data that has all labels of the scheme."
            )


def _check(sentences: Sequence[Features], tags: Sequence[Sequence[str]]) -> None:
    if not any(map(len, sentences)):
        raise UserError(f"{WHERE}: there are no words to learn from. Give it tagged sentences.")
    if len(sentences) != len(tags):
        raise UserError(
            f"{WHERE}: {len(sentences)} sentences but {len(tags)} rows of tags. Give one row each."
        )
    for number, (sentence, right) in enumerate(zip(sentences, tags, strict=True)):
        if len(sentence) != len(right):
            raise UserError(
                f"{WHERE}: sentence {number} has {len(sentence)} words and {len(right)} tags. "
                "Give every word one tag."
            )


def _sparse(weights: np.ndarray, shape: tuple[int, int]) -> csr_matrix:
    from scipy.sparse import csr_matrix

    rows, columns, values = weights.T
    matrix = csr_matrix((values.astype(np.float32), (rows.astype(int), columns.astype(int))), shape)
    matrix.sort_indices()
    return matrix


def _log_sum(scores: np.ndarray) -> np.ndarray:
    """Log of the summed exponentials over the middle axis; -inf where all are."""
    top = scores.max(1, keepdims=True)
    top[np.isneginf(top)] = 0
    with np.errstate(divide="ignore"):
        return np.log(np.exp(scores - top).sum(1)) + top[:, 0]


def _pack(names: Iterable[str]) -> np.ndarray:
    """Return names as bytes, each followed by NUL, which CRFsuite's names cannot contain."""
    return np.frombuffer("".join(f"{name}\0" for name in names).encode("utf-8"), np.uint8)


def _unpack(packed: np.ndarray) -> list[str]:
    return packed.tobytes().decode("utf-8").split("\0")[:-1]


def _check_rows(
    values: np.ndarray, columns: np.ndarray, starts: np.ndarray, rows: int, size: int
) -> None:
    """Refuse rows that lie outside the arrays: compiled code of SciPy trusts them."""
    flat = values.ndim == columns.ndim == starts.ndim == 1
    if not flat or len(starts) != rows + 1 or len(values) != len(columns):
        raise ValueError("its arrays do not match")
    inside = not len(columns) or 0 <= columns.min() <= columns.max() < size
    in_order = (
        starts[0] == 0 and starts[-1] == len(values) and bool((starts[1:] >= starts[:-1]).all())
    )
    if not inside or not in_order:
        raise ValueError("its rows lie outside its arrays")
