"""Tiny end to end: files in, run folder out, with every kind of part along the way."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

import weft
from tests.fixtures import small
from tests.fixtures.classify_runs import jsonl, settings, source
from weft import config
from weft.errors import UserError
from weft.run import Splits, train
from weft.run.data import near_duplicate_labels
from weft.run.folder import RUN_FILES
from weft.run.train import StopTraining
from weft.tasks.classify import ClassSpace
from weft.tasks.regress import LabelScale
from weft.text.example import Example
from weft.train.logger import RunLogger


def run(given, folder, splits=None):
    return train(given, folder, splits=splits, quiet=True)


def accuracy(predictor, rows):
    answers = predictor([row.text for row in rows])
    return np.mean([a.value == row.label for a, row in zip(answers, rows, strict=True)])


@pytest.mark.parametrize("name", config.recipes())
def test_every_recipe_learns_a_few_texts_by_heart(name, tmp_path):
    rows = [
        Example(f"the {word} was {mood}", label)
        for word in ("film", "plot", "cast")
        for mood, label in (("good", "yes"), ("bad", "no"))
    ]
    changes = {"train__epochs": 40, "train__learning_rate": 0.01}
    outcome = run(settings(name, **changes), tmp_path, Splits(source(rows)))
    assert accuracy(outcome.predictor, rows) == 1
    assert accuracy(weft.load(tmp_path), rows) == 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [("bag", 0.5), ("mlp", 1), ("cnn", 1), ("rnn", 1), ("gru", 1), ("lstm", 1), ("transformer", 1)],
)
def test_models_of_order_learn_what_a_bag_cannot(name, expected, tmp_path):
    rows = [Example("good not bad", "yes"), Example("bad not good", "no")] * 3
    given = settings(name, train__epochs=40, train__learning_rate=0.01)
    assert accuracy(run(given, tmp_path, Splits(source(rows))).predictor, rows) == expected


def test_a_run_folder_holds_the_known_names_only(tmp_path):
    outcome = run(settings("cnn"), tmp_path / "run", small.splits())
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == RUN_FILES - {
        "tensorboard",
        "wandb",
        "loggers.json",
        "progress.json",
        "members",
        "tokens",
    }  # made only where they apply
    kept = {path.name for path in (tmp_path / "run" / "checkpoints").iterdir()}
    assert kept == {"last.safetensors", "best.safetensors", "tokenizer.json"}
    assert set(outcome.figures) == {"dev", "test"}
    assert outcome.figures["test"]["accuracy"].n == 8
    rows = jsonl(tmp_path / "run" / "predictions.jsonl")  # of test, the last that was measured
    assert [row["text"] for row in rows] == [e.text for e in small.splits().test()]


def test_metrics_say_what_happened(tmp_path):
    run(settings("gru", train__epochs=3), tmp_path, small.splits())
    rows = jsonl(tmp_path / "metrics.jsonl")
    assert [row["event"] for row in rows] == ["evaluation"] * 3 + ["dev", "test"]
    first = rows[0]
    assert set(first) == {"event", "step", "epoch", "loss", "rate", "gradient", "best"} | {
        "dev_accuracy",
        "dev_macro_f1",
        "dev_matthews",
    }
    assert [row["epoch"] for row in rows[:3]] == [1, 2, 3]
    steps = [row["step"] for row in rows[:3]]
    assert steps == [steps[0], 2 * steps[0], 3 * steps[0]]
    assert first["best"] is True
    assert np.isfinite([row["loss"] for row in rows[:3]]).all()


@pytest.mark.parametrize(("every", "epochs", "steps"), [(2, 1, [2, 4, 6]), (7, 3, [7, 14, 18])])
def test_evaluate_every_sets_the_interval_and_the_end_is_evaluated(tmp_path, every, epochs, steps):
    given = settings("bag", train__evaluate_every=every, train__epochs=epochs)
    run(given, tmp_path, small.splits())  # 28 rows by fives
    rows = [r for r in jsonl(tmp_path / "metrics.jsonl") if r["event"] == "evaluation"]
    assert [row["step"] for row in rows] == steps


def test_labels_that_differ_in_case_or_spaces_are_reported():
    told = near_duplicate_labels(ClassSpace(("Neg", "neg", "other", "pos", "pos ")))
    assert "'Neg' and 'neg', 'pos' and 'pos ' differ only in case, spaces or Unicode form" in told
    assert "weft check FILE --fix" in told
    assert near_duplicate_labels(ClassSpace(("neg", "pos"))) == ""
    assert near_duplicate_labels(LabelScale(0.0, 1.0)) == ""  # a number has no labels


def test_early_stopping_keeps_the_best(tmp_path):
    given = settings("bag", train__epochs=50, train__patience=2, train__learning_rate=0.0)
    run(given, tmp_path, small.splits())
    rows = [r for r in jsonl(tmp_path / "metrics.jsonl") if r["event"] == "evaluation"]
    assert [row["best"] for row in rows] == [True, False, False]
    told = (tmp_path / "log.txt").read_text("utf-8")
    assert "stopped early: accuracy no better for 2 evaluations" in told


def test_the_best_weights_are_kept_not_the_last(tmp_path):
    given = settings("bag", train__epochs=4, train__metric="macro_f1", train__learning_rate=0.03)
    outcome = run(given, tmp_path, small.splits())
    rows = [r for r in jsonl(tmp_path / "metrics.jsonl") if r["event"] == "evaluation"]
    best = max(row["dev_macro_f1"] for row in rows)
    assert outcome.figures["dev"]["macro_f1"].value == pytest.approx(best)
    model = (tmp_path / "model" / "weights.safetensors").read_bytes()
    from safetensors.numpy import load

    first = load((tmp_path / "checkpoints" / "best.safetensors").read_bytes())
    for name, tensor in load(model).items():
        np.testing.assert_array_equal(tensor, first[name])


def test_the_same_seed_gives_the_same_model_and_another_does_not(tmp_path):
    def weights(seed, folder):
        run(settings("lstm", train__seed=seed), tmp_path / folder, small.splits())
        return (tmp_path / folder / "model" / "weights.safetensors").read_bytes()

    assert weights(3, "a") == weights(3, "b")
    assert weights(5, "c") != weights(3, "d")


def test_two_embedders_side_by_side(tmp_path):
    given = config.from_sections(
        {
            **settings("gru").sections,
            "embedder": [
                {"kind": "lookup", "width": 7},
                {"kind": "character-cnn", "width": 5, "filters": [[2, 7], [3, 5]]},
            ],
        },
        "test",
    )
    outcome = run(given, tmp_path, small.splits())
    assert outcome.predictor.engine.model.encoder.output_size == 24
    loaded = weft.load(tmp_path)
    texts = ["the film was good", "strange-words !", ""]
    assert loaded(texts) == outcome.predictor(texts)
    saved = config.load(tmp_path / "config.toml")
    assert [table["kind"] for table in saved["embedder"]] == ["lookup", "character-cnn"]
    again = run(saved, tmp_path / "again", small.splits())
    assert again.predictor(texts) == loaded(texts)


def test_characters_tell_unknown_words_apart(tmp_path):
    embedder = {"kind": "character-lstm", "width": 5, "hidden": 7}
    given = config.from_sections({**settings("bag").sections, "embedder": embedder}, "test")
    predictor = run(given, tmp_path, small.splits()).predictor
    first, second = predictor.embed(["qqqq", "zzzz"])
    assert np.abs(first - second).max() > 1e-4


def test_ngrams_tell_unknown_words_apart(tmp_path):
    embedder = {"kind": "ngrams", "width": 7, "buckets": 101}
    given = config.from_sections({**settings("bag").sections, "embedder": embedder}, "test")
    predictor = run(given, tmp_path, small.splits()).predictor
    first, second = predictor.embed(["qqqq", "zzzz"])
    assert np.abs(first - second).max() > 1e-4
    assert weft.load(tmp_path)(["qqqq"]) == predictor(["qqqq"])


def test_vectors_start_from_a_file(tmp_path):
    path = tmp_path / "v.vec"
    path.write_text("2 3\ngood 1 2 3\nbad -1 -2 -3\n", "utf-8")
    changes = {"embedder__vectors": str(path), "embedder__width": 3, "embedder__frozen": True}
    outcome = run(settings("bag", **changes), tmp_path / "run", small.splits())
    np.testing.assert_allclose(outcome.predictor.embed(["good", "bad"]), [[1, 2, 3], [-1, -2, -3]])
    assert "vectors found for 2 of " in (tmp_path / "run" / "log.txt").read_text("utf-8")
    path.unlink()  # a saved model holds its table
    assert weft.load(tmp_path / "run").embed(["good"]).tolist() == [[1, 2, 3]]


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram", "character"])
def test_other_tokenizers(kind, tmp_path):
    tokenizer = {"kind": kind} | ({} if kind == "character" else {"vocab_size": 89})
    given = config.from_sections({**settings("cnn").sections, "tokenizer": tokenizer}, "test")
    outcome = run(given, tmp_path, small.splits())
    loaded = weft.load(tmp_path)
    assert loaded(["the film was good"]) == outcome.predictor(["the film was good"])
    _, spans = loaded.states("good film")
    assert spans.min() == 0
    assert spans.max() == 9


def test_several_labels_are_found_out(tmp_path):
    rows = [Example(e.text, (str(e.label), "any")) for e in small.examples()]
    given = settings("bag", train__epochs=20, train__learning_rate=0.05)
    splits = Splits(source(rows[9:]), source(rows[:9]))
    outcome = run(given, tmp_path, splits)
    assert outcome.predictor.task.multi_label
    assert set(outcome.predictor(["the film was good"])[0].value) == {"positive", "any"}
    assert set(outcome.figures["dev"]) >= {"micro_f1"}
    assert config.load(tmp_path / "config.toml")["task"]["multi_label"] is True


def test_numbers(tmp_path):
    rows = [Example(e.text, 30.0 if e.label == "positive" else 10.0) for e in small.examples()]
    given = settings("bag", task__kind="regress", train__epochs=20, train__learning_rate=0.03)
    outcome = run(given, tmp_path, Splits(source(rows[9:]), source(rows[:9])))
    figures = outcome.figures["dev"]
    assert set(figures) == {"pearson", "spearman", "mse"}
    assert figures["pearson"].value > 0.9
    assert figures["mse"].value < 50
    good, bad = outcome.predictor(["the film was good", "the film was bad"])
    assert good.value - bad.value > 10


def repeated(path, count=301):
    """A file in which many texts occur several times; the texts."""
    texts = [
        f"text {i * i % 97} about {'good' if i * i % 97 % 2 else 'bad'} films" for i in range(count)
    ]
    rows = "".join(f"{'pos' if 'good' in t else 'neg'}\t{t}\n" for t in texts)
    path.write_text(rows, "utf-8")
    return texts


def test_no_text_is_in_train_and_dev(tmp_path):
    texts = repeated(tmp_path / "a.tsv")
    given = settings("tfidf", data__train=str(tmp_path / "a.tsv"), data__dev_fraction=0.2)
    outcome = run(given, tmp_path / "run")
    dev = {row["text"] for row in jsonl(tmp_path / "run" / "predictions.jsonl")}
    assert dev
    terms = json.loads((tmp_path / "run/model/vocabulary.json").read_text("utf-8"))["words"]
    known = {term for term in terms if term.isdigit()}  # the number names the text
    assert known
    assert not known & {text.split()[1] for text in dev}
    assert known | {text.split()[1] for text in dev} == {text.split()[1] for text in texts}
    assert outcome.figures["dev"]["accuracy"].n == sum(text in dev for text in texts)


def test_phrases_of_dev_sentences_do_not_reach_training(tmp_path):
    lines = [
        f"({i % 2} (1 alpha{i}) ({i % 2} ({i % 2} beta{i}) (0 (1 shared) (0 gamma{i}))))"
        for i in range(59)
    ]
    (tmp_path / "a.ptb").write_text("\n".join(lines), "utf-8")
    changes = {
        "data__train": str(tmp_path / "a.ptb"),
        "data__phrases": True,
        "data__dev_fraction": 0.3,
    }
    run(settings("tfidf", **changes), tmp_path / "run")
    dev = [row["text"] for row in jsonl(tmp_path / "run" / "predictions.jsonl")]
    assert all(len(text.split()) == 4 for text in dev)  # sentences, not phrases
    terms = json.loads((tmp_path / "run/model/vocabulary.json").read_text("utf-8"))["words"]
    held = {word for text in dev for word in text.split()} - {"shared"}
    assert held
    assert not held & set(terms)
    assert len({term for term in terms if term.startswith("gamma")}) == 59 - len(dev)


def test_dev_labels_are_not_looked_at_in_training(tmp_path):
    """Only the choice of the best weights may depend on dev; with one evaluation, nothing does."""
    rows, other = small.examples(), [Example(e.text, "positive") for e in small.examples()[:9]]
    weights = []
    for name, dev in (("a", rows[:9]), ("b", other)):
        given = settings("bag", train__epochs=1)
        run(given, tmp_path / name, Splits(source(rows[9:]), source(dev)))
        weights.append((tmp_path / name / "model" / "weights.safetensors").read_bytes())
    assert weights[0] == weights[1]


def test_nothing_is_lost_in_silence(tmp_path):
    path = small.file(tmp_path)
    with open(path, "a", encoding="utf-8") as file:
        file.write("positive\t\n")
        file.write("positive\ta\tb\n")
    changes = {"data__train": str(path), "data__on_bad_row": "skip", "data__max_tokens": 5}
    outcome = run(settings("bag", **changes), tmp_path / "run")
    record = json.loads((tmp_path / "run" / "model" / "record.json").read_text("utf-8"))
    assert record["notes"] == outcome.record["notes"]
    notes = {note.split(": ")[0]: note for note in record["notes"]}
    assert f"{path}:47" in notes["1 empty text"]
    assert f"{path}:48" in notes["1 ragged row"]
    (cut,) = [note for what, note in notes.items() if "train texts read only in part" in what]
    long = [e for e in small.examples() if len(e.text.split()) > 5]
    in_dev = sum(len(r["text"].split()) > 5 for r in jsonl(tmp_path / "run/predictions.jsonl"))
    assert cut.startswith(f"{len(long) - in_dev} train texts read only in part: ")
    assert f"{path}:3 (83%)" in cut or f"{path}:2" in cut
    told = (tmp_path / "run" / "log.txt").read_text("utf-8")
    for note in record["notes"]:
        assert f"note: {note}" in told


def test_record_holds_command_versions_and_metrics(tmp_path):
    outcome = run(settings("bag"), tmp_path, small.splits())
    record = json.loads((tmp_path / "model" / "record.json").read_text("utf-8"))
    assert record["parameters"] == outcome.predictor.parameters
    assert record["figures"]["test"]["accuracy"]["n"] == 8
    assert {"python", "torch", "numpy"} <= set(record["versions"])
    assert record["seconds"] > 0
    assert record["command"].startswith("weft")


def test_without_dev_the_last_weights_are_kept(tmp_path):
    rows = small.examples(20)
    outcome = run(settings("bag"), tmp_path, Splits(source(rows)))
    assert outcome.figures == {}
    assert weft.load(tmp_path)(["good"]) == outcome.predictor(["good"])


def test_weft_train_is_the_same(tmp_path):
    outcome = weft.train(settings("tfidf"), tmp_path, splits=small.splits(), quiet=True)
    assert outcome.figures["test"]["accuracy"].value == 1


def test_examples_that_are_all_gone(tmp_path):
    path = small.file(tmp_path)
    for name in ("tfidf", "bag"):
        given = settings(name, data__train=str(path), data__dev_fraction=0.99999)
        with pytest.raises(UserError, match=r"there are no examples|no training examples"):
            run(given, tmp_path / name)


@pytest.mark.parametrize("optimiser", ["sgd", "adam", "adamw", "adagrad"])
@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine", "inverse-sqrt"])
def test_optimisers_and_schedules_run(optimiser, schedule, tmp_path):
    changes = {"optimiser": optimiser, "schedule": schedule, "warmup": 0.2, "ema_decay": 0.9}
    given = settings(
        "bag",
        embedder__kind="word-ngrams",  # whose gradients are sparse
        embedder__buckets=101,
        **{f"train__{key}": value for key, value in changes.items()},
    )
    run(given, tmp_path, small.splits())
    rows = [r for r in jsonl(tmp_path / "metrics.jsonl") if r["event"] == "evaluation"]
    assert rows[-1]["rate"] != rows[0]["rate"] or schedule == "constant"


@pytest.mark.parametrize("side", ["dev", "test"])
@pytest.mark.parametrize("name", ["tfidf", "fasttext", "bag"])
def test_unseen_test_label_fails_before_training(name, side, tmp_path):
    rows = [Example(f"the film was {word}", word) for word in ("good", "bad")] * 3
    odd = [*rows, Example("the film was odd", "odd", file="other.csv", line=7)]
    parts = {"train": rows, "dev": rows, "test": rows, side: odd}
    splits = Splits(*(source(parts[part]) for part in ("train", "dev", "test")))
    with pytest.raises(
        UserError, match=r"other.csv:7: label 'odd' was not seen .*--on-bad-row skip"
    ):
        run(settings(name), tmp_path / "run", splits)
    assert not (tmp_path / "run").exists()
    run(settings(name, data__on_bad_row="skip", train__epochs=1), tmp_path / "run", splits)


def test_a_compiled_model_is_measured_after_every_epoch(tmp_path):
    heard = []
    given = settings("fasttext", classic__epochs=3)
    train(
        given, tmp_path, splits=small.splits(), quiet=True,
        on_evaluate=lambda step, found: heard.append((step, found["accuracy"])),
    )  # fmt: skip
    rows = [r for r in jsonl(tmp_path / "metrics.jsonl") if r["event"] == "evaluation"]
    assert [(r["step"], r["epoch"]) for r in rows] == [(28, 1), (56, 2), (84, 3)]
    assert [(r["step"], r["dev_accuracy"]) for r in rows] == heard
    assert rows[2]["loss"] < rows[1]["loss"] < rows[0]["loss"]
    assert "epoch 3  loss 0." in (tmp_path / "log.txt").read_text("utf-8")


def test_the_bar_shows_how_far_a_fit_is(tmp_path):
    logger, shown = RunLogger(tmp_path, quiet=True), []
    logger.progress(0.5, "epoch 1")  # nobody looks
    logger.bar = SimpleNamespace(update=lambda **values: shown.append(values))
    logger.progress(0.25, "epoch 2")
    assert shown == [{"done": 0.25, "text": "epoch 2"}]


def test_settings_without_effect_are_reported(tmp_path):
    log = tmp_path / "run" / "log.txt"
    given = settings("fasttext", train__epochs=7, train__batch_size=3, train__seed=5)
    run(given, tmp_path / "run", small.splits())
    assert "note: [train] epochs, batch_size changes nothing here" in log.read_text("utf-8")
    run(settings("fasttext", train__seed=5), tmp_path / "other", small.splits())
    assert "changes nothing" not in (tmp_path / "other" / "log.txt").read_text("utf-8")


def test_a_listener_and_the_clock_stop_a_compiled_training(tmp_path):
    def enough(step, found):
        raise StopTraining

    with pytest.raises(StopTraining):
        train(
            settings("fasttext"),
            tmp_path / "a",
            splits=small.splits(),
            quiet=True,
            on_evaluate=enough,
        )
    assert not (tmp_path / "a" / "model").exists()
    out = run(settings("fasttext", train__minutes=1e-9), tmp_path / "b", small.splits())
    assert out.record["stopped"] == "stopped by the clock after 1 of 25 epochs"
    assert out.record["stopped"] in out.record["notes"]
    assert "test" in out.figures


def test_the_clock_stops_a_training_and_keeps_what_it_has(tmp_path):
    given = settings("bag", train__minutes=1e-9, train__epochs=7, train__batch_size=5)
    outcome = run(given, tmp_path / "run", small.splits())
    assert outcome.record["stopped"].startswith("stopped by the clock after 0.")
    assert outcome.record["stopped"].endswith("of 7 epochs")
    assert outcome.record["stopped"] in outcome.record["notes"]
    seen = [e for e in jsonl(tmp_path / "run" / "metrics.jsonl") if e["event"] == "evaluation"]
    assert [e["step"] for e in seen] == [1]  # measured once, at the update where time was up
    assert weft.load(tmp_path / "run")(["good"])
    whole = run(settings("bag", train__epochs=2), tmp_path / "whole", small.splits())
    assert whole.record["stopped"] == ""


@pytest.mark.parametrize("name", ["bag", "tfidf"])
def test_requested_metric_is_printed_first(name, tmp_path, capsys):
    changes = {**(small.SMALL if name == "bag" else {}), "train.metric": "macro_f1"}
    outcome = train(
        config.recipe(name).with_values(changes, "test"), tmp_path, splits=small.splits()
    )
    said = capsys.readouterr().err
    for part in ("dev", "test"):
        figures = outcome.figures[part]
        start = f"\n{part} macro_f1 {figures['macro_f1'].value:.4f} ["
        assert start in said
        assert f"], accuracy {figures['accuracy'].value:.4f} [" in said[said.index(start) :]
