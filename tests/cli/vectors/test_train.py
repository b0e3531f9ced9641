"""weft vectors train: text in, a file of vectors out, and what is refused."""

import json

import numpy as np
import pytest

from tests.fixtures.command import command, fails, ok, says
from weft.vectors.store import Vectors


@pytest.fixture
def text(tmp_path):
    random = np.random.default_rng(3)
    topics = [["cat", "dog", "mouse", "bird", "horse"], ["york", "city", "street", "new", "the"]]
    lines = [" ".join(random.choice(topics[i % 2], 7)) for i in range(101)]
    path = tmp_path / "text.txt"
    path.write_text("\n".join(lines) + "\nin New York, New York\n")
    return path


SMALL = ("--dim", 7, "--min-count", 2, "--threads", 2, "--buckets", 101, "--epochs", 2)


@pytest.mark.parametrize("method", ["skipgram", "cbow", "fasttext", "glove"])
def test_every_method_writes_vectors(method, text, tmp_path):
    output = tmp_path / "out.safetensors"
    done = ok("vectors", "train", text, "-o", output, "--method", method, *SMALL, "--json")
    vectors = Vectors.load(output)
    record = json.loads(done.out)
    assert record["method"] == vectors.record["method"] == method
    assert vectors.matrix.shape == (10, 7)
    assert np.isfinite(vectors.matrix).all()
    assert "zebra" not in vectors
    if method == "fasttext":
        assert vectors["zebracat"].shape == (7,)


def test_standard_input_phrases_and_words_as_they_are(text, tmp_path):
    output = tmp_path / "out.txt"
    lines = "see New York,\n" * 5 + "see new\nYork, see\n"
    options = (
        "--tokenizer",
        "whitespace",
        "--no-lowercase",
        "--phrases",
        1,
        "--phrase-threshold",
        1.7,
    )
    ok("vectors", "train", "-", "-o", output, *SMALL, *options, stdin=lines)
    assert Vectors.load(output).words[:2] == ["see", "New_York,"]


def test_the_same_bytes_twice(text, tmp_path):
    files = [tmp_path / f"{n}.txt" for n in range(2)]
    for file in files:
        ok("vectors", "train", text, "-o", file, *SMALL, "--deterministic")
    assert files[0].read_bytes() == files[1].read_bytes()


def test_invalid_options_fail_before_the_text_is_read(text, tmp_path):
    output = tmp_path / "out.txt"
    told = fails("vectors", "train", text, "-o", output, "--method", "word2vec")
    assert "Unknown method 'word2vec'. Known: cbow, fasttext, glove, skipgram." in told
    told = fails("vectors", "train", text, "-o", output, "--tokenizer", "word")
    assert "Did you mean 'words'?" in told
    told = fails("vectors", "train", tmp_path / "no.txt", "-o", output, "--learning-rate", "0")
    assert "--learning-rate should be above 0, got 0." in told
    told = fails("vectors", "train", text, "-o", tmp_path / "no" / "out.txt")
    assert "does not exist. Make it first." in told
    told = fails("vectors", "train", tmp_path / "no.txt", "-o", tmp_path / "out.doc")
    assert "out.doc: the ending does not say a format" in told
    told = fails("vectors", "train", tmp_path / "no.txt", "-o", tmp_path, "--overwrite")
    assert "is a folder. Name a file in it" in told
    assert "no such file" in fails("vectors", "train", tmp_path / "no.txt", "-o", output)
    assert not output.exists()
    output.write_text("")
    assert "Pass --overwrite" in fails("vectors", "train", text, "-o", output)


@pytest.mark.parametrize(
    "option", ["dim", "window", "negative", "epochs", "min-count", "buckets", "min-n"]
)
def test_nothing_of_something_is_refused_by_the_name_of_the_option(option, tmp_path):
    done = command("vectors", "train", "no.txt", "-o", tmp_path / "out.txt", f"--{option}", 0)
    assert done.status == 2
    says(done.err, f"'--{option}'", "1")


def test_missing_device_fails_before_the_text_is_read(tmp_path, monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    given = ("vectors", "train", tmp_path / "no.txt", "-o", tmp_path / "out.txt", "--device")
    says(fails(*given, "gpu"), "Unknown device 'gpu'. Use auto, cpu, cuda or cuda:N.")
    says(fails(*given, "cuda:x"), "Unknown device 'cuda:x'")
    says(fails(*given, "cuda"), "Device 'cuda' was asked for, but torch sees no GPU here. Use cpu.")
    says(fails(*given, "cuda:1", "--method", "fasttext"), "'cuda:1'", "no GPU here")
    says(fails(*given, "cuda", "--method", "glove"), "GloVe is trained on the CPU")
    says(fails(*given, "cpu"), "no such file")


def test_every_option_of_glove_reaches_the_record(tmp_path):
    (tmp_path / "t.txt").write_text("a b c d e\nb c a e d\nc a b d e\n" * 40, "utf-8")
    done = ok(
        "vectors", "train", tmp_path / "t.txt", "-o", tmp_path / "v.txt", "--method", "glove",
        "--dim", 3, "--epochs", 2, "--threads", 1, "--x-max", 7, "--power", 0.5, "--no-symmetric",
        "--distance", "none", "--combine", "word", "--no-bias", "--sample", 0.1,
        "--negative-weight", 0.2, "--json",
    )  # fmt: skip
    record = json.loads(done.out)
    expected = {
        "x_max": 7, "power": 0.5, "symmetric": False, "distance": "none", "combine": "word",
        "bias": False, "sample": 0.1, "negative_weight": 0.2,
    }  # fmt: skip
    assert {name: record[name] for name in expected} == expected
    start = ("vectors", "train", tmp_path / "t.txt", "-o", tmp_path / "w.txt", "--method", "glove")
    says(fails(*start, "--x-max", 0), "--x-max should be above 0, got 0.")
    says(fails(*start, "--distance", "inverted"), "Unknown distance weighting 'inverted'")
    says(fails(*start, "--combine", "words"), "Unknown combination 'words'", "mean 'word'?")
