"""Constituency trees as labelled spans over the words, and back without loss."""

from collections.abc import Iterable, Sequence

from weft.errors import UserError
from weft.text.annotation.schemes import Span
from weft.text.annotation.trees import Tree, iter_nodes

UNARY_JOIN = "+"  # between the labels of a unary chain: S+VP


def join_unaries(labels: Iterable[str]) -> str:
    """Labels from the top down as one; a + inside a label is written %2B."""
    return UNARY_JOIN.join(label.replace("%", "%25").replace(UNARY_JOIN, "%2B") for label in labels)


def split_unary_label(label: str) -> list[str]:
    """The labels of a chain from the top down."""
    return [part.replace("%2B", UNARY_JOIN).replace("%25", "%") for part in label.split(UNARY_JOIN)]


def tree_to_spans(tree: Tree) -> list[Span]:
    """One span for every node above the tags, outer before inner; unary chains are one span.

    Leaves are the part-of-speech tags with their words, and no spans.
    """
    return [Span(join_unaries(labels), start, end) for labels, start, end in _unary_chains(tree)]


def tree_to_brackets(tree: Tree) -> list[Span]:
    """The same with one span a node, as scorers count them."""
    return [
        Span(label, start, end) for labels, start, end in _unary_chains(tree) for label in labels
    ]


def split_unaries(spans: Iterable[Span]) -> list[Span]:
    """Spans of chains as one span a label."""
    return [Span(label, s.start, s.end) for s in spans for label in split_unary_label(s.label)]


def add_root(tree: Tree, label: str = "TOP") -> Tree:
    """The tree with a bracket around it again, such as `brackets.unwrapped` takes off."""
    return tree if tree.label == label and tree.children else Tree(label, "", (tree,))


def pos_tags(tree: Tree) -> list[str]:
    """The labels of the leaves, from left to right."""
    return [node.label for node in iter_nodes(tree) if not node.children]


def to_tree(spans: Iterable[Span], words: Sequence[str], tags: Sequence[str]) -> Tree:
    """The tree of spans that do not cross, over these words and tags; the opposite of `spans`.

    Where no span holds the whole sentence, a bracket without a label does.
    """
    assert len(words) == len(tags)
    n = len(words)
    order = sorted(spans, key=lambda span: (span.start, -span.end))
    if n == 0 or any(not 0 <= s.start < s.end <= n for s in order):
        raise UserError(f"Spans {order} do not fit a sentence of {n} words.")
    whole = bool(order) and order[0][1:] == (0, n)
    if not whole and n > 1:
        order.insert(0, Span("", 0, n))
    stack: list[tuple[Span, list[Tree]]] = []
    done: list[Tree] = []  # what is finished and has nothing open above it
    following = iter(order)
    upcoming = next(following, None)
    for at, (word, tag) in enumerate(zip(words, tags, strict=True)):
        while upcoming and upcoming.start == at:
            if stack and stack[-1][0].end < upcoming.end:
                raise UserError(f"Spans {stack[-1][0]} and {upcoming} cross: no tree holds both.")
            stack.append((upcoming, []))
            upcoming = next(following, None)
        (stack[-1][1] if stack else done).append(Tree(tag, word))
        while stack and stack[-1][0].end == at + 1:
            span, children = stack.pop()
            (stack[-1][1] if stack else done).append(_build_chain(span, children))
    assert len(done) == 1
    return done[0]


def _unary_chains(tree: Tree) -> list[tuple[list[str], int, int]]:
    """The labels, start and end of every node above the leaves that is no only child."""
    out: list[tuple[list[str], int, int]] = []
    stack: list[Tree | int] = [tree]  # a number: here ends the chain with that place in `out`
    at = 0
    while stack:
        item = stack.pop()
        if isinstance(item, int):
            labels, start, _ = out[item]
            out[item] = (labels, start, at)
            continue
        labels = []
        while item.children:
            labels.append(item.label)
            if len(item.children) > 1:
                break
            item = item.children[0]
        if labels:
            stack.append(len(out))
            out.append((labels, at, at))
        if item.children:
            stack.extend(reversed(item.children))
        else:
            at += 1
            if labels:
                stack.pop()
                out[-1] = (labels, at - 1, at)
    return out


def _build_chain(span: Span, children: list[Tree]) -> Tree:
    tree: Tree | None = None
    for label in reversed(split_unary_label(span.label)):
        tree = Tree(label, "", tuple(children) if tree is None else (tree,))
    assert tree is not None
    return tree
