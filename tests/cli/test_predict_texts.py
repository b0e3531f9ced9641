"""weft --version, and `weft predict MODEL "some text"`: texts on the command line."""

import json

import pytest

import weft
from tests.fixtures.command import command, fails, ok, says, train
from weft.cli.predict import looks_like_a_path


def test_the_version():
    assert ok("--version").out == f"weft {weft.__version__}\n"


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    folder = tmp_path_factory.mktemp("several")
    rows = [{"text": f"{a} and {b} {i}", "labels": sorted({a, b})} for i in range(17)
            for a, b in (("wine", "beer"), ("tea", "wine"), ("beer", "beer"))]  # fmt: skip
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = ("--label", "labels", "--recipe", "tfidf")
    ok("train", "--train", folder / "a.jsonl", "-o", folder / "run", *given)
    return folder / "run"


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    rows = ["one\ttwo\tlabel\n"]
    for i in range(37):
        rows += [f"a dog {i}\ta dog {i}\tsame\n", f"a dog {i}\tno cat\tother\n"]
    (folder / "a.tsv").write_text("".join(rows))
    given = ("--text", "one", "--text-pair", "two", "--label", "label", "--recipe", "tfidf-pair")
    ok("train", "--train", folder / "a.tsv", "-o", folder / "run", *given)
    return folder / "run"


def test_a_text_is_answered(shared):
    (line,) = ok("predict", shared / "bag", "the film was good").lines
    by_stdin = ok("predict", shared / "bag", stdin="the film was good\n").lines
    assert [line] == by_stdin
    two = ok("predict", shared / "bag", "the film was good", "the plot was bad").lines
    assert len(two) == 2
    assert two[0] == line
    assert ok("predict", shared / "bag", "good").lines[0].split("\t")[0] in ("positive", "negative")


def test_a_file_stays_a_file(shared, tmp_path):
    (tmp_path / "good").write_text("the film was good\nthe plot was bad\n")
    assert len(ok("predict", shared / "bag", tmp_path / "good").lines) == 2
    assert len(ok("predict", shared / "bag", "-", stdin="a\nb\nc\n").lines) == 3


@pytest.mark.parametrize("name", ["test.tsv", "data/test", "./test", "test.txt.gz", "a.in,b.out"])
def test_missing_path_fails(shared, name):
    says(fails("predict", shared / "bag", name), name.split(",")[0], "o such file")


@pytest.mark.parametrize("text", ["and/or is fine", "It was bad.", "good", "3.5 stars", "Wow…"])
def test_plain_texts_are_not_taken_for_paths(text):
    assert not looks_like_a_path(text)


def test_files_and_texts_are_not_mixed(shared, tmp_path):
    (tmp_path / "a.txt").write_text("a\n")
    told = fails("predict", shared / "bag", tmp_path / "a.txt", "some text")
    says(told, "a.txt", "is a file", "Pass one file, or texts")


def test_a_pair_is_two_texts(pair):
    (line,) = ok("predict", pair, "a dog 5", "a dog 5").lines
    assert line.startswith("same\t")
    (line,) = ok("predict", pair, "a dog 5", "no cat").lines
    assert line.startswith("other\t")
    says(fails("predict", pair, "a dog 5"), "needs a text pair")
    says(fails("predict", pair, "a", "b", "c"), "needs a text pair")


def test_every_probability(shared, several, pair):
    (line,) = ok("predict", shared / "bag", "the film was good", "--json", "--all").lines
    answer = json.loads(line)
    chances = answer["probabilities"]
    assert set(chances) == {"positive", "negative"}
    assert sum(chances.values()) == pytest.approx(1)
    assert next(iter(chances)) == answer["value"]  # most probable first
    assert chances[answer["value"]] == answer["score"]
    assert "probabilities" not in json.loads(
        ok("predict", shared / "bag", "the film was good", "--json").out
    )
    (line,) = ok("predict", several, "wine and tea", "--json", "--all").lines
    answer = json.loads(line)
    chances = answer["probabilities"]
    assert set(chances) == {"beer", "tea", "wine"}
    assert answer["value"] == list(chances)[: len(answer["value"])]
    assert set(json.loads(ok("predict", pair, "a", "b", "--json", "--all").out)["probabilities"])


def test_all_is_about_classes_and_json(shared, tmp_path):
    says(fails("predict", shared / "bag", "good", "--all"), "--all", "--json")
    rows = "".join(f"{i % 7}\tthe film was {i % 7}\n" for i in range(46))
    (tmp_path / "numbers.tsv").write_text(rows)
    ok(*train(tmp_path / "numbers.tsv", tmp_path / "n", "--task", "regress"))
    told = fails("predict", tmp_path / "n", "good", "--json", "--all")
    says(told, "--all", "regress")


def test_missing_model_is_reported_before_other_errors():
    assert command("predict", "nowhere", "some text").status == 2
