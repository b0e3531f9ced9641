"""Texts and labels in files of their own, for every task, and names for ids of labels."""

import json

import pytest

from tests.fixtures.command import SMALL, command, fails, ok
from weft.errors import UserError
from weft.text.formats.parallel import read_parallel
from weft.text.label_names import parse_names

ROWS = [(f"{w} film {i}", str(int(w == "good"))) for i in range(16) for w in ("good", "bad")]
TAGGED = [
    (f"{name} sees {town} in {year}", "B-PER O B-LOC O O")
    for name in ("Ada", "Bo", "Cy", "Di")
    for town in ("Rome", "Oslo", "Bonn")
    for year in range(1990, 1994)
]


def written(folder, *columns, stem="a"):
    """Write a file for each column; the names joined by commas."""
    paths = []
    for number, column in enumerate(columns):
        path = folder / f"{stem}{number}.txt"
        path.write_text("".join(f"{line}\n" for line in column), "utf-8")
        paths.append(str(path))
    return ",".join(paths)


def figures(done):
    return json.loads(done.out)


def test_classification_with_names(tmp_path):
    files = written(tmp_path, *zip(*ROWS, strict=True))
    names = tmp_path / "names.txt"
    names.write_text("negative\npositive\n", "utf-8")
    done = ok(
        "train", "--recipe", "tfidf", "--train", files, "--names", names, "-o", tmp_path / "run"
    )
    assert f"text: {files.split(',')[0]}; label: {files.split(',')[1]}" in done.err
    names.unlink()  # the names are saved with the model
    assert ok("predict", tmp_path / "run", stdin="good film 3\n").out.startswith("positive")
    assert figures(ok("evaluate", tmp_path / "run", files, "--json"))["accuracy"]["value"] == 1.0
    # A file that has the names themselves is read as well; an unknown id is an error of its row.
    named = written(tmp_path, ["good film"], ["positive"], stem="b")
    assert figures(ok("evaluate", tmp_path / "run", named, "--json"))["accuracy"]["n"] == 1
    bad = written(tmp_path, ["good film", "bad film"], ["1", "7"], stem="c")
    message = fails("evaluate", tmp_path / "run", bad)
    assert "c0.txt:2: label '7' has no name among 0=negative, 1=positive" in message
    assert "--names" in message
    more = ok(
        "evaluate", tmp_path / "run", bad, "--names", "0=negative,1=positive,7=negative", "--json"
    )
    assert figures(more)["accuracy"]["n"] == 2


@pytest.mark.parametrize("verb", ["check", "compare"])
def test_other_verbs_read_them_too(tmp_path, verb):
    files = written(tmp_path, *zip(*ROWS, strict=True))
    names = ("--names", "0=negative,1=positive")
    if verb == "check":
        done = command("check", files, *names, "--json")
        assert json.loads(done.out)["labels"].keys() >= {"negative", "positive"}
        bad = command("check", files, "--names", "0=negative", "--json")
        assert "labels without a name" in bad.out
        return
    ok("compare", files, *names, "--recipes", "tfidf", "--minutes", 0, "-o", tmp_path / "out")
    page = (tmp_path / "out/report.html").read_text("utf-8")
    assert "negative" in page
    assert "positive" in page


def test_regression(tmp_path):
    files = written(
        tmp_path, [f"word{i % 5} film" for i in range(40)], [i % 5 / 2 for i in range(40)]
    )
    run = ("--recipe", "tfidf", "--task", "regress", "--train", files, "-o", tmp_path / "run")
    ok("train", *run)
    found = figures(ok("evaluate", tmp_path / "run", files, "--json"))
    assert next(iter(found.values()))["n"] == 40


def test_tags(tmp_path):
    pytest.importorskip("pycrfsuite")
    files = written(tmp_path, *zip(*TAGGED, strict=True))
    done = ok("train", "--recipe", "crf", "--train", files, "-o", tmp_path / "run")
    assert "words: " in done.err
    found = figures(ok("evaluate", tmp_path / "run", files, "--json"))
    assert found["f1"]["value"] == 1.0
    assert command("check", files, "--task", "tag").status != 2
    short = written(
        tmp_path, ["Ada sees Rome", "Bo left us"], ["B-PER O B-LOC", "B-PER O"], stem="s"
    )
    message = fails("evaluate", tmp_path / "run", short)
    assert "s1.txt:2: 2 tags for 3 words of" in message
    assert "s0.txt:2" in message
    skipped = ok("evaluate", tmp_path / "run", short, "--on-bad-row", "skip", "--json")
    assert figures(skipped)["tag"]["n"] == 1


def test_tags_as_ids(tmp_path):
    pytest.importorskip("pycrfsuite")
    ids = {"O": "0", "B-PER": "1", "B-LOC": "2"}
    tags = [" ".join(ids[tag] for tag in line.split()) for _, line in TAGGED]
    files = written(tmp_path, [text for text, _ in TAGGED], tags)
    names = ",".join(f"{number}={tag}" for tag, number in ids.items())
    ok("train", "--recipe", "crf", "--train", files, "--names", names, "-o", tmp_path / "run")
    assert "f1" in figures(ok("evaluate", tmp_path / "run", files, "--json"))


def test_compare_finds_the_task(tmp_path):
    pytest.importorskip("pycrfsuite")
    files = written(tmp_path, *zip(*TAGGED, strict=True))
    ok("compare", files, "--recipes", "crf", "--minutes", 0, "-o", tmp_path / "out")
    rows = json.loads((tmp_path / "out/leaderboard.json").read_text("utf-8"))
    assert rows[0]["error"] is None
    test = ",".join(str(tmp_path / "out" / f"test-{i}.txt") for i in (1, 2))
    assert figures(ok("evaluate", tmp_path / "out/model", test, "--json"))["f1"]["value"] == 1.0


def test_pairs(tmp_path):
    texts = [(f"dog {i} runs", f"dog {i} runs", "yes") for i in range(8)]
    texts += [(f"cat {i} sits", f"bird {i} sings", "no") for i in range(8)]
    files = written(tmp_path, *zip(*texts, strict=True))
    ok("train", "--recipe", "tfidf-pair", "--train", files, "-o", tmp_path / "run")
    assert figures(ok("evaluate", tmp_path / "run", files, "--json"))["accuracy"]["n"] == 16


def test_seq2seq_stays_as_it_was(tmp_path):
    files = written(tmp_path, ["a b", "b c"] * 6, ["x y", "y z"] * 6)
    sizes = ("--set", "embedder.width=5", "--set", "encoder.hidden=5", "--set", "decoder.hidden=5")
    ok("train", "--recipe", "seq2seq", "--train", files, "-o", tmp_path / "run", *SMALL, *sizes)
    first = next(read_parallel(*files.split(",")))
    assert (first.text, first.label) == ("a b", "x y")


def test_files_of_different_length_tell_both_counts(tmp_path):
    files = written(tmp_path, ["a"] * 5, ["1"] * 3)
    with pytest.raises(
        UserError, match=r"a1\.txt ends after line 3, but .*a0\.txt continues to line 5"
    ):
        list(read_parallel(*files.split(",")))


@pytest.mark.parametrize(
    ("content", "expected"),
    [("no\nyes\n", ("0=no", "1=yes")), ("7\tno\n9\tyes\n", ("7=no", "9=yes"))],
)
def test_files_of_names(tmp_path, content, expected):
    path = tmp_path / "names.txt"
    path.write_text(content, "utf-8")
    assert parse_names(str(path)) == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("nothing.txt", "neither a file nor id=name"),
        ("0=a,0=b", "id '0' is repeated"),
        ("0=", "'0=' is not id=name"),
    ],
)
def test_bad_names(value, message):
    with pytest.raises(UserError, match=message):
        parse_names(value)
