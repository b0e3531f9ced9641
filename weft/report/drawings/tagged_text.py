"""Running text with highlighted entities, or with a tag under every word, as HTML."""

from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape

from weft.errors import UserError
from weft.report.drawings.tree_svg import side_by_side
from weft.tasks.annotation import Annotation

N_COLOURS = 10  # --c0 to --c9 of the page
EMPTY_COLUMN = "_"  # a column without a value
HIGH_COLOUR, LOW_COLOUR = "var(--accent, #b4431f)", "#3a7fc4"
MAX_NUMBER_COLOUR = 62  # per cent, of numbers far from the mean; the text stays readable

Span = tuple[int, int, str]  # start, end, label


def draw_entities(
    text: str, spans: Sequence[Span], other: Sequence[Span] | None = None, names: Iterable[str] = ()
) -> Markup:
    """Draw a text with highlighted spans; spans not in `other` are marked.

    Spans may nest but not cross. `names` fixes the colours of labels.
    """
    colours = assign_colours([*names, *(span[2] for span in spans)])
    kept = None if other is None else set(other)
    out: list[Markup] = []
    ends: list[Span] = []  # open spans, the innermost last
    offset = 0

    def close(until: int) -> None:
        nonlocal offset
        while ends and ends[-1][1] <= until:
            span = ends.pop()
            out.append(escape(text[offset : span[1]]))
            out.append(Markup("<small>{}</small></mark>").format(span[2]))
            offset = span[1]

    for span in sort_spans(text, spans):
        close(span[0])
        out.append(escape(text[offset : span[0]]))
        off = ' class="off"' if kept is not None and span not in kept else ""
        out.append(Markup(f'<mark{off} style="--own:{colours[span[2]]}">'))
        ends.append(span)
        offset = span[0]
    close(len(text))
    out.append(escape(text[offset:]))
    return Markup('<div class="tagged" style="white-space:pre-line">{}</div>').format(
        Markup("").join(out)
    )


def draw_entities_side_by_side(
    text: str, predicted: Sequence[Span], gold: Sequence[Span]
) -> Markup:
    """Draw predicted and gold spans, each with those missing from the other marked."""
    names = [span[2] for span in (*gold, *predicted)]
    return side_by_side(
        draw_entities(text, predicted, gold, names), draw_entities(text, gold, predicted, names)
    )


def draw_tags(
    words: Sequence[str],
    labels: Sequence[str],
    gold: Sequence[str] = (),
    names: Iterable[str] = (),
) -> Markup:
    """Draw each word over its tag, with the correct tag below a wrong one.

    Space-separated tag columns get one line each. `names` fixes the colours of labels.
    """
    for name, column in (("tags", labels), ("gold tags", gold)):
        if len(column) != len(words) and (len(column) or name == "tags"):
            raise UserError(f"{len(words)} words but {len(column)} {name}: give one per word.")
    colours = assign_colours(label.partition(" ")[0] for label in [*names, *labels, *gold])
    out = []
    for i, (word, label) in enumerate(zip(words, labels, strict=True)):
        wrong = bool(gold) and gold[i] != label
        colour = colours[label.partition(" ")[0]]
        out.append(
            Markup(f'<span class="word{" off" if wrong else ""}" style="--own:{colour}">')
            + escape(word)
            + _render_columns(label, gold[i] if wrong else label)
            + Markup("</span>")
        )
    return Markup('<div class="tagged">{}</div>').format(Markup(" ").join(out))


def draw_numbers(predicted: Annotation, gold: Annotation | None = None) -> Markup:
    """Draw a heat strip: each word over its number, coloured by it, with the gold number below.

    High numbers have the accent colour, low ones blue; words in another band than gold are marked.
    """
    out = []
    for i, (word, number) in enumerate(zip(predicted.words, predicted.tags, strict=True)):
        score = predicted.scores[i]
        percent = round(MAX_NUMBER_COLOUR * abs(score))
        own = HIGH_COLOUR if score > 0 else LOW_COLOUR
        colour = f"color-mix(in srgb, {own} {percent}%, transparent)"
        known = gold is not None and gold.relations[i] != ""
        wrong = known and gold is not None and gold.relations[i] != predicted.relations[i]
        out.append(
            Markup(
                f'<span class="word{" off" if wrong else ""}" '
                f'style="--own:var(--ink);background:{colour};border-radius:3px;padding:0 .15em">'
            )
            + escape(word)
            + _render_line("small", number)
            + (_render_line('small class="more"', gold.tags[i]) if known and gold else Markup(""))
            + Markup("</span>")
        )
    return Markup('<div class="tagged">{}</div>').format(Markup(" ").join(out))


def split_columns(label: str, right: str) -> list[tuple[str, str]]:
    """Return the columns of a tag, each with the correct value if it differs, else ""."""
    predicted, gold = label.split(" "), right.split(" ")
    if len(predicted) != len(gold):
        return [(label, right)]
    return [(a, b if a != b else "") for a, b in zip(predicted, gold, strict=True)]


def _render_columns(label: str, right: str) -> Markup:
    out = []
    for k, (predicted, gold) in enumerate(split_columns(label, right)):
        if k and predicted == EMPTY_COLUMN and not gold:
            continue
        out.append(_render_line("small" if not k else 'small class="more"', predicted))
        if gold:
            out.append(_render_line('small class="right"', gold))
    return Markup("").join(out)


def _render_line(tag: str, label: str) -> Markup:
    """Render one line under a word; features may break between each other."""
    return Markup(f"<{tag}>{{}}</small>").format(
        Markup("|<wbr>").join(map(escape, label.split("|")))
    )


def assign_colours(labels: Iterable[str]) -> dict[str, str]:
    """Return a colour of the page for each label, in alphabetical order."""
    return {label: f"var(--c{i % N_COLOURS})" for i, label in enumerate(sorted(set(labels)))}


def sort_spans(text: str, spans: Sequence[Span]) -> list[Span]:
    """Sort spans from left to right, outer before inner; raise UserError for crossing spans."""
    out = sorted(spans, key=lambda span: (span[0], -span[1]))
    open_: list[Span] = []
    for span in out:
        start, end, label = span
        if not 0 <= start < end <= len(text):
            raise UserError(
                f"The span {start}–{end} ({label}) is outside the text of {len(text)} characters."
            )
        while open_ and open_[-1][1] <= start:
            open_.pop()
        if open_ and open_[-1][1] < end:
            raise UserError(
                f"The spans {open_[-1][0]}–{open_[-1][1]} ({open_[-1][2]}) and {start}–{end} "
                f"({label}) cross; only nested spans can be drawn."
            )
        open_.append(span)
    return out
