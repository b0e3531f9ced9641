"""Bracketed labelled trees, `(3 (2 The) (4 good))`, of any depth: nothing here recurses."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from weft.errors import UserError

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
class Tree:
    """A label over one word or over children; `word` is empty above the leaves."""

    label: str
    word: str = ""
    children: tuple["Tree", ...] = ()

    def __eq__(self, other: object) -> bool:
        # By the written form: comparing the nested tuples would recurse.
        return isinstance(other, Tree) and format(self) == format(other)

    def __hash__(self) -> int:
        return hash(format(self))

    def __repr__(self) -> str:
        return f"Tree({format(self)})"

    @property
    def words(self) -> list[str]:
        """The leaves from left to right."""
        return [node.word for node in nodes(self) if not node.children]

    @property
    def text(self) -> str:
        """The leaves joined by spaces."""
        return " ".join(self.words)


@dataclass(slots=True)
class _Open:
    """A bracket that is not closed yet."""

    column: int
    label: str | None
    word: str
    children: list[Tree]


def parse(line: str, where: str = "tree") -> Tree:
    """The one tree on a line; a UserError names the column of what does not fit."""
    stack: list[_Open] = []
    root: Tree | None = None
    for match in _TOKEN.finditer(line):
        token, column = match.group(), match.start() + 1
        if root is not None:
            raise _broken(where, column, f"'{token}' after the end of the tree")
        if token == "(":
            if stack:
                _expect_no_word(stack[-1], where, column)
            stack.append(_Open(column, None, "", []))
        elif not stack:
            raise _broken(where, column, f"a tree starts with '(', found '{token}'")
        elif token == ")":
            tree = _close(stack.pop(), where, column)
            if stack:
                top = stack[-1]
                # PTB wraps each tree in a bracket without a label.
                top.label = "" if top.label is None else top.label
                top.children.append(tree)
            else:
                root = tree
        else:
            _add(stack[-1], token, where, column)
    if stack:
        raise _broken(where, stack[-1].column, "this '(' is never closed")
    if root is None:
        raise _broken(where, 1, "no tree on this line")
    return root


def format(tree: Tree) -> str:
    """The tree on one line, brackets inside words escaped."""
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


def nodes(tree: Tree) -> Iterator[Tree]:
    """Every node, parents before children, left before right."""
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(node.children))


def phrases(tree: Tree) -> Iterator[tuple[str, str]]:
    """(label, text) of every labelled node, the root first."""
    words = tree.words
    sizes = _sizes(tree)
    start = 0
    for node, size in zip(nodes(tree), sizes, strict=True):
        if node.label:
            yield node.label, " ".join(words[start : start + size])
        if not node.children:
            start += 1


def _sizes(tree: Tree) -> list[int]:
    """How many leaves each node covers, in the order of `nodes`."""
    order = list(nodes(tree))
    sizes = [0] * len(order)
    done: list[int] = []  # sizes of finished sub-trees; the nearest to the right is on top
    for place in range(len(order) - 1, -1, -1):
        children = len(order[place].children)
        sizes[place] = sum(done[len(done) - children :]) if children else 1
        del done[len(done) - children :]
        done.append(sizes[place])
    return sizes


def _add(node: _Open, token: str, where: str, column: int) -> None:
    if node.label is None:
        node.label = token
    elif node.children:
        raise _broken(where, column, f"the word '{token}' stands beside sub-trees")
    else:
        _expect_no_word(node, where, column)
        node.word = _unescaped(token)


def _unescaped(token: str) -> str:
    if "B-" in token:
        for name, sign in _ESCAPES.items():
            token = token.replace(name, sign)
    return token.replace("\\/", "/").replace("\\*", "*") if "\\" in token else token


def _expect_no_word(node: _Open, where: str, column: int) -> None:
    if node.word:
        raise _broken(where, column, f"the leaf already holds the word '{node.word}'")


def _close(node: _Open, where: str, column: int) -> Tree:
    if not node.word and not node.children:
        raise _broken(where, column, "an empty bracket: a node needs a word or sub-trees")
    return Tree(node.label or "", node.word, tuple(node.children))


def _broken(where: str, column: int, what: str) -> UserError:
    return UserError(f"{where}:{column}: {what}. Write a tree as (3 (2 The) (4 good)), one a line.")
