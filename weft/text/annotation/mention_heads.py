"""Head words of mentions: from constituents if a file has them, else by a rule for English.

The head is the last word before the first post-modifier that is in no smaller mention: "president"
in "the new president of France", "wife" in "his wife". Post-modifiers begin at a PP, a clause or
punctuation; without a tree, at a preposition, a relative pronoun or punctuation. No two mentions
have the same head: smaller ones choose first.
"""

from collections.abc import Iterable, Mapping, Sequence

WordSpan = tuple[int, int]  # words from, up to

POST_MODIFIERS = frozenset((
    "about", "above", "across", "after", "against", "along", "among", "around", "as", "at",
    "before", "behind", "below", "beneath", "beside", "besides", "between", "beyond", "but", "by",
    "concerning", "despite", "during", "except", "for", "from", "in", "inside", "into", "like",
    "near", "of", "off", "on", "onto", "opposite", "out", "outside", "over", "past", "per",
    "regarding", "since", "than", "that", "through", "throughout", "to", "toward", "towards",
    "under", "underneath", "until", "up", "upon", "via", "what", "when", "where", "which",
    "while", "who", "whom", "whose", "why", "with", "within", "without",
))  # fmt: skip
POSSESSIVES = frozenset({"'s", "’s", "'", "’"})
CLAUSES = frozenset({"PP", "SBAR", "SBARQ", "S", "SQ", "SINV", "VP", "RRC", "PRN", "WHPP"})


def find_stops(words: Sequence[str], constituents: Iterable[tuple[str, int, int]] = ()) -> set[int]:
    """Return the words at which a post-modifier may begin.

    `constituents` are (label, start, end) of a tree over the words, if there is one.
    """
    phrases = list(constituents)
    stops = {i for i, word in enumerate(words) if not any(map(str.isalnum, word))}
    if phrases:
        return stops | {start for label, start, _ in phrases if label.split("-")[0] in CLAUSES}
    return stops | {i for i, word in enumerate(words) if word.lower() in POST_MODIFIERS}


def find_heads(
    words: Sequence[str],
    spans: Iterable[WordSpan],
    constituents: Iterable[tuple[str, int, int]] = (),
) -> Mapping[WordSpan, int]:
    """Return the head of each span; a span whose words are all taken has none."""
    stops = find_stops(words, constituents)
    ordered = sorted(set(spans), key=lambda span: (span[1] - span[0], span))
    inside: dict[WordSpan, set[int]] = {}  # words of smaller mentions
    out: dict[WordSpan, int] = {}
    taken: set[int] = set()
    for number, (start, end) in enumerate(ordered):
        covered = inside.setdefault((start, end), set())
        for a, b in ordered[:number]:
            if start <= a and b <= end and (a, b) != (start, end):
                covered.update(range(a, b))
        stop = next((i for i in range(start + 1, end) if i in stops), end)
        best = sorted(
            (i for i in range(start, end) if i not in taken),
            key=lambda i: (_is_bare(words[i]), i in covered, i >= stop, i if i >= stop else -i),
        )
        if best:
            out[start, end] = best[0]
            taken.add(best[0])
    return out


def _is_bare(word: str) -> bool:
    """Return whether a word is punctuation or a possessive mark, which is no head if others are."""
    return word in POSSESSIVES or not any(map(str.isalnum, word))
