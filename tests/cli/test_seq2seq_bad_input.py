"""Sources and targets that are wrong, through the command line, and what is said."""

import gzip
import json

import numpy as np
import pytest

from tests.fixtures.command import SMALL, command, fails, ok, says

TINY = (
    *SMALL, "--set", "embedder.width=7", "--set", "encoder.hidden=5", "--set", "decoder.width=7",
    "--set", "decoder.hidden=5", "--set", "generate.max_length=5", "--device", "cpu",
    "--set", "train.epochs=1",
)  # fmt: skip
WORDS = ("--set", "tokenizer.kind=word", "--set", "tokenizer.vocab_size=0")


def train(folder, data, *more, recipe="seq2seq-attention"):
    words = WORDS if recipe == "seq2seq-attention" else ()
    return (
        "train",
        "--recipe",
        recipe,
        "--train",
        data,
        "-o",
        folder / "run",
        *TINY,
        *words,
        *more,
    )


def pair(folder, source, target):
    (folder / "a.en").write_text(source, "utf-8")
    (folder / "a.de").write_text(target, "utf-8")
    return folder / "a.en"


def vectors(folder, **others):
    """Twelve sound matrices and these, each named with a word."""
    rows = {f"g{i}": np.full((i + 1, 3), float(i)) for i in range(12)} | others
    for name, found in rows.items():
        np.save(folder / f"{name}.npy", found)
    lines = [json.dumps({"text": f"{name}.npy", "target": "a b"}) for name in rows]
    (folder / "a.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    return folder / "a.jsonl"


EMPTY = "empty line. Fill it in, or remove it from both"
PAIRS = {
    "unequal": (
        "a\nb\nc\n",
        "x\ny\n",
        ["a.de ends after line 2, but ", "a.en continues to line 3. Look"],
    ),
    "empty source": ("a\n\nc\n", "x\ny\nz\n", [f"a.en:2: {EMPTY}"]),
    "empty target": ("a\nb\nc\n", "x\n \nz\n", [f"a.de:2: {EMPTY}"]),
}


@pytest.mark.parametrize("name", PAIRS)
def test_parallel_files(tmp_path, name):
    source, target, told = PAIRS[name]
    path = pair(tmp_path, source, target)
    says(fails(*train(tmp_path, path, "--set", "data.target=de")), *told)


def test_stopped_training_prints_how_to_resume(tmp_path, monkeypatch):
    def stopped(config, output, **others):
        (output / "checkpoints").mkdir(parents=True)
        (output / "checkpoints/last.safetensors").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr("weft.run.train", stopped)
    done = command(*train(tmp_path, pair(tmp_path, "a\n", "x\n"), "--target", "de"))
    assert done.status == 130
    last = tmp_path / "run/checkpoints/last.safetensors"
    says(done.err, f"stopped; the last checkpoint is {last}; `weft train -o {tmp_path / 'run'}")
    says(done.err, "--resume --device cpu` goes on")


def test_packed_pairs_and_a_packed_table(tmp_path):
    rows = [(f"a{i} b", f"b a{i}") for i in range(20)]
    for ending, side in (("en", 0), ("de", 1)):
        text = "".join(f"{row[side]}\n" for row in rows).encode()
        (tmp_path / f"a.{ending}.gz").write_bytes(gzip.compress(text))
    ok(*train(tmp_path, tmp_path / "a.en.gz", "--target", "de"), "--set", "train.epochs=1")
    table = "".join(f"{a}\t{b}\n" for a, b in rows[:3]).encode()
    (tmp_path / "b.tsv.gz").write_bytes(gzip.compress(b"source\ttarget\n" + table))
    for name, n in (("a.en.gz", 20), ("b.tsv.gz", 3)):  # a table has its targets within
        found = json.loads(ok("evaluate", tmp_path / "run", tmp_path / name, "--json").out)
        assert found["bleu"]["n"] == n


def test_files_joined_by_a_comma(tmp_path):
    (tmp_path / "o").mkdir()
    for name, word in (("src.txt", "b"), ("o/tgt.txt", "c"), ("a.en", "b"), ("a.de", "c")):
        (tmp_path / name).write_text("".join(f"a{i} {word}\n" for i in range(20)), "utf-8")
    pair, test = f"{tmp_path}/src.txt,{tmp_path}/o/tgt.txt", f"{tmp_path}/a.en,{tmp_path}/a.de"
    message = fails(*train(tmp_path, pair, "--target", "de"))
    says(message, "the comma already names the target file. Drop --target de")
    message = fails(*train(tmp_path, pair, "--dev", f"{tmp_path}/a.en,{tmp_path}/a.du"))
    says(message, "a.du: no such file. Did you mean 'a.de'?")
    ok(*train(tmp_path, pair, "--dev", test, "--test", test))
    found = json.loads(ok("evaluate", tmp_path / "run", test, "--json").out)
    assert found["bleu"]["n"] == 20
    said = ok("predict", tmp_path / "run", test).lines
    assert said == ok("predict", tmp_path / "run", tmp_path / "a.en").lines
    assert len(said) == 20
    (tmp_path / "a.en").write_text("a1 b\n\na2 b\n", "utf-8")  # only the first side is read
    assert len(ok("predict", tmp_path / "run", test).lines) == 3
    checked = json.loads(ok("check", pair, "--json", "--no-near").out)
    assert checked["targets"]["lengths"]["data"]["max"] == 2
    says(fails("check", pair, "--fix", tmp_path / "fixed"), "--fix cannot write parallel files")


@pytest.mark.parametrize("joined", [True, False])
def test_parallel_files_are_read_joined_or_by_target(tmp_path, joined):
    path = pair(tmp_path, "".join(f"a{i} b\n" for i in range(20)), "a b\n" * 20)
    both = f"{path},{tmp_path / 'a.de'}"
    ok(*train(tmp_path, *([both] if joined else [path, "--target", "de"])))
    for file in (both, path):
        found = json.loads(ok("evaluate", tmp_path / "run", file, "--json").out)
        assert found["bleu"]["n"] == 20


@pytest.mark.parametrize("limit", [0, 5])
def test_a_very_long_text_is_named_before_it_is_answered(tmp_path, monkeypatch, limit):
    path = pair(tmp_path, "".join(f"a{i} b\n" for i in range(20)), "a b\n" * 20)
    ok(*train(tmp_path, path, "--target", "de", "--set", f"data.max_tokens={limit}"))
    monkeypatch.setattr("weft.cli.predict.LONG_TEXT_CHARACTERS", 30)
    (tmp_path / "a.txt").write_text("a1 b\n" + "a1 b " * 9 + "\na2 b\n", "utf-8")
    done = ok("predict", tmp_path / "run", tmp_path / "a.txt")
    assert len(done.lines) == 3
    told = "a.txt:2: 45 characters, all of which are read: this may take minutes"
    assert (told in done.err) == (limit == 0)  # what is cut is quick
    assert "a.txt:1" not in done.err


def test_a_header_of_unknown_words_is_noted(tmp_path):
    path = tmp_path / "a.tsv"
    rows = "".join(f"a{i} b\tb a{i}\n" for i in range(20))
    path.write_text(f"english\tloomish\n{rows}", "utf-8")
    shown = ok(*train(tmp_path, path)).err  # broken into lines wherever the path makes it
    says("".join(shown.split()), f"{path}:1:thefirstlineisreadasaheader.")
    done = ok("evaluate", tmp_path / "run", path, "--json")
    assert json.loads(done.out)["bleu"]["n"] == 20
    assert len(ok("predict", tmp_path / "run", path).lines) == 20


def test_matrices_are_no_text(tmp_path):
    np.savez(tmp_path / "a.npz", **{f"m{i}": np.ones((3, 5)) for i in range(7)})
    path = tmp_path / "a.txt"
    path.write_text("the cat sat\nthe dog ran\n" * 9, "utf-8")
    told = "a.npz: a matrix file, but texts are needed here. Pass a text file"
    asked = ("train", "--recipe", "kneser-ney", "-o", tmp_path / "lm", "--train")
    says(fails(*asked, tmp_path / "a.npz"), told)
    ok(*asked, path)
    for verb in ("predict", "evaluate"):
        says(fails(verb, tmp_path / "lm", tmp_path / "a.npz"), told)
    says(
        fails("generate", tmp_path / "lm", "--input", tmp_path / "a.npz"),
        "a.npz: a matrix file, but prompts are lines",
    )


@pytest.mark.parametrize(
    ("shape", "lines", "parts"),
    [
        ((20, 5), 20, ("a.npy has 1 matrix, but ", "after line 1; a two-axis array is one matrix")),
        ((7, 3, 5), 20, ("a.npy has 7 matrices, but ", "a.txt continues after line 7. Save one")),
        ((20, 3, 5), 19, ("a.txt ends after line 19, but ", "a.npy has more matrices",)),
    ],
)  # fmt: skip
def test_matrices_and_lines_of_unequal_number(tmp_path, shape, lines, parts):
    np.save(tmp_path / "a.npy", np.ones(shape))
    (tmp_path / "a.txt").write_text("one two\n" * lines, "utf-8")
    both = f"{tmp_path / 'a.npy'},{tmp_path / 'a.txt'}"
    says(fails(*train(tmp_path, both, recipe="seq2seq-vectors")), *parts)


def test_a_missing_sister(tmp_path):
    (tmp_path / "a.en").write_text("a\n", "utf-8")
    message = fails(*train(tmp_path, tmp_path / "a.en", "--set", "data.target=de"))
    says(message, "a.de: no such file")


def test_test_file_without_targets_fails_before_training(tmp_path):
    path = pair(tmp_path, "a b\nb c\n" * 9, "A B\nB C\n" * 9)
    (tmp_path / "test.en").write_text("a b\nc\n", "utf-8")
    both = f"{path},{path.with_suffix('.de')}"
    message = fails(*train(tmp_path, both, "--test", tmp_path / "test.en"))
    says(message, "test.en:1: no target. Fill it in", "--target with its ending ('de' for")
    assert "epoch" not in message


def test_an_empty_cell(tmp_path):
    rows = [f"word{i}\tsaid{i}" for i in range(20)]
    rows[7] = "word7\t"
    path = tmp_path / "a.tsv"
    path.write_text("text\ttarget\n" + "\n".join(rows) + "\n", "utf-8")
    says(fails(*train(tmp_path, path)), "a.tsv:9: no target. Fill it in, or pass --on-bad-row skip")
    path.write_text("text\ttarget\n" + "\n".join(rows).replace("word7\t", "\tx") + "\n", "utf-8")
    says(fails(*train(tmp_path, path)), "a.tsv:9: ", "empty")
    ok(*train(tmp_path, path, "--on-bad-row", "skip", "--overwrite"))


def test_a_target_beyond_the_limit(tmp_path):
    path = pair(tmp_path, "a\n" * 9, "x\n" * 8 + "x y z x y\n")
    config = tmp_path / "c.toml"
    config.write_text(
        '[task]\nkind = "seq2seq"\n[tokenizer]\nkind = "word"\n[embedder]\nkind = "lookup"\n'
        '[encoder]\nkind = "rnn"\n[decoder]\nkind = "transformer"\nheads = 2\nhidden = 4\n'
        'positions = "learned"\nmax_positions = 4\n[data]\ntarget = "de"\n',
        "utf-8",
    )
    message = fails("train", config, "--train", path, "-o", tmp_path / "run", "--device", "cpu")
    says(message, "a.en:9: the target has 6 tokens, and the decoder writes at most 4. Shorten it")


RECORDS = "mr,ref\n" + "".join(f'"name[B{i}], food[pie]",B{i} has pie\n' for i in range(20))


def test_records(tmp_path):
    path, dev = tmp_path / "a.csv", tmp_path / "dev.csv"
    path.write_text(RECORDS, "utf-8")
    asked = ("--text", "mr", "--label", "ref", "--set", "task.metrics=['bleu']")
    dev.write_text("mr,ref\nfood[pie],pie\ndrink[tea],tea\n", "utf-8")
    message = fails(*train(tmp_path, path, *asked, "--dev", dev, recipe="seq2seq-records"))
    says(message, "dev.csv:3: unknown slot 'drink'.", "Known: food, name. Rename it")
    dev.write_text("mr,ref\nfood[pie],pie\npie,pie\n", "utf-8")
    message = fails(*train(tmp_path, path, *asked, "--dev", dev, recipe="seq2seq-records"))
    says(message, "dev.csv:3: expected slot[value], found 'pie'.", "--set 'data.fields=[")
    dev.write_text("mr,ref\nfood[pie],pie\nfood[],pie\n", "utf-8")
    message = fails(*train(tmp_path, path, *asked, "--dev", dev, recipe="seq2seq-records"))
    says(message, "dev.csv:3: slot 'food' has no value; remove it.")
    ok(*train(tmp_path, path, *asked, recipe="seq2seq-records"))
    dev.write_text("mr\nfood[pie]\ndrink[tea]\n", "utf-8")
    message = fails("predict", tmp_path / "run", dev, "--device", "cpu")
    says(message, "dev.csv:3: unknown slot 'drink'.", "Known: food, name.")
    said = ok("evaluate", tmp_path / "run", path, "--device", "cpu")
    assert any(line.startswith("BLEU|nrefs:1|") for line in said.lines)
    assert "n=20" in said.out


MATRICES = {
    "nan": ({"x": np.array([[0, 0, 0], [0, np.nan, 0]])},
            ["a.jsonl:13: vector 2 of the matrix is not finite: number 2 is nan. Correct it"]),
    "wide": ({"x": np.ones((2, 4))},
             ["a.jsonl:13: vectors of 4 numbers; this model reads 3. Compute the features"]),
    "empty": ({"x": np.ones((0, 3))}, ["a.jsonl:13: empty matrix (0 × 3). Remove it."]),
    "flat": (
        {"x": np.ones(3)},
        ["a.jsonl:13: a matrix needs two axes, vectors by numbers; found 3"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MATRICES)
def test_matrices(tmp_path, name):
    others, told = MATRICES[name]
    path = vectors(tmp_path, **others)
    says(
        fails(*train(tmp_path, path, "--set", "data.dev_fraction=0", recipe="seq2seq-vectors")),
        *told,
    )


def test_a_matrix_that_is_not_there(tmp_path):
    path = vectors(tmp_path)
    (tmp_path / "g5.npy").unlink()
    message = fails(
        *train(tmp_path, path, "--set", "data.dev_fraction=0", recipe="seq2seq-vectors")
    )
    says(message, "a.jsonl:6: ", "g5.npy: no such file")


def test_matrices_to_predict(tmp_path):
    path = vectors(tmp_path)
    ok(*train(tmp_path, path, "--set", "data.dev_fraction=0", recipe="seq2seq-vectors"))
    np.savez(tmp_path / "new.npz", a=np.ones((2, 3)), b=np.full((1, 3), np.inf))
    message = fails("predict", tmp_path / "run", tmp_path / "new.npz", "--device", "cpu")
    says(message, "new.npz:2: vector 1 of the matrix is not finite: number 1 is inf")
    np.save(tmp_path / "wide.npy", np.ones((2, 5)))
    message = fails("predict", tmp_path / "run", tmp_path / "wide.npy", "--device", "cpu")
    says(message, "wide.npy:1: vectors of 5 numbers; this model reads 3.")
    assert len(ok("predict", tmp_path / "run", tmp_path / "g3.npy", "--device", "cpu").lines) == 1


def test_a_text_that_leaves_nothing_to_measure(tmp_path):
    (tmp_path / "a.txt").write_text("the cat sat and the dog ran\n", "utf-8")
    asked = ("train", "--recipe", "kneser-ney", "--train", tmp_path / "a.txt", "-o")
    told = "note: there is no dev or test part: nothing was measured; pass --dev or --test"
    assert " ".join(ok(*asked, tmp_path / "one").err.split()).count(told) == 1
    assert told not in ok(*asked, tmp_path / "two", "--test", tmp_path / "a.txt").err
