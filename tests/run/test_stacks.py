"""Models with stacked encoders: trained, saved, loaded, explained and tuned like any other."""

import json

import pytest
import torch

import weft
from tests.fixtures import classify_runs, pair_runs, searches, seq2seq_runs, small, tagged_files
from weft import config
from weft.errors import UserError
from weft.explain import explain, methods
from weft.explain.attention import attention_maps
from weft.run import Splits
from weft.run import train as run

CNN, LSTM = {"kind": "cnn", "hidden": 7, "widths": [3]}, {"kind": "rnn", "hidden": 5}
TRANSFORMER = {"kind": "transformer", "hidden": 8, "heads": 2, "layers": 2}
TEXT = "the film was good , the plot bad"


def trained(folder, encoder, **changes):
    values = {**small.SMALL, "train.epochs": 6, "train.learning_rate": 0.02, "embedder.width": 11}
    values |= {"encoder": encoder, **changes}
    base = config.recipe("cnn-lstm").with_values(values, "test")
    return run(base, folder, splits=small.splits(), quiet=True)


def test_a_stack_learns_and_answers_the_same_after_loading(tmp_path):
    result = trained(tmp_path / "run", [CNN, LSTM])
    saved = json.loads((tmp_path / "run/model/model.json").read_text())["config"]["encoder"]
    assert [table["kind"] for table in saved] == ["cnn", "rnn"]
    assert result.figures["test"]["accuracy"].value > 0.7
    again = weft.load(tmp_path / "run/model")
    before, after = result.predictor([TEXT]), again([TEXT])
    assert before[0].scores == after[0].scores
    assert "cnn+rnn" in repr(again)


def test_a_tagger_a_pair_and_a_translator_take_stacks(tmp_path):
    stack = [CNN, LSTM]
    tags = tagged_files.conllu(tmp_path / "train.conllu")
    plain = {key: v for key, v in tagged_files.SMALL.items() if key != "encoder.hidden"}
    values = {**plain, "data.train": str(tags), "encoder": stack}
    tagger = weft.train(
        config.recipe("tagger-bilstm").with_values(values, "test"), tmp_path / "tags", quiet=True
    )
    assert tagger.figures["dev"]["upos"].value > 0.9
    towers = classify_runs.settings("towers", train__epochs=1).with_values(
        {"encoder": stack}, "test"
    )
    pairs = pair_runs.pairs()
    source = classify_runs.source
    splits = Splits(source(pairs), source(pairs[:5]))
    both = run(towers, tmp_path / "pairs", splits=splits, quiet=True).predictor
    assert both([("a dog is here", "the cat runs")])[0].value in ("same", "other")
    writer = seq2seq_runs.trained(
        "seq2seq-attention",
        tmp_path,
        **{"encoder.hidden": None, "encoder": stack, "train.epochs": 1},
    )
    assert isinstance(writer.predictor(["a b c"])[0].value, str)


def test_the_recipe_trains_and_is_explained(tmp_path):
    predictor = trained(tmp_path / "run", [CNN, LSTM]).predictor
    names = methods(predictor)
    assert "integrated-gradients" in names
    assert "attention" not in names
    (found,) = explain(predictor, [TEXT], method=names[0])
    assert len(found.words) == 8


@pytest.mark.parametrize("pool", ["mean", "attention"])
def test_attention_of_the_members_is_shown(pool, tmp_path):
    stack = [{**CNN, "hidden": 8}, TRANSFORMER]
    predictor = trained(tmp_path / "run", stack, **{"pool.kind": pool}).predictor
    (shown,) = attention_maps(predictor, TEXT)
    assert shown.weights.shape == (2, 2, 8, 8)
    assert "attention" in methods(predictor)
    (found,) = explain(predictor, [TEXT], method="attention")
    assert sum(word.weight for word in found.words) == pytest.approx(1)
    model = predictor.engine.model
    cnn, top = model.encoder.members
    ids = torch.tensor([[4, 5, 6]])
    x = model.embed(weft.batch.Padded(ids, torch.tensor([3])))
    expected = top.attention_weights(cnn(x))
    for got, wanted in zip(model.encoder.attention_weights(x), expected, strict=True):
        assert torch.equal(got, wanted)


def test_after_a_stride_the_heads_are_shown_by_steps_but_do_not_explain_words(tmp_path):
    stack = [{**CNN, "stride": 2}, TRANSFORMER]
    predictor = trained(tmp_path / "run", stack).predictor
    (shown,) = attention_maps(predictor, TEXT)
    assert shown.tokens == ("the", "was", ",", "plot")
    assert shown.weights.shape == (2, 2, 4, 4)
    assert "attention" not in methods(predictor)


def test_a_recurrent_top_hides_the_attention_below_it(tmp_path):
    predictor = trained(tmp_path / "run", [TRANSFORMER, LSTM]).predictor
    assert "attention" not in methods(predictor)
    (shown,) = attention_maps(predictor, TEXT)
    assert shown.weights.shape == (2, 2, 8, 8)


def test_settings_of_a_stack_are_numbered():
    base = config.recipe("cnn-lstm")
    changed = base.with_values({"encoder.1.hidden": 7}, "--set")
    assert changed["encoder"][1]["hidden"] == 7
    with pytest.raises(UserError, match=r"say which one, as in encoder\.0\.hidden"):
        base.with_values({"encoder.hidden": 7}, "--set")
    with pytest.raises(UserError, match="there are 2 of these, numbered from 0"):
        base.with_values({"encoder.2.hidden": 7}, "--set")


def test_settings_of_a_stack_are_tuned(tmp_path):
    values = {**small.SMALL, "train.epochs": 1, "data.train": str(small.file(tmp_path))}
    values |= {"embedder.width": 7, "encoder": [CNN, LSTM]}
    base = config.recipe("cnn-lstm").with_values(values, "test")
    space = ("encoder.0.hidden=3,5", "encoder.1.cell=sum,tied-lstm")
    found = searches.run(base, tmp_path / "out", *space, trials=4, sampler="grid")
    tried = {tuple(row.settings.values()) for row in found.rows}
    assert tried == {(3, "sum"), (3, "tied-lstm"), (5, "sum"), (5, "tied-lstm")}
    best = config.load(tmp_path / "out" / "best.toml")["encoder"]
    chosen = {"encoder.0.hidden": best[0]["hidden"], "encoder.1.cell": best[1]["cell"]}
    assert chosen == found.best.settings


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        ([], "is an empty list"),
        ([CNN, {"kind": "tree-lstm"}], "encoder 'tree-lstm' reads trees, so it cannot be one of"),
        ([{**TRANSFORMER, "cls": True}, LSTM], "only the last encoder may have it"),
        ([{**CNN, "stride": 2}, {**TRANSFORMER, "cls": True}], "over encoders without a stride"),
        ([CNN, {"kind": "rnn", "hiden": 5}], "Unknown option 'hiden' in encoder 'rnn'"),
        ([CNN, {"hidden": 5}], "needs a 'kind'"),
    ],
)
def test_stacks_that_make_no_sense(encoder, message, tmp_path):
    with pytest.raises(UserError, match=message):
        trained(tmp_path / "run", encoder)


def test_a_table_that_is_no_table():
    with pytest.raises(UserError, match=r"\[encoder\] should be a section with keys"):
        config.from_sections({"encoder": [CNN, 5]}, "here")
