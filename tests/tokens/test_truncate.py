"""What is read of a text that is too long."""

from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import UserError
from weft.tokens.truncate import Policy, coverage, split_windows

lengths, limits = st.integers(0, 211), st.integers(1, 53)
policies = st.sampled_from([policy for policy in get_args(Policy) if policy != "error"])
overlaps = st.floats(0, 1, exclude_max=True)


def read(windows):
    return {i for window in windows for part in window for i in range(part.start, part.stop)}


@given(lengths, limits, policies, overlaps)
def test_windows_fit_the_limit_and_coverage_counts_what_is_read(length, limit, policy, overlap):
    windows = split_windows(length, limit, policy, overlap)
    for window in windows:
        assert sum(part.stop - part.start for part in window) <= limit
        assert all(0 <= part.start <= part.stop <= length for part in window)
        assert all(a.stop <= b.start for a, b in pairwise(window))
    share = coverage(length, windows)
    assert share == (len(read(windows)) / length if length else 1)
    assert (share < 1) == (length > limit and policy != "windows")


@given(lengths, limits, overlaps)
def test_sliding_windows_have_no_gap_and_share_the_overlap(length, limit, overlap):
    windows = [window[0] for window in split_windows(length, limit, "windows", overlap)]
    assert windows[0].start == 0
    assert windows[-1].stop == length
    for a, b in pairwise(windows):
        assert a.start < b.start
        assert a.stop - b.start >= min(round(overlap * limit), limit - 1)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("head", [[(0, 5)]]),
        ("tail", [[(8, 13)]]),
        ("head+tail", [[(0, 3), (11, 13)]]),
        ("windows", [[(0, 5)], [(4, 9)], [(8, 13)]]),
    ],
)
def test_truncation_of_worked_examples(policy, expected):
    windows = split_windows(13, 5, policy)
    assert [[(p.start, p.stop) for p in window] for window in windows] == expected


def test_a_short_text_is_read_whole_by_every_policy():
    for policy in get_args(Policy):
        assert split_windows(5, 5, policy) == [[slice(0, 5)]]
        assert split_windows(0, 5, policy) == [[slice(0, 0)]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"policy": "error", "where": "train.csv:7"},
            r"train\.csv:7 has 812 tokens, the limit is 512\. "
            r"Set data\.truncate to head, tail, head\+tail or windows, or raise data\.max_tokens\.",
        ),
        ({"policy": "error"}, "^A text has 812 tokens"),
        ({"policy": "heads"}, r"Unknown truncation 'heads' .*Did you mean 'head'\?"),
        ({"policy": "head", "limit": 0}, "data.max_tokens should be 1 or more, got 0"),
        ({"policy": "windows", "overlap": 1.0}, "data.overlap should be .* below 1, got 1.0"),
    ],
)
def test_errors(arguments, message):
    with pytest.raises(UserError, match=message):
        split_windows(**{"length": 812, "limit": 512, **arguments})
