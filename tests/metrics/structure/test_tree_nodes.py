"""Labels at the nodes of trees: every figure against counting by hand."""

import numpy as np
import pytest

from weft.metrics.structure.tree_nodes import NodeAccuracy

PARENTS = np.array([[2, 2, 4, 4, -1], [2, 2, -1, -1, -1], [-1, -1, -1, -1, -1]])
GOLD = np.array([[2, 3, 4, 1, 4], [0, 2, 2, -1, -1], [2, -1, -1, -1, -1]])
SAID = np.array([[2, 4, 4, 1, 3], [0, 1, 2, 2, 2], [3, 0, 0, 0, 0]])


def counted(neutral=2, **more) -> NodeAccuracy:
    measure = NodeAccuracy(5, neutral)
    measure.add(SAID, GOLD, PARENTS, **more)
    return measure


def test_node_scores_of_a_worked_example():
    found = counted().compute()
    assert list(found) == ["root", "nodes", "root_binary", "nodes_binary"]
    assert found["root"].value == pytest.approx(1 / 3)
    assert found["root"].n == 3
    assert found["nodes"].value == pytest.approx(5 / 9)
    assert found["nodes"].n == 9
    # Neutral gold falls away: of the roots only the first is left, of the nodes 3, 4, 1, 4 and 0.
    assert (found["root_binary"].value, found["root_binary"].n) == (1.0, 1)
    assert (found["nodes_binary"].value, found["nodes_binary"].n) == (1.0, 5)
    assert all(figure.low <= figure.value <= figure.high for figure in found.values())


def test_neutral_said_of_a_sided_node_is_wrong_unless_probabilities_decide():
    measure = NodeAccuracy(5, neutral=2)
    measure.add(np.array([[2]]), np.array([[4]]), np.array([[-1]]))
    assert measure.compute()["root_binary"].value == 0.0
    measure = NodeAccuracy(5, neutral=2)
    measure.add(np.array([[2]]), np.array([[0]]), np.array([[-1]]))
    assert measure.compute()["root_binary"].value == 0.0
    for positive, wanted in ((True, 1.0), (False, 0.0)):
        measure = NodeAccuracy(5, neutral=2)
        measure.add(np.array([[2]]), np.array([[4]]), np.array([[-1]]), np.array([[positive]]))
        assert measure.compute()["root_binary"].value == wanted


def test_nodes_without_a_label_do_not_count_and_unseen_ones_are_wrong():
    measure = NodeAccuracy(3, neutral=1)
    measure.add(np.array([[0, 1, 2]]), np.array([[-1, -2, 2]]), np.array([[2, 2, -1]]))
    found = measure.compute()
    assert (found["nodes"].value, found["nodes"].n) == (0.5, 2)
    assert found["nodes_binary"].n == 1
    assert "root_binary" not in NodeAccuracy(2).compute()


def test_of_two_roots_the_last_is_the_root():
    measure = NodeAccuracy(2)
    measure.add(np.array([[1, 0, 1]]), np.array([[0, 0, 1]]), np.array([[-1, 2, -1]]))
    assert measure.compute()["root"].value == 1.0
    assert measure.compute()["root"].n == 1


def test_merging_is_counting_at_once():
    whole = counted()
    parts = [NodeAccuracy(5, 2) for _ in range(3)]
    for i, part in enumerate(parts):
        part.add(SAID[i : i + 1], GOLD[i : i + 1], PARENTS[i : i + 1])
    parts[2].merge(parts[0])
    parts[2].merge(parts[1])
    assert parts[2].compute() == whole.compute()
    assert parts[2].n == 3


def test_intervals_are_over_sentences():
    """As resampling whole sentences one at a time; nodes of one sentence stay together."""
    draw = np.random.default_rng(0)
    gold = draw.integers(0, 3, (41, 7))
    said = np.where(draw.random((41, 1)) < 0.5, gold, 2 - gold)  # sentences right or mostly wrong
    parents = np.tile([6, 6, 6, 6, 6, 6, -1], (41, 1))
    measure = NodeAccuracy(3)
    measure.add(said, gold, parents)
    found = measure.compute(resamples=4000)["nodes"]
    right = (said == gold).mean(1)
    slow = [right[draw.integers(0, 41, 41)].mean() for _ in range(4000)]
    low, high = np.quantile(slow, [0.025, 0.975])
    assert found.low == pytest.approx(low, abs=0.012)
    assert found.high == pytest.approx(high, abs=0.012)
    independent = 1.96 * np.sqrt(found.value * (1 - found.value) / gold.size)
    assert high - low > 2.5 * independent


def test_nothing_counted():
    assert NodeAccuracy(5, 2).compute()["nodes_binary"].n == 0
    measure = NodeAccuracy(5, 2)
    measure.add(*(np.zeros((0, 3), dtype=int) for _ in range(3)))
    assert measure.n == 0
