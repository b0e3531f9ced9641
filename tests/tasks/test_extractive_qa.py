"""Answer spans: what is learned of an example, what its windows amount to, when none is said."""

import math
from dataclasses import replace

import numpy as np
import pytest

from weft.errors import UserError
from weft.tasks.extractive_qa import (
    AnswerSpan,
    ExtractiveQA,
    PassageWindow,
    QASpace,
    best_threshold,
    choose_spans,
)
from weft.text.example import Example, GoldAnswers, SkipCounter

PASSAGE = "The loom stands in Lyon. A weaver in Lyon owns the loom."
SPACE = QASpace(30, False)


def example(*places, passage=PASSAGE):
    texts = tuple(passage[a:b] for a, b in places)
    label = GoldAnswers(texts, tuple(a for a, _ in places))
    return Example("Where?", label, "q7", "made.json", 3, other=passage)


def found(text="Lyon", score=2.0, nothing=-math.inf, chance=0.7):
    start = PASSAGE.find(text)
    return AnswerSpan(PASSAGE, start, start + len(text), score, nothing, chance, 0.1)


def test_the_answer_given_most_often_is_learned():
    task = ExtractiveQA()
    three = example((19, 24), (19, 23), (19, 23))
    assert task.target(three, SPACE).tolist() == [[19, 23]]
    assert task.target(example((19, 24), (37, 41)), SPACE).tolist() == [[19, 24]]  # the first
    assert task.find_reference(three) == ("Lyon.", "Lyon", "Lyon")
    assert ExtractiveQA(no_answer=True).target(example(), SPACE).shape == (0, 2)


def test_steps_that_hold_an_answer():
    task = ExtractiveQA()
    # [CLS] where [SEP] The loom stands in [SEP]: only steps of the passage have a place.
    spans = np.array([[0, 0], [0, 0], [0, 0], [0, 3], [4, 8], [9, 15], [16, 18], [0, 0]])
    assert task.locate_answer(np.array([[4, 15]]), spans).tolist() == [4, 5]
    assert task.locate_answer(np.array([[5, 7]]), spans).tolist() == [4, 4]  # inside of a token
    assert task.locate_answer(np.array([[0, 18]]), spans).tolist() == [3, 6]
    assert task.locate_answer(np.array([[16, 23]]), spans).tolist() == [-1, -1]  # cut off
    assert task.locate_answer(np.array([[3, 4]]), spans).tolist() == [-1, -1]  # between tokens
    assert task.locate_answer(np.zeros((0, 2), int), spans).tolist() == [-1, -1]
    later = spans[[0, 0, 4, 5]]
    assert task.locate_answer(np.array([[0, 8]]), later).tolist() == [-1, -1]


def test_the_best_of_all_windows_wins():
    spans = np.array([[0, 3], [4, 8], [9, 15], [16, 18]])
    rows = [
        (PassageWindow(0, PASSAGE, spans), (1, 2, 3.0, 1.0, 3.5)),
        (PassageWindow(0, PASSAGE, spans + 16), (0, 1, 5.0, 4.0, 5.5)),
        (PassageWindow(2, PASSAGE, spans), (0, 0, 0.5, -math.inf, 0.5)),
    ]
    first, none, last = choose_spans(rows, 3)
    assert (first.start, first.end, first.score, first.nothing) == (16, 24, 5.0, 1.0)
    assert first.text == PASSAGE[16:24]
    # Of "none" the lowest counts, once.
    whole = math.exp(3.5) + math.exp(5.5) + math.exp(1.0)
    assert first.prob == pytest.approx(math.exp(5.0) / whole)
    assert first.no_answer_prob == pytest.approx(math.exp(1.0) / whole)
    assert none.text == ""
    assert (last.text, last.prob, last.no_answer_prob) == ("The", pytest.approx(1.0), 0.0)


def test_answers_have_a_text_and_a_place():
    task = ExtractiveQA(no_answer=True)
    space = QASpace(30, True, threshold=1.5)
    given = [found(), found(nothing=3.4), found(nothing=3.6)]
    said = task.answers(given, space)
    assert [one.value for one in said] == ["Lyon", "Lyon", ""]
    assert said[0].parts == ((19, 23, 0.7),)
    assert said[0].structure.spans == ((19, 23, "answer"),)
    assert said[0].structure.text == PASSAGE
    assert (said[2].score, said[2].parts, said[2].structure.spans) == (0.1, (), ())
    assert task.predict_targets(given, space) == ["Lyon", "Lyon", ""]
    # Without the option none is never said, whatever the scores are.
    assert ExtractiveQA().predict_targets([found(nothing=9.0)], SPACE) == ["Lyon"]


def test_gold_is_the_right_answer_that_was_given():
    task = ExtractiveQA()
    two = example((19, 23), (19, 23), (37, 41))
    (said,) = task.answers([replace(found(), start=37, end=41)], SPACE)
    assert task.gold(two, SPACE, said).spans == ((37, 41, "answer"),)
    assert task.gold(two, SPACE).spans == ((19, 23, "answer"),)
    (wrong,) = task.answers([found("weaver")], SPACE)
    assert task.gold(two, SPACE, wrong).spans == ((19, 23, "answer"),)


def test_the_threshold_is_the_best_of_all():
    random = np.random.default_rng(0)
    for _ in range(50):
        margins = random.integers(-3, 4, 9).astype(float)
        answered, silent = random.integers(0, 2, (2, 9)).astype(float)
        cut = best_threshold(margins, answered, silent)

        def score(at, margins=margins, answered=answered, silent=silent):
            return np.where(margins > at, silent, answered).sum()

        assert score(cut) == max(score(at) for at in np.arange(-5, 6) + 0.5)


def test_tuning_looks_at_f1():
    task = ExtractiveQA(no_answer=True)
    given = [found(nothing=1.0), found(nothing=4.0), found(nothing=6.0)]
    tuned = task.tune(given, [("Lyon",), (), ()], QASpace(30, True))
    assert -1.0 < tuned.threshold < 2.0
    right = [("Lyon",), ("in Lyon",), ()]  # half an answer is better than none
    assert 2.0 < task.tune(given, right, QASpace(30, True)).threshold < 4.0
    assert ExtractiveQA().tune(given, right, SPACE) is SPACE
    assert task.load_space(tuned.to_json()) == tuned


def test_tables_are_made_ready():
    task, tally = ExtractiveQA(), SkipCounter()
    plain = Example("Where?", "Lyon", file="made.csv", line=2, other=PASSAGE)
    assert task.prepare(plain, tally).label == GoldAnswers(("Lyon",), (19,))
    several = replace(plain, label=("Lyon", "weaver"))
    assert task.prepare(several, tally).label.starts == (19, 27)
    nothing = replace(plain, label=None)
    assert ExtractiveQA(no_answer=True).prepare(nothing, tally).label == GoldAnswers()
    told = "there is no answer. Fill it in, or pass --on-bad-row skip.* task.no_answer=true"
    with pytest.raises(UserError, match=told):
        task.prepare(nothing, tally)
    with pytest.raises(UserError, match=r"made\.csv:2: the answer 'Bern' is not in the passage"):
        task.prepare(replace(plain, label="Bern"), tally)
    with pytest.raises(UserError, match=r"question 'q7': .* but at 19\. Set answer_start to 19"):
        task.prepare(replace(example((19, 23)), label=GoldAnswers(("Lyon",), (20,))), tally)
    with pytest.raises(UserError, match=r"made\.csv:2: no second text beside 'Where\?'"):
        task.prepare(replace(plain, other=None), tally)


def test_unanswerable_data_raises_user_error():
    with pytest.raises(
        UserError, match=r"made\.json:3: question 'q7': this question has no answer"
    ):
        ExtractiveQA().space([example()])
    with pytest.raises(UserError, match="no question has an answer; there is nothing to learn"):
        ExtractiveQA(no_answer=True).space([example()])
    with pytest.raises(UserError, match=r"Give SQuAD's JSON, or a table with the columns"):
        ExtractiveQA().target(Example("text", "label"), SPACE)
    with pytest.raises(UserError, match="'max_answer_tokens' should be at least 1, got 0"):
        ExtractiveQA(max_answer_tokens=0)
    with pytest.raises(UserError, match="The saved labels are damaged"):
        ExtractiveQA().load_space({"longest": 3})


def test_the_file_says_whether_there_may_be_no_answer():
    assert ExtractiveQA.infer({}, [example((19, 23)), example()]) == {"no_answer": True}
    assert ExtractiveQA.infer({}, [example((19, 23))]) == {"no_answer": False}
    assert ExtractiveQA.infer({"no_answer": False}, [example()]) == {}
