"""weft predict and weft evaluate for models that answer at every word."""

import json
import re

import pytest

from tests.fixtures.command import fails, ok, says
from tests.fixtures.tagged_files import columns, conllu, trained
from weft.cli.predict import _draw
from weft.tasks.annotation import Annotation
from weft.text.formats.conllu import read_conllu

TEXT = "The dog sees the bee."
MERGED = """\
# sent_id = m1
# text = Den bees.
# author = Ada
1-2\tDen\t_\t_\t_\t_\t_\t_\t_\t_
1\tThe\tthe\tX\t_\t_\t2\tdet\t_\tKept=Yes
2\tdog\tdog\tX\t_\t_\t0\troot\t_\t_
2.1\tsees\tsee\t_\t_\t_\t_\t_\t_\t_
3\tbees\tbee\tX\t_\t_\t2\tobj\t_\tSpaceAfter=No
4\t.\t.\tX\t_\t_\t2\tpunct\t_\t_

"""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder with files, a tagger of three columns, a recogniser of names and a parser."""
    folder = tmp_path_factory.mktemp("words")
    sentences, names = conllu(folder / "a.conllu"), columns(folder / "a.conll")
    three = {"task.columns": ["upos", "xpos", "feats"]}
    trained("tagger-bilstm", sentences, folder / "three", **three)
    trained("tagger-bilstm-crf", names, folder / "ner")
    small = {"task.tags": ["upos"], "head.arc": 7, "head.label": 5, "encoder.layers": 1}
    trained("parser-tagger", sentences, folder / "parser", **small, **{"head.dropout": 0.0})
    return folder


def test_a_line_of_tags_of_spans_and_of_arcs(models):
    (line,) = ok("predict", models / "three", "-", stdin=TEXT).lines
    assert line.split()[1] == "dog/NOUN/XNOUN/Number=Sing"
    out = ok("predict", models / "ner", "-", stdin="Bo Lee lives in Rome.\n\n").lines
    assert out == ["PER 0 6 Bo Lee\tLOC 16 20 Rome", ""]
    (line,) = ok("predict", models / "parser", "-", stdin=TEXT).lines
    assert [re.fullmatch(r"\S+/(dep|root)/[0-6]", cell) is not None for cell in line.split()] == (
        [True] * 6
    )


def test_json_has_the_words_where_they_stand_and_how_probable_each_is(models):
    (line,) = ok("predict", models / "ner", "-", "--json", stdin="Bo Lee lives in Rome.").lines
    row = json.loads(line)
    assert row["words"] == ["Bo", "Lee", "lives", "in", "Rome", "."]
    assert ["Bo Lee lives in Rome."[a:b] for a, b, _ in row["parts"]] == row["words"]
    assert all(0 < chance <= 1 for _, _, chance in row["parts"])
    assert row["value"][0] == {"label": "PER", "start": 0, "end": 6, "text": "Bo Lee"}


def test_a_file_of_words_is_answered_word_by_word(models, tmp_path):
    rows = "Bo-Lee O\nFox O\nlives O\nin O\nRome O\n. O\n"
    (tmp_path / "x.conll").write_text(rows, "utf-8")
    (line,) = ok("predict", models / "ner", tmp_path / "x.conll", "--json").lines
    assert json.loads(line)["words"] == ["Bo-Lee", "Fox", "lives", "in", "Rome", "."]
    out = ok("predict", models / "three", models / "a.conllu").lines
    assert len(out) == 60
    assert len(out[0].split()) == 6


def test_conllu_in_its_own_rows_with_all_else_kept(models, tmp_path):
    out = ok("predict", models / "three", models / "a.conllu", "--conllu").out
    assert out == (models / "a.conllu").read_text("utf-8")
    (tmp_path / "m.conllu").write_text(MERGED, "utf-8")
    got = ok("predict", models / "three", tmp_path / "m.conllu", "--conllu").out.splitlines()
    for before, after in zip(MERGED.splitlines(), got, strict=True):
        was, now = before.split("\t"), after.split("\t")
        if re.match(r"\d+\t", before):
            assert now[3] in ("DET", "NOUN", "VERB", "PUNCT")
            assert (now[:3], now[6:]) == (was[:3], was[6:])
        else:
            assert after == before


def test_conllu_of_plain_text_is_whole_conllu(models, tmp_path):
    done = ok("predict", models / "parser", "-", "--conllu", stdin=f"{TEXT}\nThe cow.\n")
    (tmp_path / "out.conllu").write_text(done.out, "utf-8")
    first, second = read_conllu(tmp_path / "out.conllu")  # checks ids, heads and roots
    assert (first.text, first.sent_id, second.sent_id) == (TEXT, "1", "2")
    assert [word.form for word in first.words] == ["The", "dog", "sees", "the", "bee", "."]
    assert [word.has_space_after for word in first.words] == [True] * 4 + [False, True]
    assert set(first.column("deprel")) <= {"dep", "root"}
    assert set(first.column("upos")) <= {"DET", "NOUN", "VERB", "PUNCT"}


def test_tags_without_a_column_of_their_own_stand_in_the_last(models):
    done = ok("predict", models / "ner", "-", "--conllu", stdin="Bo Lee lives in Rome.\n\n")
    assert "without an answer: 1 text without words left out: standard input:2" in done.err
    out = done.lines
    assert out[2].split("\t")[9] == "Tag=B-PER"
    assert out[6].split("\t")[9] == "SpaceAfter=No|Tag=B-LOC"


def test_drawn_in_a_terminal(capsys):
    arcs = Annotation("arcs", ("dogs", "run"), heads=(2, 0), relations=("nsubj", "root"))
    _draw(arcs)
    says(capsys.readouterr().out, "▸ dogs", "nsubj ← run", "● run", "root (root)")


def test_predict_rejects_invalid_options(models, shared):
    told = fails("predict", shared / "bag", "-", "--conllu", stdin="good")
    assert "predicts whole texts. Use --json" in told
    told = fails("predict", models / "ner", "-", "--conllu", "--json", stdin="good")
    assert "--json, --conllu and --conll exclude each other" in told


def test_evaluate_lists_confused_labels(models, tmp_path):
    text = (models / "a.conllu").read_text("utf-8")
    (tmp_path / "b.conllu").write_text(text.replace("\tPUNCT\t", "\tSYM\t"), "utf-8")
    page = tmp_path / "new" / "p.html"
    done = ok(
        "evaluate", models / "three", tmp_path / "b.conllu", "--errors", 1, "--report", page
    )  # fmt: skip
    says(done.out, "upos ", "tags", "precision", "NOUN", "1.000", "right", "said", "SYM", "PUNCT")
    says(done.out, "1 wrong, 6 words", "b.conllu:1: sentence 's0'", "./PUNCT→SYM", "page: ")
    assert done.out.count("wrong, 6 words") == 1
    html = page.read_text("utf-8")
    says(html, "Metrics by label", "Confusions", "Worst sentences", "PUNCT")
    assert html.count('class="bad"') == 20
    assert not re.search(r"(src|href)=\"(?!#)", html)


def test_evaluate_by_type_of_span_and_by_relation(models):
    out = ok("evaluate", models / "ner", models / "a.conll").out
    says(out, "f1 ", "span types", "LOC", "60", "PER", "60")
    says(ok("evaluate", models / "parser", models / "a.conllu").out, "las", "relations", "dep")


def test_json_figures_stay_one_object(models, tmp_path):
    done = ok("evaluate", models / "ner", models / "a.conll", "--json")
    assert json.loads(done.out)["f1"]["n"] == 60


def test_evaluate_rejects_invalid_options(models):
    told = fails("evaluate", models / "ner", models / "a.conll", "--errors", -1)
    assert "--errors should be 0 or more, got -1" in told
    told = fails("evaluate", models / "ner", models / "a.conll", "--report", "x.pdf")
    assert "should be called something.html" in told
    blocked = models / "a.conll" / "p.html"
    assert f"Cannot write {blocked}" in fails(
        "evaluate", models / "ner", models / "a.conll", "--report", blocked
    )
