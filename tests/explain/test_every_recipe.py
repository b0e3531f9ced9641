"""Every recipe and every task: all methods explain one input, and each has a faithfulness score."""

import itertools

import numpy as np
import pytest

from tests.fixtures.checkpoints import checkpoint
from tests.fixtures.command import command, ok
from tests.fixtures.language_files import corpus
from tests.fixtures.recipe_runs import recipe_cases, train_tiny
from weft import registry
from weft.config import recipe
from weft.errors import UserError
from weft.explain.method import METHODS, methods
from weft.explain.run import run_explain
from weft.report.pages.explain import render


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory):
    """Folders of pre-trained networks by what a recipe starts from."""
    import weft

    folder = tmp_path_factory.mktemp("checkpoints")
    for family in ("bert", "gpt2"):
        checkpoint(folder / family, family)
    values = {
        "decoder.width": 8, "decoder.hidden": 13, "decoder.filters": [[1, 3], [2, 7]],
        "decoder.character_width": 5, "task.window": 11, "tokenizer.min_count": 1,
        "train.epochs": 1, "train.batch_size": 4, "train.threads": 1,
        "data.train": str(corpus(folder)),
    }  # fmt: skip
    elmo = recipe("elmo-pretrain").with_values(values, "test")
    weft.train(elmo, folder / "elmo", quiet=True, device="cpu")
    (folder / "lm").mkdir()
    train_tiny("masked-bilstm", "language", folder / "lm", {})
    ok("convert", folder / "bert", "-o", folder / "embed")
    return {
        "bert": str(folder / "bert"), "gpt": str(folder / "gpt2"), "elmo": str(folder / "elmo"),
        "embed": str(folder / "embed"), "birnn": str(folder / "lm" / "run"),
    }  # fmt: skip


def test_every_registered_task_is_a_case():
    assert {task for _, task in recipe_cases()} == set(registry.parts("task"))


@pytest.mark.parametrize(("name", "task"), recipe_cases(), ids=str)
def test_two_methods_or_more_have_a_faithfulness_score(name, task, checkpoints, tmp_path):
    predictor, example = train_tiny(name, task, tmp_path, checkpoints)
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
