"""A label at every node of a tree, the root's for the text as a whole: sentiment of phrases.

T nodes   C labels
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from weft.errors import UserError
from weft.metrics.structure.tree_nodes import NO_LABEL, UNSEEN_LABEL, NodeAccuracy
from weft.metrics.value import MetricRepr, MetricValue
from weft.protocols import Saved
from weft.registry import register
from weft.tasks.annotation import Annotation, Decoded
from weft.tasks.tag_vocabulary import TagSpace
from weft.tasks.task import Answer, Loss, StructuredTask
from weft.text.annotation.trees import Tree
from weft.text.example import Example, SkipCounter
from weft.untrusted import parse_integer

if TYPE_CHECKING:
    from weft.batch import LabelledBatch
    from weft.batch.trees import FlatTree
    from weft.decode.heads.tree_nodes import TreeNodeOutput


@register("task", "nodes")
class TreeNodes(StructuredTask[TagSpace]):
    """A label at every node of given trees, such as (3 (2 The) (4 good)); the root's is the text's.

    Labels that are whole numbers are a scale; of an odd number of them the middle one is neutral,
    and figures of the two sides without it are measured as well.
    """

    head = "nodes"
    metric = "root"
    reads_trees = True
    has_classes = True

    def prepare(self, example: Example, tally: SkipCounter) -> Example:
        """The example with its tree made binary, and the words of it."""
        from weft.batch.trees import binarise_example

        if example.tree is None:
            raise UserError(
                f"{example.where}: there is no tree. Give bracketed trees such as "
                "(3 (2 The) (4 good)), or a parser that makes them: data.parser=FOLDER, a model "
                "trained with --recipe constituency."
            )
        return binarise_example(example)

    def space(self, examples: Iterable[Example]) -> TagSpace:
        seen: set[str] = set()
        for example in examples:
            seen.update(_flatten(example).labels)
        seen.discard("")
        if len(seen) < 2:
            message = f"the only label is {seen.pop()!r}" if seen else "no node has a label"
            raise UserError(f"{message}. Write labels into the trees: (3 (2 The) (4 good)).")
        whole = all(parse_integer(label.removeprefix("-")) is not None for label in seen)
        names = sorted(seen, key=int) if whole else sorted(seen)
        return TagSpace(("label",), (tuple(names),), extra_columns=1)

    def load_space(self, saved: Saved) -> TagSpace:
        return TagSpace.from_json(saved, extra_columns=1)

    def target(self, example: Example, space: TagSpace) -> np.ndarray:
        """(T, 2) the number of each node's label, -1 where it has none, and its parent."""
        flat = _flatten(example)
        index = space.index[0]
        labels = [index.get(label, UNSEEN_LABEL) if label else NO_LABEL for label in flat.labels]
        return np.stack([np.array(labels, np.int64), flat.parents], axis=1)

    def classes(self, target: np.ndarray, space: TagSpace) -> tuple[np.ndarray, ...]:
        """Return the labels of the nodes that have one."""
        return (target[target[:, 0] >= 0, 0],)

    def loss(self, scores: "TreeNodeOutput", batch: "LabelledBatch") -> Loss:  # type: ignore[override]  # a head's own
        """Return the summed loss of the labels, and the nodes."""
        return Loss(*scores.loss(batch.target, batch.balance))

    def answers(self, scores: Sequence[Decoded], space: TagSpace) -> list[Answer]:
        """The label of each root; those of the other nodes are in the structure."""
        return [self._answer(found, space) for found in scores]

    def _answer(self, decoded: Decoded, space: TagSpace) -> Answer:
        if decoded.tree is None:
            return Answer("", 0.0, structure=Annotation("nodes", ()))
        names = [space.name(0, int(number)) for number in decoded.table[:, 0]]
        leaning = _expected_position(decoded.probs)
        tree, scores = _label_tree(decoded.tree, names, leaning)
        top = decoded.probs[-1]
        return Answer(
            names[-1], float(top.max()), scores=tuple(top.tolist()),
            structure=Annotation("nodes", decoded.words, decoded.places, tree=tree, scores=scores),
        )  # fmt: skip

    def gold(
        self, example: Example, space: TagSpace, predicted: Answer | None = None
    ) -> Annotation:
        """Return the gold annotation."""
        return Annotation(
            "nodes", example.words, example.places, example.text, tree=example.tree
        )  # fmt: skip

    def predict_targets(self, scores: Sequence[Decoded], space: TagSpace) -> list[np.ndarray]:
        """(T, 2) the label of each node, and whether it leans to the upper side of the scale."""
        return [
            np.stack([found.table[:, 0], _is_positive(found.probs)], axis=1) for found in scores
        ]

    def build_metric(self, space: TagSpace) -> "NodeMetric":
        return NodeMetric(space)


class NodeMetric(MetricRepr):
    """Right labels at the root and at all nodes."""

    def __init__(self, space: TagSpace) -> None:
        self.counts = NodeAccuracy(len(space.entries[0]), find_neutral(space))

    def add(self, predicted: Sequence[np.ndarray], gold: Sequence[np.ndarray]) -> None:
        for ours, theirs in zip(predicted, gold, strict=True):
            prediction, positive = ours[None, :, 0], ours[None, :, 1] > 0
            self.counts.add(prediction, theirs[None, :, 0], theirs[None, :, 1], positive)

    def merge(self, other: "NodeMetric") -> None:
        self.counts.merge(other.counts)

    @property
    def n(self) -> int:
        return self.counts.n

    def compute(
        self, resamples: int = 1000, seed: int = 0, level: float = 0.95
    ) -> dict[str, MetricValue]:
        return self.counts.compute(resamples, seed, level)


def find_neutral(space: TagSpace) -> int | None:
    """The middle of a scale of whole numbers, where it has one."""
    labels = space.entries[0]
    scale = all(parse_integer(label.removeprefix("-")) is not None for label in labels)
    return len(labels) // 2 if scale and len(labels) % 2 and len(labels) > 2 else None


def _expected_position(probs: np.ndarray) -> np.ndarray:
    """(T,) from -1 to 1: where on the scale each node is expected."""
    return probs @ np.linspace(-1, 1, probs.shape[1])


def _is_positive(probs: np.ndarray) -> np.ndarray:
    """(T,) whether the labels above the middle are more probable than those below."""
    half = probs.shape[1] // 2
    positive: np.ndarray = probs[:, -half:].sum(1) > probs[:, :half].sum(1)
    return positive


def _flatten(example: Example) -> "FlatTree":
    from weft.batch.trees import flatten_tree

    assert example.tree is not None, "prepared examples have one"
    return flatten_tree(example.tree)


def _label_tree(
    tree: Tree, names: Sequence[str], scores: np.ndarray
) -> tuple[Tree, tuple[float, ...]]:
    """The tree with these labels, given children first, and the scores parents first."""
    where: list[int] = []  # the step of each node, parents first
    done: list[Tree] = []  # finished sub-trees
    stack = [(tree, -1)]  # a node, and its place in `where` once its children are on their way
    step = 0
    while stack:
        node, place = stack.pop()
        if place < 0:
            place = len(where)
            where.append(0)
            stack.append((node, place))
            stack.extend((child, -1) for child in reversed(node.children))
            continue
        below = len(done) - len(node.children)
        done[below:] = [Tree(names[step], node.word, tuple(done[below:]))]
        where[place] = step
        step += 1
    return done[0], tuple(float(scores[i]) for i in where)
