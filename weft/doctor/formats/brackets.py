"""Bracketed trees under the doctor's eyes: reading goes on after a bracket too many or too few."""

from collections import Counter
from collections.abc import Iterator

from weft.doctor.checks.annotation_faults import AnnotationFault
from weft.text.annotation import trees
from weft.text.example import Example, Tally
from weft.text.formats.brackets import LocatedTree, read_brackets
from weft.untrusted import parse_integer

MIN_NUMERIC_FRACTION = 0.9  # share of labels that are whole numbers, from which they are a scale
MAX_STRAY_FRACTION = 0.0005  # share of labels up to which one does not belong to the scale


def read_trees(path: str, skipped: Tally | None = None) -> Iterator[LocatedTree]:
    """Every sound tree; the others are counted."""
    return read_brackets(path, on_bad_row="skip", skipped=skipped)


def read_examples(path: str, skipped: Tally) -> Iterator[Example]:
    """The trees as the survey takes them; labels on a scale are classes of their texts."""
    rated = bool(_detect_scale(path))
    for one in read_trees(path, skipped):
        words = tuple(one.tree.words)
        label = (one.tree.label or None) if rated else None
        yield Example(" ".join(words), label, "", path, one.line, words, tree=one.tree)


def find_faults(path: str) -> Iterator[AnnotationFault]:
    """Labels that are missing, or not on the scale of the others."""
    scale = _detect_scale(path)
    for number, one in enumerate(read_trees(path), 1):
        where, text = f"{path}:{one.line}", one.tree.text
        for node in trees.iter_nodes(one.tree):
            covered = f"tree {number}: '{node.text:.40}'"
            if not node.label and (node is not one.tree or not node.children):
                yield AnnotationFault("node without label", where, text, covered)
            elif scale and node.label and node.label not in scale:
                told = f"{covered} has {node.label}, the others {scale[0]} to {scale[-1]}"
                yield AnnotationFault("label outside the scale", where, text, told)


def _detect_scale(path: str) -> list[str]:
    """The labels around the commonest, where they are whole numbers; else nothing."""
    counts: Counter[str] = Counter()
    for one in read_trees(path):
        counts.update(node.label for node in trees.iter_nodes(one.tree) if node.label)
    total = counts.total()
    numbers = {
        number: n for label, n in counts.items() if (number := parse_integer(label)) is not None
    }
    if sum(numbers.values()) < MIN_NUMERIC_FRACTION * max(1, total) or not numbers:
        return []
    low = high = max(numbers, key=lambda number: numbers[number])
    while numbers.get(low - 1, 0) > MAX_STRAY_FRACTION * total:
        low -= 1
    while numbers.get(high + 1, 0) > MAX_STRAY_FRACTION * total:
        high += 1
    return [str(number) for number in range(low, high + 1)]
