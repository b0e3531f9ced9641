"""weft explain for models that answer at every word: terminal, JSON, page, and mistakes."""

import json
import re

import pytest

from tests.fixtures.command import fails, ok, says
from tests.fixtures.tagged_files import columns, conllu, trained

TEXT = "Bo Lee lives in Rome ."


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("why")
    sentences, names = conllu(folder / "a.conllu"), columns(folder / "a.conll")
    trained("tagger-bilstm-crf", names, folder / "ner")
    two = {"task.columns": ["upos", "xpos"], "train.epochs": 3}
    trained("tagger-bilstm", sentences, folder / "two", **two)
    return folder


def test_a_text_shows_the_drawing_every_word_and_one_of_them_explained(models):
    out = ok("explain", models / "ner", TEXT).out
    says(out, "Bo Lee", "word", "tag", "or else", "1  Bo", "6  .", "“")
    out = ok("explain", models / "ner", TEXT, "--word", "Rome", "--method", "all").out
    says(out, "5 Rome  ", "integrated-gradients", "gradient-input", "occlusion", "“Rome” ")
    out = ok("explain", models / "ner", TEXT, "--word", 5, "--target", "O").out
    assert "weighed for O" in out


def test_a_column_can_be_chosen(models):
    out = ok("explain", models / "two", "The dog sees the bee .", "--column", "xpos").out
    says(out, "xpos", "X")
    told = fails("explain", models / "two", "The dog", "--column", "xpso")
    assert "Unknown column 'xpso' in this model. Did you mean 'xpos'?" in told


def test_a_file_compares_the_methods_with_what_is_right_beside(models, tmp_path):
    text = (models / "a.conll").read_text("utf-8").replace("B-LOC", "B-PER")
    (tmp_path / "b.conll").write_text(text, "utf-8")
    done = ok("explain", models / "ner", tmp_path / "b.conll", "--limit", 5, "--word", 5)
    says(done.out, "model ", "gold  ", "labelled S-PER", "Words weighed by", "AOPC")
    assert done.out.splitlines()[-1].split()[-1] == "5"


def test_json_holds_the_word_its_probabilities_and_all_others(models):
    (line,) = ok("explain", models / "ner", TEXT, "--json", "--word", "Bo").lines
    row = json.loads(line)
    assert (row["at"]["number"], row["at"]["word"], row["at"]["column"]) == (1, "Bo", "tag")
    assert row["at"]["chances"][0][0] == row["at"]["value"] == row["target"]
    assert len(row["chances"]) == len(row["words"]) == 6
    assert all(len(choices) == 3 for choices in row["chances"])


def test_the_page_of_one_text(models, tmp_path):
    page = tmp_path / "one.html"
    ok("explain", models / "ner", f"{TEXT} <b>x</b>", "-o", page)
    html = page.read_text("utf-8")
    assert "<b>x" not in html
    assert not re.search(r"(src|href)=\"(?!#)", html)
    says(
        html,
        'class="tagged"',
        "Word by word",
        "Transition scores",
        "Word importance",
        "Faithfulness",
    )
    assert html.count('class="strip"') == 3
    table = html[html.index('<table class="chain">') :]
    names = re.findall(r"<th>([^<]+)</th>", table[: table.index("</thead>")])
    begins = re.search(r"<tr><th>start</th>(.*?)</tr>", table)[1]
    cells = dict(zip(names, re.findall(r">([^<]+)</td>", begins), strict=True))
    never = {name for name, cell in cells.items() if cell == "·"}
    assert never == {name for name in names if name[:2] in ("I-", "E-", "en")}
    assert len(never) > 1


def test_a_page_without_a_chain_has_no_table_of_one(models, tmp_path):
    page = tmp_path / "many.html"
    ok("explain", models / "two", models / "a.conllu", "--limit", 3, "-o", page)
    html = page.read_text("utf-8")
    assert "Transition scores" not in html
    assert html.count('class="strip"') == html.count('<div class="tagged">') == 3


def test_a_crf_on_features_is_drawn_and_weighed(models, tmp_path):
    pytest.importorskip("pycrfsuite")
    ok("train", "--recipe", "crf", "--train", models / "a.conll", "-o", tmp_path / "crf")
    assert "[Bo Lee PER]" in ok("explain", tmp_path / "crf", TEXT, "-o", tmp_path / "p.html").out
    page = (tmp_path / "p.html").read_text("utf-8")
    says(page, "Bo Lee", "Word importance", "shapley", "Faithfulness", "words masked in random")
    says(ok("explain", tmp_path / "crf", TEXT, "--word", 2).out, "2 Lee  I-PER")
    says(fails("explain", tmp_path / "crf", TEXT, "--method", "linear"), "occlusion, shapley")


def test_mistakes(models, shared):
    says(fails("explain", models / "ner", TEXT, "--word", "Oslo"), "no word 'Oslo'", "1:Bo 2:Lee")
    says(fails("explain", models / "ner", TEXT, "--target", "B-LCO"), "Did you mean 'B-LOC'?")
    says(
        fails("explain", models / "ner", TEXT, "--method", "attention"),
        "does not fit this model: it has no attention weights",
    )
    told = fails("explain", shared / "bag", "good film", "--word", "1")
    assert "--word does not fit this model: it has one answer" in told
    assert "no such file" in fails("explain", models / "ner", "missing.conllu")
