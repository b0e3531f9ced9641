"""Detect the two columns of text pairs."""

import re
from collections.abc import Sequence

from weft.errors import UserError

NO_AGREEMENT = "-"  # label of pairs without annotator agreement (SNLI)
_MIN_DISTINCT_ANSWERS, _MIN_ANSWERS_FOUND = (
    3,
    0.9,
)  # distinct answers; fraction found in their passages
# Without case, spaces, hyphens and underscores: sentence_A is sentencea.
PAIR_COLUMN_NAMES = (
    *(
        ("text", "other"),
        ("premise", "hypothesis"),
        ("text", "hypothesis"),
        ("sentence1", "sentence2"),
    ),
    *(("question1", "question2"), ("sentencea", "sentenceb"), ("texta", "textb")),
    *(("text1", "text2"), ("questiona", "questionb"), ("query", "passage"), ("claim", "evidence")),
    *(("question", "context"), ("question", "passage"), ("question", "paragraph")),
    *(("#1string", "#2string"), ("sent1", "sent2"), ("s1", "s2")),
)


def find_text_pair(
    names: Sequence[str], text: int | None, other: int | None, taken: set[int | None]
) -> tuple[int | None, int | None]:
    """Return the columns of both texts as far as names tell; given columns stay."""
    plain = [_plain(name) for name in names]
    for first, second in PAIR_COLUMN_NAMES:
        if first not in plain or second not in plain:
            continue
        columns = plain.index(first), plain.index(second)
        if text in (None, columns[0]) and other in (None, columns[1]) and not taken & {*columns}:
            return columns
    return text, other


def infer_text_pair(
    names: Sequence[str], text: int | None, taken: set[int | None], file: str
) -> tuple[int, int]:
    """Return both text columns without help of names: the only two, or the only other one."""
    free = [column for column in range(len(names)) if column not in taken | {text}]
    if text is None and len(free) == 2:
        return free[0], free[1]
    if text is not None and len(free) == 1:
        return text, free[0]
    columns = f"found {list(names)}" if any(names) else f"there are {len(names)} unnamed columns"
    raise UserError(
        f"{file}: cannot tell which columns hold the two texts; {columns}. Pass --text and "
        "--text-pair with their columns."
    )


def are_extractive_answers(
    labels: Sequence[str], passages: Sequence[str], named_answer: bool
) -> bool:
    """Return whether labels are answers found in the second texts, ignoring case.

    If the column is named so (`named_answer`), most must be found; otherwise nearly all, as whole
    words and with several distinct values: class names rarely occur in their texts.
    """
    answered = [(a, p) for a, p in zip(labels, passages, strict=True) if a.strip()]
    if named_answer:
        return sum(a.casefold() in p.casefold() for a, p in answered) > len(answered) / 2
    if len({label for label, _ in answered}) < _MIN_DISTINCT_ANSWERS:
        return False
    whole = (re.search(rf"(?<!\w){re.escape(a)}(?!\w)", p, re.IGNORECASE) for a, p in answered)
    return sum(map(bool, whole)) >= _MIN_ANSWERS_FOUND * len(answered)


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter not in " _-")
