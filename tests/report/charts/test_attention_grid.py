"""The head × layer grid: a small map a head, a large one behind each, and two texts apart."""

import re

import numpy as np

from weft.explain.attention import AttentionMaps
from weft.report.charts.attention_grid import TOKENS, section
from weft.report.charts.heatmap import LEVELS, cells

L, N = 2, 3


def maps(size=5, second=0, name="bert", tokens=()):
    drawn = np.random.default_rng(0).random((L, N, size, size))
    weights = drawn / drawn.sum(3, keepdims=True)
    return AttentionMaps(
        name, tuple(tokens) or tuple(f"t{i}" for i in range(size)), weights, second
    )


def test_every_head_has_a_small_map_that_leads_to_a_large_one():
    page = section([maps()])
    assert page.count('class="heat"') == L * (N + 1)
    assert page.count('class="heat large"') == L * (N + 1)
    targets = re.findall(r'<a href="#(\w+)"', page)
    assert sorted(targets) == sorted(re.findall(r'<figure id="(\w+)"', page))
    for target in targets:
        assert f'id="{target}m"' in page
        assert f'<use href="#{target}m"/>' in page
    first = re.search(r'<figure id="(\w+)"', page).group(1)
    assert first == f"n1l{L}hmean"  # what is shown before any is chosen
    assert page.count(">t4</text>") == 2  # labels are written once, a row and a column


def test_what_is_looked_at_most_is_told_of_each_head():
    found = maps()
    row, column = divmod(int(found.weights[1, 2].argmax()), 5)
    page = section([found])
    told = f"“t{row}” looks at “t{column}” with {found.weights[1, 2].max():.2f}"
    assert f"layer 2, head 3: {told}" in page
    assert f"<b>Layer 2, head 3</b>: {told}" in page


def test_the_second_text_is_told_apart():
    page = section([maps(second=3)])
    assert page.count('class="head-token other"') == 2 * 2
    assert page.count('d="M3 0V5M0 3H5"') == L * (N + 1) + 1
    assert "second text are in another colour" in page
    assert "head-token other" not in section([maps()])


def test_long_texts_are_cut_and_several_networks_named():
    page = section([maps(TOKENS + 3), maps(name="transformer")])
    assert f"The first {TOKENS} of {TOKENS + 3} tokens." in page
    assert "<h3>bert</h3>" in page
    assert "<h3>transformer</h3>" in page
    assert 'id="n2l1h1m"' in page
    assert "<h3>" not in section([maps()])


def test_tokens_are_escaped_and_nothing_is_nothing():
    assert "&lt;b&gt;" in section([maps(2, tokens=("<b>", "x"))])
    assert section([]) == ""
    assert section([AttentionMaps("bert", (), np.zeros((1, 1, 0, 0)))]) == ""


def test_cells_are_shades_of_the_largest():
    drawn = cells(np.array([[1.0, 0.5], [0.0, 1.0]]))
    assert drawn.count("<path") == 2
    assert 'opacity="1.00" d="M0 0h1v1h-1zM1 1h1v1h-1z"' in drawn
    assert f'opacity="{(LEVELS // 2) / LEVELS:.2f}" d="M1 0h1v1h-1z"' in drawn
