"""Structured files that are wrong, through `weft check` and `weft train`, and what is said."""

import json

import pytest

from tests.fixtures.command import SMALL, Done, command, fails, ok, says
from tests.fixtures.structured_files import sentence

GOOD = "".join(sentence(f"s{i}", [2, 0, 2], "the dog barks", "DET NOUN VERB") for i in range(7))
PEOPLE = "Ada B-PER\nLee I-PER\nmet O\nBob B-PER\n\n" * 7
TEXT = "Ada Lovelace met Charles Babbage in London ."
TREES = "(S (NP (D the) (N dog)) (VP (V barks)))\n" * 7
RATED = "(3 (2 a) (4 film))\n(1 (2 no) (0 film))\n" * 7


def marked(*rows: tuple[str, str, list]) -> str:
    """JSON lines: a sound text seven times, then these."""
    sound = [(f"g{i}", TEXT, [[0, 12, "PER"], [36, 42, "LOC"]]) for i in range(7)]
    return "".join(
        json.dumps({"id": id, "text": text, "spans": spans}, ensure_ascii=False) + "\n"
        for id, text, spans in (*sound, *rows)
    )


# name of the file, what is in it, the recipe, what `train` says, what `check` says
FILES = {
    "cycle": (
        "a.conllu", GOOD + sentence("x7", [0, 3, 2]), "tagger-bilstm",
        ["a.conllu:38: sentence 'x7': the heads form a cycle, 2 → 3 → 2. Give one"],
        ["heads that form a cycle", "a.conllu:38", "sentence 'x7'", "Give one of these"],
    ),
    "no root": (
        "a.conllu", GOOD + sentence("x7", [2, 3, 1]), "tagger-bilstm",
        ["a.conllu:37: sentence 'x7': no root", "Give the main word head 0."],
        ["1 sentence of data has no root.", "a.conllu:37", "sentence 'x7'", "Give the main word"],
    ),
    "two roots": (
        "a.conllu", GOOD + sentence("x7", [0, 0, 1]), "tagger-bilstm",
        ["sentence 'x7': 2 roots, words 1, 2. Keep one head 0"],
        ["has more than one root", "a.conllu:38", "sentence 'x7'", "Keep one head 0"],
    ),
    "head out of range": (
        "a.conllu", GOOD + sentence("x7", [0, 9, 1]), "tagger-bilstm",
        ["sentence 'x7': the head of word 2 is 9, but the sentence has 3 words. Correct it"],
        ["has a head that is not in the sentence", "a.conllu:38", "sentence 'x7'", "Correct it"],
    ),
    "ragged CoNLL-U": (
        "a.conllu", GOOD + "# sent_id = x7\n1\tthe\tdog\n\n", "tagger-bilstm",
        [
            "a.conllu:37: sentence 'x7': 3 columns instead of 10",
            "Separate ten cells by one tab each",
        ],
        ["not ten columns", "a.conllu:37", "sentence 'x7': 3 columns", "Separate ten cells"],
    ),
    "ragged columns": (
        "a.conll", PEOPLE + "# sent_id = x7\nI O\nsaw\nRome B-LOC\n\n", "tagger-bilstm",
        ["a.conll:38: sentence 'x7': 1 columns, but other rows have 2", "Give each word 2 cells"],
        ["a different number of columns", "a.conll:38", "sentence 'x7'", "Give every word as many"],
    ),
    "overlapping spans": (
        "a.jsonl", marked(("x7", TEXT, [[0, 12, "PER"], [4, 16, "PER"]])), "tagger-bilstm",
        ["a.jsonl:8: text 'x7': span PER [4, 16)", "overlaps", "Keep one of the two"],
        ["1 span of data crosses another one.", "a.jsonl:8", "text 'x7'", "Move an end"],
    ),
    "nested spans": (
        "a.jsonl", marked(("x7", TEXT, [[0, 12, "PER"], [4, 12, "PER"]])), "tagger-bilstm",
        ["a.jsonl:8: text 'x7': span PER [4, 12)", "overlaps", "Keep one of the two"],
        ["1 span of data overlaps another one.", "a.jsonl:8", "text 'x7'", "Keep one of the two"],
    ),
    "offsets beyond the text": (
        "a.jsonl", marked(("x7", TEXT, [[36, 99, "LOC"]])), "tagger-bilstm",
        ["a.jsonl:8: text 'x7': span LOC [36, 99)", "which has 44 characters", "Count from 0"],
        ["extends beyond the text", "a.jsonl:8", "text 'x7'", "Count characters from 0"],
    ),
    "offset inside a character": (
        "a.jsonl", marked(("x7", "Ame\u0301lie met Bob", [[0, 3, "PER"]])), "tagger-bilstm",
        ["a.jsonl:8: text 'x7': span PER [0, 3)", "splits a character at 3", "Move it"],
        ["splits a character", "a.jsonl:8", "text 'x7'", "Move it to the edge"],
    ),
    "unbalanced brackets": (
        "a.ptb", TREES + "(S (NP (D a) (N cow)) (VP (V eats))\n" + TREES, "constituency",
        ["a.ptb:8:1: this '(' is never closed"],
        ["not a tree", "a.ptb:8", "the '(' in column 1 is never closed", "Close every bracket"],
    ),
    "a bracket too many": (
        "a.txt", RATED + "(3 (2 a) (4 film)))\n" + RATED, "tree-lstm",
        ["a.txt:15:19: "],
        ["not a tree", "a.txt:15", "column 19: this ')' closes nothing", "Close every bracket"],
    ),
    "an empty bracket": (
        "a.txt", RATED + "(3 () (4 film))\n" + RATED, "tree-lstm",
        ["a.txt:15:5: an empty bracket"],
        ["not a tree", "a.txt:15", "column 5: an empty bracket", "Close every bracket"],
    ),
}  # fmt: skip


def refused(done: Done) -> str:
    """The one line of an error, without anything that only a programmer reads."""
    assert done.status == 2, (done.status, done.out, done.err)
    assert "Traceback" not in done.err
    (line,) = [line for line in done.err.splitlines() if line.startswith("error: ")]
    return line


@pytest.mark.parametrize("case", FILES)
def test_training_stops_with_the_place_and_the_fix(case, tmp_path):
    name, content, recipe, expected, _ = FILES[case]
    (tmp_path / name).write_text(content, "utf-8")
    done = command(
        "train", "--recipe", recipe, "--train", tmp_path / name, "-o", tmp_path / "run", *SMALL
    )
    says(refused(done), *expected)
    assert not (tmp_path / "run" / "model").exists()


@pytest.mark.parametrize("case", FILES)
def test_check_diagnoses_it_and_looks_on(case, tmp_path):
    name, content, _, _, expected = FILES[case]
    (tmp_path / name).write_text(content, "utf-8")
    done = command("check", tmp_path / name)
    assert done.status == 1, done.out
    assert done.err == "" or done.err.startswith("words: column ")  # which columns are read
    assert done.err.count("\n") <= 1
    says(done.out, "error", *expected)
    says(done.out, "split", "data")


def test_brat_with_a_bad_offset(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text(TEXT, "utf-8")
    (tmp_path / "in" / "a.ann").write_text("T1\tPER 0 12\tAda Lovelace\nT2\tLOC 36 99\tLondon\n")
    told = fails(
        "train", "--recipe", "tagger-bilstm", "--train", tmp_path / "in", "-o", tmp_path / "run"
    )
    says(told, "a.ann:2: text 'a': span LOC [36, 99)", "Count from 0")
    done = command("check", tmp_path / "in")
    assert done.status == 1
    says(done.out, "extends beyond the text", "a.ann:2", "text 'a'", "Count characters from 0")


def test_an_inside_tag_after_outside(tmp_path):
    (tmp_path / "a.conll").write_text(
        PEOPLE + "# sent_id = x7\nI O\nsaw O\nRome I-LOC\n\n", "utf-8"
    )
    train = ("train", "--recipe", "tagger-bilstm", "--train", tmp_path / "a.conll", *SMALL)
    strict = ("-o", tmp_path / "a", "--set", "task.invalid=error")
    says(fails(*train, *strict), "a.conll:", "word 3: 'I-LOC' after 'O' continues nothing", "B-LOC")
    ok(*train, "-o", tmp_path / "b", "--set", "encoder.hidden=3")  # read as conlleval reads it
    done = command("check", tmp_path / "a.conll")
    assert done.status == 1
    says(
        done.out,
        "1 tag of data does not fit the previous tag",
        "a.conll:39",
        "sentence 'x7': word 3 'Rome'",
    )
    says(done.out, "'I-LOC' after 'O': IOB2 writes 'B-LOC'", "--fix")


def test_a_sentence_of_two_thousand_words(tmp_path):
    long = sentence("x7", [0] + [1] * 1999, " ".join(["dog"] * 2000), " ".join(["NOUN"] * 2000))
    (tmp_path / "a.conllu").write_text(GOOD + long, "utf-8")
    train = ("train", "--recipe", "tagger-bilstm", "--train", tmp_path / "a.conllu", *SMALL)
    small = ("--set", "encoder.hidden=3", "--set", "train.epochs=1", "--set", "data.max_tokens=97")
    ok(*train, "-o", tmp_path / "run", *small)
    done = ok("check", tmp_path / "a.conllu")
    says(done.out, "more than 512 words", "a.conllu:36", "sentence 'x7' · 2,000 words")
    says(done.out, "in independent windows")
    (tmp_path / "b.conllu").write_text(GOOD * 3 + long, "utf-8")
    done = command("check", tmp_path / "b.conllu")
    says(done.out, "over 10 times as long as 95 % of the rest", "sentence 'x7' · 2,000 words")
