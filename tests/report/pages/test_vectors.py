"""Word maps: names that do not overlap, the table of nearest words, pages that cannot be broken."""

import json
import re
import xml.etree.ElementTree as xml

import numpy as np
import pytest

from weft.errors import UserError
from weft.report.analysis.projection import HEIGHT, N_COLOURS, WIDTH
from weft.report.pages import vectors as report
from weft.vectors.store import Vectors

rng = np.random.default_rng(3)
COUNT = 97
WORDS = [f"word{i}" for i in range(COUNT)]
VECTORS = Vectors(WORDS, rng.normal(size=(COUNT, 5)).astype(np.float32))


def boxes(picture: report.WordMap) -> list[tuple[float, float, float, float]]:
    out = []
    for spot in picture.points:
        if spot.at is not None:
            (x, base), high = spot.at, report.FONT_PIXELS * 1.1
            top = base - 0.8 * high
            out.append((x, top, x + report.name_width(spot.word), top + high))
    return out


@pytest.mark.parametrize("method", ["pca", "t-sne"])
def test_names_do_not_overlap_and_stay_inside(method):
    made = report.build_map(VECTORS, report.select_words(VECTORS, top=COUNT), method)
    placed = boxes(made)
    assert len(placed) == made.n_named > COUNT // 2
    for i, a in enumerate(placed):
        assert min(a) >= 0
        assert a[2] <= WIDTH
        assert a[3] <= HEIGHT
        for b in placed[:i]:
            # Places are rounded to a tenth.
            across = a[0] >= b[2] - 0.2 or b[0] >= a[2] - 0.2
            assert across or a[1] >= b[3] - 0.2 or b[1] >= a[3] - 0.2
    assert [spot.word for spot in made.points] == WORDS


def test_requested_words_are_shown_with_their_neighbours():
    chosen = report.select_words(VECTORS, ["word5", "word7", "word5"], near=3)
    assert chosen.queries == ("word5", "word7")
    first, second = (VECTORS.neighbours(word, 3) for word in chosen.queries)
    # A product may differ in its last bit with the alignment of its operands in memory.
    assert chosen.table["word5"][:3] == [(word, pytest.approx(score)) for word, score in first]
    assert set(chosen.words) == {*chosen.queries, *dict(first), *dict(second)}
    owner = dict(zip(chosen.words, chosen.groups, strict=True))
    assert [owner[w] for w in ("word5", first[0][0], "word7")] == [0, 0, 1]
    many = report.select_words(VECTORS, WORDS[: N_COLOURS + 3], near=0)
    assert many.groups[-3:] == (N_COLOURS,) * 3  # no colour is left for them
    with pytest.raises(UserError, match=r"No vector for 'wort5'.* Did you mean"):
        report.select_words(VECTORS, ["wort5"])


def test_without_words_the_first_are_drawn():
    chosen = report.select_words(VECTORS, top=11)
    assert chosen.words == tuple(WORDS[:11])
    ranks = [VECTORS.index[word] for word in chosen.table]
    assert ranks == sorted(set(ranks))
    assert ranks[0] < 5 < 40 < ranks[-1]  # common and rare ones
    assert report.select_words(VECTORS, top=1000).words == tuple(WORDS)


def test_a_flat_picture_keeps_every_neighbour():
    flat = np.concatenate([rng.normal(size=(53, 2)), np.full((53, 1), 40.0)], axis=1)
    rows = report.unit(flat.astype(np.float32))
    assert report._fraction_kept(rows, flat[:, :2]) > 0.97
    assert report._fraction_kept(rows, rng.normal(size=(53, 2))) < 0.5
    assert report._fraction_kept(rows[:1], flat[:1, :2]) == 1


def test_kept_is_what_a_loop_counts():
    rows = report.unit(rng.normal(size=(31, 5)).astype(np.float32))
    points = rng.normal(size=(31, 2))
    shares = []
    for i in range(31):
        others = [j for j in range(31) if j != i]
        near = sorted(others, key=lambda j: -rows[i] @ rows[j])[: report.N_NEIGHBOURS]
        drawn = sorted(others, key=lambda j: np.linalg.norm(points[i] - points[j]))[
            : report.N_NEIGHBOURS
        ]
        shares.append(len({*near} & {*drawn}) / report.N_NEIGHBOURS)
    assert report._fraction_kept(rows, points) == pytest.approx(np.mean(shares))


def test_an_svg_is_a_file_of_its_own():
    text = report.draw_map(
        report.build_map(VECTORS, report.select_words(VECTORS, ["word5", "word9"]))
    )
    root = xml.fromstring(text)
    assert root.get("viewBox") == f"0 0 {WIDTH} {HEIGHT}"
    assert "prefers-color-scheme: dark" in text
    assert text.count("http") == 1  # the name space
    assert "word5" in {part.text for part in root.iter("{http://www.w3.org/2000/svg}text")}
    again = report.draw_map(
        report.build_map(VECTORS, report.select_words(VECTORS, ["word5", "word9"]))
    )
    assert text == again


def test_the_page_holds_pictures_and_table():
    chosen = report.select_words(VECTORS, ["word5", "word9"], near=5)
    page = report.render_page(VECTORS, chosen, ("t-sne", "pca"), "some.vec")
    assert page.count('<svg class="words" viewBox="0 0 1000') == 2
    assert "http" not in page
    assert re.findall(r"<th><bdi>(word\d+)</bdi><small>(\d+)</small>", page) == [
        ("word5", "6"),
        ("word9", "10"),
    ]
    cells = re.findall(r'<td><bdi title="[^"]*">(word\d+)</bdi>', page)
    assert cells[::2] == [word for word, _ in VECTORS.neighbours("word5", report.N_NEIGHBOURS)]
    near = json.loads(page.split('<script type="application/json">')[1].split("</script>")[0])
    assert [word for word, _ in near["word9"]] == cells[1::2]


def test_no_word_can_leave_its_element():
    bad = ["</script><b>", "<svg onload=1>", "a&amp;b", "'\"", "عربي", "東京都", "x" * 300]
    vectors = Vectors([*bad, *WORDS], rng.normal(size=(COUNT + 7, 5)).astype(np.float32))
    chosen = report.select_words(vectors, top=50)
    page = report.render_page(vectors, chosen, ("pca",), "<i>")
    assert "</script><b>" not in page
    assert "<svg onload" not in page
    assert "<i>" not in page
    drawing = report.draw_map(report.build_map(vectors, chosen, "pca"))
    words = {part.get("data-word") for part in xml.fromstring(drawing).iter()}
    assert {*bad} <= words
    assert f">{'x' * 300}</text>" not in drawing  # a name that is wider than the picture


def test_wide_letters_are_wide():
    assert report.name_width("東京") > 2 * report.FONT_PIXELS
    assert report.name_width("ii") < report.name_width("mm")


def test_few_words():
    chosen = report.select_words(VECTORS, ["word5"], near=1)
    with pytest.raises(UserError, match="t-SNE needs at least 4 words, got 2"):
        report.build_map(VECTORS, chosen, "t-sne")
    page = report.render_page(VECTORS, chosen, ("t-sne", "pca"))
    assert "t-SNE needs at least 4 words" in page
    with pytest.raises(UserError, match="t-SNE needs"):
        report.render_page(VECTORS, chosen, ("t-sne",))
    with pytest.raises(UserError, match="Unknown projection 'tsne'"):
        report.build_map(VECTORS, chosen, "tsne")  # type: ignore[arg-type]
