"""The bake-off from files to leaderboard, on a few dozen generated examples."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from weft import config as configuration
from weft.compare.trial import MIN_COMPLETED, SplitSpec, Trial
from weft.errors import UserError
from weft.predict import load
from weft.predict.evaluate import evaluate
from weft.report.compare import compare, print_table
from weft.run.data import Data
from weft.run.split import choose_holdout
from weft.text.read import read

TINY = {"train.epochs": 1, "train.batch_size": 7}
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


def run(files, out, *, recipes=("tfidf",), changes=TINY, **options):
    """A comparison of a few seconds; most mechanics need no more than the baseline."""
    return compare(files, out, recipes=list(recipes), changes=changes, **options)


def progress_lines(capsys) -> list[str]:
    """Return the progress line of each trial without its number: trials end in any order."""
    lines = capsys.readouterr().err.splitlines()
    return sorted(line.split("] ", 1)[1] for line in lines if line.startswith("[") and ":" in line)


def test_comparison_writes_rows_files_and_schema(files, tmp_path, capsys):
    out = tmp_path / "out"
    rows = run(files, out, recipes=["tfidf", "bag"], seeds=2)
    shown = capsys.readouterr().err
    assert "] timing tfidf (" in shown
    assert "] writing the report" in shown
    lines = sorted(line.split("] ")[1] for line in shown.splitlines() if " seed " in line)
    assert [line.split(":")[0] for line in lines] == ["bag seed 1", "bag seed 2", "tfidf seed 1"]
    assert all("accuracy " in line and ", trained in " in line for line in lines)
    saved = json.loads((out / "leaderboard.json").read_text())
    assert [row["recipe"] for row in saved] == [row.recipe for row in rows]
    assert [row["status"] for row in saved] == ["ranked", "ranked", "baseline"]
    for row in saved[:2]:
        assert row["metric"] == "accuracy"
        assert 0 <= row["others"]["macro_f1"] <= 1
        assert row["error"] is None
        assert 0 <= row["low"] <= row["high"] <= 1
        assert row["quality"] == pytest.approx(sum(row["values"]) / len(row["values"]))
        assert 0 < row["p50_ms"] <= row["p95_ms"]
        assert row["texts_per_second"] > 0
        assert row["size_bytes"] > 1000
        assert row["parameters"] > 0
        assert row["train_seconds"] > 0
        assert 30e6 < row["memory_bytes"] < 3e9
        assert 30e6 < row["answer_bytes"] < 3e9
    for seed in (1, 2):
        assert f"\nseed = {seed}\n" in (out / f"trials/bag-{seed}/config.toml").read_text()
    by_name = {row["recipe"]: row for row in saved}
    a, b = by_name["bag"]["values"]
    assert by_name["bag"]["spread"] == pytest.approx(abs(a - b) / 2**0.5)
    assert by_name["tfidf"]["spread"] is None  # a seed changes nothing: trained once
    assert saved[0]["p"] is None
    assert 0 < saved[1]["p"] <= 1
    card = (out / "model" / "README.md").read_text("utf-8")
    assert "of 2 recipes by accuracy: " in card
    assert "Latency on cpu: " in card
    assert "weft compare " in card
    assert str(tmp_path) not in card


def test_majority_baseline_and_macro_f1_are_in_table_page_and_json(tmp_path, capsys):
    train, test = tmp_path / "train.tsv", tmp_path / "test.tsv"
    rows = [
        f"number {i} is {'fine' if i % 3 else 'poor'}\t{'good' if i % 3 else 'bad'}"
        for i in range(43)
    ]
    train.write_text("\n".join(["text\tlabel", *rows]) + "\n")
    test.write_text("\n".join(["text\tlabel", *rows[:10]]) + "\n")
    out = tmp_path / "out"
    found = run([str(train), str(test)], out, quiet=True)
    saved = json.loads((out / "leaderboard.json").read_text())
    (majority,) = [row for row in saved if row["recipe"] == "majority"]
    assert majority["status"] == "baseline"
    assert majority["quality"] == pytest.approx(0.6)  # 6 of 10 are good
    assert majority["others"]["macro_f1"] == pytest.approx((2 * 0.6 / 1.6 + 0) / 2)
    print_table(found)
    shown = capsys.readouterr().out
    assert "macro-F1" in shown
    assert "Use majority" not in shown
    page = (out / "report.html").read_text()
    assert "macro-F1" in page
    assert "most frequent training label" in page


def test_requested_metric_ranks_recipes_and_stops_training(files, tmp_path, capsys):
    rows = run(files, tmp_path / "out", recipes=["tfidf", "bag"], seeds=1, metric="macro_f1")
    assert {row.metric for row in rows} == {"macro_f1"}
    assert all("accuracy" in row.others for row in rows)
    config = (tmp_path / "out" / "trials" / "bag-1" / "config.toml").read_text()
    assert 'metric = "macro_f1"' in config  # early stopping looks at it, too
    assert "bag seed 1: macro-F1" in capsys.readouterr().err
    assert "--metric macro_f1" in (tmp_path / "out" / "report.html").read_text()


def test_saved_model_reproduces_the_reported_metric(files, tmp_path):
    out = tmp_path / "out"
    rows = run(files, out, quiet=True)
    measure = evaluate(load(out / "model"), read(files[1]))
    assert measure.compute()["accuracy"].value == rows[0].values[0]


def test_page_is_self_contained_and_escaped(files, tmp_path):
    run(files, tmp_path / "out", recipes=["bag"], seeds=1, quiet=True)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "http://" not in page
    assert "https://" not in page
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "prefers-color-scheme: dark" in page
    assert len(page) < 1_000_000
    assert f"weft compare {files[0]} {files[1]} -o" in page
    assert f"weft evaluate {tmp_path / 'out' / 'model'} {files[1]}" in page
    assert "<b>23</b> test rows" in page
    assert "train.epochs=1" in page
    assert "collapsed" in page


def test_finished_trials_are_not_repeated(files, tmp_path, capsys):
    out = tmp_path / "out"
    first = run(files, out, seeds=1, changes={"classic.classifier": "svm"})
    capsys.readouterr()
    again = run(files, out, seeds=2, changes={"classic.classifier": "svm"})
    lines = progress_lines(capsys)
    assert "cached" in lines[0]
    assert "trained in" in lines[1]
    assert again[0].values[0] == first[0].values[0]
    assert again[0].p50_ms == first[0].p50_ms


def test_unfinished_trial_is_trained_again(files, tmp_path, capsys):
    out = tmp_path / "out"
    run(files, out, quiet=True)
    (out / "trials" / "tfidf-1" / "result.json").unlink()
    run(files, out)
    assert "trained in" in progress_lines(capsys)[0]


@pytest.mark.parametrize("what", ["settings", "data"])
def test_different_settings_or_data_need_overwrite(files, tmp_path, what, capsys):
    out = tmp_path / "out"
    run(files, out, quiet=True)
    changes = TINY
    if what == "settings":
        changes = {**TINY, "classic.min_count": 2}
    else:
        Path(files[0]).write_text(lines(0, 41).replace("long", "slow"))  # same size
    with pytest.raises(UserError, match=r"tfidf-1 holds a trial with different settings or data"):
        run(files, out, changes=changes, quiet=True)
    run(files, out, changes=changes, overwrite=True)
    assert "trained in" in progress_lines(capsys)[0]


def test_threads_and_minutes_do_not_invalidate_cached_trials(files, tmp_path, capsys):
    out = tmp_path / "out"
    run(files, out, quiet=True)
    run(files, out, changes={**TINY, "train.threads": 2}, minutes=3)
    assert "cached" in progress_lines(capsys)[0]


def truncate(path: Path, completed: float) -> None:
    """Make a result look as if the time limit had ended its training."""
    saved = json.loads(path.read_text())
    more = {"clipped": "stopped by the clock", "completed": completed, "seconds": 3600.0}
    path.write_text(json.dumps({**saved, **more}))


def test_shortened_trial_is_not_ranked_and_repeats_with_more_time(files, tmp_path, capsys):
    out = tmp_path / "out"
    run(files, out, recipes=["tfidf", "bag"], seeds=2, quiet=True)
    truncate(out / "trials" / "bag-2" / "result.json", 0.0)
    rows = run(files, out, recipes=["tfidf", "bag"], seeds=2, minutes=2)
    assert any(line.startswith("bag seed 2: not enough time") for line in progress_lines(capsys))
    (bag,) = [row for row in rows if row.recipe == "bag"]
    assert (bag.status, len(bag.values), bag.late, bag.spread) == ("ranked", 1, 1, None)
    assert "1 of 2 runs" in (out / "report.html").read_text()
    print_table(rows)
    assert "bag: only 1 of 2 runs finished; not enough time" in capsys.readouterr().out
    rows = run(files, out, recipes=["tfidf", "bag"], seeds=2, minutes=0)
    assert sum("trained in" in line for line in progress_lines(capsys)) == 1
    (bag,) = [row for row in rows if row.recipe == "bag"]
    assert (len(bag.values), bag.late, bag.completed) == (2, 0, (1.0, 1.0))


def test_recipe_without_enough_time_is_listed_below_the_ranked(files, tmp_path, capsys):
    out = tmp_path / "out"
    run(files, out, recipes=["tfidf", "bag"], seeds=1, quiet=True)
    truncate(out / "trials" / "bag-1" / "result.json", 0.3)
    rows = run(files, out, recipes=["bag", "tfidf"], seeds=1, minutes=2, quiet=True)
    saved = json.loads((out / "leaderboard.json").read_text())
    found = {row["recipe"]: row["status"] for row in saved}
    assert (found["tfidf"], found["bag"]) == ("ranked", "not enough time")
    assert [row.recipe for row in rows].index("tfidf") < [row.recipe for row in rows].index("bag")
    assert rows[-1].quality is None
    assert "not enough time: stopped after 30% of its epochs" in (out / "report.html").read_text()
    print_table(rows)
    shown = capsys.readouterr().out
    assert "bag: not enough time, stopped after 30% of its epochs" in shown
    assert "tfidf is the only trained model" in shown
    with pytest.raises(UserError, match=r"No recipe finished in 2 minutes\. bag: stopped"):
        run(files, out, recipes=["bag"], seeds=1, minutes=2, quiet=True)


def test_shortened_run_is_never_called_collapsed(files, tmp_path):
    still = {
        "train.epochs": 1000,
        "train.batch_size": 7,
        "train.learning_rate": 0.0,
        "train.patience": 0,
    }
    config = configuration.recipe("bag").with_values(
        {"data.train": files[0], "data.test": files[1], **still}, "test"
    )
    choose_holdout(Data(train=files[0], test=files[1]), False, False).save(tmp_path / "split.npz")
    cut = SplitSpec(str(tmp_path / "split.npz"))
    result = Trial("bag", 1, None, config, cut, tmp_path / "bag-1", "d").run("cpu", 0.5 / 60)
    assert 0 <= result.completed < MIN_COMPLETED
    assert (result.collapsed, result.rankable) == ("", False)
    assert "stopped by the clock" in result.clipped


def test_failed_recipe_is_a_row_with_its_error(files, tmp_path, capsys):
    changes = {**TINY, "embedder.width": -5}  # tfidf has no embedder to object
    rows = compare(files, tmp_path / "out", recipes=["tfidf", "bag"], seeds=1, changes=changes)
    assert [row.recipe for row in rows] == ["tfidf", "majority", "bag"]
    assert rows[0].error is None
    assert rows[2].quality is None
    assert "embedder &#39;lookup&#39;" in (tmp_path / "out" / "report.html").read_text()
    assert "embedder 'lookup'" in (rows[2].error or "")
    capsys.readouterr()
    print_table(rows)
    assert "bag failed: " in capsys.readouterr().out


def test_crashed_worker_is_a_row_and_its_traceback_is_saved(files, tmp_path, monkeypatch):
    monkeypatch.setattr("weft.jobs.local.launch", broken_launch)
    with pytest.raises(UserError, match=r"No recipe could be trained. tfidf: ZeroDivisionError"):
        run(files, tmp_path / "out", quiet=True)
    kept = (tmp_path / "out" / "trials" / "tfidf-1" / "error.txt").read_text()
    assert "ZeroDivisionError: on purpose" in kept.splitlines()[0]
    assert "Traceback" in kept
    row = json.loads((tmp_path / "out" / "leaderboard.json").read_text())[0]
    assert row["error"].startswith("ZeroDivisionError: on purpose")


def broken_launch(job):
    """A worker whose training divides by zero."""
    code = (
        "import sys, weft.run; from weft.compare import worker\n"
        "def fail(*a, **k): raise ZeroDivisionError('on purpose')\n"
        "weft.run.train = fail; sys.exit(worker.main())"
    )
    errors = tempfile.TemporaryFile()
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stderr=errors)
    process.stdin.write(job.stdin.encode())
    process.stdin.close()
    return process, errors


def test_collapsed_runs_are_reported(files, tmp_path, capsys):
    still = {"train.epochs": 9, "train.batch_size": 7, "train.learning_rate": 0.0}
    row, _ = run(files, tmp_path / "out", recipes=["bag"], changes=still, seeds=2)
    assert (row.collapsed, row.collapsed_seeds, row.kept_quality) == (2, ("1", "2"), None)
    assert "bag seed 1: accuracy" in capsys.readouterr().err
    print_table([row])
    assert "bag: 2 of 2 runs collapsed (seeds 1, 2). Lower" in capsys.readouterr().out
    assert "2 of 2 collapsed (seeds 1, 2)" in (tmp_path / "out" / "report.html").read_text()


def test_folds_are_pooled(files, tmp_path):
    rows = run(files[:1], tmp_path / "out", seeds=1, folds=3)
    assert len(rows[0].values) == 3
    assert rows[0].spread is not None
    right = 0
    for fold in (1, 2, 3):
        path = tmp_path / "out" / "trials" / f"tfidf-1-fold{fold}" / "predictions.jsonl"
        answers = [json.loads(line) for line in path.read_text().splitlines()]
        right += sum(answer["value"] == answer["label"] for answer in answers)
    assert rows[0].pooled == pytest.approx(right / 41)
    assert "pooled" in (tmp_path / "out" / "report.html").read_text()


def test_missing_test_file_is_split_off_and_written(files, tmp_path):
    out = tmp_path / "out"
    rows = run(files[:1], out, quiet=True)
    answers = (out / "trials" / "tfidf-1" / "predictions.jsonl").read_text()
    assert len(answers.splitlines()) == 8  # a fifth of 41
    measure = evaluate(load(out / "model"), read(out / "test.jsonl"))
    assert measure.compute()["accuracy"].value == rows[0].values[0]


def test_fractional_labels_are_a_regression(tmp_path):
    path = tmp_path / "scores.tsv"
    rows = [f"a text of {i} good words\t{i / 4}" for i in range(67)]
    path.write_text("text\tscore\n" + "\n".join(rows) + "\n")
    found = run([str(path)], tmp_path / "out", quiet=True)
    assert found[0].error is None
    assert found[0].metric == "pearson"


def test_whole_number_labels_are_classes(tmp_path):
    path = tmp_path / "stars.tsv"
    rows = [f"a film number {i} with {i % 5} stars\t{i % 5 + 1}" for i in range(67)]
    path.write_text("text\tstars\n" + "\n".join(rows) + "\n")
    assert run([str(path)], tmp_path / "out", quiet=True)[0].metric == "accuracy"


def test_killed_comparison_resumes_from_finished_trials(files, tmp_path, capsys):
    out = tmp_path / "out"
    words = ["--recipes", "tfidf,bag", "--seeds", "2", "--set", "train.epochs=1", "-o", str(out)]
    words += ["--minutes", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "weft", "compare", *files, *words], stderr=subprocess.DEVNULL
    )
    for _ in range(1200):
        if (out / "trials" / "tfidf-1" / "result.json").is_file():
            break
        time.sleep(0.05)
    process.kill()
    process.wait()
    before = {p: p.stat().st_mtime_ns for p in out.glob("trials/*/result.json")}
    assert before
    time.sleep(1.0)  # workers see that nobody waits for them
    rows = run(files, out, recipes=["tfidf", "bag"], seeds=2, changes={"train.epochs": 1})
    after = {p: p.stat().st_mtime_ns for p in out.glob("trials/*/result.json")}
    assert len(after) == 3
    assert before.items() <= after.items()
    assert sum("cached" in line for line in progress_lines(capsys)) == len(before)
    again = run(files, out, recipes=["tfidf", "bag"], seeds=2, changes={"train.epochs": 1})
    assert again == rows


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"recipes": ["cnnn"]}, "Unknown recipe 'cnnn'. Did you mean 'cnn'?"),
        ({"seeds": -1}, "--seeds must be at least 1, got -1"),
        ({"minutes": -1}, "--minutes must be 0 (no limit) or more, got -1"),
        ({"workers": -1}, "--workers must be 0 (automatic) or more, got -1"),
        ({"folds": 1}, "--folds must be at least 2 (or 0 for none), got 1"),
        ({"metric": "marco_f1"}, "Unknown metric 'marco_f1' in --metric. Did you mean 'macro_f1'?"),
        ({"folds": 3}, "With --folds every part of the file is the test set once; omit"),
        ({"dev": "-"}, "Standard input can be read only once"),
        ({"changes": {"data.txet": "a"}}, "Unknown option 'txet' in [data]. Did you mean 'text'?"),
    ],
)
def test_invalid_options_fail_before_training(files, tmp_path, arguments, message):
    with pytest.raises(UserError) as caught:
        compare(files, tmp_path / "out", **arguments)
    assert message in str(caught.value)
    assert not list(tmp_path.glob("out/trials/*"))
