"""What is counted of one sentence adds up to what the measures say of all."""

import random
from dataclasses import replace

import numpy as np
import pytest

from weft.compare.sentence_scores import (
    NO_LABEL,
    UNITS,
    WRONG_BOUNDARIES,
    describe_metric,
    label_names,
    ratio_terms,
    score_sentence,
)
from weft.metrics.structure.brackets import BracketedTree, BracketF1
from weft.metrics.structure.chunks import SpanF1
from weft.metrics.structure.dependencies import AttachmentScores
from weft.metrics.structure.tags import TagAccuracy
from weft.metrics.structure.tree_nodes import NodeAccuracy
from weft.report.drawings.draw import lay_out
from weft.tasks.annotation import Annotation
from weft.text.annotation import constituents
from weft.text.annotation.trees import Tree, parse

DRAW = random.Random(7)
SIZES = [DRAW.randrange(1, 9) for _ in range(53)]


def total(pairs, metric=""):
    top, bottom = np.array([ratio_terms(said, gold, metric) for said, gold in pairs]).sum(0)
    return top / bottom


def column(size, letters="abc"):
    return tuple(DRAW.choice(letters) for _ in range(size))


def words(size):
    return tuple(f"w{i}" for i in range(size))


@pytest.mark.parametrize("count", [1, 2])
def test_tags_add_up_to_tagging(count):
    measure = TagAccuracy(["x", "y"][:count])
    pairs = []
    for size in SIZES:
        ours, theirs = ([column(size) for _ in range(count)] for _ in range(2))
        measure.add([ours], [theirs])
        sides = [Annotation("tags", words(size), tags=tuple(map(" ".join, zip(*c, strict=True))))
                 for c in (ours, theirs)]  # fmt: skip
        pairs.append(sides)
    figure = measure.compute(0)["x" if count == 1 else "all"]
    assert total(pairs) == pytest.approx(figure.value)
    cells = [cell for said, gold in pairs for cell in score_sentence(said, gold).confusions]
    assert {c: cells.count(c) for c in cells} == dict(measure.confusion("x"))


def spans(size):
    found = {}
    for start in range(size):
        if DRAW.random() < 0.5:
            found[start] = (start, min(size, start + DRAW.randrange(1, 3)), DRAW.choice("AB"))
    return tuple(found.values())


def test_spans_add_up_to_chunks():
    measure, pairs = SpanF1(), []
    for size in SIZES:
        ours, theirs = spans(size), spans(size)
        measure.add(*([[(label, a, b) for a, b, label in side]] for side in (ours, theirs)))
        places = tuple((i, i + 1) for i in range(size))
        pairs.append([Annotation("spans", words(size), places, spans=s) for s in (ours, theirs)])
    assert total(pairs) == pytest.approx(measure.compute(0)["f1"].value)
    found = [score_sentence(*pair) for pair in pairs]
    for label, figures in measure.per_class().items():
        right, said, true = (
            sum(getattr(one, side).count(label) for one in found)
            for side in ("correct", "predicted", "gold")
        )
        assert figures.precision == pytest.approx(right / said)
        assert figures.recall == pytest.approx(right / true)


def test_span_confusions_distinguish_type_boundary_and_omission():
    gold = Annotation("spans", words(9), spans=((0, 2, "A"), (3, 5, "B"), (6, 8, "A"), (8, 9, "B")))
    said = replace(gold, spans=((0, 2, "B"), (3, 4, "B"), (8, 9, "B"), (5, 6, "C")))
    assert sorted(score_sentence(said, gold).confusions) == sorted(
        [("A", "B"), ("B", WRONG_BOUNDARIES), ("A", NO_LABEL), ("B", "B"), (NO_LABEL, "C")]
    )


def heads(size):
    return tuple(DRAW.choice([h for h in range(size + 1) if h != i]) for i in range(1, size + 1))


def test_arcs_add_up_to_dependencies():
    measure, pairs = AttachmentScores(), []
    relations = ("nsubj", "nsubj:pass", "obj", "det")
    for size in SIZES:
        sides = [(heads(size), column(size, relations)) for _ in range(2)]
        measure.add([sides[0]], [sides[1]])
        pairs.append([Annotation("arcs", words(size), heads=h, relations=r) for h, r in sides])
    figures = measure.compute(0)
    assert total(pairs, "las") == pytest.approx(figures["las"].value)
    assert total(pairs, "uas") == pytest.approx(figures["uas"].value)
    assert {name for pair in pairs for name in label_names(pair[0])} == {"nsubj", "obj", "det"}


def grown(size):
    """A random tree over some words, with chains, punctuation and functions."""
    parts = [Tree(DRAW.choice(("NN", "VB", ".")), word) for word in words(size)]
    while len(parts) > 1:
        at = DRAW.randrange(len(parts) - 1)
        label = DRAW.choice(("NP", "NP-SBJ", "VP", "PRT", "ADVP"))
        parts[at : at + 2] = [Tree(label, children=tuple(parts[at : at + 2]))]
        if DRAW.random() < 0.3:
            parts[at] = Tree("S", children=(parts[at],))
    return Tree("TOP", children=(parts[0],))


def test_brackets_add_up_to_evalb():
    measure, pairs = BracketF1(), []
    for size in SIZES:
        trees = [grown(size), grown(size)]
        tags = constituents.pos_tags(trees[1])  # what is punctuation, the right tree says
        measure.add(*([BracketedTree(constituents.tree_to_brackets(tree), tags)] for tree in trees))
        pairs.append([Annotation("constituents", words(size), tree=t) for t in trees])
    assert total(pairs) == pytest.approx(measure.compute(0)["f1"].value)
    # A bracket without a label, around a sentence that nothing else holds, is not counted.
    bare = Annotation("constituents", words(2), tree=parse("( (NN w0) (NN w1))"))
    assert ratio_terms(bare, replace(bare, tree=parse("(NP (NN w0) (NN w1))"))) == (0, 1)


def test_nodes_add_up_to_node_labels():
    measure, pairs = NodeAccuracy(3), []
    for size in SIZES:
        shape = grown(size)
        sides = [relabelled(shape, "012"), relabelled(shape, ("0", "1", "2", ""))]
        rows = [lay_out(side) for side in sides]
        ours, theirs = (
            np.array([[int(label) if label else -1 for label in row.labels]]) for row in rows
        )
        measure.add(ours, theirs, np.array([rows[0].parents]))
        pairs.append([Annotation("nodes", words(size), tree=side) for side in sides])
    figures = measure.compute(0)
    assert total(pairs, "nodes") == pytest.approx(figures["nodes"].value)
    # A root that gold leaves open does not count for either.
    known = [pair for pair in pairs if pair[1].tree.label]
    right = sum(said.tree.label == gold.tree.label for said, gold in known)
    assert total(pairs, "root") == pytest.approx(right / len(known))


def relabelled(tree, labels):
    children = tuple(relabelled(child, labels) for child in tree.children)
    return Tree(DRAW.choice(labels), tree.word, children)


def test_labels_of_constituents_are_those_of_chains():
    said, gold = (parse(line) for line in (
        "(S (NP (PRP She)) (VP (VBD left)))", "(S (NP (PRP She)) (ADVP (RB left)))"))  # fmt: skip
    found = score_sentence(
        *(Annotation("constituents", ("She", "left"), tree=t) for t in (said, gold))
    )
    assert ("ADVP", "VP") in found.confusions
    assert ("NP", "NP") in found.confusions
    assert sorted(found.correct) == ["NP", "S"]


def test_every_kind_has_words_for_its_figure():
    assert all(describe_metric("anything", kind) for kind in UNITS)
    assert describe_metric("accuracy", "") == ""
    assert "root" in describe_metric("root", "nodes")
    assert "every column" in describe_metric("all", "tags")
