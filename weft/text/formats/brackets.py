"""Read constituency trees: Penn Treebank brackets over many lines, columns of parse bits."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from weft.errors import UserError
from weft.text import column_layout
from weft.text.annotation import trees
from weft.text.annotation.trees import Tree, TreeBuilder
from weft.text.example import SkipCounter
from weft.text.formats import conll
from weft.text.line_source import BadRowPolicy, BadRows, LineSource, decode_line

EMPTY_ELEMENT = "-NONE-"
ROOT_LABELS = ("", "TOP", "ROOT", "S1", "VROOT")
_BIT_TOKEN = re.compile(r"\(([^()*]+)|[*)]")
_FUNCTION_TAGS = re.compile(r"(?<=.)[-=].*")
_MAX_BROKEN_FRACTION, _MAX_BROKEN_LINES = (
    0.1,
    2,
)  # of lines that should each be a whole tree
_MIN_OPEN_LINES = 0.1  # that open more than they close, in multi-line trees


@dataclass(frozen=True)
class LocatedTree:
    """A tree and its position in a file."""

    tree: Tree
    file: str = ""
    line: int = 0
    id: str = ""
    last: int = 0  # last line

    @property
    def where(self) -> str:
        """'file:line', for messages."""
        return f"{self.file}:{self.line}" if self.file else "input"


def read_brackets(
    path: str | os.PathLike[str] | LineSource,
    *,
    on_bad_row: BadRowPolicy = "error",
    skipped: SkipCounter | None = None,
) -> Iterator[LocatedTree]:
    """Yield every tree of a file, on one line or many; several may share a line.

    If bad rows are skipped, a damaged tree is dropped and counted at its first line.
    """
    source = path if isinstance(path, LineSource) else LineSource(path)
    damage = _find_damage(source) if on_bad_row == "skip" else ""
    if damage:
        boundary = _detect_boundary(source, damage)
        yield from _read_damaged(source, BadRows(source.name, on_bad_row, skipped), boundary)
    else:
        yield from _read_sound(source)


def _read_sound(source: LineSource) -> Iterator[LocatedTree]:
    """Yield the trees of a sound file: each ends where all of its brackets are closed."""
    builder = TreeBuilder()
    first_line, next_one = 0, 0
    suspect: tuple[str, int] | None = None  # PTB indents all but the first line
    for number, line in source.lines(BadRows(source.name, "error", None)):
        where = f"{source.name}:{number}"
        for token, column in trees.tokenise(line):
            if not builder.unclosed:
                first_line, suspect = number, None
            elif token == "(" and column == 1 and not suspect:
                suspect, next_one = builder.unclosed, number
            tree = trees.feed_token(builder, token, where, column)
            if tree is not None:
                yield LocatedTree(tree, source.name, first_line, last=number)
    if suspect and builder.unclosed:
        raise UserError(
            f"{suspect[0]}:{suspect[1]}: this '(' is never closed; the next tree seems to begin "
            f"on line {next_one}. Add the missing ')'."
        )
    builder.finish()


def _find_damage(source: LineSource) -> str:
    """Return the message about the first damaged tree, or ""."""
    if not source.can_reopen:
        return f"{source.name}: read only once, so it cannot be checked for damaged trees first."
    try:
        for _ in _read_sound(LineSource(source.path)):
            pass
    except UserError as error:
        return str(error)
    return ""


TreeBoundary = Literal["bracket", "blank"]
LineGroup = list[tuple[int, str | None]]  # lines of one tree; None for an undecodable line


def _read_damaged(
    source: LineSource, bad_rows: BadRows, boundary: TreeBoundary
) -> Iterator[LocatedTree]:
    """Yield the trees of a damaged file; a group of lines with a fault is dropped whole."""
    for group, following in _group_lines(source, bad_rows, boundary):
        if any(line is None for _, line in group):
            continue  # counted as an undecodable line
        try:
            trees_of_group = list(_parse_group(group, source.name, following))
        except UserError as error:
            bad_rows.report("broken tree", group[0][0], str(error))
        else:
            yield from trees_of_group


def _parse_group(group: LineGroup, file: str, following: int) -> Iterator[LocatedTree]:
    """Yield the trees of a group; raise a UserError with the fault and its column."""
    builder, first_line = TreeBuilder(), 0
    try:
        for number, line in group:
            for token, column in trees.tokenise(line or ""):
                first_line = first_line if builder.unclosed else number
                tree = trees.feed_token(builder, token, str(number), column)
                if tree is not None:
                    yield LocatedTree(tree, file, first_line, last=number)
    except UserError as error:  # '12:5: fault. How to write a tree.'
        line_number, column_number, reason = str(error).split(":", 2)
        where = _describe_position(line_number, column_number, group)
        raise UserError(f"{where}:{reason.partition('. Write a tree')[0]}") from None
    if builder.unclosed is not None:
        where = _describe_position(builder.unclosed[0], builder.unclosed[1], group)
        then = f"; the next tree begins on line {following}" if following else ""
        raise UserError(f"the '(' in {where} is never closed{then}")


def _describe_position(line: str, column: int | str, group: LineGroup) -> str:
    """Describe a position inside a group; the line only if it is not the first."""
    first = int(line) == group[0][0]
    return f"column {column}" if first else f"line {line}, column {column}"


def _group_lines(
    source: LineSource, bad_rows: BadRows, boundary: TreeBoundary
) -> Iterator[tuple[LineGroup, int]]:
    """Yield the lines of each tree and the line of the next one, 0 at the end."""
    group: LineGroup = []
    blank = False
    for number, raw in enumerate(source.raw(), 1):
        line = decode_line(raw, number, bad_rows)
        if line is not None and not line.strip():
            blank = True
            continue
        begins = blank or (boundary == "bracket" and line is not None and line.startswith("("))
        if group and begins:
            yield group, number
            group = []
        group.append((number, line))
        blank = False
    if group:
        yield group, 0


def _detect_boundary(source: LineSource, damage: str) -> TreeBoundary:
    """Return what marks the next tree in a damaged file; raise a UserError if nothing does.

    The first column, if other lines of a tree are indented or every line is a tree; else a blank
    line. Without either, parts of a damaged tree would pass for trees.
    """
    lines = [raw.decode("utf-8", "replace").rstrip("\r\n") for raw in source.head()]
    written = [line for line in lines if line.strip()]
    if any(line[0] in " \t" for line in written[1:]):
        return "bracket"
    broken = sum(line.count("(") != line.count(")") for line in written)
    if broken <= max(_MAX_BROKEN_LINES, _MAX_BROKEN_FRACTION * len(written)):
        return "bracket"
    first = next((i for i, line in enumerate(lines) if line.strip()), 0)
    if any(not line.strip() for line in lines[first : len(lines) - 1]):
        return "blank"
    raise UserError(
        f"{damage} It cannot be skipped: nothing marks where the next tree begins. Indent all but "
        "the first line of each tree, or put a blank line between trees."
    )


def are_trees(lines: Sequence[str]) -> bool:
    """Return whether the first lines of a file are trees; the last may be incomplete."""
    builder = TreeBuilder()
    whole = 0
    try:
        for line in lines:
            for token, column in trees.tokenise(line):
                whole += trees.feed_token(builder, token, "", column) is not None
    except UserError:
        return False
    return bool(whole or builder.unclosed) and any(line.strip().endswith("))") for line in lines)


def look_like_trees(lines: Sequence[str]) -> bool:
    """Return whether lines look like trees, damaged or not: nearly all open a bracket."""
    nonempty = [line.strip() for line in lines if line.strip()]
    opened = sum(line.startswith("(") for line in nonempty)
    if not nonempty or opened <= 0.9 * len(nonempty):
        return False
    closed = sum(line.endswith(")") for line in nonempty)
    deep = sum(line.count("(") for line in nonempty)
    ended = sum(line.count(")") for line in nonempty)
    opening_lines = sum(line.count("(") > line.count(")") for line in nonempty)
    over_lines = (
        opening_lines > _MIN_OPEN_LINES * len(nonempty)
        and 9 * deep < 10 * ended + 10 < 11 * deep + 20
    )
    return 2 * closed > len(nonempty) and (deep > 1.5 * len(nonempty) or over_lines)


def strip(tree: Tree, *, functions: bool = True, traces: bool = True) -> Tree | None:
    """Remove function tags (NP-SBJ-1 becomes NP) and empty elements; None if nothing is left.

    A bracket with only empty elements is removed too; unary chains stay.
    """

    def change(node: Tree, children: list[Tree]) -> Tree | None:
        if not node.children and traces and node.label == EMPTY_ELEMENT:
            return None
        if node.children and not children:
            return None
        return Tree(
            strip_function_tags(node.label) if functions else node.label, node.word, tuple(children)
        )

    return _rebuild(tree, change)


def strip_function_tags(label: str) -> str:
    """Return a label without function tags and indices; -LRB- and -NONE- stay."""
    return label if label.startswith("-") else _FUNCTION_TAGS.sub("", label)


def strip_root(tree: Tree) -> Tree:
    """Return the tree inside an empty, TOP or ROOT bracket."""
    while tree.label in ROOT_LABELS and len(tree.children) == 1:
        tree = tree.children[0]
    return tree


def from_parse_bits(
    words: Sequence[str], tags: Sequence[str], bits: Sequence[str], where: Sequence[str] = ()
) -> Tree:
    """Build the tree of a sentence from CoNLL-2012 parse bits such as `(S(NP*`, one per word."""
    builder = TreeBuilder()
    root: Tree | None = None
    positions = where or [f"word {number}" for number in range(1, len(words) + 1)]
    for word, tag, bit, position in zip(words, tags, bits, positions, strict=True):
        if not column_layout.PARSE_BIT.fullmatch(bit):
            raise UserError(
                f"{position}: '{bit}' is not a parse bit. Write the brackets opened before the "
                "word, a *, and those closed after it: (S(NP*, *, *))."
            )
        for match in _BIT_TOKEN.finditer(bit):
            if root is not None:
                raise UserError(
                    f"{position}: '{bit}' after the end of the tree. Put one bracket around the "
                    "whole sentence, such as (TOP* … *)."
                )
            if match.group() == "*":
                builder.leaf(tag, word, position)
            elif match.group() == ")":
                root = builder.close(position)
            else:
                builder.open(position, label=match.group(1))
    builder.finish()
    if root is None:
        raise UserError(
            f"{positions[0] if positions else 'tree'}: the sentence has no words or brackets."
        )
    return root


def to_parse_bits(tree: Tree) -> list[str]:
    """Return the parse bit of each word, the inverse of `from_parse_bits`."""
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


def read_parse_bits(
    path: str | os.PathLike[str],
    *,
    words: int | str | None = None,
    tags: int | str | None = None,
    bits: int | str | None = None,
) -> Iterator[LocatedTree]:
    """Yield the trees of a column file with a parse bit for each word.

    Columns not given are detected: the first of bits, the words, and the tags before the bits.
    """
    source = LineSource(path)
    layout = column_layout.detect_layout(source, words=words, tags=tags)
    column = _find_bit_column(source, layout) if bits is None else layout.index_of(bits)
    tag = column - 1 if tags is None else layout.tags
    for sentence in conll.read_columns(source, layout=layout):
        tree = from_parse_bits(
            sentence.column(layout.words),
            sentence.column(tag),
            sentence.column(column),
            [sentence.where(word) for word in range(len(sentence.rows))],
        )
        yield LocatedTree(tree, sentence.file, sentence.line, sentence.id)


def _find_bit_column(source: LineSource, layout: column_layout.ColumnLayout) -> int:
    columns = column_layout.sample_columns(source, layout)
    for number, column in enumerate(columns):
        # The first one: role columns, with the same brackets, follow it.
        if all(map(column_layout.PARSE_BIT.fullmatch, column)):
            return number
    raise UserError(
        f"{source.name}: no column of parse bits such as (S(NP* among {len(columns)}. "
        "Pass bits=NUMBER, from 0."
    )


def _rebuild(tree: Tree, change: Callable[[Tree, list[Tree]], Tree | None]) -> Tree | None:
    """Rebuild the tree bottom-up; `change` gets each node and its new children."""
    done: list[Tree | None] = []  # finished sub-trees; the nearest to the right is on top
    for node in reversed(list(trees.iter_nodes(tree))):
        count = len(node.children)
        mine = done[len(done) - count :][::-1]
        del done[len(done) - count :]
        done.append(change(node, [child for child in mine if child is not None]))
    return done[0]
