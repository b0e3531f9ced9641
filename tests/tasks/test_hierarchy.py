"""Labels that are paths in a tree: loss, answers, metrics, files."""

import json
from itertools import pairwise

import numpy as np
import pytest
import torch

import weft
from tests.fixtures.command import command
from weft.batch.label_levels import LabelLevels
from weft.decode.label_losses import ancestor_loss
from weft.errors import UserError
from weft.report.drawings.label_tree import (
    draw_label_tree,
    draw_terminal_tree,
    probability_rows,
    recall_rows,
)
from weft.tasks.classify import Classify, ClassSpace
from weft.text.example import Example
from weft.text.label_tree import LabelTree, prefixes

ENTRIES = ("a > x", "a > y", "b", "b > z > v", "b > z > w", "c")
NAMES = {
    "animal > bird": "sparrow finch owl",
    "animal > fish": "trout carp eel",
    "plant > tree": "oak elm pine",
    "plant > herb": "mint sage dill",
}


def write_rows(path, extra=()):
    rows = [
        f"the {word} {verb} here\t{label}"
        for verb in ("moves", "stays", "waits", "rests")
        for label, words in NAMES.items()
        for word in words.split()
    ]
    path.write_text("\n".join(["text\tlabel", *rows, *extra, ""]))
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hierarchy")
    train = str(write_rows(folder / "train.tsv"))
    config = weft.recipe("bag").with_values(
        {"data.train": train, "data.dev": train, "data.test": train, "train.epochs": 4,
         "tokenizer.min_count": 1, "task.ancestor_weight": 0.5, "train.learning_rate": 0.05},
        "test",
    )  # fmt: skip
    return folder, weft.train(config, folder / "run", quiet=True, device="cpu")


def test_the_loss_of_inner_nodes_is_written_out():
    torch.manual_seed(0)
    logits = torch.randn(7, len(ENTRIES), requires_grad=True)
    gold = torch.tensor([0, 1, 2, 3, 4, 5, 0])
    total = ancestor_loss(logits, gold, LabelLevels(LabelTree(ENTRIES).path_ids))
    probs = logits.softmax(1)
    wanted = torch.zeros(())
    for row, label in zip(probs, gold.tolist(), strict=True):
        for node in prefixes(ENTRIES[label], " > "):
            below = [i for i, e in enumerate(ENTRIES) if node in prefixes(e, " > ")]
            if len(below) > 1:  # an inner node; `b` is one for the label `b` itself, too
                wanted = wanted - row[below].sum().log()
    torch.testing.assert_close(total, wanted, atol=1e-5, rtol=0)
    mine, right = (torch.autograd.grad(x, logits, retain_graph=True)[0] for x in (total, wanted))
    torch.testing.assert_close(mine, right, atol=1e-5, rtol=0)


def test_every_answer_is_a_consistent_path():
    task, space = Classify(hierarchy=True), ClassSpace(ENTRIES, separator=" > ")
    logits = np.random.default_rng(0).normal(size=(50, len(ENTRIES))) * 3
    for answer in task.answers(logits, space):
        nodes, probs = zip(*answer.path, strict=True)
        assert nodes == prefixes(answer.value, " > ")
        assert all(a >= b - 1e-12 for a, b in pairwise(probs))
        assert probs[-1] >= answer.score - 1e-12  # equal, unless the label is an inner node
        if answer.value != "b":
            assert probs[-1] == pytest.approx(answer.score)


def test_a_hierarchy_is_inferred_from_most_labels_unless_configured():
    paths = [Example("t", label) for label in ("a > b", "a > c", "a")]
    assert Classify.infer({}, paths) == {"multi_label": False, "hierarchy": True}
    assert "hierarchy" not in Classify.infer({"hierarchy": False}, paths)
    assert Classify.infer({"separator": "/"}, paths)["hierarchy"] is False
    assert Classify.infer({}, [Example("t", ("a > b",))]) == {"multi_label": True}
    assert "hierarchy" not in Classify.infer({"loss": "margin"}, paths)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"multi_label": True}, "not for multi_label = true"),
        ({"loss": "margin"}, "not for loss = 'margin'"),
        ({"separator": " "}, "separator is blank"),
        ({"ancestor_weight": -1.0}, "ancestor_weight is a weight"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        Classify(hierarchy=True, **settings)


def test_a_run_measures_every_level_and_its_model_answers_with_paths(run):
    folder, result = run
    figures = result.figures["test"]
    assert figures["accuracy_level_1"].value >= figures["accuracy_level_2"].value
    assert figures["accuracy_level_2"].value == figures["accuracy"].value > 0.9
    log = (folder / "run" / "log.txt").read_text()
    assert "4 labels in a tree of 2 levels (2, 4 nodes), split at ' > '" in log
    predictor = weft.load(folder / "run")  # replays recorded answers
    (answer,) = predictor(["the oak stays here"])
    assert [node for node, _ in answer.path] == ["plant", "plant > tree"]
    out = command("predict", str(folder / "run"), "the oak stays here", "--json").out
    path = json.loads(out)["path"]
    assert path[0]["label"] == "plant"
    assert path[0]["probability"] == pytest.approx(answer.path[0][1])


def test_the_report_draws_the_tree(run, tmp_path):
    folder, _ = run
    page = tmp_path / "page.html"
    found = command(
        "evaluate", str(folder / "run"), str(folder / "train.tsv"), "--report", str(page)
    )
    assert "accuracy_level_1" in found.out
    assert "recall at each node of the label tree" in found.out
    assert "Label tree" in page.read_text()


def test_drawings_follow_the_path_and_count_subtrees():
    tree = LabelTree(tuple(sorted(NAMES)))
    rows = probability_rows(tree, (0.1, 0.0, 0.2, 0.7), (("plant", 0.9), ("plant > tree", 0.7)))
    assert [(row.name, row.depth, row.chosen) for row in rows] == [
        ("plant", 0, True), ("tree", 1, True), ("herb", 1, False),
        ("animal", 0, False), ("bird", 1, False),
    ]  # fmt: skip
    assert [round(row.value, 6) for row in rows] == [0.9, 0.7, 0.2, 0.1, 0.1]
    assert "90.0%" in draw_terminal_tree(rows).plain
    found = recall_rows(
        tree, {("plant > tree", "plant > herb"): 3, ("plant > tree", "plant > tree"): 1}
    )
    assert [(row.name, row.value, row.note) for row in found] == [
        ("plant", 1.0, "4"), ("tree", 0.25, "4"),
    ]  # fmt: skip
    assert "25.0&nbsp;%" in draw_label_tree(found)


def test_a_classic_model_sums_labels_and_refuses_the_loss_of_inner_nodes(run, tmp_path):
    folder, _ = run
    config = weft.recipe("tfidf").with_values({"data.train": str(folder / "train.tsv")}, "test")
    result = weft.train(config, tmp_path / "run", quiet=True)
    assert result.figures["dev"]["accuracy_level_1"].n
    (answer,) = result.predictor(["the oak stays here"])
    assert [node for node, _ in answer.path] == ["plant", "plant > tree"]
    with pytest.raises(UserError, match="fitted to the labels alone"):
        weft.train(config.with_values({"task.ancestor_weight": 1.0}, "test"), tmp_path / "b")


def test_flat_labels_and_an_ancestor_weight_do_not_go_together(run, tmp_path):
    folder, _ = run
    config = weft.recipe("bag").with_values(
        {"data.train": str(folder / "train.tsv"), "task.hierarchy": False,
         "task.ancestor_weight": 1.0}, "test",
    )  # fmt: skip
    with pytest.raises(UserError, match="these labels are not in a tree"):
        weft.train(config, tmp_path / "run")


def test_an_empty_level_names_its_row(tmp_path):
    path = write_rows(tmp_path / "train.tsv", ["the end\tplant > "])
    config = weft.recipe("bag").with_values({"data.train": str(path)}, "test")
    with pytest.raises(UserError, match=r"train.tsv:50: a level of the label 'plant > ' has no"):
        weft.train(config, tmp_path / "run", quiet=True)


def test_the_doctor_reports_inner_labels_uneven_depth_and_similar_paths(tmp_path):
    extra = ["a yew\tplant", "a fern\tplant > fern > tall", "an owl\tAnimal > bird"]
    path = write_rows(tmp_path / "train.tsv", extra)
    found = json.loads(command("check", str(path), "--json").out)
    kinds = {finding["kind"]: finding for finding in found["findings"]}
    assert "'plant'" in kinds["inner label"]["title"]
    assert "'plant > fern > tall'" in kinds["uneven depth"]["title"]
    assert kinds["similar paths"]["level"] == "warning"


def test_texts_out_of_scope_have_a_path_of_one_node():
    task = Classify(hierarchy=True)
    space = ClassSpace(ENTRIES, separator=" > ", out_of_scope="none", rejection=0.9)
    sure, unsure = task.answers(np.array([[9.0, 0, 0, 0, 0, 0], [0.0] * 6]), space)
    assert [node for node, _ in sure.path] == ["a", "a > x"]
    assert unsure.path == (("none", unsure.score),)
    metric = task.build_metric(space)
    metric.add(np.array([0, 6]), np.array([1, 6]))
    assert metric.compute(resamples=0)["accuracy_level_1"].value == 1.0
