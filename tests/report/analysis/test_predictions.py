"""What is counted of a model's answers, against slow and obvious versions."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import precision_recall_fscore_support

from weft.errors import UserError
from weft.metrics import MultiLabelMetric
from weft.metrics.calibration import CalibrationBins
from weft.report.analysis.confusion import build_matrix, most_confused_pairs
from weft.report.analysis.predictions import read_predictions


def written(folder: Path, rows: list[tuple[Any, Any, float]]) -> Path:
    path = folder / "predictions.jsonl"
    lines = [
        json.dumps({"text": f"text é {i}", "label": a, "value": b, "score": s, "coverage": 1.0},
                   ensure_ascii=False)
        for i, (a, b, s) in enumerate(rows)
    ]  # fmt: skip
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def random_rows(count: int, labels: str = "abcde", seed: int = 3) -> list[tuple[str, str, float]]:
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        label, score = draw.choice(labels), draw.random()
        rows.append((label, label if draw.random() < 0.6 else draw.choice(labels), score))
    return rows


def test_figures_of_each_label(tmp_path):
    rows = [*random_rows(211), ("never answered", "a", 0.5), ("a", "never right", 0.5)]
    found = read_predictions(written(tmp_path, rows))
    gold, said, _ = zip(*rows, strict=True)
    names = [c.label for c in found.classes]
    assert sorted(names) == sorted({*gold, *said})
    wanted = precision_recall_fscore_support(gold, said, labels=names, zero_division=0)
    figures = [c.figures for c in found.classes]
    got = [[f.precision, f.recall, f.f1, f.support] for f in figures]
    np.testing.assert_allclose(np.transpose(got), wanted, atol=1e-12)
    assert [f.f1 for f in figures] == sorted(f.f1 for f in figures)
    assert (found.n, found.wrong) == (len(rows), sum(a != b for a, b, _ in rows))
    worst = next(c for c in found.classes if c.label == "b")
    instead = Counter(b for a, b, _ in rows if a == "b" and b != "b")
    assert worst.times == max(instead.values())
    assert instead[worst.confused_with] == worst.times


def test_calibration_error(tmp_path):
    rows = [*random_rows(499), ("a", "a", 1.0), ("a", "b", 1 / 15), ("b", "b", 2 / 15)]
    found = read_predictions(written(tmp_path, rows)).calibration
    assert found is not None
    chance = np.array([s for _, _, s in rows])
    right = np.array([a == b for a, b, _ in rows])
    wanted = 0.0
    for k in range(15):  # Guo et al. 2017, equations 2 and 3: the upper end belongs to the bin
        inside = (chance > k / 15) & (chance <= (k + 1) / 15)
        assert found.bins[k].count == inside.sum()
        if inside.any():
            wanted += inside.mean() * abs(right[inside].mean() - chance[inside].mean())
    assert found.error == pytest.approx(wanted, abs=1e-12)
    assert found.accuracy == pytest.approx(right.mean())
    assert found.confidence == pytest.approx(chance.mean())


def test_a_probability_of_nothing_is_counted():
    bins = CalibrationBins(5)
    bins.add(0.0, False)
    bins.add(1.0, True)
    assert bins.counts == [1, 0, 0, 0, 1]
    assert bins.calibration().error == 0.0


def test_the_most_confident_errors(tmp_path):
    rows = [("a", "b", 0.9), ("a", "a", 0.99), ("b", "a", 0.95), ("b", "a", 0.2), ("b", "a", 0.9)]
    found = read_predictions(written(tmp_path, rows), errors=3).errors
    assert [(e.text, e.score) for e in found] == [
        ("text é 2", 0.95),
        ("text é 0", 0.9),  # of equals, the earlier
        ("text é 4", 0.9),
    ]
    assert not any(e.is_correct for e in found)


def test_a_sample_keeps_every_label_and_its_errors_in_proportion(tmp_path):
    rows = [("a", "a", 0.5)] * 700 + [("a", "b", 0.5)] * 200 + [("b", "b", 0.5)] * 97
    rows += [("c", "c", 0.5)] * 2 + [("c", "a", 0.5)]
    random.Random(5).shuffle(rows)
    path = written(tmp_path, rows)
    found = read_predictions(path, sample=100, seed=1).sample
    assert len(found) == len({s.text for s in found}) == 100
    counts = Counter((s.label, s.is_correct) for s in found)
    assert abs(counts["a", True] - 70) <= 2
    assert abs(counts["a", False] - 20) <= 1
    assert counts["c", True] == counts["c", False] == 1  # too few for a share, but there
    numbers = [int(s.text.split()[-1]) for s in found]
    assert numbers == sorted(numbers)
    assert read_predictions(path, sample=100, seed=1).sample == found
    assert read_predictions(path, sample=100, seed=2).sample != found
    assert len(read_predictions(path, sample=5000).sample) == 1000
    assert len(read_predictions(path, sample=3).sample) == 3  # fewer than there are groups


def test_numbers(tmp_path):
    rows = [(1.0, 1.5, 1.5), ("2.0", 1.75, 1.75), (3.0, 3.0, 3.0)]  # a column of text is read too
    found = read_predictions(written(tmp_path, rows), errors=2)
    assert found.kind == "numbers"
    np.testing.assert_array_equal(found.pairs, [[1, 1.5], [2, 1.75], [3, 3]])
    assert [e.absolute_error for e in found.errors] == [0.5, 0.25]
    assert found.classes == ()
    assert found.calibration is None


def test_several_labels(tmp_path):
    names = ("x", "y", "z")
    draw = random.Random(7)
    rows = [
        ([n for n in names if draw.random() < 0.5], [n for n in names if draw.random() < 0.5], 0.5)
        for _ in range(53)
    ]
    found = read_predictions(written(tmp_path, rows))
    measure = MultiLabelMetric(3)
    measure.add(
        *(np.array([[n in row[k] for n in names] for row in rows], dtype=np.int64) for k in (1, 0))
    )
    assert {c.label: c.figures for c in found.classes} == dict(
        zip(names, measure.per_class(), strict=True)
    )
    assert found.wrong == sum(set(a) != set(b) for a, b, _ in rows)
    assert (found.kind, dict(found.confusions), found.calibration) == ("sets", {}, None)


def test_the_order_of_a_set_does_not_matter(tmp_path):
    found = read_predictions(written(tmp_path, [(["x", "y"], ["y", "x"], 0.5)]))
    assert found.wrong == 0


def test_damaged_and_empty_files_raise_user_error(tmp_path):
    path = written(tmp_path, random_rows(3))
    path.write_text(path.read_text() + '{"text": "half')
    with pytest.raises(UserError, match=r"predictions.jsonl:4: damaged .*Retrain"):
        read_predictions(path)
    path.write_text("")
    with pytest.raises(UserError, match="no predictions"):
        read_predictions(path)
    with pytest.raises(UserError, match=r"Cannot read .*missing"):
        read_predictions(tmp_path / "missing")


def test_a_small_matrix_is_shown_whole():
    cells = {("10", "10"): 3, ("9", "10"): 1, ("9", "9"): 4, ("x", "9"): 2}
    found = build_matrix(cells)
    assert found.is_whole
    assert found.labels == ("9", "10", "x")  # numbers by value
    assert [[cell.count for cell in row] for row in found.rows] == [[4, 1, 0], [0, 3, 0], [2, 0, 0]]
    assert found.rows[0][1].fraction == pytest.approx(0.2)
    assert [[cell.is_correct for cell in row] for row in found.rows] == np.eye(
        3, dtype=bool
    ).tolist()
    assert found.elsewhere == (0, 0, 0)


def test_of_a_large_matrix_the_most_confused_corner():
    names = [f"label {i}" for i in range(40)]
    cells = {(name, name): 50 for name in names}
    cells |= {(names[3], names[30]): 9, (names[30], names[3]): 2, (names[7], names[8]): 6}
    cells |= {(names[i], names[i + 1]): 1 for i in range(10, 39)}
    found = build_matrix(cells)
    assert not found.is_whole
    assert len(found.labels) <= 12
    assert found.labels[:2] == ("label 3", "label 30")  # those confused most stand side by side
    assert abs(found.labels.index("label 7") - found.labels.index("label 8")) == 1
    assert found.rows[0][1].count == 9
    for label, row, rest in zip(found.labels, found.rows, found.elsewhere, strict=True):
        whole = sum(n for (gold, _), n in cells.items() if gold == label)
        assert sum(cell.count for cell in row) + rest == whole
    first = most_confused_pairs(cells, 2)
    assert [(p.label, p.predicted, p.count) for p in first] == [
        ("label 3", "label 30", 9),
        ("label 7", "label 8", 6),
    ]
    assert first[0].fraction == pytest.approx(9 / 59)


def test_labels_that_are_confused_in_a_chain_stand_together():
    names = [f"label {i:02}" for i in range(20)]
    cells = {(name, name): 50 for name in names}
    chain = [(0, 9, 8), (9, 4, 7), (2, 3, 5), (15, 4, 4)]
    cells |= {(names[a], names[b]): count for a, b, count in chain}
    found = build_matrix(cells).labels
    assert found == tuple(names[i] for i in (0, 9, 4, 15, 2, 3))


def test_nothing_confused():
    names = [f"label {i}" for i in range(40)]
    assert build_matrix({(name, name): 2 for name in names}).labels == ()
    assert most_confused_pairs({(name, name): 2 for name in names}) == ()
