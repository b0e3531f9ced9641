"""What people see of a search: the sentence, the lines, the page."""

import dataclasses
import re
from pathlib import Path

import pytest

from weft import config
from weft.report.pages.tune import (
    SIGNIFICANCE_LEVEL,
    build_notes,
    describe_changes,
    describe_progress,
    format_value,
    render_page,
    summarise,
)
from weft.tune.restart import Restart, Restarts
from weft.tune.search import TuneResult
from weft.tune.space import Choices, Range
from weft.tune.study import Limits, SearchSpec, TrialRecord

RATE = Range("train.learning_rate", 1e-4, 1e-1, log=True)
CELL = Choices("encoder.cell", ("lstm", "<script>alert(1)</script>"))
COMMAND = ["weft", "tune", "--search", "encoder.cell=a b"]


def rows():
    def given(rate, cell=0):
        return {"train.learning_rate": rate, "encoder.cell": CELL.values[cell]}

    return (
        TrialRecord(1, "complete", 0.80, given(1e-3), 3.0, curve=((1, 0.7), (2, 0.8))),
        TrialRecord(2, "complete", 0.91, given(5e-3, 1), 3.5, curve=((1, 0.8), (2, 0.91))),
        TrialRecord(3, "pruned", 0.50, given(1e-4), 1.0, "worse than the median", ((1, 0.5),)),
        TrialRecord(4, "failed", None, given(0.1), 0.5, "The loss became nan <b>"),
        TrialRecord(5, "killed", None, {}, None, "its process ended before the trial did"),
    )


def tuned(restarts=None, **more):
    base = config.recipe("bilstm").with_values({"data.train": "a.tsv"}, "test")
    plan = SearchSpec(base, (RATE, CELL), "accuracy", True, {})
    found = TuneResult(
        folder=Path("out"),
        plan=plan,
        limits=Limits(),
        rows=rows(),
        best=rows()[1],
        restarts=restarts,
        importance={"train.learning_rate": 0.75, "encoder.cell": 0.25},
        changes={"train.learning_rate": (0.001, 0.005)},
    )
    return dataclasses.replace(found, **more)


def restarts(tuned=(0.90, 0.92), start=(0.85, 0.87), p=0.0123, split="test", **more):
    def group(which, values):
        return tuple(
            Restart(which, i + 2, "", dev=v, test=v if split == "test" else None, **more)
            for i, v in enumerate(values)
        )

    return Restarts(group("tuned", tuned), group("start", start), split, p, 1234)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            restarts(),
            "Tuned 91.0 ± 1.4, original 86.0 ± 1.4 (accuracy on test over 2 new seeds): "
            "a significant gain (paired p = 0.012 on 1,234 texts).",
        ),
        (restarts(p=0.2), "not significant (paired p = 0.20"),
        (restarts(p=SIGNIFICANCE_LEVEL), "not significant"),
        (restarts(p=SIGNIFICANCE_LEVEL - 0.001), "a significant gain"),
        (restarts((0.7,), (0.8,), p=1e-4), "a significant loss: keep the original configuration"),
        (restarts((0.7,), (0.8,), p=1e-4), "Tuned 70.0, original 80.0"),
        (restarts(split="dev"), "The search optimised dev: expect a smaller gain elsewhere."),
        (
            restarts(start=(), p=None),
            "The best of 4 trials has 91.0 ± 1.4 (accuracy on test over 2",
        ),
        (None, "The best of 4 trials reaches accuracy 91.0 on dev; without restarts it is unknown"),
    ],
)
def test_summary_claims_only_what_was_measured(found, words):
    assert words in summarise(tuned(found))


def test_a_lower_error_is_a_gain():
    plan = dataclasses.replace(tuned().plan, metric="mse", higher_is_better=False)
    told = summarise(tuned(restarts((0.2,), (0.4,), p=0.01), plan=plan))
    assert "Tuned 0.200, original 0.400 (mse on test over 1 new seed): a significant gain" in told


def test_changes_and_remarks_in_words():
    assert (
        describe_changes(tuned())
        == "The best of 4 trials has train.learning_rate 0.005 (was 0.001)."
    )
    assert "The original configuration was the best" in describe_changes(tuned(changes={}))
    found = restarts(collapsed="it answers b to all 5 test texts")
    assert build_notes(tuned(found))[0] == (
        "Tuned, seed 2 collapsed: it answers b to all 5 test texts."
    )
    assert build_notes(tuned(found))[-2].startswith(
        "Tuned: 2 of 2 restarts collapsed (seeds 2, 3); "
    )
    assert (
        "accuracy on test 91.0 ± 1.4 with them, no value without." in build_notes(tuned(found))[-2]
    )
    assert build_notes(tuned(restarts(error="no")))[-1] == "Original, seed 3 failed: no"


def test_a_line_a_trial():
    first, _, pruned, failed, _ = rows()
    assert describe_progress(first, "accuracy") == (
        "trial 1: complete  accuracy 80.0  train.learning_rate=0.001  encoder.cell=lstm"
    )
    assert describe_progress(pruned, "accuracy").startswith("trial 3: pruned  accuracy 50.0  ")
    assert describe_progress(failed, "accuracy").endswith("  The loss became nan <b>")
    again = Restart("start", 3, "", dev=0.5, test=0.25, seconds=1.25)
    assert (
        describe_progress(again, "mse") == "original, seed 3: dev mse 0.500, test mse 0.250, 1.2 s"
    )
    assert format_value([1, 2]) == "[1, 2]"
    assert format_value(True) == "true"


def test_the_page_is_whole_and_safe():
    text = render_page(tuned(restarts()), COMMAND)
    assert "http://" not in text
    assert "https://" not in text
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert "nan &lt;b&gt;" in text
    assert text.count("<svg") == 5  # history, two slices, curves, restarts
    assert "weft tune --search &#39;encoder.cell=a b&#39;" in text
    assert "Trial 4 failed: The loss became nan" in text
    assert "Trial 5 was killed: its process ended" in text
    assert re.search(r">75 %<", text)
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))


def test_the_page_counts_trials_by_how_they_ended():
    counts = re.findall(r"<li><b>(\d+)</b> ([a-z ]+)</li>", render_page(tuned(), COMMAND))
    assert counts[0] == ("2", "trials finished")
    assert {("1", "pruned"), ("1", "failed"), ("1", "killed")} <= {*counts}


def test_a_page_without_restarts_curves_and_importance():
    plain = tuple(dataclasses.replace(row, curve=()) for row in rows())
    text = render_page(tuned(rows=plain, best=plain[1], importance={}), COMMAND)
    assert "Restarts</h2>" not in text
    assert "Learning curves</h2>" not in text
    assert "Hyperparameter importance</h2>" not in text
