"""Truncation policies: which tokens of a text longer than the limit are read."""

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from weft.errors import UserError, unknown_name
from weft.jsonio import Json

Policy = Literal["error", "head", "tail", "head+tail", "windows"]
POLICIES: tuple[Policy, ...] = get_args(Policy)
DEFAULT_OVERLAP = 0.25  # of a window that it shares with the next
WINDOW_CONTEXT = 1 / 8  # of a window of words: steps before and after them, read as context
DEFAULT_MAX_CHARACTERS = 100_000  # per text, where a model has no limit


def split_windows(
    length: int, limit: int, policy: Policy, overlap: float = DEFAULT_OVERLAP, where: str = ""
) -> list[list[slice]]:
    """Return the windows of a text of `length` tokens, each at most `limit` tokens in all.

    A window is a list of slices in the order of the text: two for "head+tail", else one. Only
    "windows" gives several; neighbours share `overlap` of the limit, the last two maybe more.
    """
    if policy not in POLICIES:
        raise unknown_name("truncation", policy, POLICIES, "data.truncate")
    if limit < 1:
        raise UserError(f"data.max_tokens should be 1 or more, got {limit}.")
    if not 0 <= overlap < 1:
        raise UserError(f"data.overlap should be at least 0 and below 1, got {overlap}.")
    if length <= limit:
        return [[slice(0, length)]]
    if policy == "head":
        return [[slice(0, limit)]]
    if policy == "tail":
        return [[slice(length - limit, length)]]
    if policy == "head+tail":
        tail = limit // 2
        slices = [slice(0, limit - tail), slice(length - tail, length)]
        return [[part for part in slices if part.start < part.stop]]
    if policy == "windows":
        return [[slice(start, start + limit)] for start in _window_starts(length, limit, overlap)]
    raise UserError(
        f"{where or 'A text'} has {length} tokens, the limit is {limit}. "
        f"Set data.truncate to head, tail, head+tail or windows, or raise data.max_tokens."
    )


def shorten_text(text: str, most: int, policy: Policy, where: str = "") -> tuple[str, int, int]:
    """A text of at most `most` characters, and where how many of the original were left out.

    0 reads all. "windows" are made of tokens, so here it means "head".
    """
    left = len(text) - most
    if not most or left <= 0:
        return text, 0, 0
    if policy == "error":
        raise UserError(
            f"{where or 'A text'} has {len(text):,} characters, the limit is {most:,}. Set "
            "data.truncate to head, tail or head+tail, or raise data.max_characters."
        )
    if policy == "tail":
        return text[left:], 0, left
    if policy == "head+tail":
        head = most - most // 2
        return text[:head] + text[head + left :], head, left
    return text[:most], most, left


def load_length_limits(data: Mapping[str, Json]) -> tuple[int, Policy]:
    """Return a saved model's limit of characters per text and its truncation policy."""
    characters, policy = (
        data.get("max_characters", DEFAULT_MAX_CHARACTERS),
        data.get("truncate", "head"),
    )
    if type(characters) is not int or characters < 0:
        raise UserError(f"data.max_characters should be 0 or more, got {characters!r}.")
    for known in POLICIES:
        if policy == known:
            return characters, known
    raise unknown_name("truncation", str(policy), POLICIES, "data.truncate")


def coverage(length: int, windows: Sequence[Sequence[slice]]) -> float:
    """The share of the tokens that some window reads; an empty text is read in full."""
    if not length:
        return 1.0
    read, reached = 0, 0
    for part in sorted((p for window in windows for p in window), key=lambda p: p.start):
        start, stop = max(part.start, reached), min(part.stop, length)
        if start < stop:
            read += stop - start
            reached = stop
    return read / length


def _window_starts(length: int, limit: int, overlap: float) -> list[int]:
    step = max(1, limit - round(overlap * limit))
    starts = list(range(0, length - limit, step))
    return [*starts, length - limit]  # the last window is full: it reaches back, not past the end


def split_pair_windows(
    first: int,
    second: int,
    limit: int,
    policy: Policy,
    where: str = "",
    overlap: float = DEFAULT_OVERLAP,
) -> list[tuple[list[slice], list[slice]]]:
    """Return the windows of a text pair with these token counts, together at most `limit`.

    The longer one is shortened first, until both are equally long, as `transformers` does it. With
    "windows" the first is read whole, or its first half of the limit, with every window of the
    second.
    """
    if first + second <= limit:
        return [([slice(0, first)], [slice(0, second)])]
    if policy == "windows":
        kept = min(first, max(limit // 2, limit - second))
        rest = split_windows(second, max(limit - kept, 1), policy, overlap, where)
        return [([slice(0, kept)], window) for window in rest]
    short = min(first, second, limit // 2)
    a = limit - short if first > second else short
    shares = (a, limit - a)
    if policy == "error":
        split_windows(first + second, limit, policy, where=where)
    a, b = (max(share, 1) for share in shares)
    return [(split_windows(first, a, policy)[0], split_windows(second, b, policy)[0])]


def split_word_windows(
    sizes: Sequence[int], most: int, context: int | None = None
) -> list[tuple[int, int, int, int]]:
    """Cut words of some sizes into windows of at most `most` steps.

    Each is (start, stop, first, last): words from start to stop are read, up to `context` steps, an
    eighth of a window by default, beside those from first to last, whose vectors are kept. Every
    word is kept once.
    """
    context = int(WINDOW_CONTEXT * most) if context is None else context
    out, first = [], 0
    words = len(sizes)
    while words and sizes[words - 1] == 0:  # padding
        words -= 1
    while first < words:
        last, length = first, 0
        capacity = most - (context if first else 0) - context
        while last < words and (last == first or length + sizes[last] <= capacity):
            length += sizes[last]
            last += 1
        start, before = first, 0
        while start and before + sizes[start - 1] <= min(context, most - length):
            start -= 1
            before += sizes[start]
        stop, after = last, 0
        while stop < words and after + sizes[stop] <= most - length - before:
            after += sizes[stop]
            stop += 1
        out.append((start, stop, first, last))
        first = last
    return out
