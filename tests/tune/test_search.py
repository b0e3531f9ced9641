"""A whole tuning on a few dozen texts: what is trained, what is left, and how it goes on."""

import dataclasses
import json
import sys

import pytest

import weft
from tests.fixtures import small
from tests.fixtures.searches import (
    STRENGTH,
    WORDS,
    run,
    settings,
    tfidf,
)
from weft import config
from weft.errors import UserError
from weft.tune import trial, tune
from weft.tune.study import TrialRecord


@pytest.fixture
def base(tmp_path):
    return tfidf(tmp_path)


def test_a_search_leaves_trials_model_configuration_and_record(base, tmp_path):
    told = []
    found = run(base, tmp_path / "out", STRENGTH, WORDS, trials=5, told=told)
    out = tmp_path / "out"
    assert [row.number for row in told] == [1, 2, 3, 4, 5]
    assert found.best.value == max(row.value for row in found.rows)
    assert sorted(p.name for p in (out / "trials").iterdir()) == [f"{i:03d}" for i in range(1, 6)]
    record = json.loads((out / "trials" / f"{found.best.number:03d}/model/record.json").read_text())
    assert record["figures"]["dev"]["accuracy"]["value"] == found.best.value
    saved = json.loads((out / "tune.json").read_text())
    assert saved["best"]["settings"] == found.best.settings
    assert len(saved["trials"]) == 5
    assert saved["search"]["classic.C"] == {"low": 0.001, "high": 10, "log": True}
    answer = weft.load(out / "model")(["the film was good"])
    assert answer[0].value in ("positive", "negative")
    again = config.load(out / "best.toml")
    for key, value in found.best.settings.items():
        section, name = key.split(".")
        assert again[section][name] == value
    outcome = weft.train(again, tmp_path / "again", quiet=True)
    assert outcome.figures["dev"]["accuracy"].value == found.best.value


def test_only_the_best_few_keep_their_weights(base, tmp_path):
    found = run(base, tmp_path / "out", trials=7)
    kept = {p.parent.name for p in (tmp_path / "out" / "trials").glob("*/model")}
    assert kept == {f"{row.number:03d}" for row in found.best_first()[: trial.KEPT_TRIALS]}


def test_the_same_seed_takes_the_same_trials_and_it_goes_on_with_them(base, tmp_path):
    whole = run(base, tmp_path / "a", trials=6)
    odd = tmp_path / "why? #1 100%20"  # what would mean something in an address
    again = run(base, odd, trials=2)
    told = []
    again = run(base, odd, trials=6, told=told)
    assert (odd / "study.db").is_file()
    assert [row.number for row in told] == [3, 4, 5, 6]
    assert settings(again) == settings(whole)
    assert [r.value for r in again.rows] == [r.value for r in whole.rows]
    other = run(base.with_values({"train.seed": 2}, "test"), tmp_path / "c", trials=6)
    assert settings(other) != settings(whole)


def test_nothing_is_trained_twice(base, tmp_path, monkeypatch):
    run(base, tmp_path / "out", trials=3, seeds=2)
    monkeypatch.setattr(trial, "train", None)
    monkeypatch.setattr("weft.tune.restart.train", None)
    assert len(run(base, tmp_path / "out", trials=3, seeds=2).rows) == 3


def test_a_grid_is_covered_exactly(base, tmp_path):
    found = run(
        base,
        tmp_path / "out",
        "classic.C=0.1..0.5 step 0.2",
        WORDS,
        sampler="grid",
        trials=0,
    )
    seen = [(s["classic.C"], tuple(s["classic.words"])) for s in settings(found)]
    assert seen == [(x, w) for x in (0.1, 0.3, 0.5) for w in ((1, 1), (1, 2))]
    more = run(
        base,
        tmp_path / "out",
        "classic.C=0.1..0.5 step 0.2",
        WORDS,
        sampler="grid",
        trials=99,
    )
    assert len(more.rows) == 6


def test_the_table_of_a_configuration_is_the_space(base, tmp_path):
    path = tmp_path / "c.toml"
    data = base["data"]["train"]
    path.write_text(
        f'[classic]\nkind = "tfidf"\n[data]\ntrain = "{data}"\ndev_fraction = 0.3\n'
        '[search]\n"classic.C" = [1.0, 2.0]\nclassic.min_count = {low = 1, high = 2}\n'
    )
    given = config.load(path)
    found = tune(given, tmp_path / "out", sampler="grid", seeds=0)
    assert settings(found) == [
        {"classic.C": s, "classic.min_count": m} for s in (1.0, 2.0) for m in (1, 2)
    ]
    assert "search" not in config.load(tmp_path / "out" / "best.toml")
    weft.train(given, tmp_path / "plain", quiet=True)  # other verbs leave the table alone
    with pytest.raises(UserError, match="Unknown section 'search' in --set"):
        config.overrides(["search.classic.C=1"])


def test_a_failing_trial_is_a_row_with_its_reason(base, tmp_path):
    # 46 different texts: no n-gram is in 99 of them.
    found = run(base, tmp_path / "out", "classic.min_count=1,99", sampler="grid", trials=0)
    good, bad = found.rows
    assert good.state == "complete"
    assert bad.state == "failed"
    assert "no n-gram occurs in 99 training texts" in bad.reason
    message = r"No trial .* finished with a metric.*no n-gram occurs in 99"
    with pytest.raises(UserError, match=message):
        run(base, tmp_path / "all", "classic.min_count=99,98", sampler="grid", trials=0)


def test_unexpected_error_of_a_trial_keeps_its_traceback(base, tmp_path, monkeypatch):
    train = trial.train

    def broken(given, folder, **options):
        if folder.name == "002":
            raise RuntimeError("the disk\nhas burned")
        return train(given, folder, **options)

    monkeypatch.setattr(trial, "train", broken)
    found = run(base, tmp_path / "out", trials=3)
    assert [row.state for row in found.rows] == ["complete", "failed", "complete"]
    assert found.rows[1].reason.startswith("RuntimeError: the disk has burned (see ")
    assert "Traceback" in (tmp_path / "out/trials/002/error.txt").read_text()


def test_another_search_in_the_same_folder_is_refused(base, tmp_path):
    out = tmp_path / "out"
    run(base, out, trials=1)
    with pytest.raises(UserError, match=r"'classic.C' was .*'high': 10.*now .*'high': 20"):
        run(base, out, "classic.C=0.001..20 log")
    with pytest.raises(UserError, match=r"'classic.words' was not searched, now"):
        run(base, out, STRENGTH, WORDS)
    with pytest.raises(UserError, match=r"a search with another configuration.*--overwrite"):
        run(tfidf(tmp_path, **{"classic.min_count": 2}), out)
    small.file(tmp_path, count=47)
    with pytest.raises(UserError, match="a search with other data"):
        run(base, out)
    assert len(run(base, out, overwrite=True, trials=2).rows) == 2


def test_a_folder_of_something_else_is_left_alone(base, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "model").write_text("precious")
    for overwrite in (False, True):
        with pytest.raises(UserError, match="is not empty and holds no search"):
            run(base, tmp_path / "mine", overwrite=overwrite)
    assert (tmp_path / "mine" / "model").read_text() == "precious"
    with pytest.raises(UserError, match="is a file; give a folder"):
        run(base, tmp_path / "train.tsv")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampler": "tpee"}, "Unknown sampler 'tpee'.*Did you mean 'tpe'"),
        ({"sampler": "grid"}, "The grid has no end: 'classic.C'"),
        ({"seeds": -1}, "--seeds should be 0"),
        ({"workers": -1}, "--workers should be 0"),
        ({"trials": -1}, "--trials and --minutes should be above 0"),
    ],
)
def test_options_that_make_no_sense(base, tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        run(base, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_there_must_be_something_to_compare_on(tmp_path):
    with pytest.raises(UserError, match=r"no dev examples.*--dev FILE"):
        run(tfidf(tmp_path, **{"data.dev_fraction": 0.0}), tmp_path / "out")
    with pytest.raises(UserError, match="measured on the restarts only"):
        run(tfidf(tmp_path, **{"data.test": str(tmp_path / "train.tsv")}), tmp_path / "out")


def test_time_that_is_up_begins_no_trial(base, tmp_path, monkeypatch):
    found = run(base, tmp_path / "out", trials=2)
    assert len(found.rows) == 2
    found = run(base, tmp_path / "out", trials=99, minutes=1e-9)
    assert len(found.rows) == 2


def test_without_optuna_one_line_says_what_to_install(base, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UserError, match=r"pip install 'weft\[tune\]'"):
        run(base, tmp_path / "out")


def test_a_squared_error_is_searched_downwards(tmp_path):
    rows = [f"{len(e.text)}\t{e.text}\n" for e in small.examples()]
    (tmp_path / "numbers.tsv").write_text("".join(["label\ttext\n", *rows]))
    given = {
        "data.train": str(tmp_path / "numbers.tsv"),
        "data.dev_fraction": 0.3,
        "task.kind": "regress",
        "train.metric": "mse",
    }
    found = run(config.recipe("tfidf").with_values(given, "test"), tmp_path / "out", seeds=2)
    done = [row.value for row in found.rows]
    assert len(set(done)) > 1
    assert found.best.value == min(done)
    assert not found.plan.higher_is_better
    assert found.restarts is not None
    assert found.restarts.best(False).dev == min(r.dev for r in found.restarts.tuned)


def test_bad_trials_are_pruned_and_the_test_file_is_not_looked_at(tmp_path, monkeypatch):
    data = small.file(tmp_path)
    opened = []
    train = trial.train
    monkeypatch.setattr(
        trial, "train", lambda c, *a, **o: opened.append(c["data"]["test"]) or train(c, *a, **o)
    )
    given = {
        "data.train": str(data),
        "data.dev_fraction": 0.3,
        "data.test": str(data),
        "tokenizer.min_count": 1,
        "embedder.width": 7,
        **small.SMALL,
        "train.epochs": 5,
    }
    base = config.recipe("bag").with_values(given, "test")
    rates = "train.learning_rate=0.05,0.051,0.052,0.053,0.054,1e-9"
    found = run(base, tmp_path / "out", rates, sampler="grid", trials=0, seeds=1, device="cpu")
    states = [row.state for row in found.rows]
    assert states == ["complete"] * 5 + ["pruned"]
    pruned = found.rows[-1]
    assert [at for at, _ in pruned.curve] == [1, 2, 3]
    assert pruned.value == pruned.curve[-1][1]
    assert "worse than the median" in pruned.reason
    assert not (tmp_path / "out/trials/006/checkpoints").exists()
    assert [at for at, _ in found.rows[0].curve] == [1, 2, 3, 4, 5]
    assert opened == [""] * 6
    assert found.restarts is not None
    assert found.restarts.split == "test"
    assert all(r.test is not None for r in (*found.restarts.tuned, *found.restarts.start))
    alone = base.with_values({"data.test": ""}, "test")
    kept = run(alone, tmp_path / "b", rates, sampler="grid", trials=0, prune=False)
    assert [row.state for row in kept.rows] == ["complete"] * 6


def test_rows_say_whether_they_are_over():
    row = TrialRecord(1, "complete", 0.5, {})
    assert row.over
    assert not dataclasses.replace(row, state="killed").over
