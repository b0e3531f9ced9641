from collections import defaultdict

import numpy as np
import pytest
import torch

from weft.errors import UserError
from weft.vectors import glove as room
from weft.vectors.cooccurrence import PAIR, Cooccurrences, _Counter, _DenseBlock, cooccurrences
from weft.vectors.corpus import Corpus, subsample
from weft.vectors.glove import Factors, factorise, glove
from weft.vectors.kernels import glove as kernels

SIZE = 31


def corpus(words=997, sentences=41, size=SIZE, slope=1.3, seed=1):
    random = np.random.default_rng(seed)
    ids = ((random.zipf(slope, words) - 1) % size).astype(np.int32)
    ends = np.sort(np.r_[random.integers(0, words, sentences - 1), words])  # some are empty
    counts = np.bincount(ids, minlength=size)
    return Corpus(tuple(f"w{i}" for i in range(size)), counts, ids, ends, words)


def brute(one, window):
    """Every two places of a sentence, both ways round."""
    found, begin = defaultdict(float), 0
    for end in one.ends.tolist():
        for p in range(begin, end):
            for q in range(max(begin, p - window), min(end, p + window + 1)):
                if p != q:
                    found[int(one.ids[p]), int(one.ids[q])] += 1 / abs(p - q)
        begin = end
    return found


def both_ways(pairs):
    rows = pairs.read(0, len(pairs)).tolist()
    assert all(i <= j for i, j, _ in rows)
    assert len({(i, j) for i, j, _ in rows}) == len(rows)
    return {(i, j): x for i, j, x in rows} | {(j, i): x for i, j, x in rows}


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("window", [1, 7])
def test_counts_are_those_of_a_slow_count(threads, window):
    one = corpus()
    found = both_ways(cooccurrences(one, window, threads=threads))
    assert found == pytest.approx(dict(brute(one, window)), rel=1e-6)


@pytest.mark.parametrize("threads", [1, 2])
def test_counts_of_the_left_context_and_without_distances(threads):
    one = corpus()
    pairs = cooccurrences(one, 5, threads=threads, symmetric=False, distance="none")
    found = {(i, j): x for i, j, x in pairs.read(0, len(pairs)).tolist()}
    expected, begin = defaultdict(float), 0
    for end in one.ends.tolist():
        for p in range(begin, end):
            for q in range(max(begin, p - 5), p):
                expected[int(one.ids[p]), int(one.ids[q])] += 1
        begin = end
    assert found == dict(expected)
    assert len(pairs) == len(found)
    assert (pairs.symmetric, pairs.least) == (False, 1.0)
    assert cooccurrences(one, 5).least == pytest.approx(1 / 5)
    lots = arrange_pairs(pairs, 3)
    assert sorted(zip(*(c.tolist() for c in lots.pairs[:2]), strict=True)) == sorted(found)


@pytest.mark.parametrize("threads", [1, 2])
def test_counts_are_the_same_when_tables_overflow_to_disk(threads, monkeypatch, tmp_path):
    one, spilt = corpus(words=9973, size=1999, slope=1.1), []
    usual = _Counter._spill
    monkeypatch.setattr(_Counter, "_spill", lambda self: (spilt.append(1), usual(self)))
    monkeypatch.setattr("weft.vectors.cooccurrence.REPORT_WORDS", 1009)
    pairs = cooccurrences(one, 5, threads=threads, memory=700_000, folder=tmp_path)
    assert len(spilt) > 5
    assert both_ways(pairs) == pytest.approx(dict(brute(one, 5)), rel=1e-6)
    assert not list(tmp_path.iterdir())  # files without names


def test_counting_says_how_far_it_is(monkeypatch):
    monkeypatch.setattr("weft.vectors.cooccurrence.REPORT_WORDS", 300)
    heard = []
    cooccurrences(corpus(words=997), 3, threads=2, watch=heard.append)
    assert heard == [300 / 997, 600 / 997, 900 / 997, 1.0]


@pytest.mark.parametrize("memory", [100, 2_000, 50_000])
def test_the_dense_block_keeps_to_its_memory_and_has_a_cell_a_pair(memory):
    block = _DenseBlock.fitting(53, memory)
    assert block.cells.nbytes <= memory + 128
    cells = [block.rows[i] + j for i in range(53) for j in range(i, block.reach[i])]
    assert len(set(cells)) == len(cells)
    assert not cells or (min(cells) >= 0 and max(cells) < len(block.cells))
    assert {(block.rows[i]) % 8 for i in range(53)} == {0}
    if memory == 50_000:
        assert len(cells) == 53 * 54 / 2


def test_pairs_come_in_random_order():
    pairs = cooccurrences(corpus(words=4999), 5)
    first = pairs.read(0, len(pairs))["first"]
    half = len(first) // 2
    assert abs(first[:half].mean() - first[half:].mean()) < 3
    assert (np.diff(first) < 0).mean() > 0.2


def test_bad_settings_of_the_count():
    with pytest.raises(UserError, match=r"'window' should be at least 1, got 0"):
        cooccurrences(corpus(), 0)
    with pytest.raises(UserError, match=r"0 MB is too little to count pairs in: 997 words with a"):
        cooccurrences(corpus(), 5, memory=1000)
    empty = Corpus((), np.zeros(0, int), np.zeros(0, np.int32), np.zeros(0, int), 3)
    with pytest.raises(UserError, match=r"no words to count pairs of. Lower the minimum count"):
        cooccurrences(empty)


def listed(rows, tmp_path, size=SIZE):
    file = open(tmp_path / "pairs", "w+b")
    file.write(np.array(rows, PAIR).tobytes())
    file.flush()
    return Cooccurrences(size, len(rows), file)


def arrange_pairs(pairs, threads, seed=3, length=10**6):
    return room._PairBlock(pairs, 0, length, seed, threads, 0.75, 100.0).arrange_pairs()


def test_the_first_step_is_the_gradient(tmp_path):
    pairs = listed([(3, 5, 7.0)], tmp_path)
    before = Factors.fresh(SIZE, 7, seed=1)
    after = factorise(pairs, 7, 1, 0.05, threads=1, seed=1)
    w = torch.tensor(before.vectors[:, :, 0], requires_grad=True)
    b = torch.tensor(before.biases[:, :, 0], requires_grad=True)
    for i, j in ((3, 5), (5, 3)):
        error = w[i, 0] @ w[j, 1] + b[i, 0] + b[j, 1] - np.log(7.0)
        (0.5 * (7.0 / 100) ** 0.75 * error**2).backward()
    np.testing.assert_allclose(after.vectors[:, :, 0], (w - 0.05 * w.grad).detach(), atol=1e-7)
    np.testing.assert_allclose(after.biases[:, :, 0], (b - 0.05 * b.grad).detach(), atol=1e-7)
    assert w.grad[3, 0].abs().max() > 1e-3


def slow(lots, factors, rate):
    """Duchi's AdaGrad as in the authors' program, one number after the other, in float64."""
    vectors, biases = factors.vectors.astype(float), factors.biases.astype(float)
    cost = 0.0
    for i, j, log, share in zip(*lots.pairs, strict=True):
        word, context = vectors[i, 0], vectors[j, 1]  # (2, E): numbers and squares
        error = word[0] @ context[0] + biases[i, 0, 0] + biases[j, 1, 0] - log
        cost += share * error**2
        slopes = (share * error * context[0].copy(), share * error * word[0].copy())
        for row, slope in zip((word, context), slopes, strict=True):
            row[0] -= rate * slope / np.sqrt(row[1])
            row[1] += (rate * slope) ** 2
        for row in (biases[i, 0], biases[j, 1]):
            row[0] -= rate * share * error / np.sqrt(row[1])
            row[1] += (rate * share * error) ** 2
    return vectors, biases, cost


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_an_epoch_equals_a_slow_one(threads):
    pairs = cooccurrences(corpus(), 5, threads=threads)
    factors = Factors.fresh(SIZE, 19, seed=2)
    costs = []
    ours = factorise(
        pairs, 19, 1, 0.3, threads=threads, seed=2, watch=lambda e, s, cost: costs.append(cost)
    )
    seed = int(_first_seed(2))
    lots = arrange_pairs(pairs, threads, seed)
    # Read from the front, the lots of a stage come one after the other instead of at once.
    vectors, biases, cost = slow(lots, factors, 0.3)
    np.testing.assert_allclose(ours.vectors, vectors, rtol=1e-4, atol=2e-6)
    np.testing.assert_allclose(ours.biases, biases, rtol=1e-4, atol=2e-6)
    assert costs == pytest.approx([cost / lots.begins[-1]], rel=1e-5)


def _first_seed(seed):
    # The order of the first epoch with one block: a number for the block, drawn after the order.
    random = np.random.Generator(np.random.PCG64([seed, 0]))
    random.permutation(np.arange(0, 1))
    return random.integers(2**63)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_pair_comes_both_ways_and_no_two_threads_meet(threads, tmp_path):
    pairs = cooccurrences(corpus(), 5)
    lots = arrange_pairs(pairs, threads)
    words, contexts, logs, shares = lots.pairs
    found = both_ways(pairs)
    assert sorted(zip(words.tolist(), contexts.tolist(), strict=True)) == sorted(found)
    x = np.array([found[pair] for pair in zip(words.tolist(), contexts.tolist(), strict=True)])
    np.testing.assert_allclose(logs, np.log(x), atol=1e-6)
    np.testing.assert_allclose(shares, np.minimum(1, (x / 100) ** 0.75), rtol=1e-5)
    assert (shares == 1).any()
    for stage in range(threads):
        seen = [
            (set(words[begin:end]), set(contexts[begin:end]))
            for begin, end in (
                lots.begins[stage * threads + i : stage * threads + i + 2] for i in range(threads)
            )
        ]
        for side in (0, 1):
            assert sum(len(s[side]) for s in seen) == len(set().union(*(s[side] for s in seen)))


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("symmetric", [True, False])
def test_random_pairs_follow_the_noise_and_come_between_the_others(threads, symmetric):
    one = corpus(words=9973)
    pairs = cooccurrences(one, 3, symmetric=symmetric)
    noise = room._Noise.of(pairs, 0.3, one.counts)
    block = room._PairBlock(pairs, 0, 10**6, 3, threads, 0.75, 100.0, noise)
    words, contexts, logs, shares = block.arrange_pairs().pairs
    drawn = shares < 0
    found = pairs.read(0, len(pairs))
    expected = list(zip(found["first"].tolist(), found["second"].tolist(), strict=True))
    if symmetric:
        expected += [(j, i) for i, j in expected if i != j]
    observed = zip(words[~drawn].tolist(), contexts[~drawn].tolist(), strict=True)
    assert sorted(observed) == sorted(expected)
    assert drawn.sum() == (2 if symmetric else 1) * len(pairs)
    np.testing.assert_allclose(logs[drawn], np.log(1 / 3), atol=1e-6)
    np.testing.assert_allclose(shares[drawn], -0.3, atol=1e-6)
    if threads == 1:  # as many in the first half of the block as in the second
        half = len(drawn) // 2
        assert abs(drawn[:half].mean() - drawn[half:].mean()) < 0.02
    share = one.counts**0.75 / (one.counts**0.75).sum()
    for side in (words[drawn], contexts[drawn]):
        found = np.bincount(side, minlength=SIZE) / drawn.sum()
        np.testing.assert_allclose(found, share, atol=0.05)


def test_a_random_pair_is_wrong_only_where_it_is_predicted_too_often():
    factors = Factors.fresh(SIZE, 7, seed=1)
    factors.biases[2, 0, 0], factors.biases[3, 0, 0] = 4.0, -4.0
    before = factors.vectors.copy(), factors.biases.copy()
    pairs = (
        np.array([2, 3], np.int32), np.array([5, 6], np.int32),
        np.full(2, np.log(0.1), np.float32), np.full(2, -0.2, np.float32),
    )  # fmt: skip
    cost = kernels.update(0, 2, pairs, factors.vectors, factors.biases, 0.05, 0.05)
    w, c = before[0][2, 0, 0].astype(float), before[0][5, 1, 0].astype(float)
    error = w @ c + 4.0 + before[1][5, 1, 0] - np.log(0.1)
    assert cost == pytest.approx(0.2 * error**2, rel=1e-5)
    np.testing.assert_allclose(factors.vectors[2, 0, 0], w - 0.05 * 0.2 * error * c, atol=1e-6)
    assert factors.biases[2, 0, 0] == pytest.approx(4.0 - 0.05 * 0.2 * error, rel=1e-5)
    for row, side in ((3, 0), (6, 1)):  # predicted below its bound
        np.testing.assert_array_equal(factors.vectors[row, side], before[0][row, side])
        np.testing.assert_array_equal(factors.biases[row, side], before[1][row, side])


def test_random_pairs_lower_the_prediction_of_pairs_that_never_occur():
    one = corpus(words=1999, size=61, slope=1.2)
    pairs = cooccurrences(one, 2)
    seen = both_ways(pairs)
    unseen = [(i, j) for i in range(61) for j in range(61) if (i, j) not in seen]

    def predicted(weight):
        found = factorise(
            pairs, 7, 40, x_max=1.0, threads=2, negative_weight=weight, counts=one.counts
        )
        w, c, b = found.vectors[:, 0, 0], found.vectors[:, 1, 0], found.biases[:, :, 0]
        return np.mean([w[i] @ c[j] + b[i, 0] + b[j, 1] for i, j in unseen])

    without, with_them = predicted(0.0), predicted(0.5)
    assert with_them < without - 0.15
    again = [factorise(pairs, 3, 2, threads=2, negative_weight=0.2).sum.tobytes() for _ in range(2)]
    assert again[0] == again[1]


def test_subsampling_drops_frequent_words_as_word2vec_does(monkeypatch):
    monkeypatch.setattr("weft.vectors.corpus._PIECE", 101)
    one = corpus(words=99_991, sentences=997)
    thin = subsample(one, 0.01, seed=3)
    frequency = one.counts / one.counts.sum()
    expected = np.minimum(1, np.sqrt(0.01 / frequency) + 0.01 / frequency)
    kept = np.bincount(thin.ids, minlength=SIZE) / one.counts
    often = one.counts > 1000
    np.testing.assert_allclose(kept[often], expected[often], atol=0.05)
    assert (thin.ids[: thin.ends[0]] != -1).all()
    # Sentence by sentence, the words that stay are in their order.
    rows = [set(part.tolist()) for part in np.split(one.ids, one.ends[:-1]) if len(part)]
    thinned = [part.tolist() for part in np.split(np.asarray(thin.ids), thin.ends[:-1])]
    left = iter(rows)
    assert all(any(set(part) <= row for row in left) for part in thinned)
    assert thin.ends[-1] == len(thin.ids) < len(one.ids)
    assert (thin.counts == one.counts).all()
    with pytest.raises(UserError, match=r"sample = 1e-300 leaves no word of the corpus"):
        subsample(one, 1e-300)


def test_options_of_glove_reach_the_record():
    one = corpus()
    plain = glove(one, 5, 3, 2, threads=1)
    assert plain.record["x_max"] == 1.0  # of a tiny corpus
    other = glove(
        one, 5, 3, 2, threads=1, x_max=7, symmetric=False, distance="none", combine="word",
        bias=False, sample=0.1, negative_weight=0.2,
    )  # fmt: skip
    for name, value in {
        "x_max": 7, "symmetric": False, "distance": "none", "combine": "word", "bias": False,
        "sample": 0.1, "negative_weight": 0.2,
    }.items():  # fmt: skip
        assert other.record[name] == value
    assert np.abs(plain.matrix - other.matrix).max() > 1e-3
    flat = factorise(cooccurrences(one, 3), 5, 2, threads=1, bias=False)
    assert not flat.biases[:, :, 0].any()
    with pytest.raises(UserError, match=r"Unknown combination 'both'"):
        glove(one, combine="both")
    with pytest.raises(UserError, match=r"Unknown distance weighting 'linear'"):
        cooccurrences(one, distance="linear")
    with pytest.raises(UserError, match=r"'negative_weight' should be 0 or more, got -1"):
        glove(one, negative_weight=-1)


def test_the_order_depends_on_the_seed():
    pairs = cooccurrences(corpus(), 5)
    one, again, other = (arrange_pairs(pairs, 2, seed).pairs[0] for seed in (3, 3, 4))
    assert (one == again).all()
    assert (one != other).mean() > 0.3


def test_small_blocks_visit_the_same_pairs():
    pairs = cooccurrences(corpus(), 5)
    steps = []

    def update(*given):
        steps.append(int(given[1] - given[0]))
        return 0.0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "update", update)
        factorise(pairs, 3, 2, threads=2, block=17)
    assert sum(steps) == 2 * len(both_ways(pairs))


def test_the_same_seed_and_threads_give_the_same_bytes():
    pairs = cooccurrences(corpus(), 5, threads=2)
    one, again, other = (
        factorise(pairs, 11, 3, threads=2, seed=seed, block=29).sum for seed in (1, 1, 2)
    )
    assert one.tobytes() == again.tobytes()
    assert np.abs(one - other).max() > 1e-3


def test_glove_recovers_planted_factors(tmp_path):
    random = np.random.default_rng(1)
    w = random.normal(size=(SIZE, 2))
    logs = w @ w.T
    rows = [(i, j, np.exp(logs[i, j])) for i in range(SIZE) for j in range(i, SIZE)]
    costs = []
    factorise(
        listed(rows, tmp_path), 5, 300, 0.1, x_max=1.0, threads=1,
        watch=lambda epoch, share, cost: costs.append(cost),
    )  # fmt: skip
    assert costs[-1] < 0.01 * costs[0]


def test_words_of_like_company_become_neighbours():
    random = np.random.default_rng(1)
    kinds = (range(0, 7), range(7, 14))  # two groups that never share a sentence
    rows = [random.choice(kinds[i % 2], 9) for i in range(600)]
    ids = np.concatenate(rows).astype(np.int32)
    words = tuple("abcdefghijklmn")
    one = Corpus(words, np.bincount(ids), ids, np.arange(9, len(ids) + 1, 9), len(ids))
    heard = []
    vectors = glove(one, 5, 3, 30, threads=2, watch=lambda what, share: heard.append((what, share)))
    assert vectors.matrix.shape == (14, 5)
    assert vectors.matrix.dtype == np.float32
    assert {word for word, _ in vectors.neighbours("a", k=6)} == set("bcdefg")
    assert vectors.record["pairs"] == 2 * 7 * 8 / 2
    assert vectors.record["costs"][-1] < vectors.record["costs"][0]
    assert len(vectors.record["costs"]) == 30
    assert heard[0] == ("counting", 1.0)
    assert heard[-1][0].startswith("epoch 30 of 30, cost 0.0")


def test_bad_settings(tmp_path):
    pairs = listed([(0, 1, 1.0)], tmp_path)
    with pytest.raises(UserError, match=r"GloVe: 'learning_rate' should be above 0, got -1"):
        factorise(pairs, learning_rate=-1)
    with pytest.raises(UserError, match=r"no two words of the corpus stand in one sentence"):
        factorise(Cooccurrences(5, 0, pairs.file))
    with pytest.raises(
        UserError, match=r"cost became .* with learning rate 1e\+30. Use a lower one"
    ):
        factorise(pairs, 3, 9, 1e30, threads=1)
