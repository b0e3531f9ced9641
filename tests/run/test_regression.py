"""embed-linear: logistic regression over the vectors of a network that does not learn."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

import weft
from tests.fixtures import small
from weft import config as configuration
from weft.errors import UserError

made = pytest.importorskip("tests.fixtures.checkpoints", exc_type=ImportError)


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bert")
    made.checkpoint(folder, "bert")
    return str(folder)


def trained(bert, tmp_path, **changes):
    base = configuration.with_pretrained(configuration.recipe("embed-linear"), bert)
    config = base.with_values({"train.threads": 1, **changes}, "test")
    return weft.train(config, tmp_path / "run", splits=small.splits(83), quiet=True)


def texts(split):
    rows = list(getattr(small.splits(83), split)())
    return [one.text for one in rows], [one.label for one in rows]


def test_the_head_is_scikit_learns_logistic_regression(bert, tmp_path):
    model = trained(bert, tmp_path, **{"head.C": 3.0}).predictor
    asked, labels = texts("train")
    theirs = LogisticRegression(C=3.0, max_iter=1000).fit(model.embed(asked), labels)
    held, _ = texts("test")
    wanted = theirs.predict_proba(model.embed(held))
    found = np.array([answer.scores for answer in model(held)])
    np.testing.assert_allclose(found, wanted, atol=1e-3)


def test_the_network_stays_as_it_was(bert, tmp_path):
    model = trained(bert, tmp_path).predictor
    base = configuration.with_pretrained(configuration.recipe("bert-frozen"), bert)
    other = weft.train(
        base.with_values({**small.SMALL, "pool.kind": "mean", "pool.normalise": True}, "test"),
        tmp_path / "other", splits=small.splits(83), quiet=True,
    )  # fmt: skip
    asked, _ = texts("dev")
    np.testing.assert_allclose(model.embed(asked), other.predictor.embed(asked), atol=1e-6)


def test_regularisation_is_chosen_on_dev_logged_and_saved(bert, tmp_path):
    outcome = trained(bert, tmp_path)
    assert (
        "chosen on dev (mean of accuracy and macro_f1 "
        in (tmp_path / "run" / "log.txt").read_text()
    )
    assert '"event": "evaluation"' in (tmp_path / "run" / "metrics.jsonl").read_text()
    again = weft.load(tmp_path / "run")
    asked, _ = texts("test")
    assert [a.value for a in again(asked)] == [a.value for a in outcome.predictor(asked)]


def test_numbers_are_ridge_regression(bert, tmp_path):
    rows = "".join(f"{len(text.split())}\t{text}\n" for text in texts("train")[0])
    (tmp_path / "numbers.tsv").write_text(rows)
    base = configuration.with_pretrained(configuration.recipe("embed-linear"), bert)
    changes = {"task.kind": "regress", "data.train": str(tmp_path / "numbers.tsv")}
    more = {"data.dev_fraction": 0.0, "head.C": 2.0, "train.threads": 1}
    model = weft.train(
        base.with_values({**changes, **more}, "test"), tmp_path / "run", quiet=True
    ).predictor
    asked = texts("train")[0]
    wanted = [len(text.split()) for text in asked]
    mean, deviation = np.mean(wanted), np.std(wanted)
    vectors = model.embed(asked)
    theirs = Ridge(alpha=0.5).fit(vectors, (np.array(wanted) - mean) / deviation)
    found = [answer.value for answer in model(asked)]
    np.testing.assert_allclose(found, theirs.predict(vectors) * deviation + mean, atol=1e-3)


def test_a_network_that_would_have_to_learn_is_refused(bert, tmp_path):
    with pytest.raises(UserError, match=r"do not learn\. Set embedder.frozen=true"):
        trained(bert, tmp_path, **{"embedder.frozen": False})
