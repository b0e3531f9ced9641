"""Datasets by name, from local folders; the hub itself is never reached."""

import datasets
import pytest

import weft
from weft.errors import UserError
from weft.text.tables.hub import load_hub_table

ROWS = [{"text": f"a good film {i}", "label": "pos"} for i in range(3)]
OTHERS = [{"text": f"a bad film {i}", "label": "neg"} for i in range(2)]


@pytest.fixture(autouse=True)
def local(tmp_path, monkeypatch):
    """Keep the library's cache in the test's folder, and the network out."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()
    load_hub_table.cache_clear()


def saved(folder):
    both = {"train": datasets.Dataset.from_list(ROWS), "test": datasets.Dataset.from_list(OTHERS)}
    datasets.DatasetDict(both).save_to_disk(folder)
    return folder


def texts(name):
    return [(e.text, e.label, e.where) for e in weft.read(name)]


def test_a_saved_dataset_and_its_splits(tmp_path):
    folder = saved(tmp_path / "a")
    name = f"hf:{folder}"
    expected = [(r["text"], r["label"], f"{name}[{i}]") for i, r in enumerate(ROWS)]
    assert texts(name) == expected
    assert [text for text, *_ in texts(f"{name}:test")] == [row["text"] for row in OTHERS]
    with pytest.raises(UserError, match=r"no split 'tset'; found train, test. Did you mean 'test'"):
        texts(f"{name}:tset")


def test_a_dataset_without_splits(tmp_path):
    datasets.Dataset.from_list(ROWS).save_to_disk(tmp_path / "a")
    assert len(texts(f"hf:{tmp_path / 'a'}")) == 3
    with pytest.raises(UserError, match=r"the dataset has no splits\. Drop ':test'"):
        texts(f"hf:{tmp_path / 'a'}:test")


@pytest.mark.parametrize("ending", ["parquet", "csv", "json"])
def test_a_folder_of_files(ending, tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    for split, rows in (("train", ROWS), ("test", OTHERS)):
        getattr(datasets.Dataset.from_list(rows), f"to_{ending}")(
            folder / f"{split}.{'jsonl' if ending == 'json' else ending}"
        )
    assert [text for text, *_ in texts(f"hf:{folder}")] == [row["text"] for row in ROWS]
    assert [text for text, *_ in texts(f"hf:{folder}:test")] == [row["text"] for row in OTHERS]


def test_bad_names(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\n")
    for name, message in (
        ("hf:", "no dataset. Write hf:NAME"),
        (f"hf:{tmp_path / 'a.csv'}", "not a folder. Pass a file without 'hf:'"),
        (f"hf:{tmp_path / 'missing'}", "not a folder"),
        ("hf:no-such/dataset", "cannot load the dataset"),
    ):
        with pytest.raises(UserError, match=message):
            texts(name)
