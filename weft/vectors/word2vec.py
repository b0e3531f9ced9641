"""Word vectors learnt from a corpus: skip-gram, CBOW, and fastText's skip-gram with sub-words.

V words   E width   T threads
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from weft.errors import UserError, unknown_name
from weft.machine import available_cpus
from weft.progress import counting
from weft.vectors import sampling as aims

if TYPE_CHECKING:
    from weft.runtime import Runtime
    from weft.vectors.corpus import Corpus
    from weft.vectors.kernels.word2vec import SubwordTables, Targets, Text, Weights
    from weft.vectors.store import Vectors

Method = Literal["skipgram", "cbow", "fasttext"]
Loss = Literal["negative", "hierarchical"]
METHODS: tuple[Method, ...] = ("skipgram", "cbow", "fasttext")
LOSSES: tuple[Loss, ...] = ("negative", "hierarchical")
RATES = {"skipgram": 0.025, "cbow": 0.05, "fasttext": 0.05}  # those of word2vec and of fastText

CHUNK_TOKENS = (
    100_000  # words that a thread takes at a time, at most; then it shares what it learnt
)
MAX_LOCAL_ROWS = 32_768  # rows of the most frequent words of which each thread has its own, at most
MIN_TURNS_PER_THREAD = 32  # that each thread has, at least
ROUND_WORDS = 20_000  # words between two merges of deterministic threads, of all of them together
MIN_RATE_FRACTION = 1e-4  # of the rate is left at the end


@dataclass(frozen=True)
class Word2VecSettings:
    """Training settings; the names are those of `train_vectors`."""

    method: Method = "skipgram"
    width: int = 100
    window: int = 5
    negative: int = 5
    epochs: int = 1
    learning_rate: float = 0.025
    sample: float = 1e-3
    threads: int = 0
    seed: int = 1
    deterministic: bool = False
    loss: Loss = "negative"
    min_n: int = 3
    max_n: int = 6
    buckets: int = 2_000_000
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise unknown_name("method", self.method, METHODS)
        if self.loss not in LOSSES:
            raise unknown_name("loss", self.loss, LOSSES)
        least = {"width": 1, "window": 1, "epochs": 1, "threads": 0, "seed": 0}
        if self.loss == "negative":
            least["negative"] = 1
        if self.method == "fasttext":
            least |= {"min_n": 1, "max_n": self.min_n, "buckets": 1}
        for name, value in least.items():
            if getattr(self, name) < value:
                found = getattr(self, name)
                raise UserError(f"'{name}' should be {value} or more, got {found}.")
        if self.learning_rate <= 0 or self.sample < 0:
            raise UserError(
                "'learning_rate' should be above 0 and 'sample' 0 or more, "
                f"got {self.learning_rate} and {self.sample}."
            )

    @property
    def power(self) -> float:
        """Negatives are drawn by counts to this power: one half in fastText."""
        return 0.5 if self.method == "fasttext" else 0.75


def train_vectors(
    corpus: Corpus,
    method: Method = "skipgram",
    *,
    width: int = 100,
    window: int = 5,
    negative: int = 5,
    epochs: int = 1,
    learning_rate: float | None = None,
    sample: float = 1e-3,
    threads: int = 0,
    seed: int = 1,
    deterministic: bool = False,
    loss: Loss = "negative",
    min_n: int = 3,
    max_n: int = 6,
    buckets: int = 2_000_000,
    device: str = "cpu",
    watch: Callable[[int], None] | None = None,
) -> Vectors:
    """Learn the vectors of a corpus's words.

    Progress is shown, or `watch` is called with the number of words done since its last call.
    Threads share the tables without locks, so that a run differs a little from the next. With
    `deterministic` each learns in copies of its own, merged in a fixed order every few thousand
    words: the same seed and number of threads give the same bytes. One thread always does. On a
    GPU, `device` "cuda", hundreds of programs share the tables in the same way.
    """
    if learning_rate is None:
        learning_rate = RATES.get(method, 0.025)
    settings = Word2VecSettings(
        method, width, window, negative, epochs, learning_rate, sample,
        threads or available_cpus(), seed, deterministic, loss, min_n, max_n, buckets, device,
    )  # fmt: skip
    if len(corpus.words) < 2:
        raise UserError("Only one word is left to learn from. Lower the minimum count.")
    with counting("words trained", watch) as count:
        return Word2VecTrainer(corpus, settings).run(count)


class Word2VecTrainer:
    """The tables of one training, and its threads."""

    def __init__(self, corpus: Corpus, settings: Word2VecSettings) -> None:
        self.corpus, self.settings = corpus, settings
        runtime = accelerator(settings)
        began = time.perf_counter()
        self.text, self.targets, self.pieces = _prepare(corpus, settings)
        self.weights = _start(len(corpus.words), settings)
        self.gpu = None
        if runtime is not None:
            from weft.vectors.gpu import Gpu

            self.gpu = Gpu(corpus, settings, self.weights, self.targets, self.pieces, runtime)
        self.prepared = time.perf_counter() - began
        began = time.perf_counter()
        # Compiles, or finds what was compiled.
        if self.gpu is not None:
            self.gpu.compile()
        else:
            self._work(self.weights, 0, 0, 0.0, 0.0, 0)
            if settings.threads > 1:
                ThreadLocalRows(self).settle(0.0)
        self.compiled = time.perf_counter() - began

    def run(self, watch: Callable[[int], None]) -> Vectors:
        """Learn, and gather the vectors."""
        began = time.perf_counter()
        if self.gpu is not None:
            self.gpu.run(self._chunks(CHUNK_TOKENS), watch)
        elif self.settings.deterministic and self.settings.threads > 1:
            self._rounds(watch)
        else:
            self._freely(watch)
        return self._vectors(time.perf_counter() - began)

    def _freely(self, watch: Callable[[int], None]) -> None:
        """Each thread takes the next chunk when it is ready."""
        threads = self.settings.threads
        chunks = list(self._chunks(self._often()))
        following = itertools.count()
        turn = Lock()

        def work() -> None:
            own = ThreadLocalRows(self) if threads > 1 else None
            while (number := next(following)) < len(chunks):
                first, last, start, stop = chunks[number]
                self._work(own.weights if own else self.weights, first, last, start, stop, number)
                if own:
                    with turn:
                        own.settle(start)
                watch(self._size(first, last))

        with ThreadPoolExecutor(threads) as pool:
            try:
                for done in [pool.submit(work) for _ in range(threads)]:
                    done.result()
            finally:
                following = itertools.count(len(chunks))  # one that is stopped stops the others

    def _rounds(self, watch: Callable[[int], None]) -> None:
        """Each thread takes one chunk into its own copy of the tables; then copies are merged."""
        from weft.vectors.kernels.fasttext import PULL, merge

        threads, shared = self.settings.threads, self.weights
        tables = (shared.inputs, shared.outputs)
        copies = [_copies(table, threads) for table in tables]  # (T, V, padded E)
        marks = [np.zeros((threads, len(table)), np.uint32) for table in tables]
        own = [
            shared._replace(
                inputs=copies[0][i],
                outputs=copies[1][i],
                marked_inputs=marks[0][i],
                marked_outputs=marks[1][i],
            )
            for i in range(threads)
        ]
        chunks = list(enumerate(self._chunks(max(ROUND_WORDS // threads, 1))))
        with ThreadPoolExecutor(threads) as pool:
            for first in range(0, len(chunks), threads):
                together = chunks[first : first + threads]
                _run_all(pool, [(self._work, own[i], *c, n) for i, (n, c) in enumerate(together)])
                _run_all(
                    pool,
                    [
                        (merge, table, copy, mark, *part, PULL * together[0][1][2])
                        for table, copy, mark in zip(tables, copies, marks, strict=True)
                        for part in _parts(len(table), threads)
                    ],
                )
                watch(sum(self._size(c[0], c[1]) for _, c in together))

    def _often(self) -> int:
        """Words of a chunk: fewer where the text is short, so that all threads have some."""
        words = int(self.corpus.ends[-1]) * self.settings.epochs
        return max(1, min(CHUNK_TOKENS, words // (MIN_TURNS_PER_THREAD * self.settings.threads)))

    def moves(self) -> tuple[np.ndarray, np.ndarray]:
        """Return how often all threads update the first rows of each table between two syncs."""
        settings, counts = self.settings, self.corpus.counts
        tree = settings.loss == "hierarchical"
        noise = None if tree else (settings.negative, settings.power)
        around, aimed = aims.moves(counts, settings.sample, settings.window, noise)
        if tree:
            paths = np.diff(self.targets.path_ends, prepend=0)
            aimed = np.bincount(self.targets.nodes, np.repeat(aimed, paths), len(counts))
        if settings.method == "fasttext":  # the middle is what is moved, and those around it aims
            words = settings.window + 1
            around, aimed = around / words, aimed * words
        kept = (counts * (self.text.keep / 2.0**32)).sum() / counts.sum()
        often = self._often()
        windows = settings.threads * often * kept
        rows = min(MAX_LOCAL_ROWS, often // 3)  # sharing more would take longer than learning
        return windows * around[:rows], windows * aimed[:rows]

    def _chunks(self, words: int) -> Iterator[tuple[int, int, float, float]]:
        """Runs of sentences of about so many words, through all epochs, and their rates.

        Each epoch has an order of its own: in that of the text, vectors would lean towards
        whatever the corpus ends with.
        """
        ends, rate, epochs = self.corpus.ends, self.settings.learning_rate, self.settings.epochs
        size = int(ends[-1])
        marks = np.arange(words, size, words)
        cuts = np.unique(np.concatenate([[0], np.searchsorted(ends, marks) + 1, [len(ends)]]))
        done = 0
        for epoch in range(epochs):
            order = np.random.default_rng([self.settings.seed, epoch]).permutation(len(cuts) - 1)
            for first, last in zip(cuts[order].tolist(), cuts[order + 1].tolist(), strict=True):
                start = rate * max(1 - done / (epochs * size), MIN_RATE_FRACTION)
                done += self._size(first, last)
                yield first, last, start, rate * max(1 - done / (epochs * size), MIN_RATE_FRACTION)

    def _size(self, first: int, last: int) -> int:
        return int(self.corpus.ends[last - 1] - (self.corpus.ends[first - 1] if first else 0))

    def _work(
        self,
        weights: Weights,
        first: int,
        last: int,
        start: float,
        stop: float,
        number: int,
    ) -> None:
        from weft.vectors.kernels.word2vec import learn_windows

        window = self.settings.window
        seed = np.uint64(_scramble(self.settings.seed, number))
        common = (self.text, first, last, weights, self.targets, window)
        if self.pieces is None:
            averaged = self.settings.method == "cbow"
            learn_windows(*common, averaged, start, stop, seed)
        else:
            from weft.vectors.kernels.fasttext import train_subwords

            train_subwords(*common, self.pieces, start, stop, seed)
        self.corpus.forget(first, last)

    def _vectors(self, seconds: float) -> Vectors:
        from weft.embed.subwords import Subwords
        from weft.vectors.kernels.fasttext import means, unpad
        from weft.vectors.store import Vectors

        settings, corpus = self.settings, self.corpus
        table = unpad(self.weights.inputs.reshape(-1), len(self.weights.inputs), settings.width)
        vectors, subwords = table, None
        if self.pieces is not None:
            subwords = Subwords(table, len(corpus.words), settings.min_n, settings.max_n)
            vectors = np.empty((len(corpus.words), settings.width), np.float32)
            means(table, self.pieces.ends, self.pieces.rows, 0, len(vectors), vectors)
        words = int(corpus.counts.sum()) * settings.epochs
        record: dict[str, object] = {
            **asdict(settings),
            "words": words,
            "read": corpus.total,
            "vocabulary": len(corpus.words),
            "prepare_seconds": round(self.prepared, 3),
            "compile_seconds": round(self.compiled, 3),
            "train_seconds": round(seconds, 3),
            "words_per_second": round(words / max(seconds, 1e-9)),
        }
        return Vectors(
            corpus.words, vectors, counts=corpus.counts, subwords=subwords, record=record
        )


class ThreadLocalRows:
    """A thread's own rows of the most frequent words, and how far its steps in them count."""

    def __init__(self, learner: Word2VecTrainer) -> None:
        shared, settings = learner.weights, learner.settings
        self.threads, self.tables = settings.threads, (shared.inputs, shared.outputs)
        self.moves = learner.moves()
        self.near = [  # own rows, and what they were before
            _copies(table[: len(moves)], 2)
            for table, moves in zip(self.tables, self.moves, strict=True)
        ]
        self.weights = shared._replace(near_inputs=self.near[0][0], near_outputs=self.near[1][0])

    def settle(self, rate: float) -> None:
        """Hand over what was learnt, and take what others have learnt."""
        from weft.vectors.kernels.fasttext import PULL, sync

        for table, (own, before), moves in zip(self.tables, self.near, self.moves, strict=True):
            shares = aims.keep_fraction(moves, PULL * rate, self.threads).astype(np.float32)
            sync(table, own, before, shares)


def accelerator(settings: Word2VecSettings) -> Runtime | None:
    """Return the requested GPU, if any; torch is imported only then."""
    if settings.device == "cpu":
        return None
    from weft.runtime import select_runtime
    from weft.vectors.gpu import usable

    runtime = select_runtime(settings.device)
    if runtime.device.type == "cpu":
        return None
    usable(runtime, settings)
    return runtime


def _prepare(
    corpus: Corpus, settings: Word2VecSettings
) -> tuple[Text, Targets, SubwordTables | None]:
    from weft.vectors.kernels.word2vec import SubwordTables, Targets, Text
    from weft.vectors.subwords import word_and_ngrams

    lengths = np.diff(corpus.ends, prepend=0)
    text = Text(
        np.asarray(corpus.ids), corpus.ends, aims.keep(corpus.counts, settings.sample),
        int(lengths.max(initial=1)),
    )  # fmt: skip
    if settings.loss == "hierarchical":
        targets = Targets(
            np.empty(0, np.uint64), np.empty(0, np.int32), 0, *aims.huffman(corpus.counts)
        )
    else:
        empty = (np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.float32))
        targets = Targets(
            *aims.alias_table(corpus.counts, settings.power), settings.negative, *empty
        )
    if settings.method != "fasttext":
        return text, targets, None
    rows, ends = word_and_ngrams(corpus.words, settings.min_n, settings.max_n, settings.buckets)
    return text, targets, SubwordTables(ends, rows, int(np.diff(ends, prepend=0).max()))


def _start(size: int, settings: Word2VecSettings) -> Weights:
    """Inputs small and random, outputs zero, as in word2vec and in fastText."""
    from weft.vectors.kernels.fasttext import fill
    from weft.vectors.kernels.simd import padded_width
    from weft.vectors.kernels.word2vec import Weights

    subwords = settings.method == "fasttext"
    rows = size + (settings.buckets if subwords else 0)
    width = settings.width
    inputs = _align_memory(rows, padded_width(width))
    bound = 1 / width if subwords else 0.5 / width
    with ThreadPoolExecutor(settings.threads) as pool:
        parts = _parts(rows, settings.threads)
        seed = _scramble(settings.seed, -1)
        _run_all(pool, [(fill, inputs, *part, width, bound, np.uint64(seed)) for part in parts])
    outputs = _align_memory(size, padded_width(width))
    outputs.fill(0)
    no_rows, nothing = np.empty(0, np.uint32), np.empty((0, padded_width(width)), np.float32)
    return Weights(inputs, outputs, no_rows, no_rows, nothing, nothing)


def _align_memory(rows: int, width: int) -> np.ndarray:
    """A table whose rows begin at cache lines."""
    raw = np.empty(rows * width + 16, np.float32)
    skip = -raw.ctypes.data % 64 // 4
    return raw[skip : skip + rows * width].reshape(rows, width)


def _copies(table: np.ndarray, count: int) -> np.ndarray:
    copies = _align_memory(count * len(table), table.shape[1]).reshape(count, *table.shape)
    copies[:] = table
    return copies


def _parts(size: int, count: int) -> list[tuple[int, int]]:
    edges = np.linspace(0, size, count + 1).astype(int).tolist()
    return list(itertools.pairwise(edges))


def _run_all(pool: ThreadPoolExecutor, calls: list[tuple[Any, ...]]) -> None:
    """Run calls, each a function and its arguments, and wait for all."""
    for done in [pool.submit(*call) for call in calls]:
        done.result()


def _scramble(seed: int, number: int) -> int:
    """A seed of its own for each chunk."""
    return int(np.random.SeedSequence([seed, number + 1]).generate_state(1, np.uint64)[0])
