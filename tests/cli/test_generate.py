"""weft generate: what it prints, and what it says when it cannot."""

import contextlib
import json
import sys
from itertools import pairwise

import pytest

from tests.fixtures import small
from tests.fixtures.command import SMALL, command, fails, ok, says
from tests.fixtures.ngram_models import trained as counted
from tests.fixtures.seq2seq_runs import trained as paired
from weft.cli import generate
from weft.predict.generate import Generator


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder with an n-gram model of words, one of letters, one that answers, a classifier."""
    folder = tmp_path_factory.mktemp("written")
    for name, changes in {
        "words": {},
        "letters": {"tokenizer": {"kind": "character"}, "task.lines": False},
    }.items():
        (folder / name).mkdir()
        counted("kneser-ney", folder / name, **changes)
    (folder / "pairs").mkdir()
    paired("seq2seq-attention", folder / "pairs", **{"train.epochs": 3})
    data = small.file(folder)
    ok("train", "--recipe", "bag", "--train", data, "-o", folder / "bag", *SMALL)
    return folder


def test_prompt_is_continued_and_source_is_answered(models):
    greedy = ("--method", "greedy", "--min-length", 5)
    out = ok("generate", models / "words/run", "the old", *greedy).out
    assert out.startswith("the old ")
    assert out.endswith("\n")
    again = ok("generate", models / "words/run", "the old", *greedy, "--json").lines
    assert json.loads(again[0])["text"] == out[len("the old") : -1]
    (line,) = ok("generate", models / "pairs/run", "a b").lines
    assert set(line.split()) <= set("ABCDE")
    assert ok("generate", models / "words/run", "--seed", 3).out.strip()  # needs no prompt


def test_tokens_are_streamed(models, monkeypatch):
    seen = []

    def slow(self, prompt, settings, **asked):
        yield from self.write([prompt], settings, **asked)[0][0].tokens
        seen.append(sys.stdout.buffer.getvalue())

    whole = ok("generate", models / "words/run", "the", "--seed", 7).out
    monkeypatch.setattr(Generator, "stream", slow)
    assert ok("generate", models / "words/run", "the", "--seed", 7).out == whole
    assert seen[0].decode() == whole[:-1]  # all was written before the end was known


def test_json_has_tokens_with_probabilities(models):
    (line,) = ok("generate", models / "words/run", "the old", "--json", "--seed", 1).lines
    row = json.loads(line)
    assert list(row) == ["prompt", "text", "score", "ended", "tokens"]
    assert "".join(token["text"] for token in row["tokens"]) == row["text"]
    assert all(0 < token["probability"] <= 1 for token in row["tokens"])
    assert row["ended"] == (row["tokens"][-1]["text"] == "")


def test_several_texts_with_their_scores(models):
    lines = ok("generate", models / "pairs/run", "a b", "c", "-n", 3, "--num-beams", 4).lines
    assert len(lines) == 6
    scores = [float(line.split("\t")[0]) for line in lines]
    assert scores[0] >= scores[1] >= scores[2]
    lines = ok("generate", models / "words/run", "the", "-n", 5, "--temperature", 0.7).lines
    assert len(lines) == 5
    assert all(line.split("\t")[1].startswith("the") for line in lines)
    lines = ok("generate", models / "pairs/run", "a b", "-n", 7).lines  # a beam as wide as that
    assert len(lines) == 7
    lines = ok("generate", models / "pairs/run", "a b", "--num-beam-groups", 2, "-n", 3).lines
    assert len(lines) == 3


def test_prompts_from_a_file(models, monkeypatch):
    prompts = ["the old", "fish", "", "and the cat"]
    given = "".join(f"{prompt}\n" for prompt in prompts)
    whole = ok("generate", models / "words/run", "--input", "-", "--seed", 2, stdin=given).lines
    assert len(whole) == 4
    assert [line.startswith(prompt) for line, prompt in zip(whole, prompts, strict=True)] == (
        [True] * 4
    )
    monkeypatch.setattr("weft.cli.generate.CHUNK_PROMPTS", 3)
    again = ok("generate", models / "words/run", "--input", "-", "--seed", 2, stdin=given).lines
    assert again == whole
    path = models / "prompts.txt"
    path.write_text("a b\nc\n", "utf-8")
    assert len(ok("generate", models / "pairs/run", "--input", path).lines) == 2
    path.write_text("", "utf-8")
    assert ok("generate", models / "pairs/run", "--input", path).out == ""
    path.write_text("a\nb\nc\n \n", "utf-8")  # told by its line, though it comes with others
    says(fails("generate", models / "pairs/run", "--input", path), "prompts.txt:4 is empty")


def test_a_conversation(models):
    given = "the old\nzebra\n\n"
    done = ok("generate", models / "words/run", "--interactive", "--max-length", 5, stdin=given)
    assert len(done.lines) == 3
    assert done.lines[0].startswith("the old")
    done = ok(
        "generate", models / "pairs/run", "--interactive", "--method", "greedy", stdin="\na b\n"
    )
    assert done.err.startswith("error: The prompt is empty")  # and it goes on
    assert len(done.lines) == 1
    done = ok("generate", models / "pairs/run", "--interactive", "--num-beams", 3, "-n", 2,
              stdin="a b\nc\n")  # fmt: skip
    assert len(done.lines) == 4
    one = ok("generate", models / "pairs/run", "c", "--num-beams", 3, "-n", 2)
    assert done.lines[2:] == one.lines


def test_a_conversation_can_be_stopped(models, monkeypatch):
    def stopped(self, prompt, settings, **asked):
        yield self.write([prompt], settings, **asked)[0][0].tokens[0]
        if prompt == "the":
            raise KeyboardInterrupt

    monkeypatch.setattr(Generator, "stream", stopped)
    done = command("generate", models / "words/run", "--interactive", stdin="the\nfish\n")
    assert (done.status, len(done.lines)) == (0, 2)
    done = command("generate", models / "words/run", "the")
    assert done.status == 130
    assert done.out.startswith("the")
    assert done.out.endswith("\n")


def test_probabilities_are_shown(models):
    out = ok("generate", models / "words/run", "the", "--show", "--seed", 1).out
    assert all("/0." in word or "/1." in word for word in out.split()[1:])
    lines = ok("generate", models / "words/run", "the", "--show", "--seed", 1, "-n", 2).lines
    assert all("/0." in line for line in lines)


def test_colours_go_by_the_probability():
    from weft.cli.generate import _colour
    from weft.predict.generate import Token

    styles = [str(_colour(Token("x", 4, chance)).style) for chance in (1, 0.2, 0.02, 0.0)]
    assert styles == ["green", "cyan", "yellow", "red"]


def test_rules_of_the_command(models):
    path = models / "only.txt"
    path.write_text("fish\n\nold dog\n", "utf-8")
    out = ok("generate", models / "words/run", "--only", path, "--max-length", 9).out
    assert set(out.split()) <= {"fish", "old", "dog"}
    (line,) = ok("generate", models / "pairs/run", "a b c", "--prefix", "E").lines
    assert line.startswith("E")
    out = ok("generate", models / "letters/run", "th", "--max-length", 17, "--seed", 1).out
    assert len(out) == 2 + 17 + 1
    long = (
        "--min-length",
        23,
        "--max-length",
        23,
        "--no-repeat-ngram-size",
        2,
        "--repetition-penalty",
        1.2,
    )
    words = ok("generate", models / "words/run", "the", *long, "--top-k", 5).out.split()[1:]
    pairs = list(pairwise(words))
    assert len(words) >= 22
    assert len(pairs) == len(set(pairs))
    given = ("--num-beams", 3, "--length-penalty", 1.0, "--coverage-penalty", 0.1)
    assert fails("generate", models / "words/run", *given).endswith("decoder with attention.")


@pytest.mark.parametrize(
    ("model", "given", "parts"),
    [
        ("bag", (), ("task 'classify' does not generate text", "weft predict", "--recipe")),
        ("words/run", ("--temperature", 0), ("--temperature 0", "--method greedy")),
        (
            "words/run",
            ("--temperature", -1),
            ("--temperature is -1.0", "above 0", "use --method greedy."),
        ),
        ("words/run", ("--top-p", 2), ("--top-p is 2.0", "at most 1")),
        ("words/run", ("--method", "gready"), ("'gready'", "Did you mean 'greedy'?")),
        (
            "words/run",
            ("--num-beams", 3, "--top-k", 5),
            ("--num-beams", "--top-k", "Leave one out"),
        ),
        (
            "words/run",
            ("--num-beams", 3, "--method", "sample"),
            ("--num-beams needs --method beam",),
        ),
        (
            "pairs/run",
            ("x", "--coverage-penalty", 1, "--method", "greedy"),
            ("--coverage-penalty needs --method",),
        ),
        (
            "words/run",
            ("-n", 2, "--method", "greedy"),
            ("--num-return 2", "--method beam or sample"),
        ),
        ("words/run", ("-n", 0), ("--num-return should be 1 or more",)),
        ("words/run", ("-n", 4, "--num-beams", 3), ("--num-return is 4", "raise --num-beams")),
        (
            "words/run",
            ("--min-length", 9, "--max-length", 3),
            ("--min-length 9", "--max-length 3", "Lower --min-length or raise --max-length."),
        ),
        ("words/run", ("--interactive", "--input", "-"), ("--interactive", "Pass one")),
        ("words/run", ("--input", "nothing.txt"), ("nothing.txt",)),
        ("words/run", ("--only", "nothing.txt"), ("nothing.txt",)),
        ("words/run", ("--prefix", "zebra"), ("prefix: 'zebra' is not in the vocabulary",)),
        ("pairs/run", (), ("The prompt is empty", "needs a source text", "--input")),
        ("none", (), ("none: no such model folder",)),
    ],
)
def test_invalid_options_fail_with_one_line(models, model, given, parts):
    says(fails("generate", models / model, *given), *parts)


def test_progress_counts_the_prompts_of_a_file(models, monkeypatch):
    seen = []

    @contextlib.contextmanager
    def counting(what):
        yield lambda done: seen.append((what, done))

    monkeypatch.setattr(generate, "counting", counting)
    ok("generate", models / "pairs/run", "--input", "-", "-n", 2, stdin="a b\nb\na\n")
    assert seen == [("prompts", 1)] * 3


def test_unknown_prompt_words_are_reported_once(models):
    done = ok("generate", models / "words/run", "the zebra", "--max-length", 3)
    assert done.err == "note: the model does not know 'zebra'\n"
    given = "the old\nzebra yak\nyak gnu emu owl auk\n"
    for how in ("--interactive", "--input"):
        asked = (how, "-") if how == "--input" else (how,)
        told = ok("generate", models / "words/run", *asked, "-n", 2, stdin=given).err.splitlines()
        if how == "--input":
            assert told == ["note: the model does not know 'zebra', 'yak', 'gnu' and 3 more"]
        else:
            assert told == [
                "note: the model does not know 'zebra', 'yak'",
                "note: the model does not know 'gnu', 'emu', 'owl' and 1 more",
            ]
    assert "'z'" in ok("generate", models / "pairs/run", "a z").err
    assert ok("generate", models / "pairs/run", "a b").err == ""


def test_unknown_constraint_words_are_reported_with_their_line(models):
    path = models / "strange.txt"
    path.write_text("fish\nfisch\n", "utf-8")
    says(
        fails("generate", models / "words/run", "--only", path),
        "strange.txt:2: 'fisch' is not in the vocabulary",
        "Did you mean 'fish'?",
    )
    path.write_text("\n", "utf-8")
    says(fails("generate", models / "words/run", "--only", path), "no text in it")
