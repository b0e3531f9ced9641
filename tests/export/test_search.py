"""Search in NumPy against the search of torch, on random tables of log-probabilities."""

import numpy as np
import pytest
import torch

from weft.decode.search import search as torch_search
from weft.decode.search.constraints import Constraints
from weft.decode.search.settings import SearchSettings
from weft.export.runtime.search import search

BATCH, VOCABULARY, BOS, EOS = 5, 11, 1, 2
FORBIDDEN = [0, 1]


def tables(seed):
    """Logits of the next word by prompt, last word and number of words so far."""
    random = np.random.default_rng(seed)
    logits = random.normal(size=(BATCH, VOCABULARY, 9, VOCABULARY)).astype(np.float32) * 2
    logits[..., EOS] -= 1
    return logits


def expected(logits, settings):
    table = torch.from_numpy(logits)

    def step(ids, state):
        prompt, time = state
        return table[prompt, ids, time.clamp(max=8)], (prompt, time + 1)

    state = (torch.arange(BATCH), torch.zeros(BATCH, dtype=torch.long))
    rules = Constraints(forbidden=FORBIDDEN)
    return torch_search.search(
        step, state, settings, batch=BATCH, bos=BOS, eos=EOS, constraints=rules
    )


def found(logits, settings):
    def step(ids, state, prompts):
        time = state["time"]
        one = torch.from_numpy(logits[prompts, ids, time.clip(max=8)]).log_softmax(1)
        return one.numpy(), {"time": time + 1}

    state = {"time": np.zeros(BATCH, np.int64)}
    return search(step, state, settings, batch=BATCH, bos=BOS, eos=EOS, forbidden=FORBIDDEN)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "options",
    [
        {"method": "greedy"},
        {"method": "greedy", "min_length": 4},
        {"num_beams": 1, "num_return": 1},
        {"num_beams": 3},
        {"num_beams": 5, "length_normalisation": "length", "length_penalty": 1.0},
        {"num_beams": 4, "length_normalisation": "none", "early_stopping": "full"},
        {"num_beams": 3, "early_stopping": "likely", "min_length": 2},
        {"method": "greedy", "no_repeat_ngram_size": 2},
        {"num_beams": 3, "no_repeat_ngram_size": 1},
        {"num_beams": 4, "no_repeat_ngram_size": 2},
        {"num_beams": 20},  # more beams than words
    ],
    ids=str,
)
def test_hypotheses_are_those_of_torch(seed, options):
    settings, logits = SearchSettings(max_length=7, **options), tables(seed)
    for ours, theirs in zip(found(logits, settings), expected(logits, settings), strict=True):
        assert ours.ids == theirs[0].ids
        np.testing.assert_allclose(ours.log_probs, theirs[0].logps, atol=1e-5)
