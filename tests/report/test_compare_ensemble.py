"""`compare --ensemble`: ensembles as rows, with summed costs and a paired gain."""

import json

import numpy as np
import pytest

from tests.fixtures.command import ok
from tests.fixtures.ensemble_runs import texts
from tests.fixtures.tagged_files import columns
from weft.predict import load
from weft.report.compare import compare

TINY = {"train.epochs": 2, "train.batch_size": 7, "data.dev_fraction": 0.2}


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare")
    out = folder / "out"
    rows = compare(
        [str(texts(folder))], out, recipes=["tfidf", "bag"], seeds=2, changes=TINY, ensemble=True,
        quiet=True, device="cpu",
    )  # fmt: skip
    return out, {row.recipe: row for row in rows}


def test_the_seeds_of_the_best_recipe_and_the_best_recipes_are_rows(compared):
    _, rows = compared
    joined = [name for name in rows if name.startswith("ensemble of")]
    assert "ensemble of 2 bag" in joined  # the only recipe with several seeds
    assert len(joined) == 2
    for name in joined:
        assert rows[name].status == "ranked"
        assert rows[name].p50_ms > 0


def test_costs_are_those_of_all_members(compared):
    out, rows = compared
    seeds = [json.loads((out / "trials" / f"bag-{i}" / "result.json").read_text()) for i in (1, 2)]
    row = rows["ensemble of 2 bag"]
    assert row.train_seconds == pytest.approx(sum(seed["seconds"] for seed in seeds))
    assert row.parameters == sum(seed["parameters"] for seed in seeds)
    assert row.size_bytes >= sum(seed["size_bytes"] for seed in seeds)


def predictions(folder):
    return [json.loads(line) for line in (folder / "predictions.jsonl").read_text().splitlines()]


def test_the_gain_is_the_difference_on_the_same_texts(compared):
    out, rows = compared
    row = rows["ensemble of 2 bag"]
    single = rows[row.gain_over]
    assert not single.recipe.startswith("ensemble")
    assert row.gain == pytest.approx(row.quality - single.quality, abs=1e-9)
    assert row.gain_low <= row.gain <= row.gain_high
    (folder,) = (out / "trials").glob("ensemble-of-2-bag")
    own = predictions(folder)
    assert row.quality == pytest.approx(np.mean([a["value"] == a["label"] for a in own]))
    model = load(folder / "model", device="cpu")
    assert [answer.value for answer in model([a["text"] for a in own])] == [a["value"] for a in own]


def test_leaderboard_and_report_show_the_gain(compared):
    out, rows = compared
    saved = {row["recipe"]: row for row in json.loads((out / "leaderboard.json").read_text())}
    assert saved["ensemble of 2 bag"]["gain"] == rows["ensemble of 2 bag"].gain
    page = (out / "report.html").read_text("utf-8")
    assert "ensemble of 2 bag" in page
    assert "paired over the test texts" in page
    assert "--ensemble" in page


def test_a_repeated_comparison_joins_nothing_again(compared):
    out, _ = compared
    path = out / "trials" / "ensemble-of-2-bag" / "result.json"
    before = path.stat().st_mtime_ns
    compare([str(out.parent / "texts.tsv")], out, recipes=["tfidf", "bag"], seeds=2, changes=TINY,
            ensemble=True, quiet=True, device="cpu")  # fmt: skip
    assert path.stat().st_mtime_ns == before


def test_recipes_that_cannot_be_joined_become_a_failed_row(tmp_path):
    small = {
        "train.epochs": 1, "train.batch_size": 8, "tokenizer.min_count": 1, "encoder.hidden": 5,
    }  # fmt: skip
    rows = compare(
        [str(columns(tmp_path / "a.conll", 40))], tmp_path / "out", recipes=["crf", "tagger-cnn"],
        seeds=1, changes=small, ensemble=True, quiet=True, device="cpu",
    )  # fmt: skip
    (failed,) = [row for row in rows if row.recipe.startswith("ensemble")]
    assert failed.status == "failed"
    assert "cannot be one ensemble" in failed.error


def test_folds_are_joined_one_by_one(tmp_path):
    done = ok(
        "compare", texts(tmp_path), "-o", tmp_path / "out", "--recipes", "tfidf,bag", "--folds", 2,
        "--seeds", 2, "--ensemble", "--set", "train.epochs=1", "--device", "cpu",
    )  # fmt: skip
    assert "ensemble of 2 bag" in done.out
    names = sorted(path.name for path in (tmp_path / "out" / "trials").glob("ensemble*bag*"))
    assert "ensemble-of-2-bag-fold1" in names
    assert "ensemble-of-2-bag-fold2" in names
