"""Dialogues through every verb: views, train, evaluate, predict, chat, resume, and bad input."""

import json
import re
from collections import Counter

import numpy as np
import pytest

import weft
from tests.fixtures.command import command, fails, ok
from tests.fixtures.processes import FORK_SERVER
from tests.fixtures.weights import digest
from weft import config
from weft.cli.chat.conversation import Conversation, cut_at_marker
from weft.errors import UserError
from weft.metrics.generation.dialogue import Distinct, ResponseRecall, StateAccuracy
from weft.predict.generate import Generator
from weft.run.split import group_key
from weft.text.example import SkipCounter
from weft.text.formats.dialogue.turns import is_dialogue_file, read_dialogues
from weft.text.formats.dialogue.views import (
    format_state,
    parse_state,
    read_dialogue_examples,
    replace_state,
)
from weft.text.formats.recognise import recognise

FOODS, AREAS = ("thai", "italian", "indian"), ("north", "south")
SMALL = {
    "task.metrics": ["joint", "exact"], "task.coverage": 0.0, "decoder.coverage": False,
    "tokenizer.lowercase": True, "tokenizer.min_count": 1, "embedder.width": 24,
    "embedder.dropout": 0.0, "encoder.hidden": 24, "decoder.width": 24, "decoder.hidden": 48,
    "decoder.dropout": 0.0, "generate.no_repeat_ngram_size": 0, "data.dialogue": "state",
    "train.epochs": 12, "train.batch_size": 8, "train.learning_rate": 0.01, "train.threads": 1,
    "train.patience": 0,
}  # fmt: skip


def dialogue(food, area, number):
    return {"id": f"d{number}", "turns": [
        {"speaker": "user", "text": f"I want {food} food", "state": {"food": food}},
        {"speaker": "system", "text": "Which area ?"},
        {"speaker": "user", "text": f"the {area} please", "state": {"food": food, "area": area}},
        {"speaker": "system", "text": f"Sala serves {food} in the {area} ."},
    ]}  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dialogues")
    rows = [dialogue(food, area, i) for i, (food, area) in
            enumerate([(f, a) for f in FOODS for a in AREAS] * 6)]  # fmt: skip
    for name, some in (("train", rows), ("dev", rows[:6])):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, some)) + "\n", "utf-8")
    return folder


def small(files, **changes):
    values = {"data.train": str(files / "train.jsonl"), "data.dev": str(files / "dev.jsonl")}
    return config.recipe("seq2seq-copy").with_values({**SMALL, **values, **changes}, "test")


@pytest.fixture(scope="module")
def run(files):
    return weft.train(small(files), files / "run", quiet=True, device="cpu")


@pytest.fixture(scope="module")
def lm(files):
    values = {
        "data.train": str(files / "train.jsonl"), "data.dev": str(files / "dev.jsonl"),
        "tokenizer.kind": "word", "tokenizer.vocab_size": 200, "decoder.layers": 1,
        "decoder.hidden": 32, "decoder.heads": 2, "decoder.max_positions": 40, "task.window": 40,
        "decoder.dropout": 0.0, "train.epochs": 12, "train.batch_size": 8, "train.threads": 1,
        "train.learning_rate": 0.01, "train.warmup_updates": 2, "train.patience": 0,
    }  # fmt: skip
    made = config.recipe("gpt").with_values(values, "test")
    return weft.train(made, files / "lm", quiet=True, device="cpu")


def test_views_and_history(files):
    path = files / "dev.jsonl"
    states = list(read_dialogue_examples(path, "state"))
    assert [e.label for e in states[:2]] == ["food = thai", "area = north ; food = thai"]
    assert states[1].text == "[user] I want thai food [system] Which area ? [user] the north please"
    short = list(read_dialogue_examples(path, "response", 1))
    assert (short[1].text, short[1].label) == (
        "[user] the north please [system]", "Sala serves thai in the north .",
    )  # fmt: skip
    (first, *_) = read_dialogue_examples(path, "text")
    assert first.text.endswith("[system] Sala serves thai in the north .")
    assert len({group_key(e) for e in states[:2]}) == 1
    assert group_key(states[1]) != group_key(states[2])
    assert recognise(path) == "dialogue"


def test_unanswered_turns_are_answered_by_predict_only(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"turns": ["hi", "hello", "bye"]}\n', "utf-8")
    assert len(list(read_dialogue_examples(tmp_path / "a.jsonl", "response"))) == 2
    found = list(read_dialogue_examples(tmp_path / "a.jsonl", "response", labelled=False))
    assert (found[-1].text, found[-1].label) == ("[A] hi [B] hello [A] bye [B]", None)
    found = list(read_dialogue_examples(tmp_path / "a.jsonl", "state", labelled=False))
    assert [e.label for e in found] == [None] * 3


def test_other_layouts(tmp_path):
    (tmp_path / "d.txt").write_text("Hi . __eou__ Hello ! __eou__\t4\t1 2\n", "utf-8")
    (one,) = read_dialogues(tmp_path / "d.txt")
    assert [(t.speaker, t.text) for t in one.turns] == [("A", "Hi ."), ("B", "Hello !")]
    slots = [{"act": "inform", "slots": [["food", "thai"]]}]
    turns = [{"usr": {"transcript": "thai", "slu": slots}, "sys": {"sent": "Sala ."}}]
    goal = {"constraints": [["food", "thai"]], "request-slots": ["phone"]}
    row = {"dialogue_id": 7, "dial": turns, "goal": goal}
    (tmp_path / "c.json").write_text("# a note\n" + json.dumps([row], indent=1), "utf-8")
    (one,) = read_dialogues(tmp_path / "c.json")
    assert one.turns[0].state == (("food", "thai"),)
    assert (one.id, one.constraints, one.requests) == ("7", (("food", "thai"),), ("phone",))
    assert is_dialogue_file(tmp_path / "c.json")
    assert not is_dialogue_file(tmp_path / "none")
    state = (("area", "north"), ("food", "thai"))
    assert parse_state(format_state(state)) == dict(state)
    assert parse_state(format_state(())) == {}


def test_states_are_learned_and_every_verb_reads_them(run, files, tmp_path):
    assert run.figures["dev"]["joint_goal_accuracy"].value > 0.8
    folder, dev = files / "run", files / "dev.jsonl"
    printed = json.loads(ok("evaluate", folder, dev, "--json").out)
    assert printed["joint_goal_accuracy"]["n"] == 12
    assert printed["slot_f1"]["value"] >= printed["joint_goal_accuracy"]["value"]
    assert len(ok("predict", folder, dev).lines) == 12
    assert len(ok("predict", folder, "[user] I want thai food").lines) == 1
    assert "error" not in ok("check", files / "train.jsonl").out.lower()
    ok("explain", folder, "[user] I want thai food", "--method", "occlusion",
       "-o", tmp_path / "e.html")  # fmt: skip
    again = weft.load(folder)
    text = "[user] I want thai food"
    assert again([text])[0].value == run.predictor([text])[0].value


def test_updates_read_the_state_before_and_the_turns_since(tmp_path):
    turns = [
        {"speaker": "user", "text": "hi"},
        {"speaker": "system", "text": "Hello ."},
        {"speaker": "user", "text": "thai", "state": {"food": "thai"}},
        {"speaker": "system", "text": "Where ?"},
        {"speaker": "user", "text": "north", "state": {"food": "thai", "area": "north"}},
    ]
    (tmp_path / "a.jsonl").write_text(json.dumps({"turns": turns}) + "\n", "utf-8")
    first, second = read_dialogue_examples(tmp_path / "a.jsonl", "update")
    assert first.text == "[state] none [user] hi [system] Hello . [user] thai"
    assert second.text == "[state] food = thai [system] Where ? [user] north"
    assert second.label == "area = north ; food = thai"
    asked = list(read_dialogue_examples(tmp_path / "a.jsonl", "update", labelled=False))
    labels = [None, "area = none ; food = thai", "area = north ; food = thai"]
    assert [one.label for one in asked] == labels  # of each slot of the file
    assert parse_state(labels[1]) == {"food": "thai"}
    assert replace_state(second.text, "none") == "[state] none [system] Where ? [user] north"


def test_states_are_tracked_from_predicted_states(files, tmp_path):
    dev = tmp_path / "dev.jsonl"  # with states that no model predicts
    wrong = (files / "dev.jsonl").read_text("utf-8").replace('{"food": "thai"}', '{"food": "fish"}')
    dev.write_text(wrong, "utf-8")
    values = {"data.dialogue": "update", "data.dev": str(dev), "train.epochs": 7}
    tracker = weft.train(small(files, **values), tmp_path / "run", quiet=True, device="cpu")
    predictor = tracker.predictor
    examples = list(read_dialogue_examples(dev, "update"))
    expected, state = [], ""
    for example in examples:  # one after the other
        if example.id.endswith("-0"):
            state = "none"
        turns = example.text[example.text.index(" [") :]
        (answer,) = predictor([f"[state] {state}{turns}"])
        expected.append(str(answer.value))
        state = format_state(tuple(parse_state(str(answer.value)).items()))
    from_truth = [str(answer.value) for answer in predictor([e.text for e in examples])]
    assert from_truth != expected
    assert [line.split("\t")[0] for line in ok("predict", tmp_path / "run", dev).lines] == expected
    metric = StateAccuracy()
    metric.add(expected, [example.label for example in examples])
    right = metric.compute(0)["joint_goal_accuracy"].value
    assert tracker.figures["dev"]["joint_goal_accuracy"].value == right
    printed = json.loads(ok("evaluate", tmp_path / "run", dev, "--json").out)
    assert printed["joint_goal_accuracy"]["value"] == right
    assert "tracks states" in fails("chat", tmp_path / "run")


def test_compare_recognises_dialogues(files):
    from weft.compare.prepare import find_tasks
    from weft.run.data import Data

    path = str(files / "train.jsonl")
    assert find_tasks(Data(train=path)) == ("seq2seq", "language")
    assert find_tasks(Data(train=path, dialogue="state")) == ("seq2seq",)


def _train_to_the_end(files, folder):
    weft.train(
        small(files, **{"train.epochs": 3, "train.save_every": 1}), folder, quiet=True,
        device="cpu", resume=folder.exists(),
    )  # fmt: skip


def test_killed_and_resumed_weights_are_bit_identical(files, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    _train_to_the_end(files, whole)
    process = FORK_SERVER.Process(target=_train_to_the_end, args=(files, killed))
    process.start()
    checkpoint = killed / "checkpoints/last.safetensors"
    while process.is_alive() and not checkpoint.exists():
        process.join(0.01)
    process.kill()
    process.join(60)
    _train_to_the_end(files, killed)
    assert digest(killed) == digest(whole)


def test_joint_accuracy_equals_a_count_by_hand():
    gold = ["area = north ; food = thai", "food = thai", "none", "food = modern european"]
    said = ["food = Thai ; area = north", "food = thai ; area = south", "", "food = european"]
    metric = StateAccuracy()
    metric.add(said, gold)
    found = {name: one.value for name, one in metric.compute(resamples=10).items()}
    pairs = [
        [{tuple(p.strip() for p in s.lower().split("=")) for s in text.split(";") if "=" in s}
         for text in (a, b)]
        for a, b in zip(said, gold, strict=True)
    ]  # fmt: skip
    right, own, true = (sum(f(a, b) for a, b in pairs) for f in (
        lambda a, b: len(a & b), lambda a, b: len(a), lambda a, b: len(b)))  # fmt: skip
    assert found["joint_goal_accuracy"] == sum(a == b for a, b in pairs) / 4 == 0.5
    assert found["slot_precision"] == pytest.approx(right / own)
    assert found["slot_recall"] == pytest.approx(right / true)
    assert found["slot_f1"] == pytest.approx(2 * right / (own + true))


def test_distinct_equals_sets_over_all_answers():
    answers = ["I do not know", "I do not care", "yes", "yes yes yes", ""]
    first, second = Distinct(), Distinct()
    first.add(answers[:2], [""] * 2)
    second.add(answers[2:], [""] * 3)
    first.merge(second)
    found = first.compute(resamples=10)
    for order in (1, 2):
        rows = [a.lower().split() for a in answers]
        ngrams = Counter(g for r in rows for g in zip(*(r[i:] for i in range(order)), strict=False))
        assert found[f"distinct{order}"].value == pytest.approx(len(ngrams) / ngrams.total())
    assert first.n == 5


def test_recall_counts_own_responses_that_win():
    groups = [i // 3 for i in range(36)]
    own = np.eye(36)
    own[7] = 0.5  # ties with the others
    own[20, :] = 2.0
    own[20, 20] = 1.0  # beaten by all
    own[3, 4:6] = 9.0  # beaten only by its own dialogue, which is never drawn
    metric = ResponseRecall()
    metric.add(own, groups)
    assert metric.compute(0)["recall_at_1"].value == pytest.approx(34 / 36)
    noise = ResponseRecall(5)
    noise.add(np.random.default_rng(1).normal(size=(2000, 2000)), range(2000))
    assert noise.compute(0)["recall_at_1"].value == pytest.approx(1 / 5, abs=0.03)
    with pytest.raises(UserError, match="there are 3"):
        ResponseRecall().add(np.eye(6), groups[:6])


def test_chat_streams_undoes_and_sets(lm, files):
    script = "I want thai food\n/settings\n/set temperature 0.5\n/undo\n/undo\n/nonsense\n/state\n"
    script += "/set top_k many\n/set nothing 1\n/set method beam\n/set\n\n/reset\n"
    script += "x" * 20_000 + "\nthe north please\n/quit\nnever read\n"
    done = ok("chat", files / "lm", stdin=script)
    assert len(done.lines) == 2
    assert "[" not in done.out  # it stops before the next turn
    for message in ("method ", "temperature 0.5", "0 turns left", "nothing to undo",
                    "no such command", "needs --tracker", "top_k", "Unknown setting 'nothing'",
                    "cannot be streamed", "/set NAME VALUE",
                    "more than 10,000 characters"):  # fmt: skip
        assert message in done.err, message
    again = ok("chat", files / "lm", "--seed", 3, "--max-length", 5, stdin="hi\n")
    assert again.out == ok("chat", files / "lm", "--seed", 3, "--max-length", 5, stdin="hi\n").out


def test_chat_at_a_terminal_ends_with_a_line_end(lm, files, monkeypatch):
    typed = iter(["hi", "/help"])
    monkeypatch.setattr("weft.cli.chat.chat._at_terminal", lambda: True)
    monkeypatch.setattr("builtins.input", lambda prompt: next(typed, None) or _end_input())
    done = ok("chat", files / "lm", "--max-length", 5)
    assert len(done.lines) == 1
    assert done.err.count("/undo") == 2  # at the beginning and for /help
    assert done.err.endswith("\n\n")


def _end_input():
    raise EOFError


def test_chat_forgets_turns_that_do_not_fit(lm):
    talk = Conversation(Generator(lm.predictor), ("user", "system"))
    talk.change("max_length", "5")
    for _ in range(8):
        list(talk.answer("I want thai food in the north please"))
    assert len([t for t in talk.turns if t.speaker == "user"]) == 8
    with pytest.raises(UserError, match="reads at most"):
        list(talk.answer("food " * 100))
    before = len(talk.turns)
    talk.command("/undo")
    assert before - len(talk.turns) in (1, 2)


def test_chat_with_a_model_that_copies(run, files):
    assert ok("chat", files / "run", stdin="I want thai food\n").lines
    assert "give two names" in fails("chat", files / "run", "--speakers", "me")
    assert fails("chat", files / "none")


@pytest.mark.parametrize("size", [1, 2, 3, 50])
def test_markers_end_an_answer_wherever_pieces_break(size):
    text = "  Sala [sic] is nice . [ user ] I want"
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    said = "".join(cut_at_marker(iter(pieces), ("user", "system")))
    assert said == "Sala [sic] is nice ."
    assert "".join(cut_at_marker(iter([" a", " [b"]), ("user",))) == "a [b"


GOOD = '{"turns": [{"speaker": "user", "text": "hi", "state": {"food": "thai"}}]}'
BAD_ROWS = {
    '{"turns": []}': "no 'turns' list",
    '{"turns": 3}': "no 'turns' list",
    '{"turns": [3]}': "turn 1 should be a text or an object, found 3",
    '{"turns": [{"speaker": "user"}]}': "turn 1 has no 'text'",
    '{"turns": [{"text": "hi"}]}': "turn 1 has no 'speaker'",
    '{"turns": [{"speaker": "a[b", "text": "hi"}]}': "short name without brackets",
    '{"turns": [{"speaker": "user", "text": " "}]}': "turn 1 is empty",
    '{"turns": ["a\\ud800"]}': "lone surrogate",
    '{"turns": [{"speaker": "u", "text": "a", "state": []}]}': "state of turn 1 should be an obj",
    '{"turns": [{"speaker": "u", "text": "a", "state": {"x": 1}}]}': "has the value 1, no text",
    '{"turns": [{"speaker": "u", "text": "a", "state": {"x": ""}}]}': "has the value '', no text",
    '{"turns": [{"speaker": "u", "text": "a", "state": {"x": "a;b"}}]}': "separate slots",
    '{"turns": ["a"], "goal": 3}': "goal should be a JSON object",
    '{"turns": ["a"], "goal": {"requests": "x"}}': "goal.requests should be a list",
    '{"turns": ["a"], "goal": {"constraints": [1]}}': "goal.constraints should be an object",
    '{"dial": [{"usr": {}}]}': "not a dialogue of CamRest676",
    '{"dial": []}': "the dialogue has no turns",
    '{"turns": ["a"': "JSON",
    "hello there": "no __eou__ in the line",
    "a __eou__ __eou__ b __eou__": "utterance 2 is empty",
}


@pytest.mark.parametrize("row", BAD_ROWS)
def test_bad_dialogues_are_named_with_file_and_line(row, tmp_path):
    (tmp_path / "a.jsonl").write_text(f"{GOOD}\n{row}\n{GOOD}\n", "utf-8")
    with pytest.raises(UserError, match=BAD_ROWS[row]) as caught:
        list(read_dialogues(tmp_path / "a.jsonl"))
    assert "a.jsonl:2" in str(caught.value)
    tally = SkipCounter()
    kept = list(read_dialogues(tmp_path / "a.jsonl", on_bad_row="skip", skipped=tally))
    assert len(kept) == 2
    assert sum(tally.counts.values()) == 1


def test_bad_settings_are_one_line_errors(files, tmp_path):
    def error(*more, recipe="seq2seq-copy", train=files / "train.jsonl"):
        done = command("train", "--recipe", recipe, "--train", train, "-o", tmp_path / "x", *more)
        assert done.status == 2
        assert "Traceback" not in done.err
        return done.err.strip().splitlines()[-1]

    assert "data.history should be 0" in error("--set", "data.history=-1")
    assert "dialogue" in error("--set", "data.dialogue=nonsense")
    assert "is for the task 'language'" in error("--set", "data.dialogue=text")
    assert "Leave it out" in error(
        "--set", "data.dialogue=update", "--set", "data.history=2")  # fmt: skip
    assert "does not read dialogues" in error("--set", "data.dialogue=state", recipe="cnn")
    (tmp_path / "t.tsv").write_text("text\tlabel\na b\tx\n" * 3, "utf-8")
    assert "no dialogues" in error("--set", "data.dialogue=state", train=tmp_path / "t.tsv")
    (tmp_path / "n.jsonl").write_text('{"turns": ["a", "b"]}\n', "utf-8")
    assert 'No user turn has a "state"' in error("--set", "data.dialogue=state",
                                                 train=tmp_path / "n.jsonl")  # fmt: skip
    (tmp_path / "l.json").write_text('[{"turns": ["a", "b"]}, 3]', "utf-8")
    assert re.search("dialogue 2: a dialogue should be a JSON object", error(
        train=tmp_path / "l.json"))  # fmt: skip
