"""Questions about passages, from SQuAD's JSON and from tables."""

import gzip
import json

import pytest

from weft.errors import UserError
from weft.text.columns import Columns
from weft.text.example import Example, GoldAnswers, SkipCounter
from weft.text.formats.recognise import recognise
from weft.text.formats.squad import check_answers, locate_in_passage, write_squad
from weft.text.read import read

PASSAGE = "The loom stands in Lyon. A weaver in Lyon owns the loom."


def question(name, text="Where?", **more):
    return {"id": name, "question": text, **more}


def answer(text, start):
    return {"text": text, "answer_start": start}


def document(*asked, passage=PASSAGE, version="1.1"):
    paragraph = {"context": passage, "qas": list(asked)}
    return {"version": version, "data": [{"title": "Looms", "paragraphs": [paragraph]}]}


def written(folder, whole, name="made.json", indent=None):
    path = folder / name
    text = json.dumps(whole, indent=indent)
    path.write_bytes(gzip.compress(text.encode())) if name.endswith("gz") else path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["made.json", "made.json.gz", "made"])
def test_each_question_is_an_example(tmp_path, name):
    asked = question("q1", answers=[answer("Lyon", 19), answer("Lyon", "37")])
    path = written(tmp_path, document(asked, question("q2", "Who?", answers=[])), name)
    assert recognise(path) == "squad"
    assert list(read(path)) == [
        Example(
            "Where?", GoldAnswers(("Lyon", "Lyon"), (19, 37)), "q1", str(path), 1, other=PASSAGE
        ),
        Example("Who?", GoldAnswers(), "q2", str(path), 1, other=PASSAGE),
    ]


def test_version_2_says_what_has_no_answer(tmp_path):
    plausible = [answer("Lyon", 19)]
    asked = question("q", answers=plausible, is_impossible=True, plausible_answers=plausible)
    (example,) = read(written(tmp_path, document(asked, version="v2.0")))
    assert example.label == GoldAnswers()


def test_file_without_answers_is_read(tmp_path):
    (example,) = read(written(tmp_path, document(question("q"))))
    assert example.label is None
    assert example.other == PASSAGE


def test_lines_are_those_of_the_ids(tmp_path):
    asked = [question(f"q{i}", answers=[answer("Lyon", 19)]) for i in range(3)]
    path = written(tmp_path, document(*asked), indent=1)
    lines = path.read_text().split("\n")
    for example in read(path):
        assert f'"id": "{example.id}"' in lines[example.line - 1]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (question("q7", answers=[answer("Lyon", 21)]),
         "question 'q7': the answer 'Lyon' is not at character 21 ('on. ' is) "
         "but at 19. Set answer_start to 19"),
        (question("q7", answers=[answer("Lyon", 40)]), "but at 37. Set answer_start to 37"),
        (question("q7", answers=[answer("lyon", 19)]),
         "the answer 'lyon' is not in the passage ('Lyon' does)"),
        (question("q7", answers=[answer("Paris", 19)]), "'Paris' is not in the passage."),
        (question("q7", answers=[answer("Lyon", -4)]), "is not at character -4"),
        (question("q7", answers=[answer(" ", 3)]), "question 'q7': the answer is empty"),
        (question("q7", answers=[{"text": "Lyon"}]), "the offset of its first character"),
        (question("q7", answers="Lyon"), "'answers' must be a list"),
        (question("q7", " ", answers=[]), "question 'q7': 'question' has no text"),
        ({"question": None, "answers": []}, "article 'Looms': 'question' has no text"),
    ],
)  # fmt: skip
def test_malformed_question_is_reported_and_can_be_skipped(tmp_path, asked, told):
    path = written(tmp_path, document(asked, question("good", answers=[answer("Lyon", 19)])))
    with pytest.raises(UserError) as error:
        list(read(path))
    assert told in str(error.value)
    assert str(error.value).startswith(f"{path}:1: ")
    tally = SkipCounter()
    assert [e.id for e in read(path, on_bad_row="skip", skipped=tally)] == ["good"]
    assert sum(tally.counts.values()) == 1


def test_an_empty_passage_and_another_layout(tmp_path):
    path = written(tmp_path, document(question("q", answers=[]), passage=" "))
    with pytest.raises(UserError, match=r"question 'q': the passage \('context'\) is empty"):
        list(read(path))
    path = written(tmp_path, {"data": [{"paragraphs": {"qas": 3}}]})
    with pytest.raises(UserError, match="not in SQuAD layout"):
        list(read(path))
    path.write_text(json.dumps(document(question("q")))[:-9])
    with pytest.raises(UserError, match=r"made\.json:1: not readable as JSON: .*, column"):
        list(read(path))


@pytest.mark.parametrize(
    "whole",
    [
        {"data": []},
        {"version": "1.1", "data": []},
        {"data": [{"title": "t", "paragraphs": []}]},
        {"data": [{"paragraphs": [{"context": PASSAGE, "qas": []}]}]},
    ],
)
def test_a_document_without_questions_is_called_that(tmp_path, whole):
    path = written(tmp_path, whole)
    with pytest.raises(UserError, match=r"made\.json: no questions: every 'qas'"):
        list(read(path))


def test_rows_that_begin_with_data_are_no_document(tmp_path):
    path = tmp_path / "made.jsonl"
    path.write_text('{"data": ["a", "b"], "text": "a b", "label": "x"}\n')
    assert [(e.text, e.label) for e in read(path)] == [("a b", "x")]


def test_tables_with_and_without_places(tmp_path):
    path = tmp_path / "made.csv"
    path.write_text(f'id,question,context,answer,answer_start\n7,Where?,"{PASSAGE}",Lyon,37\n')
    (example,) = read(path)
    assert (example.text, example.other, example.id) == ("Where?", PASSAGE, "7")
    assert example.label == GoldAnswers(("Lyon",), (37,))
    path.write_text(f'question,passage,answer\nWhere?,"{PASSAGE}",Lyon\n')
    (example,) = read(path)
    assert (example.label, example.other) == (GoldAnswers(("Lyon",), (19,)), PASSAGE)
    path.write_text(f'question,context,answer,answer_start\nWhere?,"{PASSAGE}",Lyon,first\n')
    with pytest.raises(UserError, match=r"made\.csv:2: each answer needs a 'text'"):
        list(read(path))


def test_a_table_of_answers_is_checked_against_its_passages(tmp_path):
    path = tmp_path / "made.csv"
    rows = [f'Where?,"{PASSAGE}",{answer}' for answer in ("Lyon", "weaver", "LYON", "")]
    path.write_text("question,context,answer\n" + "\n".join(rows) + "\n")
    told = r"made\.csv:4: the answer 'LYON' is not in the passage \('Lyon' does\)"
    with pytest.raises(UserError, match=told):
        list(read(path))
    tally = SkipCounter()
    labels = [e.label for e in read(path, on_bad_row="skip", skipped=tally)]
    assert labels == [GoldAnswers(("Lyon",), (19,)), GoldAnswers(("weaver",), (27,)), None]
    assert tally.places == {"answer not at its place": [f"{path}:4"]}
    path.write_text(f'question,context,answer,answer_start\nWhere?,"{PASSAGE}",Lyon,36\n')
    with pytest.raises(UserError, match=r"made\.csv:2: .* not at character 36.* but at 37"):
        list(read(path))


def test_answers_are_seen_whatever_their_column_is_called(tmp_path):
    path = tmp_path / "made.tsv"
    said = ("Lyon", "weaver", "loom") * 11
    rows = [f"Was {i}?\t{PASSAGE}\t{answer}\n" for i, answer in enumerate(said)]
    path.write_text("frage\tabsatz\tantwort\n" + "".join(rows))
    own = Columns(text="frage", text_pair="absatz", label="antwort")
    assert [e.label.texts for e in read(path, columns=own)] == [(answer,) for answer in said]
    rows[:5] = [f"Was {i}?\t{PASSAGE}\tBern\n" for i in range(5)]
    path.write_text("frage\tabsatz\tantwort\n" + "".join(rows))
    assert {e.label for e in read(path, columns=own)} > {"Lyon", "Bern"}  # classes, it seems


def test_answers_that_are_classes_stay_so(tmp_path):
    path = tmp_path / "made.csv"
    rows = [f'Where is {i}?,"{PASSAGE}",{("yes", "no")[i % 2]}' for i in range(29)]
    path.write_text("question,passage,answer\n" + "\n".join(rows) + "\n")
    assert {e.label for e in read(path)} == {"yes", "no"}
    rows = [f'Where is {i}?,"{PASSAGE}",{"ae"[i % 2]}' for i in range(29)]  # letters of the passage
    path.write_text("question,passage,label\n" + "\n".join(rows) + "\n")
    assert {e.label for e in read(path)} == {"a", "e"}


@pytest.mark.parametrize(
    "given",
    [
        {"answers": {"text": ["Lyon", "Lyon."], "answer_start": [37, 19]}},
        {"answers": [answer("Lyon", 37), answer("Lyon.", 19)]},
        {"answer": ["Lyon", "Lyon."], "answer_start": [37, 19]},
    ],
)
def test_rows_of_json(tmp_path, given):
    path = tmp_path / "made.jsonl"
    path.write_text(json.dumps({"question": "Where?", "context": PASSAGE, **given}) + "\n")
    (example,) = read(path)
    assert example.label == GoldAnswers(("Lyon", "Lyon."), (37, 19))
    assert example.other == PASSAGE
    asked = Columns(text="question", label="", text_pair="context")
    assert next(read(path, columns=asked)).label is None


def test_answers_are_found_by_their_text():
    assert locate_in_passage(("Lyon", "weaver"), PASSAGE) == GoldAnswers(
        ("Lyon", "weaver"), (19, 27)
    )
    with pytest.raises(UserError, match="is not in the passage"):
        locate_in_passage(("Bern",), PASSAGE)
    check_answers(GoldAnswers(), "")


def test_squad_round_trips(tmp_path):
    asked = [
        question("q1", answers=[answer("Lyon", 37)]),
        question("q2", answers=[]),
        question("3"),
    ]
    whole = document(*asked)
    whole["data"][0]["paragraphs"].append({"context": "Für", "qas": [question("q4")]})
    before = list(read(written(tmp_path, whole)))
    write_squad(before, tmp_path / "again.json")
    after = list(read(tmp_path / "again.json"))
    assert [(e.id, e.text, e.other, e.label) for e in after] == [
        (e.id, e.text, e.other, e.label) for e in before
    ]
    again = json.loads((tmp_path / "again.json").read_text())
    assert [len(p["qas"]) for p in again["data"][0]["paragraphs"]] == [3, 1]
