"""Bracketed labelled trees, `(3 (2 The) (4 good))`, of any depth, without recursion."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from weft.errors import UserError
from weft.notebook import HtmlRepr

_TOKEN = re.compile(r"[()]|[^ \t\r\n()]+")  # a no-break space belongs to its word
_ESCAPES = {
    "-LRB-": "(",
    "-RRB-": ")",
    "-LSB-": "[",
    "-RSB-": "]",
    "-LCB-": "{",
    "-RCB-": "}",
}
_BRACKETS = str.maketrans({sign: name for name, sign in _ESCAPES.items()})


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tree(HtmlRepr):
    """A label over one word or over children; `word` is empty above the leaves."""

    label: str
    word: str = ""
    children: tuple["Tree", ...] = ()

    def __eq__(self, other: object) -> bool:
        # By the written form: comparing nested tuples would recurse.
        return isinstance(other, Tree) and format(self) == format(other)

    def __hash__(self) -> int:
        return hash(format(self))

    def __repr__(self) -> str:
        return f"Tree({format(self)})"

    @property
    def words(self) -> list[str]:
        """The leaves from left to right."""
        return [node.word for node in iter_nodes(self) if not node.children]

    @property
    def text(self) -> str:
        """The leaves joined by spaces."""
        return " ".join(self.words)


@dataclass(slots=True)
class _OpenBracket:
    """An open bracket."""

    where: str
    column: int
    label: str | None
    word: str
    children: list[Tree]


class TreeBuilder:
    """Builds one tree from tokens in order; a UserError gives the position of a fault.

    A position is 'file:line' and a column from 1, or 0 without a column.
    """

    def __init__(self) -> None:
        self._stack: list[_OpenBracket] = []

    @property
    def unclosed(self) -> tuple[str, int] | None:
        """The position of the innermost open bracket, if any."""
        return (self._stack[-1].where, self._stack[-1].column) if self._stack else None

    def open(self, where: str, column: int = 0, label: str | None = None) -> None:
        """Open a bracket; its label may follow."""
        if self._stack:
            _expect_no_word(self._stack[-1], where, column)
        self._stack.append(_OpenBracket(where, column, label, "", []))

    def add(self, token: str, where: str, column: int = 0) -> None:
        """Add the label of the open bracket or, if it has one, its word, escaped as in a file."""
        if not self._stack:
            raise _tree_error(where, column, f"a tree starts with '(', found '{token:.40}'")
        node = self._stack[-1]
        if node.label is None:
            node.label = token
        elif node.children:
            raise _tree_error(where, column, f"the word '{token:.40}' is next to sub-trees")
        else:
            _expect_no_word(node, where, column)
            node.word = _unescape(token)

    def leaf(self, label: str, word: str, where: str) -> None:
        """Add a whole leaf; its word is not unescaped."""
        if not self._stack:
            raise _tree_error(where, 0, f"the word '{word}' is outside the tree")
        self._stack[-1].children.append(Tree(label, word))

    def close(self, where: str, column: int = 0) -> Tree | None:
        """Close a bracket; return the tree if it was the outermost."""
        if not self._stack:
            raise _tree_error(where, column, "this ')' closes nothing")
        node = self._stack.pop()
        if not node.word and not node.children:
            raise _tree_error(where, column, "an empty bracket: a node needs a word or sub-trees")
        tree = Tree(node.label or "", node.word, tuple(node.children))
        if not self._stack:
            return tree
        top = self._stack[-1]
        # PTB wraps each tree in a bracket without a label.
        top.label = "" if top.label is None else top.label
        top.children.append(tree)
        return None

    def finish(self) -> None:
        """Raise a UserError if a bracket is still open."""
        if self._stack:
            raise _tree_error(
                self._stack[-1].where, self._stack[-1].column, "this '(' is never closed"
            )


def parse(line: str, where: str = "tree") -> Tree:
    """Parse the one tree on a line; a UserError gives the column of a fault."""
    builder = TreeBuilder()
    root: Tree | None = None
    for token, column in tokenise(line):
        if root is not None:
            raise _tree_error(where, column, f"'{token:.40}' after the end of the tree")
        root = feed_token(builder, token, where, column)
    builder.finish()
    if root is None:
        raise _tree_error(where, 1, "no tree on this line")
    return root


def tokenise(line: str) -> Iterator[tuple[str, int]]:
    """Yield brackets, labels and words with their columns from 1."""
    for match in _TOKEN.finditer(line):
        yield match.group(), match.start() + 1


def feed_token(builder: TreeBuilder, token: str, where: str, column: int) -> Tree | None:
    """Feed one token of a written tree; return the tree when complete."""
    if token == "(":
        builder.open(where, column)
    elif token == ")":
        return builder.close(where, column)
    else:
        builder.add(token, where, column)
    return None


def format(tree: Tree) -> str:
    """Format the tree on one line, with brackets inside words escaped."""
    out: list[str] = []
    stack: list[Tree | str] = [tree]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            out.append(item)
        elif item.children:
            out.append(f" ({item.label}")
            stack.append(")")
            stack.extend(reversed(item.children))
        else:
            out.append(f" ({item.label} {item.word.translate(_BRACKETS)})")
    return "".join(out).lstrip()


def iter_nodes(tree: Tree) -> Iterator[Tree]:
    """Yield every node, parents before children, left before right."""
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(node.children))


def iter_phrases(tree: Tree) -> Iterator[tuple[str, str]]:
    """Yield (label, text) of every labelled node, the root first."""
    words = tree.words
    sizes = _count_leaves(tree)
    start = 0
    for node, size in zip(iter_nodes(tree), sizes, strict=True):
        if node.label:
            yield node.label, " ".join(words[start : start + size])
        if not node.children:
            start += 1


def _count_leaves(tree: Tree) -> list[int]:
    """Return the number of leaves under each node, in the order of `iter_nodes`."""
    order = list(iter_nodes(tree))
    sizes = [0] * len(order)
    done: list[int] = []  # sizes of finished sub-trees; the nearest to the right is on top
    for index in range(len(order) - 1, -1, -1):
        children = len(order[index].children)
        sizes[index] = sum(done[len(done) - children :]) if children else 1
        del done[len(done) - children :]
        done.append(sizes[index])
    return sizes


def _unescape(token: str) -> str:
    if "B-" in token:
        for name, sign in _ESCAPES.items():
            token = token.replace(name, sign)
    return token.replace("\\/", "/").replace("\\*", "*") if "\\" in token else token


def _expect_no_word(node: _OpenBracket, where: str, column: int) -> None:
    if node.word:
        raise _tree_error(where, column, f"the leaf already holds the word '{node.word:.40}'")


def _tree_error(where: str, column: int, reason: str) -> UserError:
    position = f"{where}:{column}" if column else where
    return UserError(f"{position}: {reason}. Write a tree as (3 (2 The) (4 good)).")
