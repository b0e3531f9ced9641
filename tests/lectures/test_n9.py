"""N9: the verdict on gradients of networks built to vanish, to explode and to be healthy."""

import re

import numpy as np
import pytest
import torch

from tests.fixtures import small
from weft import config
from weft.batch import LabelledBatch, Padded, TokenStore, labelled_batch
from weft.errors import UserError
from weft.model import build_model
from weft.run import Splits, train
from weft.runtime import select_runtime
from weft.tasks.classify import Classify
from weft.tasks.language import LanguageModelling
from weft.text.example import Example
from weft.train.gradients.labelled import examine
from weft.train.gradients.predictions import examine_predictions

CPU, B, T, V, H = select_runtime("cpu"), 7, 41, 11, 31
RADII = [(0.2, "bad", "cannot learn longer"), (1.0, "good", "can be learned"),
         (3.0, "bad", "it explodes")]  # fmt: skip


def set_radius(weight, radius):
    """Make a recurrent matrix an orthogonal one times a radius: all its eigenvalues have it."""
    with torch.no_grad():
        torch.nn.init.orthogonal_(weight).mul_(radius)
    assert torch.linalg.eigvals(weight.detach()).abs().numpy() == pytest.approx(radius, abs=1e-5)


@pytest.mark.parametrize(("radius", "level", "words"), RADII)
def test_the_verdict_on_a_language_model_follows_its_spectral_radius(radius, level, words):
    torch.manual_seed(5)
    parts = {"task": {"kind": "language", "window": T},
             "decoder": {"kind": "rnn-lm", "cell": "rnn", "width": 5, "hidden": H}}  # fmt: skip
    model = build_model(parts, vocabulary_size=V, outputs=(V, 0, 0))
    decoder = model.head.decoder
    set_radius(decoder.net.weight_hh_l0, radius)
    with torch.no_grad():
        decoder.words.table.weight.mul_(0.1)
    ids = torch.from_numpy(np.random.default_rng(0).integers(1, V, (B, T + 1)))
    source = Padded(ids[:, :-1], torch.full((B,), T))
    batch = LabelledBatch(source, np.arange(B), ids[:, 1:].contiguous(), B * T)
    health = examine_predictions(model, LanguageModelling(), batch, CPU)
    assert (health.level, words in health.verdict) == (level, True), health.verdict
    if radius == 0.2:
        assert "try lstm-lm or gpt" in health.verdict


@pytest.mark.parametrize(("radius", "level", "words"), RADII)
def test_the_verdict_on_a_classifier_follows_its_spectral_radius(radius, level, words):
    torch.manual_seed(5)
    parts = {
        "embedder": {"kind": "lookup", "width": 5, "scale": 0.01},
        "encoder": {"kind": "rnn", "cell": "rnn", "hidden": H, "bidirectional": False},
        "pool": {"kind": "last"},
        "head": {"kind": "linear"},
    }
    model = build_model(parts, vocabulary_size=V, outputs=2)
    set_radius(model.encoder.net.weight_hh_l0, radius)
    store = TokenStore()
    for row in range(B):
        store.append(np.random.default_rng(row).integers(1, V, T), row % 2, line=row + 1)
    batch = labelled_batch(store.close(), np.arange(B))
    health = examine(model, Classify(), batch, CPU)
    assert (health.level, words in health.verdict) == (level, True), health.verdict


def lines(count=60):
    out = [Example(f"the {small.WORDS[i % 7]} was {small.WORDS[i % 5]} {small.WORDS[i % 3]}",
                   file="text.txt", line=i + 1) for i in range(count)]  # fmt: skip
    return Splits(lambda: iter(out), lambda: iter(out[:5]), None)


def test_a_language_model_that_breaks_names_the_part_and_the_lines_of_the_batch(tmp_path):
    changes = {"train.learning_rate": 1e38, "train.clip_norm": 0.0, "train.optimiser": "sgd",
               "decoder.width": 5, "decoder.hidden": 7, "task.window": 8, "train.batch_size": 2,
               "train.threads": 1}  # fmt: skip
    with pytest.raises(UserError, match="The first non-finite value is the ") as caught:
        train(config.recipe("rnn-lm").with_values(changes, "test"), tmp_path, splits=lines(),
              quiet=True)  # fmt: skip
    message = str(caught.value)
    listed = re.search(r"The batch has lines ([\d, ]+) of the training file", message)
    numbers = [int(number) for number in listed[1].split(", ")]
    assert 1 <= min(numbers) <= max(numbers) <= 60


@pytest.mark.parametrize("recipe", ["rnn-lm", "lstm-lm", "nnlm"])
def test_every_training_of_a_language_model_ends_with_a_verdict(recipe, tmp_path):
    changes = {"decoder.width": 5, "decoder.hidden": 5, "task.window": 8, "train.batch_size": 2,
               "train.epochs": 1, "train.threads": 1, "train.diagnose": True}  # fmt: skip
    given = config.recipe(recipe).with_values(changes, "test")
    result = train(given, tmp_path, splits=lines(), quiet=True)
    assert result.record["gradients"].startswith(("good: ", "warning: ", "bad: "))
    log = (tmp_path / "log.txt").read_text()
    assert f"gradients {result.record['gradients']}" in log
    assert (tmp_path / "health.json").is_file()
    events = (tmp_path / "metrics.jsonl").read_text()
    assert '"event": "health"' in events or '"event":"health"' in events
