"""Search in NumPy against the search of torch, on random tables of logits."""

import numpy as np
import pytest
import torch

from weft.decode.search import array_search
from weft.decode.search import search as torch_search
from weft.decode.search.allowed_phrases import AllowedPhrases
from weft.decode.search.constraints import Constraints
from weft.decode.search.settings import SearchSettings
from weft.errors import UserError

BATCH, VOCABULARY, BOS, EOS = 5, 11, 1, 2
FORBIDDEN = [0, 1]
PREFIX = [[4, 5], [], [3], [9, 8, 7], [6]]
SEEDS = [3, 1 << 40, -7, 0, 99]


def tables(seed):
    """Logits of the next word by prompt, last word and number of words so far."""
    random = np.random.default_rng(seed)
    logits = random.normal(size=(BATCH, VOCABULARY, 9, VOCABULARY)).astype(np.float32) * 2
    logits[..., EOS] -= 1
    return logits


def rules(**more):
    return Constraints(forbidden=FORBIDDEN, seeds=SEEDS, **more)


def phrases():
    return AllowedPhrases([[4], [4, 5, 6]], [[7, 4], [8]], size=VOCABULARY, eos=EOS)


def expected(logits, settings, rules):
    table = torch.from_numpy(logits)

    def step(ids, state):
        prompt, time = state
        return table[prompt, ids, time.clamp(max=8)], (prompt, time + 1)

    state = (torch.arange(BATCH), torch.zeros(BATCH, dtype=torch.long))
    return torch_search.search(
        step, state, settings, batch=BATCH, bos=BOS, eos=EOS, constraints=rules
    )


def found(logits, settings, rules):
    def step(ids, state, prompts):
        time = state["time"]
        return logits[prompts, ids, time.clip(max=8)], {"time": time + 1}

    state = {"time": np.zeros(BATCH, np.int64)}
    return array_search.search(step, state, settings, batch=BATCH, bos=BOS, eos=EOS, rules=rules)


def check(logits, settings, make_rules):
    ours, theirs = found(logits, settings, make_rules()), expected(logits, settings, make_rules())
    for some, others in zip(ours, theirs, strict=True):
        assert [one.ids for one in some] == [one.ids for one in others]
        assert [(one.ended, one.forced) for one in some] == [(o.ended, o.forced) for o in others]
        for one, other in zip(some, others, strict=True):
            np.testing.assert_allclose(one.logps, other.logps, atol=1e-5)
            assert one.score == pytest.approx(other.score, abs=1e-5)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "options",
    [
        {"method": "greedy"},
        {"method": "greedy", "min_length": 4},
        {"method": "greedy", "no_repeat_ngram_size": 2},
        {"method": "greedy", "repetition_penalty": 1.7},
        {"num_beams": 1, "num_return": 1},
        {"num_beams": 3},
        {"num_beams": 5, "length_normalisation": "length", "length_penalty": 1.0, "num_return": 3},
        {"num_beams": 4, "length_normalisation": "none", "early_stopping": "full"},
        {"num_beams": 3, "early_stopping": "likely", "min_length": 2},
        {"num_beams": 3, "no_repeat_ngram_size": 1},
        {"num_beams": 4, "no_repeat_ngram_size": 2},
        {"num_beams": 4, "repetition_penalty": 1.4},
        {"num_beams": 20},  # more beams than words
        {"num_beams": 6, "num_beam_groups": 3, "num_return": 6},
        {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 3.0, "num_return": 2},
        {"method": "sample", "num_samples": 4},
        {"method": "sample", "num_samples": 3, "temperature": 1.6, "top_k": 3},
        {"method": "sample", "top_p": 0.6, "temperature": 0.7, "min_length": 3},
        {"method": "sample", "top_k": 6, "top_p": 0.8, "typical_p": 0.7, "num_samples": 2},
    ],
    ids=str,
)
def test_hypotheses_are_those_of_torch(seed, options):
    settings, logits = SearchSettings(max_length=7, **options), tables(seed)
    check(logits, settings, rules)
    check(logits, settings, lambda: rules(prefix=PREFIX))


@pytest.mark.parametrize("method", ["greedy", "beam", "sample"])
def test_phrases_are_those_of_torch(method):
    settings = SearchSettings(method=method, max_length=7)
    check(tables(5), settings, lambda: rules(allowed=phrases()))


def test_a_stream_is_the_search():
    settings, logits = SearchSettings(method="sample", num_samples=2, max_length=7), tables(1)

    def step(ids, state, prompts):
        return logits[prompts, ids, state["time"]], {"time": state["time"] + 1}

    state = {"time": np.zeros(BATCH, np.int64)}
    texts = {}
    for deltas in array_search.stream(
        step, state, settings, batch=BATCH, bos=BOS, eos=EOS, rules=rules()
    ):
        for one in deltas:
            texts.setdefault((one.row, one.sample), []).extend(one.ids)
    whole = found(logits, settings, rules())
    assert texts == {(i, k): one.ids for i, some in enumerate(whole) for k, one in enumerate(some)}


@pytest.mark.parametrize("method", ["greedy", "beam"])
def test_what_cannot_be_searched_is_an_error(method):
    logits, settings = tables(0), SearchSettings(method=method, max_length=7)
    with pytest.raises(UserError, match="no sequence is possible"):
        found(logits, settings, Constraints(forbidden=range(VOCABULARY)))
    logits[2] = np.nan
    with pytest.raises(UserError, match="Row 2: the model's logits are NaN"):
        found(logits, settings, rules())


def test_beams_do_not_stream_and_have_no_coverage():
    logits = tables(0)
    with pytest.raises(UserError, match="Beam search cannot stream"):
        next(array_search.stream(None, {}, SearchSettings(), batch=1, bos=BOS, eos=EOS))
    with pytest.raises(UserError, match="no attention to compute coverage from"):
        found(logits, SearchSettings(coverage_penalty=0.1), rules())
