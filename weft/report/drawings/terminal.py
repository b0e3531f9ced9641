"""The same drawings for a terminal: entities, tags, dependencies and trees as rich text."""

from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from weft.report.drawings.tagged_text import Span, ordered, parts

STYLES = (
    "cyan",
    "yellow",
    "green",
    "magenta",
    "blue",
    "bright_red",
    "bright_cyan",
    "bright_yellow",
)
WRONG = "bold red"
UP, DOWN, LEFT, RIGHT = 1, 2, 4, 8
LINES = " ╵╷│╴╯╮┤╶╰╭├─┴┬┼"  # by the ways that lead out of a cell
MOST = 0.15  # a score nearer to zero is neither positive nor negative


def entities(text: str, spans: Sequence[Span], other: Sequence[Span] | None = None) -> Text:
    """The text with each span in brackets and colour, its label behind; not in `other` is red."""
    names = sorted({span[2] for span in (*spans, *(other or ()))})
    out, place = Text(), 0
    ends: list[Span] = []

    def close(until: int) -> None:
        nonlocal place
        while ends and ends[-1][1] <= until:
            span = ends.pop()
            style = WRONG if other is not None and span not in other else _style(span[2], names)
            out.append(text[place : span[1]], style)
            out.append(f" {span[2]}]", f"{style} dim" if style != WRONG else style)
            place = span[1]

    for span in ordered(text, spans):
        close(span[0])
        out.append(text[place : span[0]])
        out.append("[", WRONG if other is not None and span not in other else "dim")
        ends.append(span)
        place = span[0]
    close(len(text))
    out.append(text[place:])
    return out


def tags(words: Sequence[str], labels: Sequence[str], gold: Sequence[str] = ()) -> Text:
    """word/TAG after word/TAG; a wrong one in red with the right one behind.

    A tag of several columns has a space between them, and here a stroke.
    """
    names = sorted({label.partition(" ")[0] for label in (*labels, *gold)})
    out = Text()
    for i, (word, label) in enumerate(zip(words, labels, strict=True)):
        out.append(" " if i else "").append(word)
        for k, (said, right) in enumerate(parts(label, gold[i] if gold else label)):
            usual = "dim" if k else _style(label.partition(" ")[0], names)
            out.append(f"/{said}", WRONG if right else usual)
            if right:
                out.append(f"→{right}", "green")
    return out


def dependencies(
    words: Sequence[str],
    heads: Sequence[int],
    labels: Sequence[str],
    gold_heads: Sequence[int] = (),
    gold_labels: Sequence[str] = (),
) -> Text:
    """One word a line, its arcs in box characters at the left; a wrong one in red with the right.

    An arrow ▸ marks the dependent's end. Arcs nest: the shortest lie nearest to the words.
    """
    lanes = _lanes(heads)
    depth = max(lanes, default=0) + 1 if words else 0
    grid = [[0] * (2 * depth + 1) for _ in words]
    for step, head in enumerate(heads):
        if head:
            _arc(grid, step, head - 1, 2 * (depth - 1 - lanes[step]))
    longest = max((cell_len(word) for word in words), default=0)
    out = Text()
    for i, word in enumerate(words):
        gold = (gold_heads[i], gold_labels[i]) if gold_heads else (heads[i], labels[i])
        wrong = gold != (heads[i], labels[i])
        out.append("\n" if i else "").append("".join(LINES[cell] for cell in grid[i]), "dim")
        out.append("▸ " if heads[i] else "● ", WRONG if wrong else "cyan")
        out.append(word + " " * (longest - cell_len(word) + 2))
        out.append(f"{labels[i]} ", WRONG if wrong else "cyan")
        out.append(f"← {words[heads[i] - 1]}" if heads[i] else "(root)", "dim")
        if wrong:
            right = words[gold[0] - 1] if gold[0] else "(root)"
            out.append(f"   should be {gold[1]} ← {right}", "green")
    return out


def tree(
    words: Sequence[str],
    parents: Sequence[int],
    labels: Sequence[str],
    scores: Sequence[float] = (),
    gold: Sequence[str] = (),
) -> Text:
    """An indented tree, the root first, coloured by scores; what differs from gold in red."""
    below: list[list[int]] = [[] for _ in words]
    for node, up in enumerate(parents):
        if up >= 0:
            below[up].append(node)
    out = Text()
    stack = [(root, "", "") for root in reversed(range(len(parents))) if parents[root] < 0]
    while stack:
        node, lead, branch = stack.pop()
        out.append("\n" if out else "").append(lead + branch, "dim")
        wrong = bool(gold) and gold[node] not in ("", labels[node])
        out.append(labels[node] or "·", WRONG if wrong else _shade(scores[node] if scores else 0.0))
        if wrong:
            out.append(f"→{gold[node]}", "green")
        out.append(f" {words[node]}" if words[node] else "")
        deeper = lead + {"": "", "├ ": "│ ", "└ ": "  "}[branch]
        last = below[node][-1:]
        stack.extend(
            (child, deeper, "└ " if [child] == last else "├ ") for child in reversed(below[node])
        )
    return out


def brackets(
    words: Sequence[str], parents: Sequence[int], labels: Sequence[str], wrong: Sequence[bool] = ()
) -> Text:
    """The tree on one line in brackets, (S (NP …) …), wrong labels in red."""
    made: list[Text] = [Text() for _ in words]
    out = Text()
    for node, up in enumerate(parents):  # children come before their parent
        style = WRONG if wrong and wrong[node] else "cyan"
        own = Text("(").append(labels[node], style)
        own.append(f" {words[node]}") if words[node] else own.append_text(made[node])
        own.append(")")
        if up >= 0:
            made[up].append(" ").append_text(own)
        else:
            out.append(" " if out else "").append_text(own)
        made[node] = Text()
    return out


def _style(label: str, names: Sequence[str]) -> str:
    return STYLES[names.index(label) % len(STYLES)]


def _shade(score: float) -> str:
    return "" if abs(score) < MOST else "yellow" if score > 0 else "blue"


def _lanes(heads: Sequence[int]) -> list[int]:
    """The lane of each word's arc, 0 nearest to the words, so that none share a stretch."""
    out = [0] * len(heads)
    arcs = [(abs(head - 1 - word), word) for word, head in enumerate(heads) if head]
    taken: list[tuple[int, int, int]] = []  # lane, from, up to
    for _, word in sorted(arcs):
        a, b = sorted((word, heads[word] - 1))
        lane = 0
        while any(k == lane and a <= to and start <= b for k, start, to in taken):
            lane += 1
        out[word] = lane
        taken.append((lane, a, b))
    return out


def _arc(grid: list[list[int]], word: int, head: int, column: int) -> None:
    """Draw one arc: its corners in its own lane, level lines from there to the words."""
    a, b = min(word, head), max(word, head)
    for row in range(a + 1, b):
        grid[row][column] |= UP | DOWN
    for row, way in ((a, DOWN), (b, UP)):
        grid[row][column] |= way | RIGHT
        for k in range(column + 1, len(grid[row])):
            grid[row][k] |= LEFT | RIGHT
