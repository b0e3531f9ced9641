"""Which task a file is for, and the test part of a file in the file's own format."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.fixtures.tagged_files import columns, conllu
from weft.compare.dataset_stats import has_numeric_labels
from weft.compare.detect_task import choose_task, describe_alternatives, detect_tasks
from weft.compare.write_test_split import write_test_split
from weft.errors import UserError
from weft.run.data import Data, example_source
from weft.run.split import apply_holdout, assign_folds, choose_holdout
from weft.text.example import Example
from weft.text.read import read

SST = "".join(f"({i % 5} (2 The) ({i % 3} film{i}))\n" for i in range(29))
PTB = "".join(f"(TOP (S (NP (DT The) (NN dog{i})) (VP (VBD left))))\n" for i in range(29))
SPANS = "".join(
    f'{{"text": "Ann{i} left", "spans": [{{"start": 0, "end": 4, "label": "PER"}}]}}\n'
    for i in range(29)
)


def tsv(path):
    rows = (f"film {i}\t{'good' if i % 2 else 'bad'}\n" for i in range(29))
    path.write_text("text\tlabel\n" + "".join(rows))
    return path


def written(path, text):
    path.write_text(text)
    return path


FILES = {
    "a.conllu": (lambda path: conllu(path, 29), ("tag", "parse")),
    "a.conll": (lambda path: columns(path, 29), ("tag",)),
    "spans.jsonl": (lambda path: written(path, SPANS), ("tag",)),
    "sst.txt": (lambda path: written(path, SST), ("classify", "nodes", "constituency")),
    "a.mrg": (lambda path: written(path, PTB), ("constituency", "nodes", "classify")),
    "a.tsv": (tsv, ("classify", "regress")),
}


@pytest.mark.parametrize("name", FILES)
def test_tasks_of_a_file_are_detected(name, tmp_path):
    make, wanted = FILES[name]
    assert detect_tasks(read(make(tmp_path / name))) == wanted


def test_heads_without_tags_are_for_parsing_and_tags_without_heads_are_not(tmp_path):
    path = conllu(tmp_path / "a.conllu", 3)
    text = path.read_text()
    for tag in ("DET", "NOUN", "VERB", "PUNCT"):
        text = text.replace(f"\t{tag}\tX{tag}", "\t_\t_")
    assert detect_tasks(read(written(tmp_path / "b.conllu", text))) == ("parse", "tag")
    bare = "\n".join(
        "\t".join([*line.split("\t")[:6], "_", "_", "_", "_"]) if "\t" in line else line
        for line in path.read_text().split("\n")
    )
    assert detect_tasks(read(written(tmp_path / "c.conllu", bare))) == ("tag",)


def test_the_task_is_named_or_that_of_the_recipes_or_the_usual_one():
    fits = ("tag", "parse")
    assert choose_task("", (), fits, "f") == "tag"
    assert choose_task("parse", (), fits, "f") == "parse"
    assert choose_task("", ("tagger-bilstm",), ("parse", "tag"), "f") == "tag"
    assert choose_task("", ("bag", "cnn"), ("classify", "regress"), "f") == "classify"
    assert choose_task("regress", ("bag",), ("classify", "regress"), "f") == "regress"
    with pytest.raises(
        UserError, match=r"f: the task 'parse' needs a head for each word, as in Co"
    ):
        choose_task("parse", (), ("classify", "regress"), "f")
    with pytest.raises(UserError, match="Did you mean 'tag'"):
        choose_task("tags", (), fits, "f")


def test_alternative_tasks_are_reported():
    assert describe_alternatives("tag", ("tag",)) == ""
    assert describe_alternatives("classify", ("classify", "regress")) == ""
    assert "also fits --task parse." in describe_alternatives("tag", ("tag", "parse"))
    assert "--task nodes or --task constituency" in describe_alternatives(
        "classify", ("classify", "nodes", "constituency")
    )


@pytest.mark.parametrize("name", FILES)
def test_a_test_part_has_the_format_of_its_file(name, tmp_path):
    path = FILES[name][0](tmp_path / name)
    data = Data(train=str(path))
    parts = apply_holdout(data, choose_holdout(data))
    assert parts.test is not None
    out = tmp_path / "out"
    out.mkdir()
    again = list(read(write_test_split(data, parts.test, out)))
    held = list(parts.test())
    assert 4 <= len(held) <= 9
    for before, after in zip(held, again, strict=True):
        assert (before.text, before.label, before.words) == (after.text, after.label, after.words)
        assert before.places == after.places
        assert before.tree == after.tree


@pytest.mark.parametrize("way", ["target", "comma", "one ending"])
def test_a_test_part_of_pairs_is_files_side_by_side(way, tmp_path):
    ends = ("txt", "txt", "txt") if way == "one ending" else ("en", "de", "fr")
    folder = tmp_path / "in, deed"
    folder.mkdir()
    files = [folder / f"{'abc'[i] if way == 'one ending' else 'a'}.{e}" for i, e in enumerate(ends)]
    for file, word in zip(files, ("one", "ein", "un"), strict=True):
        file.write_text("".join(f"{word} {i}\n" for i in range(31)))
    if way == "target":
        data = Data(train=str(files[0]), target="de", references=("fr",))
    else:
        data = Data(train=",".join(map(str, files)))
    parts = apply_holdout(data, choose_holdout(data, mixed=True))
    path = write_test_split(data, parts.test, folder)
    again = list(example_source(replace(data, train=path), path)())
    assert 4 <= len(again) <= 9
    assert [(e.text, e.label) for e in again] == [(e.text, e.label) for e in parts.test()]
    assert again[0].label == tuple(again[0].text.replace("one", w) for w in ("ein", "un"))


def test_a_test_part_of_raw_text_has_a_text_a_line(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n", "utf-8")
    texts = [Example("first line\n"), Example("second line")]
    for _ in range(2):  # an earlier file is replaced
        found = write_test_split(Data(train=str(path)), lambda: iter(texts), tmp_path)
        assert found == str(tmp_path / "test.txt")
        assert Path(found).read_text("utf-8") == "first line\nsecond line\n"
    texts.append(Example("two\nlines"))
    found = write_test_split(Data(train=str(path)), lambda: iter(texts), tmp_path)
    assert [example.text for example in read(found)] == [example.text for example in texts]


def test_sentences_without_one_label_are_spread_over_folds_with_their_copies(tmp_path):
    examples = list(example_source(Data(), str(conllu(tmp_path / "a.conllu", 53)))())
    owner = assign_folds(examples, 3)
    sizes = [owner.count(k) for k in range(3)]
    assert max(sizes) - min(sizes) <= 4
    where = {}
    for example, fold in zip(examples, owner, strict=True):
        assert where.setdefault(example.text, fold) == fold


def test_two_texts_are_for_tasks_about_two():
    examples = [Example("a b c", "x", other="d e"), Example("f g", "y", other="h")]
    fits = detect_tasks(examples)
    assert fits == ("classify", "regress", "pair-classify", "pair-score")
    assert "--task pair-classify" in describe_alternatives("classify", fits)
    assert choose_task("pair-score", (), fits, "f.tsv") == "pair-score"
    with pytest.raises(UserError, match="'pair-classify' needs two texts in each row"):
        choose_task("pair-classify", (), detect_tasks([Example("a", "x")]), "f.tsv")


def test_a_word_among_numbers_makes_no_classes_of_them():
    scores = [Example("a", f"{i / 7:.2f}") for i in range(61)]
    assert has_numeric_labels(scores)
    assert has_numeric_labels([*scores, Example("a", "n/a"), Example("a", None)])
    assert not has_numeric_labels([*scores, *(Example("a", "n/a") for _ in range(7))])
    assert not has_numeric_labels([Example("a", "x"), *scores[:11]])
    assert not has_numeric_labels([Example("a", str(i % 3)) for i in range(61)])
    assert not has_numeric_labels([Example("a", ("1", "2")), *scores[:5]])
