"""Files of constituency trees: Penn Treebank brackets over many lines, columns of parse bits."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from weft.errors import UserError
from weft.text import conll, trees
from weft.text.source import Problems, Source
from weft.text.trees import Builder, Tree

TRACE = "-NONE-"
WRAPPERS = ("", "TOP", "ROOT", "S1", "VROOT")
_BIT_TOKEN = re.compile(r"\(([^()*]+)|[*)]")
_FUNCTION = re.compile(r"(?<=.)[-=].*")


@dataclass(frozen=True)
class Bracketed:
    """A tree and where it was found."""

    tree: Tree
    file: str = ""
    line: int = 0
    id: str = ""

    @property
    def where(self) -> str:
        """'file:line', for messages."""
        return f"{self.file}:{self.line}" if self.file else "input"


def read_brackets(path: str | os.PathLike[str]) -> Iterator[Bracketed]:
    """Every tree of a file, on one line or on many; several may share a line."""
    source = Source(path)
    builder = Builder()
    begun, next_one = 0, 0
    suspect: tuple[str, int] | None = None  # PTB indents all but the first line of a tree
    for number, line in source.lines(Problems(source.name, "error", None)):
        where = f"{source.name}:{number}"
        for token, column in trees.tokens(line):
            if not builder.unclosed:
                begun, suspect = number, None
            elif token == "(" and column == 1 and not suspect:
                suspect, next_one = builder.unclosed, number
            tree = trees.feed(builder, token, where, column)
            if tree is not None:
                yield Bracketed(tree, source.name, begun)
    if suspect and builder.unclosed:
        raise UserError(
            f"{suspect[0]}:{suspect[1]}: this '(' is never closed; the next tree seems to begin "
            f"on line {next_one}. Close it: a tree has as many ')' as '('."
        )
    builder.finish()


def is_brackets(lines: Sequence[str]) -> bool:
    """Whether these first lines of a file are trees, of which the last may go on."""
    builder = Builder()
    whole = 0
    try:
        for line in lines:
            for token, column in trees.tokens(line):
                whole += trees.feed(builder, token, "", column) is not None
    except UserError:
        return False
    return bool(whole or builder.unclosed) and any(line.strip().endswith("))") for line in lines)


def strip(tree: Tree, *, functions: bool = True, traces: bool = True) -> Tree | None:
    """The tree without function tags (NP-SBJ-1 is NP) and empty elements; None if nothing is left.

    A bracket that held only empty elements goes with them; chains of single children stay.
    """

    def change(node: Tree, children: list[Tree]) -> Tree | None:
        if not node.children and traces and node.label == TRACE:
            return None
        if node.children and not children:
            return None
        return Tree(bare(node.label) if functions else node.label, node.word, tuple(children))

    return _rebuilt(tree, change)


def bare(label: str) -> str:
    """A label without function tags and indices; -LRB- and -NONE- are names of their own."""
    return label if label.startswith("-") else _FUNCTION.sub("", label)


def unwrapped(tree: Tree) -> Tree:
    """The tree inside an empty, TOP or ROOT bracket, if it has one around it."""
    while tree.label in WRAPPERS and len(tree.children) == 1:
        tree = tree.children[0]
    return tree


def from_bits(
    words: Sequence[str], tags: Sequence[str], bits: Sequence[str], where: Sequence[str] = ()
) -> Tree:
    """The tree of a sentence from CoNLL-2012 parse bits such as `(S(NP*`, one a word."""
    builder = Builder()
    root: Tree | None = None
    places = where or [f"word {number}" for number in range(1, len(words) + 1)]
    for word, tag, bit, place in zip(words, tags, bits, places, strict=True):
        if not conll.BIT.fullmatch(bit):
            raise UserError(
                f"{place}: '{bit}' is not a parse bit. Write the brackets that open before "
                "the word, a *, and those that close after it: (S(NP*, *, *))."
            )
        for match in _BIT_TOKEN.finditer(bit):
            if root is not None:
                raise UserError(
                    f"{place}: '{bit}' after the end of the tree. Put one bracket around the "
                    "whole sentence, such as (TOP* … *)."
                )
            if match.group() == "*":
                builder.leaf(tag, word, place)
            elif match.group() == ")":
                root = builder.close(place)
            else:
                builder.open(place, label=match.group(1))
    builder.finish()
    if root is None:
        raise UserError(f"{places[0] if places else 'tree'}: a sentence without words or brackets.")
    return root


def bits(tree: Tree) -> list[str]:
    """The parse bit of each word: the other way round of `from_bits`."""
    out: list[str] = []
    opened = ""
    stack: list[Tree | None] = [tree]  # None: a bracket closes
    while stack:
        node = stack.pop()
        if node is None:
            out[-1] += ")"
        elif node.children:
            opened += f"({node.label}"
            stack.append(None)
            stack.extend(reversed(node.children))
        else:
            out.append(f"{opened}*")
            opened = ""
    return out


def read_bits(
    path: str | os.PathLike[str],
    *,
    words: int | str | None = None,
    tags: int | str | None = None,
    bits: int | str | None = None,
) -> Iterator[Bracketed]:
    """The trees of a column file that holds a parse bit for each word.

    Columns not named are found: the first of bits, the words, and the tags just before the bits.
    """
    source = Source(path)
    layout = conll.layout_of(source, words=words, tags=tags)
    column = _bit_column(source, layout) if bits is None else layout.number(bits)
    tag = column - 1 if tags is None else layout.tags
    for sentence in conll.read_columns(source, layout=layout):
        tree = from_bits(
            sentence.column(layout.words),
            sentence.column(tag),
            sentence.column(column),
            [sentence.where(place) for place in range(len(sentence.rows))],
        )
        yield Bracketed(tree, sentence.file, sentence.line, sentence.id)


def _bit_column(source: Source, layout: conll.Layout) -> int:
    columns = conll.sample(source, layout)
    for number, column in enumerate(columns):
        # The first of them: columns of roles, written with the same brackets, come after it.
        if all(map(conll.BIT.fullmatch, column)):
            return number
    raise UserError(
        f"{source.name}: no column of parse bits such as (S(NP* among {len(columns)}. "
        "Say which it is: bits=NUMBER, from 0."
    )


def _rebuilt(tree: Tree, change: Callable[[Tree, list[Tree]], Tree | None]) -> Tree | None:
    """The tree made anew from the leaves up; `change` sees each node and its new children."""
    done: list[Tree | None] = []  # finished sub-trees; the nearest to the right is on top
    for node in reversed(list(trees.nodes(tree))):
        count = len(node.children)
        mine = done[len(done) - count :][::-1]
        del done[len(done) - count :]
        done.append(change(node, [child for child in mine if child is not None]))
    return done[0]
