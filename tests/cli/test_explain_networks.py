"""weft explain of pre-trained networks: blanks, vectors, pairs, spans, and words in contexts."""

import json
import re

import pytest

from tests.cli.command import fails, ok, says
from tests.networks import network

ROWS = (
    "river\tthe bank of the river was steep\nmoney\ta bank lends money\n"
    "river\tthe dog ran over the bank\nmoney\tno such word\n"
)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("networks")
    for name, pair in (
        ("masked", ""),
        ("embed", ""),
        ("span", "joint"),
        ("pair-classify", "joint"),
    ):
        network(name, pair=pair).save(folder / name)
    (folder / "rows.tsv").write_text(ROWS, "utf-8")
    return folder


def grids(page):
    """How many maps of heads a page has."""
    html = page.read_text("utf-8")
    assert not re.search(r"(src|href)=\"(?!#)", html)
    return html.count('class="heat"')


def test_blanks_are_filled_in_with_bars(models, tmp_path):
    page = tmp_path / "page.html"
    done = ok("explain", models / "masked", "the [MASK] of [MASK] <b>", "-o", page)
    lines = done.lines
    assert lines[0] == "the [MASK] of [MASK] <b>"
    assert [line[:5] for line in lines[1:11]] == ["  1  ", *["     "] * 4, "  2  ", *["     "] * 4]
    assert f"page: {page}" in done.out
    assert grids(page) == 3 * 3
    html = page.read_text("utf-8")
    says(html, "What fits best: “", "What fits in the blanks", "Where each head looks")
    assert html.count('<p class="blank"') == 2
    assert "&lt;b&gt;" in html
    assert "Words are not weighed" not in html
    (line,) = ok("explain", models / "masked", "a [MASK]", "--json").lines
    (words,) = json.loads(line)["blanks"]
    assert len(words) == 5
    assert words[0][1] >= words[1][1]


def test_a_file_of_blanks_is_read_line_by_line(models, tmp_path):
    path = tmp_path / "rows.txt"
    path.write_text("the [MASK] was steep\na bank lends <mask>\n", "utf-8")
    out = ok("explain", models / "masked", path, "-o", tmp_path / "page.html").out
    says(out, "the [MASK] was steep", "0.0", "a bank lends <mask>", "0.0")
    assert "nothing to fill in" in fails("explain", models / "masked", "the bank")


def test_a_network_of_vectors_shows_its_heads(models, tmp_path):
    page = tmp_path / "page.html"
    done = ok("explain", models / "embed", "the bank", "-o", page)
    says(done.out, "gives vectors, not answers", "--contexts WORD", f"page: {page}")
    assert grids(page) == 3 * 3
    says(fails("explain", models / "embed", models / "rows.tsv"), "Give one text", "--contexts")
    says(
        fails("explain", models / "embed", "the bank", "--method", "occlusion"),
        "There is no method to weigh words",
    )
    says(fails("explain", models / "embed", "a", "--target", "x"), "--target do not fit")


def test_pairs_and_spans_show_theirs(models, tmp_path):
    page = tmp_path / "page.html"
    two = ("the bank", "--other", "the river was steep")
    ok("explain", models / "pair-classify", *two, "-o", page)
    assert grids(page) == 3 * 3
    assert "head-token other" in page.read_text("utf-8")
    done = ok("explain", models / "span", *two, "-o", page)
    assert grids(page) == 3 * 3
    says(done.out, " answer]", "\n", "  0.")
    says(page.read_text("utf-8"), "The model says “", "Where each head looks")


def test_answers_are_compared_with_all_that_are_right(models, tmp_path):
    passage = "the river was steep"
    said = ok("explain", models / "span", "the bank", "--other", passage).lines[-2].split("  ")[0]
    right = {"text": [said, "the dog"], "answer_start": [passage.index(said), 0]}
    wrong = {"text": ["the"], "answer_start": [0]}
    rows = [{"question": "the bank", "context": passage, "answers": a} for a in (right, wrong)]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    columns = ("--text", "question", "--other", "context", "--label", "answers")
    page = tmp_path / "page.html"
    out = ok("explain", models / "span", path, *columns, "-o", page).out
    assert out.count("labelled") == 1
    says(out, "labelled the", said)
    says(page.read_text("utf-8"), "1 of 2 answers differ", "labelled the")


def test_one_word_in_its_contexts(models, tmp_path):
    page, rows = tmp_path / "page.html", models / "rows.tsv"
    asked = ("--contexts", "bank", "--text", 1, "--label", 0)
    done = ok("explain", models / "embed", rows, *asked, "-o", page)
    says(done.out, "context", "label", "nearest", "the bank of the", "river", "a bank lends")
    says(done.out, "The nearest has the same label for ", " of 3.", f"page: {page}")
    assert page.read_text("utf-8").count('<li id="o') == 3
    lines = ok("explain", models / "embed", rows, *asked, "--layer", 0, "--json").lines
    found = [json.loads(line) for line in lines]
    assert [one["number"] for one in found] == [1, 2, 3]
    assert found[1]["text"][found[1]["start"] : found[1]["end"]] == "bank"
    assert [near[0] for near in found[0]["nearest"]] in ([2, 3], [3, 2])
    note = ok("explain", models / "embed", rows, *asked, "--limit", 2).err
    assert "note: the first 2 texts with the word are read; --limit changes that" in note


def test_mistakes(models):
    embed, rows = models / "embed", models / "rows.tsv"
    assert "goes with --contexts WORD" in fails("explain", embed, "the bank", "--layer", 1)
    assert "needs a file" in fails("explain", embed, "the bank", "--contexts", "bank")
    says(
        fails("explain", embed, rows, "--contexts", "bank", "--method", "occlusion"),
        "weighs no words: leave out --method",
    )
    says(
        fails("explain", embed, rows, "--text", 1, "--contexts", "tree"), "does not stand in these"
    )
