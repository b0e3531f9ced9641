"""Answers from a database: delexicalised responses, values in chat, task success, bad files."""

import json
from dataclasses import replace

import numpy as np
import pytest

import weft
from tests.fixtures.command import command, fails, ok
from weft import config
from weft.cli.chat.conversation import Conversation, fill_marks
from weft.errors import UserError
from weft.metrics.generation.task_success import TaskSuccess
from weft.predict.generate import Generator
from weft.run.data import Data, example_source
from weft.text.formats.dialogue.entities import (
    EntityDatabase,
    SlotFiller,
    parse_entities,
    read_entities,
)
from weft.text.formats.dialogue.turns import Dialogue, Turn, read_dialogues
from weft.text.formats.dialogue.value_swaps import (
    Augmentation,
    read_ontology,
    read_synonyms,
    swap_values,
)
from weft.text.formats.dialogue.views import dialogue_examples, parse_state, read_dialogue_examples

ROWS = [
    {"name": "Sala", "food": "thai", "area": "north", "phone": "01223 566188", "type": "place"},
    {"name": "Bangkok City", "food": "thai", "area": "south", "phone": "01223 354382",
     "type": "place"},
    {"name": "Saffron", "food": "indian", "area": "north", "postcode": "C.B 2, 1 A.B",
     "type": "place"},
]  # fmt: skip
SMALL = {
    "tokenizer.lowercase": True, "tokenizer.min_count": 1, "embedder.width": 24,
    "embedder.dropout": 0.0, "encoder.hidden": 24, "decoder.width": 24, "decoder.hidden": 48,
    "decoder.dropout": 0.0, "train.epochs": 12, "train.batch_size": 8, "train.threads": 1,
    "train.learning_rate": 0.01, "train.patience": 0,
}  # fmt: skip
RESPOND = {
    "tokenizer.kind": "word", "tokenizer.vocab_size": 300, "task.metrics": ["bleu-lower"],
    "task.label_smoothing": 0.0, "data.history": 1,
}  # fmt: skip
TRACK = {
    "task.metrics": ["joint"], "task.coverage": 0.0, "decoder.coverage": False,
    "generate.no_repeat_ngram_size": 0, "data.dialogue": "update", "data.swap_values": ["food"],
}  # fmt: skip


def dialogue(row, number):
    state = {"food": row["food"]}
    full = {**state, "area": row["area"]}
    return {"id": f"d{number}", "turns": [
        {"speaker": "user", "text": f"I want {row['food']} food", "state": state},
        {"speaker": "system", "text": "Which area ?"},
        {"speaker": "user", "text": f"the {row['area']} please", "state": full},
        {"speaker": "system", "text": f"{row['name']} serves {row['food']} food ."},
    ], "goal": {"constraints": full, "requests": ["phone", "area"]}}  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("task")
    rows = [dialogue(row, i) for i, row in enumerate(ROWS * 10)]
    for name, some in (("train", rows), ("dev", rows[:6])):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, some)) + "\n", "utf-8")
    return folder


def trained(files, name, recipe, changes):
    values = {
        "data.train": str(files / "train.jsonl"), "data.dev": str(files / "dev.jsonl"),
    }  # fmt: skip
    made = config.recipe(recipe).with_values({**SMALL, **values, **changes}, "test")
    return weft.train(made, files / name, quiet=True, device="cpu")


@pytest.fixture(scope="module")
def responder(files):
    path = files / "places.json"
    path.write_text("# a note\n" + json.dumps(ROWS, indent=1), "utf-8")
    changes = {**RESPOND, "data.database": str(path)}
    run = trained(files, "responder", "seq2seq-attention", changes)
    path.unlink()  # the model has its own copy
    return run


@pytest.fixture(scope="module")
def tracker(files):
    return trained(files, "tracker", "seq2seq-copy", TRACK)


@pytest.fixture
def database():
    return parse_entities(ROWS, "rows")


def test_values_become_marks_and_back(database):
    assert "type" not in database.slots  # the same everywhere
    text = "bangkok city serves Thai food in the South. Call 01223-354382, CB2 1AB"
    marked = "⟨name⟩ serves ⟨food⟩ food in the ⟨area⟩. Call ⟨phone⟩, ⟨postcode⟩"
    assert database.delexicalise(text) == marked
    assert database.delexicalise("no Russian food", {"food": "russian"}) == "no ⟨food⟩ food"
    assert database.delexicalise("I don't care", {"food": "dontcare"}) == "I don't care"
    assert [e["name"] for e in database.find({"food": "thai", "area": "dontcare"})] == [
        "Sala", "Bangkok City",
    ]  # fmt: skip
    assert database.find({"food": "russian"}) == []
    filler = SlotFiller(database.find({"food": "thai"}), {"food": "thai"})
    told = filler.fill("⟨name⟩ or ⟨name⟩ , ⟨food⟩ ⟨postcode⟩")
    assert told == "Sala or Bangkok City , thai (no postcode)"
    assert SlotFiller([], {"food": "russian"}).fill("no ⟨food⟩") == "no russian"
    assert database.find_mentioned("Sala , not Saffron !") == ROWS[2]
    assert database.find_mentioned("thai food in the north") is None


def test_longest_value_wins():
    rows = [{"name": "a", "food": "european"}, {"name": "b", "food": "modern european"}]
    assert parse_entities(rows, "").delexicalise("modern european b") == "⟨food⟩ ⟨name⟩"


def test_responses_follow_the_state_and_the_number_of_matches(files, database):
    first, second = list(read_dialogue_examples(files / "dev.jsonl", "response", 1,
                                                database=database))[:2]  # fmt: skip
    assert first.text == "[state] food = thai [matches] 2 [user] I want thai food [system]"
    assert first.label == "Which area ?"
    assert second.text.startswith("[state] area = north ; food = thai [matches] 1 [user] the")
    assert second.label == "⟨name⟩ serves ⟨food⟩ food ."
    many = EntityDatabase(tuple({"name": str(i), "food": "thai"} for i in range(5)))
    (one, *_) = read_dialogue_examples(files / "dev.jsonl", "response", 1, database=many)
    assert "[matches] many" in one.text


def test_every_verb_of_a_model_with_a_database(responder, files, tmp_path):
    folder, dev = files / "responder", files / "dev.jsonl"
    assert responder.figures["dev"]["bleu_lower"].value > 80
    printed = json.loads(ok("evaluate", folder, dev, "--json").out)
    assert printed["bleu_lower"]["value"] == responder.figures["dev"]["bleu_lower"].value
    lines = [line.split("\t")[0] for line in ok("predict", folder, dev).lines]
    assert len(lines) == 12
    assert lines[1] == "⟨name⟩ serves ⟨food⟩ food ."
    loaded = weft.load(folder)
    assert loaded.space.database == responder.predictor.space.database
    ok("explain", folder, dev, "--limit", 1, "--method", "occlusion", "-o", tmp_path / "e.html")


def test_chat_tracks_the_state_and_fills_in_values(responder, tracker, files):
    assert tracker.figures["dev"]["joint_goal_accuracy"].value > 0.8
    script = "/state\nI want indian food\nthe north please\n/state\n/undo\nthe north please\n"
    done = ok("chat", files / "responder", "--tracker", files / "tracker", stdin=script)
    assert done.lines == ["which area ?", *["Saffron serves indian food ."] * 2]
    assert f"none ({len(ROWS)} of {len(ROWS)} entities fit)" in done.err
    assert f"area = north ; food = indian (1 of {len(ROWS)} entities fit)" in done.err
    for more in ((), ("--tracker", files / "responder")):
        assert "tracks states" in fails("chat", files / "responder", *more) or more
    assert "update states" in fails(
        "chat", files / "responder", "--tracker", files / "responder")  # fmt: skip
    assert "says nothing" in fails("chat", files / "tracker")


def test_an_entity_that_was_mentioned_is_kept(responder, tracker):
    names = ("user", "system")
    talk = Conversation(Generator(responder.predictor), names, tracker.predictor)
    turns = [
        Turn("user", "thai", (("food", "thai"),)),
        Turn("system", "How about Bangkok City ?"),
        Turn("user", "fine", (("food", "thai"),)),
    ]
    assert list(talk._fill(iter(["⟨na", "me⟩ ", "on ⟨phone⟩"]), turns)) == [
        "Bangkok City ", "on 01223 354382",
    ]  # fmt: skip
    assert list(fill_marks(iter(["a ⟨b"]), SlotFiller([], {}))) == ["a ⟨b"]


def test_match_and_success_equal_a_count_by_hand(files, database):
    dialogues = list(read_dialogues(files / "dev.jsonl"))[:4]
    said = [e.label for e in dialogue_examples(dialogues[0], "response", database=database)]
    right = [said[0], f"{said[1]} ⟨phone⟩"]
    answers = [right, said, ["", ""], right]
    dialogues[3] = replace(dialogues[3], finished=False)
    metric = TaskSuccess(database, ("food", "area"))
    metric.add(answers, dialogues)
    found = {name: one.value for name, one in metric.compute(0).items()}
    assert found == {"entity_match": 2 / 4, "task_success": 1 / 4}
    # A state that leads to another entity than the goal, with all that was requested.
    wrong = replace(dialogues[0], constraints=(("area", "south"), ("food", "dontcare")))
    metric = TaskSuccess(database, ("food", "area"))
    metric.add([right], [wrong])
    assert metric.compute(0)["entity_match"].value == 0
    with pytest.raises(UserError, match="No entity has the slot 'title'"):
        TaskSuccess(database, name="title")


def test_copies_have_other_values_and_other_spellings(files):
    path, synonyms = files / "dev.jsonl", {"north": ["northern"]}
    plain = list(read_dialogue_examples(path, "update"))
    more = list(read_dialogue_examples(
        path, "update", augmentation=Augmentation(("food",), synonyms)))  # fmt: skip
    again = list(read_dialogue_examples(
        path, "update", augmentation=Augmentation(("food",), synonyms)))  # fmt: skip
    assert more == again
    assert more[: len(plain)] == plain
    assert len(more) == 2 * len(plain)
    assert {e.group for e in more} == {e.group for e in plain}  # copies stay in their part
    swapped = [(old, new) for old, new in zip(plain, more[len(plain) :], strict=True)
               if parse_state(old.label) != parse_state(new.label)]  # fmt: skip
    assert swapped
    for old, new in swapped:
        was, now = parse_state(old.label), parse_state(new.label)
        assert was.get("area") == now.get("area")
        assert was["food"] not in new.text
        assert now["food"] in new.text
    assert any("northern" in new.text for new in more[len(plain) :])


def test_values_that_differ_stay_different():
    turns = (Turn("user", "thai, no, indian", (("food", "indian"),)),
             Turn("user", "back to Thai", (("food", "thai"),)))  # fmt: skip
    pool = {"food": ("indian", "thai", "greek")}
    for seed in range(20):
        new = swap_values(Dialogue(turns), pool, np.random.default_rng(seed))
        (first,), (second,) = (turn.state for turn in new.turns)
        assert first[1] != second[1]
        assert new.turns[0].text == f"{second[1]}, no, {first[1]}"
        assert new.turns[1].text == f"back to {second[1]}"


def test_only_training_reads_copies(files):
    data = Data(train=str(files / "train.jsonl"), dialogue="update", swap_values=("food",))
    rows = len(list(example_source(data, data.train)()))
    assert len(list(example_source(data, data.train, augmented=True)())) == 2 * rows


def test_values_of_an_ontology_are_swapped_in(files, tmp_path):
    (tmp_path / "o.json").write_text('{"food": ["peruvian", "welsh"]}', "utf-8")
    path = str(files / "train.jsonl")
    data = Data(train=path, dialogue="update", ontology=str(tmp_path / "o.json"))
    rows = list(example_source(data, path, augmented=True)())
    copies = rows[len(rows) // 2 :]
    foods = {parse_state(one.label).get("food") for one in copies}
    assert {"peruvian", "welsh"} < foods  # and those of the states
    assert foods & {"thai", "italian", "indian"}


def test_an_ontology_of_other_slots_is_refused(files, tmp_path):
    (tmp_path / "o.json").write_text('{"foot": ["welsh"]}', "utf-8")
    path = str(files / "train.jsonl")
    data = Data(train=path, dialogue="update", ontology=str(tmp_path / "o.json"))
    with pytest.raises(UserError, match=r"data\.ontology: no state has the slot 'foot'.*'food'"):
        list(example_source(data, path, augmented=True)())


BAD_DATABASES = {
    "": "no entities",
    "{}": "entity 1 should be an object",
    "[]": "expected a list of entities",
    "[3]": "entity 1 should be an object",
    '[{"name": 3}]': "'name' should be a text",
    '[{"name": "' + "x" * 600 + '"}]': "at most 500 characters",
    '[{"name": "a⟩"}]': "not a plain line",
    '[{"name": "a\\ud800"}]': "not a plain line",
    '[{"": "a"}]': "not a plain line",
    '[{"name": "a"}': "JSON",
}


@pytest.mark.parametrize("text", BAD_DATABASES)
def test_bad_databases_are_named(text, tmp_path):
    (tmp_path / "d.json").write_text(text, "utf-8")
    with pytest.raises(UserError, match=BAD_DATABASES[text]) as caught:
        read_entities(tmp_path / "d.json")
    assert "d.json" in str(caught.value)


def test_lines_of_entities_are_read(tmp_path, database):
    (tmp_path / "d.jsonl").write_text("\n".join(map(json.dumps, ROWS)), "utf-8")
    assert read_entities(tmp_path / "d.jsonl").to_json() == database.to_json()


@pytest.mark.parametrize("text", ["3", '{"a": 3}', '{"a": [3]}', '{"a": [""]}', "{"])
def test_bad_synonyms_are_named(text, tmp_path):
    (tmp_path / "s.json").write_text(text, "utf-8")
    with pytest.raises(UserError, match=r"s\.json"):
        read_synonyms(tmp_path / "s.json")
    with pytest.raises(UserError, match=r"s\.json"):
        read_ontology(tmp_path / "s.json")


def test_a_damaged_database_in_a_model_is_named(responder, files, tmp_path):
    import shutil

    shutil.copytree(files / "responder" / "model", tmp_path / "model")
    path = tmp_path / "model" / "labels.json"
    saved = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**saved, "database": [{"name": 3}]}), "utf-8")
    with pytest.raises(UserError, match=r"labels\.json: database: entity 1"):
        weft.load(tmp_path / "model")


def test_settings_that_do_not_fit_are_one_line_errors(files, tmp_path):
    def error(*more, recipe="seq2seq-copy", train=files / "train.jsonl"):
        done = command("train", "--recipe", recipe, "--train", train, "-o", tmp_path / "x", *more)
        assert done.status == 2
        assert "Traceback" not in done.err
        return done.err.strip().splitlines()[-1]

    assert "for models that track states" in error("--set", 'data.swap_values=["food"]')
    assert "no state has the slot 'foot'. Did you mean 'food'?" in error(
        "--set", "data.dialogue=update", "--set", 'data.swap_values=["foot"]')  # fmt: skip
    assert "none.json" in error("--set", f"data.database={tmp_path / 'none.json'}")
    assert "for responses and states" in error(
        "--set", "data.database=x", recipe="gpt")  # fmt: skip
    (tmp_path / "t.tsv").write_text("text\tlabel\na b\tx\n" * 3, "utf-8")
    assert "is for dialogues" in error("--set", "data.database=x", train=tmp_path / "t.tsv")
