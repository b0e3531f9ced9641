"""Check bracketed trees; reading continues after unbalanced brackets."""

from collections import Counter
from collections.abc import Iterator

from weft.doctor.checks.annotation_faults import AnnotationFault
from weft.text.annotation import trees
from weft.text.example import Example, SkipCounter
from weft.text.formats.brackets import LocatedTree, read_brackets
from weft.untrusted import parse_integer

MIN_NUMERIC_FRACTION = 0.9  # of labels, to treat them as a scale
MAX_STRAY_FRACTION = 0.0005  # of labels, for one outside the scale


def read_trees(path: str, skipped: SkipCounter | None = None) -> Iterator[LocatedTree]:
    """Yield every sound tree; the others are counted."""
    return read_brackets(path, on_bad_row="skip", skipped=skipped)


def read_examples(path: str, skipped: SkipCounter) -> Iterator[Example]:
    """Yield the trees as Examples; labels on a scale are the classes of their texts."""
    rated = bool(_detect_scale(path))
    for located in read_trees(path, skipped):
        words = tuple(located.tree.words)
        label = (located.tree.label or None) if rated else None
        yield Example(" ".join(words), label, "", path, located.line, words, tree=located.tree)


def find_faults(path: str) -> Iterator[AnnotationFault]:
    """Yield labels that are missing or outside the scale of the others."""
    scale = _detect_scale(path)
    for number, located in enumerate(read_trees(path), 1):
        where, text = f"{path}:{located.line}", located.tree.text
        for node in trees.iter_nodes(located.tree):
            covered = f"tree {number}: '{node.text:.40}'"
            if not node.label and (node is not located.tree or not node.children):
                yield AnnotationFault("node without label", where, text, covered)
            elif scale and node.label and node.label not in scale:
                detail = f"{covered} has {node.label}, the others {scale[0]} to {scale[-1]}"
                yield AnnotationFault("label outside the scale", where, text, detail)


def _detect_scale(path: str) -> list[str]:
    """Return the labels of a whole-number scale, or nothing."""
    counts: Counter[str] = Counter()
    for located in read_trees(path):
        counts.update(node.label for node in trees.iter_nodes(located.tree) if node.label)
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
