"""Bracketed trees under the doctor's eyes: reading goes on after a bracket too many or too few."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from weft.doctor.faults import Fault
from weft.errors import UserError
from weft.text import trees
from weft.text.brackets import read_brackets
from weft.text.example import Example, Tally
from weft.text.source import Problems, Source
from weft.text.trees import Builder, Tree

SCALE = 0.9  # share of labels that are whole numbers, from which they are a scale
SELDOM = 0.0005  # share of labels up to which one does not belong to the scale


@dataclass(frozen=True)
class Grown:
    """A tree with its first and last line."""

    tree: Tree
    line: int
    last: int


def looks_bracketed(lines: Sequence[str]) -> bool:
    """Whether lines are trees, sound or not: nearly all open a bracket, and many close one."""
    some = [line.strip() for line in lines if line.strip()]
    opened = sum(line.startswith("(") for line in some)
    closed = sum(line.endswith(")") for line in some)
    deep = sum(line.count("(") for line in some)
    return opened > 0.9 * len(some) and 2 * closed > len(some) and deep > 1.5 * len(some)


def grown(path: str, problems: Problems | None = None) -> Iterator[Grown]:
    """Every sound tree; what is wrong with the others goes to `problems`.

    After a fault, the next tree begins at the next bracket in the first column.
    """
    watch = problems or Problems(path, "skip", Tally())
    sound = _is_sound(path)
    builder, begun, lost = Builder(), 0, False
    for number, line in Source(path).lines(watch):
        if line.startswith("(") and not sound:
            if builder.unclosed:
                _unclosed(builder, watch, number)
            builder, lost = Builder(), False
        for token, column in trees.tokens("" if lost else line):
            if not builder.unclosed:
                begun = number
            try:
                tree = trees.feed(builder, token, str(number), column)
            except UserError as error:
                watch.found("broken tree", number, _told(error))
                builder, lost = Builder(), True
                break
            if tree is not None:
                yield Grown(tree, begun, number)
    if builder.unclosed:
        _unclosed(builder, watch)


def examples(path: str, tally: Tally) -> Iterator[Example]:
    """The trees as the survey takes them; labels on a scale are classes of their texts."""
    rated = bool(_scale(path))
    for one in grown(path, Problems(path, "skip", tally)):
        words = tuple(one.tree.words)
        label = (one.tree.label or None) if rated else None
        yield Example(" ".join(words), label, "", path, one.line, words, tree=one.tree)


def faults(path: str) -> Iterator[Fault]:
    """Labels that are missing, or not on the scale of the others."""
    scale = _scale(path)
    for number, one in enumerate(grown(path), 1):
        where, text = f"{path}:{one.line}", one.tree.text
        for node in trees.nodes(one.tree):
            covered = f"tree {number}: '{node.text:.40}'"
            if not node.label and (node is not one.tree or not node.children):
                yield Fault("node without label", where, text, covered)
            elif scale and node.label and node.label not in scale:
                told = f"{covered} has {node.label}, the others {scale[0]} to {scale[-1]}"
                yield Fault("label outside the scale", where, text, told)


def _scale(path: str) -> list[str]:
    """The labels around the commonest, where they are whole numbers; else nothing."""
    counts: Counter[str] = Counter()
    for one in grown(path):
        counts.update(node.label for node in trees.nodes(one.tree) if node.label)
    total = counts.total()
    numbers = {int(label): n for label, n in counts.items() if label.isdecimal()}
    if sum(numbers.values()) < SCALE * max(1, total) or not numbers:
        return []
    low = high = max(numbers, key=lambda number: numbers[number])
    while numbers.get(low - 1, 0) > SELDOM * total:
        low -= 1
    while numbers.get(high + 1, 0) > SELDOM * total:
        high += 1
    return [str(number) for number in range(low, high + 1)]


def _is_sound(path: str) -> bool:
    try:
        for _ in read_brackets(path):
            pass
    except UserError:
        return False
    return True


def _unclosed(builder: Builder, watch: Problems, following: int = 0) -> None:
    assert builder.unclosed is not None
    line, column = int(builder.unclosed[0]), builder.unclosed[1]
    then = f"; the next tree begins on line {following}" if following else ""
    watch.found("broken tree", line, f"the '(' in column {column} is never closed{then}")


def _told(error: UserError) -> str:
    """'12:5: what. How to write a tree.' as 'column 5: what'."""
    _, column, rest = str(error).split(":", 2)
    return f"column {column}:{rest.partition('. Write a tree')[0]}"
