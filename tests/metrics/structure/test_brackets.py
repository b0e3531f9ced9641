"""Bracket scores by hand and against evalb's own way of counting, on bracketed lines."""

import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.metrics.structure.brackets import BracketedTree, BracketF1
from weft.text.annotation.constituents import pos_tags, tree_to_brackets
from weft.text.annotation.trees import Tree, format, parse

DELETE = ("TOP", "-NONE-", ",", ":", "``", "''", ".")


def bracketed(line: str) -> BracketedTree:
    tree = parse(line)
    return BracketedTree(tree_to_brackets(tree), pos_tags(tree))


def read(line: str):
    """Words kept and [label, start, end] brackets in one scan, as evalb reads a line."""
    words, found, stack = [], [], []
    for token in re.finditer(r"\(([^() ]*) ([^() ]+)\)|\(([^() ]*)|\)", line):
        tag, word, label = token.groups()
        if word:
            if tag not in DELETE:
                words.append(word)
        elif label is not None:
            stack.append([label, len(words), None])
            found.append(stack[-1])
        else:
            stack.pop()[2] = len(words)
    return words, found


def evalb(gold: str, test: str):
    """Gold, test and matched brackets and crossing ones; None where evalb leaves a line out."""
    (words, true), (others, said) = read(gold), read(test)
    if not others or words != others:
        return None

    def trim(brackets):
        trimmed = [(re.split("[-=]", label)[0], a, b) for label, a, b in brackets if a != b]
        return [bracket for bracket in trimmed if bracket[0] not in DELETE]

    def same(a, b):
        return a == b or {a, b} == {"ADVP", "PRT"}

    true, said = trim(true), trim(said)
    free, matched = list(said), 0
    for label, a, b in true:
        for other in free:
            if other[1:] == (a, b) and same(label, other[0]):
                free.remove(other)
                matched += 1
                break
    crossing = sum(any(a < c < b < d or c < a < d < b for _, a, b in true) for _, c, d in said)
    return len(true), len(said), matched, crossing


@st.composite
def trees(draw, words: int):
    """A random tree over words w0, w1 …, some of them punctuation, with unary chains."""
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    names = ("NP", "NP-SBJ", "VP", "PRT", "ADVP", "S=2", "S")

    def grow(start: int, end: int) -> Tree:
        if end - start == 1:
            tag = "," if start % 3 == 2 else "." if start % 5 == 4 else "NN"
            tree = Tree(tag, f"w{start}")
        else:
            cuts = np.sort(rng.choice(np.arange(start + 1, end), rng.integers(1, 3)))
            edges = sorted({start, *cuts.tolist(), end})
            inner = [grow(a, b) for a, b in pairwise(edges)]
            tree = Tree(str(rng.choice(names)), "", tuple(inner))
        while rng.random() < 0.3:
            tree = Tree(str(rng.choice(names)), "", (tree,))
        return tree

    return format(Tree("TOP", "", (grow(0, words),)))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_counts_are_those_of_evalb(data):
    measure, rows = BracketF1(), []
    for n in data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)):
        gold, test = data.draw(trees(n)), data.draw(trees(n))
        measure.add([bracketed(test)], [bracketed(gold)])
        rows.append(evalb(gold, test))
    assert measure.skipped == rows.count(None)
    kept = [row for row in rows if row]
    if not kept:
        return
    true, said, right, crossing = (sum(column) for column in zip(*kept, strict=True))
    found = {name: figure.value for name, figure in measure.compute(resamples=0).items()}
    assert found.pop("unlabelled_f1") >= found["f1"] - 1e-12
    assert found == pytest.approx(
        {
            "precision": right / said if said else 0,
            "recall": right / true if true else 0,
            "f1": 2 * right / (true + said) if true + said else 0,
            "complete": sum(a == b == c for a, b, c, _ in kept) / len(kept),
            "crossing": crossing / len(kept),
            "no_crossing": sum(row[3] == 0 for row in kept) / len(kept),
        }
    )
    assert measure.compute(resamples=3)["f1"].n == len(kept)


def test_bracket_scores_of_a_worked_example():
    gold = "(TOP (S (NP-SBJ (DT the) (NN dog)) (, ,) (VP (VBD ran) (PRT (RP off))) (. .)))"
    test = "(TOP (S (NP (DT the)) (VP (NN dog) (, ,) (VP (VBD ran) (ADVP (RP off)))) (. .)))"
    measure = BracketF1()
    measure.add([bracketed(test)], [bracketed(gold)])
    found = {name: figure.value for name, figure in measure.compute().items()}
    # Gold S(0,4) NP(0,2) VP(2,4) PRT(3,4); test S(0,4) NP(0,1) VP(1,4) VP(2,4) ADVP(3,4).
    assert found == pytest.approx(
        {
            "precision": 3 / 5,
            "recall": 3 / 4,
            "f1": 6 / 9,
            "unlabelled_f1": 6 / 9,
            "complete": 0,
            "crossing": 1,
            "no_crossing": 0,
        }
    )


def test_attachment_of_punctuation_is_ignored():
    gold = "(S (NP (NN a) (, ,)) (VP (VB b)) (. .))"
    test = "(S (S (NP (NN a)) (, ,) (VP (VB b) (. .))))"
    measure = BracketF1()
    measure.add([bracketed(test)], [bracketed(gold)])
    assert measure.compute()["recall"].value == 1
    assert measure.compute()["precision"].value == pytest.approx(3 / 4)  # the second S is too many


def test_a_chain_counts_each_label_once():
    gold, test = "(NP (NP (NP (NN a))))", "(NP (NP (NN a)))"
    measure = BracketF1()
    measure.add([bracketed(test)], [bracketed(gold)])
    assert measure.compute()["recall"].value == pytest.approx(2 / 3)
    assert measure.compute()["precision"].value == 1


def test_sentences_that_cannot_be_compared_are_counted_and_left_out():
    measure = BracketF1()
    right = bracketed("(S (NP (NN a)) (VP (VB b)))")
    other = bracketed("(S (NP (NN a)) (VP (. b)))")  # says that b is punctuation
    nothing = bracketed("(S (. .))")
    measure.add([right, other, nothing], [right, right, nothing])
    more = BracketF1()
    more.add([right], [bracketed("(S (NP (NN a)) (VP (VB b) (NN c)))")])
    measure.merge(more)
    assert (measure.n, measure.errors, measure.skipped) == (1, 2, 1)
    assert measure.compute()["f1"].value == 1


def test_merging_equals_counting_at_once():
    lines = ["(S (NP (NN a)) (VP (VB b) (NP (NN c))))", "(S (NP (NN a) (VB b)) (NN c))"] * 3
    pairs = [(bracketed(a), bracketed(b)) for a, b in zip(lines, lines[::-1], strict=True)]
    whole, parts = BracketF1(), BracketF1()
    whole.add(*map(list, zip(*pairs, strict=True)))
    for said, true in reversed(pairs):
        part = BracketF1()
        part.add([said], [true])
        parts.merge(part)
    assert parts.compute(resamples=17) == whole.compute(resamples=17)
    assert parts.n == 6


def test_nothing_counted_gives_zeros():
    for figure in BracketF1().compute().values():
        assert figure.to_json() == {"value": 0.0, "low": 0.0, "high": 0.0, "n": 0}


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_unlabelled_f1_is_that_of_trees_with_one_label(data):
    measure, bare = BracketF1(), BracketF1()
    for n in data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)):
        lines = data.draw(trees(n)), data.draw(trees(n))
        measure.add(*([bracketed(line)] for line in lines))
        same = (re.sub(r"\((?:NP|VP|PRT|ADVP|S)[^ ]*", "(X", line) for line in lines)
        bare.add(*([bracketed(line)] for line in same))
    wanted, found = bare.compute(resamples=0)["f1"], measure.compute(resamples=0)["unlabelled_f1"]
    assert found.value == pytest.approx(wanted.value)
