"""Generation with exports: the searches of PyTorch in NumPy, the same texts and scores."""

import itertools
import json
import subprocess
import sys

import numpy as np
import onnx
import pytest
import torch

import weft
from tests.fixtures.command import command
from tests.fixtures.recipe_runs import train_tiny
from weft.decode.search.array_sampling import log_softmax
from weft.errors import UserError
from weft.export.write import export_onnx
from weft.predict.generate import Generator

SOURCES = ["a b c", "b", "c c a zork b"]
WORDS = ("the", "cat", "sees", "a", "dog", ".", "zork")
PROMPTS = ["", "the ", " cat", *map(" ".join, itertools.product(WORDS, WORDS))]  # 52
SEARCHES = [
    {"method": "greedy"},
    {"method": "beam", "num_beams": 4, "num_return": 3},
    {"method": "beam", "num_beams": 4, "num_beam_groups": 2},
    {"method": "sample", "num_samples": 2, "temperature": 1.3, "top_p": 0.9, "seed": 5},
    {"method": "sample", "top_k": 4},
    {"method": "greedy", "repetition_penalty": 1.5},
]


@pytest.fixture(scope="module", params=["seq2seq-attention", "seq2seq-copy", "seq2seq-cnn"])
def both(request, tmp_path_factory):
    """(model, export) of a tiny training, and their folder."""
    folder = tmp_path_factory.mktemp("run")
    predictor, _ = train_tiny(request.param, "seq2seq", folder, {})
    export_onnx(folder / "run" / "model", folder / "export")
    return predictor, weft.load(folder / "export"), folder


def check_texts(model, export, prompts, **settings):
    """Check that texts, tokens and scores are equal."""
    expected, found = (weft.generate(one, prompts, **settings) for one in (model, export))
    for theirs, ours in zip(expected, found, strict=True):
        assert [one.text for one in ours] == [one.text for one in theirs]
        assert [one.score for one in ours] == pytest.approx([one.score for one in theirs], abs=1e-4)
        for one, other in zip(ours, theirs, strict=True):
            assert one.ended == other.ended
            pairs = list(zip(one.tokens, other.tokens, strict=True))
            assert [a.text for a, _ in pairs] == [b.text for _, b in pairs]
            gaps = [abs(a.probability - b.probability) for a, b in pairs]
            assert max(gaps, default=0) < 1e-4


@pytest.mark.parametrize("settings", SEARCHES, ids=str)
def test_texts_and_scores_are_those_of_the_model(both, settings):
    model, export, _ = both
    check_texts(model, export, SOURCES, max_length=6, **settings)


def test_every_weight_of_a_graph_is_read(both):
    for name in ("model.onnx", "step.onnx"):
        graph = onnx.load(both[2] / "export" / name).graph
        read = {one for node in graph.node for one in node.input}
        assert {one.name for one in graph.initializer} <= read


def test_a_prefix_is_forced(both):
    model, export, _ = both
    prefix = model.space.tokenizer.vocabulary[-1]
    for settings in ({"method": "greedy"}, {"method": "beam", "num_beams": 2}):
        check_texts(model, export, SOURCES, max_length=4, prefix=prefix, **settings)


@pytest.mark.parametrize("recipe", ["gpt", "lstm-lm", "rnn-lm", "nnlm"])
def test_a_language_model_continues_like_its_model(recipe, tmp_path):
    model, _ = train_tiny(recipe, "language", tmp_path, {})
    export_onnx(tmp_path / "run" / "model", tmp_path / "export")
    export = weft.load(tmp_path / "export")
    limits = {} if recipe != "gpt" else {"max_length": 40}  # its window slides
    for settings in SEARCHES:
        check_texts(model, export, PROMPTS, **{"max_length": 12, **settings, **limits})
    check_texts(model, export, PROMPTS[:9], max_length=5, prefix="sees a", method="sample", seed=1)
    check_texts(model, export, PROMPTS[:9], max_length=5, only=["cat", "the dog"], method="beam")


def test_a_window_slides_and_steps_have_the_distributions_of_the_model(tmp_path):
    model, _ = train_tiny("gpt", "language", tmp_path, {})
    export_onnx(tmp_path / "run" / "model", tmp_path / "export")
    export = weft.load(tmp_path / "export")
    theirs, ours = Generator(model), Generator(export)
    limit = ours.search.limit
    assert limit == theirs.search.limit
    draw = np.random.default_rng(5)
    rows = draw.integers(4, ours.size, (3, 2 * limit + 3))
    mine = ours.search.read_prompts(rows[:, :2].tolist())
    other = theirs.search.read_prompts(rows[:, :2].tolist())
    state, before, everyone = mine.state, other.state, np.arange(3)
    for ids in rows.T[1:]:
        found, state = mine.step(ids, state, everyone)
        expected, before = other.step(torch.from_numpy(ids), before)
        np.testing.assert_allclose(
            log_softmax(found), expected.detach().log_softmax(-1).numpy(), atol=1e-4
        )
    assert state["seen"].shape[1] <= limit
    with pytest.raises(UserError, match=f"this model reads at most {limit - 1}"):
        weft.generate(export, "the " * limit)


WITHOUT_TORCH = """
import json, sys
sys.modules["torch"] = None
import weft
for folder in sys.argv[1:]:
    for settings in json.load(open("settings.json")):
        (texts,) = weft.generate(folder, "b c", max_length=5, **settings)
        print(json.dumps([one.text for one in texts]))
"""


def test_generates_where_torch_cannot_be_imported(tmp_path):
    """The networks of exports, and an n-gram model, which needs no export."""
    models, folders = [], []
    for recipe, task in (("seq2seq-cnn", "seq2seq"), ("gpt", "language"), ("ngram", "language")):
        place = tmp_path / recipe
        place.mkdir()
        models.append(train_tiny(recipe, task, place, {})[0])
        folders.append(place / "run" / "model")
        if recipe != "ngram":
            export_onnx(folders[-1], place / "export")
            folders[-1] = place / "export"
    (tmp_path / "settings.json").write_text(json.dumps(SEARCHES))
    run = [sys.executable, "-c", WITHOUT_TORCH, *map(str, folders)]
    done = subprocess.run(run, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert found == [
        [one.text for one in weft.generate(model, "b c", max_length=5, **settings)[0]]
        for model in models
        for settings in SEARCHES
    ]


def test_command_line_generates_with_an_export(both):
    model, _, folder = both
    done = command("generate", folder / "export", "a b c", "--method", "greedy")
    assert done.status == 0, done.err
    (expected,) = weft.generate(model, "a b c", method="greedy")
    assert done.out.strip() == expected[0].text.strip()


def test_coverage_needs_the_model(both):
    with pytest.raises(UserError, match="coverage_penalty needs the attention"):
        weft.generate(both[1], "a b", coverage_penalty=0.2)
