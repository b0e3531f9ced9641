"""ELMo through the one spine: pre-trained on raw text, resumed, then used in other models."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import weft
from tests.fixtures.command import command
from tests.fixtures.language_files import corpus
from tests.fixtures.small import file as labelled
from tests.fixtures.small import killed
from tests.fixtures.tagged_files import conllu
from weft.config import load, recipe, with_pretrained
from weft.errors import UserError
from weft.predict.evaluate import evaluate
from weft.report.charts import layer_weights
from weft.text.example import Example

SMALL = {
    "decoder.width": 8, "decoder.hidden": 13, "decoder.filters": [[1, 3], [2, 7]],
    "decoder.character_width": 5, "decoder.dropout": 0.0, "task.window": 11,
    "tokenizer.min_count": 1, "train.epochs": 3, "train.batch_size": 4, "train.learning_rate": 0.03,
    "train.patience": 0, "train.threads": 1, "train.schedule": "constant", "train.warmup": 0.0,
}  # fmt: skip
USED = {"train.threads": 1, "train.batch_size": 8, "train.ema_decay": 0.0, "train.epochs": 2}


def pretrained(folder, run="elmo", **changes):
    values = {**SMALL, "data.train": str(corpus(folder)), **changes}
    config = recipe("elmo-pretrain").with_values(values, "test")
    return weft.train(config, folder / run, quiet=True, device="cpu")


def saved(run):
    """The configuration of a run."""
    return load(run / "config.toml")


@pytest.fixture(scope="module")
def elmo(tmp_path_factory):
    """A run that was pre-trained, and its folder."""
    folder = tmp_path_factory.mktemp("elmo")
    return pretrained(folder), folder / "elmo"


def test_both_directions_learn_and_are_measured(elmo):
    out, folder = elmo
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    seen = [line for line in lines if "dev_perplexity" in line]
    assert len(seen) == 3
    for name in ("loss", "dev_perplexity", "dev_backward_perplexity"):
        assert seen[-1][name] < seen[0][name]
    figures = out.figures["dev"]
    # 4 subjects and 3 verbs are equally likely: 12 for 8 tokens and an end, in either direction.
    for name in ("perplexity", "backward_perplexity"):
        assert 1.2 < figures[name].value < 3
        assert figures[name].value == pytest.approx(seen[-1][f"dev_{name}"], rel=1e-4)
    assert figures["perplexity"].value != figures["backward_perplexity"].value


def test_backward_scores_equal_the_reversed_text(elmo):
    out, _ = elmo
    texts = ["the cat sees a dog .", "A dog hears some zebra .", "her horse"]
    found = out.predictor.engine.score_backward(texts)
    head, space = out.predictor.engine.model.head, out.predictor.space
    rows = space.with_subtokens(texts, head.decoder.subtoken_ids, head.decoder.max_subtokens)
    whole = np.concatenate([head.bos_row, *rows])[::-1].copy()  # from the last mark to the first
    given = torch.from_numpy(whole.astype(np.int64))[None]
    with torch.inference_mode():
        read = weft.batch.Padded(given[:, :-1], torch.tensor([len(whole) - 1]))
        scores = head.decoder.words.logits(head.decoder.backward_features(read))[0]
    chances = scores.softmax(1).gather(1, given[0, 1:, :1])[:, 0].numpy()
    mine = np.concatenate([one.probs[:, 0] for one in found[::-1]])
    np.testing.assert_allclose(mine, chances, rtol=1e-4)
    ids = np.concatenate([one.table[:, 0] for one in found[::-1]])
    assert np.array_equal(ids, whole[1:, 0])
    measure = evaluate(out.predictor, [Example(text) for text in texts])
    nats = -np.log(chances).sum() / (6 + 6 + 2 + 3)  # words, and the ends of three texts
    figure = measure.compute(resamples=0)["backward_perplexity"]
    assert figure.value == pytest.approx(float(np.exp(nats)), rel=1e-4)


def test_unknown_words_are_read_by_their_letters(elmo):
    out, _ = elmo
    (a,), (b,) = (out.predictor([text]) for text in ("the zebra sees", "the qqqqqq sees"))
    ids = out.predictor.space.ids(["the zebra sees", "the qqqqqq sees"])
    assert np.array_equal(*ids)
    assert a.parts[1][2] == pytest.approx(b.parts[1][2], rel=1e-5)  # foretold as the same
    assert a.parts[2][2] != pytest.approx(b.parts[2][2], rel=1e-3)  # but not read as the same


def test_a_resumed_training_is_the_same(tmp_path):
    """Killed in the middle of the text, it goes on with the state of both directions."""
    whole = pretrained(tmp_path, "whole", **{"train.epochs": 2, "train.save_every": 2})
    values = {**SMALL, "train.epochs": 2, "train.save_every": 2}
    values["data.train"] = str(tmp_path / "train.txt")
    config = recipe("elmo-pretrain").with_values(values, "test")
    with killed(20):
        weft.train(config, tmp_path / "again", quiet=True, device="cpu")
    again = weft.train(config, tmp_path / "again", resume=True, quiet=True, device="cpu")
    for a, b in zip(
        whole.predictor.engine.model.parameters(),
        again.predictor.engine.model.parameters(),
        strict=True,
    ):
        assert torch.equal(a, b)


def test_a_tagger_over_it(elmo, tmp_path):
    _, folder = elmo
    config = with_pretrained(recipe("tagger-elmo"), str(folder))
    values = {
        **USED, "encoder.hidden": 13, "tokenizer.min_count": 1, "train.epochs": 8,
        "train.learning_rate": 0.02, "data.train": str(conllu(tmp_path / "a.conllu")),
    }  # fmt: skip
    out = weft.train(config.with_values(values, "test"), tmp_path / "run", quiet=True, device="cpu")
    assert out.figures["dev"]["upos"].value > 0.9
    model = out.predictor.engine.model
    assert [one["kind"] for one in model.parts["embedder"]] == ["lookup", "elmo"]
    before = load_file(folder / "model" / "weights.safetensors")
    own = model.embedders[1].network.state_dict()
    for name, weight in own.items():
        assert torch.equal(weight, before[f"head.decoder.network.{name}"]), name
    assert model.embedders[1].mix.scores.any()  # this has learned
    again = weft.load(tmp_path / "run", device="cpu")
    text = ["The dog sees the bee."]
    assert again(text)[0].value == out.predictor(text)[0].value
    (layers,) = layer_weights.read_folders([("tagger-elmo", tmp_path / "run/model")])
    assert layers.weights == pytest.approx(layer_weights.read_model(model)[0].weights)
    assert layers.gamma == pytest.approx(model.embedders[1].mix.gamma.item())
    told = f"note: layers of the pre-trained network: words {layers.weights[0]:.0%}, layer 1 "
    assert told in (tmp_path / "run/log.txt").read_text("utf-8")
    page = tmp_path / "page.html"
    done = command("explain", tmp_path / "run", "The dog sees the bee.", "-o", page)
    assert done.status == 0, done.err
    shown = page.read_text("utf-8")
    assert f"elmo, γ = {layers.gamma:.2f}" in shown
    assert all(f"{100 * weight:.1f} %" in shown for weight in layers.weights)


def test_a_classifier_that_tunes_it(elmo, tmp_path):
    _, folder = elmo
    config = with_pretrained(recipe("elmo"), str(folder))
    values = {
        **USED, "embedder.1.frozen": False, "encoder.hidden": 7,
        "data.train": str(labelled(tmp_path)),
    }  # fmt: skip
    out = weft.train(config.with_values(values, "test"), tmp_path / "run", quiet=True, device="cpu")
    _, embedder = out.predictor.engine.model.embedders  # beside the words
    before = load_file(folder / "model" / "weights.safetensors")
    name = "layers.0.enter"
    moved = embedder.network.state_dict()[name] - before[f"head.decoder.network.{name}"]
    assert 0 < moved.abs().max() < 0.1
    assert out.predictor.embed(["a good film"]).shape == (1, 14)


def test_pretraining_continues_on_other_text(elmo, tmp_path):
    out, folder = elmo
    words = {"kind": "word", "path": str(folder / "model" / "tokenizer.json")}
    own = {n: value for n, value in SMALL.items() if not n.startswith(("decoder", "tokenizer"))}
    values = {
        **own, "decoder": {**saved(folder)["decoder"], "model": str(folder)}, "tokenizer": words,
        "train.epochs": 1, "train.learning_rate": 1e-6, "data.train": str(corpus(tmp_path)),
    }  # fmt: skip
    config = recipe("elmo-pretrain").with_values(values, "test")
    more = weft.train(config, tmp_path / "run", quiet=True, device="cpu")
    assert more.predictor.space.tokenizer.vocabulary == out.predictor.space.tokenizer.vocabulary
    found, wanted = (one.figures["dev"]["perplexity"].value for one in (more, out))
    assert found == pytest.approx(wanted, rel=0.01)


def test_elmo_generates_text(elmo):
    _, folder = elmo
    done = command("generate", folder, "the cat", "--method", "greedy", "--min-length", 5)
    assert done.status == 0, done.err
    assert done.out.split()[:2] == ["the", "cat"]
    assert len(done.out.split()) > 3


def test_unsupported_uses_raise_user_error(elmo, tmp_path):
    with pytest.raises(UserError, match=r"decoder 'elmo' learns where a sentence begins and ends"):
        pretrained(tmp_path, **{"task.lines": False})
    with pytest.raises(UserError, match=r"kind 'pretrained' needs a checkpoint: pass --pretrained"):
        weft.train(recipe("elmo"), tmp_path / "run", quiet=True, device="cpu")
    bert = with_pretrained(recipe("bert"), str(elmo[1]))
    with pytest.raises(
        UserError, match=r"an ELMo, which reads the letters of words.*--recipe elmo"
    ):
        weft.train(bert, tmp_path / "run", quiet=True, device="cpu")


def test_pretraining_resumes(elmo, tmp_path):
    _, folder = elmo
    config = with_pretrained(recipe("elmo-pretrain"), str(folder))
    values = {k: v for k, v in SMALL.items() if not k.startswith(("decoder.", "tokenizer."))}
    values |= {"data.train": str(corpus(tmp_path)), "train.epochs": 1, "train.learning_rate": 1e-9}
    out = weft.train(config.with_values(values, "test"), tmp_path / "on", quiet=True, device="cpu")
    before = load_file(folder / "model" / "weights.safetensors")
    own = out.predictor.engine.model.state_dict()
    assert own.keys() == before.keys()
    for name, weight in own.items():
        torch.testing.assert_close(weight, before[name], atol=1e-6, rtol=0)
