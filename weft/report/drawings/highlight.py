"""A text with its words on coloured grounds, as HTML to stand in any of our pages.

Words for the target stand on the page's accent, words against it on blue, the stronger the deeper;
the colours lie over the page's own paper, so they serve in light and in dark.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup, escape

from weft.explain.explanation import Explanation, Word

FOR, AGAINST = "var(--accent, #b4431f)", "#3a7fc4"
DEEPEST = 62  # percent of colour under the strongest word; the ink stays readable on it
FAINTEST = 0.06  # of the strongest weight; below, no colour at all
WHOLE = 110  # words of a text that is shown in full
CENTRES, AROUND, BRIDGE = 8, 7, 6  # of a longer one: strong words, words beside each, gaps closed


@dataclass(frozen=True)
class Passage:
    """A run of words that is shown, and what was left out before it."""

    words: Sequence[Word]
    skipped: int = 0  # words of the text that the model read
    unread: bool = False  # and some that it did not
    apart: bool = False  # or only with other words, not with the one that is explained


def strip(explanation: Explanation) -> Markup:
    """The text with each word on a ground of its weight; of a long text the passages that matter.

    The exact weight is in each word's title. What the model did not read is named, not shown.
    """
    parts = [_passage(explanation, passage) for passage in passages(explanation)]
    body = Markup(" ").join(parts) if parts else Markup('<span style="opacity:.6">no words</span>')
    return Markup(
        '<span class="strip" style="line-height:1.9;overflow-wrap:anywhere;'
        'print-color-adjust:exact;-webkit-print-color-adjust:exact">{}</span>'
    ).format(body)


def passages(explanation: Explanation) -> list[Passage]:
    """What to show of a text: all of it, or the surroundings of its strongest words."""
    words, text = explanation.words, explanation.text
    if not words:
        return []
    shown = _shown(words)
    breaks = [i for i, (a, b) in enumerate(pairwise(words), 1) if text[a.end : b.start].strip()]
    cuts = sorted({0, *breaks, *(i for i, _ in shown), *(j for _, j in shown), len(words)})
    apart = explanation.at is not None  # a long sentence is answered in stretches
    out, skipped, unread = [], 0, bool(text[: words[0].start].strip())
    for i, j in pairwise(cuts):
        unread = unread or i in breaks
        if any(a <= i and j <= b for a, b in shown):
            out.append(Passage(words[i:j], skipped, unread, apart))
            skipped, unread = 0, False
        else:
            skipped += j - i
    unread = unread or bool(text[words[-1].end :].strip())
    if skipped or unread:
        out.append(Passage((), skipped, unread, apart))
    return out


def depth(word: Word, strongest: float) -> float:
    """How deep a word's colour is, from −1 (against) to 1 (for); 0 is none."""
    share = word.weight / strongest if strongest else 0.0
    return share if abs(share) >= FAINTEST else 0.0


def _shown(words: Sequence[Word]) -> list[tuple[int, int]]:
    """Ranges of words to show, in order, none touching another."""
    if len(words) <= WHOLE:
        return [(0, len(words))]
    strong = sorted(range(len(words)), key=lambda i: -abs(words[i].weight))[:CENTRES]
    out: list[tuple[int, int]] = []
    for i in sorted(strong):
        first, last = max(0, i - AROUND), min(len(words), i + AROUND + 1)
        first = 0 if first <= BRIDGE else first
        last = len(words) if len(words) - last <= BRIDGE else last
        if out and first - out[-1][1] <= BRIDGE:
            out[-1] = (out[-1][0], max(last, out[-1][1]))
        else:
            out.append((first, last))
    return out


def left_out(passage: Passage) -> str:
    """'… 312 words …', and whether the model read them; nothing where nothing is missing."""
    if not passage.skipped and not passage.unread:
        return ""
    count = f"{passage.skipped:,} word{'s' if passage.skipped != 1 else ''}"
    if passage.unread:
        how = "read apart" if passage.apart else "not read"
        return f"… {count}, then some {how} …" if passage.skipped else f"… {how} …"
    return f"… {count} …"


def _passage(explanation: Explanation, passage: Passage) -> Markup:
    strongest = max(abs(word.weight) for word in explanation.words)
    out = []
    if gap := left_out(passage):
        out.append(Markup('<i style="opacity:.6;font-style:normal">{}</i> ').format(gap))
    before = None
    for word in passage.words:
        if before is not None:
            out.append(escape(explanation.text[before : word.start]))
        asked = explanation.at is not None and word.start == explanation.at.start
        out.append(_word(explanation.text[word.start : word.end], word, strongest, asked))
        before = word.end
    return Markup("").join(out)


def _word(text: str, word: Word, strongest: float, asked: bool) -> Markup:
    """One word on its ground; the one that is explained is underlined."""
    colour = depth(word, strongest)
    style = ["border-bottom:2px solid var(--ink)"] if asked else []
    if colour:
        ground = f"color-mix(in srgb, {FOR if colour > 0 else AGAINST} "
        ground += f"{round(DEEPEST * abs(colour))}%, transparent)"
        style.append(f"background:{ground};border-radius:3px;padding:.08em .1em")
    if not style:
        return Markup('<span title="{:+.3g}">{}</span>').format(word.weight, text)
    return Markup('<span title="{:+.3g}" style="{}">{}</span>').format(
        word.weight, ";".join(style), text
    )
