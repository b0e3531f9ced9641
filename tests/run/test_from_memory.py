"""Data from memory: the same models, messages and records as from files."""

import json

import datasets
import pandas
import polars
import pyarrow
import pytest

import weft
from weft.config import load as load_config
from weft.errors import UserError

WORDS = ("good fine great superb lovely", "bad dull poor awful weak")
TEXTS = [
    f"a {word} film {number}"
    for number in range(8)
    for side in zip(*(w.split() for w in WORDS), strict=True)
    for word in side
]
LABELS = ["pos" if any(w in text for w in WORDS[0].split()) else "neg" for text in TEXTS]
PASSAGES = [f"{name} lives in {town} ." for name in ("Bo", "Al", "Cy") for town in ("Rome", "Bern")]


def answer(passage):
    town = passage.split()[3]
    return {"text": [town], "answer_start": [passage.index(town)]}


# Task -> configuration, rows, and a file with the same rows in the format of the task.
ROWS = {
    "classify": [{"text": t, "label": k} for t, k in zip(TEXTS, LABELS, strict=True)],
    "regress": [{"text": t, "label": len(t) / 7 + i} for i, t in enumerate(TEXTS[:40])],
    "pair-classify": [
        {"premise": t, "hypothesis": TEXTS[-i], "label": k}
        for i, (t, k) in enumerate(zip(TEXTS[:40], LABELS[:40], strict=True))
    ],
    "seq2seq": [{"source": t, "target": " ".join(t.split()[::-1])} for t in TEXTS[:16]],
    "tag": [{"tokens": p.split(), "tags": ["B-PER", "O", "O", "B-LOC", "O"]} for p in PASSAGES * 4],
    "span": [
        {"question": f"Where does {p.split()[0]} live ?", "context": p, "answers": answer(p)}
        for p in PASSAGES * 2
    ],
    "language": [{"text": text} for text in TEXTS],
}
RECIPES = {
    "classify": ("bag", {"embedder.width": 8}),
    "regress": ("bag", {"embedder.width": 8, "task.kind": "regress"}),
    "pair-classify": ("towers", {}),
    "seq2seq": ("seq2seq", {"encoder.hidden": 8, "decoder.hidden": 8}),
    "tag": ("tagger-window", {}),
    "span": ("bidaf", {}),
    "language": ("nnlm", {}),
}
FORMS = {
    "rows": lambda rows: rows,
    "pandas": pandas.DataFrame,
    "polars": polars.DataFrame,
    "arrow": pyarrow.Table.from_pylist,
    "datasets": datasets.Dataset.from_list,
}


def write_file(kind, folder):
    """Write the rows of a task in the format that its files usually have."""
    rows = ROWS[kind]
    if kind == "tag":
        blocks = ("\n".join(map(" ".join, zip(r["tokens"], r["tags"], strict=True))) for r in rows)
        return write(folder / "a.conll", "\n\n".join(blocks) + "\n")
    if kind == "language":
        return write(folder / "a.txt", "".join(row["text"] + "\n" for row in rows))
    if kind in ("seq2seq", "pair-classify"):
        lines = ["\t".join(rows[0]), *("\t".join(row.values()) for row in rows)]
        return write(folder / "a.tsv", "\n".join(lines) + "\n")
    return write(folder / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


def write(path, text):
    path.write_text(text, "utf-8")
    return str(path)


def train(kind, data, folder, **options):
    name, changes = RECIPES[kind]
    shortened = {**changes, "train.epochs": 1, "train.batch_size": 16, "train.seed": 3}
    return weft.train(name, folder, train=data, changes=shortened, quiet=True, **options)


def weights(folder):
    return (folder / "model" / "weights.safetensors").read_bytes()


@pytest.mark.parametrize("kind", RECIPES)
def test_weights_are_those_of_the_file(kind, tmp_path):
    train(kind, write_file(kind, tmp_path), tmp_path / "file")
    expected = weights(tmp_path / "file")
    for form, make in FORMS.items():
        train(kind, make(ROWS[kind]), tmp_path / form)
        assert weights(tmp_path / form) == expected, form
    changed = [row for row in ROWS[kind] if row is not ROWS[kind][1]]
    train(kind, changed, tmp_path / "changed")
    assert weights(tmp_path / "changed") != expected


def test_the_record_says_where_the_data_came_from(tmp_path):
    train("classify", ROWS["classify"], tmp_path / "run", dev=ROWS["classify"][:10])
    data = load_config(tmp_path / "run" / "config.toml")["data"]
    assert data["train"].startswith("<memory: train; 80 rows; ")
    assert data["dev"].startswith("<memory: dev; 10 rows; ")
    with pytest.raises(UserError, match="these rows were in the memory of another process"):
        weft.train(tmp_path / "run" / "config.toml", tmp_path / "again", quiet=True)


def test_a_run_goes_on_with_the_same_rows_only(tmp_path):
    rows = ROWS["classify"]
    first = train("classify", rows, tmp_path / "run")
    again = train("classify", pandas.DataFrame(rows), tmp_path / "run", resume=True)
    assert again.figures == first.figures
    others = [*rows[:-1], {"text": "another film", "label": "pos"}]
    with pytest.raises(UserError, match="cannot go on with <memory: train; 80 rows; "):
        train("classify", others, tmp_path / "run", resume=True)


def test_changes_take_data_too(tmp_path):
    changes = {"data.train": ROWS["classify"], "train.epochs": 1}
    result = weft.train("bag", tmp_path, changes=changes, quiet=True)
    assert result.figures["dev"]["accuracy"].n


def test_evaluate_reads_files_and_tables_alike(tmp_path):
    rows = ROWS["classify"]
    model = train("classify", rows, tmp_path / "run").predictor
    file = write_file("classify", tmp_path)
    expected = weft.evaluate(model, weft.read(file)).compute()
    renamed = pandas.DataFrame(rows).rename(columns={"text": "review", "label": "sentiment"})
    for data in (file, rows, iter(rows), datasets.Dataset.from_list(rows)):
        assert weft.evaluate(model, data).compute() == expected
    with pytest.raises(UserError, match="no 'text' column; found"):
        weft.evaluate(model, renamed)
    assert weft.evaluate(model, renamed, text="review", label="sentiment").compute() == expected
    with pytest.raises(UserError, match=r"^data\[2\]: .*'neutral'"):
        weft.evaluate(model, [*rows[:2], {"text": "a film", "label": "neutral"}])
    with pytest.raises(UserError, match="no such file"):
        weft.evaluate(model, str(tmp_path / "missing.tsv"))


@pytest.mark.parametrize("kind", ["tag", "language", "span"])
def test_evaluate_of_other_tasks(kind, tmp_path):
    model = train(kind, ROWS[kind], tmp_path / "run").predictor
    expected = weft.evaluate(model, write_file(kind, tmp_path)).compute()
    assert weft.evaluate(model, ROWS[kind]).compute() == expected


@pytest.mark.parametrize("split", ["dev", "test"])
def test_a_label_that_is_not_in_train_is_located(split, tmp_path):
    bad = pandas.DataFrame({"text": ["a film"] * 2, "label": ["pos", "new"]}, index=["x", "y"])
    with pytest.raises(UserError, match=rf"^{split}\[1\] \(index 'y'\): .*'new'"):
        train("classify", ROWS["classify"], tmp_path / "run", **{split: bad})


def test_class_ids_of_a_dataset_become_names(tmp_path):
    names = datasets.ClassLabel(names=["O", "B-PER", "B-LOC"])
    features = datasets.Features(
        {"tokens": datasets.List(datasets.Value("string")), "tags": datasets.List(names)}
    )
    ids = [{"tokens": r["tokens"], "tags": names.str2int(r["tags"])} for r in ROWS["tag"]]
    train("tag", datasets.Dataset.from_list(ids, features=features), tmp_path / "ids")
    train("tag", write_file("tag", tmp_path), tmp_path / "names")
    assert weights(tmp_path / "ids") == weights(tmp_path / "names")


def test_an_ensemble_learns_from_memory(tmp_path):
    changes = {"train.ensemble": 2, "train.epochs": 1}
    weft.train("bag", tmp_path, train=ROWS["classify"], changes=changes, quiet=True)
    assert len(list((tmp_path / "members").iterdir())) == 2


def test_rows_without_a_label_are_located_or_skipped(tmp_path):
    frame = pandas.DataFrame(ROWS["classify"])
    frame.loc[7, "label"] = None
    with pytest.raises(UserError, match=r"^train\[7\]: no label"):
        train("classify", frame, tmp_path / "a")
    changes = {"data.on_bad_row": "skip", "train.epochs": 1}
    result = weft.train("bag", tmp_path / "b", train=frame, changes=changes, quiet=True)
    assert any("train[7]" in note for note in result.record["notes"])
