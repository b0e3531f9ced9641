"""Every metric improves in the direction that `lower_is_better` declares."""

import numpy as np
import pytest

from weft.metrics import ClassificationMetric, MultiLabelMetric, RegressionMetric
from weft.metrics.generation.coco import Cider, CocoRouge
from weft.metrics.generation.nist import Nist
from weft.metrics.generation.rouge import Rouge
from weft.metrics.generation.slots import SlotErrors, SlotRules
from weft.metrics.generation.text_overlap import Bleu, Chrf, ExactMatch
from weft.metrics.perplexity import Perplexity, TextCost, TextSize
from weft.metrics.squad import SquadMetric
from weft.metrics.structure.brackets import BracketedTree, BracketF1
from weft.metrics.structure.chunks import SpanF1
from weft.metrics.structure.dependencies import AttachmentScores
from weft.metrics.structure.tags import TagAccuracy, metric_name
from weft.metrics.structure.tree_nodes import NodeAccuracy
from weft.metrics.value import lower_is_better
from weft.tasks.language import LMMetric
from weft.tasks.mlm import MLMMetric, MLMStats
from weft.tasks.tag import Tag

CLASSES, NUMBERS = np.array([0, 1, 1]), np.array([1.0, 2.0, 3.0])
GOLD = ["the cat sat on the old mat today", "a dog ran over the hill at night"]
POOR = ["the cat sat under a new chair now", "a bird flew over a house by day"]
SLOTS = [{"name": "Zork", "food": "pie"}, {"name": "Bar", "food": "tea"}, {"name": "Inn"}]
ARCS = [([0, 1], ["root", "obj"])]  # heads and relations
TREE = BracketedTree([("S", 0, 4), ("NP", 0, 2), ("VP", 2, 4)], ["D", "N", "V", "N"])
CROSSING = BracketedTree([("S", 0, 4), ("NP", 1, 3)], ["D", "N", "V", "N"])
NODES = [np.array([[0, 4, 4]]), np.array([[-1, 0, 0]])]  # gold labels and parents

# A metric, good and poor predictions, and further arguments of `add`.
CASES = [
    (lambda: ClassificationMetric(2), CLASSES, np.array([1, 1, 0]), [CLASSES]),
    (lambda: MultiLabelMetric(2), np.eye(2), 1 - np.eye(2), [np.eye(2)]),
    (RegressionMetric, NUMBERS, np.array([3.0, 1.0, 2.0]), [NUMBERS]),
    *((kind, GOLD, POOR, [GOLD]) for kind in (Bleu, Chrf, ExactMatch, Rouge, Nist)),
    *((kind, GOLD, POOR, [GOLD]) for kind in (CocoRouge, Cider)),
    (
        lambda: SlotErrors(SlotRules().with_names(SLOTS)),
        ["Zork has pie", "Bar has tea", "Inn is open"],
        ["Bar has", "Zork has pie", "Inn has pie"],
        [SLOTS],
    ),
    (lambda: SquadMetric(True), ["a cat", ""], ["a dog", "cat"], [[["a cat"], []]]),
    (
        Perplexity,
        [TextCost(2.0, 5, 1.0, 1, 0.2, 1)],
        [TextCost(5.0, 5, 2.0, 1, 1.0, 3)],
        [[TextSize(5, 20)]],
    ),
    (MLMMetric, [MLMStats(1.0, 2, 2, 0.1, 1, 1)], [MLMStats(4.0, 2, 0, 2.0, 1, 0)], [None]),
    (BracketF1, [TREE], [CROSSING], [[TREE]]),
    (SpanF1, [[("A", 0, 2)]], [[("A", 0, 1)]], [[[("A", 0, 2)]]]),
    (AttachmentScores, ARCS, [([2, 0], ["obj", "root"])], [ARCS]),
    (
        lambda: TagAccuracy(("pos", "ner")),
        [[("N", "V"), ("O", "O")]],
        [[("V", "N"), ("A", "A")]],
        [[[("N", "V"), ("O", "O")]], [[True, False]]],
    ),
    (lambda: NodeAccuracy(5, 2), NODES[0], 4 - NODES[0], NODES),
]  # fmt: skip


@pytest.mark.parametrize(("make", "good", "poor", "rest"), CASES)
def test_good_predictions_beat_poor_ones_in_the_declared_direction(make, good, poor, rest):
    values = []
    for predicted in (good, poor):
        metric = make()
        metric.add(predicted, *rest)
        values.append(metric.compute(resamples=0))
    assert values[0]
    for name, value in values[0].items():
        gain = value.value - values[1][name].value
        assert gain < 0 if lower_is_better(name) else gain > 0, name


def test_perplexity_of_a_backward_model_falls_too():
    metric = LMMetric()
    metric.back = LMMetric()
    for one in (metric, metric.back):
        one.add([TextCost(2.0, 5)], [TextSize(5, 20)])
    assert lower_is_better("backward_perplexity")
    assert all(map(lower_is_better, metric.compute(resamples=0)))


@pytest.mark.parametrize("column", ["wrong", "missing", "pos"])
def test_accuracy_of_a_column_named_like_an_error_still_rises(column):
    task = Tag([column])
    metric = TagAccuracy((column,))
    metric.add([[("N", "V")]], [[("N", "V")]])
    assert task.metric == metric_name(column)
    assert task.metric in metric.compute(resamples=0)
    assert not any(map(lower_is_better, metric.compute(resamples=0)))
