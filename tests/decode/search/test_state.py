"""The parts of a search by themselves: settings, rows of a state, the largest of many."""

from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
import torch

from weft.batch.padded import Padded
from weft.decode.search.constraints import fast_topk
from weft.decode.search.search import PerPrompt, SearchSettings, copy_into, reorder
from weft.decode.search.state import device_of, expand_beams, iter_tensors, select_prompts
from weft.errors import UserError


class Pair(NamedTuple):
    key: torch.Tensor
    value: torch.Tensor


@dataclass(frozen=True)
class Cache:
    pairs: list[Pair]
    used: int
    memory: PerPrompt
    none: None = None
    made: int = field(default=7, init=False)


def cache(rows=3, prompts=3) -> Cache:
    pair = Pair(torch.arange(rows * 2).view(rows, 2), torch.arange(rows) * 10)
    memory = Padded(torch.arange(prompts * 5).view(prompts, 5), torch.tensor([5, 2, 4][:prompts]))
    return Cache([pair, pair], 11, PerPrompt({"memory": memory, "all": torch.tensor(3.0)}))


def test_rows_are_picked_everywhere_but_in_what_beams_share():
    index = torch.tensor([2, 0, 0, 1])
    found = reorder(cache(), index)
    assert isinstance(found.pairs[1], Pair)
    assert found.pairs[1].key.tolist() == [[4, 5], [0, 1], [0, 1], [2, 3]]
    assert found.pairs[0].value.tolist() == [20, 0, 0, 10]
    assert (found.used, found.none, found.made) == (11, None, 7)
    assert found.memory.value["memory"].data.shape == (3, 5)


def test_rows_are_spread_and_kept_prompt_by_prompt():
    wide = expand_beams(cache(), 2)
    assert wide.pairs[0].value.tolist() == [0, 0, 10, 10, 20, 20]
    assert wide.memory.value["memory"].data.shape == (3, 5)
    found = select_prompts(wide, torch.tensor([2, 0]), 2)
    assert found.pairs[0].value.tolist() == [20, 20, 0, 0]
    assert found.memory.value["memory"].lengths.tolist() == [4, 5]
    assert found.memory.value["memory"].data[:, 0].tolist() == [10, 0]
    assert found.memory.value["all"] == 3


def test_tensors_of_a_nest():
    assert len(list(iter_tensors(cache()))) == 7
    assert device_of({"nothing": 3}) == torch.device("cpu")
    old, new = cache(), reorder(cache(), torch.tensor([2, 1, 0]))
    place = old.pairs[0].value.data_ptr()
    copy_into(old, new)
    assert old.pairs[0].value.data_ptr() == place
    assert old.pairs[0].value.tolist() == [20, 10, 0]


@pytest.mark.parametrize("size", [3, 1000, 1280, 5003])
@pytest.mark.parametrize("count", [1, 5])
def test_the_largest_are_those_of_topk(size, count):
    values = torch.randn(7, size, generator=torch.Generator().manual_seed(size))
    values[2, : size // 2] = -torch.inf
    values[3, -1] = 9.0  # behind the last whole block
    found, place = fast_topk(values, count)
    wanted, where = values.topk(min(count, size))
    assert torch.equal(found, wanted)
    assert torch.equal(place, where)
    values[5, 1] = torch.nan
    assert fast_topk(values, count)[0][5, 0].isnan()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_beams": 0}, "generate.num_beams is 0; it must be at least 1."),
        ({"num_beams": 2.5}, "generate.num_beams is 2.5; it must be a whole number."),
        ({"num_beams": True}, "generate.num_beams is True; it must be a whole number."),
        ({"drop_finished": 1}, "generate.drop_finished is 1; it must be true or false."),
        ({"length_penalty": float("inf")}, "generate.length_penalty is inf; it must be a number."),
        ({"length_penalty": "big"}, "generate.length_penalty is 'big'; it must be a number."),
        ({"top_p": 0}, r"generate.top_p is 0; it must be over 0 and at most 1"),
        ({"top_p": float("nan")}, "generate.top_p is nan; it must be a number."),
        ({"typical_p": 1.2}, "generate.typical_p is 1.2"),
        (
            {"temperature": 0},
            "above 0; for the most probable token at each step use method = 'greedy'",
        ),
        ({"repetition_penalty": 0.5}, "generate.repetition_penalty is 0.5; it must be at least 1"),
        (
            {"no_repeat_ngram_size": -1},
            "generate.no_repeat_ngram_size is -1; it must be 0 or more.",
        ),
        ({"coverage_penalty": -0.1}, "generate.coverage_penalty is -0.1; it must be 0 or more."),
        (
            {"num_return": 6},
            "generate.num_return is 6, but a search with 5 beams returns at most 5",
        ),
        (
            {"num_beam_groups": 2},
            "generate.num_beam_groups is 2, which does not divide generate.num_beams 5",
        ),
        (
            {"min_length": 7, "max_length": 5},
            "generate.min_length 7 is above generate.max_length 5",
        ),
        ({"method": "beem"}, "Unknown choice 'beem' in generate.method. Did you mean 'beam'"),
        ({"length_normalisation": "lenght"}, "Did you mean 'length'"),
    ],
)
def test_settings_that_make_no_sense(options, message):
    with pytest.raises(UserError, match=message):
        SearchSettings(**options)
