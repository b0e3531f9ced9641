"""Drawings of dependencies: every arc runs from its head to its word, with room for its label."""

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.report.drawings.dependency_svg import (
    LABEL_MARGIN,
    LABEL_PIXELS,
    LEG_GAP,
    LEVEL_PIXELS,
    MARGIN,
    WORD_GAP,
    WORD_PIXELS,
    draw_dependencies,
)
from weft.report.drawings.tree_svg import text_width

ARC = re.compile(
    r'<path class="edge([^"]*)" d="M([\d.]+) ([\d.]+)V[^H"]*H([\d.]+)Q([\d.]+) ([\d.]+)'
)
ROOT = re.compile(r'<path class="edge([^"]*)" d="M([\d.]+) ([\d.]+)V([\d.]+)"/>')
WORD = re.compile(r'<text x="([\d.]+)" y="([\d.]+)">([^<]*)</text>')
LABEL = re.compile(r'<text class="said halo([^"]*)" x="([\d.]+)" y="([\d.]+)">([^<]*)</text>')


@st.composite
def sentences(draw):
    """Words, heads of a tree (each word hangs from an earlier one) and labels."""
    size = draw(st.integers(1, 7))
    heads = [0, *(draw(st.integers(1, i)) for i in range(1, size))]
    labels = [draw(st.sampled_from(["x", "nsubj", "a:rather:long:relation"])) for _ in heads]
    return [f"word{i}" for i in range(size)], heads, labels


@given(sentences())
@settings(max_examples=40, deadline=None)
def test_arcs_run_from_heads_to_words_with_room_for_their_labels(sentence):
    words, heads, labels = sentence
    drawing = str(draw_dependencies(words, heads, labels))
    x = [float(found[0]) for found in WORD.findall(drawing)]
    assert [found[2] for found in WORD.findall(drawing)] == words
    assert x == sorted(x)
    for (a, one), (b, two) in pairwise(zip(x, words, strict=True)):
        widths = text_width(one, WORD_PIXELS) + text_width(two, WORD_PIXELS)
        assert b - a >= widths / 2 + WORD_GAP - 0.11
    arcs, centres = ARC.findall(drawing), [float(found[1]) for found in LABEL.findall(drawing)]
    assert len(arcs) == len(words) - 1
    assert [found[3] for found in LABEL.findall(drawing)] == labels
    for (_, start, _, _, end, _), word in zip(arcs, range(1, len(words)), strict=True):
        start, end = float(start), float(end)
        reach = LEG_GAP * len(words)
        assert abs(start - x[heads[word] - 1]) <= reach
        assert abs(end - x[word]) <= reach
        assert centres[word] == pytest.approx((start + end) / 2, abs=0.11)
        needed = text_width(labels[word], LABEL_PIXELS) + LABEL_MARGIN
        assert abs(end - start) >= needed - 0.21  # numbers have one digit


def test_a_sentence_of_two_words_by_hand():
    drawing = str(draw_dependencies(["He", "runs"], [2, 0], ["nsubj", "root"]))
    ((_, start, base, _, end, level),) = ARC.findall(drawing)
    ((_, above, top, bottom),) = ROOT.findall(drawing)
    he, runs = WORD.findall(drawing)
    assert float(base) - float(level) == LEVEL_PIXELS
    assert float(base) - float(top) == 2 * LEVEL_PIXELS  # the root is above its only arc
    assert float(bottom) == float(base) - 6
    assert float(start) == float(runs[0]) - LEG_GAP / 2  # beside the root's leg
    assert float(above) == float(runs[0]) + LEG_GAP / 2
    assert end == he[0]
    assert float(he[1]) == float(base) + 15
    width, height = map(float, re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawing).groups())
    assert height == pytest.approx(float(base) + WORD_PIXELS + 8 + MARGIN, abs=1)
    assert width > float(runs[0]) + text_width("runs", WORD_PIXELS) / 2
    assert " off" not in drawing


def test_a_wrong_arc_is_marked_and_the_right_one_is_below_the_words():
    words, labels = ["a", "b", "c"], ["det", "obj", "root"]
    drawing = str(draw_dependencies(words, [2, 3, 0], labels, [], [3, 3, 0], labels))
    above = [arc for arc in ARC.findall(drawing) if "missed" not in arc[0]]
    (missed,) = [arc for arc in ARC.findall(drawing) if "missed" in arc[0]]
    assert [" off" in arc[0] for arc in above] == [True, False]
    level = float(WORD.findall(drawing)[0][1])
    assert float(missed[5]) > level > float(above[0][5])
