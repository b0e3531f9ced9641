"""Uneven classes in `weft compare`: macro-F1 ranks, and the best recipes are tried balanced."""

import json
import random

import numpy as np
import pytest
from sklearn.metrics import f1_score

import weft
from weft.compare.balancing import uneven_note
from weft.compare.dataset_stats import DatasetStats
from weft.compare.gain import paired_gain
from weft.compare.significance import count_per_text, macro_f1
from weft.compare.trial import SplitSpec, Trial


def write(path, common, rare, seed):
    """Texts of noisy words; two words of a class each."""
    words = {"common": ("plain", "usual"), "rare": ("odd", "strange")}
    pick = random.Random(seed)
    labels = ["common"] * common + ["rare"] * rare
    pick.shuffle(labels)
    rows = []
    for label in labels:
        other = pick.choice(words["common"])
        rows.append(f"{pick.choice(words[label])} {other} word{pick.randrange(40)}\t{label}\n")
    path.write_text("text\tlabel\n" + "".join(rows), "utf-8")
    return str(path)


def files(tmp_path, common=290, rare=10):
    return [write(tmp_path / "train.tsv", common, rare, 1),
            write(tmp_path / "test.tsv", 80, 12, 2)]  # fmt: skip


CHANGES = {"classic.C": 1.0, "classic.characters": []}


def test_the_best_recipes_are_tried_balanced(tmp_path, capsys):
    rows = weft.compare(
        files(tmp_path), tmp_path / "out", recipes=["tfidf"], seeds=1, minutes=0, changes=CHANGES,
        device="cpu",
    )  # fmt: skip
    by_name = {row.recipe: row for row in rows}
    assert set(by_name) == {"tfidf", "tfidf+weights", "majority"}
    assert all(row.metric == "macro_f1" for row in rows)
    plain, balanced = by_name["tfidf"], by_name["tfidf+weights"]
    assert plain.gain is None
    assert balanced.gain_over == "tfidf"
    assert balanced.gain == pytest.approx(balanced.quality - plain.quality)
    assert balanced.gain_low <= balanced.gain <= balanced.gain_high
    assert balanced.gain > 0
    out = capsys.readouterr()
    assert "('common' has" in out.err
    assert "recipes are ranked by macro_f1" in out.err
    assert "tfidf+weights" in (tmp_path / "out/report.html").read_text("utf-8")
    board = json.loads((tmp_path / "out/leaderboard.json").read_text("utf-8"))
    assert board[0]["recipe"] == "tfidf+weights"
    # A second time nothing is trained.
    again = weft.compare(
        files(tmp_path), tmp_path / "out", recipes=["tfidf"], seeds=1, minutes=0, changes=CHANGES,
        device="cpu",
    )  # fmt: skip
    assert "trained in" not in capsys.readouterr().err
    assert [row.quality for row in again] == [row.quality for row in rows]


@pytest.mark.parametrize(
    ("common", "options", "changes", "metric"),
    [
        (150, {}, {}, "accuracy"),
        (290, {"metric": "accuracy"}, {"train.balance": "sampling"}, "accuracy"),
    ],
    ids=["even", "asked for"],
)
def test_otherwise_nothing_is_added(tmp_path, common, options, changes, metric):
    rows = weft.compare(
        files(tmp_path, common, 300 - common), tmp_path / "out", recipes=["tfidf"], seeds=1,
        minutes=0, changes=CHANGES | changes, device="cpu", quiet=True, **options,
    )  # fmt: skip
    assert {row.recipe for row in rows} == {"tfidf", "majority"}
    assert rows[0].metric == metric


def test_tags_and_numbers_are_not_uneven_texts():
    stats = {"files": (), "rows": {"train": 100}, "notes": ()}
    labels = {"a": {"train": 99}, "b": {"train": 1}}
    assert uneven_note(DatasetStats(labels=labels, numeric=False, **stats))
    assert not uneven_note(DatasetStats(labels=labels, numeric=True, **stats))
    assert not uneven_note(DatasetStats(labels=labels, numeric=False, kind="tags", **stats))


def test_macro_f1_of_several_labels_counts_each(tmp_path):
    answers = [(["a", "b"], ["a"]), ([], ["b"]), (["b"], ["b", "c"])]
    lines = (json.dumps({"text": "x", "label": gold, "value": value}) for gold, value in answers)
    (tmp_path / "predictions.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    trial = Trial("r", 1, None, weft.Config({}), SplitSpec(""), tmp_path, "")
    counts = count_per_text([trial], "macro_f1", ["a", "b", "c"])
    assert macro_f1(counts.sum(0, keepdims=True))[0] == pytest.approx(np.mean([1, 0.5, 0]))


def test_gain_in_macro_f1_is_of_the_means_over_seeds(tmp_path):
    pick = random.Random(3)
    gold = [pick.choice("aaab") for _ in range(60)]

    def trial(name, seed, right):
        folder = tmp_path / f"{name}{seed}"
        folder.mkdir()
        values = [g if pick.random() < right else pick.choice("ab") for g in gold]
        lines = [json.dumps({"text": "x", "label": g, "value": v})
                 for g, v in zip(gold, values, strict=True)]  # fmt: skip
        (folder / "predictions.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
        return Trial(name, seed, None, weft.Config({}), SplitSpec(""), folder, ""), values

    ours, theirs = ([trial(name, seed, right) for seed in (1, 2, 3)]
                    for name, right in (("new", 0.9), ("old", 0.2)))  # fmt: skip
    means = [
        np.mean([f1_score(gold, values, average="macro") for _, values in runs])
        for runs in (ours, theirs)
    ]
    trials = [[one for one, _ in runs] for runs in (ours, theirs)]
    gain = paired_gain(*trials, "macro_f1", means[0])
    assert gain.value == pytest.approx(means[0] - means[1])
    assert 0 < gain.low < gain.value < gain.high
    assert gain.n == 60
