"""Two texts in a row: the names of columns that say so."""

import re
from collections.abc import Sequence

from weft.errors import UserError

NO_AGREEMENT = "-"  # the label of two texts on which people did not agree, as SNLI has it
_MIN_DISTINCT_ANSWERS, _MIN_ANSWERS_FOUND = (
    3,
    0.9,
)  # different answers, and the share of them that stand in their passages
# By what they are without case, spaces and strokes: sentence_A is sentencea.
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
    """Where both texts stand, as far as the names tell; what is known already stays as it is."""
    plain = [_plain(name) for name in names]
    for first, second in PAIR_COLUMN_NAMES:
        if first not in plain or second not in plain:
            continue
        places = plain.index(first), plain.index(second)
        if text in (None, places[0]) and other in (None, places[1]) and not taken & {*places}:
            return places
    return text, other


def infer_text_pair(
    names: Sequence[str], text: int | None, taken: set[int | None], file: str
) -> tuple[int, int]:
    """Both texts where names say nothing: the only two columns, or the only one beside the text."""
    free = [place for place in range(len(names)) if place not in taken | {text}]
    if text is None and len(free) == 2:
        return free[0], free[1]
    if text is not None and len(free) == 1:
        return text, free[0]
    told = f"found {list(names)}" if any(names) else f"there are {len(names)} columns, unnamed"
    raise UserError(
        f"{file}: two texts are asked for, and nothing says where they stand; {told}. Pass --text "
        "and --text-pair with their columns."
    )


def are_extractive_answers(
    labels: Sequence[str], passages: Sequence[str], named_answer: bool
) -> bool:
    """Whether labels are answers that stand in the second texts, whatever their case.

    Most do where the column is called so: `told`. Else nearly all must, as whole words, and be
    several: classes seldom stand in what they are said of.
    """
    some = [(a, p) for a, p in zip(labels, passages, strict=True) if a.strip()]
    if named_answer:
        return sum(a.casefold() in p.casefold() for a, p in some) > len(some) / 2
    if len({label for label, _ in some}) < _MIN_DISTINCT_ANSWERS:
        return False
    whole = (re.search(rf"(?<!\w){re.escape(a)}(?!\w)", p, re.IGNORECASE) for a, p in some)
    return sum(map(bool, whole)) >= _MIN_ANSWERS_FOUND * len(some)


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter not in " _-")
