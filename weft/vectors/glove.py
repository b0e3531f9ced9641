"""GloVe (Pennington et al., 2014): vectors whose products are the logarithms of counts.

It minimises Σ f(x) (w·c + b + b' − log x)² over all pairs that occur, where x is a pair's weighted
count and f(x) = (x / x_max)^power up to 1, by AdaGrad as in the authors' program: the squared
steps, learning rate included, are summed from 1 on. The vectors are w + c.

Pairs that never occur say nothing in GloVe, which costs much in a corpus of some million words.
With `negative_weight` above 0 a random pair is drawn for each that occurs, as word2vec draws its
negatives; predicting it more often than once at the end of a window is wrong, as in Swivel
(Shazeer et al. 2016).

V words   E width   T threads
"""

import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from weft.errors import UserError, unknown_name
from weft.machine import available_cpus
from weft.progress import following
from weft.vectors.cooccurrence import (
    DEFAULT_MEMORY_BYTES,
    Cooccurrences,
    Distance,
    cooccurrences,
)
from weft.vectors.corpus import subsample
from weft.vectors.sampling import alias_table

if TYPE_CHECKING:
    from weft.vectors.corpus import Corpus
    from weft.vectors.store import Vectors

Combine = Literal["sum", "word"]
COMBINES: tuple[Combine, ...] = ("sum", "word")
LARGE_CORPUS_WORDS, LARGE_X_MAX, LEAST_X_MAX = 1.6e9, 100.0, 1.0  # Wikipedia of the paper
NOISE_POWER = 0.75  # random pairs are drawn by counts to this power
BLOCK_PAIRS = 2**18  # pairs that are shuffled together; the blocks come in a new order each epoch


@dataclass(frozen=True)
class Factors:
    """The learned word and context vectors with their biases."""

    vectors: np.ndarray  # (V, 2, 2, E): word or context; numbers or summed squares of their steps
    biases: np.ndarray  # (V, 2, 2)

    @classmethod
    def fresh(cls, size: int, width: int, seed: int) -> "Factors":
        """Small uniform numbers; the squares begin at 1, so that the first step is rate × slope."""
        random = np.random.Generator(np.random.PCG64(seed))
        vectors = np.ones((size, 2, 2, width), np.float32)
        biases = np.ones((size, 2, 2), np.float32)
        for numbers in (vectors, biases):
            numbers[:, :, 0] = (random.random(numbers[:, :, 0].shape) - 0.5) / (width + 1)
        return cls(vectors, biases)

    @property
    def sum(self) -> np.ndarray:
        """(V, E) w + c, which the paper finds a little better than w."""
        total: np.ndarray = self.vectors[:, 0, 0] + self.vectors[:, 1, 0]
        return total

    @property
    def word(self) -> np.ndarray:
        """(V, E) w alone."""
        return np.ascontiguousarray(self.vectors[:, 0, 0])


def choose_x_max(words: int) -> float:
    """x_max by the size of a corpus: 100·√(words / 1.6 billion), from 1 to 100.

    It runs through the authors' two settings: 100 for 1.6 billion words, 10 for 17 million.
    """
    return float(
        np.clip(LARGE_X_MAX * (words / LARGE_CORPUS_WORDS) ** 0.5, LEAST_X_MAX, LARGE_X_MAX)
    )


def glove(
    corpus: "Corpus",
    width: int = 100,
    window: int = 10,
    epochs: int = 15,
    learning_rate: float = 0.05,
    power: float = 0.75,
    x_max: float | None = None,
    threads: int = 0,
    seed: int = 1,
    memory: int = DEFAULT_MEMORY_BYTES,
    folder: Path | None = None,
    watch: Callable[[str, float], None] | None = None,
    *,
    symmetric: bool = True,
    distance: Distance = "inverse",
    combine: Combine = "sum",
    bias: bool = True,
    sample: float = 0.0,
    negative_weight: float = 0.0,
) -> "Vectors":
    """Count the pairs of a corpus and factorise their matrix.

    The same seed and number of threads give the same bytes. `x_max` is chosen by the size of the
    corpus (`choose_x_max`) if it is None. `sample` drops occurrences of frequent words before
    counting, as word2vec does. `negative_weight` is the weight of a random pair; 0 is GloVe.
    Progress is shown, or `watch` is called with the step and its fraction done.
    """
    from weft.vectors.store import Vectors

    if combine not in COMBINES:
        raise unknown_name("combination", combine, COMBINES)
    if sample < 0:
        raise UserError(f"GloVe: 'sample' should be 0 or more, got {sample:g}.")
    x_max = choose_x_max(corpus.total) if x_max is None else x_max
    threads = threads or available_cpus()
    began = time.perf_counter()
    costs: list[float] = []
    with following("GloVe", watch) as follow:
        pairs = cooccurrences(
            subsample(corpus, sample, seed) if sample else corpus,
            window,
            symmetric=symmetric,
            distance=distance,
            threads=threads,
            memory=memory,
            folder=folder,
            watch=lambda share: follow("counting", share),
        )
        counted = time.perf_counter()

        def on_epoch(epoch: int, share: float, cost: float) -> None:
            follow(f"epoch {epoch + 1} of {epochs}, cost {cost:.4f}", share)
            costs[epoch:] = [cost]

        factors = factorise(
            pairs,
            width,
            epochs,
            learning_rate,
            power,
            x_max,
            threads=threads,
            seed=seed,
            bias=bias,
            negative_weight=negative_weight,
            counts=corpus.counts,
            watch=on_epoch,
        )
    record = {
        "method": "glove",
        "width": width,
        "window": window,
        "symmetric": symmetric,
        "distance": distance,
        "combine": combine,
        "epochs": epochs,
        "learning_rate": learning_rate,
        "power": power,
        "x_max": round(x_max, 4),
        "bias": bias,
        "sample": sample,
        "negative_weight": negative_weight,
        "threads": threads,
        "seed": seed,
        "read": corpus.total,
        "vocabulary": len(corpus.words),
        "pairs": len(pairs),
        "costs": [round(cost, 6) for cost in costs],
        "count_seconds": round(counted - began, 3),
        "train_seconds": round(time.perf_counter() - counted, 3),
    }
    matrix = factors.sum if combine == "sum" else factors.word
    return Vectors(corpus.words, matrix, counts=corpus.counts, record=record)


def factorise(
    pairs: Cooccurrences,
    width: int = 100,
    epochs: int = 15,
    learning_rate: float = 0.05,
    power: float = 0.75,
    x_max: float = 100.0,
    *,
    threads: int = 0,
    seed: int = 1,
    bias: bool = True,
    negative_weight: float = 0.0,
    counts: np.ndarray | None = None,
    block: int = BLOCK_PAIRS,
    watch: Callable[[int, float, float], None] = lambda epoch, share, cost: None,
) -> Factors:
    """Fit vectors to counted pairs; `watch` hears the epoch, its share done and its mean cost.

    `negative_weight` is the weight of random pairs, drawn by the `counts` of their words.

    In a stage each thread has words and contexts of its own, so none waits for a lock and none
    overwrites another's step: unlike Hogwild, the result does not depend on who was faster.
    """
    _check(
        pairs,
        {
            "width": width,
            "epochs": epochs,
            "learning_rate": learning_rate,
            "power": power,
            "x_max": x_max,
        },
    )
    if negative_weight < 0:
        raise UserError(f"GloVe: 'negative_weight' should be 0 or more, got {negative_weight:g}.")
    threads = threads or available_cpus()
    factors = Factors.fresh(pairs.size, width, seed)
    if not bias:
        factors.biases[:, :, 0] = 0
    noise = _Noise.of(pairs, negative_weight, counts) if negative_weight else None
    rates = (learning_rate, learning_rate if bias else 0.0)
    starts = np.arange(0, len(pairs), block)
    with ThreadPoolExecutor(threads) as pool:
        for epoch in range(epochs):
            random = np.random.Generator(np.random.PCG64([seed, epoch]))
            blocks = [
                _PairBlock(
                    pairs,
                    int(start),
                    block,
                    int(random.integers(2**63)),
                    threads,
                    power,
                    x_max,
                    noise,
                )
                for start in random.permutation(starts)
            ]
            cost, steps = 0.0, 0
            for at in range(0, len(blocks), threads):
                some = blocks[at : at + threads]
                lots = list(pool.map(_PairBlock.arrange_pairs, some))
                cost += _stages(lots, factors, rates, threads, pool)
                steps += sum(int(lot.begins[-1]) for lot in lots)
                if not math.isfinite(cost):
                    raise UserError(
                        f"GloVe's cost became {cost} in epoch {epoch + 1} with learning rate "
                        f"{learning_rate:g}. Use a lower one: 0.05 is usual."
                    )
                watch(epoch, min(1.0, (at + threads) / len(blocks)), cost / steps)
    return factors


@dataclass(frozen=True)
class _Lots:
    """The pairs of a block in the order of their updates, and where each thread's lots begin."""

    pairs: tuple[np.ndarray, ...]  # words, contexts, log x and f(x)
    begins: np.ndarray  # (T² + 1,)


@dataclass(frozen=True)
class _Noise:
    """Draws random pairs by the frequency of their words."""

    weight: float
    sure: np.ndarray  # (V,) cells of the noise, see `alias_table`
    alias: np.ndarray  # (V,)

    @classmethod
    def of(cls, pairs: Cooccurrences, weight: float, counts: np.ndarray | None) -> "_Noise":
        counts = np.ones(pairs.size) if counts is None else counts
        return cls(weight, *alias_table(counts, NOISE_POWER))


@dataclass(frozen=True)
class _PairBlock:
    """A run of pairs with everything that decides the order they come in."""

    source: Cooccurrences
    start: int
    length: int
    seed: int
    threads: int
    power: float
    x_max: float
    noise: _Noise | None = None

    def arrange_pairs(self) -> _Lots:
        from weft.vectors.kernels import glove as kernels

        source = self.source
        read = source.read(self.start, min(self.start + self.length, len(source)))
        most = (2 if source.symmetric else 1) * len(read)
        words = contexts = np.empty(0, np.int32)
        weight = 0.0
        if self.noise is not None:
            words, contexts = kernels.draw_pairs(self.seed, most, self.noise.sure, self.noise.alias)
            weight = -self.noise.weight
        kinds = (np.int32, np.int32, np.float32, np.float32)
        out = tuple(np.empty(most + len(words), kind) for kind in kinds)
        columns = (read["first"], read["second"], read["weight"], source.symmetric)
        negatives = (words, contexts, math.log(source.least), weight)
        settings = (self.seed, self.threads, self.power, self.x_max)
        begins = kernels.arrange(*columns, negatives, *settings, out)
        return _Lots(tuple(column[: begins[-1]] for column in out), begins)


def _stages(
    lots: list[_Lots],
    factors: Factors,
    rates: tuple[float, float],
    threads: int,
    pool: ThreadPoolExecutor,
) -> float:
    """Do the updates of some blocks, stage by stage; the sum of their costs.

    `rates` are the learning rates of vectors and biases.
    """
    from weft.vectors.kernels import glove as kernels

    def work(mine: int) -> float:
        cost = 0.0
        for one in lots:
            begin, end = one.begins[mine : mine + 2].tolist()
            cost += kernels.update(begin, end, one.pairs, factors.vectors, factors.biases, *rates)
        return cost

    # Summed in the order of threads, so that even the last digit is the same each time.
    return sum(
        sum(pool.map(work, range(stage, stage + threads)))
        for stage in range(0, threads * threads, threads)
    )


def _check(pairs: Cooccurrences, settings: dict[str, float]) -> None:
    """A UserError for settings that make no sense, or for pairs that are not there."""
    for name, value in settings.items():
        if not value > 0:
            raise UserError(f"GloVe: '{name}' should be above 0, got {value:g}.")
    if not len(pairs):
        raise UserError(
            "GloVe: no two words of the corpus stand in one sentence. "
            "Check that a line holds more than one word, or lower the minimum count."
        )
