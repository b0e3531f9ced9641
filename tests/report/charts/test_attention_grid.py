"""The head × layer grid: a small map a head, a large one behind each, and two texts apart."""

import re

import numpy as np

from weft.explain.attention import AttentionMaps
from weft.report.charts.attention_grid import MAX_TOKENS, render_section
from weft.report.charts.heatmap import N_SHADES, draw_cells

L, N = 2, 3


def maps(size=5, second=0, name="bert", tokens=()):
    drawn = np.random.default_rng(0).random((L, N, size, size))
    weights = drawn / drawn.sum(3, keepdims=True)
    return AttentionMaps(
        name, tuple(tokens) or tuple(f"t{i}" for i in range(size)), weights, second
    )


def test_every_head_has_a_small_map_that_leads_to_a_large_one():
    page = render_section([maps()])
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


def test_each_head_names_its_largest_weight():
    found = maps()
    row, column = divmod(int(found.weights[1, 2].argmax()), 5)
    page = render_section([found])
    told = f"“t{row}” attends to “t{column}” with {found.weights[1, 2].max():.2f}"
    assert f"layer 2, head 3: {told}" in page
    assert f"<b>Layer 2, head 3</b>: {told}" in page


def test_second_text_is_marked():
    page = render_section([maps(second=3)])
    assert page.count('class="head-token other"') == 2 * 2
    assert page.count('d="M3 0V5M0 3H5"') == L * (N + 1) + 1
    assert "second text are in another colour" in page
    assert "head-token other" not in render_section([maps()])


def test_long_texts_are_cut_and_several_networks_named():
    page = render_section([maps(MAX_TOKENS + 3), maps(name="transformer")])
    assert f"The first {MAX_TOKENS} of {MAX_TOKENS + 3} tokens." in page
    assert "<h3>bert</h3>" in page
    assert "<h3>transformer</h3>" in page
    assert 'id="n2l1h1m"' in page
    assert "<h3>" not in render_section([maps()])


def test_tokens_are_escaped_and_nothing_is_nothing():
    assert "&lt;b&gt;" in render_section([maps(2, tokens=("<b>", "x"))])
    assert render_section([]) == ""
    assert render_section([AttentionMaps("bert", (), np.zeros((1, 1, 0, 0)))]) == ""


def test_cells_are_shades_of_the_largest():
    drawn = draw_cells(np.array([[1.0, 0.5], [0.0, 1.0]]))
    assert drawn.count("<path") == 2
    assert 'opacity="1.00" d="M0 0h1v1h-1zM1 1h1v1h-1z"' in drawn
    assert f'opacity="{(N_SHADES // 2) / N_SHADES:.2f}" d="M1 0h1v1h-1z"' in drawn
