"""Answer spans from file to answer: BiDAF and a small BERT, windows, and questions without one."""

import json
from dataclasses import replace

import pytest

import weft
from tests.fixtures.command import command
from tests.fixtures.span_runs import BIDAF, NAMES, SMALL, TOWNS, bert_span, files, squad
from weft.compare.detect_task import detect_tasks
from weft.compare.sentence_scores import ratio_terms, score_sentence
from weft.config import recipe
from weft.errors import UserError
from weft.predict import load
from weft.predict.evaluate import evaluate
from weft.report.compare import compare
from weft.run.data import Data, unused_second_text
from weft.run.split import apply_holdout, choose_holdout, cross_validation_splits, from_files
from weft.tasks.classify import Classify
from weft.tasks.extractive_qa import annotate_passage
from weft.text.example import GoldAnswers
from weft.text.read import read


@pytest.fixture(scope="module")
def bidaf(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bidaf")
    path = squad(folder / "train.json")
    config = recipe("bidaf").with_values({**files(path), **BIDAF}, "test")
    weft.train(config, folder / "run", quiet=True, device="cpu")
    return folder


def test_bidaf_learns_and_is_loaded_again(bidaf):
    predictor = load(bidaf / "run")
    examples = list(read(bidaf / "train.json"))
    figures = evaluate(predictor, examples).compute(resamples=10)
    assert figures["em"].value > 0.9
    assert figures["f1"].n == 23
    assert predictor.config["task"]["no_answer"] is False
    for example, answer in zip(
        examples, predictor([(e.text, e.other) for e in examples]), strict=True
    ):
        ((start, end, chance),) = answer.parts
        assert example.other[start:end] == answer.value
        assert answer.score == chance <= 1
        assert answer.coverage == 1


def test_a_passage_with_accents_and_spaces_keeps_its_places(bidaf):
    predictor = load(bidaf / "run")
    passage = "\u00a0Émile  lives in\tOslo — Ada lives in 東京."
    (answer,) = predictor([("Where does Ada live?", passage)])
    ((start, end, _),) = answer.parts
    assert passage[start:end] == answer.value != ""
    (empty,) = predictor([("Where?", "")])
    assert (empty.value, empty.coverage, empty.parts) == ("", 0.0, ())


def test_predict_and_evaluate(bidaf, tmp_path):
    table = tmp_path / "ask.csv"
    passage = "Ada lives in Oslo.  Ben lives in Lima."
    table.write_text(f"question,context\nWhere does Ben live?,{passage}\n")
    done = command("predict", bidaf / "run", table, "--json")
    assert done.status == 0, done.err
    said = json.loads(done.out)
    assert said["value"] == passage[said["start"] : said["end"]] != ""
    assert 0 < said["score"] <= 1
    done = command("predict", bidaf / "run", table)
    assert done.out.split("\t")[0] == said["value"]
    rows = "".join(f"Where does {i} live?,{i} and {passage}\n" for i in range(23))
    table.write_text(f"question,context\n{rows}")  # of which one could become the other
    done = command("predict", bidaf / "run", table)
    assert done.status == 0, done.err
    assert len(done.out.splitlines()) == 23
    done = command("evaluate", bidaf / "run", bidaf / "train.json", "--json")
    assert done.status == 0, done.err
    assert set(json.loads(done.out)) == {"em", "f1"}


def test_the_page_marks_answers_in_their_passages(bidaf, tmp_path):
    page = tmp_path / "page.html"
    wrong = squad(tmp_path / "other.json", people=2)  # one unlike those it was trained on
    done = command("evaluate", bidaf / "run", wrong, "--report", page)
    assert done.status == 0, done.err
    text = page.read_text()
    assert "lives in" in text
    assert "<mark" in text
    asked = next(read(wrong))
    assert f"<h3>{asked.text}<small>{wrong}:1: question &#39;q0&#39;</small></h3>" in text
    assert "<th>questions</th>" in text
    assert "sentences" not in text
    done = command("evaluate", bidaf / "run", wrong, "--errors", 23)
    assert f"{wrong}:1: question 'q0'\n{asked.text}\n" in done.out


def test_pages_count_answers_as_the_measure_does(bidaf):
    """The best reference stands beside an answer, so that shares add up to the figures."""
    predictor = load(bidaf / "run")
    examples = [
        replace(e, label=GoldAnswers((*e.label.texts, e.other[:20]), (*e.label.starts, 0)))
        for e in read(bidaf / "train.json")
    ]
    figures = evaluate(predictor, examples).compute(resamples=0)
    answers = predictor([(e.text, e.other) for e in examples])
    pairs = [
        (answer.structure, predictor.task.gold(example, predictor.space, answer))
        for example, answer in zip(examples, answers, strict=True)
    ]
    for metric in ("em", "f1"):
        shares = [ratio_terms(*pair, metric)[0] for pair in pairs]
        assert sum(shares) / len(shares) == pytest.approx(figures[metric].value)
    none = annotate_passage("Oslo.")
    assert ratio_terms(none, none) == (1.0, 1.0)
    assert score_sentence(none, annotate_passage("Oslo.", (0, 4))).confusions == [
        ("answer", "no answer")
    ]
    wrong = score_sentence(
        annotate_passage("Oslo, Lima", (0, 4)), annotate_passage("Oslo, Lima", (6, 10))
    )
    assert (wrong.correct, wrong.confusions) == ([], [("answer", "(another answer)")])
    assert detect_tasks(examples) == ("span",)


def test_bert_learns_windows_and_that_there_is_no_answer(tmp_path):
    path = squad(tmp_path / "train.json", people=5, none=True)
    config = bert_span(path, **{"data.max_tokens": 28, "data.overlap": 0.4})
    outcome = weft.train(config, tmp_path / "run", quiet=True, device="cpu")
    predictor = load(tmp_path / "run")
    assert predictor.config["task"]["no_answer"] is True
    assert outcome.figures["dev"]["f1"].value > 0.9
    assert {"has_answer_f1", "no_answer_f1"} < set(outcome.figures["dev"])
    examples = list(read(path))
    engine = predictor.engine
    rows = list(engine.indexer.rows([examples[1].text], others=[examples[1].other]))
    assert len(rows) > 1
    assert all(row.coverage == 1 for row in rows)
    question = {tuple(row.ids[: row.second].tolist()) for row in rows}
    assert len(question) == 1  # the whole question is in each
    answers = predictor([(e.text, e.other) for e in examples])
    assert [a.value for a in answers if not a.parts] == [""] * sum(not a.value for a in answers)
    assert any(not a.value for a in answers)
    done = command("predict", tmp_path / "run", path, "--json")
    empty = next(row for row in map(json.loads, done.lines) if not row["value"])
    assert (empty["start"], empty["end"]) == (None, None)


def test_windows_without_the_answer_are_not_learned(tmp_path):
    """Without `no_answer` there is nothing that they could point at."""
    path = squad(tmp_path / "train.json", people=5)
    config = bert_span(path, **{"data.max_tokens": 28, "train.epochs": 1, "data.truncate": "head"})
    outcome = weft.train(config, tmp_path / "run", quiet=True, device="cpu")
    assert any("train texts read only in part" in note for note in outcome.record["notes"])
    assert outcome.figures["dev"]["f1"].n == 23  # all are measured


def test_answers_inside_of_tokens_are_counted(tmp_path):
    path = squad(tmp_path / "train.json")
    whole = json.loads(path.read_text())
    asked = whole["data"][0]["paragraphs"][0]["qas"][0]
    first = asked["answers"][0]
    first["text"] = first["text"][:-1]
    path.write_text(json.dumps(whole))
    outcome = weft.train(
        bert_span(path, **{"train.epochs": 1}), tmp_path / "run", quiet=True, device="cpu"
    )
    assert any("1 train answer widened to whole tokens" in n for n in outcome.record["notes"])


def test_dev_has_passages_of_its_own(tmp_path):
    path = squad(tmp_path / "train.json", count=40)
    whole = json.loads(path.read_text())
    for paragraph in whole["data"][0]["paragraphs"]:
        paragraph["qas"].append({**paragraph["qas"][0], "question": f"And {len(str(paragraph))}?"})
    path.write_text(json.dumps(whole))
    splits = from_files(Data(train=str(path), dev_fraction=0.3))
    train, dev = ({e.other for e in side()} for side in (splits.train, splits.dev))
    assert train
    assert dev
    assert not train & dev


def test_dev_has_passages_of_its_own_where_a_table_has_no_places(tmp_path):
    path = tmp_path / "asked.csv"
    rows = [
        f"{who} {i}?,Cleo met {name} in {town} on day {i}.,{answer}"
        for i, (name, town) in enumerate((n, t) for n in NAMES for t in TOWNS)
        for who, answer in (("Who", name), ("Where", town), ("Why", ""))
    ]
    path.write_text("question,context,answer\n" + "\n".join(rows) + "\n")
    listed = tmp_path / "asked.jsonl"  # answers without places, several a question
    cells = [
        dict(zip(("question", "context", "answers"), row.split(","), strict=True)) for row in rows
    ]
    lines = [
        json.dumps({**row, "answers": [row["answers"]] * bool(row["answers"])}) for row in cells
    ]
    listed.write_text("\n".join(lines) + "\n")
    cut = []
    for data in (
        Data(train=str(path), dev_fraction=0.3),
        Data(train=str(listed), dev_fraction=0.3),
    ):
        cut += [
            from_files(data),
            apply_holdout(data, choose_holdout(data)),
            *cross_validation_splits(data, 3),
        ]
    for splits in cut:
        parts = [side for side in (splits.train, splits.dev, splits.test) if side]
        passages = [{e.other for e in side()} for side in parts]
        assert all(passages)
        assert sum(map(len, passages)) == len(set().union(*passages)) == len(NAMES) * len(TOWNS)


def test_questions_of_a_table_are_compared_as_questions(tmp_path):
    """Some have no answer, as the first of the test part: the part is written nevertheless."""
    path = tmp_path / "asked.csv"
    rows = [
        f"{who}?,Cleo met {name} in {town} on day {i}.,{answer}"
        for i, (name, town) in enumerate((n, t) for n in NAMES for t in TOWNS)
        for who, answer in (("Why", ""), ("Who", name))
    ]
    path.write_text("question,context,answer\n" + "\n".join(rows) + "\n")
    changes = {**SMALL, **BIDAF, "train.epochs": 1, "task.no_answer": True}
    out = tmp_path / "out"
    (row,) = compare([str(path)], out, recipes=["bidaf"], seeds=1, quiet=True, changes=changes)
    assert row.error is None
    test = list(read(out / "test.json"))
    page = (out / "report.html").read_text()
    assert f"<b>{len(test)}</b> test questions</li>" in page
    assert "Length of questions with their passages" in page
    figures = evaluate(load(out / "model"), test).compute(resamples=0)
    assert figures["f1"].value == pytest.approx(row.values[0])


def test_note_names_the_recipes_that_read_the_passage(tmp_path):
    path = squad(tmp_path / "train.json")
    note = unused_second_text(lambda: read(path), Classify())
    assert note.endswith("--recipe bidaf, or another of the task 'span', finds the answers in it")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"data.truncate": "head+tail"}, "would let an answer reach over what is not read"),
        ({"pair.kind": "towers"}, "pair 'towers' makes one vector of two texts"),
        ({"task.kind": "pair-classify"}, "The head 'span' answers the task 'span'"),
        ({"pool.kind": "mean"}, "set pool.kind to 'none'"),
        ({"data.overlap": 1.0}, "data.overlap should be at least 0 and below 1, got 1.0"),
        ({"head.frame": 3}, "Remove 'frame' from head 'span': the model works it out itself"),
    ],
)
def test_incompatible_settings_raise_user_error(tmp_path, changes, told):
    path = squad(tmp_path / "train.json")
    with pytest.raises(UserError) as error:
        weft.train(bert_span(path, **changes), tmp_path / "run", quiet=True, device="cpu")
    assert told in str(error.value)


def test_a_question_without_an_answer_has_to_be_allowed(tmp_path):
    path = squad(tmp_path / "train.json", none=True)
    config = bert_span(path, **{"task.no_answer": False})
    with pytest.raises(UserError, match=r"question 'q0': this question has no answer\. Set task"):
        weft.train(config, tmp_path / "run", quiet=True, device="cpu")
    config = bert_span(
        path, **{"task.no_answer": False, "data.on_bad_row": "skip", "train.epochs": 1}
    )
    outcome = weft.train(config, tmp_path / "skipped", quiet=True, device="cpu")
    assert outcome.figures["dev"]["f1"].n == 15
