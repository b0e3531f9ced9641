"""Names beside points: nothing overlaps, and what has no room is left out."""

import numpy as np

from weft.report.charts.label_placement import LabelPlacer


def overlap(a, b) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def test_no_name_meets_another_or_a_point_or_the_edge():
    rng = np.random.default_rng(2)
    points = rng.uniform(10, 190, (61, 2)).tolist()
    frame = (0.0, 0.0, 200.0, 200.0)
    dots = [(x - 2, y - 2, x + 2, y + 2) for x, y in points]
    labels = LabelPlacer(frame, dots, far=40)
    placed = []
    for x, y in points:
        found = labels.place(x, y, 2, 31, 7)
        if found is not None:
            left, low = x + found[0], y + found[1]
            placed.append((left, low, left + 31, low + 7))
    assert 10 < len(placed) < 61  # some had no room
    for i, box in enumerate(placed):
        assert not any(overlap(box, other) for other in [*dots, *placed[:i]])
        assert box[0] >= 0
        assert box[1] >= 0
        assert max(box[2:]) <= 200
    assert len(labels.taken) == 61 + len(placed)


def test_the_nearest_free_place_is_taken():
    labels = LabelPlacer((0, 0, 100, 100), [(48, 48, 52, 52)])
    assert labels.place(50, 50, 2, 20, 6) == (6, -3)  # to the right, at the same height
    assert labels.place(50, 50, 2, 20, 6) == (-26, -3)  # then to the left
    assert labels.place(50, 50, 2, 20, 6) == (-10, 5)  # then above


def test_a_full_picture_has_no_place():
    labels = LabelPlacer((0, 0, 100, 100), [(0, 0, 100, 100)])
    assert labels.place(50, 50, 2, 20, 6) is None
    assert len(labels.taken) == 1


def test_a_line_to_a_name_crosses_no_other_name():
    rng = np.random.default_rng(4)
    points = rng.uniform(60, 140, (41, 2)).tolist()
    labels = LabelPlacer(
        (0.0, 0.0, 200.0, 200.0), [(x, y, x, y) for x, y in points], far=60, lead=9
    )
    names, lines = [], []
    for x, y in points:
        found = labels.place(x, y, 2, 17, 7)
        if found is not None:
            left, low = x + found[0], y + found[1]
            line = labels.line(x, y, found, 17, 7)
            assert (line is not None) == (abs(low + 3.5 - y) > 9)
            lines += [(len(names), line)] if line else []
            names.append((left, low, left + 17, low + 7))
    assert len(lines) > 5
    for owner, line in lines:
        assert not any(overlap(line, name) for i, name in enumerate(names) if i != owner)
