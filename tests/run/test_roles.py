"""Semantic roles through every verb: train, evaluate, predict, explain, resume, and bad input."""

import itertools
import json
import re

import pytest

import weft
from tests.fixtures.command import command, ok
from tests.fixtures.command import fails as fails_with_one_line
from tests.fixtures.processes import FORK_SERVER
from tests.fixtures.weights import digest
from weft import config
from weft.errors import UserError
from weft.report.drawings.draw import draw, draw_terminal
from weft.tasks.annotation import Annotation
from weft.tasks.semantics.srl import RoleSpace, SemanticRoles
from weft.text.annotation.frames import Frames, Predicate
from weft.text.annotation.schemes import Span
from weft.text.annotation.senses import SenseInventory
from weft.text.example import Example, SkipCounter
from weft.text.formats.semantics.roles import detect_roles, read_roles
from weft.text.read import read
from weft.text.synthetic.roles import generate_roles, write_roles
from weft.text.write import write

SMALL = {
    "tokenizer.min_count": 1, "encoder.hidden": 24, "encoder.layers": 1, "encoder.dropout": 0.0,
    "head.hidden": 16, "head.predicate": 11, "head.sense": 9, "head.dropout": 0.0,
    "embedder": [{"kind": "lookup", "width": 20}], "train.epochs": 9, "train.batch_size": 4,
    "train.ema_decay": 0.0, "train.threads": 1, "train.learning_rate": 0.01, "train.patience": 0,
}  # fmt: skip
SENTENCE = "Ann gave Bo the lamp ."


def fails(*arguments, message):
    assert re.search(message, fails_with_one_line(*arguments))


def small(folder, recipe="srl-bilstm-crf", **changes):
    values = {"data.train": str(folder / "train.conll"), "data.dev": str(folder / "dev.conll")}
    return config.recipe(recipe).with_values({**SMALL, **values, **changes}, "test")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("roles")
    parts = generate_roles(size=120)
    short = {name: [e for e in some if len(e.words) < 14] for name, some in parts.items()}
    write_roles(folder, short)
    return folder


@pytest.fixture(scope="module")
def run(files):
    return weft.train(small(files), files / "run", quiet=True, device="cpu")


@pytest.fixture(scope="module")
def folder(run, files):
    return files / "run"


def test_roles_are_learned_and_read_from_plain_text(run):
    figures = run.figures["dev"]
    assert figures["predicate_f1"].value > 0.8
    assert figures["f1"].value > 0.4
    assert figures["sense_accuracy"].value > 0.8
    (answer,) = run.predictor([SENTENCE])
    (gave,) = [one for one in answer.value if one["predicate"] == "gave"]
    assert gave["sense"] == "give.01"
    assert SENTENCE[gave["start"] : gave["end"]] == "gave"
    for role in gave["roles"]:
        assert SENTENCE[role["start"] : role["end"]] == role["text"]
    assert run.predictor([""])[0].value == ()


def test_given_predicates_are_answered_and_no_others(run):
    words = tuple(SENTENCE.split())
    label = Frames((Predicate(4, "lamp.01", ()),))
    places = run.predictor([SENTENCE])[0].structure.places
    given = Example(SENTENCE, label, words=words, places=places)
    (answer,) = run.predictor([given])
    assert [one["predicate"] for one in answer.value] == ["lamp"]
    none = Example(SENTENCE, Frames(()), words=words, places=given.places)
    assert run.predictor([none])[0].value == ()


def test_evaluate_prints_the_official_scores(folder, files):
    printed = json.loads(ok("evaluate", folder, files / "test.conll", "--json").out)
    assert {"f1", "precision", "recall", "end_to_end_f1", "predicate_f1", "sense_accuracy"} <= set(
        printed
    )
    assert printed["f1"]["low"] <= printed["f1"]["value"] <= printed["f1"]["high"]
    shown = ok("evaluate", folder, files / "test.conll", "--report", files / "r.html")
    assert "ARG0" in shown.out
    assert "<mark" in (files / "r.html").read_text("utf-8")


def test_predict_writes_columns_lines_and_json(folder, files, tmp_path):
    written = ok("predict", folder, SENTENCE, "--conll").out
    (tmp_path / "out.conll").write_text(written * 3, "utf-8")
    again = list(read_roles(tmp_path / "out.conll"))
    (answer,) = weft.load(folder)([SENTENCE])
    assert [e.words for e in again] == [tuple(SENTENCE.split())] * 3
    assert again[0].label.to_rows() == answer.structure.frames
    assert "give.01 " in ok("predict", folder, SENTENCE).out
    one = json.loads(ok("predict", folder, SENTENCE, "--json").out)
    assert one["value"][0].keys() == {"predicate", "sense", "start", "end", "roles"}
    rows = ok("predict", folder, files / "dev.conll", "--json").lines
    gold = list(read_roles(files / "dev.conll"))
    assert [[p["predicate"] for p in json.loads(row)["value"]] for row in rows] == [
        [e.words[p.word] for p in e.label.predicates] for e in gold
    ]
    fails("predict", folder, SENTENCE, "--conll", "--json", message="exclude each other")


def test_columns_of_explain(folder, tmp_path):
    page = tmp_path / "e.html"
    shown = ok("explain", folder, SENTENCE, "--method", "occlusion", "-o", page).out
    assert re.search(r"\d(-\d)? .* ARG|no role", shown)
    for column in ("predicate", "role"):
        ok("explain", folder, SENTENCE, "--column", column, "--method", "occlusion", "-o", page)
    shown = ok("explain", folder, "Ann ran the shop .", "--column", "sense", "--method",
               "gradient-input", "-o", page).out  # fmt: skip
    assert "run.0" in shown
    fails("explain", folder, SENTENCE, "--column", "nonsense", "-o", page, message="Unknown column")
    fails("explain", folder, SENTENCE, "--word", "9", "-o", page, message="There is no word '9'")


def _train_to_the_end(recipe, files, folder):
    weft.train(
        small(files, recipe, **{"train.epochs": 3, "train.save_every": 1}), folder, quiet=True,
        device="cpu", resume=folder.exists(),
    )  # fmt: skip


@pytest.mark.parametrize("recipe", ["srl-bilstm-crf", "srl-spans"])
def test_killed_and_resumed_weights_are_bit_identical(recipe, files, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    _train_to_the_end(recipe, files, whole)
    process = FORK_SERVER.Process(target=_train_to_the_end, args=(recipe, files, killed))
    process.start()
    checkpoint = killed / "checkpoints/last.safetensors"
    while process.is_alive() and not checkpoint.exists():
        process.join(0.01)
    process.kill()
    process.join(60)
    _train_to_the_end(recipe, files, killed)
    assert digest(killed) == digest(whole)


def test_spans_learn_too(files, tmp_path):
    config_ = small(files, "srl-spans", **{"train.epochs": 12})
    found = weft.train(config_, tmp_path / "run", quiet=True, device="cpu").figures["dev"]
    assert found["predicate_f1"].value > 0.8
    assert found["f1"].value > 0.2


def test_synthetic_sentences_are_sound_and_the_same_every_time(files, tmp_path):
    parts = generate_roles(seed=3, size=60)
    assert parts == generate_roles(seed=3, size=60)
    assert parts != generate_roles(seed=4, size=60)
    for example in [e for some in parts.values() for e in some]:
        for one in example.label.predicates:
            spans = sorted((r.start, r.end) for r in one.roles)
            assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
            assert any(r.label == "V" and r.start == one.word for r in one.roles)
    write(parts["dev"], tmp_path / "a.conll", format="roles")
    back = list(read(tmp_path / "a.conll", format="roles"))
    assert [(e.words, e.label, e.id) for e in back] == [
        (e.words, e.label, e.id) for e in parts["dev"]
    ]
    assert "error" not in ok("check", files / "train.conll").out.lower()
    ok("demo", "--roles", tmp_path / "demo", "--quiet")
    fails("demo", "--roles", tmp_path / "a.conll", message="is a file. Pass a folder")


def test_compare_recognises_the_task(files):
    from weft.compare.prepare import find_tasks
    from weft.run.data import Data

    assert find_tasks(Data(train=str(files / "train.conll")))[0] == "srl"
    assert find_tasks(Data(train=str(files / "train.conll"), format="roles")) == ("srl",)
    assert "srl" not in find_tasks(Data(train=str(files / "train.conll"), text=1, label=2))


WORDS = "The\nold\ncat\nsaw\nher\n\nIt\nslept\n\n"
PROPS = (
    "-  -  (A0*\n-  -  *\n-  -  *)\n01  see  (V*)\n-  -  (A1*)\n\n-  -  (A0*)\n01  sleep  (V*)\n\n"
)


def test_words_and_propositions_of_conll_2005_are_two_files(tmp_path):
    (tmp_path / "w").write_text(WORDS, "utf-8")
    (tmp_path / "p").write_text(PROPS, "utf-8")
    path = f"{tmp_path}/w,{tmp_path}/p"
    first, second = read_roles(path)
    assert first.words == ("The", "old", "cat", "saw", "her")
    assert first.label.to_rows() == (
        (3, "see.01", (("A0", 0, 3), ("V", 3, 4), ("A1", 4, 5))),
    )  # fmt: skip
    assert second.label.predicates[0].sense == "sleep.01"
    assert detect_roles(path).words == 0
    (tmp_path / "w").write_text(WORDS.replace("old\n", ""), "utf-8")
    with pytest.raises(UserError, match=r"w:5: no word here, but .*p has one"):
        list(read_roles(path))


def test_overlapping_roles_are_learned_in_part_and_counted():
    roles = (Span("ARG0", 0, 2), Span("ARG1", 1, 2), Span("ARGM-TMP", 2, 4), Span("V", 1, 2))
    example = Example("a b c d", Frames((Predicate(3, "x.01", roles),)), words=tuple("abcd"))
    tally = SkipCounter()
    task = SemanticRoles()
    assert task.prepare(example, tally) is example
    assert list(tally.counts) == ["predicates with overlapping roles, learned in part"]
    space = task.space([example])
    names = [
        (space.roles[label], start, end)
        for _, label, start, end in task.target(example, space).tolist()
        if start >= 0
    ]
    assert names == [("ARG0", 0, 2), ("V", 3, 4)]  # V is where the file marks the predicate
    assert task.find_reference(example) is example.label


def test_senses_follow_the_forms_of_training():
    seen = [("killed", "kill.01"), ("makes", "make.01"), ("making", "make.02"), ("gave", "give.01"),
            ("gave", "give_up.09"), ("running", "run.02"), ("baking", "bake.01")]  # fmt: skip
    inventory = SenseInventory.learn(seen)

    def names(word):
        return sorted(inventory.senses[i] for i in inventory.candidates(inventory.group_of(word)))

    assert names("Gave") == ["give.01", "give_up.09"]
    assert names("kills") == ["kill.01"]
    assert names("making") == ["make.01", "make.02"]
    assert names("taking") == []
    assert inventory.default_sense("taking") == "take.01"
    assert inventory.default_sense("Zorked") == "zork.01"
    assert SenseInventory.learn([("saw", "see")]).default_sense("heard") == "heard"


def test_frames_are_drawn_as_a_line_for_each_predicate(run):
    (answer,) = run.predictor(["Ann said that Bo slept ."])
    html, text = draw(answer.structure), draw_terminal(answer.structure).plain
    assert html.count('class="tagged"') == len(answer.value) == text.count("\n") + 1
    gold = Annotation.from_json(answer.structure.to_json())
    assert gold.frames == answer.structure.frames
    assert draw(answer.structure, gold) == html
    wrong = ((answer.structure.frames[0][0], "x.01", (("ARG3", 0, 1),)),)
    other = Annotation("frames", gold.words, gold.places, frames=wrong)
    assert 'class="off"' in draw(answer.structure, other)
    assert draw_terminal(answer.structure, other).plain.startswith("model ")
    assert "Ann said" in draw(Annotation("frames", ("Ann", "said")))


GOOD = "1\tAnn\t-\t(ARG0*)\n2\tslept\tsleep.01\t(V*)\n3\t.\t-\t*\n\n" * 6
BAD_FILES = {
    "no role columns": ("a\tX\nb\tY\n\n" * 4, "no column of brackets such as"),
    "empty": ("", "file is empty|no column of brackets"),
    "plain text": ("Ann slept .\nBo ran .\n", "no column of brackets such as"),
    "unclosed": (GOOD + "1\tBo\t-\t(ARG0*\n2\tran\trun.01\t(V*)\n\n", ":25: unclosed bracket"),
    "unopened": (GOOD + "1\tBo\t-\t*)\n2\tran\trun.01\t(V*)\n\n", ":25: unopened bracket"),
    "malformed": (GOOD + "1\tBo\t-\tARG0\n2\tran\trun.01\t(V*)\n\n", ":25: malformed bracket"),
    "too few columns": (GOOD + "1\tBo\t-\n2\tran\trun.01\n\n", "role columns: 0 role columns, 1"),
    "too many columns": (GOOD + "1\tBo\t-\t*\n2\tran\t-\t*\n\n", "1 role columns, 0 predicates"),
    "ragged": (GOOD + "1\tBo\t-\t*\n2\tran\trun.01\n\n", "ragged sentence: 3 columns"),
    "no arguments": ("1\tGo\tgo.01\t(V*)\n2\t!\t-\t*\n\n" * 6, "no predicate has an argument"),
    "not UTF-8": (GOOD.encode() + b"1\t\xff\t-\t(ARG0*)\n2\tran\trun.01\t(V*)\n\n", "UTF-8"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_are_one_line_errors(name, tmp_path):
    contents, message = BAD_FILES[name]
    raw = contents if isinstance(contents, bytes) else contents.encode()
    (tmp_path / "a.conll").write_bytes(raw)
    done = command("train", "--recipe", "srl-bilstm-crf", "--train", tmp_path / "a.conll",
                   "-o", tmp_path / "run")  # fmt: skip
    assert done.status == 2, done.err
    last = done.err.strip().splitlines()[-1]
    assert re.search(message, last), last
    assert "a.conll" in last
    assert "Traceback" not in done.err


def test_bad_rows_can_be_skipped(tmp_path):
    (tmp_path / "a.conll").write_text(BAD_FILES["unclosed"][0], "utf-8")
    tally = SkipCounter()
    kept = list(read_roles(tmp_path / "a.conll", on_bad_row="skip", skipped=tally))
    assert len(kept) == 6
    assert list(tally.counts) == ["unclosed bracket"]


def test_other_tasks_and_heads_are_refused(files, tmp_path):
    train = ("--train", files / "train.conll", "-o", tmp_path / "x")
    fails("train", "--recipe", "srl-bilstm-crf", *train, "--set", "head.layers=-1",
          message="'layers' is -1")  # fmt: skip
    fails("train", "--recipe", "srl-bilstm-crf", *train, "--set", "head.hidden=0",
          message="hidden")  # fmt: skip
    fails("train", "--recipe", "srl-bilstm-crf", *train, "--set", "pool.kind=mean",
          message="needs a state per word|pool")  # fmt: skip
    fails("train", "--recipe", "tagger-bilstm", *train, "--set", "head.kind=role-crf",
          "--text", 1, "--label", 2, message="answers the task 'srl', not 'tag'")  # fmt: skip
    (tmp_path / "t.tsv").write_text("text\tlabel\na b\tx\n" * 3, "utf-8")
    fails("train", "--recipe", "srl-bilstm-crf", "--train", tmp_path / "t.tsv",
          "-o", tmp_path / "y", message="no column of brackets")  # fmt: skip


def test_a_file_without_roles_cannot_be_evaluated(folder, tmp_path):
    (tmp_path / "a.txt").write_text("Ann slept .\n", "utf-8")
    fails("evaluate", folder, tmp_path / "a.txt", message="no semantic roles|no label")


@pytest.mark.parametrize(
    "damage",
    [{}, {"roles": 3}, {"roles": ["ARG0"]}, {"senses": []}, {"forms": [[]]}, {"forms": "x"}],
)
def test_damaged_label_spaces_are_refused(damage):
    saved = {"roles": ["ARG0", "V"], "senses": ["go.01"], "forms": [["went", "go"]]}
    assert RoleSpace.from_json(saved).size[0] == (("ARG0", "V"), "")
    with pytest.raises(UserError, match="saved roles are damaged"):
        RoleSpace.from_json({**saved, **damage} if damage else {})
