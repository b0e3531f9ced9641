"""Language models through the one spine: trained, measured, saved, resumed; and what is told."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import weft
from tests.fixtures.command import command
from tests.fixtures.language_files import corpus
from tests.fixtures.small import Killed
from weft.batch.lm_windows import LMLoader, TokenStream
from weft.config import recipe
from weft.errors import UserError
from weft.model import Model, build_model
from weft.predict import load
from weft.predict.evaluate import evaluate
from weft.run.data import Data, example_source
from weft.run.lm_data import few_updates_note
from weft.run.split import from_files
from weft.runtime import select_runtime
from weft.tasks.language import LanguageModelling
from weft.text.example import Example, SkipCounter
from weft.train import checkpoint, loop
from weft.train.loop import fit
from weft.train.settings import Settings
from weft.train.state import TrainState

WORD = {"kind": "word", "min_count": 1}
SMALL = {
    "rnn-lm": {"decoder.width": 11, "decoder.hidden": 13},
    "lstm-lm": {"decoder.width": 11, "decoder.hidden": 13, "decoder.dropout": 0.1},
    "nnlm": {"decoder.width": 11, "decoder.hidden": 13, "decoder.context": 3},
    "gpt": {"decoder.hidden": 12, "decoder.heads": 3, "decoder.layers": 1, "task.window": 16},
    "masked-bilstm": {"decoder.width": 11, "decoder.hidden": 13, "task.window": 16},
}


def configured(name, path, **changes):
    values = {
        "tokenizer": WORD, "train.epochs": 2, "train.batch_size": 4, "train.learning_rate": 0.03,
        "train.patience": 0, "train.schedule": "constant", "train.threads": 1,
        "data.train": str(path), **SMALL[name], **changes,
    }  # fmt: skip
    if name != "gpt":
        del values["train.schedule"]
    values = {key: value for key, value in values.items() if value is not None}
    return recipe(name).with_values(values, "test")


def trained(name, folder, run="run", **changes):
    path = folder / "train.txt"
    config = configured(name, path if path.exists() else corpus(folder), **changes)
    return weft.train(config, folder / run, quiet=True, device="cpu")


@pytest.mark.parametrize("name", SMALL)
def test_every_recipe_trains_saves_and_loads(tmp_path, name):
    # 4 subjects and 3 verbs are equally likely, the rest is certain: 12 for 8 tokens and an end.
    epochs = {"masked-bilstm": 25, "lstm-lm": 16}.get(name, 8)
    out = trained(name, tmp_path, **{"train.epochs": epochs})
    found = out.figures["dev"]
    assert found["token_perplexity"].value < 3.0
    assert found["perplexity"].n == 12  # the last tenth of 120 lines
    assert found["perplexity"].low <= found["perplexity"].value <= found["perplexity"].high
    again = load(tmp_path / "run/model", device="cpu")
    texts = ["the cat sees a dog .", "dog the . a sees cat", ""]
    before, after = out.predictor(texts), again(texts)
    assert [a.value for a in after] == pytest.approx([a.value for a in before], rel=1e-5)
    assert before[0].value < before[1].value
    assert [part[:2] for part in before[0].parts[:3]] == [(0, 3), (4, 7), (8, 12)]
    assert before[0].parts[-1][:2] == (20, 20)  # the end
    assert 0 < before[0].parts[0][2] < 1
    notes = json.loads((tmp_path / "run/model/record.json").read_text("utf-8"))["notes"]
    assert any("pseudo-perplexities" in note for note in notes) == (name == "masked-bilstm")


def test_dev_metric_of_training_equals_evaluate(tmp_path):
    out = trained("lstm-lm", tmp_path)
    data = Data(train=str(tmp_path / "train.txt"))
    splits = from_files(data, mode="texts")
    got = evaluate(out.predictor, splits.dev()).compute(resamples=0)
    lines = (tmp_path / "run/metrics.jsonl").read_text("utf-8").splitlines()
    last = [json.loads(line) for line in lines if "dev_perplexity" in line]
    best = min(row["dev_perplexity"] for row in last)
    assert got["perplexity"].value == pytest.approx(best, rel=1e-5)


def test_dev_is_the_end_of_the_file_and_test_has_its_own(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("".join(f"line {i}\n\n" for i in range(20)), "utf-8")
    splits = from_files(Data(train=str(path), test=str(path), dev_fraction=0.15), mode="texts")
    train, dev = ([e.text for e in part()] for part in (splits.train, splits.dev))
    assert train == [f"line {i}" for i in range(17)]
    assert dev == [f"line {i}" for i in range(17, 20)]
    assert len(list(splits.test())) == 20
    assert from_files(Data(train=str(path), dev_fraction=0.0), mode="texts").dev is None


def test_running_text_keeps_its_breaks(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\r\n\n\ntwo")
    rows = list(example_source(Data(), str(path), mode="running")())
    assert [e.text for e in rows] == ["one\n", "\n", "\n", "two"]
    assert [e.line for e in rows] == [1, 2, 3, 4]


def test_characters_of_a_running_text(tmp_path):
    changes = {
        "tokenizer": {"kind": "character"}, "task.lines": False, "task.window": 32,
        "decoder.max_positions": 32, "train.epochs": 4,
    }  # fmt: skip
    out = trained("gpt", tmp_path, **changes)
    assert out.figures["dev"]["bits_per_character"].value < 3
    (answer,) = out.predictor(["the cat"])
    assert len(answer.parts) == 7  # nothing ends it
    again = load(tmp_path / "run", device="cpu")
    rows = list(example_source(Data(), str(tmp_path / "train.txt"), mode="running")())
    found = evaluate(again, rows).compute(resamples=0)
    assert found["bits_per_character"].n == 120
    text = (tmp_path / "train.txt").read_text("utf-8")
    logp = [np.log(f.probs).sum() for f in again.engine.likelihoods([text])]
    bits = -sum(logp) / np.log(2) / len(text)
    assert found["bits_per_character"].value == pytest.approx(bits, rel=1e-5)


def test_labels_are_not_looked_at(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("label\ttext\n" + "good\tthe cat sees\nbad\ta dog hears\n" * 20, "utf-8")
    out = weft.train(configured("rnn-lm", path), tmp_path / "run", quiet=True, device="cpu")
    assert "good" not in out.predictor.space.tokenizer.vocabulary
    assert "cat" in out.predictor.space.tokenizer.vocabulary


@pytest.mark.parametrize("name", ["lstm-lm", "nnlm", "gpt"])
def test_a_resumed_training_is_the_same_to_the_last_bit(tmp_path, name, monkeypatch):
    path = corpus(tmp_path)
    config = configured(name, path, **{"train.save_every": 1, "train.epochs": 2})
    weft.train(config, tmp_path / "whole", quiet=True, device="cpu")
    replace, written = checkpoint.replace, []

    def dying(place, data):
        replace(place, data)
        written.append(place)
        if len(written) == 5:
            raise Killed

    monkeypatch.setattr(checkpoint, "replace", dying)
    with pytest.raises(Killed):
        weft.train(config, tmp_path / "cut", quiet=True, device="cpu")
    monkeypatch.setattr(checkpoint, "replace", replace)
    weft.train(config, tmp_path / "cut", quiet=True, resume=True, device="cpu")
    whole, cut = (tmp_path / f / "model/weights.safetensors" for f in ("whole", "cut"))
    assert whole.read_bytes() == cut.read_bytes()


def stream(size=61):
    out = TokenStream(12)
    out.append(np.random.default_rng(3).integers(1, 12, size), line=1)
    return out.close()


def learner(**options):
    torch.manual_seed(0)
    decoder = {"kind": "rnn-lm", "width": 5, "hidden": 7, "layers": 2, **options}
    parts = {"task": {"kind": "language", "window": 4}, "decoder": decoder}
    return build_model(parts, vocabulary_size=13, outputs=(13, 12, 12))


def updates(model, settings, pieces=1):
    trainee = TrainState.fresh(model, settings)
    trainee.micro_batches = pieces
    batches = LMLoader(stream(), rows=3, window=4, seed=1, epochs=settings.epochs, in_order=True)
    return list(
        fit(trainee, LanguageModelling(), batches, settings, select_runtime("cpu"))
    ), trainee


def same(one, other):
    for p, q in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)


def test_truncated_back_propagation_equals_a_plain_loop():
    settings = Settings(epochs=2, optimiser="sgd", learning_rate=0.5, momentum=0.0, clip_norm=0.0)
    ours = learner()
    updates(ours, settings)
    theirs = learner()
    decoder = theirs.head.decoder
    optimiser = torch.optim.SGD(theirs.parameters(), 0.5)
    ids = torch.from_numpy(stream().read(0, 61).astype(np.int64))
    starts, steps = (0, 20, 40), 21  # 61 tokens in three rows, of which two begin in the one before
    for _ in range(2):
        state = None
        for begin in range(0, steps, 4):
            end = min(begin + 4, steps)
            x = torch.stack([ids[s + begin : s + end] for s in starts])
            y = torch.stack([ids[s + begin + 1 : s + end + 1] for s in starts])
            states, state = decoder.net(decoder.words.table(x), state)
            state = tuple(part.detach() for part in state)
            scores = decoder.words.logits(states)
            loss = F.cross_entropy(scores.flatten(0, 1), y.flatten())
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    same(ours, theirs)


def test_memory_that_runs_out_does_not_read_on_twice(monkeypatch):
    for accumulate in (1, 2):
        settings = Settings(epochs=2, accumulate=accumulate, learning_rate=0.05)
        whole, again = learner(), learner()
        wanted, _ = updates(whole, settings)
        forward, calls = Model.forward, []

        def short(model, source, forward=forward, calls=calls):
            calls.append(len(source))
            if len(calls) == 4:  # in the middle of a group
                raise MemoryError
            return forward(model, source)

        monkeypatch.setattr(Model, "forward", short)
        got, trainee = updates(again, settings)
        monkeypatch.setattr(Model, "forward", forward)
        assert trainee.micro_batches == 2
        assert [u.loss for u in got] == pytest.approx([u.loss for u in wanted], rel=1e-5)
        same(whole, again)


def test_the_penalty_of_large_states_is_paid():
    settings = Settings(epochs=1, learning_rate=0.0)
    plain, _ = updates(learner(), settings)
    heavy, _ = updates(learner(ar=2.0, tar=1.0), settings)
    assert all(h.loss > p.loss for h, p in zip(heavy, plain, strict=True))


def test_joined_states_are_rows_in_order():
    one = learner().head.start(2)
    other = loop.rebuild_state(one, [part + 1 for part in one if part is not None])
    both = loop.concat_states([one, other])
    assert both.hidden.shape[0] == 4
    assert both.hidden[:, 0, 0].tolist() == [0, 0, 1, 1]
    assert loop.concat_states([None, None]) is None


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("gpt", {"task.window": 500}, r"task\.window is 500, but the decoder sees at most 256"),
        ("gpt", {"task.overlap": 1.5}, r"task\.overlap should be from 0 to below 1"),
        ("rnn-lm", {"task.window": 2000}, r"train\.txt: \d+ tokens, fewer than the 2000 of a win"),
        ("rnn-lm", {"data.max_tokens": 9}, r"data\.max_tokens cuts texts"),
        ("rnn-lm", {"train.metric": "bleu"}, "Unknown metric 'bleu' in train.metric"),
        ("rnn-lm", {"encoder": {"kind": "rnn"}}, r"a \[tokenizer\] and a \[decoder\].*\[encoder\]"),
        ("rnn-lm", {"task": {"kind": "classify"}}, r"has no \[embedder\]"),
        (
            "rnn-lm",
            {"decoder": {"kind": "transformer"}, "decoder.width": None, "decoder.hidden": None},
            "decoder 'transformer' reads a source, and a language model has none. Use one",
        ),
    ],
)
def test_incompatible_settings_raise_user_error(tmp_path, name, changes, message):
    with pytest.raises(UserError, match=message):
        trained(name, tmp_path, **changes)


@pytest.mark.parametrize("lines", [True, False])
def test_empty_file_raises_user_error(tmp_path, lines):
    path = tmp_path / "empty.txt"
    path.write_text("", "utf-8")
    config = configured("rnn-lm", path, **{"task.lines": lines})
    with pytest.raises(UserError, match=r"empty\.txt: the file is empty"):
        weft.train(config, tmp_path / "run", quiet=True, device="cpu")
    manner = "texts" if lines else "running"
    with pytest.raises(UserError, match=r"empty\.txt: the file is empty"):
        list(example_source(Data(), str(path), mode=manner)())


def test_blank_and_unknown_texts_are_reported(tmp_path):
    path = tmp_path / "blank.txt"
    path.write_text("\n \n", "utf-8")
    tally = SkipCounter()
    with pytest.raises(UserError, match=r"blank\.txt: every text is blank"):
        list(example_source(Data(), str(path), tally, mode="texts")())
    assert tally.counts == {"blank texts left out": 2}
    out = trained("rnn-lm", tmp_path)
    with pytest.raises(UserError, match="There are no examples to measure on"):
        evaluate(out.predictor, [])
    measure = evaluate(out.predictor, [Example("xyzzy plugh")])
    with pytest.raises(UserError, match="None of the 2 tokens to measure on is known"):
        measure.compute()


def test_a_loss_that_is_not_finite_names_the_lines(tmp_path):
    with pytest.raises(UserError, match=r"The batch has lines \d+, .* of the training file"):
        trained("rnn-lm", tmp_path, **{"train.learning_rate": 1e38, "train.clip_norm": 0.0})


def test_settings_without_a_value_are_left_out_of_a_file(tmp_path):
    trained("lstm-lm", tmp_path)  # input_dropout is nothing unless it is set
    text = (tmp_path / "run/config.toml").read_text("utf-8")
    assert "input_dropout" not in text
    assert "None" not in text


@pytest.mark.parametrize("lines", [True, False])
def test_a_pair_of_files_is_not_one_text(tmp_path, lines):
    path = corpus(tmp_path)
    config = configured("rnn-lm", f"{path},{path}", **{"task.lines": lines})
    with pytest.raises(UserError, match=r"train\.txt: 2 files\. Pass one of them here\."):
        weft.train(config, tmp_path / "run", quiet=True, device="cpu")


def test_epoch_with_few_updates_is_noted(tmp_path):
    settings = Settings(batch_size=64, max_tokens=65_536)
    told = few_updates_note(20_000, 256, settings)
    assert told.startswith("an epoch has about 2 updates of 64 × 256 tokens, and little is")
    assert told.endswith("; with --set train.batch_size=4 it has 20")
    stream = TokenStream(0)
    stream.append(np.zeros(20_000, np.int32))
    for rows, updates in ((64, 2), (4, 20)):
        pieces = LMLoader(stream.close(), rows=rows, window=256, seed=1, epochs=1, in_order=True)
        assert sum(1 for _ in pieces) == updates
    assert few_updates_note(64 * 256 * 9 + 1, 256, settings) == ""
    assert "9 updates" in few_updates_note(64 * 256 * 9, 256, settings)
    assert "3 updates of 128 × 256" in few_updates_note(
        80_000, 256, replace(settings, accumulate=2)
    )
    assert "give more text, or more epochs" in few_updates_note(
        900, 256, replace(settings, batch_size=1)
    )
    for name, batch, noted in (("few", 64, True), ("enough", 2, False)):
        trained("gpt", tmp_path, name, **{"train.batch_size": batch, "train.epochs": 1})
        told = (tmp_path / name / "log.txt").read_text("utf-8")
        assert ("note: an epoch has about" in told) == noted


def test_the_verbs_train_evaluate_and_predict(tmp_path):
    path, run = corpus(tmp_path), tmp_path / "run"
    wanted = {"tokenizer.kind": "character", "task.lines": "false", "task.window": 16}
    wanted |= {
        "decoder.max_positions": 16,
        "decoder.hidden": 12,
        "decoder.layers": 1,
        "train.epochs": 1,
    }
    sets = [word for key, value in wanted.items() for word in ("--set", f"{key}={value}")]
    done = command("train", "--recipe", "gpt", "--train", path, "-o", run, "--device", "cpu", *sets)
    assert done.status == 0, done.err
    assert "dev bits_per_character" in done.err
    figures = json.loads(command("evaluate", run, path, "--json").out)
    assert figures["bits_per_character"]["n"] == 120
    assert figures["perplexity"]["low"] < figures["perplexity"]["value"]
    lines = command("predict", run, path).lines
    assert len(lines) == 120
    rows = [json.loads(line) for line in command("predict", run, path, "--json").lines]
    assert [f"{row['value']:.4f}" for row in rows] == lines  # people read fewer digits
    assert rows[0]["value"] != float(lines[0])
    text = path.read_text("utf-8").split("\n")[0]
    assert [part[:2] for part in rows[0]["parts"]] == [[i, i + 1] for i in range(len(text))]
    empty = tmp_path / "empty.txt"
    empty.write_text("", "utf-8")
    done = command("evaluate", run, empty)
    assert done.status == 2
    assert "empty.txt: the file is empty. Add at least one text." in done.err


@pytest.mark.parametrize("manner", ["texts", "running"])
def test_a_folder_of_raw_text_is_its_files_one_after_the_other(tmp_path, manner):
    folder = tmp_path / "books"
    (folder / "more").mkdir(parents=True)
    corpus(folder, "b.txt", 5, seed=2)
    corpus(folder / "more", "c.txt", 3, seed=3)
    corpus(folder, "a.txt", 4)
    (folder / "empty.txt").touch()
    (folder / ".hidden").write_text("not this\n", "utf-8")
    tally = SkipCounter()
    found = list(example_source(Data(), str(folder), tally, mode=manner)())
    parts = [folder / "a.txt", folder / "b.txt", folder / "more" / "c.txt"]
    assert [e.text.strip() for e in found] == [
        line for path in parts for line in path.read_text("utf-8").splitlines()
    ]
    assert found[-1].where == f"{parts[-1]}:3"
    assert tally.lines() == [f"1 empty file left out: {folder / 'empty.txt'}"]
    for path in parts:
        path.write_text("", "utf-8")
    with pytest.raises(UserError, match=r"books: every file in the folder is empty\. Put text in"):
        list(example_source(Data(), str(folder), mode=manner)())


def test_a_model_learns_from_a_folder(tmp_path):
    folder = tmp_path / "train.txt"  # where `trained` looks, but a folder
    folder.mkdir()
    for i in range(3):
        corpus(folder, f"{i}.txt", 40, seed=i)
    out = trained("rnn-lm", tmp_path)
    assert out.figures["dev"]["perplexity"].n == 12  # the last tenth of all
