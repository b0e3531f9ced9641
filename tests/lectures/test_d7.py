"""D7: greedy and beam search with length normalisation; sampling by temperature, top-k, top-p."""

import math
from dataclasses import replace
from itertools import product

import pytest
import torch

from weft.decode.search.beam import length_norm
from weft.decode.search.sampling import sample_tokens, truncate_distribution
from weft.decode.search.search import search
from weft.decode.search.settings import SearchSettings

LOGITS = [2.0, 0.5, -1.0, 1.5, 0.0, -0.3, 1.1]
BOS, EOS, V = 0, 1, 4


def softmax(scores):
    raised = [math.exp(s) for s in scores]
    return [x / sum(raised) for x in raised]


def distribution(**options):
    """Return the product's distribution over the vocabulary."""
    logp = torch.tensor([LOGITS]).log_softmax(1)
    weights, tokens = truncate_distribution(logp, SearchSettings(method="sample", **options))
    probs = weights.softmax(1)[0].tolist()
    out = [0.0] * len(LOGITS)
    places = range(len(probs)) if tokens is None else tokens[0].tolist()
    for place, p in zip(places, probs, strict=True):
        out[place] += p
    return out


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_temperature_divides_the_logits(temperature):
    right = softmax([s / temperature for s in LOGITS])
    assert distribution(temperature=temperature) == pytest.approx(right, abs=1e-5)


@pytest.mark.parametrize("k", [1, 3, 5])
def test_top_k_renormalises_the_k_most_probable_tokens(k):
    kept = sorted(range(len(LOGITS)), key=lambda i: -LOGITS[i])[:k]
    right = [math.exp(s) if i in kept else 0.0 for i, s in enumerate(LOGITS)]
    right = [x / sum(right) for x in right]
    assert distribution(top_k=k) == pytest.approx(right, abs=1e-5)


@pytest.mark.parametrize("p", [0.2, 0.5, 0.8, 0.95])
def test_top_p_renormalises_the_smallest_set_with_that_mass(p):
    probs = softmax(LOGITS)
    kept, mass = set(), 0.0
    for i in sorted(range(len(probs)), key=lambda i: -probs[i]):
        kept.add(i)
        mass += probs[i]
        if mass >= p:
            break
    right = [q / mass if i in kept else 0.0 for i, q in enumerate(probs)]
    assert distribution(top_p=p) == pytest.approx(right, abs=1e-5)


def test_sampling_inverts_the_cumulative_distribution():
    probs = softmax(LOGITS)
    logp = torch.tensor([LOGITS]).log_softmax(1)
    for number in (0.0, 0.1, 0.37, 0.5, 0.731, 0.999):
        total, right = 0.0, 0
        while total + probs[right] <= number:
            total, right = total + probs[right], right + 1
        settings = SearchSettings(method="sample")
        token = sample_tokens(logp, torch.tensor([number], dtype=torch.float64), settings)
        assert int(token) == right


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_length_normalisation_is_that_of_wu_or_the_length(alpha):
    for n in (1, 4, 13):
        for name, right in (("wu", ((5 + n) / 6) ** alpha), ("length", n**alpha), ("none", 1.0)):
            settings = SearchSettings(length_normalisation=name, length_penalty=alpha)
            assert length_norm(torch.tensor([n]), settings).item() == pytest.approx(right, rel=1e-5)


class MarkovModel:
    """Next-token scores that depend on the last token only."""

    def __init__(self):
        self.table = torch.randn(V, V, generator=torch.Generator().manual_seed(3))

    def step(self, ids, state):
        return self.table[ids], state

    def log_prob(self, tokens):
        total, last = 0.0, BOS
        for token in tokens:
            total += math.log(softmax(self.table[last].tolist())[token])
            last = token
        return total


def run(model, settings):
    state = torch.zeros(1, 1)
    (found,) = search(model.step, state, settings, batch=1, bos=BOS, eos=EOS)
    return found


def test_greedy_takes_the_most_probable_token_at_each_step():
    model, last, right = MarkovModel(), BOS, []
    while len(right) < 5 and (not right or right[-1] != EOS):
        last = int(model.table[last].argmax())
        right.append(last)
    (found,) = run(model, SearchSettings(method="greedy", max_length=5))
    assert [*found.ids, *([EOS] if found.ended else [])] == right


@pytest.mark.parametrize(("norm", "alpha"), [("none", 0.0), ("wu", 0.6), ("length", 1.0)])
def test_full_beam_is_the_n_best_list_of_normalised_log_probabilities(norm, alpha):
    model, length = MarkovModel(), 3
    settings = SearchSettings(
        method="beam", num_beams=64, num_return=5, max_length=length,
        length_normalisation=norm, length_penalty=alpha,
    )  # fmt: skip
    scores = {}
    for n in range(1, length + 1):
        for tokens in product(range(V), repeat=n):
            ends = tokens.index(EOS) + 1 if EOS in tokens else length
            if ends == n:
                size = {"none": 1.0, "wu": ((5 + n) / 6) ** alpha, "length": n**alpha}[norm]
                scores[tokens] = model.log_prob(tokens) / size
    right = sorted(scores, key=scores.get, reverse=True)[:5]
    found = run(model, settings)
    assert [(*one.ids, *([EOS] if one.ended else [])) for one in found] == right
    assert [one.score for one in found] == pytest.approx([scores[t] for t in right], abs=1e-5)
    best = run(model, replace(settings, num_beams=1, num_return=1))
    assert best[0].score <= found[0].score + 1e-6
