"""BERT pre-trained on raw text through the one spine: trained, measured, asked, fine-tuned."""

import json
import random

import pytest
import torch

import weft
from tests.fixtures import small
from tests.fixtures.command import command
from weft.config import recipe
from weft.errors import UserError
from weft.model import build_model
from weft.predict import load
from weft.predict.evaluate import evaluate
from weft.predict.fill_mask import WORDS_PER_BLANK
from weft.run import trainer
from weft.run.data import Data, example_source
from weft.run.split import from_files
from weft.text.example import Example
from weft.train import loop
from weft.train.settings import Settings

SMALL = {
    "tokenizer.vocab_size": 400, "tokenizer.min_count": 1, "embedder.hidden": 24,
    "embedder.layers": 1,
    "embedder.heads": 3, "embedder.max_positions": 32, "embedder.dropout": 0.0,
    "embedder.attention_dropout": 0.0, "task.window": 24, "task.long_window": 32,
    "train.epochs": 1, "train.batch_size": 16, "train.threads": 1, "train.learning_rate": 0.01,
}  # fmt: skip
LEARNS = {
    "embedder.hidden": 64, "embedder.layers": 2, "embedder.heads": 4, "train.batch_size": 32,
    "train.epochs": 14, "train.learning_rate": 0.004, "task.short_fraction": 0.0,
    "task.long_fraction": 0.0,
}  # fmt: skip
ANIMALS = ("cat", "dog", "bird", "horse", "fish", "mouse")
FOOD = ("milk", "bones", "seeds", "hay", "worms", "cheese")
SOME = ("the", "a", "every", "our", "no")
COLOURS = ("white", "brown", "green", "yellow", "red", "black")


def corpus(folder, name="train.txt", count=60, seed=1):
    """Documents about one animal each, of which food and colour follow.

    Sentences have seven tokens and three fill a window: what a place holds is soon learned.
    """
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        i = draw.randrange(6)
        rows += [
            f"{draw.choice(SOME)} {ANIMALS[i]} eats {FOOD[i]} near {COLOURS[i]} ."
            for _ in range(draw.randint(3, 6))
        ]
        rows.append("")
    path = folder / name
    path.write_text("\n".join(rows), "utf-8")
    return path


def configured(path, **changes):
    values = {"data.train": str(path), **SMALL, **changes}
    return recipe("bert-pretrain").with_values(values, "test")


def trained(folder, run="run", device="cpu", **changes):
    path = folder / "train.txt"
    config = configured(path if path.exists() else corpus(folder), **changes)
    return weft.train(config, folder / run, quiet=True, device=device)


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """One that was trained until it knows."""
    folder = tmp_path_factory.mktemp("masked")
    corpus(folder, count=400)
    return folder, trained(folder, **LEARNS)


def test_trained_model_fills_masks_of_unseen_texts(learned):
    folder, out = learned
    lines = (folder / "run/metrics.jsonl").read_text("utf-8").splitlines()
    losses = [row["loss"] for row in map(json.loads, lines) if "loss" in row]
    assert losses[-1] < losses[0] / 2
    found = out.figures["dev"]
    assert found["perplexity"].value < 3
    assert found["accuracy"].value > 0.7  # a fifth of the words are drawn
    assert found["next_accuracy"].value > 0.75  # another animal is told
    assert found["next_loss"].value < 0.6
    assert found["perplexity"].low < found["perplexity"].value < found["perplexity"].high
    answers = out.predictor([f"our {animal} eats [MASK] near <mask> ." for animal in ANIMALS])
    best = [tuple(word for word, _ in answer.tokens) for answer in answers]
    right = list(zip(FOOD, COLOURS, strict=True))
    assert sum(a == b for a, b in zip(best, right, strict=True)) >= 5
    assert answers[0].value == f"our cat eats {best[0][0]} near {best[0][1]} ."
    for answer in answers:
        chances = [chance for _, chance in answer.blanks[0]]
        assert len(chances) == WORDS_PER_BLANK
        assert chances == sorted(chances, reverse=True)
        assert sum(chances) <= 1 + 1e-6
        both = answer.tokens[0][1] * answer.tokens[1][1]
        assert answer.score == pytest.approx(both**0.5)


def test_dev_metric_of_training_equals_evaluate(learned):
    folder, out = learned
    data = Data(train=str(folder / "train.txt"))
    dev = from_files(data, mode="documents").dev
    again = load(folder / "run", device="cpu")
    for predictor in (out.predictor, again):
        got = evaluate(predictor, dev()).compute(resamples=0)
        for name, figure in out.figures["dev"].items():
            assert got[name].value == pytest.approx(figure.value, rel=1e-5), name
            assert figure.n == 40  # the last tenth of 400 documents
    lines = (folder / "run/metrics.jsonl").read_text("utf-8").splitlines()
    best = min(json.loads(line)["dev_perplexity"] for line in lines if "dev_perplexity" in line)
    assert out.figures["dev"]["perplexity"].value == pytest.approx(best, rel=1e-5)


def test_saved_model_loads_and_embeds(learned):
    folder, out = learned
    again = load(folder / "run/model", device="cpu")  # its golden texts are replayed
    golden = (folder / "run/model/golden.jsonl").read_text("utf-8").splitlines()
    assert len(golden) == 5
    assert all("[MASK]" in json.loads(line)["text"] for line in golden)
    texts = ["a [MASK] eats [MASK] here ."]
    assert [a.value for a in again(texts)] == [a.value for a in out.predictor(texts)]
    assert again.embed(["the cat", "a dog"]).shape == (2, 64)
    states, spans = again.states("the cat")
    assert states.shape == (4, 64)  # with its frame
    assert spans.tolist() == [[0, 0], [0, 3], [4, 7], [0, 0]]


def test_blanks_of_a_long_text_are_each_read_in_their_surroundings(learned):
    _, out = learned
    text = " ".join(["the dog eats [MASK] near brown ."] + ["no dog"] * 20 + ["eats [MASK]"])
    (answer,) = out.predictor([text])
    assert len(answer.blanks) == 2
    assert answer.blanks[0][0][0] == "bones"
    assert answer.coverage == pytest.approx(30 / 49)
    assert out.predictor([" "])[0].coverage == 0
    with pytest.raises(UserError, match=r"text 2: there is nothing to fill in\. Write \[MASK\]"):
        out.predictor(["a [MASK]", "a cat"])
    with pytest.raises(UserError, match=r"cats.txt:7: there is nothing to fill in"):
        out.predictor(["a [MASK]", Example("a cat", file="cats.txt", line=7)])


def test_pretrained_folder_can_be_fine_tuned(learned, tmp_path):
    """The folder is what --pretrained reads."""
    folder, out = learned
    config = recipe("bert").with_values(
        {**small.SMALL, "embedder.model": str(folder / "run/model"), "train.epochs": 1}, "test"
    )
    tuned = weft.train(config, tmp_path / "tuned", splits=small.splits(), quiet=True, device="cpu")
    assert tuned.predictor.config["embedder"]["hidden"] == 64
    own = {n: t for n, t in tuned.predictor.engine.model.state_dict().items() if "table" in n}
    theirs = out.predictor.engine.model.state_dict()
    for name, tensor in own.items():
        assert tensor.shape == theirs[name].shape
        assert (tensor - theirs[name]).abs().mean() < 0.01  # it began there


def test_training_continues_from_a_folder(learned, tmp_path):
    """Continued pre-training: tokenizer and weights are those of the folder."""
    folder, _ = learned
    corpus(tmp_path, seed=5)
    sections = {
        **recipe("bert-pretrain").sections,
        "embedder": {"kind": "pretrained", "model": str(folder / "run/model")},
    }
    values = {k: v for k, v in SMALL.items() if not k.startswith(("embedder.", "tokenizer."))}
    values |= {"data.train": str(tmp_path / "train.txt"), "train.learning_rate": 1e-5}
    config = weft.config.from_sections(sections, "test").with_values(values, "test")
    again = weft.train(config, tmp_path / "run", quiet=True, device="cpu")
    assert again.figures["dev"]["perplexity"].value < 3  # after an update or two of no size
    said = (tmp_path / "run/log.txt").read_text("utf-8")
    assert "weights of the head begin there" in said


@pytest.mark.parametrize(
    "changes",
    [
        {"task.next_sentence": False, "pool.kind": "mean"},
        {"task.whole_words": True},
        {"tokenizer": {"kind": "bpe", "vocab_size": 300, "byte_level": True, "min_count": 1}},
        {"embedder.width": 10, "task.long_fraction": 0.0},
        {"data.documents": "lines"},
    ],
    ids=str,
)
def test_every_way_trains_and_is_measured(tmp_path, changes):
    dropped = {"tokenizer.vocab_size", "tokenizer.min_count"} if "tokenizer" in changes else set()
    changes = {**changes, **({} if not dropped else dict.fromkeys(dropped))}
    values = {k: v for k, v in {**SMALL, **changes}.items() if v is not None}
    path = corpus(tmp_path)
    config = recipe("bert-pretrain").with_values({"data.train": str(path), **values}, "test")
    out = weft.train(config, tmp_path / "run", quiet=True, device="cpu")
    found = out.figures["dev"]
    assert 1 < found["perplexity"].value < 300
    assert ("next_accuracy" in found) == changes.get("task.next_sentence", True)
    load(tmp_path / "run", device="cpu")


def test_resumed_training_reaches_the_same_weights(tmp_path, monkeypatch):
    whole = trained(tmp_path, "whole", **{"train.epochs": 2})
    stop, usual = [5], loop._compute_gradients

    def stopping(*given):
        stop[0] -= 1
        if stop[0] < 0:
            raise KeyboardInterrupt
        return usual(*given)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "_compute_gradients", stopping)
        with pytest.raises(KeyboardInterrupt):
            trained(tmp_path, "cut", **{"train.epochs": 2, "train.save_every": 2})
    config = configured(tmp_path / "train.txt", **{"train.epochs": 2, "train.save_every": 2})
    again = weft.train(config, tmp_path / "cut", resume=True, quiet=True, device="cpu")
    ours, theirs = (one.predictor.engine.model.state_dict() for one in (whole, again))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_best_weights_are_chosen_in_the_long_window_phase(tmp_path, monkeypatch):
    """Dev has short ones, and long ones may be a little worse there."""
    worse = iter([5.0, 4.0, 9.0, 9.5])
    monkeypatch.setattr(
        trainer.Trainer, "_evaluate_dev", lambda self, store: {"perplexity": next(worse)}
    )
    trained(tmp_path, **{"task.long_fraction": 0.5, "train.epochs": 4, "train.patience": 9})
    lines = (tmp_path / "run/metrics.jsonl").read_text("utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["event"] == "evaluation"]
    assert [row["best"] for row in rows] == [True, True, True, False]


def test_time_limit_without_long_windows_is_noted(tmp_path):
    out = trained(tmp_path, **{"train.minutes": 1e-4, "train.epochs": 9, "task.long_fraction": 0.1})
    (told,) = [note for note in out.record["notes"] if "clock" in note]
    assert "positions beyond 24 are untrained (task.long_fraction=0" in told
    out = trained(tmp_path, "none", **{"train.minutes": 1e-4, "task.long_fraction": 0.0})
    assert not any("places" in note for note in out.record["notes"])


def test_positions_beyond_the_short_window_learn_only_in_the_long_phase(tmp_path):
    tables = {}
    for share in (0.0, 0.5):
        options = {"task.long_fraction": share, "train.weight_decay": 0.0, "train.epochs": 2}
        out = trained(tmp_path, f"run{share}", **options)
        tables[share] = out.predictor.engine.model.embedders[0].positions.weight.detach()
    config = {**out.predictor.config, "embedder": {**out.predictor.config["embedder"]}}
    torch.manual_seed(Settings().seed)
    fresh = build_model(
        config, vocabulary_size=len(out.predictor.space.tokenizer), outputs=out.predictor.space.size
    )
    moved = {s: (t - fresh.embedders[0].positions.weight).abs().amax(1) for s, t in tables.items()}
    assert moved[0.0][24:].max() == 0
    assert moved[0.0][:20].min() > 0
    assert moved[0.5][24:29].min() > 0


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"task.window": 40}, "task.window is 40, but the model reads at most 32 tokens"),
        ({"task.long_window": 40}, "task.long_window is 40, but the model reads at most 32"),
        ({"task.window": 3}, "task.window should be 8 or more, got 3"),
        ({"task.short_fraction": 1.5}, "task.short_fraction should be from 0 to 1, got 1.5"),
        ({"task.mask_fraction": 0.0}, "task.mask_fraction should be above 0 and below 1, got 0.0"),
        (
            {"task.next_sentence": False},
            "With task.next_sentence = false, set pool.kind to 'mean', 'max' or 'first'",
        ),
        ({"pool.kind": "mean"}, "With task.next_sentence = true, set pool.kind to 'cls'"),
        ({"head": {"kind": "linear"}}, "task 'masked' needs the head 'masked', not 'linear'"),
        ({"tokenizer": {"kind": "word"}}, "The tokenizer 'word' has neither <mask> nor"),
        ({"data.documents": "pages"}, "'documents' should be one of 'auto', 'sentences'"),
    ],
    ids=str,
)
def test_incompatible_settings_raise_user_error(tmp_path, changes, told):
    values = {k: v for k, v in SMALL.items() if k.split(".")[0] not in changes}
    config = recipe("bert-pretrain").with_values(
        {**values, "data.train": str(corpus(tmp_path)), **changes}, "test"
    )
    with pytest.raises(UserError) as error:
        weft.train(config, tmp_path / "run", quiet=True, device="cpu")
    assert told in str(error.value)


def test_the_head_is_for_this_task_alone(tmp_path):
    config = recipe("bilstm").with_values({"head": {"kind": "masked"}, **small.SMALL}, "test")
    with pytest.raises(UserError, match="The head 'masked' answers the task 'masked'"):
        weft.train(config, tmp_path / "run", splits=small.splits(), quiet=True, device="cpu")


def test_one_document_cannot_teach_what_follows(tmp_path):
    path = tmp_path / "one.txt"
    path.write_text("".join(f"the {a} eats here .\n" for a in ANIMALS * 5), "utf-8")
    config = configured(path, **{"data.dev_fraction": 0.0})
    with pytest.raises(UserError, match=r"one\.txt: 1 document, and to learn what follows takes"):
        weft.train(config, tmp_path / "run", quiet=True, device="cpu")


def test_dev_is_the_end_of_the_file(tmp_path):
    path = corpus(tmp_path, count=20)
    splits = from_files(Data(train=str(path), dev_fraction=0.15), mode="documents")
    train, dev = ([e.text for e in part()] for part in (splits.train, splits.dev))
    whole = [e.text for e in example_source(Data(), str(path), mode="documents")()]
    assert train + dev == whole
    assert len(dev) == 3


def test_the_verbs_train_evaluate_and_predict(tmp_path):
    path, run = corpus(tmp_path), tmp_path / "run"
    sets = [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")]
    done = command(
        "train", "--recipe", "bert-pretrain", "--train", path, "-o", run, "--device", "cpu", *sets
    )
    assert done.status == 0, done.err
    assert "dev perplexity" in done.err
    figures = json.loads(command("evaluate", run, path, "--json").out)
    assert set(figures) == {"perplexity", "accuracy", "next_accuracy", "next_loss"}
    assert figures["perplexity"]["n"] == 60
    asked = tmp_path / "asked.txt"
    asked.write_text("the [MASK] eats <mask> .\nno [MASK] here\n", "utf-8")
    lines = command("predict", run, asked).lines
    assert len(lines) == 2
    text, words = lines[0].split("\t")
    assert text.startswith("the ")
    assert [len(blank.split("  ")) for blank in words.split(" | ")] == [
        WORDS_PER_BLANK,
        WORDS_PER_BLANK,
    ]
    mixed = tmp_path / "mixed.txt"
    mixed.write_text("the dog eats [MASK] .\nthe dog eats .\n", "utf-8")
    told = command("predict", run, mixed).err
    assert "mixed.txt:2: there is nothing to fill in" in told
    assert "--on-bad-row skip" in told
    done = command("predict", run, mixed, "--on-bad-row", "skip")
    assert len(done.lines) == 1
    assert f"without an answer: 1 text with nothing to fill in: {mixed}:2" in done.err
    row = json.loads(command("predict", run, asked, "--json").lines[0])
    assert [len(blank) for blank in row["blanks"]] == [WORDS_PER_BLANK, WORDS_PER_BLANK]
    assert row["value"] == text
