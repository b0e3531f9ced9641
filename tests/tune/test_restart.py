"""Restarts: fresh seeds for both configurations, collapsed ones named, an honest comparison."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.fixtures.searches import STRENGTH, run, tfidf
from weft import config
from weft.metrics import paired_bootstrap, summarise_seeds
from weft.run.collapse import loss_never_decreased
from weft.tune.restart import Restart, Restarts, mark_collapsed
from weft.tune.study import SearchSpec

GOOD = [("a", "a"), ("b", "b"), ("b", "b"), ("a", "b"), ("b", "b")]
ONE = [(gold, "b") for gold, _ in GOOD]
POOR = [("a", "a"), ("b", "a"), ("b", "b"), ("a", "b"), ("b", "b")]


def plan(metric="accuracy", higher=True):
    return SearchSpec(config.recipe("tfidf"), (), metric, higher, {})


def made(*values):
    return [Restart("tuned", seed, "", dev=value) for seed, value in enumerate(values)]


def test_one_answer_for_every_text_is_a_collapse():
    first, second = mark_collapsed(made(0.8, 0.6), [GOOD, ONE], "dev", plan())
    assert first.collapsed == ""
    assert second.collapsed == "it answers b to all 5 dev texts"


def test_far_below_the_others_is_a_collapse_too():
    # One answer for all reaches 0.6: this one gains nothing, the others 0.2.
    found = mark_collapsed(made(0.8, 0.6, 0.8), [GOOD, POOR, GOOD], "dev", plan())
    assert [bool(r.collapsed) for r in found] == [False, True, False]
    assert found[1].collapsed == (
        "its accuracy of 0.600 on dev gains 0.000 over one answer for all (0.600), the others 0.200"
    )
    near = mark_collapsed(made(0.8, 0.75, 0.8), [GOOD, POOR, GOOD], "dev", plan())
    assert not any(r.collapsed for r in near)
    assert not any(r.collapsed for r in mark_collapsed(made(0.6), [POOR], "dev", plan()))


def test_no_better_than_one_answer_is_a_collapse_where_there_are_texts_enough():
    # Three in five are "b": one answer for all reaches 0.6.
    (found,) = mark_collapsed(made(0.6), [POOR * 7], "dev", plan())
    assert found.collapsed == (
        "its accuracy of 0.600 on dev is no better than that of one answer for all (0.600)"
    )
    assert not mark_collapsed(made(0.61), [POOR * 7], "dev", plan())[0].collapsed
    numbers = [(1.0, 1.1), (3.0, 2.9), (5.0, 5.2)] * 11
    wrong = plan("mse", higher=False)
    assert mark_collapsed(made(3.0), [numbers], "dev", wrong)[0].collapsed
    assert not mark_collapsed(made(0.1), [numbers], "dev", wrong)[0].collapsed


def test_a_loss_that_never_fell_is_a_collapse():
    assert loss_never_decreased({"losses": (0.7, 0.64)}) == (
        "its training loss never fell by a tenth: 0.700 at the start, 0.640 at best"
    )
    assert not loss_never_decreased({"losses": (0.7, 0.62)})
    assert not loss_never_decreased({"losses": None})
    (first, *_) = made(0.8)
    told = replace(first, collapsed="its training loss never fell")
    assert (
        mark_collapsed([told], [GOOD], "dev", plan())[0].collapsed == "its training loss never fell"
    )


def test_means_with_and_without_the_collapsed():
    group = [
        replace(r, collapsed="x" if r.seed in (1, 3) else "") for r in made(0.9, 0.5, 0.8, 0.6)
    ]
    found = Restarts(tuple(group), (), "dev", None, 5)
    assert found.collapses("tuned") == "2 of 4 restarts collapsed (seeds 1, 3)"
    assert found.collapses("start") == ""
    assert found.spread("tuned", "dev").mean == pytest.approx(0.7)
    assert found.spread("tuned", "dev", collapsed=False).mean == pytest.approx(0.85)


def test_errors_count_downwards():
    numbers = [(1.0, 1.1), (3.0, 2.9), (5.0, 5.2)]
    values = made(0.02, 2.6, 0.03)
    found = mark_collapsed(values, [numbers] * 3, "dev", plan("mse", higher=False))
    assert [bool(r.collapsed) for r in found] == [False, True, False]


def test_constant_numbers_are_a_collapse():
    (found,) = mark_collapsed(made(0.0), [[("1", 2.5), ("4", 2.5)]], "dev", plan("pearson"))
    assert found.collapsed == "it answers 2.5 to all 2 dev texts"


def test_both_configurations_get_the_same_new_seeds(tmp_path):
    # The start is so weak that the search must leave it.
    base = tfidf(tmp_path, **{"classic.C": 1e-3, "data.test": str(tmp_path / "train.tsv")})
    found = run(base, tmp_path / "out", STRENGTH, trials=5, seeds=2)
    again = found.restarts
    assert again is not None
    assert [r.seed for r in again.tuned] == [r.seed for r in again.start] == [2, 3]
    assert again.split == "test"
    for which, group in (("tuned", again.tuned), ("start", again.start)):
        assert again.spread(which, "test") == summarise_seeds([r.test for r in group])
    scores = []
    for which in ("tuned", "start"):
        lines = (tmp_path / f"out/restarts/{which}-2/predictions.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        scores.append([float(row["label"] == row["value"]) for row in rows])
    assert again.p == paired_bootstrap(
        *map(np.array, scores)
    )  # this model does not depend on its seed
    assert again.n == 46
    assert found.changes["classic.C"] == (1e-3, found.best.settings["classic.C"])
    saved = json.loads((tmp_path / "out/tune.json").read_text())["restarts"]
    assert saved["spread"]["tuned_test"]["mean"] == pytest.approx(again.tuned[0].test)
    model = (tmp_path / "out/model/model.json").read_text()
    assert model == (tmp_path / "out/restarts/tuned-2/model/model.json").read_text()


def test_a_new_winner_is_trained_again_and_what_stands_is_not(tmp_path):
    base = tfidf(tmp_path, **{"classic.C": 1e-3})
    three = "classic.C=0.001,0.002,5.0"
    out = tmp_path / "out"
    found = run(base, out, three, sampler="grid", trials=2, seeds=1)
    assert found.changes == {}
    assert found.restarts is not None
    assert found.restarts.start == ()  # there is nothing to compare with itself
    assert found.restarts.p is None
    found = run(base, out, three, sampler="grid", trials=3, seeds=1)
    assert found.best.settings == {"classic.C": 5.0}
    again = config.load(out / "restarts/tuned-2/config.toml")
    assert again["classic"]["C"] == 5.0
    written = [path.stat().st_mtime_ns for path in sorted(out.glob("restarts/*/result.json"))]
    assert len(written) == 2
    run(base, out, three, sampler="grid", trials=3, seeds=1)
    assert written == [p.stat().st_mtime_ns for p in sorted(out.glob("restarts/*/result.json"))]


def test_failed_restart_is_reported_and_the_others_count(tmp_path, monkeypatch):
    from weft.tune import restart

    train = restart.train

    def broken(given, folder, **options):
        if folder.name == "tuned-3":
            raise RuntimeError("no")
        return train(given, folder, **options)

    monkeypatch.setattr(restart, "train", broken)
    base = tfidf(tmp_path, **{"classic.C": 1e-3})
    found = run(base, tmp_path / "out", "classic.C=5.0", sampler="grid", trials=0, seeds=2)
    assert found.restarts is not None
    first, second = found.restarts.tuned
    assert first.dev is not None
    assert second.error.startswith("RuntimeError: no (see ")
    assert found.restarts.spread("tuned", "dev").n == 1
    assert found.restarts.spread("start", "dev").n == 2
