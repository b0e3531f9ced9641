"""weft explain of pre-trained networks: blanks, vectors, pairs, spans, and words in contexts."""

import json
import re

import pytest

from tests.fixtures.command import fails, ok, says
from tests.fixtures.networks import network

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
        ("tag", ""),
        ("classify", ""),
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
    says(html, "Most probable: “", "Predictions for the blanks", "Attention heads")
    assert html.count('<p class="blank"') == 2
    assert "&lt;b&gt;" in html
    assert "No word importance" not in html
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
    says(ok("explain", models / "embed", models / "rows.tsv").out, "AOPC", "integrated-gradients")
    says(ok("explain", models / "embed", "the bank", "--method", "occlusion").out, "“bank”")
    says(
        fails("explain", models / "embed", "the bank", "--method", "attention"),
        "Use one of: integrated-gradients, gradient-input, occlusion.",
    )
    says(fails("explain", models / "embed", "a", "--target", "x"), "--target does not fit")


def test_pairs_and_spans_show_theirs(models, tmp_path):
    page = tmp_path / "page.html"
    two = ("the bank", "--text-pair", "the river was steep")
    ok("explain", models / "pair-classify", *two, "-o", page)
    assert grids(page) == 3 * 3
    assert "head-token other" in page.read_text("utf-8")
    done = ok("explain", models / "span", *two, "-o", page)
    assert grids(page) == 3 * 3
    says(done.out, " answer]", "\n", "  0.")
    says(page.read_text("utf-8"), "The model predicts “", "Attention heads")


def test_two_texts_are_given_by_name(models):
    pair = models / "pair-classify"
    two = ("--text", "the bank of money", "--text-pair", "the river was steep")
    found = json.loads(ok("explain", pair, *two, "--json").lines[0])
    assert found["text"] == "the bank of money ⟷ the river was steep"
    assert found["text"][found["second"] :] == "the river was steep"
    same = ("the bank of money", "--text-pair", "the river was steep", "--json")
    assert json.loads(ok("explain", pair, *same).lines[0]) == found
    out = ok("explain", pair, *two, "--method", "all").out
    says(out, "integrated-gradients", "gradient-input", "occlusion", "attention")
    says(fails("explain", pair, "the bank"), "needs a text pair. Pass the second")
    says(fails("explain", pair, "--text", "the bank"), "needs a text pair. Pass the second")
    one = ok("explain", models / "classify", "--text", "the bank", "--json").lines
    assert one == ok("explain", models / "classify", "the bank", "--json").lines
    says(fails("explain", models / "classify", "a", "--text-pair", "b c"), "takes a single text")
    # Of standard input they are columns, as of a file.
    rows = json.dumps({"one": "the bank", "two": "the river"}) + "\n"
    given = ("-", "--text", "one", "--text-pair", "two", "--json")
    lines = ok("explain", pair, *given, stdin=rows).lines
    assert json.loads(lines[0])["text"] == "the bank ⟷ the river"


def test_the_lines_of_two_files_are_pairs(models, tmp_path):
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_text("the bank\na dog, too\n", "utf-8")
    second.write_text("the river was steep\nmoney\n", "utf-8")
    page = tmp_path / "page.html"
    done = ok("explain", models / "pair-classify", f"{first},{second}", "-o", page)
    says(done.out, "the bank", "the river was steep", "AOPC", "attention")
    lines = ok("explain", models / "pair-classify", f"{first},{second}", "--json").lines
    assert [json.loads(line)["text"] for line in lines[:2]] == [
        "the bank ⟷ the river was steep",
        "a dog, too ⟷ money",
    ]
    assert json.loads(lines[2])["aopc"]["n"] == 2
    gone = f"{first},{tmp_path / 'c.txt'}"
    says(fails("explain", models / "pair-classify", gone), "c.txt")
    three = f"{first},{second},{second}"
    says(fails("explain", models / "pair-classify", three), "a text pair needs two files; got 3")
    second.write_text("the river was steep\n", "utf-8")
    told = fails("explain", models / "pair-classify", f"{first},{second}")
    says(told, "b.txt ends after line 1", "a.txt continues to line 2")
    # A text with a comma is a text.
    out = ok("explain", models / "classify", "the bank, a dog").out
    says(out, "the bank, a dog")


def test_a_tagger_over_a_network_shows_where_it_looks(models, tmp_path):
    (line,) = ok("explain", models / "tag", "the dogs", "--method", "attention", "--json").lines
    found = json.loads(line)
    assert [found["text"][start:end] for start, end, _ in found["words"]] == ["the", "dogs"]
    assert all(weight > 0 for *_, weight in found["words"])
    path = tmp_path / "rows.txt"
    path.write_text("the dogs ran\na bank lends money\n", "utf-8")
    table = ok("explain", models / "tag", path).out
    names = [line.split()[0] for line in table[table.index("AOPC") :].splitlines()[1:]]
    assert names == ["integrated-gradients", "gradient-input", "occlusion", "attention"]


def test_a_long_text_is_explained_in_all_its_windows(models, tmp_path):
    """Words that only the last window holds are weighed, and the page says which one it draws."""
    folder = tmp_path / "model"
    predictor = network("classify")
    predictor.config["data"] |= {"max_tokens": 9, "truncate": "windows"}
    predictor.save(folder)
    text = "the bank of the river was steep and a dog ran over the bank of money"
    page = tmp_path / "page.html"
    done = ok("explain", folder, text, "--method", "all", "-o", page)
    assert "was read" not in done.out  # nothing was left out
    says(page.read_text("utf-8"), "Attention heads", "bert, window 1 of")
    (line,) = ok("explain", folder, text, "--json", "--method", "attention").lines
    found = json.loads(line)
    assert found["coverage"] == 1
    assert [text[start:end] for start, end, _ in found["words"]] == text.split()
    path = tmp_path / "rows.txt"
    path.write_text(f"{text}\nthe bank lends {text}\n", "utf-8")
    table = ok("explain", folder, path).out
    rows = table[table.index("AOPC") :].splitlines()[1:]
    assert [row.split()[0] for row in rows][-1] == "attention"
    assert all(row.split()[-1] == "2" for row in rows)


def test_answers_are_compared_with_all_that_are_right(models, tmp_path):
    passage = "the river was steep"
    said = (
        ok("explain", models / "span", "the bank", "--text-pair", passage).lines[-4].split("  ")[0]
    )
    places = [passage.index(said), passage.index("steep")]
    right = {"text": [said, "steep"], "answer_start": places}
    wrong = {"text": ["the"], "answer_start": [0]}
    rows = [{"question": "the bank", "context": passage, "answers": a} for a in (right, wrong)]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    columns = ("--text", "question", "--text-pair", "context", "--label", "answers")
    page = tmp_path / "page.html"
    out = ok("explain", models / "span", path, *columns, "-o", page).out
    assert out.count("labelled") == 1
    says(out, "labelled the", said)
    says(page.read_text("utf-8"), "1 of 2 predictions differ", "labelled the")


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
    plain = tmp_path / "plain.txt"
    plain.write_text("the bank of the river\n\na bank lends\n", "utf-8")
    done = ok("explain", models / "embed", plain, "--contexts", "bank", "--json")
    assert [json.loads(line)["where"] for line in done.lines] == [f"{plain}:1", f"{plain}:3"]
    note = ok("explain", models / "embed", rows, *asked, "--limit", 2).err
    assert "note: only the first 2 texts with the word are used; see --limit" in note


def test_mistakes(models):
    embed, rows = models / "embed", models / "rows.tsv"
    assert "needs --contexts WORD" in fails("explain", embed, "the bank", "--layer", 1)
    assert "needs a file" in fails("explain", embed, "the bank", "--contexts", "bank")
    says(
        fails("explain", embed, rows, "--contexts", "bank", "--method", "occlusion"),
        "not attributions: remove --method",
    )
    says(
        fails("explain", embed, rows, "--text", 1, "--contexts", "tree"), "does not occur in these"
    )
