"""Coreference chains in the text, an entity by its colour and number: HTML or terminal."""

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from weft.tasks.annotation import Annotation

if TYPE_CHECKING:
    from rich.text import Text

GOLDEN_ANGLE = 137.5  # degrees between the hues of neighbours, so that they differ
COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")


def nest_mentions(annotation: Annotation) -> Iterator[tuple[str, str]]:
    """Yield ("word", text), ("open", entity) and ("close", entity), properly nested.

    A mention that crosses another one is left out.
    """
    opens: dict[int, list[tuple[str, int]]] = {}
    stack: list[tuple[str, int]] = []
    for entity, start, end in sorted(annotation.mentions, key=lambda one: (one[1], -one[2])):
        opens.setdefault(start, []).append((entity, end))
    for number, word in enumerate(annotation.words):
        for entity, end in opens.get(number, ()):
            if not stack or end <= stack[-1][1]:
                stack.append((entity, end))
                yield "open", entity
        yield "word", word
        while stack and stack[-1][1] == number + 1:
            yield "close", stack.pop()[0]


def draw_chains(annotation: Annotation) -> Markup:
    """Draw the words with a coloured mark around each mention."""
    parts: list[str] = []
    gaps = iter(_gaps(annotation))
    gap = ""
    for kind, value in nest_mentions(annotation):
        if kind == "close":
            parts.append(f"<sub>{escape(value)}</sub></mark>")
            continue
        parts.append(gap)
        gap = next(gaps) if kind == "word" else ""
        if kind == "open":
            hue = _hash_entity(value) * GOLDEN_ANGLE % 360
            parts.append(f'<mark style="--own:hsl({hue:.0f} 70% 45%)">')
        else:
            parts.append(str(escape(value)))
    return Markup('<div class="chains">{}</div>').format(Markup("".join(parts)))


def draw_chains_terminal(annotation: Annotation) -> "Text":
    """Draw the words with a coloured bracket around each mention, and the number of its entity."""
    from rich.text import Text

    out, gap = Text(), ""
    for kind, value in nest_mentions(annotation):
        if kind == "close":
            out.append(f"]{value}", COLOURS[_hash_entity(value) % len(COLOURS)])
            continue
        out.append(gap)
        gap = " " if kind == "word" else ""
        if kind == "open":
            out.append("[", COLOURS[_hash_entity(value) % len(COLOURS)])
        else:
            out.append(value)
    return out


def _gaps(annotation: Annotation) -> list[str]:
    """Return what stands between each word and the next: a space, or nothing as in the text."""
    count = len(annotation.words)
    if not annotation.text or len(annotation.places) != count:
        return [" "] * count
    pairs = pairwise(annotation.places)
    return [*(" " * (end < start) for (_, end), (start, _) in pairs), ""]


def _hash_entity(entity: str) -> int:
    return int(entity) if entity.isdecimal() else sum(map(ord, entity))
