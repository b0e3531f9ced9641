"""Running text with its entities on coloured grounds, or with a tag under every word, as HTML."""

from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape

from weft.errors import UserError
from weft.report.drawings.tree_svg import side_by_side

COLOURS = 10  # --c0 to --c9 of the page
EMPTY = "_"  # of a column that says nothing of a word

Span = tuple[int, int, str]  # characters from, up to, label


def entities(
    text: str, spans: Sequence[Span], other: Sequence[Span] | None = None, names: Iterable[str] = ()
) -> Markup:
    """The text with a coloured ground under each span; those not in `other` are marked.

    Spans may lie inside others but not cross. `names` fixes which label has which colour.
    """
    colours = colouring([*names, *(span[2] for span in spans)])
    kept = None if other is None else set(other)
    out: list[Markup] = []
    ends: list[Span] = []  # open spans, the innermost last
    place = 0

    def close(until: int) -> None:
        nonlocal place
        while ends and ends[-1][1] <= until:
            span = ends.pop()
            out.append(escape(text[place : span[1]]))
            out.append(Markup("<small>{}</small></mark>").format(span[2]))
            place = span[1]

    for span in ordered(text, spans):
        close(span[0])
        out.append(escape(text[place : span[0]]))
        off = ' class="off"' if kept is not None and span not in kept else ""
        out.append(Markup(f'<mark{off} style="--own:{colours[span[2]]}">'))
        ends.append(span)
        place = span[0]
    close(len(text))
    out.append(escape(text[place:]))
    return Markup('<div class="tagged" style="white-space:pre-line">{}</div>').format(
        Markup("").join(out)
    )


def entities_beside(text: str, said: Sequence[Span], gold: Sequence[Span]) -> Markup:
    """What the model found and what is right, each marking what the other does not have."""
    names = [span[2] for span in (*gold, *said)]
    return side_by_side(entities(text, said, gold, names), entities(text, gold, said, names))


def tags(
    words: Sequence[str],
    labels: Sequence[str],
    gold: Sequence[str] = (),
    names: Iterable[str] = (),
) -> Markup:
    """Each word over its tag; where gold differs the right tag stands under the wrong one.

    A tag of several columns has a space between them; each has a line. `names` fixes which label
    has which colour.
    """
    for name, column in (("tags", labels), ("gold tags", gold)):
        if len(column) != len(words) and (len(column) or name == "tags"):
            raise UserError(f"{len(words)} words, but {len(column)} {name}: each word needs one.")
    colours = colouring(label.partition(" ")[0] for label in [*names, *labels, *gold])
    out = []
    for i, (word, label) in enumerate(zip(words, labels, strict=True)):
        wrong = bool(gold) and gold[i] != label
        own = colours[label.partition(" ")[0]]
        out.append(
            Markup(f'<span class="word{" off" if wrong else ""}" style="--own:{own}">')
            + escape(word)
            + _columns(label, gold[i] if wrong else label)
            + Markup("</span>")
        )
    return Markup('<div class="tagged">{}</div>').format(Markup(" ").join(out))


def parts(label: str, right: str) -> list[tuple[str, str]]:
    """The columns of a tag, each with the right one where it differs, or nothing."""
    said, true = label.split(" "), right.split(" ")
    if len(said) != len(true):
        return [(label, right)]
    return [(a, b if a != b else "") for a, b in zip(said, true, strict=True)]


def _columns(label: str, right: str) -> Markup:
    out = []
    for k, (said, true) in enumerate(parts(label, right)):
        if k and said == EMPTY and not true:
            continue
        out.append(_line("small" if not k else 'small class="more"', said))
        if true:
            out.append(_line('small class="right"', true))
    return Markup("").join(out)


def _line(tag: str, label: str) -> Markup:
    """One line under a word; features may be broken between each other."""
    return Markup(f"<{tag}>{{}}</small>").format(
        Markup("|<wbr>").join(map(escape, label.split("|")))
    )


def colouring(labels: Iterable[str]) -> dict[str, str]:
    """A colour of the page for each label, by the order of their names."""
    return {label: f"var(--c{i % COLOURS})" for i, label in enumerate(sorted(set(labels)))}


def ordered(text: str, spans: Sequence[Span]) -> list[Span]:
    """Spans from left to right, outer before inner; a UserError where they cannot be drawn."""
    out = sorted(spans, key=lambda span: (span[0], -span[1]))
    open_: list[Span] = []
    for span in out:
        start, end, label = span
        if not 0 <= start < end <= len(text):
            raise UserError(
                f"The span {start}–{end} ({label}) goes beyond the text of {len(text)} characters."
            )
        while open_ and open_[-1][1] <= start:
            open_.pop()
        if open_ and open_[-1][1] < end:
            raise UserError(
                f"The spans {open_[-1][0]}–{open_[-1][1]} ({open_[-1][2]}) and {start}–{end} "
                f"({label}) cross; only one inside the other can be drawn."
            )
        open_.append(span)
    return out
