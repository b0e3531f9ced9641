"""The solutions of the assignments, against torch, enumeration and other libraries."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from weft.lab.assignments import (
    attention,
    beam_search,
    bpe_merges,
    lstm_cell,
    ngram_smoothing,
    skip_gram,
    viterbi,
)

SEEDS = range(5)


def generators():
    return [np.random.default_rng(seed) for seed in SEEDS]


def tensors(*arrays):
    return [torch.from_numpy(np.array(a)) for a in arrays]


def test_the_lstm_is_that_of_torch_forward_and_backward():
    for rng in generators():
        *step, by_h, by_c = lstm_cell._draw_backward(rng)
        x, h, c, w_x, w_h, b = (t.requires_grad_() for t in tensors(*step))
        cell = torch.nn.LSTMCell(len(x), len(h), dtype=torch.float64)
        weights = {"weight_ih": w_x, "weight_hh": w_h, "bias_ih": b, "bias_hh": torch.zeros_like(b)}
        now = torch.func.functional_call(cell, weights, (x[None], (h[None], c[None])))
        ours = lstm_cell.lstm_step(*step)
        for mine, theirs in zip(ours, now, strict=True):
            np.testing.assert_allclose(mine, theirs[0].detach(), rtol=1e-10)
        seeds = [t[None] for t in tensors(by_h, by_c)]
        gradients = torch.autograd.grad(now, (x, h, c, w_x, w_h, b), seeds)
        backward = lstm_cell.lstm_step_backward(*step, by_h, by_c)
        for mine, theirs in zip(backward, gradients, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12)


def test_gradients_of_negative_sampling_are_those_of_torch():
    for rng in generators():
        arrays = skip_gram._draw_vectors(rng)
        word, context, noise = (t.requires_grad_() for t in tensors(*arrays))
        scores = torch.cat([(context @ word)[None], -(noise @ word)])
        loss = -functional.logsigmoid(scores).sum()
        np.testing.assert_allclose(
            skip_gram.negative_sampling_loss(*arrays), loss.item(), rtol=1e-10
        )
        gradients = torch.autograd.grad(loss, (word, context, noise))
        ours = skip_gram.negative_sampling_gradient(*arrays)
        for mine, theirs in zip(ours, gradients, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12)


def test_an_update_adds_the_gradients_of_a_repeated_word():
    for rng in generators():
        inputs, outputs, pair, noise, rate = skip_gram._draw_tables(rng)
        tables = [t.requires_grad_() for t in tensors(inputs, outputs)]
        rows = torch.from_numpy(np.concatenate([pair[1:], noise]))
        signs = torch.tensor([1.0] + [-1.0] * len(noise), dtype=torch.float64)
        loss = -functional.logsigmoid(signs * (tables[1][rows] @ tables[0][pair[0]])).sum()
        gradients = torch.autograd.grad(loss, tables)
        found = skip_gram.update(inputs, outputs, pair, noise, rate)
        for table, gradient, mine in zip(tables, gradients, found, strict=True):
            np.testing.assert_allclose(mine, (table - rate * gradient).detach(), rtol=1e-10)


def test_noise_and_subsampling_are_those_of_word2vec():
    np.testing.assert_allclose(
        skip_gram.noise_distribution(np.array([16, 81, 1]), 0.75), np.array([8, 27, 1]) / 36
    )
    f, t = 0.9, 0.01  # word2vec.c keeps with (sqrt(f / t) + 1) · t / f
    kept = skip_gram.keep_probability(np.array([9, 1]), t)
    assert kept[0] == pytest.approx((math.sqrt(f / t) + 1) * t / f)


def test_attention_is_that_of_torch():
    for rng in generators():
        q, k, v, allowed = attention._draw_attention(rng)
        allowed[:, 0] = True  # torch gives NaN where nothing is allowed
        theirs = functional.scaled_dot_product_attention(
            *(t[None] for t in tensors(q, k, v)), attn_mask=torch.from_numpy(allowed)[None]
        )
        np.testing.assert_allclose(attention.attention(q, k, v, allowed)[0], theirs[0], rtol=1e-10)
        x, *weights, heads, causal = attention._draw_heads(rng)
        part = torch.nn.MultiheadAttention(x.shape[1], heads, bias=False, dtype=torch.float64)
        with torch.no_grad():
            part.in_proj_weight.copy_(torch.from_numpy(np.concatenate([w.T for w in weights[:3]])))
            part.out_proj.weight.copy_(torch.from_numpy(weights[3].T.copy()))
            (row,) = tensors(x)
            theirs, _ = part(row, row, row, attn_mask=~torch.from_numpy(causal))
        ours = attention.multi_head_attention(x, *weights, heads, causal)
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_masks_exclude_the_future_and_the_padding():
    assert attention.causal_mask(3, 2).tolist() == [
        [True, False, False], [True, True, False], [False, False, False],
    ]  # fmt: skip
    weights = attention.masked_softmax(np.array([[1e3, 1.0]]), np.array([[False, False]]))
    assert weights.tolist() == [[0.0, 0.0]]


def test_viterbi_and_the_partition_agree_with_enumeration():
    for rng in generators():
        emissions, transitions = rng.normal(size=(5, 3)), rng.normal(size=(3, 3))
        scores = {
            tags: sum(emissions[t, tag] for t, tag in enumerate(tags))
            + sum(transitions[a, b] for a, b in itertools.pairwise(tags))
            for tags in itertools.product(range(3), repeat=5)
        }
        tags, score = viterbi.viterbi(emissions, transitions)
        assert tuple(tags) == max(scores, key=scores.__getitem__)
        assert score == pytest.approx(max(scores.values()))
        assert score == pytest.approx(viterbi.sequence_score(tags, emissions, transitions))
        total = np.logaddexp.reduce(list(scores.values()))
        assert viterbi.log_partition(emissions, transitions) == pytest.approx(total)
        expected = np.zeros((5, 3))
        for sequence, one in scores.items():
            expected[np.arange(5), sequence] += np.exp(one - total)
        np.testing.assert_allclose(viterbi.marginals(emissions, transitions), expected)


def test_a_wide_beam_finds_the_best_text_of_all():
    for rng in generators():
        table, length = np.log(rng.dirichlet(np.ones(4), 4)), 4
        texts = []
        for size in range(1, length + 1):
            for words in itertools.product(range(4), repeat=size):
                ended = words[-1] == 1 or size == length
                if ended and 1 not in words[:-1]:
                    total = sum(table[a, b] for a, b in itertools.pairwise([0, *words]))
                    texts.append((-total / size**0.6, list(words)))
        best = min(texts)
        words, score = beam_search.beam_search(table, 4**length, length, 0.6)[0]
        assert words == best[1]
        assert score == pytest.approx(-best[0])
        narrow = beam_search.beam_search(table, 1, length, 0.0)[0]
        assert narrow[0] == beam_search.greedy(table, length)[0]


def test_the_example_of_beam_search_beats_greedy():
    table = beam_search._TABLE
    assert beam_search.beam_search(table, 2, 4, 0.0)[0][1] > beam_search.greedy(table, 4)[1]


def test_merges_are_those_of_the_tokenizers_library():
    from tokenizers import Tokenizer
    from tokenizers.models import BPE
    from tokenizers.trainers import BpeTrainer

    counts = {"low": 5, "lower": 2, "newest": 6, "widest": 3}
    words = [word for word, count in counts.items() for _ in range(count)]
    tokenizer = Tokenizer(BPE())
    alphabet = sorted({letter for word in counts for letter in word})
    trainer = BpeTrainer(vocab_size=len(alphabet) + 5, show_progress=False)
    tokenizer.train_from_iterator(words, trainer)
    merges = bpe_merges.learn_merges(counts, 5)
    pieces = {a + b for a, b in merges}
    assert pieces == set(tokenizer.get_vocab()) - set(alphabet)
    for word in ("lowest", "newer", "wide"):
        assert bpe_merges.tokenize(word, merges) == tokenizer.encode(word).tokens


def test_em_raises_the_likelihood_and_ends_at_its_maximum():
    rng = np.random.default_rng(0)
    models, weights = rng.uniform(0.01, 1, (2, 40)), np.array([0.5, 0.5])
    before = -np.inf
    for _ in range(300):
        likelihood = np.log(weights @ models).sum()
        assert likelihood >= before - 1e-12
        before, weights = likelihood, ngram_smoothing.em_step(models, weights)
    grid = np.linspace(0.0005, 0.9995, 1000)
    best = max(np.log(np.array([w, 1 - w]) @ models).sum() for w in grid)
    assert before >= best - 1e-9
    assert weights.sum() == pytest.approx(1)


def test_counts_and_smoothing_by_hand():
    counts = ngram_smoothing.count_bigrams([[0, 1, 2, 1, 2], [2], []], 3)
    assert counts.tolist() == [[0, 1, 0], [0, 0, 2], [0, 1, 0]]
    np.testing.assert_allclose(ngram_smoothing.add_k(counts, 1.0)[1], [1 / 5, 1 / 5, 3 / 5])
    np.testing.assert_allclose(ngram_smoothing.add_k(np.zeros((2, 2), int), 0.0), 0.5)
    assert ngram_smoothing.perplexity(np.array([0.25, 0.25])) == pytest.approx(4)
    assert ngram_smoothing.perplexity(np.array([0.25, 0.0])) == math.inf
