"""Drawings of a tree of labels with a number at each node, for terminals and pages.

C labels   N nodes
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from weft.text.label_tree import LabelTree, prefixes

if TYPE_CHECKING:
    from rich.text import Text

MIN_SHOWN_PROB = 0.01  # of a node beside the predicted path
MAX_SHOWN_NODES = 300  # of a page
BAR_CELLS = 10


@dataclass(frozen=True)
class TreeRow:
    """A node as it is drawn: its last name, how deep it is, its number and a note."""

    name: str
    depth: int
    value: float  # from 0 to 1
    note: str = ""
    chosen: bool = False  # on the predicted path


def probability_rows(
    tree: LabelTree, scores: Sequence[float], path: Sequence[tuple[str, float]]
) -> list[TreeRow]:
    """Return the nodes of the predicted path and the probable ones beside it, best first."""
    probs = dict(zip(tree.nodes, tree.node_probs(np.array([scores]))[0].tolist(), strict=True))
    chosen = {node for node, _ in path}

    def is_shown(node: str) -> bool:
        return node in chosen or probs[node] >= MIN_SHOWN_PROB

    def rank(node: str) -> tuple[bool, float]:
        return node not in chosen, -probs[node]

    return [
        TreeRow(tree.short_name(node), depth, probs[node], chosen=node in chosen)
        for node, depth in _walk(tree, is_shown, rank)
    ]


def recall_rows(tree: LabelTree, confusions: Mapping[tuple[str, str], int]) -> list[TreeRow]:
    """Return each node of the gold labels with its recall: texts below it that are put below it."""
    gold: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for (label, predicted), count in confusions.items():
        ours = set(prefixes(predicted, tree.separator))
        for node in prefixes(label, tree.separator):
            gold[node] += count
            right[node] += count if node in ours else 0
    found = list(_walk(tree, lambda node: gold[node] > 0, lambda node: (False, -gold[node])))
    return [
        TreeRow(tree.short_name(node), depth, right[node] / gold[node], f"{gold[node]:,}")
        for node, depth in found[:MAX_SHOWN_NODES]
    ]


def draw_terminal_tree(rows: Sequence[TreeRow]) -> "Text":
    """Draw rows as an indented tree with bars and percentages; the chosen path is bold."""
    from rich.cells import cell_len
    from rich.text import Text

    from weft.errors import escape_control

    names = ["  " * row.depth + escape_control(row.name) for row in rows]
    wide = max(map(cell_len, names), default=0)
    out = Text()
    for number, (row, name) in enumerate(zip(rows, names, strict=True)):
        filled = round(BAR_CELLS * row.value)
        style = "bold cyan" if row.chosen else "dim"
        out.append("\n" if number else "").append(name + " " * (wide - cell_len(name) + 2), style)
        out.append("█" * filled, style).append("░" * (BAR_CELLS - filled), "dim")
        out.append(f" {row.value:6.1%}", style)
        out.append(f"  {row.note}" if row.note else "", "dim")
    return out


def draw_label_tree(rows: Sequence[TreeRow]) -> Markup:
    """Draw rows as an HTML table, indented by level, with a bar for each number."""
    cells = [
        Markup(
            '<tr><td style="padding-left:{}em">{}</td><td style="width:8em"><span style="display:'
            "inline-block;height:.7em;width:{:.1f}%;background:var(--accent, #b4431f)"
            '"></span></td><td>{:.1f}&nbsp;%</td><td>{}</td></tr>'
        ).format(0.4 + 1.4 * row.depth, row.name, 100 * row.value, 100 * row.value, row.note)
        for row in rows
    ]
    return Markup('<table class="dense counts label-tree"><tbody>{}</tbody></table>').format(
        Markup("").join(cells)
    )


def _walk(
    tree: LabelTree,
    is_shown: Callable[[str], bool],
    rank: Callable[[str], tuple[bool, float]],
) -> list[tuple[str, int]]:
    """Return the shown nodes with their depth, each followed by those below it."""
    below: dict[str, list[str]] = {}
    for node in tree.nodes:
        below.setdefault(node.rpartition(tree.separator)[0], []).append(node)
    out, stack = [], [(node, 0) for node in sorted(below[""], key=rank, reverse=True)]
    while stack:
        node, depth = stack.pop()
        if is_shown(node):
            out.append((node, depth))
            children = sorted(below.get(node, []), key=rank, reverse=True)
            stack += [(child, depth + 1) for child in children]
    return out
