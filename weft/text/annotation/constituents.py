"""Convert constituency trees to labelled spans over the words and back, losslessly."""

from collections.abc import Iterable, Sequence

from weft.errors import UserError
from weft.text.annotation.schemes import Span
from weft.text.annotation.trees import Tree, iter_nodes

UNARY_JOIN = "+"  # between the labels of a unary chain: S+VP


def join_unaries(labels: Iterable[str]) -> str:
    """Join the labels of a unary chain, top first; a + inside a label becomes %2B."""
    return UNARY_JOIN.join(label.replace("%", "%25").replace(UNARY_JOIN, "%2B") for label in labels)


def split_unary_label(label: str) -> list[str]:
    """Return the labels of a unary chain, top first."""
    return [part.replace("%2B", UNARY_JOIN).replace("%25", "%") for part in label.split(UNARY_JOIN)]


def tree_to_spans(tree: Tree) -> list[Span]:
    """Return a span for every node above the tags, outer before inner; a unary chain is one.

    Leaves (part-of-speech tags with their words) are not spans.
    """
    return [Span(join_unaries(labels), start, end) for labels, start, end in _unary_chains(tree)]


def tree_to_brackets(tree: Tree) -> list[Span]:
    """Return one span per node, as scorers count them."""
    return [
        Span(label, start, end) for labels, start, end in _unary_chains(tree) for label in labels
    ]


def split_unaries(spans: Iterable[Span]) -> list[Span]:
    """Split spans of unary chains into one span per label."""
    return [Span(label, s.start, s.end) for s in spans for label in split_unary_label(s.label)]


def add_root(tree: Tree, label: str = "TOP") -> Tree:
    """Wrap the tree in a root bracket, the inverse of `brackets.strip_root`."""
    return tree if tree.label == label and tree.children else Tree(label, "", (tree,))


def pos_tags(tree: Tree) -> list[str]:
    """Return the labels of the leaves, left to right."""
    return [node.label for node in iter_nodes(tree) if not node.children]


def to_tree(spans: Iterable[Span], words: Sequence[str], tags: Sequence[str]) -> Tree:
    """Build the tree of non-crossing spans over words and tags; the inverse of `tree_to_spans`.

    If no span covers the whole sentence, an unlabelled bracket does.
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
    done: list[Tree] = []  # finished trees with nothing open above
    following = iter(order)
    upcoming = next(following, None)
    for at, (word, tag) in enumerate(zip(words, tags, strict=True)):
        while upcoming and upcoming.start == at:
            if stack and stack[-1][0].end < upcoming.end:
                raise UserError(
                    f"Spans {stack[-1][0]} and {upcoming} cross: they cannot be in one tree."
                )
            stack.append((upcoming, []))
            upcoming = next(following, None)
        (stack[-1][1] if stack else done).append(Tree(tag, word))
        while stack and stack[-1][0].end == at + 1:
            span, children = stack.pop()
            (stack[-1][1] if stack else done).append(_build_chain(span, children))
    assert len(done) == 1
    return done[0]


def _unary_chains(tree: Tree) -> list[tuple[list[str], int, int]]:
    """Return labels, start and end of every unary chain above the leaves."""
    out: list[tuple[list[str], int, int]] = []
    stack: list[Tree | int] = [tree]  # a number: end of the chain at that index of `out`
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
