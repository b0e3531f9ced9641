"""hf:FOLDER in place of a file: train, evaluate, check and compare on a local dataset."""

import datasets
import pytest

from tests.fixtures.command import command
from weft.text.synthetic.corpora import generate_reviews
from weft.text.tables.hub import load_hub_table


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    load_hub_table.cache_clear()
    parts = generate_reviews()
    rows = {
        name: datasets.Dataset.from_list(
            [{"review": e.text, "sentiment": e.label} for e in parts[name][:count]]
        ).class_encode_column("sentiment")
        for name, count in (("train", 120), ("test", 40))
    }
    path = tmp_path_factory.mktemp("hub") / "reviews"
    datasets.DatasetDict(rows).save_to_disk(path)
    return path


def test_train_evaluate_check_and_compare(folder, tmp_path):
    train, test, run = f"hf:{folder}", f"hf:{folder}:test", tmp_path / "run"
    done = command("train", "--recipe", "tfidf", "--train", train, "--test", test, "-o", run)
    assert done.status == 0, done.err
    assert "text: column 'review'; label: column 'sentiment'" in done.out + done.err
    assert f'train = "{train}"' in (run / "config.toml").read_text()
    done = command("evaluate", run, test)
    assert done.status == 0, done.err
    assert "n=40" in done.out
    done = command("check", train, test)
    assert done.status in (0, 1), done.err
    assert "train" in done.out
    done = command(
        "compare", train, test, "-o", tmp_path / "c", "--recipes", "tfidf", "--seeds", "1"
    )
    assert done.status == 0, done.err


def test_a_bad_row_is_located(tmp_path):
    rows = [{"text": "a film", "label": "x"}, {"text": None, "label": "y"}]
    datasets.Dataset.from_list(rows).save_to_disk(tmp_path / "bad")
    name = f"hf:{tmp_path / 'bad'}"
    done = command("train", "--recipe", "tfidf", "--train", name, "-o", tmp_path / "run")
    assert done.status == 2
    assert f"{name}[1]: 'text' has no value" in done.err
