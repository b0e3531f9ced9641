"""W2, the interpolated n-gram model: P(w | h) = Σ_j λ_j c(h_j w) / c(h_j).

λ are fitted by EM on held-out text; the sum has a uniform term for words never seen.
"""

import json
import math
from collections import Counter

import numpy as np
import pytest

from tests.fixtures.ngram_models import sentences, trained
from weft.classic.ngram.counts import count
from weft.classic.ngram.interpolated import estimate_interpolated
from weft.errors import UserError
from weft.predict import load

ORDER, BOS, EOS = 3, 2, 3
WORDS = 9
UNSEEN = 4 + WORDS
SIZE = UNSEEN + 1
PREDICTED = SIZE - 2  # neither padding nor the start of a sentence is ever predicted


def rows(texts):
    """Return the texts as ids; the vocabulary is made of the nine words of the fixture."""
    names = ("the", "dog", "cat", "sees", "eats", "old", "fish", "and", ".")
    return [[4 + names.index(word) for word in text.split()] for text in texts]


class RelativeFrequencies:
    """c(h w) / c(h) for histories of 0 to ORDER − 1 words."""

    def __init__(self, texts):
        self.grams, self.histories = Counter(), Counter()
        for text in texts:
            for history, word in events(text):
                for j in range(min(len(history), ORDER - 1) + 1):
                    self.grams[history[len(history) - j :], word] += 1
                    self.histories[history[len(history) - j :]] += 1

    def __call__(self, history, word):
        """Return p_0 … p_ORDER of the orders whose history was met; p_0 is uniform."""
        out = [1 / PREDICTED]
        for j in range(min(len(history), ORDER - 1) + 1):
            end = history[len(history) - j :]
            if self.histories[end]:
                out.append(self.grams[end, word] / self.histories[end])
        return out


def events(text):
    """Yield every word of a sentence, and its end, with all that comes before it."""
    line = (BOS, *text, EOS)
    for i in range(1, len(line)):
        yield line[:i], line[i]


def interpolate(lambdas, p):
    """Return Σ λ_j p_j; the weights of unmet histories go to the others in proportion."""
    used = lambdas[: len(p)]
    return sum(weight * q for weight, q in zip(used, p, strict=True)) / sum(used)


def em(p_rows, rounds=200, close=1e-7):
    """Fit λ by EM, plainly: responsibilities of the orders, then their shares."""
    lambdas = [0.5**ORDER, *(0.5 ** (ORDER - j) for j in range(ORDER))]
    before = math.inf
    for _ in range(rounds):
        nats = -sum(math.log(interpolate(lambdas, p)) for p in p_rows) / len(p_rows)
        if before - nats < close:
            break
        before = nats
        stopped, reached = [0.0] * (ORDER + 1), [0.0] * (ORDER + 1)
        for p in p_rows:
            joint = [weight * q for weight, q in zip(lambdas, p, strict=False)]
            gamma = [x / sum(joint) for x in joint]
            for k in range(len(p)):
                stopped[k] += gamma[k]
                reached[k] += sum(gamma[: k + 1])
        lambdas, left = [0.0] * (ORDER + 1), 1.0
        for k in reversed(range(1, ORDER + 1)):
            lambdas[k] = left * stopped[k] / reached[k]
            left -= lambdas[k]
        lambdas[0] = left
    return lambdas, math.exp(nats)


@pytest.fixture(scope="module")
def texts():
    # The last word never occurs in training, and some pairs do not either: every order is needed.
    odd = [[4, 4, 12, UNSEEN], [6, 5, UNSEEN, 9, 9], [11, 7, 4, 6]]
    return rows(sentences(97, 5)), [*rows(sentences(23, 6)), *odd]


def test_lambdas_are_those_of_em_on_held_out_text(texts):
    train, held_out = texts
    frequency = RelativeFrequencies(train)
    lambdas, perplexity = em([frequency(h, w) for text in held_out for h, w in events(text)])
    fit = estimate_interpolated(count(train, SIZE, ORDER), held_out)
    np.testing.assert_allclose(fit.weights, lambdas, atol=1e-5)
    assert fit.perplexity == pytest.approx(perplexity, rel=1e-5)
    assert sum(fit.weights) == pytest.approx(1)
    assert min(lambdas) > 0.001, "every order should take part"


def test_probability_is_the_weighted_sum_of_relative_frequencies(texts):
    train, held_out = texts
    frequency = RelativeFrequencies(train)
    fit = estimate_interpolated(count(train, SIZE, ORDER), held_out)
    for text in (held_out[0], held_out[7], [4, 4, 4, 12]):
        (scores,) = fit.model.sentence_scores([text])
        right = [interpolate(list(fit.weights), frequency(h, w)) for h, w in events(text)]
        np.testing.assert_allclose(np.exp(scores), right, rtol=1e-5)


def test_mean_lambdas_of_buckets_average_over_held_out_words(texts):
    train, held_out = texts
    frequency = RelativeFrequencies(train)
    fit = estimate_interpolated(count(train, SIZE, ORDER), held_out, buckets=True)
    lambdas = []
    for text in held_out:
        for history, _ in events(text):
            met = [frequency.histories[history[len(history) - j :]] for j in range(ORDER)]
            own, left = [0.0] * (ORDER + 1), 1.0
            for k in reversed(range(1, ORDER + 1)):
                known = k <= len(history) + 1 and met[k - 1] > 0
                own[k] = left * fit.shares[k - 1, int(math.log2(met[k - 1]))] if known else 0.0
                left -= own[k]
            lambdas.append([left, *own[1:]])
    np.testing.assert_allclose(fit.weights, np.mean(lambdas, 0), atol=1e-5)


@pytest.mark.parametrize("buckets", [False, True])
def test_lambdas_are_noted_saved_and_loaded(tmp_path, buckets):
    out = trained("ngram", tmp_path, **{"classic.order": ORDER, "classic.buckets": buckets})
    saved = json.loads((tmp_path / "run/model/interpolation.json").read_text("utf-8"))
    assert sum(saved["lambdas"]) == pytest.approx(1)
    # The model leaves words it never met a little, which held-out text alone would not.
    assert saved["held_out_perplexity"] == pytest.approx(
        out.figures["dev"]["token_perplexity"].value, rel=0.01
    )
    note = load(tmp_path / "run").engine.note
    for k, weight in enumerate(saved["lambdas"]):
        assert f"λ{k} {weight:.4g}" in note
    assert note in out.record["notes"]
    assert ("interpolation.json has each bucket" in note) == buckets
    assert note in (tmp_path / "run/log.txt").read_text("utf-8")


@pytest.mark.parametrize(
    "bad",
    [
        "{}",
        '{"lambdas": [1], "shares": [[0.5]], "held_out_perplexity": 3}',
        "[",
        '{"lambdas": ["x", "y"], "shares": [[0.5]], "held_out_perplexity": 3}',
    ],
)
def test_damaged_lambdas_are_one_line(tmp_path, bad):
    trained("ngram", tmp_path, **{"classic.order": ORDER})
    path = tmp_path / "run/model/interpolation.json"
    path.write_text(bad, "utf-8")
    with pytest.raises(UserError, match=r"interpolation\.json"):
        load(tmp_path / "run")


def test_reloaded_weights_are_those_of_training(tmp_path):
    part = trained("ngram", tmp_path).predictor.engine.part
    again = load(tmp_path / "run").engine.part
    np.testing.assert_array_equal(part.weights, again.weights)
    np.testing.assert_array_equal(part.shares, again.shares)
