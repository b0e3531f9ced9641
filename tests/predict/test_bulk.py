"""Bulk prediction: every row once, in order, with its columns, whoever computes which part."""

import csv
import gzip
import json
import re

import numpy as np
import pytest

import weft
from tests.fixtures.small import examples
from weft.cli.main import app
from weft.config import recipe
from weft.errors import UserError
from weft.predict import bulk
from weft.predict.bulk import predict_files

ROWS = 23


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bulk")
    rows = [e.text for e in examples()], [str(e.label) for e in examples()]
    data = folder / "train.tsv"
    data.write_text("".join(f"{t}\t{y}\n" for t, y in zip(*rows, strict=True)), "utf-8")
    values = {"embedder.width": 7, "train.epochs": 1, "train.threads": 1, "data.train": str(data)}
    return weft.train(recipe("bag").with_values(values, "test"), folder / "run", quiet=True)


@pytest.fixture
def table(tmp_path):
    """Rows with a number, a text and a cell that needs quotes."""
    texts = [e.text for e in examples(ROWS)]
    return [{"n": i * 7, "text": t, "note": f'say "{i}", yes'} for i, t in enumerate(texts)]


def write_csv(rows, path):
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return str(path)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_parquet_keeps_types_order_and_columns(model, table, tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    # Row groups of 3 rows, blocks of 5: a block may begin anywhere.
    pq.write_table(pa.Table.from_pylist(table), tmp_path / "In.parquet", row_group_size=3)
    out = tmp_path / "out"
    done = predict_files(
        model.predictor, [str(tmp_path / "*.parquet")], out, block_rows=5, quiet=True
    )
    assert (done.rows, done.files, done.skipped) == (ROWS, 5, 0)
    paths = sorted(out.iterdir())
    assert paths[0].name == "In-000000.parquet"
    rows = [row for path in paths for row in pq.read_table(path).to_pylist()]
    answers = model.predictor([row["text"] for row in table])
    assert [{k: row[k] for k in table[0]} for row in rows] == table
    assert [row["prediction"] for row in rows] == [a.value for a in answers]
    assert [row["score"] for row in rows] == pytest.approx([a.score for a in answers], rel=1e-5)


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "jsonl.gz"])
def test_text_formats_come_back_as_they_were(ending, model, table, tmp_path):
    path = tmp_path / f"rows.{ending}"
    if ending == "csv":
        write_csv(table, path)
    elif ending == "tsv":
        rows = [list(table[0]), *([str(v) for v in row.values()] for row in table)]
        path.write_text("".join("\t".join(row) + "\n" for row in rows), "utf-8")
    else:
        text = "".join(json.dumps(row) + "\n" for row in table)
        with (gzip.open if ending.endswith("gz") else open)(path, "wt", encoding="utf-8") as file:
            file.write(text)
    predict_files(model.predictor, [str(path)], tmp_path / "out", block_rows=9, quiet=True)
    found = []
    for one in sorted((tmp_path / "out").iterdir()):
        assert one.suffix == f".{ending.split('.')[0]}"
        with open(one, encoding="utf-8", newline="") as file:
            if "jsonl" in ending:
                found += map(json.loads, file)
            else:
                tabs = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if ending == "tsv" else {}
                found += csv.DictReader(file, **tabs)
    expected = [{k: v if "json" in ending else str(v) for k, v in row.items()} for row in table]
    assert [{k: row[k] for k in table[0]} for row in found] == expected
    values = [a.value for a in model.predictor([row["text"] for row in table])]
    assert [row["prediction"] for row in found] == values


def test_killed_job_ends_with_the_same_bytes(model, table, tmp_path, monkeypatch):
    files = [write_csv(table, tmp_path / "a.csv"), write_csv(table[::-1], tmp_path / "b.csv")]
    how = {"block_rows": 4, "quiet": True}
    predict_files(model.predictor, files, tmp_path / "whole", **how)
    save, saved = bulk.save_block, []

    def dying(block, target, added):
        saved.append(target)
        if len(saved) == 3:
            block.save(target.with_name(f".{target.name}.1.part"), added)  # half-way
            raise KeyboardInterrupt
        save(block, target, added)

    monkeypatch.setattr(bulk, "save_block", dying)
    with pytest.raises(KeyboardInterrupt):
        predict_files(model.predictor, files, tmp_path / "cut", part=(2, 3), **how)
    monkeypatch.setattr(bulk, "save_block", save)
    assert len([p for p in (tmp_path / "cut").iterdir() if p.name[0] != "."]) == 2
    counts = [
        predict_files(model.predictor, files, tmp_path / "cut", part=(part, 3), **how)
        for part in (3, 1, 2)
    ]
    assert [done.skipped for done in counts] == [0, 0, 2]
    assert sum(done.rows for done in counts) == 2 * ROWS - 2 * 4
    found = {name: data for name, data in contents(tmp_path / "cut").items() if name[0] != "."}
    assert found == contents(tmp_path / "whole")


def test_embeddings_are_those_of_the_model(model, table, tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in table), "utf-8")
    vectors = model.predictor.embed([row["text"] for row in table])
    for kind in ("npy", "column"):
        out = tmp_path / kind
        predict_files(model.predictor, [str(file)], out, embeddings=kind, block_rows=9, quiet=True)
        paths = sorted(out.iterdir())
        if kind == "npy":
            found = np.concatenate([np.load(path) for path in paths])
        else:
            lines = [json.loads(line) for path in paths for line in path.open()]
            assert [{k: row[k] for k in table[0]} for row in lines] == table
            found = np.array([row["vector"] for row in lines])
        assert found == pytest.approx(vectors, abs=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: [row | {"score": 1} for row in rows], "a column 'score' already"),
        (lambda rows: [*rows[:2], {**rows[2], None: ["more"]}], "csv:4: 4 cells, but the header"),
    ],
)
def test_tables_that_cannot_be_extended_are_refused(change, message, model, table, tmp_path):
    rows = change(table)
    path = tmp_path / "rows.csv"
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([key for key in rows[0] if key])
        writer.writerows([v if k else v[0] for k, v in row.items()] for row in rows)
    with pytest.raises(UserError, match=re.escape(message)):
        predict_files(model.predictor, [str(path)], tmp_path / "out", quiet=True)


def test_command_line(model, table, tmp_path, capsys):
    file, run = write_csv(table, tmp_path / "rows.csv"), str(tmp_path / "model")
    model.predictor.save(run)
    words = ["predict", run, file, "-o", str(tmp_path / "out"), "--part"]
    app([*words, "1/2"], standalone_mode=False)
    assert "23 rows in" in capsys.readouterr().err
    for part, message in (("3/2", "from 1 to 2"), ("half", "should be I/N")):
        with pytest.raises(UserError, match=message):
            app([*words, part], standalone_mode=False)
    with pytest.raises(UserError, match="name files"):
        app([*words[:2], "-o", str(tmp_path / "out")], standalone_mode=False)
