"""Two texts in a row: the names of columns that say so."""

from collections.abc import Sequence

from weft.errors import UserError

# By what they are without case, spaces and strokes: sentence_A is sentencea.
TWO_NAMES = (
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


def two_texts(
    names: Sequence[str], text: int | None, other: int | None, taken: set[int | None]
) -> tuple[int | None, int | None]:
    """Where both texts stand, as far as the names tell; what is known already stays as it is."""
    plain = [_plain(name) for name in names]
    for first, second in TWO_NAMES:
        if first not in plain or second not in plain:
            continue
        places = plain.index(first), plain.index(second)
        if text in (None, places[0]) and other in (None, places[1]) and not taken & {*places}:
            return places
    return text, other


def only_two(
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
        "and --other with their columns."
    )


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter not in " _-")
