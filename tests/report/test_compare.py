"""The bake-off from files to leaderboard, on a few dozen generated examples."""

import json
from pathlib import Path

import pytest

from weft.errors import UserError
from weft.report import trial
from weft.report.compare import compare, table

TINY = {"train.epochs": 1, "train.batch": 7}
GOOD, BAD = ("fine", "great", "superb"), ("dull", "awful", "poor")


def lines(start: int, count: int) -> str:
    """Texts that one word decides; the number makes each of them different."""
    rows = ["text\tlabel"]
    for i in range(start, start + count):
        word, label = (GOOD[i % 3], "good") if i % 2 else (BAD[i % 3], "<script>alert(1)</script>")
        rows.append(f"the film number {i} was {word} and long\t{label}")
    return "\n".join(rows) + "\n"


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    train, test = tmp_path / "train.tsv", tmp_path / "test.tsv"
    train.write_text(lines(0, 41))
    test.write_text(lines(100, 23))
    return [str(train), str(test)]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders that `weft.run.train` was called for."""
    seen: list[str] = []
    train = trial.run.train

    def counted(config, output, **options):  # type: ignore[no-untyped-def]
        seen.append(Path(output).name)
        return train(config, output, **options)

    monkeypatch.setattr(trial.run, "train", counted)
    return seen


def test_rows_files_and_schema(files, tmp_path, runs, capsys):
    out = tmp_path / "out"
    rows = compare(files, out, recipes=["bag", "cnn"], seeds=2, changes=TINY)
    assert runs == ["bag-1", "bag-2", "cnn-1", "cnn-2"]
    assert [row.recipe for row in rows] == sorted(
        ["bag", "cnn"], key=lambda name: -next(r.quality or 0.0 for r in rows if r.recipe == name)
    )
    saved = json.loads((out / "leaderboard.json").read_text())
    assert [row["recipe"] for row in saved] == [row.recipe for row in rows]
    for row in saved:
        assert row["metric"] == "accuracy"
        assert row["error"] is None
        assert len(row["values"]) == 2
        assert 0 <= row["low"] <= row["high"] <= 1
        assert row["quality"] == pytest.approx(sum(row["values"]) / 2)
        a, b = row["values"]
        assert row["spread"] == pytest.approx(abs(a - b) / 2**0.5)
        assert 0 < row["p50_ms"] <= row["p95_ms"]
        assert row["texts_per_second"] > 0
        assert row["size_bytes"] > 1000
        assert row["parameters"] > 0
        assert row["train_seconds"] > 0
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 4
    assert told[0].startswith("[1/4] bag seed 1: accuracy ")


def test_the_page_is_whole_and_safe(files, tmp_path):
    compare(files, tmp_path / "out", recipes=["bag"], seeds=1, changes=TINY, quiet=True)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "http://" not in page
    assert "https://" not in page
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "url(#" in page or "href=" in page  # charts are there
    assert page.count("<svg") == 3  # error bar, scatter, one learning curve
    assert 'class="panel' in page
    assert "prefers-color-scheme: dark" in page
    assert len(page) < 1_000_000
    ids = [part.split('"')[0] for part in page.split(' id="')[1:]]
    assert len(ids) == len(set(ids))
    assert f"weft compare {files[0]} {files[1]} -o" in page
    assert "<b>23</b> test rows" in page
    assert "train.epochs=1" in page


def test_finished_trials_are_not_repeated(files, tmp_path, runs):
    out = tmp_path / "out"
    first = compare(files, out, recipes=["bag"], seeds=1, changes=TINY, quiet=True)
    again = compare(files, out, recipes=["bag"], seeds=2, changes=TINY, quiet=True)
    assert runs == ["bag-1", "bag-2"]
    assert again[0].values[0] == first[0].values[0]


def test_an_unfinished_trial_starts_again(files, tmp_path, runs):
    out = tmp_path / "out"
    compare(files, out, recipes=["bag"], seeds=1, changes=TINY, quiet=True)
    (out / "trials" / "bag-1" / "result.json").unlink()
    compare(files, out, recipes=["bag"], seeds=1, changes=TINY, quiet=True)
    assert runs == ["bag-1", "bag-1"]


@pytest.mark.parametrize("what", ["settings", "data"])
def test_another_comparison_in_the_folder_needs_overwrite(files, tmp_path, runs, what):
    out = tmp_path / "out"
    compare(files, out, recipes=["bag"], seeds=1, changes=TINY, quiet=True)
    changes = TINY
    if what == "settings":
        changes = {**TINY, "train.epochs": 2}
    else:
        Path(files[0]).write_text(lines(0, 41).replace("long", "slow"))  # same size
    with pytest.raises(UserError, match=r"bag-1 holds a trial with other settings or other data"):
        compare(files, out, recipes=["bag"], seeds=1, changes=changes, quiet=True)
    compare(files, out, recipes=["bag"], seeds=1, changes=changes, overwrite=True, quiet=True)
    assert runs == ["bag-1", "bag-1"]


def test_a_recipe_that_fails_is_a_row(files, tmp_path, capsys):
    changes = {**TINY, "embedder.width": -5}  # tfidf has no embedder to object
    rows = compare(files, tmp_path / "out", recipes=["tfidf", "bag"], seeds=1, changes=changes)
    assert [row.recipe for row in rows] == ["tfidf", "bag"]
    assert rows[0].error is None
    assert rows[1].quality is None
    assert "embedder &#39;lookup&#39;" in (tmp_path / "out" / "report.html").read_text()
    assert "embedder 'lookup'" in (rows[1].error or "")
    capsys.readouterr()
    table(rows)
    assert "bag failed: " in capsys.readouterr().out


def test_a_crash_is_a_row_and_its_traceback_is_kept(files, tmp_path, monkeypatch):
    def crash(config, output, **options):  # type: ignore[no-untyped-def]
        Path(output).mkdir(parents=True)
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr(trial.run, "train", crash)
    with pytest.raises(UserError, match=r"No recipe could be trained. bag: ZeroDivisionError"):
        compare(files, tmp_path / "out", recipes=["bag"], seeds=1, changes=TINY, quiet=True)
    kept = (tmp_path / "out" / "trials" / "bag-1" / "error.txt").read_text()
    assert "ZeroDivisionError: on purpose" in kept
    row = json.loads((tmp_path / "out" / "leaderboard.json").read_text())[0]
    assert row["error"].startswith("ZeroDivisionError: on purpose")


def test_folds(files, tmp_path, runs):
    rows = compare(files[:1], tmp_path / "out", recipes=["bag"], seeds=1, folds=3, changes=TINY)
    assert runs == ["bag-1-fold1", "bag-1-fold2", "bag-1-fold3"]
    assert len(rows[0].values) == 3
    assert rows[0].spread is not None
    right = 0
    for name in runs:
        path = tmp_path / "out" / "trials" / name / "predictions.jsonl"
        answers = [json.loads(line) for line in path.read_text().splitlines()]
        right += sum(answer["value"] == answer["label"] for answer in answers)
    assert rows[0].pooled == pytest.approx(right / 41)
    assert "pooled" in (tmp_path / "out" / "report.html").read_text()


def test_without_a_test_file_a_share_is_cut(files, tmp_path):
    compare(files[:1], tmp_path / "out", recipes=["bag"], seeds=1, changes=TINY, quiet=True)
    answers = (tmp_path / "out" / "trials" / "bag-1" / "predictions.jsonl").read_text()
    assert 1 <= len(answers.splitlines()) <= 20


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"recipes": ["cnnn"]}, "Unknown recipe 'cnnn'. Did you mean 'cnn'?"),
        ({"seeds": 0}, "--seeds should be at least 1, got 0"),
        ({"folds": 1}, "--folds should be at least 2"),
        ({"folds": 3}, "leave out --folds"),
        ({"dev": "-"}, "Standard input can be read only once"),
        ({"changes": {"data.txet": "a"}}, "Unknown option 'txet' in [data]. Did you mean 'text'?"),
    ],
)
def test_mistakes_are_told_before_anything_is_trained(files, tmp_path, runs, arguments, message):
    with pytest.raises(UserError) as caught:
        compare(files, tmp_path / "out", **arguments)
    assert message in str(caught.value)
    assert runs == []
