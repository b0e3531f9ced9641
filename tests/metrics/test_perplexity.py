"""Perplexities by hand, the same for any tokenization of the same distribution over texts."""

import math

import numpy as np
import pytest

from weft.errors import UserError
from weft.metrics.perplexity import Perplexity, TextCost, TextSize, count_text


def figures(costs, sizes, ends: bool = True, resamples: int = 0):
    measure = Perplexity(ends)
    measure.add(costs, sizes)
    return {name: figure.value for name, figure in measure.compute(resamples=resamples).items()}


def test_perplexity_of_a_worked_example() -> None:
    costs = [TextCost(6.0, 5, end_nats=1.0, ends=1), TextCost(4.0, 3, end_nats=2.0, ends=1)]
    sizes = [TextSize(2, 11), TextSize(3, 7)]
    assert figures(costs, sizes) == pytest.approx(
        {
            "perplexity": math.exp(13 / 7),
            "token_perplexity": math.exp(13 / 10),
            "bits_per_character": 13 / math.log(2) / 20,
        }
    )
    assert figures(costs, sizes, ends=False) == pytest.approx(
        {
            "perplexity": math.exp(10 / 5),
            "token_perplexity": math.exp(10 / 8),
            "bits_per_character": 10 / math.log(2) / 18,
        }
    )


def test_a_uniform_model_has_the_perplexity_of_its_vocabulary() -> None:
    found = figures([TextCost(3 * math.log(17), 3, math.log(17), 1)], [count_text("the cat sat\n")])
    assert found["perplexity"] == found["token_perplexity"] == pytest.approx(17)


def test_the_same_probability_is_the_same_whatever_the_tokens() -> None:
    text = "a black cat"
    words = TextCost(math.log(50) + 2 * math.log(3), 3, math.log(2), 1)
    characters = TextCost(
        words.nats, 11, math.log(2), 1
    )  # one p of the text, cut into more factors
    by_words, by_characters = (figures([cost], [count_text(text)]) for cost in (words, characters))
    for name in ("perplexity", "bits_per_character"):
        assert by_words[name] == pytest.approx(by_characters[name])
    assert by_words["token_perplexity"] > 1.5 * by_characters["token_perplexity"]


def test_unknown_words_are_counted_as_in_kenlm() -> None:
    # Words cost 2, 3 and (unknown) 7 nats, the end 1: KenLM's perplexities with and without OOVs.
    found = figures([TextCost(12.0, 3, 1.0, 1, unknown_nats=7.0, unknown=1)], [TextSize(3, 11)])
    assert found["perplexity"] == pytest.approx(math.exp(13 / 4))
    assert found["perplexity_known"] == pytest.approx(math.exp(6 / 3))
    assert found["unknown"] == pytest.approx(1 / 3)
    assert "unknown" not in figures([TextCost(12.0, 3, 1.0, 1)], [TextSize(3, 11)])


def test_size_is_of_the_original_text() -> None:
    assert count_text("Grüße  an\talle\r\n") == TextSize(3, 14)
    assert count_text(
        "don't stop", words=lambda text: text.replace("n't", " n't").split()
    ) == TextSize(3, 10)
    assert count_text("") == TextSize(0, 0)


def test_interval_is_over_texts() -> None:
    rng = np.random.default_rng(0)
    tokens = rng.integers(1, 13, 59)
    nats = tokens * rng.gamma(5.0, 1.0, 59)
    measure = Perplexity(ends=False)
    measure.add(
        [TextCost(float(x), int(t)) for x, t in zip(nats, tokens, strict=True)],
        [TextSize(int(t), 5 * int(t)) for t in tokens],
    )
    figure = measure.compute(resamples=4000)["perplexity"]
    picks = rng.integers(0, 59, (4000, 59))
    values = np.exp(nats[picks].sum(1) / tokens[picks].sum(1))
    low, high = np.quantile(values, [0.025, 0.975])
    slack = 0.1 * (high - low)
    assert (figure.low, figure.high) == pytest.approx((low, high), abs=slack)
    assert figure.n == 59


def test_pieces_merge_only_under_the_same_setting() -> None:
    costs, sizes = (
        [TextCost(3.0, 2, 1.0, 1), TextCost(5.0, 3, 0.5, 1)],
        [TextSize(2, 9), TextSize(1, 5)],
    )
    whole, parts = Perplexity(), Perplexity()
    whole.add(costs, sizes)
    for cost, length in zip(costs[::-1], sizes[::-1], strict=True):
        part = Perplexity()
        part.add([cost], [length])
        parts.merge(part)
    assert parts.compute(resamples=13) == whole.compute(resamples=13)
    with pytest.raises(AssertionError):
        whole.merge(Perplexity(ends=False))


@pytest.mark.parametrize("nats", [math.inf, math.nan])
def test_zero_probability_is_reported_with_its_text(nats) -> None:
    measure = Perplexity()
    measure.add([TextCost(1.0, 1)], [TextSize(1, 1)])
    with pytest.raises(UserError, match=r"Text 2 costs (inf|nan) nats: .* probability 0"):
        measure.add([TextCost(nats, 1)], [TextSize(1, 1)])


def test_a_hopeless_model_still_has_a_number() -> None:
    assert math.isfinite(figures([TextCost(1e6, 1)], [TextSize(1, 1)])["perplexity"])
    assert figures([TextCost(0.0, 0)], [TextSize(0, 0)])["bits_per_character"] == 0
