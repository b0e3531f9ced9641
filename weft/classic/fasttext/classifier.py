"""fastText's classifier: averaged rows of words and hashed n-grams under a linear layer.

n texts   R rows   E width   P padded width   C scores
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING

import numpy as np

from weft.classic.fasttext.vocabulary import FastTextVocabulary, Rows, chunks, in_parallel
from weft.classic.linear.sklearn_fit import NEVER
from weft.classic.progress import DevSplit, FitProgress, ProgressCallback, no_callback
from weft.classic.weights_io import WEIGHTS, damaged_file_error, read
from weft.errors import UserError
from weft.machine import available_cpus
from weft.protocols import ClassicModel, LabelSpace, Section
from weft.registry import register
from weft.storage import atomic_write
from weft.tasks.regress import LabelScale
from weft.tasks.task import AnyTask, class_groups, class_weights
from weft.text.class_balance import Balance, sample_balanced

if TYPE_CHECKING:
    from weft.classic.fasttext.kernels import TrainingTargets, Weights

ROWS_PER_STEP = 1 << 15  # rows that a thread reads between two merges, about
PRIVATE_ROWS = 1024  # frequent rows of which each thread has a copy
MIN_STEPS_PER_THREAD = 16  # with fewer, one thread does all
INITIAL_STD = 0.5  # standard deviation of the output layer before training


@register("classic", "fasttext")
class FastText(ClassicModel):
    """Averaged words and hashed word n-grams under a linear layer (Joulin et al. 2017).

    The rate is divided row by row as in AdaGrad, where fastText's is the same for all; texts are
    shuffled; a bias takes the place of the end-of-line word; and n-grams that training never met
    are left out, where fastText would add a random vector. What occurs fewer than `min_count` times
    is left out too. With `max_n` above 0 the character n-grams of each word, `min_n` to
    `longest`, are added. `threads` share most rows without locks: more than one is faster, and no
    longer gives the same bytes from the same seed.
    """

    kind = "fasttext"
    is_linear = True
    balances = ("weights", "sampling", "focal")
    takes_weights = True

    def __init__(
        self,
        order: int = 2,
        width: int = 16,
        buckets: int = 2_000_000,
        min_count: int = 1,
        min_n: int = 0,
        max_n: int = 0,
        lowercase: bool = True,
        epochs: int = 25,
        learning_rate: float = 0.1,
        threads: int = 1,
    ) -> None:
        counts = {"order": order, "width": width, "buckets": buckets, "min_count": min_count}
        _at_least(1, **counts, epochs=epochs)
        _at_least(0, max_n=max_n, threads=threads)
        _at_least(1 if max_n else 0, min_n=min_n)
        _at_most(MAX_NGRAM_LENGTH, order=order, min_n=min_n, max_n=max_n)
        _at_most(2**31 - 1, buckets=buckets)
        if max_n and max_n < min_n:
            raise UserError(f"{_WHERE}: max_n ({max_n}) is below min_n ({min_n}).")
        if not 0 < learning_rate < np.inf:
            raise UserError(f"{_WHERE}: learning_rate is {learning_rate}; it must be above 0.")
        self.width, self.epochs, self.rate = width, epochs, learning_rate
        self.threads = threads or available_cpus()
        self.reading = FastTextVocabulary(order, buckets, min_count, min_n, max_n, lowercase)
        self.table = np.zeros((0, 0), np.float32)  # (R, P)
        self.outputs = np.zeros((0, 0), np.float32)  # (E, C)
        self.bias = np.zeros(0, np.float32)  # (C,)

    @property
    def is_seeded(self) -> bool:
        return True

    def fit(
        self,
        texts: Iterable[str],
        targets: np.ndarray,
        task: AnyTask,
        space: LabelSpace,
        seed: int = 0,
        watch: ProgressCallback = no_callback,
        dev: DevSplit | None = None,
        metric: str = "",
        balance: Balance | None = None,
        row_weights: np.ndarray | None = None,
    ) -> None:
        """Learn the vocabulary, then the weights in `epochs` passes over the texts."""
        watch(FitProgress(0.0, "reading (the first time, its loops are compiled)"))
        balance = balance or Balance()
        aims = _training_targets(targets, task, space, balance)
        if row_weights is not None:
            aims = aims._replace(row_weights=row_weights.astype(np.float32))
        groups = class_groups(targets, task, space) if balance.kind == "sampling" else []
        rows = self.reading.learn(list(texts))
        if not len(self.reading):
            raise UserError(
                f"{_WHERE}: no word occurs {self.reading.minimum} times in the training texts. "
                "Lower classic.min_count or add texts."
            )
        rng = np.random.default_rng(seed % 2**63)
        assert isinstance(space.size, int), "the labels of texts are counted"
        weights = self._start(space.size, aims, rng)
        count = len(rows.ends)
        watch(FitProgress(0.0, "epoch 1"))
        for epoch in range(self.epochs):
            order = sample_balanced(groups, count, rng) if groups else rng.permutation(count)
            total = count if row_weights is None else float(row_weights[order].sum())
            loss = self._learn(rows, order, aims, weights, epoch) / total
            if not np.isfinite(loss):
                raise UserError(f"{_WHERE}: the loss became {loss}. Lower classic.learning_rate.")
            done = epoch + 1
            if not watch(FitProgress(done / self.epochs, f"epoch {done}", done, loss)):
                break

    def _start(self, size: int, aims: TrainingTargets, rng: np.random.Generator) -> Weights:
        """Return zero rows, so that unseen words contribute nothing, and a random output layer."""
        from weft.classic.fasttext.kernels import SOFTMAX, Weights

        count = len(self.reading)
        self.table = _align_memory(count, self.width)
        self.outputs = rng.normal(0, INITIAL_STD, (self.width, size)).astype(np.float32)
        self.bias = np.zeros(size, np.float32)
        if aims.kind == SOFTMAX:  # a class without training texts is never predicted
            self.bias[np.bincount(aims.labels, minlength=size) == 0] = NEVER
        return Weights(
            table=self.table,
            gains=np.zeros(count, np.float32),
            near=np.zeros((0, self.table.shape[1]), np.float32),
            near_gains=np.zeros(0, np.float32),
            outputs=self.outputs,
            output_gains=np.zeros(size, np.float32),
            bias=self.bias,
            bias_gains=np.zeros(size, np.float32),
        )

    def _learn(
        self, rows: Rows, order: np.ndarray, aims: TrainingTargets, weights: Weights, epoch: int
    ) -> float:
        """Train one epoch and return the summed loss; idle threads take the next texts."""
        from weft.classic.fasttext.kernels import learn

        count = len(order)
        parts = min(count, 1 + len(rows.rows) // ROWS_PER_STEP)
        edges = np.linspace(0, count, parts + 1).astype(int).tolist()
        following = itertools.count()
        threads = max(1, min(self.threads, parts // MIN_STEPS_PER_THREAD))
        turn, over = Lock(), Event()

        def rate(position: int) -> float:
            return self.rate * (1 - (epoch + position / count) / self.epochs)

        def work() -> float:
            own, before = (weights, weights) if threads == 1 else _private_copy(weights)
            total = 0.0
            while (number := next(following)) < parts and not over.is_set():
                first, last = edges[number : number + 2]
                limits = (rate(first), rate(last))
                total += learn(rows.rows, rows.ends, order, first, last, aims, own, *limits)
                if threads > 1:
                    with turn:
                        _merge(weights, own, before)
            return total

        if threads == 1:
            return work()
        with ThreadPoolExecutor(threads) as pool:
            try:
                done = as_completed([pool.submit(work) for _ in range(threads)])
                return sum(each.result() for each in done)
            finally:
                over.set()  # one that fails stops the others

    def predict(self, texts: Sequence[str]) -> np.ndarray:
        """Return logits (n, C), or a standardised number (n, 1)."""
        return self._answers(texts)[1]

    def coverage(self, texts: Sequence[str]) -> np.ndarray:
        """Return the fraction (n,) of each text's words that have a row."""
        return self.reading.coverage(texts) if len(texts) else np.zeros(0)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return the mean row of each text (n, E)."""
        return self._answers(texts)[0][:, : self.width].copy()

    def _answers(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return mean rows (n, P) and logits (n, C), on all CPUs if there are many texts."""
        from weft.classic.fasttext.kernels import answer

        assert len(self.bias), "fit or load comes first"
        means = np.empty((len(texts), self.table.shape[1]), np.float32)
        scores = np.empty((len(texts), len(self.bias)), np.float32)

        def work(part: tuple[int, Sequence[str]]) -> None:
            first, some = part
            rows, here = self.reading.rows(some), slice(first, first + len(some))
            answer(
                rows.rows, rows.ends, self.table, self.outputs, self.bias, means[here], scores[here]
            )

        self.reading.lookup()  # built once, before the threads need it
        parts = list(chunks(texts))
        starts = itertools.accumulate((len(part) for part in parts), initial=0)
        in_parallel(work, list(zip(starts, parts, strict=False)))
        return means, scores

    def contributions(self, text: str, direction: np.ndarray) -> list[tuple[int, int, float]]:
        """Return (start, end, weight) of the tokens, which sum to (logits − bias) · direction.

        `direction` (C,) chooses the logits. The contribution of an n-gram is split equally between
        its tokens.
        """
        rows, owners, spans = self.reading.text_rows(text)
        added = self.table[rows, : self.width] @ (self.outputs @ direction) / max(len(rows), 1)
        out = []
        for weight, (last, length) in zip(added.tolist(), owners.tolist(), strict=True):
            for token in range(last - length + 1, last + 1):
                out.append((*spans[token], weight / length))
        return out

    def states(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """Return a vector for every token (T, E) and its offsets (T, 2).

        It sums the rows of the token and of the n-grams that end at it.
        """
        rows, owners, spans = self.reading.text_rows(text)
        vectors = np.zeros((len(spans), self.width), np.float32)
        np.add.at(vectors, owners[:, 0], self.table[rows, : self.width])
        return vectors, np.array(spans, np.int64).reshape(-1, 2)

    def parameters(self) -> int:
        """Return the number of learned weights."""
        return len(self.table) * self.width + self.outputs.size + self.bias.size

    def save(self, folder: Path) -> None:
        """Write weights.safetensors: rows, and which words and buckets they belong to."""
        from safetensors.numpy import save_file

        arrays: dict[str, np.ndarray] = {
            "table": np.ascontiguousarray(self.table[:, : self.width]),
            "outputs": self.outputs,
            "bias": self.bias,
            "is_word": self.reading.is_word.astype(np.uint8),
            "words": self.reading.words,
            "buckets": self.reading.buckets,
        }
        with atomic_write(folder / WEIGHTS) as part:
            save_file(arrays, part)

    @classmethod
    def load(cls, folder: Path, settings: Section) -> FastText:
        """Load what `save` wrote, with the settings it was built with."""
        model = cls(**{key: value for key, value in settings.items() if key != "kind"})
        path = folder / WEIGHTS
        wanted = {"table": 2, "outputs": 2, "bias": 1, "is_word": 1, "words": 1, "buckets": 1}
        arrays = read("fasttext", path, wanted)
        kinds = {"is_word": np.uint8, "words": np.uint64, "buckets": np.int32}
        for name, axes in wanted.items():
            if arrays[name].ndim != axes or arrays[name].dtype != kinds.get(name, np.float32):
                raise damaged_file_error("fasttext", path, f"'{name}' has a wrong shape or type")
        table, outputs, bias, *rest = (arrays[name] for name in wanted)
        size = (len(arrays["is_word"]), model.width)
        if table.shape != size or outputs.shape != (model.width, len(bias)):
            raise damaged_file_error("fasttext", path, "its shapes do not match")
        if model.reading.size > MAX_EMPTY_BUCKETS + 256 * len(table):
            raise damaged_file_error("fasttext", path, "it has no rows for so many buckets")
        if not model.reading.restore(*rest):
            raise damaged_file_error("fasttext", path, "its words or buckets are no possible ones")
        model.table = _align_memory(*size)
        model.table[:, : model.width] = table
        model.outputs, model.bias = outputs, bias
        return model


_WHERE = "classic 'fasttext'"
MAX_NGRAM_LENGTH = 100  # words or characters of an n-gram
MAX_EMPTY_BUCKETS = 1 << 24  # a saved model with more must have rows for a good part of them
_SMALL = ("outputs", "output_gains", "bias", "bias_gains")  # of the weights, copied whole


def _at_most(most: int, **settings: int) -> None:
    for name, value in settings.items():
        if value > most:
            raise UserError(f"{_WHERE}: {name} is {value}; it should be {most} or less.")


def _at_least(least: int, **settings: int) -> None:
    for name, value in settings.items():
        if value < least:
            raise UserError(f"{_WHERE}: {name} is {value}; it should be {least} or more.")


def _training_targets(
    targets: np.ndarray, task: AnyTask, space: LabelSpace, balance: Balance
) -> TrainingTargets:
    """Return the targets as the kernels read them."""
    from weft.classic.fasttext.kernels import SIGMOIDS, SOFTMAX, SQUARES, TrainingTargets

    smoothing = float(task.smoothing)
    labels, wanted = np.zeros(0, np.int32), np.zeros((0, 0), np.float32)
    weights = np.zeros(0, np.float32)
    if balance.kind == "weights":
        weights = class_weights(targets, task, space)[0].astype(np.float32)
    rest = smoothing, weights, balance.gamma if balance.kind == "focal" else 0.0
    if isinstance(space, LabelScale):
        numbers = np.ascontiguousarray(targets, np.float32).reshape(len(targets), -1)
        return TrainingTargets(SQUARES, labels, numbers, 0.0, weights, 0.0)
    if task.multi_label:
        return TrainingTargets(SIGMOIDS, labels, np.ascontiguousarray(targets, np.float32), *rest)
    if len(np.unique(targets)) < 2:
        raise UserError(f"{_WHERE}: the training split has one class only. Enlarge or shuffle it.")
    return TrainingTargets(SOFTMAX, np.ascontiguousarray(targets, np.int32), wanted, *rest)


def _private_copy(weights: Weights) -> tuple[Weights, Weights]:
    """Return a thread's private rows and a copy of them."""
    own = weights._replace(
        near=weights.table[:PRIVATE_ROWS].copy(),
        near_gains=weights.gains[:PRIVATE_ROWS].copy(),
        **{name: getattr(weights, name).copy() for name in _SMALL},
    )
    near = {name: getattr(own, name).copy() for name in ("near", "near_gains", *_SMALL)}
    return own, own._replace(**near)


def _merge(shared: Weights, own: Weights, before: Weights) -> None:
    from weft.classic.fasttext.kernels import merge

    merge(shared.table[:PRIVATE_ROWS].reshape(-1), own.near.reshape(-1), before.near.reshape(-1))
    merge(shared.gains[:PRIVATE_ROWS], own.near_gains, before.near_gains)
    for name in _SMALL:
        merge(*(getattr(each, name).reshape(-1) for each in (shared, own, before)))


def _align_memory(rows: int, width: int) -> np.ndarray:
    """Return a table of zeros whose rows are whole cache lines."""
    from weft.classic.fasttext.kernels import LINE

    padded = -(-width // LINE) * LINE
    raw = np.zeros(rows * padded + LINE, np.float32)
    skip = -raw.ctypes.data % (4 * LINE) // 4
    return raw[skip : skip + rows * padded].reshape(rows, padded)
