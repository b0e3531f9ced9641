"""weft explain: terminal, JSON, the page, and its mistakes."""

import json
import re

import pytest

from tests.fixtures import small
from tests.fixtures.command import SMALL, fails, ok, says

TEXT = "the film was good"


@pytest.fixture(scope="module")
def transformer(shared):
    sizes = ("--set", "embedder.width=12", "--set", "encoder.hidden=12", "--set", "encoder.heads=3")
    recipe = ("--recipe", "transformer")
    ok("train", *recipe, "--train", shared / "train.tsv", "-o", shared / "heads", *sizes, *SMALL)
    return shared / "heads"


def test_a_text_on_the_terminal(shared):
    done = ok("explain", shared / "tfidf", TEXT)
    says(done.out, "positive  ", TEXT, "“good” +")
    assert "AOPC" not in done.out
    done = ok("explain", shared / "tfidf", TEXT, "--method", "all", "--target", "negative")
    says(done.out, "weighed for negative", "linear", "“good” -", "occlusion")


def test_a_file_compares_the_methods(shared, tmp_path):
    data = small.file(tmp_path, count=7)
    done = ok("explain", shared / "attention", data, "--limit", 3)
    assert "note: only the first 3 texts are explained; see --limit" in done.err
    says(done.out, "Words weighed by integrated-gradients.", "AOPC", "random order", "better by")
    table = done.out[done.out.index("AOPC") :].splitlines()[1:]
    names = [line.split()[0] for line in table]
    assert names == ["integrated-gradients", "gradient-input", "occlusion", "attention"]
    assert all(line.split()[-1] == "3" for line in table)


def test_errors_are_explained_first(shared, tmp_path):
    path = tmp_path / "rows.tsv"
    path.write_text("positive\tthe film was good\nnegative\tthe plot was good\n", "utf-8")
    out = ok("explain", shared / "tfidf", path, "--label", 0, "--text", 1).out
    says(out, "labelled negative", "the plot was good", "the film was good")


def test_json_has_a_line_a_text_and_then_one_a_method(shared, tmp_path):
    data = small.file(tmp_path, count=5)
    lines = [json.loads(line) for line in ok("explain", shared / "bag", data, "--json").lines]
    assert [line["method"] for line in lines] == ["integrated-gradients"] * 6
    assert lines[0]["text"].startswith("the film")
    start, end, weight = lines[0]["words"][1]
    assert lines[0]["text"][start:end] == "film"
    assert isinstance(weight, float)
    assert lines[5]["aopc"]["n"] == 5
    (line,) = ok("explain", shared / "bag", TEXT, "--json", "--method", "occlusion").lines
    assert json.loads(line)["method"] == "occlusion"


def test_standard_input(shared):
    out = ok("explain", shared / "tfidf", "-", stdin="the film was bad\nthe cast was good\n").out
    says(out, "the film was bad", "the cast was good", "AOPC")


def test_the_page_of_one_text(transformer, tmp_path):
    page = tmp_path / "new" / "one.html"
    done = ok("explain", transformer, f"{TEXT} <script>x</script>", "-o", page)
    assert f"page: {page}" in done.out
    html = page.read_text("utf-8")
    assert "<script>x" not in html
    assert "&lt;" in html
    assert not re.search(r"(src|href)=\"(?!#)", html)
    for name in ("integrated-gradients", "gradient-input", "occlusion", "attention"):
        assert f"<h3>{name}" in html
    assert html.count('class="strip"') == 4
    assert html.count('class="heat"') == 2 * (1 + 3)  # layers: their mean and three heads each
    says(html, "The model predicts", "Faithfulness", "Attention heads", "weft explain")


def test_the_page_of_a_file(shared, tmp_path):
    page, data = tmp_path / "many.html", small.file(tmp_path, count=5)
    ok("explain", shared / "tfidf", data, "-o", page)
    html = page.read_text("utf-8")
    assert html.count('class="strip"') == 5
    says(html, "5 texts explained", "95 % CI", "linear", "occlusion", "Texts")
    assert "Attention heads" not in html


def test_a_long_text_is_explained_as_far_as_it_was_read(shared, tmp_path):
    data = shared / "train.tsv"
    limit = ("--set", "data.max_tokens=3", "--set", "embedder.width=7")
    ok("train", "--recipe", "bag", "--train", data, "-o", tmp_path / "run", *SMALL, *limit)
    done = ok("explain", tmp_path / "run", "the film was good and the cast too")
    says(done.out, "only 38% of it was read", "the film was … not read …")


def test_mistakes(shared, tmp_path):
    bag = shared / "bag"
    assert "Did you mean 'occlusion'?" in fails("explain", bag, TEXT, "--method", "oclusion")
    says(
        fails("explain", bag, TEXT, "--method", "attention"),
        "'attention' does not fit this model: it has no attention weights",
        "integrated-gradients, gradient-input, occlusion",
    )
    says(fails("explain", bag, TEXT, "--target", "positiv"), "Did you mean 'positive'?")
    for empty in ("", " "):
        assert "no text to explain" in fails("explain", bag, empty)
    assert "no such file" in fails("explain", bag, "missing.tsv")
    assert "--limit should be 1 or more, got 0" in fails("explain", bag, TEXT, "--limit", 0)
    assert "should be called something.html" in fails("explain", bag, TEXT, "-o", "page.pdf")
    (tmp_path / "file").write_text("")
    page = tmp_path / "file" / "page.html"
    assert f"Cannot write {page}" in fails("explain", bag, TEXT, "-o", page)
