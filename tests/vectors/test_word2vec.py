"""The trainers: against word2vec written out slowly, the same bytes twice, and what is refused."""

import ast
import inspect
import itertools

import numpy as np
import pytest

from tests.fixtures import slow_vectors
from weft.errors import UserError
from weft.vectors import sampling
from weft.vectors import word2vec as module
from weft.vectors.corpus import Corpus
from weft.vectors.kernels import fasttext, word2vec
from weft.vectors.sampling import alias_table, huffman, keep
from weft.vectors.subwords import all_ngrams, ngrams, word_and_ngrams
from weft.vectors.word2vec import Word2VecSettings, Word2VecTrainer, train_vectors

WORDS = ("the", "of", "naïve", "fox", "日本", "ab", "</s>", "quickly", "x", "über", "dog")


def made(seed: int = 3, sentences: int = 41, words: tuple[str, ...] = WORDS) -> Corpus:
    """Random sentences in which no word comes twice near itself more than by chance."""
    random = np.random.default_rng(seed)
    share = 1 / np.arange(1, len(words) + 1)
    lengths = random.integers(1, 14, sentences)
    ids = random.choice(len(words), int(lengths.sum()), p=share / share.sum()).astype(np.int32)
    counts = np.bincount(ids, minlength=len(words)).astype(np.int64) + 1
    return Corpus(words, counts, ids, np.cumsum(lengths), len(ids))


def split(corpus: Corpus) -> list[list[int]]:
    return [part.tolist() for part in np.split(corpus.ids, corpus.ends[:-1])]


@pytest.mark.parametrize("loss", ["negative", "hierarchical"])
@pytest.mark.parametrize("method", ["skipgram", "cbow", "fasttext"])
@pytest.mark.parametrize(("width", "negative"), [(7, 5), (37, 11)])
def test_one_thread_does_what_the_slow_version_does(method, loss, width, negative):
    # All words differ inside a sentence: a row that comes twice in a window is moved twice, and
    # the second time already from its new place.
    random = np.random.default_rng(7)
    lines = [random.permutation(len(WORDS))[: random.integers(1, 11)] for _ in range(31)]
    ids = np.concatenate(lines).astype(np.int32)
    counts = np.bincount(ids, minlength=len(WORDS)).astype(np.int64)
    corpus = Corpus(WORDS, counts, ids, np.cumsum([len(line) for line in lines]), len(ids))
    settings = Word2VecSettings(
        method, width=width, window=3, negative=negative, learning_rate=0.11, sample=0.05,
        threads=1, seed=5, loss=loss, min_n=2, max_n=4, buckets=101,
    )  # fmt: skip
    learner = Word2VecTrainer(corpus, settings)
    inputs = learner.weights.inputs[:, :width].astype(np.float64)
    start = np.random.default_rng(1).normal(0, 0.3, (len(WORDS), width))
    learner.weights.outputs[:, :width] = start
    outputs = start.astype(np.float32).astype(np.float64)
    pieces = None
    if method == "fasttext":
        pieces = [
            [own] + [len(WORDS) + gram for gram in ngrams(word, 2, 4, 101)]
            for own, word in enumerate(WORDS)
        ]
    seed = module._scramble(5, 0)
    slow_vectors.learn(
        split(corpus), counts, inputs, outputs, method, 3,
        negative if loss == "negative" else 0, 0.11, 0.05, seed, pieces,
    )  # fmt: skip
    learner._work(learner.weights, 0, len(corpus.ends), 0.11, 0.11, 0)
    assert np.abs(outputs - start).max() > 0.05  # something was learnt
    # The sigmoid is good to 5e-5; the steps of this training are a tenth of it, some hundred.
    np.testing.assert_allclose(learner.weights.inputs[:, :width], inputs, atol=3e-4)
    np.testing.assert_allclose(learner.weights.outputs[:, :width], outputs, atol=3e-4)
    assert not learner.weights.inputs[:, width:].any()
    assert not learner.weights.outputs[:, width:].any()


def test_rows_meet_as_matrices_do():
    from numba import njit

    from weft.vectors.kernels.simd import (
        GROUP,
        LANES,
        ROWS_PER_REGISTER,
        SCORES_PER_ROW,
        scores,
        update_rows,
    )

    @njit
    def both(inputs, outputs, steps, found, gains):
        scores(inputs.ctypes.data, inputs.size, outputs.ctypes.data, steps, found.ctypes.data)
        update_rows(inputs.ctypes.data, inputs.size, outputs.ctypes.data, steps, gains.ctypes.data)

    random = np.random.default_rng(2)
    P, E = 3 * ROWS_PER_REGISTER, 48
    a = random.normal(size=(P, E)).astype(np.float32)
    b = random.normal(size=(GROUP, E)).astype(np.float32)
    gains = random.normal(size=(P, SCORES_PER_ROW)).astype(np.float32)
    was_a, was_b, found = a.copy(), b.copy(), np.zeros((P, SCORES_PER_ROW), np.float32)
    addresses = [np.array([row.ctypes.data for row in table], np.int64) for table in (a, b)]
    both(*addresses, E // LANES, found, gains)
    np.testing.assert_allclose(found[:, :GROUP], was_a @ was_b.T, atol=1e-5)
    assert not found[:, GROUP:].any()
    np.testing.assert_allclose(a, was_a + gains[:, :GROUP] @ was_b, atol=1e-5)
    np.testing.assert_allclose(b, was_b + gains[:, :GROUP].T @ was_a, atol=1e-5)


def test_the_sigmoid_is_close_everywhere():
    from weft.vectors.kernels.word2vec import sigmoid

    x = np.linspace(-30, 30, 2_003).astype(np.float32)
    found = np.array([sigmoid(value) for value in x])
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-x.astype(np.float64))), atol=5e-5)


def test_the_rate_falls_to_nearly_nothing_over_all_epochs():
    corpus = made(sentences=101)
    learner = Word2VecTrainer(
        corpus, Word2VecSettings(epochs=3, learning_rate=0.5, threads=1, width=3)
    )
    chunks = list(learner._chunks(53))
    assert chunks[0][2] == 0.5
    assert chunks[-1][3] == pytest.approx(0.5 * module.MIN_RATE_FRACTION)
    for one, two in itertools.pairwise(chunks):
        assert one[3] == two[2] > two[3]
    first, last, _, after = chunks[0]
    words = corpus.ends[last - 1] - (corpus.ends[first - 1] if first else 0)
    assert after == pytest.approx(0.5 * (1 - words / (3 * corpus.ends[-1])))


def test_every_epoch_reads_the_whole_corpus_in_an_order_of_its_own():
    corpus = made(sentences=101)
    learner = Word2VecTrainer(corpus, Word2VecSettings(epochs=3, threads=1, width=3))
    runs = [(first, last) for first, last, *_ in learner._chunks(53)]
    assert len(runs) % 3 == 0
    epochs = [runs[i : i + len(runs) // 3] for i in range(0, len(runs), len(runs) // 3)]
    for epoch in epochs:
        assert [n for run in sorted(epoch) for n in range(*run)] == list(range(101))
        assert epoch != sorted(epoch)
    assert epochs[0] != epochs[1] != epochs[2]
    assert runs == [(first, last) for first, last, *_ in learner._chunks(53)]
    other = Word2VecTrainer(corpus, Word2VecSettings(epochs=3, threads=1, width=3, seed=2))
    assert runs != [(first, last) for first, last, *_ in other._chunks(53)]


def test_noise_is_the_counts_to_the_three_quarters():
    counts = np.array([97, 31, 11, 5, 5, 1])
    sure, alias = alias_table(counts, 0.75)
    share = np.zeros(6)
    for cell in range(6):
        own = int(sure[cell]) / 2**32
        share[cell] += own / 6
        share[alias[cell]] += (1 - own) / 6
    np.testing.assert_allclose(share, counts**0.75 / (counts**0.75).sum(), atol=1e-9)


def test_frequent_words_are_thinned_by_word2vecs_formula():
    counts = np.array([900, 90, 10])
    f = counts / 1000
    expected = np.minimum((np.sqrt(f / 0.01) + 1) * 0.01 / f, 1)
    np.testing.assert_allclose(keep(counts, 0.01) / 2**32, expected, rtol=1e-6)
    assert expected[2] == 1 > expected[0]
    assert keep(counts, 0).tolist() == [2**32] * 3


def test_the_tree_is_a_prefix_code_of_least_length():
    counts = np.array([41, 17, 11, 7, 5, 3, 2])
    ends, nodes, turns = huffman(counts)
    codes = [tuple(part) for part in np.split(turns, ends[:-1])]
    assert sum(2.0 ** -len(code) for code in codes) == 1
    for one, two in itertools.permutations(codes, 2):
        assert two[: len(one)] != one
    paths = [part.tolist() for part in np.split(nodes, ends[:-1])]
    assert {path[0] for path in paths} == {0}
    assert sorted({node for path in paths for node in path}) == list(range(6))
    # The cost of the tree is the sum of its merges: 5, 10, 17, 28, 45, 86.
    assert sum(c * len(code) for c, code in zip(counts, codes, strict=True)) == 191


def test_ngrams_are_fasttexts_and_the_same_compiled():
    # What fastText's own get_subwords gives, less the number of words.
    assert ngrams("dog", 3, 4, 2_000_000) == [494342, 302387, 1623817, 1002517, 431263]
    assert ngrams("日本", 3, 4, 2_000_000) == [758587, 1313759, 196157]
    assert ngrams("</s>", 3, 6, 7) == []
    for shortest, longest in ((1, 1), (1, 3), (3, 6), (2, 5)):
        found, ends = all_ngrams(WORDS, shortest, longest, 1_999_993)
        expected = [ngrams(word, shortest, longest, 1_999_993) for word in WORDS]
        assert [part.tolist() for part in np.split(found, ends[:-1])] == expected
    rows, ends = word_and_ngrams(("ab", "</s>", "c"), 3, 6, 11)
    parts = [part.tolist() for part in np.split(rows, ends[:-1])]
    assert parts == [
        [0, *(3 + g for g in ngrams("ab", 3, 6, 11))],
        [1],
        [2, 3 + ngrams("c", 3, 6, 11)[0]],
    ]


@pytest.mark.parametrize("method", ["skipgram", "cbow", "fasttext"])
def test_the_same_seed_and_threads_give_the_same_bytes(method, monkeypatch):
    monkeypatch.setattr(module, "ROUND_WORDS", 29)
    corpus = made(sentences=211)

    def run(**options):
        return train_vectors(
            corpus, method, width=11, buckets=101, epochs=2, learning_rate=0.1, **options
        ).matrix

    twice = [run(threads=3, deterministic=True) for _ in range(2)]
    assert twice[0].tobytes() == twice[1].tobytes()
    assert run(threads=1).tobytes() == run(threads=1).tobytes()
    assert not np.allclose(twice[0], run(threads=3, deterministic=True, seed=2))
    assert not np.allclose(twice[0], run(threads=1), atol=1e-7)  # it did learn in parts


def test_copies_are_merged_by_what_they_learnt():
    from weft.vectors.kernels.fasttext import merge

    random = np.random.default_rng(0)
    shared = random.normal(size=(5, 3)).astype(np.float32)
    copies = np.stack([shared, shared])
    marks = np.zeros((2, 5), np.uint32)
    copies[0, 1] += 1
    copies[1, 1] += 2
    copies[1, 3] -= 1
    marks[0, 1] = marks[1, 1] = marks[1, 3] = 1
    expected = shared.copy()
    expected[1] += 3 * (1 - np.exp(-0.4)) / (2 * (1 - np.exp(-0.2)))
    expected[3] -= 1  # moved in one copy only
    merge(shared, copies, marks, 0, 5, 0.2)
    np.testing.assert_allclose(shared, expected, atol=1e-6)
    assert (copies == shared).all()
    assert not marks.any()


# With 13 threads a plain sum of the copies' steps would overshoot and grow without end.
@pytest.mark.parametrize(("threads", "deterministic"), [(2, False), (13, True)])
@pytest.mark.parametrize("loss", ["negative", "hierarchical"])
@pytest.mark.parametrize("method", ["skipgram", "cbow", "fasttext"])
def test_words_of_one_topic_come_together(method, loss, threads, deterministic):
    topics = [[f"{letter}{n}{letter}" for n in range(7)] for letter in "ab"]
    words = tuple(topics[0] + topics[1])
    random = np.random.default_rng(1)
    lines = [random.integers(0, 7, 11) + 7 * (i % 2) for i in range(301)]
    ids = np.concatenate(lines).astype(np.int32)
    counts = np.bincount(ids).astype(np.int64)
    corpus = Corpus(words, counts, ids, np.arange(11, len(ids) + 1, 11), len(ids))
    heard: list[int] = []
    vectors = train_vectors(
        corpus, method, width=13, epochs=7, learning_rate=0.1, sample=0, loss=loss, buckets=997,
        threads=threads, deterministic=deterministic, watch=heard.append,
    )  # fmt: skip
    unit = vectors.matrix / np.linalg.norm(vectors.matrix, axis=1, keepdims=True)
    near = unit @ unit.T
    inside = (near[:7, :7].mean() + near[7:, 7:].mean()) / 2
    assert inside > near[:7, 7:].mean() + 0.3
    assert sum(heard) == 7 * len(ids) == vectors.record["words"]
    assert vectors.record["method"] == method
    assert (vectors.subwords is not None) == (method == "fasttext")
    if vectors.subwords is not None:
        # The store composes the same vectors from the table, known words and unknown ones.
        composed = vectors.subwords.compose(words)
        np.testing.assert_allclose(composed, vectors.matrix, atol=1e-6)
        assert np.abs(vectors["a9a"]).max() > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "skipgrm"}, r"Unknown method 'skipgrm'\. Did you mean 'skipgram'\?"),
        ({"loss": "softmax"}, "Unknown loss 'softmax'"),
        ({"width": 0}, "'width' should be 1 or more, got 0"),
        ({"negative": 0}, "'negative' should be 1 or more, got 0"),
        ({"method": "fasttext", "min_n": 5, "max_n": 3}, "'max_n' should be 5 or more"),
        ({"learning_rate": 0.0}, "'learning_rate' should be above 0"),
    ],
)
def test_impossible_settings_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        train_vectors(made(), **options)


def test_one_word_is_nothing_to_learn_from():
    alone = Corpus(("a",), np.array([3]), np.zeros(3, np.int32), np.array([3]), 3)
    with pytest.raises(UserError, match="Only one word is left"):
        train_vectors(alone)


def test_steps_of_threads_are_summed_when_few_and_averaged_when_many():
    moves = np.array([0.0, 0.01, 1e6])
    np.testing.assert_allclose(sampling.keep_fraction(moves, 0.0125, 1), 1.0)
    few, some, many = sampling.keep_fraction(moves, 0.0125, 4)
    assert few == pytest.approx(1, abs=1e-4)
    assert some == pytest.approx(1, abs=1e-3)
    assert many == pytest.approx(1 / 4)


def test_rows_of_a_thread_are_handed_over_and_fetched():
    from weft.vectors.kernels.fasttext import sync

    random = np.random.default_rng(2)
    shared = random.normal(size=(7, 16)).astype(np.float32)
    before = random.normal(size=(3, 16)).astype(np.float32)
    own = random.normal(size=(3, 16)).astype(np.float32)
    shares = np.array([1.0, 0.5, 0.0], np.float32)
    expected = shared.copy()
    expected[:3] += shares[:, None] * (own - before)
    sync(shared, own, before, shares)
    np.testing.assert_allclose(shared, expected, atol=1e-6)
    np.testing.assert_array_equal(own, shared[:3])
    np.testing.assert_array_equal(before, shared[:3])


def test_how_often_rows_move_is_what_is_counted():
    random = np.random.default_rng(5)
    counts = np.array([400, 200, 100, 50, 25, 10])
    ids = random.permutation(np.repeat(np.arange(6), counts))
    window, negative = 3, 2
    around, aimed = sampling.moves(counts, 0.0, window, (negative, 0.75))
    seen, middle = np.zeros(6), np.zeros(6)
    for _ in range(20):
        for here, word in enumerate(ids):
            reach = random.integers(1, window + 1)
            near = np.concatenate(
                [ids[max(0, here - reach) : here], ids[here + 1 : here + reach + 1]]
            )
            np.add.at(seen, near, 1)
            middle[word] += 1
    np.testing.assert_allclose(seen / middle.sum(), around, rtol=0.05)
    noise = counts**0.75 / (counts**0.75).sum()
    np.testing.assert_allclose(aimed, middle / middle.sum() + negative * noise, rtol=1e-6)


@pytest.mark.parametrize("module", [word2vec, fasttext])
def test_arrays_passed_by_address_outlive_the_call(module):
    """An array is freed after its last use, and its address is none: it must be used once more."""
    tree = ast.parse(inspect.getsource(module))
    kept = 0
    for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute):
                array, _, rest = ast.unparse(node.value).partition(".")
                if rest != "ctypes.data":
                    continue
                last = ast.unparse(function.body[-1])
                assert array in last, f"{module.__name__}.{function.name}: {array} is freed"
                kept += 1
    assert kept == 1
