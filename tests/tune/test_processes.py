"""Real processes: killed in the middle of a trial, or several at one search."""

import signal
import time
from pathlib import Path

import pytest

from tests.fixtures.processes import ForkedCommand, ForkedProcess
from tests.fixtures.searches import STRENGTH, WORDS, run, settings, tfidf
from weft.tune import study

ROOT = Path(__file__).parents[2]


def tune_until_stuck(data: str, out: str, folder: str, ready: str) -> None:
    """Tune, but stay for ever in the trial whose folder has a certain name."""
    from weft import config
    from weft.tune import parse, trial, tune

    train = trial.train

    def stay(given, place, **options):
        if place.name == folder:
            place.mkdir(parents=True)
            Path(ready).touch()
            time.sleep(600)
        return train(given, place, **options)

    trial.train = stay
    values = {"data.train": data, "data.dev_fraction": 0.3}
    base = config.recipe("tfidf").with_values(values, "test")
    tune(base, out, search=parse([STRENGTH]), sampler="random", trials=4, seeds=0)


def claim_trials(out: str, count_file: str) -> None:
    """Take trials as fast as possible and train none of them."""
    search, count = study.Study(Path(out)), 0
    while claimed := search.claim(study.Limits(sampler="random", trials=17)):
        search.finish(claimed, 0.0)
        count += 1
    Path(count_file).write_text(str(count))


def stuck(base, out, folder):
    """Start a search in another process and kill it in the middle of one trial."""
    ready = out.with_name(f"ready-{folder}")
    process = ForkedProcess(tune_until_stuck, base["data"]["train"], str(out), folder, str(ready))
    while not ready.exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    assert process.wait(60) == -signal.SIGKILL


def test_killed_trial_alone_is_repeated(tmp_path):
    base, out = tfidf(tmp_path), tmp_path / "out"
    stuck(base, out, "002")
    told = []
    found = run(base, out, told=told)
    assert [row.state for row in found.rows] == ["complete", "killed", *["complete"] * 3]
    assert found.rows[1].reason == "its process ended before the trial did"
    assert [row.number for row in told] == [3, 4, 5]
    whole = run(base, tmp_path / "whole")
    assert settings(found) == settings(whole)
    assert [r.value for r in found.best_first()] == [r.value for r in whole.best_first()]


def test_trial_that_always_kills_its_process_fails(tmp_path, monkeypatch):
    base, out = tfidf(tmp_path), tmp_path / "out"
    monkeypatch.setattr(study, "RETRIES", 1)
    stuck(base, out, "001")
    stuck(base, out, "002")
    found = run(base, out)
    assert [row.state for row in found.rows] == ["killed", "failed", *["complete"] * 3]
    assert found.rows[1].reason == "its process ended before the trial did, 2 times"


def test_racing_workers_claim_each_trial_once(tmp_path):
    base, out = tfidf(tmp_path), tmp_path / "out"
    run(base, out, trials=1)
    files = [tmp_path / f"count-{i}" for i in range(3)]
    racers = [ForkedProcess(claim_trials, str(out), str(file)) for file in files]
    assert [racer.wait(100) for racer in racers] == [0, 0, 0]
    counts = [int(file.read_text()) for file in files]
    found = run(base, out, trials=17)
    assert sum(counts) == 16
    assert len(found.rows) == 17
    assert len({row.settings["classic.C"] for row in found.rows}) == 17


def test_two_commands_share_one_search(tmp_path):
    base, out = tfidf(tmp_path), tmp_path / "out"
    words = ["tune", "--recipe", "tfidf", "-o", out, "--train", base["data"]["train"]]
    words += ["--set", "data.dev_fraction=0.3", "--search", STRENGTH]
    words += ["--sampler", "random", "--trials", "5", "--seeds", "1"]
    both = [ForkedCommand(*words, folder=ROOT) for _ in range(2)]
    for process in both:
        done = process.finish()
        assert done.status == 0, done.err
        # Each reports every trial that ended while it ran, whichever of them trained it.
        assert "trial 5: complete" in done.err
    found = run(base, out, trials=5, seeds=1)
    assert [row.state for row in found.rows] == ["complete"] * 5
    alone = run(base, tmp_path / "alone", trials=5, seeds=1)
    assert settings(found) == settings(alone)
    assert [r.value for r in found.rows] == [r.value for r in alone.rows]


def test_workers_cover_a_grid_exactly(tmp_path, monkeypatch):
    monkeypatch.setattr("weft.tune.processes.available_cpus", lambda: 2)
    monkeypatch.chdir(ROOT)
    base, out = tfidf(tmp_path), tmp_path / "out"
    told = []
    options = {"sampler": "grid", "trials": 0, "seeds": 1}
    found = run(base, out, "classic.C=0.1,1.0,5.0", WORDS, workers=9, told=told, **options)
    seen = [(s["classic.C"], tuple(s["classic.words"])) for s in settings(found)]
    assert sorted(seen) == [(x, w) for x in (0.1, 1.0, 5.0) for w in ((1, 1), (1, 2))]
    assert sorted(row.number for row in told if hasattr(row, "number")) == [1, 2, 3, 4, 5, 6]
    assert sorted(p.name for p in (out / "workers").iterdir()) == ["1.txt", "2.txt"]
    assert found.restarts is not None
    assert found.restarts.tuned[0].error == ""


def test_failure_of_every_worker_is_reported(tmp_path, monkeypatch, spawned_workers):
    from weft.errors import UserError

    monkeypatch.setattr("weft.tune.processes.available_cpus", lambda: 2)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "optuna.py").write_text("raise SystemExit('no optuna today')")
    monkeypatch.chdir(ROOT)
    with pytest.raises(UserError, match=r"Every worker failed; .* ends: no optuna today"):
        run(tfidf(tmp_path), tmp_path / "out", workers=2)
