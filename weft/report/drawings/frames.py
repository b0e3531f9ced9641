"""Predicates with their roles: a line of labelled spans for each, as HTML or for a terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup

from weft.report.drawings import tagged_text, terminal
from weft.report.drawings.tagged_text import Span
from weft.tasks.annotation import Annotation

if TYPE_CHECKING:
    from rich.text import Text

VERB = "V"


def role_spans(annotation: Annotation) -> dict[int, tuple[str, list[Span]]]:
    """Return the sense and the character spans of the roles of each predicate, by its word.

    V is named by the sense.
    """
    places = annotation.places or _places(annotation.words)
    out: dict[int, tuple[str, list[Span]]] = {}
    for word, sense, roles in annotation.frames:
        spans = [
            (places[start][0], places[end - 1][1], f"V {sense}" if label == VERB else label)
            for label, start, end in roles
        ]
        out[word] = sense, spans
    return out


def role_names(annotations: Sequence[Annotation]) -> list[str]:
    """Return the names of all roles, so that each keeps its colour; V and its sense is one."""
    return sorted({role[0] for one in annotations for _, _, roles in one.frames for role in roles})


def draw_frames(text: str, annotation: Annotation, other: Annotation | None = None) -> Markup:
    """Draw a line per predicate; roles that `other` lacks are marked."""
    mine, theirs = role_spans(annotation), role_spans(other) if other else {}
    names = role_names([annotation, *([other] if other else [])])
    lines = []
    for word, (_, spans) in mine.items():
        their_spans = theirs.get(word, ("", []))[1] if other else None
        lines.append(tagged_text.draw_entities(text, spans, their_spans, names))
    if not lines:
        lines = [tagged_text.draw_entities(text, ())]
    return Markup('<div class="frames">{}</div>').format(Markup("").join(lines))


def draw_frames_terminal(
    text: str, annotation: Annotation, other: Annotation | None = None
) -> "Text":
    """Draw a line per predicate; roles that `other` lacks are red."""
    from rich.text import Text

    mine, theirs = role_spans(annotation), role_spans(other) if other else {}
    lines = [
        terminal.draw_entities(text, spans, theirs.get(word, ("", []))[1] if other else None)
        for word, (_, spans) in mine.items()
    ]
    return Text("\n").join(lines or [Text(text)])


def _places(words: Sequence[str]) -> list[tuple[int, int]]:
    """Return the offsets of words joined by spaces."""
    out, start = [], 0
    for word in words:
        out.append((start, start + len(word)))
        start += len(word) + 1
    return out
