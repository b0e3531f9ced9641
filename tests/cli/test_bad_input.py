"""What a user can get wrong in files and settings, through the verbs, and what is said about it."""

import json
import shutil

import pytest

import weft
from tests.fixtures import small
from tests.fixtures.command import fails, ok, says, train
from weft.errors import UserError

ROWS = [(e.label, e.text) for e in small.examples(30)]
TABLE = "label,text\n" + "".join(f"{label},{text}\n" for label, text in ROWS)


# Training files: (name, bytes, more arguments, what must be said).
FILES = {
    "empty": ("a.tsv", b"", [], ["a.tsv: the file is empty"]),
    "only a header": ("a.csv", b"text,label\n", [], ["a.csv: no usable row"]),
    "only blank lines": ("a.csv", b"\n\n\n", [], ["a.csv"]),
    "one class only": (
        "a.csv",
        TABLE.replace("negative", "positive").encode(),
        [],
        ["a.csv: every example has the label 'positive'", "at least two classes"],
    ),
    "no labels": (
        "a.txt",
        b"some text\nmore text\n" * 11,
        [],
        ["no example has a label", "--label"],
    ),
    "wrong label column": (
        "a.csv",
        TABLE.encode(),
        ["--label", "lable"],
        ["no 'lable' column; found ['label', 'text']", "Did you mean 'label'?", "--label"],
    ),
    "wrong text column": (
        "a.csv",
        TABLE.encode(),
        ["--text", "txt"],
        ["no 'txt' column", "Did you mean 'text'?", "--text"],
    ),
    "column too far": ("a.csv", TABLE.encode(), ["--label", "7"], ["no column 7; the file has 2"]),
    "NUL byte": (
        "a.csv",
        TABLE.replace("film", "fi\0lm", 1).encode(),
        [],
        ["a.csv:", "NUL byte at offset", "Remove it"],
    ),
    "not UTF-8": (
        "a.csv",
        TABLE.replace("film", "filé", 1).encode("latin-1"),
        [],
        ["a.csv:", "byte 0xe9", "not UTF-8", "iconv"],
    ),
    "UTF-16": ("a.csv", TABLE.encode("utf-16"), [], ["a.csv:1: the file is UTF-16", "iconv"]),
    "ragged row": (
        "a.csv",
        TABLE.encode() + b"positive,a,b\n",
        [],
        ["a.csv:32: 3 columns, but the header has 2"],
    ),
    "empty text": ("a.csv", TABLE.encode() + b"positive,\n", [], ["a.csv:32: ", "empty"]),
    "no label in one row": (
        "a.csv",
        TABLE.encode() + b",some words\n",
        [],
        ["a.csv:32: no label"],
    ),
    "no label in any row": (
        "a.csv",
        b"what they wrote,verdict\n" + b"some words,\n" * 23,
        ["--text", "what they wrote", "--label", "verdict", "--on-bad-row", "skip"],
        ["a.csv: no rows left to train on; all were skipped", "--label"],
    ),
    "unknown format": (
        "a.csv",
        TABLE.encode(),
        ["--set", "data.format=cvs"],
        ["Unknown format 'cvs'", "Did you mean 'csv'?"],
    ),
    "words for a number": (
        "a.csv",
        TABLE.encode(),
        ["--task", "regress"],
        ["a.csv:2: label 'positive' is not a finite number", "task.kind=classify"],
    ),
    "one number only": (
        "a.csv",
        b"score,text\n" + b"3.5,some words\n" * 23,
        ["--task", "regress", "--label", "score"],
        ["every example has the label 3.5", "nothing to learn"],
    ),
}


@pytest.mark.parametrize("case", FILES)
def test_training_files(case, tmp_path):
    name, content, more, expected = FILES[case]
    (tmp_path / name).write_bytes(content)
    says(fails(*train(tmp_path / name, tmp_path / "run", *more)), *expected)
    assert not (tmp_path / "run" / "model").exists()


@pytest.mark.parametrize("recipe", ["bag", "tfidf"])
@pytest.mark.parametrize(
    ("case", "note"),
    [
        ("NUL byte", "1 NUL byte: "),
        ("not UTF-8", "1 undecodable bytes: "),
        ("ragged row", "1 ragged row: "),
        ("empty text", "1 empty text: "),
        ("no label in one row", "1 row without a label skipped: "),
    ],
)
def test_rows_can_be_skipped_and_are_counted(case, note, recipe, tmp_path):
    name, content, _, _ = FILES[case]
    (tmp_path / name).write_bytes(content)
    skip = ("--set", "data.on_bad_row=skip")
    told = ok(*train(tmp_path / name, tmp_path / "run", *skip, recipe=recipe)).err
    assert f"note: {note}" in told
    notes = json.loads((tmp_path / "run/model/record.json").read_text("utf-8"))["notes"]
    (found,) = (line for line in notes if "does not tell apart" not in line)
    says(found, note, "a.csv:")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("BOM", lambda b: b"\xef\xbb\xbf" + b),
        ("CRLF", lambda b: b.replace(b"\n", b"\r\n")),
        ("no last line end", lambda b: b.rstrip(b"\n")),
    ],
)
def test_marks_of_other_systems_change_nothing(name, change, tmp_path):
    models = []
    for file, content in (("a.csv", TABLE.encode()), ("b.csv", change(TABLE.encode()))):
        (tmp_path / file).write_bytes(content)
        ok(*train(tmp_path / file, tmp_path / file[0], "--label", "label", "--text", "text"))
        model = tmp_path / file[0] / "model"
        models.append([(model / n).read_bytes() for n in ("tokenizer.json", "golden.jsonl")])
    assert models[0] == models[1]


# Settings: (recipe, arguments, what must be said).
SETTINGS = {
    "option": (
        "lstm",
        ["--set", "encoder.hiden=3"],
        ["Unknown option 'hiden' in encoder 'rnn'", "Did you mean 'hidden'?", "Known: "],
    ),
    "training option": (
        "bag",
        ["--set", "train.learning_rat=3"],
        ["Unknown option 'learning_rat' in [train]", "Did you mean 'learning_rate'?"],
    ),
    "data option": (
        "bag",
        ["--set", "data.max_token=3"],
        ["'max_token' in [data]", "Did you mean 'max_tokens'?"],
    ),
    "section": ("bag", ["--set", "encodr.hidden=3"], ["Unknown section 'encodr'", "'encoder'?"]),
    "no section": ("bag", ["--set", "hidden=3"], ["'hidden=3' should look like section.key=value"]),
    "encoder": ("bag", ["--set", "encoder.kind=ccn"], ["Unknown encoder 'ccn'", "'cnn'?"]),
    "task": ("bag", ["--task", "clasify"], ["Unknown task 'clasify'", "'classify'?"]),
    "recipe": ("bilsmt", [], ["Unknown recipe 'bilsmt'", "'bilstm'?", "Known: autoencoder, bag"]),
    "metric": ("bag", ["--set", "train.metric=acuracy"], ["'acuracy'", "accuracy, macro_f1"]),
    "text for a number": (
        "lstm",
        ["--set", "encoder.hidden=big"],
        ["encoder 'rnn': 'hidden' should be a whole number, got 'big'"],
    ),
    "truth for a number": (
        "bag",
        ["--set", "train.epochs=true"],
        ["'epochs' should be a whole number, got True"],
    ),
    "choice": (
        "bag",
        ["--set", "data.truncate=haed"],
        ["[data]: 'truncate' should be one of 'error', 'head'", "got 'haed'"],
    ),
    "no epochs": ("bag", ["--set", "train.epochs=0"], ["train.epochs should be at least 1, got 0"]),
    "no batch": (
        "bag",
        ["--set", "train.batch_size=0"],
        ["train.batch_size should be at least 1, got 0"],
    ),
    "share": (
        "bag",
        ["--set", "data.dev_fraction=2"],
        ["data.dev_fraction should be from 0 to below 1, got 2"],
    ),
    "dropout": (
        "bag",
        ["--set", "embedder.dropout=1.5"],
        ["'dropout' should be from 0 to below 1, got 1.5"],
    ),
    "width": ("lstm", ["--set", "encoder.hidden=-3"], ["'hidden' should be at least 1, got -3"]),
    "rate": ("bag", ["--set", "train.learning_rate=-1"], ["train.learning_rate", "got -1"]),
    "no rate": ("bag", ["--set", "train.learning_rate=nan"], ["train.learning_rate", "got nan"]),
    "threads": ("bag", ["--set", "train.threads=-1"], ["train.threads", "got -1"]),
    "every": ("bag", ["--set", "train.evaluate_every=-1"], ["train.evaluate_every", "got -1"]),
    "average": ("bag", ["--set", "train.ema_decay=-0.5"], ["train.ema_decay", "got -0.5"]),
    "momentum": ("bag", ["--set", "train.momentum=-1"], ["train.momentum", "got -1"]),
    "golden": ("bag", ["--set", "data.golden_examples=-1"], ["data.golden_examples", "got -1"]),
    "warm-up": ("bag", ["--set", "train.warmup=1"], ["train.warmup", "below 1; got 1"]),
    "limit": (
        "bag",
        ["--set", "data.max_tokens=-1"],
        ["data.max_tokens should be 0 (no limit) or more"],
    ),
    "smoothing": (
        "bag",
        ["--set", "task.label_smoothing=1"],
        ["label_smoothing is 1", "0 to below 1"],
    ),
    "derived size": (
        "lstm",
        ["--set", "encoder.input_size=3"],
        ["Remove 'input_size' from encoder 'rnn': the model works it out itself"],
    ),
    "classic and neural": (
        "tfidf",
        ["--set", "encoder.kind=rnn"],
        ["[classic] stands alone; remove [encoder]"],
    ),
    "classic option": (
        "tfidf",
        ["--set", "classic.words=[2, 1]"],
        ["classic 'tfidf': words is [2, 1]", "such as [1, 2]"],
    ),
    "device": ("bag", ["--device", "gpu"], ["Unknown device 'gpu'", "auto, cpu, cuda"]),
    "no real device": ("bag", ["--device", "meta"], ["device 'meta'", "auto, cpu, cuda"]),
    "vectors": (
        "bag",
        ["--set", "embedder.vectors=none.vec"],
        ["No vector file 'none.vec'", "Correct 'vectors' in the configuration"],
    ),
    "tokenizer": (
        "bag",
        ["--set", "tokenizer.path=none.json"],
        ["none.json: cannot read the tokenizer: No such file"],
    ),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_settings(case, shared, tmp_path):
    recipe, more, expected = SETTINGS[case]
    says(fails(*train(shared / "train.tsv", tmp_path / "run", *more, recipe=recipe)), *expected)
    assert not (tmp_path / "run" / "model").exists()


def test_a_gpu_that_is_not_there(shared, tmp_path, monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for name in ("cuda", "cuda:1"):
        more = ("--device", name)
        message = fails(*train(shared / "train.tsv", tmp_path / "run", *more))
        says(message, f"Device '{name}' was asked for", "sees no GPU", "Use cpu")


def test_vectors_of_another_width(shared, tmp_path):
    (tmp_path / "v.vec").write_text("good 1 2 3\nbad 3 2 1\n", "utf-8")
    more = ("--set", f"embedder.vectors={tmp_path / 'v.vec'}", "--set", "embedder.width=7")
    message = fails(*train(shared / "train.tsv", tmp_path / "run", *more))
    says(message, "v.vec are 3 wide", "width = 7", "Set width = 3")


def test_files_that_are_not_there(shared, tmp_path):
    folder = shutil.copytree(shared, tmp_path / "data", ignore=shutil.ignore_patterns("[ab]*"))
    says(fails(*train(folder / "trian.tsv", tmp_path / "r")), "no such file", "'train.tsv'?")
    for flag in ("--dev", "--test"):
        more = (flag, folder / "trian.tsv")
        message = fails(*train(folder / "train.tsv", tmp_path / flag, *more))
        says(message, "trian.tsv: no such file", "Did you mean 'train.tsv'?")
    says(fails("evaluate", folder / "tfidf", folder / "trian.tsv"), "Did you mean 'train.tsv'?")
    says(fails("predict", folder / "tfidf", folder / "trian.tsv"), "Did you mean 'train.tsv'?")
    says(fails("predict", folder / "tfidd"), "no such model folder", "Did you mean 'tfidf'?")
    says(fails("predict", folder), "not a model folder (no model.json)")
    says(fails("predict", folder / "train.tsv"), "not a model folder")
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "config.json").write_text("{}")
    told = fails("predict", tmp_path / "hub")
    says(told, f"{tmp_path / 'hub' / 'config.json'}: no model_type", "Hugging Face checkpoint")
    says(told, "Set model_type to one of bert, ", "gpt2", "or pass a Weft model folder")
    says(fails("compare", folder / "trian.tsv", "-o", tmp_path / "c"), "'train.tsv'?")


def test_a_missing_test_file_is_known_before_the_training(shared, tmp_path):
    fails(*train(shared / "train.tsv", tmp_path / "run", "--test", tmp_path / "none.tsv"))
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_no_training_file(tmp_path):
    message = fails("train", "--recipe", "bag", "-o", tmp_path / "run")
    says(message, "No training file", "--train FILE")


@pytest.mark.parametrize("flag", ["--dev", "--test"])
def test_labels_that_training_did_not_see(flag, shared, tmp_path):
    other = tmp_path / "other.csv"
    other.write_text(TABLE.replace("positive", "positiv", 1), "utf-8")
    message = fails(*train(shared / "train.tsv", tmp_path / "run", flag, other))
    says(
        message, "other.csv:2: label 'positiv' was not seen in training", "Did you mean 'positive'?"
    )


def test_evaluating_labels_that_training_did_not_see(shared, tmp_path):
    other = tmp_path / "other.csv"
    other.write_text(TABLE.replace("positive", "positiv", 1), "utf-8")
    says(
        fails("evaluate", shared / "tfidf", other),
        *("other.csv:2: label 'positiv' was not seen", "'positive'?", "Known: negative, positive"),
    )
    done = ok("evaluate", shared / "tfidf", other, "--json", "--on-bad-row", "skip")
    assert json.loads(done.out)["accuracy"]["n"] == 29
    says(done.err, "note: 1 unknown label skipped: ", "other.csv:2")
    other.write_text(TABLE.replace("positive", "a").replace("negative", "b"), "utf-8")
    message = fails("evaluate", shared / "tfidf", other, "--on-bad-row", "skip")
    says(message, "no rows left to evaluate")
    says(
        fails("evaluate", shared / "tfidf", other, "--on-bad-row", "skp"),
        "error or skip, got 'skp'",
    )


def test_evaluating_what_has_no_labels(shared, tmp_path):
    says(fails("evaluate", shared / "tfidf", "-", stdin="a\nb\n"), "standard input:1: no label")
    says(fails("evaluate", shared / "tfidf", "-", stdin=""), "standard input: the file is empty")
    place = tmp_path / "nowhere" / "p.jsonl"
    message = fails("evaluate", shared / "tfidf", shared / "train.tsv", "--predictions", place)
    says(message, str(place), "No such file or directory")


@pytest.mark.parametrize(
    ("stdin", "expected"),
    [
        (b"", ["standard input: the file is empty"]),
        (b"good\nb\0d\n", ["standard input:2: NUL byte at offset 1"]),
        (b"good\nb\xffd\n", ["standard input:2: byte 0xff at offset 1", "not UTF-8"]),
        (
            b'{"text": "good"}\n{"text": 3}\n',
            ["standard input:2: 'text' must be a text, found 3"],
        ),
        (b'{"text": "good"}\n{"text": "bad"\n', ["standard input:2: invalid JSON"]),
        (b'{"text": "good"}\n{"body": "bad"}\n', ["standard input:2: no 'text' field", "body"]),
    ],
)
def test_predicting_what_is_no_text(stdin, expected, shared):
    says(fails("predict", shared / "tfidf", "-", stdin=stdin), *expected)


def test_a_line_of_a_million_characters(shared, tmp_path):
    line = "good film " * 100_000
    for model in ("tfidf", "bag"):
        (row,) = ok("predict", shared / model, "-", "--json", stdin=line).lines
        assert json.loads(row)["coverage"] == pytest.approx(0.1)  # 100,000 characters are read
    data = tmp_path / "a.tsv"
    data.write_text((shared / "train.tsv").read_text("utf-8") + f"positive\t{line}\n", "utf-8")
    told = ok(*train(data, tmp_path / "run", "--set", "data.max_tokens=101")).err
    # Lines break where the folder's name lets them.
    says("".join(told.split()), "note:1traintextreadonlyinpart:", "a.tsv:47(0%)")
    done = ok("predict", tmp_path / "run", "-", "--json", stdin=line)
    assert json.loads(done.out)["coverage"] == pytest.approx(101 / 200_000)
    says(done.err, "1 text was read only in part")
    told = ok("evaluate", tmp_path / "run", data).err
    says(told, "note: 1 text read only in part: ", "a.tsv:47 (0%)")


def test_a_text_that_may_not_be_cut(shared, tmp_path):
    more = ("--set", "data.truncate=error", "--set", "data.max_tokens=7")
    message = fails(*train(shared / "train.tsv", tmp_path / "run", *more))
    says(message, "train.tsv:4 has 8 tokens, the limit is 7", "data.truncate", "data.max_tokens")


def test_train_needs_exactly_one_configuration(shared, tmp_path):
    (tmp_path / "a.toml").write_text("[encoder]\nkind = 'bag'\n", "utf-8")
    out = ("-o", tmp_path / "run")
    both = fails("train", tmp_path / "a.toml", "--recipe", "bag", *out)
    says(both, "a configuration file or --recipe, not both")
    says(fails("train", *out), "Nothing to train", "--recipe NAME")
    says(fails("train", *out, "--resume"), "run: nothing to resume: no config.toml")
    half = fails("train", tmp_path / "a.toml", "--train", shared / "train.tsv", *out)
    says(half, "no [tokenizer], [embedder], [pool], [head]", "weft list recipes")
    says(fails("train", tmp_path / "b.toml", *out), "b.toml: no such configuration file")
    says(fails("train", tmp_path, *out), "is a folder; a configuration is a .toml")
    says(fails("config", "explain"), "Give a configuration file or --recipe NAME")
    says(fails("list", "encodrs"), "Unknown list 'encodrs'", "'encoders'?")
    (tmp_path / "a.toml").write_text("[encoder]\nkind = bag\n", "utf-8")
    says(fails("train", tmp_path / "a.toml", *out), "a.toml: cannot be read as toml", "line 2")
    (tmp_path / "a.toml").write_text("[encodr]\nkind = 'bag'\n", "utf-8")
    says(fails("train", tmp_path / "a.toml", *out), "Unknown section 'encodr' in", "a.toml")


def test_several_labels_are_noticed(tmp_path):
    data = tmp_path / "a.jsonl"
    rows = [{"text": text, "label": [label, "any"]} for label, text in ROWS]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    ok(*train(data, tmp_path / "run", recipe="tfidf"))
    (row,) = ok("predict", tmp_path / "run", "-", "--json", stdin="a good film").lines
    assert set(json.loads(row)["value"]) == {"any", "positive"}
    more = ("--set", "task.multi_label=false")
    message = fails(*train(data, tmp_path / "other", *more, recipe="tfidf"))
    says(message, "a.jsonl:1: several labels ['positive', 'any']", "task.multi_label=true")


@pytest.mark.parametrize("model", ["bag", "tfidf"])
def test_in_python_too(model, shared):
    predictor = weft.load(shared / model)
    with pytest.raises(UserError, match="with a list of texts, not a single string"):
        predictor("a good film")
    with pytest.raises(UserError, match="Text 2 is int, not a string"):
        predictor(["a good film", 3])
    with pytest.raises(UserError, match="Text 1 is NoneType, not a string"):
        predictor([None])
    assert predictor([]) == []
    with pytest.raises(UserError, match="no such model folder"):
        weft.load(shared / "nothing")


def test_vectors_that_a_model_does_not_have(shared):
    tfidf, bag = weft.load(shared / "tfidf"), weft.load(shared / "bag")
    with pytest.raises(UserError, match=r"has no sentence vectors.*Use another model"):
        tfidf.embed(["a good film"])
    with pytest.raises(UserError, match="no vector for each token"):
        tfidf.states("a good film")
    assert bag.embed([]).shape[0] == 0
    with pytest.raises(UserError, match="list of texts, not a single string"):
        bag.embed("a good film")
