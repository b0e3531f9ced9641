"""Choose the drawing of a structure, alone or compared with gold."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from markupsafe import Markup

from weft.report.drawings import (
    boundaries,
    chains,
    dependency_svg,
    frames,
    tagged_text,
    terminal,
    tree_svg,
)
from weft.report.drawings.tuple_graph import draw_tuples
from weft.tasks.annotation import Annotation
from weft.tasks.semantics.openie import annotated_extractions
from weft.text.annotation.trees import Tree

if TYPE_CHECKING:
    from rich.text import Text

MAX_SIGN_LETTERS = 3  # of a label that fits into a node
T = TypeVar("T")


def draw(
    predicted: Annotation, gold: Annotation | None = None, names: Sequence[str] = ()
) -> Markup:
    """Draw a structure as HTML, with differences from gold marked; pages include drawings.html.

    If one drawing can show both, it does; otherwise they are stacked. `names` are all labels on
    the page, so that each keeps its colour.
    """
    if gold is not None and not _can_share_drawing(predicted, gold):
        return tree_svg.side_by_side(draw(predicted, None, names), draw(gold, None, names))
    if predicted.kind == "tags":
        return tagged_text.draw_tags(
            predicted.words, predicted.tags, gold.tags if gold else (), names
        )
    if predicted.kind == "word-numbers":
        return tagged_text.draw_numbers(predicted, gold)
    if predicted.kind in ("spans", "answer"):
        return _draw_spans(predicted, gold, names) + _draw_boundaries(predicted)
    if predicted.kind == "frames":
        return _draw_frames(predicted, gold)
    if predicted.kind == "chains":
        return _draw_chains(predicted, gold)
    if predicted.kind == "tuples":
        return _draw_tuples(predicted, gold)
    if predicted.kind == "arcs":
        return _scrollable(_draw_arcs(predicted, gold))
    if predicted.tree is None:  # of an empty text
        return Markup("")
    if predicted.kind == "nodes" and _fits_in_nodes(predicted):
        return _scrollable(_draw_sentiment(predicted, gold))
    return _draw_constituents(predicted.tree, gold.tree if gold else None)


def draw_terminal(predicted: Annotation, gold: Annotation | None = None) -> "Text":
    """Draw a structure for a terminal: errors in red, with the correct labels."""
    if gold is not None and not _can_share_drawing(predicted, gold):
        return _stack_lines(draw_terminal(predicted), draw_terminal(gold))
    if predicted.kind == "tags":
        return terminal.draw_tags(predicted.words, predicted.tags, gold.tags if gold else ())
    if predicted.kind == "word-numbers":
        return terminal.draw_numbers(predicted, gold)
    if predicted.kind in ("spans", "answer"):
        return _draw_spans_terminal(predicted, gold)
    if predicted.kind == "frames":
        return _draw_frames_terminal(predicted, gold)
    if predicted.kind == "chains":
        ours = chains.draw_chains_terminal(predicted)
        if gold is None or gold.mentions == predicted.mentions:
            return ours
        return _stack_lines(ours, chains.draw_chains_terminal(gold))
    if predicted.kind == "tuples":
        return _draw_tuples_terminal(predicted, gold)
    if predicted.kind == "arcs":
        gold_arcs = (gold.heads, gold.relations) if gold else ()
        return terminal.draw_dependencies(
            predicted.words, predicted.heads, predicted.relations, *gold_arcs
        )
    if predicted.tree is None:
        return terminal.draw_tags((), ())
    if predicted.kind == "nodes":
        layout = lay_out(predicted.tree)
        labels = lay_out(gold.tree).labels if gold and gold.tree else ()
        return terminal.draw_tree(
            layout.words, layout.parents, layout.labels, _scores_in_order(predicted, layout), labels
        )
    return _terminal_brackets(predicted.tree, gold.tree if gold else None)


@dataclass(frozen=True)
class TreeLayout:
    """The nodes of a tree in drawing order: children before parents, the root last."""

    words: tuple[str, ...]
    labels: tuple[str, ...]
    parents: list[int]
    spans: list[tuple[str, int, int]]  # label, start, end
    order: list[int]  # index here of each node of `weft.text.annotation.trees.nodes`


def lay_out(tree: Tree) -> TreeLayout:
    """Return the nodes of a tree in drawing order."""
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
    return TreeLayout(flat.words, flat.labels, parents, spans, order)


def find_unmatched(values: Sequence[T], other: Sequence[T]) -> list[bool]:
    """Return which values have no match in `other`, counting duplicates."""
    left, out = Counter(other), []
    for value in values:
        out.append(left[value] <= 0)
        left[value] -= 1
    return out


def _can_share_drawing(predicted: Annotation, gold: Annotation) -> bool:
    """Return True if one drawing can show both structures."""
    if predicted.kind == gold.kind == "answer":
        return True
    if predicted.kind != gold.kind or predicted.words != gold.words:
        return False
    if predicted.kind != "nodes":
        return True
    if predicted.tree is None or gold.tree is None:
        return predicted.tree is gold.tree
    return lay_out(predicted.tree).parents == lay_out(gold.tree).parents


def _running_text(predicted: Annotation, gold: Annotation | None) -> str:
    """Return the text that span offsets refer to; without one, words with gaps as spaces."""
    if text := (gold.text if gold else "") or predicted.text:
        return text
    if not predicted.places:
        return " ".join(predicted.words)
    out = ""
    for word, (start, end) in zip(predicted.words, predicted.places, strict=True):
        if start >= len(out):  # two words may share offsets, as de and le in du
            out = (out.ljust(start) + word[: end - start]).ljust(end)
    return out


def _draw_spans(predicted: Annotation, gold: Annotation | None, names: Sequence[str]) -> Markup:
    if predicted.label:
        unlabelled = replace(predicted, label=""), gold and replace(gold, label="")
        return _draw_label(predicted, gold) + _draw_spans(*unlabelled, names)
    text = _running_text(predicted, gold)
    if gold is None:
        return tagged_text.draw_entities(text, predicted.spans, names=names)
    labels = [*names, *(span[2] for span in (*predicted.spans, *gold.spans))]
    drawing = tagged_text.draw_entities(text, predicted.spans, gold.spans, labels)
    if set(predicted.spans) == set(gold.spans):
        return drawing
    return tree_svg.side_by_side(
        drawing, tagged_text.draw_entities(text, gold.spans, predicted.spans, labels)
    )


def _draw_label(predicted: Annotation, gold: Annotation | None) -> Markup:
    """Draw the label of the whole sentence, with gold's if that is another."""
    right = gold is None or gold.label == predicted.label
    sure = f" {predicted.label_score:.1%}" if predicted.label_score else ""
    out = Markup('<p><b class="{}">{}</b>{}').format(
        "" if right else "wrong", predicted.label, sure
    )
    if gold is None or right:
        return out + Markup("</p>")
    return out + Markup(" → <b>{}</b></p>").format(gold.label)


def _draw_label_terminal(predicted: Annotation, gold: Annotation | None) -> "Text":
    """Draw the label of the whole sentence, red if it is not gold's."""
    from rich.text import Text

    right = gold is None or gold.label == predicted.label
    out = Text(predicted.label, "bold" if right else terminal.WRONG_STYLE)
    out.append(f" {predicted.label_score:.1%}" if predicted.label_score else "", "dim")
    if gold is not None and not right:
        out.append(f"→{gold.label}", "green")
    return out.append("\n")


def _draw_spans_terminal(predicted: Annotation, gold: Annotation | None) -> "Text":
    if predicted.label:
        unlabelled = replace(predicted, label=""), gold and replace(gold, label="")
        spans = _draw_spans_terminal(*unlabelled)
        return _draw_label_terminal(predicted, gold).append_text(spans)
    text = _running_text(predicted, gold)
    if gold is None or set(gold.spans) == set(predicted.spans):
        out = terminal.draw_entities(text, predicted.spans)
    else:
        both = ((predicted.spans, gold.spans), (gold.spans, predicted.spans))
        out = _stack_lines(*(terminal.draw_entities(text, *pair) for pair in both))
    if not predicted.starts:
        return out
    strips = boundaries.draw_boundaries_terminal(predicted.text, predicted.starts, predicted.ends)
    return out.append("\n").append_text(strips)


def _draw_chains(predicted: Annotation, gold: Annotation | None) -> Markup:
    drawn = chains.draw_chains(predicted)
    if gold is None or gold.mentions == predicted.mentions:
        return drawn
    return tree_svg.side_by_side(drawn, chains.draw_chains(gold))


def _draw_tuples(predicted: Annotation, gold: Annotation | None) -> Markup:
    text = _running_text(predicted, gold)
    drawn = _scrollable(draw_tuples(annotated_extractions(predicted, text).tuples))
    if gold is None or _same_tuples(predicted, gold):
        return drawn
    return tree_svg.side_by_side(
        drawn, _scrollable(draw_tuples(annotated_extractions(gold, text).tuples))
    )


def _draw_tuples_terminal(predicted: Annotation, gold: Annotation | None) -> "Text":
    text = _running_text(predicted, gold)
    ours = terminal.draw_tuples(text, annotated_extractions(predicted, text).tuples)
    if gold is None or _same_tuples(predicted, gold):
        return ours
    return _stack_lines(ours, terminal.draw_tuples(text, annotated_extractions(gold, text).tuples))


def _same_tuples(predicted: Annotation, gold: Annotation) -> bool:
    """Return True if two annotations differ in confidence at most."""
    return [row[1:] for row in predicted.tuples] == [row[1:] for row in gold.tuples]


def _draw_frames(predicted: Annotation, gold: Annotation | None) -> Markup:
    text = _running_text(predicted, gold)
    if gold is None or predicted.frames == gold.frames:
        return frames.draw_frames(text, predicted)
    return tree_svg.side_by_side(
        frames.draw_frames(text, predicted, gold), frames.draw_frames(text, gold, predicted)
    )


def _draw_frames_terminal(predicted: Annotation, gold: Annotation | None) -> "Text":
    text = _running_text(predicted, gold)
    if gold is None or predicted.frames == gold.frames:
        return frames.draw_frames_terminal(text, predicted)
    return _stack_lines(
        frames.draw_frames_terminal(text, predicted, gold),
        frames.draw_frames_terminal(text, gold, predicted),
    )


def _draw_boundaries(predicted: Annotation) -> Markup:
    """Draw the start and end distributions of an answer, if it has them."""
    if not predicted.starts:
        return Markup("")
    return boundaries.draw_boundaries(predicted.text, predicted.starts, predicted.ends)


def _draw_arcs(predicted: Annotation, gold: Annotation | None) -> Markup:
    gold_arcs = (gold.heads, gold.relations) if gold else ((), ())
    tags = [tag.partition(" ")[0] for tag in predicted.tags]  # the first of several columns
    return dependency_svg.draw_dependencies(
        predicted.words, predicted.heads, predicted.relations, tags, *gold_arcs
    )


def _fits_in_nodes(predicted: Annotation) -> bool:
    """Return True if there are scores, and labels short enough for coloured nodes."""
    assert predicted.tree is not None
    return bool(predicted.scores) and all(
        len(label) <= MAX_SIGN_LETTERS for label in lay_out(predicted.tree).labels
    )


def _draw_sentiment(predicted: Annotation, gold: Annotation | None) -> Markup:
    assert predicted.tree is not None
    layout = lay_out(predicted.tree)
    gold_labels = lay_out(gold.tree).labels if gold and gold.tree else ()
    return tree_svg.draw_sentiment(
        layout.words,
        layout.parents,
        _scores_in_order(predicted, layout),
        layout.labels,
        gold_labels,
    )


def _scores_in_order(predicted: Annotation, layout: TreeLayout) -> list[float]:
    """Return the node scores in drawing order."""
    if not predicted.scores:
        return []
    out = [0.0] * len(layout.order)
    for step, score in zip(layout.order, predicted.scores, strict=True):
        out[step] = score
    return out


def _draw_constituents(predicted: Tree, gold: Tree | None) -> Markup:
    layout = lay_out(predicted)
    if gold is None:
        return _scrollable(tree_svg.draw_constituency(layout.words, layout.parents, layout.labels))
    gold_layout = lay_out(gold)
    drawings = [
        tree_svg.draw_constituency(
            one.words, one.parents, one.labels, find_unmatched(one.spans, other.spans)
        )
        for one, other in ((layout, gold_layout), (gold_layout, layout))
    ]
    return _scrollable(drawings[0]) if predicted == gold else tree_svg.side_by_side(*drawings)


def _terminal_brackets(predicted: Tree, gold: Tree | None) -> "Text":
    layout = lay_out(predicted)
    if gold is None or predicted == gold:
        return terminal.draw_brackets(layout.words, layout.parents, layout.labels)
    gold_layout = lay_out(gold)
    return _stack_lines(
        *(
            terminal.draw_brackets(
                one.words, one.parents, one.labels, find_unmatched(one.spans, other.spans)
            )
            for one, other in ((layout, gold_layout), (gold_layout, layout))
        )
    )


def _stack_lines(predicted: "Text", gold: "Text") -> "Text":
    from rich.text import Text

    out = Text("model ", "dim").append_text(predicted)
    return out.append("\ngold  ", "dim").append_text(gold)


def _scrollable(picture: Markup) -> Markup:
    return Markup('<div class="wide">{}</div>').format(picture)
