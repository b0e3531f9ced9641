"""The drawing that fits what an answer says of the words, alone or beside what is right."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from weft.report.drawings import dependency_svg, tagged_text, terminal, tree_svg
from weft.tasks.annotation import Annotation
from weft.text.annotation.trees import Tree

if TYPE_CHECKING:
    from rich.text import Text

SIGN = 3  # letters of a label that fit into a node


def drawn(said: Annotation, gold: Annotation | None = None, names: Sequence[str] = ()) -> Markup:
    """What is said as HTML, with what differs from gold marked; for a page with drawings.html.

    Over the same words it is one drawing where one can show both; otherwise one beside the other.
    `names` are the labels on the whole page, so that each has one colour there.
    """
    if gold is not None and not _comparable(said, gold):
        return tree_svg.side_by_side(drawn(said, None, names), drawn(gold, None, names))
    if said.kind == "tags":
        return tagged_text.tags(said.words, said.tags, gold.tags if gold else (), names)
    if said.kind in ("spans", "answer"):
        return _spans(said, gold, names)
    if said.kind == "arcs":
        return _wide(_arcs(said, gold))
    if said.tree is None:  # of an empty text
        return Markup("")
    if said.kind == "nodes" and _signs(said):
        return _wide(_sentiment(said, gold))
    return _constituents(said.tree, gold.tree if gold else None)


def in_terminal(said: Annotation, gold: Annotation | None = None) -> "Text":
    """The same for a terminal: what is wrong in red, with what is right."""
    if gold is not None and not _comparable(said, gold):
        return _lines(in_terminal(said), in_terminal(gold))
    if said.kind == "tags":
        return terminal.tags(said.words, said.tags, gold.tags if gold else ())
    if said.kind in ("spans", "answer"):
        text = _text(said, gold)
        if gold is None or set(gold.spans) == set(said.spans):
            return terminal.entities(text, said.spans)
        ours, theirs = ((said.spans, gold.spans), (gold.spans, said.spans))
        return _lines(terminal.entities(text, *ours), terminal.entities(text, *theirs))
    if said.kind == "arcs":
        right = (gold.heads, gold.relations) if gold else ()
        return terminal.dependencies(said.words, said.heads, said.relations, *right)
    if said.tree is None:
        return terminal.tags((), ())
    if said.kind == "nodes":
        own = laid(said.tree)
        labels = laid(gold.tree).labels if gold and gold.tree else ()
        return terminal.tree(own.words, own.parents, own.labels, _scores(said, own), labels)
    return _brackets(said.tree, gold.tree if gold else None)


@dataclass(frozen=True)
class Laid:
    """The nodes of a tree as drawings take them: children before parents, the root last."""

    words: tuple[str, ...]
    labels: tuple[str, ...]
    parents: list[int]
    spans: list[tuple[str, int, int]]  # label, first word, the word after the last
    order: list[int]  # of each place in `weft.text.annotation.trees.nodes`, its step here


def laid(tree: Tree) -> Laid:
    """A tree laid out for drawing."""
    from weft.batch.trees import flatten_tree

    flat = flatten_tree(tree)
    parents = flat.parents.tolist()
    below: list[list[int]] = [[] for _ in parents]
    for step, up in enumerate(parents):
        if up >= 0:
            below[up].append(step)
    order, stack = [], [len(parents) - 1]
    while stack:
        order.append(stack.pop())
        stack.extend(reversed(below[order[-1]]))
    spans = [
        (label, start, end)
        for label, (start, end) in zip(flat.labels, flat.spans.tolist(), strict=True)
    ]
    return Laid(flat.words, flat.labels, parents, spans, order)


def strangers(own: Sequence[tuple], other: Sequence[tuple]) -> list[bool]:
    """Which of some values the other side lacks; of two equal ones it needs two."""
    left, out = Counter(other), []
    for value in own:
        out.append(left[value] <= 0)
        left[value] -= 1
    return out


def _comparable(said: Annotation, gold: Annotation) -> bool:
    """Whether one drawing can hold both."""
    if said.kind == gold.kind == "answer":
        return True
    if said.kind != gold.kind or said.words != gold.words:
        return False
    if said.kind != "nodes":
        return True
    if said.tree is None or gold.tree is None:
        return said.tree is gold.tree
    return laid(said.tree).parents == laid(gold.tree).parents


def _text(said: Annotation, gold: Annotation | None) -> str:
    """What the characters of spans are counted in; gaps between words without a text are spaces."""
    if text := (gold.text if gold else "") or said.text:
        return text
    if not said.places:
        return " ".join(said.words)
    out = ""
    for word, (start, end) in zip(said.words, said.places, strict=True):
        if start >= len(out):  # two words may stand in one place, as de and le in du
            out = (out.ljust(start) + word[: end - start]).ljust(end)
    return out


def _spans(said: Annotation, gold: Annotation | None, names: Sequence[str]) -> Markup:
    text = _text(said, gold)
    if gold is None:
        return tagged_text.entities(text, said.spans, names=names)
    labels = [*names, *(span[2] for span in (*said.spans, *gold.spans))]
    ours = tagged_text.entities(text, said.spans, gold.spans, labels)
    if set(said.spans) == set(gold.spans):
        return ours
    return tree_svg.side_by_side(ours, tagged_text.entities(text, gold.spans, said.spans, labels))


def _arcs(said: Annotation, gold: Annotation | None) -> Markup:
    right = (gold.heads, gold.relations) if gold else ((), ())
    tags = [tag.partition(" ")[0] for tag in said.tags]  # of several columns the first
    return dependency_svg.dependencies(said.words, said.heads, said.relations, tags, *right)


def _signs(said: Annotation) -> bool:
    """Whether labels are short enough for coloured nodes, and there are scores to colour them."""
    assert said.tree is not None
    return bool(said.scores) and all(len(label) <= SIGN for label in laid(said.tree).labels)


def _sentiment(said: Annotation, gold: Annotation | None) -> Markup:
    assert said.tree is not None
    own = laid(said.tree)
    right = laid(gold.tree).labels if gold and gold.tree else ()
    return tree_svg.sentiment(own.words, own.parents, _scores(said, own), own.labels, right)


def _scores(said: Annotation, own: Laid) -> list[float]:
    """The scores of the nodes in the order of drawing."""
    if not said.scores:
        return []
    out = [0.0] * len(own.order)
    for step, score in zip(own.order, said.scores, strict=True):
        out[step] = score
    return out


def _constituents(said: Tree, gold: Tree | None) -> Markup:
    ours = laid(said)
    if gold is None:
        return _wide(tree_svg.constituency(ours.words, ours.parents, ours.labels))
    theirs = laid(gold)
    pictures = [
        tree_svg.constituency(own.words, own.parents, own.labels, strangers(own.spans, other.spans))
        for own, other in ((ours, theirs), (theirs, ours))
    ]
    return _wide(pictures[0]) if said == gold else tree_svg.side_by_side(*pictures)


def _brackets(said: Tree, gold: Tree | None) -> "Text":
    ours = laid(said)
    if gold is None or said == gold:
        return terminal.brackets(ours.words, ours.parents, ours.labels)
    theirs = laid(gold)
    return _lines(
        *(
            terminal.brackets(own.words, own.parents, own.labels, strangers(own.spans, other.spans))
            for own, other in ((ours, theirs), (theirs, ours))
        )
    )


def _lines(said: "Text", gold: "Text") -> "Text":
    from rich.text import Text

    out = Text("model ", "dim").append_text(said)
    return out.append("\ngold  ", "dim").append_text(gold)


def _wide(picture: Markup) -> Markup:
    return Markup('<div class="wide">{}</div>').format(picture)
