"""A number at each word: from files to answers, drawings and errors."""

import json

import pytest

import weft
from tests.fixtures.command import ok
from weft.config import recipe
from weft.errors import UserError
from weft.predict import load
from weft.report.drawings.draw import draw, draw_terminal

VALUES = {"the": 0.5, "very": 1.0, "red": 2.5, "dog": 4.0, "runs": 3.0}
TEXTS = ("the dog runs", "the red dog", "very red", "dog runs very red", "the very red dog runs")
NETWORK = {
    "embedder.0.width": 11, "embedder.0.dropout": 0.0, "embedder.0.word_dropout": 0.0,
    "encoder.hidden": 7, "head.dropout": 0.0, "train.epochs": 40, "train.learning_rate": 0.02,
    "train.patience": 0, "train.ema_decay": 0.0, "tokenizer.min_count": 1,
}  # fmt: skip


def conll(path, third=False):
    cells = {word: "X\t7.5" if third else str(value) for word, value in VALUES.items()}
    lines = ["".join(f"{w}\t{cells[w]}\n" for w in text.split()) for text in TEXTS * 4]
    path.write_text("\n".join(lines), "utf-8")
    return str(path)


def jsonl(path, numbers=None):
    rows = [
        {"text": text, "label": [VALUES[word] for word in text.split()][:numbers]}
        for text in TEXTS * 4
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return str(path)


def trained(folder, file, **changes):
    values = {"data.train": file, "data.dev": file, **NETWORK, **changes}
    config = recipe("word-numbers").with_values(values, "test")
    return weft.train(config, folder / "run", quiet=True)


@pytest.mark.parametrize("write", [conll, jsonl])
def test_numbers_of_words_are_learned_from_columns_and_lists(tmp_path, write):
    out = trained(tmp_path, write(tmp_path / f"train.{write.__name__}"))
    assert out.figures["dev"]["pearson"].value > 0.95
    assert set(out.figures["dev"]) == {"pearson", "spearman", "mse"}
    again = load(tmp_path / "run")  # replays its recorded answers
    (answer,) = again(["the red dog"])
    assert answer.value == pytest.approx((0.5, 2.5, 4.0), abs=1.0)
    assert answer.structure.kind == "word-numbers"
    assert answer.value == out.predictor(["the red dog"])[0].value
    assert again([" "])[0].value == ()


def test_words_without_a_number_cost_nothing(tmp_path):
    file = tmp_path / "train.conll"
    conll(file)
    file.write_text(file.read_text("utf-8").replace("very\t1.0", "very\t_"), "utf-8")
    out = trained(tmp_path, str(file))
    assert out.figures["dev"]["pearson"].value > 0.95


def test_heat_strip_colours_words_by_their_number(tmp_path):
    predictor = trained(tmp_path, conll(tmp_path / "train.conll")).predictor
    answer = predictor(["the dog"])[0].structure
    page = draw(answer)
    low, high = page.index("the"), page.index("dog")
    assert "#3a7fc4" in page[:low]  # blue: below the mean
    assert "accent" in page[low:high]
    assert f"<small>{answer.tags[0]}</small>" in page
    assert draw_terminal(answer).plain == f"the/{answer.tags[0]} dog/{answer.tags[1]}"


def test_verbs_take_numbers_of_words(tmp_path):
    file = conll(tmp_path / "train.conll")
    trained(tmp_path, file)
    line = ok("predict", tmp_path / "run", "the dog").out.split()
    assert [cell.split("/")[0] for cell in line] == ["the", "dog"]
    shown = ok("evaluate", tmp_path / "run", file, "--report", tmp_path / "page.html").out
    assert "pearson" in shown
    assert "very high" in shown or "high" in shown
    assert "number" in ok("explain", tmp_path / "run", "the red dog", "--word", "dog").out


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data.label": "1"}, r"word 1, 'the': 'X' is not a finite number"),
        ({"task.columns": ["1", "2"]}, r"task.columns names one column of numbers"),
        ({"data.label": "2"}, r"every word has the number 7.5; there is nothing to learn"),
        ({"head.kind": "tags"}, r"The head 'tags' answers the task 'tag', not 'regress-words'"),
    ],
)
def test_bad_columns_are_one_line(tmp_path, changes, message):
    file = conll(tmp_path / "train.conll", third=True)
    with pytest.raises(UserError, match=message):
        trained(tmp_path, file, **{"data.label": "2", **changes})


def test_list_of_another_length_names_the_line(tmp_path):
    with pytest.raises(UserError, match=r"train\.jsonl:1: 2 numbers for 3 words"):
        trained(tmp_path, jsonl(tmp_path / "train.jsonl", 2))
