"""Bracketed trees under the doctor's eyes: reading goes on after a bracket too many or too few."""

from collections import Counter
from collections.abc import Iterator

from weft.doctor.checks.annotation_faults import Fault
from weft.text.annotation import trees
from weft.text.example import Example, Tally
from weft.text.formats.brackets import Bracketed, read_brackets
from weft.untrusted import whole_number

SCALE = 0.9  # share of labels that are whole numbers, from which they are a scale
SELDOM = 0.0005  # share of labels up to which one does not belong to the scale


def grown(path: str, tally: Tally | None = None) -> Iterator[Bracketed]:
    """Every sound tree; the others are counted."""
    return read_brackets(path, problems="skip", tally=tally)


def examples(path: str, tally: Tally) -> Iterator[Example]:
    """The trees as the survey takes them; labels on a scale are classes of their texts."""
    rated = bool(_scale(path))
    for one in grown(path, tally):
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
    numbers = {
        number: n for label, n in counts.items() if (number := whole_number(label)) is not None
    }
    if sum(numbers.values()) < SCALE * max(1, total) or not numbers:
        return []
    low = high = max(numbers, key=lambda number: numbers[number])
    while numbers.get(low - 1, 0) > SELDOM * total:
        low -= 1
    while numbers.get(high + 1, 0) > SELDOM * total:
        high += 1
    return [str(number) for number in range(low, high + 1)]
