"""Terminal drawings of entities, tags, dependencies and trees as rich text."""

from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from weft.report.drawings.tagged_text import Span, sort_spans, split_columns
from weft.tasks.annotation import Annotation
from weft.text.annotation.frames import Extraction

LABEL_STYLES = (
    "cyan",
    "yellow",
    "green",
    "magenta",
    "blue",
    "bright_red",
    "bright_cyan",
    "bright_yellow",
)
WRONG_STYLE = "bold red"
UP, DOWN, LEFT, RIGHT = 1, 2, 4, 8
LINES = " ╵╷│╴╯╮┤╶╰╭├─┴┬┼"  # indexed by the directions that leave a cell
NEUTRAL_SCORE = 0.15  # a smaller absolute score is neutral


def draw_entities(text: str, spans: Sequence[Span], other: Sequence[Span] | None = None) -> Text:
    """Draw a text with labelled, coloured spans in brackets; spans not in `other` are red."""
    names = sorted({span[2] for span in (*spans, *(other or ()))})
    out, offset = Text(), 0
    ends: list[Span] = []

    def close(until: int) -> None:
        nonlocal offset
        while ends and ends[-1][1] <= until:
            span = ends.pop()
            style = (
                WRONG_STYLE
                if other is not None and span not in other
                else _label_style(span[2], names)
            )
            out.append(text[offset : span[1]], style)
            out.append(f" {span[2]}]", f"{style} dim" if style != WRONG_STYLE else style)
            offset = span[1]

    for span in sort_spans(text, spans):
        close(span[0])
        out.append(text[offset : span[0]])
        out.append("[", WRONG_STYLE if other is not None and span not in other else "dim")
        ends.append(span)
        offset = span[0]
    close(len(text))
    out.append(text[offset:])
    return out


def draw_tuples(text: str, tuples: Sequence[Extraction]) -> Text:
    """Draw a text, then a line for each tuple: confidence, subject, predicate, the rest."""
    out = Text(text)
    for one in tuples:
        sure = "    " if one.confidence is None else f"{one.confidence:.2f}"
        out.append(f"\n  {sure}  (", "dim")
        subject, *others = one.arguments
        parts = ((subject, "cyan"), (one.predicate, "bold"), *((part, "green") for part in others))
        for number, (part, style) in enumerate(parts):
            out.append("; " if number else "", "dim").append(part, style)
        out.append(")", "dim")
    return out


def draw_tags(words: Sequence[str], labels: Sequence[str], gold: Sequence[str] = ()) -> Text:
    """Draw word/TAG pairs; a wrong tag is red, followed by the correct one.

    Space-separated tag columns are shown with a slash.
    """
    names = sorted({label.partition(" ")[0] for label in (*labels, *gold)})
    out = Text()
    for i, (word, label) in enumerate(zip(words, labels, strict=True)):
        out.append(" " if i else "").append(word)
        for k, (predicted, correct) in enumerate(split_columns(label, gold[i] if gold else label)):
            style = "dim" if k else _label_style(label.partition(" ")[0], names)
            out.append(f"/{predicted}", WRONG_STYLE if correct else style)
            if correct:
                out.append(f"→{correct}", "green")
    return out


def draw_numbers(predicted: Annotation, gold: Annotation | None = None) -> Text:
    """Draw word/number pairs, coloured by the number; in another band than gold, with gold's."""
    out = Text()
    for i, (word, number) in enumerate(zip(predicted.words, predicted.tags, strict=True)):
        out.append(" " if i else "").append(word, _score_style(predicted.scores[i]))
        out.append(f"/{number}", "dim")
        if gold is not None and gold.relations[i] not in ("", predicted.relations[i]):
            out.append(f"→{gold.tags[i]}", "green")
    return out


def draw_dependencies(
    words: Sequence[str],
    heads: Sequence[int],
    labels: Sequence[str],
    gold_heads: Sequence[int] = (),
    gold_labels: Sequence[str] = (),
) -> Text:
    """Draw one word per line with arcs in box characters; a wrong arc is red, with the gold one.

    An arrow ▸ marks the dependent. Arcs nest: the shortest are nearest to the words.
    """
    lanes = _assign_lanes(heads)
    depth = max(lanes, default=0) + 1 if words else 0
    grid = [[0] * (2 * depth + 1) for _ in words]
    for step, head in enumerate(heads):
        if head:
            _draw_arc(grid, step, head - 1, 2 * (depth - 1 - lanes[step]))
    longest = max((cell_len(word) for word in words), default=0)
    out = Text()
    for i, word in enumerate(words):
        gold = (gold_heads[i], gold_labels[i]) if gold_heads else (heads[i], labels[i])
        wrong = gold != (heads[i], labels[i])
        out.append("\n" if i else "").append("".join(LINES[cell] for cell in grid[i]), "dim")
        out.append("▸ " if heads[i] else "● ", WRONG_STYLE if wrong else "cyan")
        out.append(word + " " * (longest - cell_len(word) + 2))
        out.append(f"{labels[i]} ", WRONG_STYLE if wrong else "cyan")
        out.append(f"← {words[heads[i] - 1]}" if heads[i] else "(root)", "dim")
        if wrong:
            right = words[gold[0] - 1] if gold[0] else "(root)"
            out.append(f"   should be {gold[1]} ← {right}", "green")
    return out


def draw_tree(
    words: Sequence[str],
    parents: Sequence[int],
    labels: Sequence[str],
    scores: Sequence[float] = (),
    gold: Sequence[str] = (),
) -> Text:
    """Draw an indented tree, root first, coloured by scores; differences from gold are red."""
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
        out.append(
            labels[node] or "·",
            WRONG_STYLE if wrong else _score_style(scores[node] if scores else 0.0),
        )
        if wrong:
            out.append(f"→{gold[node]}", "green")
        out.append(f" {words[node]}" if words[node] else "")
        deeper = lead + {"": "", "├ ": "│ ", "└ ": "  "}[branch]
        last = below[node][-1:]
        stack.extend(
            (child, deeper, "└ " if [child] == last else "├ ") for child in reversed(below[node])
        )
    return out


def draw_brackets(
    words: Sequence[str], parents: Sequence[int], labels: Sequence[str], wrong: Sequence[bool] = ()
) -> Text:
    """Draw a tree on one line in brackets, (S (NP …) …), with wrong labels in red."""
    children: list[Text] = [Text() for _ in words]
    out = Text()
    for node, up in enumerate(parents):  # children come before their parent
        style = WRONG_STYLE if wrong and wrong[node] else "cyan"
        node_text = Text("(").append(labels[node], style)
        node_text.append(f" {words[node]}") if words[node] else node_text.append_text(
            children[node]
        )
        node_text.append(")")
        if up >= 0:
            children[up].append(" ").append_text(node_text)
        else:
            out.append(" " if out else "").append_text(node_text)
        children[node] = Text()
    return out


def _label_style(label: str, names: Sequence[str]) -> str:
    return LABEL_STYLES[names.index(label) % len(LABEL_STYLES)]


def _score_style(score: float) -> str:
    return "" if abs(score) < NEUTRAL_SCORE else "yellow" if score > 0 else "blue"


def _assign_lanes(heads: Sequence[int]) -> list[int]:
    """Return the lane of each word's arc, 0 nearest to the words, without overlaps."""
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


def _draw_arc(grid: list[list[int]], word: int, head: int, column: int) -> None:
    """Draw one arc: corners in its lane, horizontal lines to the words."""
    a, b = min(word, head), max(word, head)
    for row in range(a + 1, b):
        grid[row][column] |= UP | DOWN
    for row, way in ((a, DOWN), (b, UP)):
        grid[row][column] |= way | RIGHT
        for k in range(column + 1, len(grid[row])):
            grid[row][k] |= LEFT | RIGHT
