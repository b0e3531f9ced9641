"""Real processes: killed in the middle of a trial, or several at one search."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tune.test_search import STRENGTH, WORDS, run, settings, tfidf
from weft.tune import study

ROOT = Path(__file__).parents[2]
# Tunes, but stays for ever in the trial whose folder has a certain name.
STUCK = """
import sys, time
from weft import config
from weft.tune import parse, trial, tune
train = trial.train
def slow(given, folder, **options):
    if folder.name == sys.argv[3]:
        folder.mkdir(parents=True)
        print("here", flush=True)
        time.sleep(600)
    return train(given, folder, **options)
trial.train = slow
given = {"data.train": sys.argv[1], "data.dev_fraction": 0.3}
base = config.recipe("tfidf").with_values(given, "test")
tune(base, sys.argv[2], search=parse([sys.argv[4]]), sampler="random", trials=4, seeds=0)
"""

# Takes trials as fast as it can and trains none of them.
RACE = """
import sys
from pathlib import Path
from weft.tune.study import Limits, Study
study, count = Study(Path(sys.argv[1])), 0
while taken := study.claim(Limits(sampler="random", trials=17)):
    study.finish(taken, 0.0)
    count += 1
print(count)
"""


def stuck(base, out, folder):
    """Start a search in another process and kill it in the middle of one trial."""
    words = [sys.executable, "-c", STUCK, base["data"]["train"], str(out), folder, STRENGTH]
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=ROOT, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        os.kill(process.pid, signal.SIGKILL)


def test_a_killed_trial_is_tried_again_and_nothing_else(tmp_path):
    base, out = tfidf(tmp_path), tmp_path / "out"
    stuck(base, out, "002")
    told = []
    found = run(base, out, told=told)
    assert [row.state for row in found.rows] == ["complete", "killed", *["complete"] * 3]
    assert found.rows[1].reason == "its process ended before the trial did"
    assert [row.number for row in told] == [3, 4, 5]
    whole = run(base, tmp_path / "whole")
    assert settings(found) == settings(whole)
    assert [r.value for r in found.ranked()] == [r.value for r in whole.ranked()]


def test_a_trial_that_kills_its_process_every_time_is_given_up(tmp_path, monkeypatch):
    base, out = tfidf(tmp_path), tmp_path / "out"
    monkeypatch.setattr(study, "RETRIES", 1)
    stuck(base, out, "001")
    stuck(base, out, "002")
    found = run(base, out)
    assert [row.state for row in found.rows] == ["killed", "failed", *["complete"] * 3]
    assert found.rows[1].reason == "its process ended before the trial did, 2 times"


def test_a_race_for_trials_gives_each_of_them_once(tmp_path):
    base, out = tfidf(tmp_path), tmp_path / "out"
    run(base, out, trials=1)
    words = [sys.executable, "-c", RACE, str(out)]
    racers = [subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE) for _ in range(3)]
    counts = [int(racer.communicate(timeout=100)[0]) for racer in racers]
    found = run(base, out, trials=17)
    assert sum(counts) == 16
    assert len(found.rows) == 17
    assert len({row.settings["classic.C"] for row in found.rows}) == 17


def test_two_commands_share_one_search(tmp_path):
    base, out = tfidf(tmp_path), tmp_path / "out"
    words = [sys.executable, "-m", "weft", "tune", "--recipe", "tfidf", "-o", str(out)]
    words += [
        "--train",
        base["data"]["train"],
        "--set",
        "data.dev_fraction=0.3",
        "--search",
        STRENGTH,
    ]
    words += ["--sampler", "random", "--trials", "5", "--seeds", "1"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    both = [
        subprocess.Popen(
            words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(2)
    ]
    for process in both:
        _, err = process.communicate(timeout=100)
        assert process.returncode == 0, err.decode()
        # Each hears of every trial that ended while it was there, whoever trained it.
        assert b"trial 5: complete" in err
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


def test_workers_that_all_fail_say_why(tmp_path, monkeypatch):
    from weft.errors import UserError

    monkeypatch.setattr("weft.tune.processes.available_cpus", lambda: 2)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "optuna.py").write_text("raise SystemExit('no optuna today')")
    monkeypatch.chdir(ROOT)
    with pytest.raises(UserError, match=r"Every worker failed; .* ends: no optuna today"):
        run(tfidf(tmp_path), tmp_path / "out", workers=2)
