"""The page of one word in many contexts."""

import json
import re

import numpy as np

from weft.explain.contexts import Contexts, Occurrence
from weft.report.pages.contexts import MIN_TSNE_OCCURRENCES, render

TEXT = "a <i>bank</i> & more"


def found(count=5, labels=("river", "money"), layer=None):
    drawn = np.random.default_rng(0).normal(size=(count, 7))
    places = tuple(
        Occurrence(TEXT, 5, 9, labels[i % len(labels)] if labels else "", f"f.tsv:{i + 1}")
        for i in range(count)
    )
    return Contexts("bank", places, drawn, layer, truncated=3)


def page(one, name="f.tsv"):
    return render(one, name, command=["weft", "explain"])


def test_the_list_leads_from_each_place_to_the_nearest():
    one = found()
    html = page(one)
    assert html.count('<li id="o') == 5
    near = " ".join(f'<a href="#o{j + 1}">{j + 1}</a> {c:.2f}' for j, c in one.nearest[0])
    assert near in html.replace(",", "")
    assert "a &lt;i&gt;<b>bank</b>&lt;/i&gt; &amp; more" in html
    assert "3 more lie beyond the model's maximum length" in html
    same, of = one.label_agreement
    assert f"For {same} of {of} the nearest neighbour has the same label" in html


def test_the_points_are_numbered_and_coloured_by_label():
    html = page(found())
    data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', html).group(1))
    assert data["texts"][0].startswith("1. a <i>bank")
    assert set(data["labels"]) == {"river", "money"}
    assert data["scores"] == [None] * 5  # nothing was answered
    assert set(data["layouts"]) == {"pca", "t-sne"}
    assert "wrong (hollow)" not in html
    assert "5 occurrences" in html
    assert "Contextual vectors" in html


def test_many_have_a_picture_by_neighbours_too():
    html = page(found(MIN_TSNE_OCCURRENCES))
    assert 'value="t-sne"' in html
    assert 'value="error"' not in html


def test_without_labels_and_of_a_single_place():
    html = page(found(labels=()))
    assert "Colours show the labels" not in html
    assert "“bank” occurs 5 times." in html
    alone = page(found(1))
    assert "Contextual vectors" not in alone
    assert "“bank” occurs once." in alone


def test_the_layer_is_named():
    assert "(layer 2)" in page(found(layer=2))
    assert "(layer 0, before any context)" in page(found(layer=0))
