"""Ensembles as model folders: every verb works, damage and misfits are one line."""

import json
import shutil

import numpy as np
import pytest

import weft
from tests.fixtures.command import fails, ok
from tests.fixtures.ensemble_runs import model
from weft.errors import UserError
from weft.predict.evaluate import evaluate

TEXTS = ["the film was fine", "the plot was dull"]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("ensembles")


@pytest.fixture(scope="module")
def joined(root):
    """An ensemble of two networks; tests copy it before they change it."""
    folders = [model(root, "cnn", 1), model(root, "cnn", 2)]
    weft.ensemble(folders, root / "joined", device="cpu")
    return root / "joined"


def test_the_folder_holds_everything_and_answers_after_a_move(root, joined, tmp_path):
    before = weft.load(joined, device="cpu")(TEXTS)
    shutil.copytree(joined, tmp_path / "moved")
    again = weft.load(tmp_path / "moved", device="cpu")
    assert [a.scores for a in again(TEXTS)] == [a.scores for a in before]
    sizes = [weft.load(model(root, "cnn", seed), device="cpu").parameters for seed in (1, 2)]
    assert again.parameters == sum(sizes)
    assert "ensemble of 2" in repr(again)
    again.save(tmp_path / "saved", TEXTS)
    saved = weft.load(tmp_path / "saved", device="cpu")
    assert [a.scores for a in saved(TEXTS)] == [a.scores for a in before]


def test_the_recorded_answers_of_the_ensemble_are_replayed(joined, tmp_path):
    shutil.copytree(joined, tmp_path / "other")
    golden = tmp_path / "other" / "golden.jsonl"
    lines = [json.loads(line) for line in golden.read_text("utf-8").splitlines()]
    assert lines
    lines[0]["scores"] = [score + 0.1 for score in lines[0]["scores"]]
    golden.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    with pytest.raises(UserError, match="the answers differ from those recorded"):
        weft.load(tmp_path / "other", device="cpu")


def test_the_verbs_take_an_ensemble(root, joined, tmp_path):
    data = root / "cnn-1" / "texts.tsv"
    (line,) = ok("predict", joined, "the film was fine", "--json").lines
    assert json.loads(line)["value"] in ("good", "bad")
    assert "accuracy" in ok("evaluate", joined, data).out
    folders = [str(model(root, "cnn", seed).parent) for seed in (1, 2)]  # run folders
    out = tmp_path / "out"
    ok("ensemble", *folders, "-o", out, "--weights", "2,1")
    message = fails("ensemble", *folders, "-o", tmp_path / "no", "--weights", "2,x")
    assert "give numbers, such as 2,1,1" in message
    assert json.loads((out / "model.json").read_text())["config"]["ensemble"]["weights"] == [2, 1]


def test_an_ensemble_is_evaluated_like_any_model(root, joined):
    examples = list(weft.read(root / "cnn-1" / "texts.tsv"))
    predictor = weft.load(joined, device="cpu")
    metric = evaluate(predictor, examples).compute(resamples=0)["accuracy"]
    right = [a.value == e.label for a, e in zip(predictor([e.text for e in examples]), examples,
                                                strict=True)]  # fmt: skip
    assert metric.value == pytest.approx(np.mean(right))


def test_vectors_lie_side_by_side_and_their_cosine_is_the_mean(root, joined):
    whole = weft.load(joined, device="cpu").embed(TEXTS)
    members = [weft.load(model(root, "cnn", seed), device="cpu").embed(TEXTS) for seed in (1, 2)]
    assert whole.shape[1] == sum(vectors.shape[1] for vectors in members)

    def cosine(vectors):
        one, two = vectors
        return one @ two / np.linalg.norm(one) / np.linalg.norm(two)

    assert cosine(whole) == pytest.approx(np.mean([cosine(v) for v in members]), abs=1e-6)
    with pytest.raises(UserError, match="no token vectors"):
        weft.load(joined, device="cpu").states("a text")


def test_the_members_of_an_ensemble_join_one_by_one(root, joined, tmp_path):
    third = model(root, "bag")
    whole = weft.ensemble([joined, third], tmp_path / "three", weights=[2, 1], device="cpu")
    assert len(whole.engine.members) == 3
    np.testing.assert_allclose(whole.engine.weights, [1 / 3] * 3)
    assert not (tmp_path / "three" / "members" / "0" / "members").exists()


def test_an_empty_text_and_no_text_have_answers(root, joined):
    predictor = weft.load(joined, device="cpu")
    assert predictor([]) == []
    (answer,) = predictor([""])
    assert answer.coverage == 0
    tagger = weft.ensemble(
        [model(root, "tags", 1), model(root, "tags", 2)], root / "tagger", device="cpu"
    )
    empty, full = tagger(["", "The dog"])
    assert (empty.value, len(full.value)) == ((), 2)


def test_members_of_another_task_are_refused(root, tmp_path):
    with pytest.raises(UserError, match="answers the task 'regress', the other 'classify'"):
        weft.ensemble([model(root, "cnn"), model(root, "number")], tmp_path / "x", device="cpu")
    assert not (tmp_path / "x").exists()


def test_members_with_other_labels_are_refused(root, tmp_path):
    file = tmp_path / "three.tsv"
    rows = ["good\ta fine film\n", "bad\ta dull film\n", "mixed\ta film\n"] * 6
    file.write_text("".join(rows), "utf-8")
    config = weft.recipe("tfidf").with_values({"data.train": str(file)}, "test")
    weft.train(config, tmp_path / "run", quiet=True)
    with pytest.raises(UserError, match=r"the other lacks the label 'mixed'"):
        weft.ensemble([model(root, "cnn"), tmp_path / "run"], tmp_path / "x", device="cpu")


def test_translators_with_other_vocabularies_are_refused(root, tmp_path):
    from tests.fixtures.seq2seq_runs import trained

    trained(
        "seq2seq-attention", tmp_path,
        **{"train.epochs": 1, "tokenizer": {"kind": "character"}, "train.threads": 1},
    )  # fmt: skip
    with pytest.raises(UserError, match="train them with the same tokenizer"):
        weft.ensemble([model(root, "seq2seq"), tmp_path / "run"], tmp_path / "x", device="cpu")


def test_misuse_is_one_line(root, joined, tmp_path):
    one = model(root, "cnn")
    with pytest.raises(UserError, match="at least two models"):
        weft.ensemble([one], tmp_path / "x")
    with pytest.raises(UserError, match="2 models, but 3 weights"):
        weft.ensemble([one, one], tmp_path / "x", weights=[1, 2, 3])
    with pytest.raises(UserError, match="weights are numbers above 0"):
        weft.ensemble([one, one], tmp_path / "x", weights=[1, -2], device="cpu")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep me")
    with pytest.raises(UserError, match=r"exists\. Pass --overwrite"):
        weft.ensemble([one, one], tmp_path / "mine")
    with pytest.raises(UserError, match="holds no model of Weft"):
        weft.ensemble([one, one], tmp_path / "mine", overwrite=True)
    inside = joined / "members" / "0"
    with pytest.raises(UserError, match="is inside"):
        weft.ensemble([inside, one], joined, overwrite=True)


def damaged(joined, tmp_path, **config):
    """A copy of the ensemble whose model.json says something else."""
    folder = tmp_path / "damaged"
    shutil.copytree(joined, folder)
    path = folder / "model.json"
    about = json.loads(path.read_text("utf-8"))
    about["config"]["ensemble"] |= config
    path.write_text(json.dumps(about), "utf-8")
    return folder


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("one", "should be numbers"),
        ([], "1 to 64 are possible"),
        ([1.0] * 65, "1 to 64 are possible"),
        ([1.0, 0.0], "above 0"),
        ([1.0, float("inf")], "above 0"),
        ([1.0, 1.0, 1.0], "members/2/model.json is missing"),
    ],
)
def test_damaged_weights_are_refused(joined, tmp_path, weights, message):
    folder = damaged(joined, tmp_path, weights=weights)
    with pytest.raises(UserError, match=message):
        weft.load(folder, device="cpu")


def test_an_ensemble_inside_an_ensemble_is_not_loaded(joined, tmp_path):
    folder = damaged(joined, tmp_path)
    shutil.rmtree(folder / "members" / "1")
    shutil.copytree(joined, folder / "members" / "1")
    with pytest.raises(UserError, match="an ensemble inside an ensemble"):
        weft.load(folder, device="cpu")


def test_a_member_outside_of_the_folder_is_not_loaded(root, joined, tmp_path):
    folder = damaged(joined, tmp_path)
    shutil.rmtree(folder / "members" / "1")
    (folder / "members" / "1").symlink_to(model(root, "cnn", 2))
    with pytest.raises(UserError, match="a link out of the model folder"):
        weft.load(folder, device="cpu")


def test_text_is_generated_by_the_command(root, tmp_path):
    ok("ensemble", *(model(root, "seq2seq", seed) for seed in (1, 2)), "-o", tmp_path / "whole")
    assert ok("generate", tmp_path / "whole", "a b c", "--method", "sample").out.strip()
    with pytest.raises(UserError, match="coverage_penalty needs the attention"):
        weft.generate(weft.load(tmp_path / "whole", device="cpu"), ["a b"], method="beam",
                      coverage_penalty=0.2)  # fmt: skip


def test_an_n_gram_model_and_a_network_predict_text_together(root, tmp_path):
    folders = [model(root, "lm"), model(root, "ngram")]
    whole = weft.ensemble(folders, tmp_path / "whole", device="cpu")
    text = "the cat sees a dog ."
    both = [weft.load(folder, device="cpu")([text])[0].scores for folder in folders]
    np.testing.assert_allclose(whole([text])[0].scores, np.mean(both, axis=0), atol=1e-6)


def test_a_parser_that_merges_greedily_is_refused(tmp_path):
    from tests.fixtures.parsed_files import bracketed

    values = {"data.train": str(bracketed(tmp_path / "a.mrg", 9)), "head": {"kind": "recursive"}}
    values |= {"train.epochs": 1, "train.threads": 1, "encoder.hidden": 7, "encoder.layers": 1}
    weft.train(weft.recipe("constituency").with_values(values, "test"), tmp_path / "run",
               quiet=True, device="cpu")  # fmt: skip
    with pytest.raises(UserError, match="the head 'recursive' cannot be averaged"):
        weft.ensemble([tmp_path / "run", tmp_path / "run"], tmp_path / "x", device="cpu")
