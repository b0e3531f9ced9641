"""Every use of attention with every score: trained, saved, loaded, and its weights drawn."""

import json

import numpy as np
import pytest

import weft
from tests.fixtures import pair_runs, small
from tests.fixtures.attention import SCORES
from tests.fixtures.classify_runs import settings
from tests.fixtures.command import fails, ok
from tests.fixtures.seq2seq_runs import SHAPES, pairs
from tests.fixtures.seq2seq_runs import SMALL as WRITERS
from tests.fixtures.span_runs import BIDAF, squad
from tests.fixtures.span_runs import files as span_files
from weft.config import recipe
from weft.errors import UserError
from weft.explain import explain
from weft.explain.attention import attention_maps
from weft.explain.generation import trace_generation, trace_scoring

QUICK = {"train.epochs": 2, "train.threads": 1, "train.patience": 0}
TINY_HEADS = {"encoder.hidden": 8, "encoder.heads": 2, "encoder.layers": 1}


def classifier(name, folder):
    config = settings(name, data__train=str(small.file(folder, count=30)))
    return config.with_values(TINY_HEADS if name == "transformer" else {}, "test")


def writer(name, folder):
    values = {**WRITERS, **SHAPES.get(name, {}), "data.train": str(pairs(folder, count=30))}
    values = {key: value for key, value in values.items() if value is not None}
    calm = {"train.learning_rate": 0.002} if name == "seq2seq-cnn" else {}
    return recipe(name).with_values({**values, **calm}, "test")


def pair(name, folder):
    rows = [{"text": e.text, "text_pair": e.other, "label": e.label} for e in pair_runs.pairs()]
    path = folder / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return settings(name, data__train=str(path), data__text_pair="text_pair")


def span(name, folder):
    values = {**span_files(squad(folder / "train.json")), **BIDAF}
    return recipe(name).with_values(values, "test")


def language(name, folder):
    path = folder / "text.txt"
    path.write_text("".join(f"the {e.text}\n" for e in small.examples()), "utf-8")
    sizes = {"decoder.hidden": 8, "decoder.heads": 2, "decoder.layers": 1, "task.window": 16}
    values = {"tokenizer": {"kind": "word"}, "data.train": str(path), "train.batch_size": 4}
    return recipe(name).with_values({**values, **sizes}, "test")


USES = {
    "bilstm-attention": classifier,
    "transformer": classifier,
    "seq2seq-attention": writer,
    "seq2seq-bahdanau": writer,
    "seq2seq-cnn": writer,
    "seq2seq-transformer": writer,
    "esim": pair,
    "decomposable": pair,
    "bidaf": span,
    "gpt": language,
}


def train(name, folder, **attention):
    changes = {f"attention.{key}": value for key, value in attention.items()}
    config = USES[name](name, folder).with_values({**QUICK, **changes}, "test")
    weft.train(config, folder / "run", quiet=True, device="cpu")
    with (folder / "run" / "metrics.jsonl").open(encoding="utf-8") as log:
        losses = [row["loss"] for row in map(json.loads, log) if "loss" in row]
    return weft.load(folder / "run"), losses


def drawn(name, predictor):
    """The attention weights that are drawn, each row a distribution."""
    if name in ("bilstm-attention", "transformer"):
        (found,) = explain(predictor, ["the film was good"], method="attention")
        total = sum(word.weight for word in found.words)
        rows = [] if name == "bilstm-attention" else attention_maps(predictor, "the film was good")
        return [np.array([total]), *(maps.weights.sum(-1) for maps in rows)]
    if name in ("esim", "decomposable"):
        return [
            maps.weights.sum(-1) for maps in attention_maps(predictor, ("a dog", "the cat runs"))
        ]
    if name == "bidaf":
        two = ("Where does Ada live?", "Ada lives in Oslo.")
        return [maps.weights.sum(-1) for maps in attention_maps(predictor, two)]
    if name == "gpt":
        return [trace_scoring(predictor, "the film was good").attention.sum(-1)]
    return [trace_generation(predictor, "a b c").attention.sum(-1)]


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("name", USES)
def test_every_use_trains_with_every_score_and_is_drawn(name, score, tmp_path):
    predictor, losses = train(name, tmp_path, score=score)
    assert predictor.config["attention"]["score"] == score
    assert len(losses) >= 2
    assert losses[-1] < losses[0]
    rows = drawn(name, predictor)
    assert rows
    for sums in rows:
        np.testing.assert_allclose(sums, 1, atol=1e-5)


@pytest.mark.parametrize("mask", ["full", "causal", "no-diagonal", "local"])
def test_every_mask_trains_and_is_drawn(mask, tmp_path):
    predictor, losses = train("transformer", tmp_path, mask=mask)
    assert predictor.config["attention"]["mask"] == mask
    assert losses[-1] < losses[0]
    text = "the film was good and the plot bad"
    (maps,) = attention_maps(predictor, text)
    i, j = np.indices(maps.weights.shape[2:])
    allowed = {
        "full": i == i, "causal": j <= i, "no-diagonal": i != j, "local": abs(i - j) <= 2,
    }[mask]  # fmt: skip
    assert (maps.weights > 0).tolist() == np.broadcast_to(allowed, maps.weights.shape).tolist()
    np.testing.assert_allclose(maps.weights.sum(-1), 1, atol=1e-5)
    for words in (text, "film"):
        (found,) = explain(predictor, [words], method="attention")
        assert sum(word.weight for word in found.words) == pytest.approx(1)


@pytest.mark.parametrize(("name", "texts"), [("transformer", ()), ("esim", ("the cat runs",))])
def test_the_page_draws_attention_with_another_score(name, texts, tmp_path):
    train(name, tmp_path, score="additive")
    pair = [option for text in texts for option in ("--text-pair", text)]
    page = tmp_path / "page.html"
    source = ["--text", "a dog is here", *pair] if pair else ["a good film"]
    ok("explain", tmp_path / "run", *source, "-o", page, "--device", "cpu")
    drawing = page.read_text("utf-8")
    assert "Attention heads" in drawing
    assert drawing.count('class="head-cells"') >= 2


def test_the_command_line_sets_the_score_and_saves_it(tmp_path):
    data = small.file(tmp_path, count=30)
    ok(
        "train", "--recipe", "bilstm-attention", "--train", data, "-o", tmp_path / "run",
        "--set", "attention.score=dot", "--set", "train.epochs=1", "--device", "cpu",
    )  # fmt: skip
    assert '[attention]\nscore = "dot"' in (tmp_path / "run" / "config.toml").read_text("utf-8")
    message = fails(
        "train", "--recipe", "cnn", "--train", data, "-o", tmp_path / "cnn", "--set",
        "attention.score=dot",
    )  # fmt: skip
    assert "attention.score = 'dot', but this model has no attention" in message


def test_a_language_model_goes_on_with_the_attention_of_its_checkpoint(tmp_path):
    train("gpt", tmp_path, score="bilinear", mask="local", window=3)
    config = language("gpt", tmp_path).with_values(QUICK, "test")
    start = {"decoder": {"kind": "pretrained", "model": str(tmp_path / "run")}}
    more = config.with_values(start, "test")
    weft.train(more, tmp_path / "more", quiet=True, device="cpu")
    expected = {"score": "bilinear", "mask": "local", "window": 3}
    assert weft.load(tmp_path / "more").config["attention"] == expected
    with pytest.raises(UserError, match="was trained with 'bilinear', which cannot be changed"):
        weft.train(more.with_values({"attention.score": "dot"}, "test"), tmp_path / "x", quiet=True)
    reader = recipe("gpt-classify").with_values(
        {"embedder.model": str(tmp_path / "run"), "data.train": str(small.file(tmp_path))}, "test"
    )
    with pytest.raises(UserError, match="the embedder 'gpt' has scaled, causal attention"):
        weft.train(reader, tmp_path / "x", quiet=True)
    message = fails("export", tmp_path / "run", "-o", tmp_path / "hub", "--to", "huggingface")
    assert "GPT-2 has scaled, causal attention; this model was trained with score 'bil" in message


def test_a_run_does_not_go_on_with_another_score(tmp_path):
    config = classifier("bilstm-attention", tmp_path).with_values(QUICK, "test")
    weft.train(config, tmp_path / "run", quiet=True, device="cpu")
    other = config.with_values({"attention.score": "dot"}, "test")
    with pytest.raises(UserError, match=r"trained with another \[attention\]"):
        weft.train(other, tmp_path / "run", quiet=True, device="cpu", resume=True)
