"""Compare the tuples of a sentence with gold ones, word by word."""

from collections.abc import Sequence

from weft.tasks.annotation import Annotation
from weft.text.annotation.word_tuples import (
    NONE,
    OBJECT,
    RELATION,
    SUBJECT,
    label_words,
    read_tuples,
)

NAMES = {SUBJECT: "subject", RELATION: "relation", OBJECT: "object"}
Labels = list[int]  # of implied words and of words


def labelled_rows(annotation: Annotation) -> list[Labels]:
    """Return the labels of the words, of each tuple."""
    size = len(annotation.words)
    return [label_words(one, size).tolist() for one in read_tuples(annotation.tuples)]


def label_list(rows: Sequence[Labels]) -> list[str]:
    """Return the names of all labels but none."""
    return [NAMES[label] for row in rows for label in row if label != NONE]


def pair_rows(ours: Sequence[Labels], gold: Sequence[Labels]) -> list[tuple[Labels, Labels]]:
    """Return gold tuples with ours, the most similar first, each once; missing ones are empty."""
    shared = sorted(
        (
            (-sum(a == b != NONE for a, b in zip(own, right, strict=True)), i, j)
            for i, right in enumerate(gold)
            for j, own in enumerate(ours)
        )
    )
    pairs: dict[int, int] = {}
    for count, i, j in shared:
        if count and i not in pairs and j not in pairs.values():
            pairs[i] = j
    size = len((*ours, *gold)[0]) if ours or gold else 0
    none = [NONE] * size
    matched = [(right, ours[pairs[i]] if i in pairs else none) for i, right in enumerate(gold)]
    extra = [(none, own) for j, own in enumerate(ours) if j not in pairs.values()]
    return matched + extra


def label_name(label: int, none: str) -> str:
    """Return the name of a label for a confusion matrix."""
    return NAMES.get(label, none)
