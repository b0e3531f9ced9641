"""Find the words of extracted tuples in their sentence."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from weft.text.annotation.frames import Extraction
from weft.text.annotation.word_tuples import IMPLIED, CharSpan, TupleArgument, WordTuple
from weft.tokens.pretokenizer import split_words


def align_tuple(
    words: Sequence[str], places: Sequence[CharSpan], one: Extraction
) -> WordTuple | None:
    """Return a tuple as words of its sentence, or None if it has words that are not there.

    With character offsets, those decide. Without, a part is where its words stand together, next
    to the predicate if there are several such places, or else where they stand in their order. Of
    the predicate, "is", "of" and "from" may be missing. No word is in two parts.
    """
    if one.spans:
        parts = [_words_in(places, spans) for spans in one.spans]
        covered, wanted = [words[k].casefold() for k in parts[0]], _split(one.predicate)
        missing = tuple(each for each in IMPLIED if wanted.count(each) > covered.count(each))
        return _without_overlaps(parts, one, missing)
    folded = [word.casefold() for word in words]
    predicate, implied = _find_predicate(folded, one.predicate)
    if predicate is None:
        return None
    near = predicate[0] if predicate else 0
    found = [_find(folded, _split(argument), near, {*predicate}) for argument in one.arguments]
    known = [part for part in found if part is not None]
    return (
        _without_overlaps([predicate, *known], one, implied) if len(known) == len(found) else None
    )


def _words_in(places: Sequence[CharSpan], spans: Sequence[CharSpan]) -> tuple[int, ...]:
    """Return the words that share characters with some spans; `places` are in order."""
    starts, ends = [a for a, _ in places], [b for _, b in places]
    found: set[int] = set()
    for start, end in spans:
        found.update(range(bisect_right(ends, start), bisect_left(starts, end)))
    return tuple(sorted(found))


def _without_overlaps(
    parts: Sequence[tuple[int, ...]], one: Extraction, implied: tuple[str, ...]
) -> WordTuple | None:
    """Return the tuple with each word in the first part that has it, empty arguments left out."""
    taken: set[int] = set()
    kept = []
    for part in parts:
        kept.append(tuple(word for word in part if word not in taken))
        taken.update(part)
    predicate, *arguments = kept
    if not (predicate or implied) or not arguments or not arguments[0]:
        return None
    confidence = 1.0 if one.confidence is None else one.confidence
    return WordTuple(
        predicate, tuple(TupleArgument(words) for words in arguments if words), confidence, implied
    )


def _split(text: str) -> list[str]:
    return [word.casefold() for word in split_words(text)[0]]


def _find_predicate(
    words: Sequence[str], text: str
) -> tuple[tuple[int, ...] | None, tuple[str, ...]]:
    """Return the words of a predicate, and those of it that are implied."""
    wanted = _split(text)
    found = _find(words, wanted, 0, set())
    if found is not None:
        return found, ()
    # "[is] president [of]": leave out what the sentence lacks, at the ends only.
    first, *others = IMPLIED
    starts = (0, 1) if wanted[:1] == [first] else (0,)
    ends = (
        (len(wanted), len(wanted) - 1) if wanted[-1:] and wanted[-1] in others else (len(wanted),)
    )
    for start, end in sorted(
        ((s, e) for s in starts for e in ends), key=lambda cut: cut[0] - cut[1]
    ):
        if start > end:
            continue
        rest = wanted[start:end]
        found = _find(words, rest, 0, set()) if rest else ()
        if found is not None:
            implied = [first] * start + wanted[end:]
            return found, tuple(word for word in IMPLIED if word in implied)
    return None, ()


def _find(
    words: Sequence[str], wanted: Sequence[str], near: int, taken: set[int]
) -> tuple[int, ...] | None:
    """Return where words stand together, the place nearest to a word, or else in their order."""
    if not wanted:
        return None
    size = len(wanted)
    together = [
        start
        for start in range(len(words) - size + 1)
        if words[start] == wanted[0] and list(words[start : start + size]) == list(wanted)
    ]
    free = [start for start in together if taken.isdisjoint(range(start, start + size))]
    if places := free or together:
        best = min(places, key=lambda start: abs(start - near))
        return tuple(range(best, best + size))
    return _find_in_order(words, wanted, taken)


def _find_in_order(
    words: Sequence[str], wanted: Sequence[str], taken: set[int]
) -> tuple[int, ...] | None:
    """Return the words in their order, from the start that keeps them closest together."""
    best: tuple[int, ...] | None = None
    for start, word in enumerate(words):
        if word != wanted[0] or start in taken:
            continue
        found = [start]
        for each in wanted[1:]:
            after = range(found[-1] + 1, len(words))
            place = next((k for k in after if words[k] == each and k not in taken), -1)
            if place < 0:
                break
            found.append(place)
        if len(found) == len(wanted) and (
            best is None or found[-1] - found[0] < best[-1] - best[0]
        ):
            best = tuple(found)
    return best
