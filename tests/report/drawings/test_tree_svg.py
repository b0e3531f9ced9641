"""Drawings of trees, arcs, entities and tags: what stands where, and that nothing overlaps."""

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.text import Text

from weft.batch.trees import flatten_tree
from weft.errors import UserError
from weft.report.drawings import dependency_svg, tagged_text, terminal, tree_svg
from weft.text.annotation.trees import Tree, parse

FILM = flatten_tree(parse("(3 (2 (2 The) (2 <film>)) (4 (3 is) (4 (2 so) (4 good))))"))
SIGNS = [{"2": "0", "3": "+", "4": "++"}[label] for label in FILM.labels]
SCORES = [(int(label) - 2) / 2 for label in FILM.labels]
WORDS = ["She", "said", "that", "they", "left", "early"]
HEADS = [2, 0, 5, 5, 2, 5]
LABELS = ["nsubj", "root", "mark", "nsubj", "ccomp", "advmod"]
TEXT = "Ann Lee of New York University left"
GOLD = [(0, 7, "PER"), (11, 30, "ORG"), (11, 19, "LOC")]

leaves = st.builds(Tree, st.just("X"), st.sampled_from(["a", "extraordinarily", "the", "東京都"]))
trees = st.recursive(
    leaves,
    lambda below: st.builds(
        lambda own: Tree("ADVP", children=tuple(own)), st.lists(below, min_size=1, max_size=3)
    ),
    max_leaves=17,
)


def elements(markup, tag):
    return list(ElementTree.fromstring(str(markup)).iter(tag))


def texts(markup):
    return ["".join(e.itertext()) for e in elements(markup, "text")]


@given(trees)
@settings(max_examples=40, deadline=None)
def test_nodes_never_overlap_and_no_line_runs_through_one(tree):
    flat = flatten_tree(tree)
    parents = flat.parents.tolist()
    least = 2 * tree_svg.RADIUS + 8
    at = tree_svg.lay_out(flat.words, parents, least)
    places = list(zip(at.x, at.y, strict=True))
    for i, (x, y) in enumerate(places):
        assert tree_svg.RADIUS <= x <= at.width - tree_svg.RADIUS
        assert y > tree_svg.RADIUS
        for k in range(i):
            assert max(abs(x - places[k][0]), abs(y - places[k][1])) >= 2 * tree_svg.RADIUS
    for child, up in enumerate(parents):
        if up < 0:
            continue
        for other, (x, y) in enumerate(places):
            if other in (child, up):
                continue
            low, high = sorted((at.x[child], at.x[up]))
            falls = abs(x - at.x[child]) < tree_svg.RADIUS and at.y[up] < y < at.y[child]
            level = low < x < high and abs(y - at.y[up]) < tree_svg.RADIUS
            assert not falls
            # A level line may pass over a brother's own line, never over another node.
            assert not level
    ends = [(x - tree_svg.text_width(w, 13) / 2, x + tree_svg.text_width(w, 13) / 2)
            for w, x in zip(flat.words, at.x, strict=True) if w]  # fmt: skip
    assert all(a[1] < b[0] for a, b in pairwise(ends))


def test_a_sentiment_tree_shows_words_signs_and_colours():
    drawn = tree_svg.draw_sentiment(FILM.words, FILM.parents.tolist(), SCORES, SIGNS)
    assert texts(drawn) == [*SIGNS, "The", "<film>", "is", "so", "good"]
    fills = [e.get("style") for e in elements(drawn, "circle")]
    assert fills[0] == "fill:var(--soft)"
    assert "var(--accent" in fills[-1]
    assert f"{round(tree_svg.MAX_COLOUR_PERCENT * 0.5)}%" in fills[-1]
    assert "off" not in str(drawn)
    assert "#3a7fc4" in tree_svg.node_colour(-2.0)
    assert f"{tree_svg.MAX_COLOUR_PERCENT}%" in tree_svg.node_colour(-2.0)


def test_wrong_nodes_show_what_is_right():
    gold = [*SIGNS]
    gold[2], gold[-1], gold[0] = "+", "++", ""  # the last has no gold label
    drawn = tree_svg.draw_sentiment(FILM.words, FILM.parents.tolist(), SCORES, SIGNS, gold)
    off = [e for e in elements(drawn, "circle") if "off" in e.get("class")]
    assert len(off) == 2
    assert [e.text for e in elements(drawn, "text") if "off" in e.get("class", "")] == ["+", "++"]
    assert "gold ++" in str(drawn)


def test_constituents():
    flat = flatten_tree(parse("(S (NP (N dogs)) (VP (V eat) (NP (N fish))))"))
    wrong = [label == "VP" for label in flat.labels]
    drawn = tree_svg.draw_constituency(flat.words, flat.parents.tolist(), flat.labels, wrong)
    assert texts(drawn) == [*flat.labels, "dogs", "eat", "fish"]
    assert [e.text for e in elements(drawn, "text") if "off" in e.get("class", "")] == ["VP"]
    pair = tree_svg.side_by_side(drawn, drawn)
    assert str(pair).count("<svg") == 2
    assert pair.index("model") < pair.index("gold")


def test_arcs_lie_over_those_they_cover_or_cross():
    found = dependency_svg.arc_levels(
        [dependency_svg.Arc(h - 1, w, "x") for w, h in enumerate(HEADS)]
    )
    assert found == [1, 4, 2, 1, 3, 1]
    crossing = dependency_svg.arc_levels(
        [dependency_svg.Arc(2, 0, ""), dependency_svg.Arc(3, 1, "")]
    )
    assert sorted(crossing) == [1, 2]


@given(st.integers(2, 13).flatmap(lambda n: st.lists(st.integers(0, n), min_size=n, max_size=n)))
@settings(max_examples=40, deadline=None)
def test_labels_of_arcs_never_meet(heads):
    heads = [0 if head == word else head for word, head in enumerate(heads, 1)]
    words = ["a" if i % 2 else "somewhat" for i in range(len(heads))]
    labels = ["nsubj:pass" if i % 3 else "x" for i in range(len(heads))]
    drawn = dependency_svg.draw_dependencies(words, heads, labels)
    boxes = [
        (float(e.get("x")), float(e.get("y")), tree_svg.text_width(e.text, 11) / 2)
        for e in elements(drawn, "text") if "said" in e.get("class", "")
    ]  # fmt: skip
    for i, (x, y, half) in enumerate(boxes):
        for other, at, its in boxes[:i]:
            assert abs(y - at) >= 12 or abs(x - other) >= half + its
    wide = float(elements(drawn, "svg")[0].get("width"))
    for e in elements(drawn, "text"):
        half = tree_svg.text_width(e.text, 13 if not e.get("class") else 11) / 2
        assert half <= float(e.get("x")) <= wide - half + 1


def test_wrong_arcs_stand_out_and_the_right_ones_hang_below():
    heads, labels = [2, 0, 5, 5, 2, 2], [*LABELS[:4], "parataxis", "advmod"]
    drawn = dependency_svg.draw_dependencies(WORDS, heads, labels, [], HEADS, LABELS)
    off = [e.text for e in elements(drawn, "text") if "off" in e.get("class", "")]
    assert off == ["parataxis", "advmod"]
    words = next(float(e.get("y")) for e in elements(drawn, "text") if e.text == "said")
    below = [e.text for e in elements(drawn, "text") if float(e.get("y")) > words + 8]
    assert below == ["ccomp", "advmod"]
    assert sum("missed" in e.get("class") for e in elements(drawn, "path")) == 4  # lines and tips
    plain = dependency_svg.draw_dependencies(WORDS, HEADS, LABELS, ["T"] * 6, HEADS, LABELS)
    assert "off" not in str(plain)
    assert "missed" not in str(plain)
    assert texts(plain).count("T") == 6


def test_arcs_that_cannot_be_drawn():
    with pytest.raises(UserError, match="6 words but 5 labels: give one per word"):
        dependency_svg.draw_dependencies(WORDS, HEADS, LABELS[:5])
    with pytest.raises(UserError, match=r"The head of word 2 is 7; it must be another word, from"):
        dependency_svg.draw_dependencies(WORDS, [2, 7, 5, 5, 2, 5], LABELS)
    with pytest.raises(UserError, match="The head of word 3 is 3"):
        dependency_svg.draw_dependencies(WORDS, [2, 0, 3, 5, 2, 5], LABELS)
    assert "<svg" in dependency_svg.draw_dependencies([], [], [])


def test_entities_nest_and_keep_the_text():
    drawn = str(tagged_text.draw_entities(TEXT, GOLD))
    assert re.sub(r"<small>.*?</small>", "", drawn).replace("&amp;", "&").count("<mark") == 3
    assert re.sub(r"<small>.*?</small>|<[^>]*>", "", drawn) == TEXT
    inner = '<mark style="--own:var(--c0)">New York<small>LOC</small></mark>'
    assert f'<mark style="--own:var(--c1)">{inner} University<small>ORG</small></mark>' in drawn
    assert "<b>" not in tagged_text.draw_entities("<b>", [(0, 3, "<i>")])


def test_differences_are_marked_on_both_sides():
    said = [(0, 7, "PER"), (15, 19, "LOC")]
    drawn = str(tagged_text.draw_entities_side_by_side(TEXT, said, GOLD))
    model, gold = drawn.split("<h4>gold</h4>")
    assert model.count('class="off"') == 1
    assert gold.count('class="off"') == 2
    colours = re.findall(r"--own:(var\(--c\d\))\">(?:<mark.*?>)?(Ann|New York|York)", drawn)
    assert colours[0][0] == colours[2][0]  # the same label has the same colour on both sides


def test_spans_that_cannot_be_drawn():
    with pytest.raises(UserError, match=r"The spans 0–5 \(A\) and 3–8 \(B\) cross"):
        tagged_text.draw_entities(TEXT, [(3, 8, "B"), (0, 5, "A")])
    with pytest.raises(UserError, match=r"span 30–36 \(A\) is outside the text of 35"):
        tagged_text.draw_entities(TEXT, [(30, 36, "A")])
    with pytest.raises(UserError, match=r"span 4–4"):
        terminal.draw_entities(TEXT, [(4, 4, "A")])


def test_every_column_of_tags_has_a_line_and_its_own_errors():
    said, gold = ["NOUN NN Case=Nom|Number=Sing", "PUNCT . _"], ["NOUN NNS Case=Nom|Number=Sing"]
    drawn = str(tagged_text.draw_tags(["dogs", "."], said, [*gold, "PUNCT . _"]))
    assert (
        'dogs<small>NOUN</small><small class="more">NN</small><small class="right">NNS</small>'
        '<small class="more">Case=Nom|<wbr>Number=Sing</small></span>'
    ) in drawn
    assert '.<small>PUNCT</small><small class="more">.</small></span>' in drawn
    text = terminal.draw_tags(["dogs", "."], said, [*gold, "PUNCT . _"])
    assert text.plain == "dogs/NOUN/NN→NNS/Case=Nom|Number=Sing ./PUNCT/./_"


def test_tags_and_their_errors():
    drawn = str(tagged_text.draw_tags(["dogs", "<run>"], ["NOUN", "NOUN"], ["NOUN", "VERB"]))
    assert "dogs<small>NOUN</small></span>" in drawn
    assert '&lt;run&gt;<small>NOUN</small><small class="right">VERB</small></span>' in drawn
    assert drawn.count("word off") == 1
    with pytest.raises(UserError, match="2 words but 1 gold tags"):
        tagged_text.draw_tags(["a", "b"], ["X", "Y"], ["X"])


def styled(text: Text, style: str) -> list[str]:
    return [text.plain[span.start : span.end] for span in text.spans if span.style == style]


def test_the_terminal_shows_entities_and_tags():
    text = terminal.draw_entities(TEXT, [(0, 7, "PER"), (15, 19, "LOC")], GOLD)
    assert text.plain == "[Ann Lee PER] of New [York LOC] University left"
    assert styled(text, terminal.WRONG_STYLE) == ["[", "York", " LOC]"]
    nested = terminal.draw_entities(TEXT, GOLD).plain
    assert nested == "[Ann Lee PER] of [[New York LOC] University ORG] left"
    text = terminal.draw_tags(["dogs", "run"], ["NOUN", "NOUN"], ["NOUN", "VERB"])
    assert text.plain == "dogs/NOUN run/NOUN→VERB"
    assert styled(text, terminal.WRONG_STYLE) == ["/NOUN"]


def test_the_terminal_draws_arcs():
    text = terminal.draw_dependencies(
        WORDS, HEADS, LABELS, HEADS, [*LABELS[:4], "parataxis", "advmod"]
    )
    assert text.plain.splitlines() == [
        "      ╭──▸ She    nsubj ← said",
        "╭─────┴──● said   root (root)",
        "│ ╭──────▸ that   mark ← left",
        "│ │   ╭──▸ they   nsubj ← left",
        "╰─┴─┬─┴──▸ left   ccomp ← said   should be parataxis ← said",
        "    ╰────▸ early  advmod ← left",
    ]
    assert styled(text, terminal.WRONG_STYLE) == ["▸ ", "ccomp "]
    assert terminal.draw_dependencies([], [], []).plain == ""


def test_the_terminal_draws_trees():
    parents = FILM.parents.tolist()
    gold = [*SIGNS]
    gold[-1] = "++"
    text = terminal.draw_tree(FILM.words, parents, SIGNS, SCORES, gold)
    assert text.plain.splitlines()[:6] == [
        "+→++",
        "├ 0",
        "│ ├ 0 The",
        "│ └ 0 <film>",
        "└ ++",
        "  ├ + is",
    ]
    assert styled(text, terminal.WRONG_STYLE) == ["+"]
    assert "++" in styled(text, "yellow")
    flat = flatten_tree(parse("(S (NP (N dogs)) (V eat))"))
    line = terminal.draw_brackets(
        flat.words, flat.parents.tolist(), flat.labels, [False, True] + [False] * 2
    )
    assert line.plain == "(S (NP (N dogs)) (V eat))"
    assert styled(line, terminal.WRONG_STYLE) == ["NP"]


def test_depth_is_no_limit():
    tree = Tree("0", "w")
    for _ in range(1500):
        tree = Tree("1", children=(tree, Tree("0", "w")))
    flat = flatten_tree(tree)
    parents = flat.parents.tolist()
    assert "<svg" in tree_svg.draw_sentiment(flat.words, parents, [0.0] * len(parents), flat.labels)
    assert len(terminal.draw_tree(flat.words, parents, flat.labels).plain.splitlines()) == len(
        parents
    )
