"""Every recipe and every task: all methods explain one input, and each has a faithfulness score."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

import weft
from tests.fixtures.command import command
from tests.fixtures.exported import TEXTS, check_answers
from tests.fixtures.recipe_runs import recipe_cases, tiny_checkpoints, train_tiny
from weft import registry
from weft.errors import UserError
from weft.explain.method import METHODS, methods
from weft.explain.run import run_explain
from weft.export.write import export_predictor
from weft.report.pages.explain import render
from weft.text.annotation.frames import Frames, Predicate
from weft.text.example import Example
from weft.text.formats.conllu_offsets import locate_spaced_words
from weft.text.synthetic.coreference import generate_coreference

TEXTS_OF_SENTENCES = [text for text in TEXTS if len(text) < 40]  # trees are over whole sentences
# A word, nothing, words that were never seen, right and left branches, three children, deep.
TREES = [
    "(4 (2 (2 the) (2 film)) (4 (2 was) (4 good)))", "(2 film)", "", "(3 (0 zork) (4 😀))",
    "(2 (2 (2 (2 the) (2 plot)) (2 was)) (0 bad))", "(2 (2 the) (2 old) (2 cast))",
    "(2 (2 the) " * 40 + "(4 good)" + ")" * 40,
]  # fmt: skip
BLANKS = ["the [MASK] sees a dog .", "a <mask> 😀 [MASK]", "the [MASK] " * 9]


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory):
    """Folders of pre-trained networks by what a recipe starts from."""
    return tiny_checkpoints(tmp_path_factory.mktemp("checkpoints"))


def test_every_registered_task_is_a_case():
    assert {task for _, task in recipe_cases()} == set(registry.parts("task"))


@pytest.fixture(scope="module", params=recipe_cases(), ids=str)
def trained(request, checkpoints, tmp_path_factory):
    """(recipe, task, folder, predictor, example) of a tiny model of every recipe and task."""
    name, task = request.param
    folder = tmp_path_factory.mktemp("trained")
    return name, task, folder, *train_tiny(name, task, folder, checkpoints)


def test_an_export_answers_like_its_model(trained, tmp_path, monkeypatch):
    name, task, folder, predictor, example = trained
    model = folder / "run" / "model"
    if task == "embed":
        predictor.save(model)
    if task == "coref":  # links that so little training would not make
        monkeypatch.setattr(predictor.engine.model.head, "link_margin", -4.0)
    export_predictor(model, predictor, tmp_path / "export")
    exported = weft.load(tmp_path / "export", replay=task != "coref")
    if task == "embed":
        np.testing.assert_allclose(exported.embed(TEXTS), predictor.embed(TEXTS), atol=1e-4)
        return
    indexer = getattr(predictor.engine, "indexer", None)
    whole = indexer is not None and indexer.full_sentences and task != "coref"
    texts = TEXTS_OF_SENTENCES if whole else TEXTS
    if predictor.engine.input_kind == "vectors":
        texts = _vector_inputs(example)
    elif predictor.engine.input_kind == "trees":
        texts = TREES
    elif predictor.task.record:
        texts = ["food[pie]", "name[Zork Inn], food[tea]", "name[x]"]
    elif task == "masked":
        texts = [BLANKS[0], *BLANKS, "[MASK]", "[MASK] the zork [MASK] " * 12, ""]
    elif name == "masked-bilstm":
        texts = [*texts, *BLANKS]
    elif task == "srl":  # with predicates that are found, and given ones
        texts = [*texts, *_frame_inputs()]
    elif task == "coref":  # with speakers and genres
        texts = [*texts, *generate_coreference(size=12)["test"]]
    texts = list(zip(texts, texts[::-1], strict=True)) if predictor.pairs else texts
    check_answers(predictor, exported, texts)


def _frame_inputs():
    """Sentences with one predicate, with two, and with none."""
    words = ("Bo", "gave", "Ann", "a", "lamp", ".")
    for chosen in ((1,), (1, 4), (), (5, 0)):
        frames = Frames(tuple(Predicate(word, "", ()) for word in chosen))
        yield Example(" ".join(words[:6]), frames, words=words, places=locate_spaced_words(words))


def _vector_inputs(example):
    """Several matrices, recordings or images, of different lengths where there are."""
    if not example.file:
        return [
            Example("", vectors=example.vectors[order]) for order in ([0], [2, 1, 0, 1], [1, 2])
        ]
    return [replace(example, text=example.text.replace("3", str(i))) for i in range(7)]


def test_two_methods_or_more_have_a_faithfulness_score(trained):
    _, task, _, predictor, example = trained
    assert predictor.config["task"]["kind"] == task
    offered = methods(predictor)
    assert len(offered) >= 2
    word = "dog" if task == "language" else ""  # with a context of several words
    found = run_explain(predictor, [example], word=word)
    assert tuple(found.explanations) == tuple(found.faithfulness) == offered
    weights = {}
    for method in offered:
        score = found.faithfulness[method]
        assert score.method == method
        assert np.isfinite([score.aopc.value, score.random.value, score.gain.value]).all()
        assert np.isfinite([score.deletion, score.insertion]).all()
        # All words there, and none: both curves pass through the same two points.
        assert score.deletion[0] == pytest.approx(score.insertion[-1], abs=1e-5)
        assert score.deletion[-1] == pytest.approx(score.insertion[0], abs=1e-5)
        (one,) = found.explanations[method]
        assert one.method == method
        assert len(one.words) >= 2
        weights[method] = np.array([word.weight for word in one.words])
        assert np.isfinite(weights[method]).all()
        assert weights[method].any()
    for a, b in itertools.combinations(offered, 2):
        if len(weights[a]) == len(weights[b]):
            assert not np.allclose(weights[a], weights[b], rtol=1e-3, atol=1e-9), (a, b)
    page = render(found, predictor, command=["weft", "explain"])
    assert all(f"<h3>{method} <small>" in page for method in offered)
    assert page.count("Faithfulness</h2>") == 1
    _refuses_other_methods(predictor, example, offered)


def _refuses_other_methods(predictor, example, offered):
    for wrong in ("nonsense", *(set(METHODS) - set(offered))):
        with pytest.raises(UserError) as error:
            run_explain(predictor, [example], method=wrong)
        assert all(method in str(error.value) for method in offered), str(error.value)
    for method in offered:
        found = run_explain(predictor, [example], method=method, compare=False)
        assert tuple(found.explanations) == (method,)


def test_command_line_refuses_an_unknown_method(tmp_path):
    train_tiny("kneser-ney", "language", tmp_path, {})
    done = command("explain", tmp_path / "run", "the cat sees a dog .", "--method", "attention")
    assert done.status == 2
    assert "Use one of: occlusion, shapley." in done.err
    done = command("explain", tmp_path / "run", "the cat sees a dog .", "--method", "shapley")
    assert done.status == 0
    assert "shapley" not in done.err
