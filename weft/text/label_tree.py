"""Labels that are paths in a tree, such as `LOC > city`.

n texts   C labels   N nodes   D levels
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from weft.errors import UserError

SEPARATOR = " > "  # between the levels of a label, unless another is configured
NO_NODE = -1  # in place of a node, where a path is shorter


@dataclass(frozen=True)
class LabelTree:
    """The tree that labels are paths in. A label may end at a node that others continue from."""

    entries: tuple[str, ...]  # the labels, in the order of their label space
    separator: str = SEPARATOR

    @cached_property
    def paths(self) -> tuple[tuple[str, ...], ...]:
        """The nodes from the top to each label, by full name: LOC, LOC > city."""
        return tuple(prefixes(entry, self.separator) for entry in self.entries)

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """All nodes by full name, parents before children, children in the order of labels."""
        return tuple(dict.fromkeys(node for path in self.paths for node in path))

    @property
    def depth(self) -> int:
        """The number of levels."""
        return max(map(len, self.paths))

    @cached_property
    def path_ids(self) -> np.ndarray:
        """(C, D) the number of each label's node at each level; NO_NODE below it."""
        index = {node: i for i, node in enumerate(self.nodes)}
        table = np.full((len(self.entries), self.depth), NO_NODE, np.int64)
        for row, path in zip(table, self.paths, strict=True):
            row[: len(path)] = [index[node] for node in path]
        return table

    @cached_property
    def inner_labels(self) -> tuple[str, ...]:
        """Labels that other labels continue from."""
        inner = {node for path in self.paths for node in path[:-1]}
        return tuple(entry for entry in self.entries if entry in inner)

    def node_probs(self, probs: np.ndarray) -> np.ndarray:
        """Return the probability (n, N) of each node: that of all labels in its subtree, (n, C).

        Labels behind the first C have none.
        """
        out = np.zeros((len(self.nodes), len(probs)))
        for ids in self.path_ids[: probs.shape[1]].T:
            used = ids != NO_NODE
            np.add.at(out, ids[used], probs.T[used])
        probabilities: np.ndarray = out.T
        return probabilities

    def short_name(self, node: str) -> str:
        """Return the last level of a node's name."""
        return node.rpartition(self.separator)[2]


def prefixes(label: str, separator: str) -> tuple[str, ...]:
    """Return every node on the path to a label: `a`, `a > b` and `a > b > c`."""
    levels = label.split(separator)
    return tuple(separator.join(levels[:i]) for i in range(1, len(levels) + 1))


def check_path(label: str, separator: str, where: str) -> None:
    """Raise a UserError if a level of a label has no name."""
    if not all(level.strip() for level in label.split(separator)):
        raise UserError(
            f"{where}: a level of the label '{label}' has no name. Write it as "
            f"a{separator}b, or set task.hierarchy=false if this is no path."
        )


def looks_hierarchical(labels: Iterable[object], separator: str = SEPARATOR) -> bool:
    """Return True if most labels are paths of more than one level."""
    counts = Counter(isinstance(label, str) and separator in label for label in labels)
    return counts[True] > counts[False]


def describe_tree(tree: LabelTree) -> str:
    """Describe a tree in a line: '50 labels in a tree of 2 levels: 6, 50'."""
    widths = [len({node for node in ids if node != NO_NODE}) for ids in tree.path_ids.T.tolist()]
    levels = "level" if len(widths) == 1 else "levels"
    line = (
        f"{len(tree.entries)} labels in a tree of {len(widths)} {levels} "
        f"({', '.join(map(str, widths))} nodes), split at '{tree.separator}'"
    )
    if tree.inner_labels:
        line += f"; {_name_some(tree.inner_labels)} answered as inner nodes, too"
    return line


def _name_some(names: Sequence[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:3])
    return f"{shown}, …" if len(names) > 3 else shown
