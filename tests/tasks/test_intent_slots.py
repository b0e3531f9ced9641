"""Intent and slots in one model: loss, answers, metrics, a run from file to page."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import weft
from tests.fixtures.command import command, ok
from weft.batch import Padded
from weft.compare.detect_task import detect_tasks
from weft.decode.heads.intent_slots import IntentSlotHead
from weft.errors import UserError
from weft.explain.run import run_explain
from weft.metrics.structure.chunks import SpanF1
from weft.metrics.structure.intent_slots import IntentSlotMetric
from weft.report.drawings.draw import draw, draw_terminal
from weft.tasks.classify import Classify
from weft.tasks.intent_slots import IntentSlots
from weft.text.example import Example
from weft.text.read import read
from weft.text.synthetic.intents import DOMAINS, generate_intents, write_intents

TAGS, INTENTS = ("O", "S-a", "B-a", "E-a", "I-a"), ("go", "play", "stop")
OUTPUTS = ((TAGS, "BIOES"), (INTENTS, ""))
SMALL = {
    "tokenizer.min_count": 1, "encoder.hidden": 32, "train.epochs": 12, "train.threads": 1,
    "train.ema_decay": 0.0, "train.learning_rate": 0.02, "train.batch_size": 16,
    "head.dropout": 0.1, "embedder": [{"kind": "lookup", "width": 32}],
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("intents")
    train, dev, test = map(str, write_intents(folder, size=500))
    files = {"data.train": train, "data.dev": dev, "data.test": test}
    config = weft.recipe("joint-bilstm-crf").with_values({**SMALL, **files}, "test")
    return folder, weft.train(config, folder / "run", quiet=True, device="cpu")


def states(garbage=0.0):
    torch.manual_seed(1)
    x = Padded(torch.randn(3, 5, 7), torch.tensor([5, 2, 3]))
    return Padded(x.data.masked_fill(~x.mask[..., None], garbage), x.lengths)


@pytest.mark.parametrize("tags", ["softmax", "crf"])
@pytest.mark.parametrize("pool", ["max", "mean", "attention"])
def test_the_loss_is_the_sum_of_both_and_the_padding_counts_for_nothing(tags, pool):
    torch.manual_seed(0)
    head = IntentSlotHead(7, OUTPUTS, tags, pool).eval()
    slots = torch.tensor([[0, 2, 3, 0, 1], [1, 0, -1, -1, -1], [0, 0, 1, -1, -1]])
    intents = torch.tensor([2, 7, 0])  # 7: never seen in training
    target = torch.stack([slots, intents[:, None].expand(3, 5)], dim=2)
    with torch.no_grad():
        output = head(states())
        dirty = head(states(garbage=9.0))
    total, words = output.loss(target, 0.5)
    slot_loss, _ = output.tags.loss(slots[:, :, None])
    log_probs = output.intents.log_softmax(1)
    wanted = slot_loss - 0.5 * (log_probs[0, 2] + log_probs[2, 0])
    torch.testing.assert_close(total, wanted, atol=1e-5, rtol=0)
    assert words == 10
    weighted, _ = output.loss(target, 0.5, torch.tensor([0.0, 1.0, 2.0]))
    parts = []
    for i, n in ((1, 2), (2, 3)):
        alone = Padded(states().data[i : i + 1, :n], torch.tensor([n]))
        parts.append(head(alone).loss(target[i : i + 1, :n], 0.5)[0].detach())
    torch.testing.assert_close(weighted, parts[0] + 2 * parts[1], atol=1e-4, rtol=0)
    for (one, p), (two, q) in zip(output.decode(), dirty.decode(), strict=True):
        assert (one == two).all()
        np.testing.assert_allclose(p, q, atol=1e-5)


def test_a_decoded_row_repeats_the_best_intent_and_distributions_agree():
    torch.manual_seed(0)
    with torch.no_grad():
        output = IntentSlotHead(7, OUTPUTS).eval()(states())
    best = output.intents.argmax(1).tolist()
    for (table, probs), all_probs, intent in zip(
        output.decode(), output.distributions(), best, strict=True
    ):
        assert table[:, 1].tolist() == [intent] * len(table)
        slots, intents = all_probs.columns
        assert (slots.argmax(1) == table[:, 0]).all()
        np.testing.assert_allclose(intents[:, intent], probs[:, 1], atol=1e-6)


def test_metrics_are_those_of_plain_counting():
    rng = np.random.default_rng(0)
    metric, spans_only, exact, right_intents = IntentSlotMetric(), SpanF1(), 0, 0
    for _ in range(60):
        gold, ours = (
            [("xyz"[k], s, s + 1) for s, k in enumerate(rng.integers(0, 3, 4)) if k]
            for _ in range(2)
        )
        ours = gold if rng.integers(2) else ours
        intents = tuple(INTENTS[k] for k in rng.integers(0, 2, 2))
        metric.add_sentence(intents, ours, gold)
        spans_only.add([ours], [gold])
        right_intents += intents[0] == intents[1]
        exact += intents[0] == intents[1] and set(ours) == set(gold)
    spurious = IntentSlotMetric()
    spurious.add_sentence(("go", "go"), [("x", 0, 1), ("y", 1, 2)], [("x", 0, 1)])
    assert spurious.compute(resamples=0)["exact_match"].value == 0
    values = metric.compute(resamples=10)
    assert values["slot_f1"].value == pytest.approx(spans_only.compute(resamples=0)["f1"].value)
    assert values["intent_accuracy"].value == pytest.approx(right_intents / 60)
    assert values["exact_match"].value == pytest.approx(exact / 60)
    assert values["exact_match"].n == 60


def test_a_run_learns_both_answers_and_its_model_replays_them(run):
    folder, result = run
    figures = result.figures["test"]
    assert set(figures) == {
        "exact_match", "intent_accuracy", "slot_f1", "slot_precision", "slot_recall",
    }  # fmt: skip
    assert figures["intent_accuracy"].value > 0.6
    assert figures["slot_f1"].value > 0.6
    predictor = weft.load(folder / "run")  # replays recorded answers
    (answer,) = predictor(["wake me at seven"])
    assert answer.value["intent"] in DOMAINS
    assert all(
        s["text"] == "wake me at seven"[s["start"] : s["end"]] for s in answer.value["slots"]
    )
    (nothing,) = predictor([""])
    assert (nothing.value, nothing.score) == ({"intent": None, "slots": []}, 0.0)


def test_one_forward_pass_answers_both(run):
    _, result = run
    model = result.predictor.engine.model
    passes = []
    handle = model.encoder.register_forward_hook(lambda *args: passes.append(1))
    result.predictor(["wake me at seven"])
    handle.remove()
    assert len(passes) == 1


def test_answers_are_printed_drawn_and_explained(run, tmp_path):
    folder, _ = run
    text = "wake me at seven"
    row = json.loads(ok("predict", folder / "run", text, "--json").out)
    assert row["label"] == row["value"]["intent"]
    assert 0 < row["label_score"] <= 1
    assert len(row["parts"]) == len(row["words"]) == 4
    line = ok("predict", folder / "run", text).out
    assert line.startswith(f"{row['label']} {row['label_score']:.4f}")
    page = tmp_path / "page.html"
    shown = ok("evaluate", folder / "run", folder / "test.jsonl", "--report", page).out
    assert "intent_accuracy" in shown
    assert "intent set_alarm" in shown
    assert "intent set_alarm" in page.read_text("utf-8")
    predictor = weft.load(folder / "run", replay=False)
    found = run_explain(predictor, [Example(text)], column="intent")
    assert len(found.faithfulness) >= 2
    for (one,) in found.explanations.values():
        assert one.target == row["label"]
        assert len(one.words) == 4
    refused = command("explain", folder / "run", text, "--column", "intent", "--word", "me")
    assert "The intent is of the whole sentence" in refused.err
    assert ok("explain", folder / "run", text, "--column", "intent", "-o", tmp_path / "x.html")


def test_gradients_sum_to_the_change_of_the_intent(run):
    _, result = run
    found = run_explain(
        result.predictor, [Example("book a table at roma")], column="intent",
        method="integrated-gradients",
    )  # fmt: skip
    from weft.explain.token_level import answer_sentences, make_request

    ((example, answer),) = answer_sentences(result.predictor, ["book a table at roma"])
    request = make_request(result.predictor, example, answer, column="intent")
    none, all_hidden = np.zeros((1, 5), bool), np.ones((1, 5), bool)
    change = (
        request.spot.scores(none) - request.spot.scores(all_hidden)
    ) @ request.target.direction
    (one,) = found.explanations["integrated-gradients"]
    assert sum(word.weight for word in one.words) == pytest.approx(float(change[0]), rel=0.1)


def test_drawings_mark_a_wrong_intent(run):
    _, result = run
    (answer,) = result.predictor(["wake me at seven"])
    shown = answer.structure
    gold = IntentSlots(scheme="IOB2").gold(
        next(e for e in generate_intents(size=500)["train"] if e.label.label == "set_timer"),
        result.predictor.space,
    )
    assert gold.label == "set_timer"
    plain = draw_terminal(shown).plain
    assert plain.startswith(shown.label)
    wrong = replace(shown, text="wake me at seven", label="stop", label_score=0.0)
    assert f"→{wrong.label}" in draw_terminal(shown, wrong).plain
    assert 'class="wrong"' in draw(shown, wrong)
    assert 'class="wrong"' not in draw(shown, shown)


def test_an_ensemble_averages_intents_and_slots(run, tmp_path):
    folder, result = run
    files = {f"data.{name}": str(folder / f"{name}.jsonl") for name in ("train", "dev", "test")}
    changes = {**SMALL, **files, "train.seed": 2, "train.epochs": 2, "head.tags": "softmax"}
    other = weft.train(
        weft.recipe("joint-bilstm-crf").with_values(changes, "test"), tmp_path / "b", quiet=True,
        device="cpu",
    )  # fmt: skip
    joined = weft.ensemble([folder / "run", tmp_path / "b"], tmp_path / "both", device="cpu")
    examples = list(read(folder / "test.jsonl"))[:20]
    members = [p.engine.distributions(examples).scores for p in (result.predictor, other.predictor)]
    for answer, one, two in zip(joined(examples), *members, strict=True):
        mean = (one.scores.columns[1][0] + two.scores.columns[1][0]) / 2
        best = result.predictor.space.entries[1][int(mean.argmax())]
        assert answer.value["intent"] == best
        assert answer.structure.label_score == pytest.approx(float(mean.max()), abs=1e-5)


def test_a_killed_run_resumes_to_the_same_weights(run, tmp_path):
    folder, _ = run
    files = {f"data.{name}": str(folder / f"{name}.jsonl") for name in ("train", "dev")}
    config = weft.recipe("joint-bilstm-crf").with_values(
        {**SMALL, **files, "train.epochs": 2}, "test"
    )

    class Killed(Exception):
        pass

    def kill(*args):
        raise Killed

    whole = weft.train(config, tmp_path / "whole", quiet=True, device="cpu")
    with pytest.raises(Killed):
        weft.train(config, tmp_path / "cut", quiet=True, device="cpu", on_evaluate=kill)
    resumed = weft.train(config, tmp_path / "cut", quiet=True, device="cpu", resume=True)
    for (name, one), two in zip(
        whole.predictor.engine.model.state_dict().items(),
        resumed.predictor.engine.model.state_dict().values(),
        strict=True,
    ):
        assert torch.equal(one, two), name


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"tokens": ["a", "b"], "tags": ["O", "B-x"]}] * 9, r"a.jsonl:1: no intent. Give JSON"),
        ([{"tokens": ["a"], "tags": ["N"], "label": "x"}] * 9, "tags mark no spans"),
        (
            [{"tokens": ["a", "b"], "tags": ["O", "B-x"], "label": "x"}] * 9,
            "every sentence has the",
        ),
    ],
)
def test_files_that_do_not_fit_are_refused(tmp_path, rows, message):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    config = weft.recipe("joint-bilstm-crf").with_values({"data.train": str(path)}, "test")
    with pytest.raises(UserError, match=message):
        weft.train(config, tmp_path / "run", quiet=True)


def test_settings_that_do_not_fit_are_refused():
    with pytest.raises(UserError, match="one column of tags, not 2"):
        IntentSlots(columns=["a", "b"])
    with pytest.raises(UserError, match="intent_weight is a weight above 0"):
        IntentSlots(intent_weight=0.0)


def test_the_requests_are_the_same_each_time_and_need_their_context():
    first, again = generate_intents(size=300), generate_intents(size=300)
    assert first == again
    assert {split: len(rows) for split, rows in first.items()} == {
        "train": 240, "dev": 30, "test": 30,
    }  # fmt: skip
    assert len({e.text for rows in first.values() for e in rows}) == 300
    labels: dict[str, set[str]] = {}
    for example in generate_intents()["train"]:
        for word, tag in zip(example.words, example.label.columns["tag"], strict=True):
            if tag.startswith("B-"):
                labels.setdefault(word, set()).add(tag)
    assert len(labels["boston"]) >= 3
    assert len(labels["seven"]) >= 3


def test_compare_and_classify_read_the_same_file(run):
    folder, _ = run
    examples = list(read(folder / "train.jsonl"))
    assert detect_tasks(examples) == ("intent-slots", "tag", "classify")
    space = Classify().space(examples)
    assert set(space.entries) == set(DOMAINS)
    assert space.entries[Classify().target(examples[0], space)] == examples[0].label.label
