"""Texts with highlighted words, as HTML for any page.

Words that support the target have the accent colour, words against it blue; stronger is darker.
The colours are mixed with the page background, so they work in light and dark mode.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup, escape

from weft.explain.explanation import Explanation, WordWeight

FOR_COLOUR, AGAINST_COLOUR = "var(--accent, #b4431f)", "#3a7fc4"
MAX_COLOUR_PERCENT = 62  # for the strongest word; the text stays readable
MIN_COLOURED_WEIGHT = 0.06  # of the strongest weight; no colour below
MAX_WHOLE_WORDS = 110  # of a text shown in full
N_CENTRES, CONTEXT_WORDS, MAX_CLOSED_GAP = (
    8,
    7,
    6,
)  # of a longer text: strong words, their context, gaps closed


@dataclass(frozen=True)
class Passage:
    """A run of shown words, and what is left out before it."""

    words: Sequence[WordWeight]
    skipped: int = 0  # words the model has read
    truncated: bool = False  # some words were not read
    read_separately: bool = False  # or were read in another window than the explained word


def highlight_words(explanation: Explanation) -> Markup:
    """Highlight each word by its weight; of a long text, only the important passages.

    The exact weight is in each word's tooltip. Truncated text is mentioned, not shown.
    """
    parts = [_render_passage(explanation, passage) for passage in select_passages(explanation)]
    body = Markup(" ").join(parts) if parts else Markup('<span style="opacity:.6">no words</span>')
    return Markup(
        '<span class="strip" style="line-height:1.9;overflow-wrap:anywhere;'
        'print-color-adjust:exact;-webkit-print-color-adjust:exact">{}</span>'
    ).format(body)


def select_passages(explanation: Explanation) -> list[Passage]:
    """Return the passages to show: the whole text, or the context of its strongest words."""
    words, text = explanation.words, explanation.text
    if not words:
        return []
    shown = _shown_ranges(words)
    breaks = [i for i, (a, b) in enumerate(pairwise(words), 1) if text[a.end : b.start].strip()]
    cuts = sorted({0, *breaks, *(i for i, _ in shown), *(j for _, j in shown), len(words)})
    windowed = explanation.at is not None  # a long sentence is predicted in windows
    out, skipped, truncated = [], 0, bool(text[: words[0].start].strip())
    for i, j in pairwise(cuts):
        truncated = truncated or i in breaks
        if any(a <= i and j <= b for a, b in shown):
            out.append(Passage(words[i:j], skipped, truncated, windowed))
            skipped, truncated = 0, False
        else:
            skipped += j - i
    truncated = truncated or bool(text[words[-1].end :].strip())
    if skipped or truncated:
        out.append(Passage((), skipped, truncated, windowed))
    return out


def colour_depth(word: WordWeight, strongest: float) -> float:
    """Return the colour depth of a word, from −1 (against) to 1 (for); 0 is none."""
    depth = word.weight / strongest if strongest else 0.0
    return depth if abs(depth) >= MIN_COLOURED_WEIGHT else 0.0


def _shown_ranges(words: Sequence[WordWeight]) -> list[tuple[int, int]]:
    """Return the disjoint ranges of words to show, in order."""
    if len(words) <= MAX_WHOLE_WORDS:
        return [(0, len(words))]
    strong = sorted(range(len(words)), key=lambda i: -abs(words[i].weight))[:N_CENTRES]
    out: list[tuple[int, int]] = []
    for i in sorted(strong):
        first, last = max(0, i - CONTEXT_WORDS), min(len(words), i + CONTEXT_WORDS + 1)
        first = 0 if first <= MAX_CLOSED_GAP else first
        last = len(words) if len(words) - last <= MAX_CLOSED_GAP else last
        if out and first - out[-1][1] <= MAX_CLOSED_GAP:
            out[-1] = (out[-1][0], max(last, out[-1][1]))
        else:
            out.append((first, last))
    return out


def describe_gap(passage: Passage) -> str:
    """Return '… 312 words …', with a note on truncated ones; "" if nothing is left out."""
    if not passage.skipped and not passage.truncated:
        return ""
    count = f"{passage.skipped:,} word{'s' if passage.skipped != 1 else ''}"
    if passage.truncated:
        how = "read separately" if passage.read_separately else "not read"
        return f"… {count}, then some {how} …" if passage.skipped else f"… {how} …"
    return f"… {count} …"


def _render_passage(explanation: Explanation, passage: Passage) -> Markup:
    strongest = max(abs(word.weight) for word in explanation.words)
    out = []
    if gap := describe_gap(passage):
        out.append(Markup('<i style="opacity:.6;font-style:normal">{}</i> ').format(gap))
    end = None
    for word in passage.words:
        if end is not None:
            out.append(escape(explanation.text[end : word.start]))
        explained = explanation.at is not None and word.start == explanation.at.start
        out.append(
            _render_word(explanation.text[word.start : word.end], word, strongest, explained)
        )
        end = word.end
    return Markup("").join(out)


def _render_word(text: str, word: WordWeight, strongest: float, explained: bool) -> Markup:
    """Render one word with its highlight; the explained word is underlined."""
    colour = colour_depth(word, strongest)
    style = ["border-bottom:2px solid var(--ink)"] if explained else []
    if colour:
        background = f"color-mix(in srgb, {FOR_COLOUR if colour > 0 else AGAINST_COLOUR} "
        background += f"{round(MAX_COLOUR_PERCENT * abs(colour))}%, transparent)"
        style.append(f"background:{background};border-radius:3px;padding:.08em .1em")
    if not style:
        return Markup('<span title="{:+.3g}">{}</span>').format(word.weight, text)
    return Markup('<span title="{:+.3g}" style="{}">{}</span>').format(
        word.weight, ";".join(style), text
    )
