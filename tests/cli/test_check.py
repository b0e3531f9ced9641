"""weft check: what it prints, writes and mends."""

import csv
import json
from pathlib import Path

import pytest

from tests.fixtures.command import command, fails, ok, says
from tests.fixtures.near_duplicates import sentences
from weft.text.read import read


def table(path: Path, count: int = 47, seed: int = 0, **changed: tuple[str, str]) -> Path:
    """A CSV of unrelated texts; row7=("text", "label") replaces the row on line 9."""
    rows = [[text, ("good", "bad")[i % 2]] for i, text in enumerate(sentences(count, seed))]
    for name, row in changed.items():
        rows[int(name.removeprefix("row"))] = list(row)
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["text", "label"], *rows])
    return path


def texts(path: Path) -> list[str]:
    return [example.text for example in read(path, keep_empty=True)]


def changes(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "changes.jsonl").read_text("utf-8").splitlines()]


def test_sound_files_end_well(tmp_path):
    done = ok("check", table(tmp_path / "a.csv"), table(tmp_path / "b.csv", seed=1))
    says(done.out, "No problems found.", "train", "47", "test", "47", "good 48")


def test_errors_set_the_status(tmp_path):
    train = table(tmp_path / "a.csv")
    test = table(tmp_path / "b.csv", seed=1, row3=(texts(train)[5].upper(), "bad"))
    done = command("check", train, test)
    assert done.status == 1
    says(
        done.out, "error", "1 text of test (2.1 %) is also in train.", "b.csv:5", "a.csv:7", "--fix"
    )
    noted = command("check", train, table(tmp_path / "c.csv", seed=1, row3=("bell\x07", "good")))
    assert noted.status == 0
    says(noted.out, "warning", "control characters", "c.csv:5", r"bell\u0007")


def test_json_is_one_object(tmp_path):
    done = command("check", table(tmp_path / "a.csv", row3=("", "good")), "--json")
    found = json.loads(done.out)
    assert found["files"] == {"data": str(tmp_path / "a.csv")}
    assert [f["kind"] for f in found["findings"]] == ["empty"]
    assert found["findings"][0]["places"][0]["where"].endswith("a.csv:5")


def test_three_files_are_train_dev_and_test(tmp_path):
    files = [table(tmp_path / f"{name}.csv", seed=i) for i, name in enumerate("abc")]
    found = json.loads(ok("check", *files, "--json").out)
    assert list(found["rows"]) == ["train", "dev", "test"]


def test_broken_rows_are_diagnosed_not_refused(tmp_path):
    path = table(tmp_path / "a.csv")
    path.write_bytes(path.read_bytes() + b"caf\xe9,good\none,two,three\nnul\0,bad\n")
    done = command("check", path)
    assert done.status == 1
    says(done.out, "not UTF-8", "a.csv:49", "iconv", "columns", "a.csv:50")
    assert "NUL" in done.out


def test_a_file_of_broken_rows_only(tmp_path):
    path = tmp_path / "latin.txt"
    path.write_bytes("été\nthé\n".encode("latin-1"))
    done = command("check", path)
    assert done.status == 1
    says(done.out, "2 rows of data could not be used: not UTF-8.", "latin.txt:1")


def test_a_file_that_breaks_off_is_looked_at_as_far_as_it_goes(tmp_path):
    path = table(tmp_path / "a.csv", 1013, row3=("", "good"))
    with open(path, "a", encoding="utf-8") as file:
        file.write('"a quote that nobody closes,good\n')
    done = command("check", path, "--no-near")
    assert done.status == 1
    says(
        done.out, "could not be used: unreadable", "a.csv:1015", "never closed", "1 text of data is"
    )


def test_formats_and_columns(tmp_path):
    (tmp_path / "a.ft").write_text("__label__x good film\n__label__y bad film\n" * 3, "utf-8")
    says(command("check", tmp_path / "a.ft").out, "4 rows of data repeat an earlier text")
    rows = [f"{i}\t{text}\t{i % 2}\n" for i, text in enumerate(sentences(31))]
    (tmp_path / "b.tsv").write_text("".join(rows), "utf-8")
    says(
        ok("check", tmp_path / "b.tsv", "--text", "1", "--label", "2", "--format", "tsv").out, "31"
    )
    (tmp_path / "c.conll").write_text("Ada\tB-PER\nsaw\tO\nBob\tI-PER\n", "utf-8")
    done = command("check", tmp_path / "c.conll")
    assert done.status == 1
    says(done.out, "1 tag of data does not fit the previous tag.", "c.conll:3", "sentence 1")
    says(done.out, "word 3 'Bob' has 'I-PER' after 'O': IOB2 writes 'B-PER'", "Begin every")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.csv"], "nothing.csv: no such file"),
        (["-"], "Save standard input to a file first."),
        (["a.csv", "--max-words", "0"], "--max-words must be 1 or more words, got 0."),
        (["a.csv", "--format", "cvs"], "Did you mean 'csv'?"),
        (["a.csv", "--label", "lable"], "no 'lable' column"),
    ],
)
def test_mistakes_are_one_line(tmp_path, monkeypatch, arguments, message):
    table(tmp_path / "a.csv")
    monkeypatch.chdir(tmp_path)
    assert message in fails("check", *arguments)


def test_the_page_holds_what_was_found_and_nothing_from_outside(tmp_path):
    path = table(tmp_path / "a.csv", row3=("<b>x</b> & <script>alert(1)</script>", "good"))
    ok("check", path, "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text("utf-8")
    says(page, "Weft check: a.csv", "HTML remnants", "a.csv:5", "&lt;script&gt;", "<svg")
    assert "<script>alert" not in page
    assert "http" not in page.replace("http-equiv", "")


@pytest.fixture
def faulty(tmp_path) -> tuple[Path, Path]:
    train = table(
        tmp_path / "train.csv",
        row1=("  spaced\tout \x07 text  here", "good"),
        row2=("a cafÃ© that was garbled", "bad"),
        row4=(" ", "good"),
        row6=("the same thing stands here again", "good"),
        row8=("The Same  thing stands here AGAIN", "good"),
        row10=("this one is disputed by two people", "good"),
        row12=("this one is disputed by two people", "bad"),
        row14=("a text of its own kind", "Good"),
        row16=("another text of its own sort", "godo"),
    )
    given = texts(train)
    near = given[20].replace("what is", "what was")
    test = table(tmp_path / "test.csv", seed=1, row0=(given[18], "good"), row1=(near, "good"))
    return train, test


def test_fix_writes_clean_copies_and_reports_changes(tmp_path, faulty):
    train, test = faulty
    before = train.read_bytes(), test.read_bytes()
    done = command("check", train, test, "--fix", tmp_path / "clean")
    says(done.out, "wrote", "every change is in")
    assert before == (train.read_bytes(), test.read_bytes())
    clean = list(read(tmp_path / "clean" / "train.csv"))
    told = {(row["line"], row["what"].split(":")[0]): row for row in changes(tmp_path / "clean")}
    assert told[3, "text cleaned"]["after"] == "spaced out text here"
    assert told[4, "text cleaned"]["after"] == "a café that was garbled"
    assert told[6, "dropped"]["what"] == "dropped: empty text"
    assert told[10, "dropped"]["what"] == "dropped: same text and label as an earlier row"
    assert told[20, "dropped"]["what"] == "dropped: same text is in test"
    assert told[22, "dropped"]["what"] == "dropped: nearly the same text is in test"
    assert told[16, "label corrected"]["before"] == "Good"
    assert told[18, "label corrected"]["after"] == "good"
    assert told[12, "left"]["before"] == "good"
    assert told[14, "left"]["before"] == "bad"
    assert len(told) == 10
    assert len(clean) == 47 - 4
    assert {e.label for e in clean} == {"good", "bad"}
    assert texts(tmp_path / "clean" / "test.csv") == texts(test)


def test_fix_leaves_a_label_that_may_be_meant(tmp_path):
    half = {f"row{i}": (text, "refudn") for i, text in enumerate(sentences(47)) if i % 4 == 1}
    path = table(tmp_path / "a.csv", **half)
    path.write_text(path.read_text("utf-8").replace("good", "refund"), "utf-8")
    says(ok("check", path, "--fix", tmp_path / "out").out, "'refudn' for 'refund'")
    assert changes(tmp_path / "out") == []


def test_fixed_files_have_only_unfixable_findings(tmp_path, faulty):
    command("check", *faulty, "--fix", tmp_path / "clean")
    again = command(
        "check", tmp_path / "clean" / "train.csv", tmp_path / "clean" / "test.csv", "--json"
    )
    assert {f["kind"] for f in json.loads(again.out)["findings"]} == {"conflict", "duplicate"}


def test_fix_overwrites_nothing(tmp_path, faulty):
    train, test = faulty
    assert "already exists" in fails("check", train, test, "--fix", tmp_path)
    assert "already exists" in fails("check", train, "--fix", train)
    command("check", train, "--fix", tmp_path / "one" / "clean.csv")
    assert len(texts(tmp_path / "one" / "clean.csv")) == 47 - 2
    assert "changes.jsonl already exists" in fails(
        "check", train, "--fix", tmp_path / "one" / "other.csv"
    )
    assert "Pass a folder" in fails("check", train, test, "--fix", tmp_path / "one" / "clean.csv")


def test_fix_keeps_the_other_columns_or_names_them(tmp_path):
    rows = [["note", "text", "label"], ["a", "one  film", "x"], ["b, c", "two more films", "y"]]
    with open(tmp_path / "a.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    done = command("check", tmp_path / "a.csv", "--fix", tmp_path / "b.csv")
    with open(tmp_path / "b.csv", encoding="utf-8", newline="") as file:
        assert list(csv.reader(file)) == [rows[0], ["a", "one film", "x"], rows[2]]
    assert "dropped" not in done.out
    done = command("check", tmp_path / "a.csv", "--fix", tmp_path / "more" / "b.jsonl")
    says(done.out, "b.jsonl holds only texts and labels", "dropped: note. Write csv to keep them.")
    done = command("check", tmp_path / "a.csv", "--fix", tmp_path / "x" / "b.tsv", "--json")
    json.loads(done.out)
    says(done.err, "dropped: note")


def test_fix_keeps_the_format_or_reports_why_not(tmp_path):
    (tmp_path / "a.ft").write_text("__label__x  good  film\n__label__y bad film\n", "utf-8")
    command("check", tmp_path / "a.ft", "--fix", tmp_path / "out")
    assert (tmp_path / "out" / "a.ft").read_text() == "__label__x good film\n__label__y bad film\n"
    trees = tmp_path / "b.ptb"
    trees.write_text("(3 (2 A) (4 film))\n(1 (2 The) (0 end))\n", "utf-8")
    done = command("check", trees, "--fix", tmp_path / "more")
    says(done.out, "b.ptb (nothing)")
    assert (tmp_path / "more" / "b.ptb").read_bytes() == trees.read_bytes()
    (tmp_path / "c.conll").write_text("Ada\tB-PER\nsaw\tO\nBob\tI-PER\n", "utf-8")
    done = command("check", tmp_path / "c.conll", "--fix", tmp_path / "x")
    says(done.out, "c.conll (tag repaired 1)", "changes.jsonl")
    assert (tmp_path / "x" / "c.conll").read_text() == "Ada\tB-PER\nsaw\tO\nBob\tB-PER\n"
    ok("check", tmp_path / "x" / "c.conll")


def test_columns_are_named_and_checked(tmp_path):
    rows = "Ada\tNNP\tB-PER\nsaw\tVBD\tO\nBob\tNNP\tB-PER\n\n" * 7
    (tmp_path / "a.conll").write_text(rows, "utf-8")
    told = ok("check", tmp_path / "a.conll", "--json", "--no-near").out
    assert json.loads(told)["layers"] == {"types": {"PER": {"data": 14}}}
    told = ok("check", tmp_path / "a.conll", "--json", "--label", "1").out
    assert json.loads(told)["layers"] == {"tags": {"NNP": {"data": 14}, "VBD": {"data": 7}}}
    assert "no column 7" in fails("check", tmp_path / "a.conll", "--label", "7")
    lines = "1\ta\t_\tNOUN\tNN\t_\t0\troot\t_\t_\n\n"
    (tmp_path / "a.conllu").write_text(lines, "utf-8")
    told = fails("check", tmp_path / "a.conllu", "--label", "xpso")
    says(told, "Unknown CoNLL-U column 'xpso'", "Did you mean 'xpos'?")


def test_the_page_draws_what_is_wrong_with_words(tmp_path):
    rows = ("1\tGo\t_\tVERB\t_\t_\t0\troot\t_\t_", "2\t<b>\t_\tX\t_\t_\t3\tdep\t_\t_")
    rows += ("3\tit\t_\tPRON\t_\t_\t2\tdep\t_\t_", "")
    (tmp_path / "a.conllu").write_text("# sent_id = s<1>\n" + "\n".join(rows), "utf-8")
    command("check", tmp_path / "a.conllu", "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text("utf-8")
    says(page, "form a cycle", "s&lt;1&gt;", 'class="drawing"', "&lt;b&gt;")
    says(page, "<h2>Tags</h2>", "VERB", "<h2>Relations</h2>", "dep")
    assert "<b>" not in page.replace("<b>Weft", "").split("Findings")[1].split("<h2>Files")[0]
    (tmp_path / "a.conll").write_text("Ada\tB-PER\nsaw\tO\nBob\tI-PER\n", "utf-8")
    command("check", tmp_path / "a.conll", "--html", tmp_path / "b.html")
    says((tmp_path / "b.html").read_text("utf-8"), 'class="tagged"', "<h2>Types</h2>")
