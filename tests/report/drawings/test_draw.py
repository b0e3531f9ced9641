"""Each kind of structure gets its drawing, alone, over gold, or beside it."""

import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from tests.fixtures.drawn_answers import (
    ALL,
    ARCS,
    BRACKETS,
    FILM,
    NODES,
    SCORES,
    SPANS,
    TAGS,
    WRONG,
)
from weft.report.drawings.draw import draw, draw_terminal, find_unmatched, lay_out
from weft.tasks.annotation import Annotation
from weft.text.annotation.trees import parse


def kinds(structures):
    return {"argvalues": structures, "ids": [s.kind for s in structures]}


@pytest.mark.parametrize("said", **kinds(ALL))
def test_correct_answer_is_drawn_once_without_marks(said):
    for page in (draw(said), draw(said, said)):
        assert 'class="pair"' not in page
        assert "off" not in page
        assert "<saw>" not in page
        assert ElementTree.fromstring(str(page)).tag == "div"  # well formed
        assert all(word in page for word in said.words if "<" not in word)
    assert "red" not in styles(draw_terminal(said, said))
    assert draw_terminal(said, said).plain == draw_terminal(said).plain


@pytest.mark.parametrize("pair", list(zip(WRONG, ALL, strict=True)), ids=[s.kind for s in ALL])
def test_errors_are_highlighted(pair):
    said, gold = pair
    page = draw(said, gold)
    assert "off" in page
    assert ('class="pair"' in page) == (said.kind in ("spans", "constituents"))
    assert "bold red" in styles(draw_terminal(said, gold))


@pytest.mark.parametrize("said", **kinds(ALL[:4]))
def test_other_words_are_drawn_beside_and_not_over(said):
    other = replace(said, words=("Sheep", *said.words[1:]), places=())
    page = draw(said, other)
    assert page.count("<h4>model</h4>") == page.count("<h4>gold</h4>") == 1
    assert draw_terminal(said, other).plain.startswith("model ")
    assert "\ngold  " in draw_terminal(said, other).plain


def test_right_tags_and_arcs_stand_with_the_wrong_ones():
    assert '<small>NOUN</small><small class="right">VERB</small>' in draw(WRONG[0], TAGS)
    assert draw(WRONG[2], ARCS).count("missed") == 4  # a line and a tip of each of two
    assert "She/PRON <saw>/NOUN→VERB" in draw_terminal(WRONG[0], TAGS).plain
    assert "should be flat ← Ann" in draw_terminal(WRONG[2], ARCS).plain


def test_spans_are_shown_in_the_text_or_what_the_places_say_of_it():
    assert draw_terminal(SPANS).plain == "She <saw> [Ann Lee PER]"
    gold = replace(SPANS, text="She\n<saw> Ann Lee!")
    assert "Lee!" in draw(WRONG[1], gold).replace("<small>", "")
    apart = Annotation("spans", ("a", "bc", "d"), ((2, 3), (3, 5), (8, 9)), spans=((3, 5, "X"),))
    assert draw_terminal(apart).plain == "  a[bc X]   d"
    # du = de + le: two words in one place
    shared = Annotation(
        "spans", ("de", "le", "lac"), ((0, 2), (0, 2), (3, 6)), spans=((3, 6, "X"),)
    )
    assert draw_terminal(shared).plain == "de [lac X]"


def test_brackets_that_gold_lacks_are_marked_and_each_only_as_often():
    page = draw(WRONG[3], BRACKETS)
    model, gold = page.split("<h4>gold</h4>")
    assert model.count("off") == 2  # (NP Ann) and (NP Lee)
    assert gold.count("off") == 1  # (NP Ann Lee)
    assert find_unmatched([("NP", 0, 1)] * 2, [("NP", 0, 1)]) == [False, True]


def test_scores_find_their_nodes():
    own = lay_out(FILM)
    by_step = dict(zip(own.order, SCORES, strict=True))
    assert [by_step[i] for i in range(7)] == [(int(label) - 2) / 2 for label in own.labels]
    assert own.words[-1] == ""
    page = draw(NODES)
    assert "<title>4, +1.00</title>" in page
    assert "<title>2, +0.00</title>" in page


def test_nodes_with_long_labels_or_no_scores_are_drawn_like_constituents():
    assert "circle" in draw(NODES)
    assert "circle" not in draw(replace(NODES, scores=()))
    long = parse("(positive (neutral The) (positive best))")
    assert "circle" not in draw(Annotation("nodes", ("The", "best"), tree=long, scores=(1, 0, 1)))


@pytest.mark.parametrize("said", **kinds(ALL))
def test_a_structure_survives_json(said):
    saved = json.loads(json.dumps(said.to_json()))
    assert Annotation.from_json(saved) == said
    assert Annotation.from_json(saved, "a text").text == "a text"


def test_of_an_empty_text_nothing_is_drawn():
    for kind in ("tags", "spans", "arcs", "constituents", "nodes"):
        empty = Annotation(kind, ())
        assert "svg" not in draw(empty) or kind == "arcs"
        assert draw_terminal(empty, empty).plain == ""


def test_a_tree_with_unlabelled_nodes_and_brackets_survives_json():
    from weft.text.annotation.trees import Tree

    tree = Tree("", "", (Tree("", "("), Tree("2", "a", ()), Tree("", "", (Tree("", "b)"),))))
    said = Annotation("nodes", ("(", "a", "b)"), tree=tree)
    assert Annotation.from_json(json.loads(json.dumps(said.to_json()))).tree == tree


def styles(text):
    return " ".join(str(span.style) for span in text.spans)
