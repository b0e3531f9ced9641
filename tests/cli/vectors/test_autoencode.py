"""weft vectors autoencode, and the recipe autoencoder."""

import numpy as np
import pytest

import weft
from tests.fixtures.command import fails, ok, says
from weft.vectors.autoencode import Autoencoder

TEXTS = [
    "the ship left the harbour", "waves hit the ship", "a harbour with waves and a ship",
    "a cow ate grass", "grass grew where the cow slept", "cow and grass on the field",
]  # fmt: skip


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text.txt").write_text("\n".join(TEXTS * 5) + "\n", "utf-8")
    return tmp_path / "text.txt"


@pytest.mark.parametrize(("kind", "width"), [("denoising", 7), ("sequence", 11)])
def test_an_autoencoder_is_trained_saved_and_searched(kind, width, text, tmp_path):
    done = ok(
        "vectors", "autoencode", text, "-o", tmp_path / "ae", "--kind", kind, "--dim", 7,
        "--hidden", 11, "--noise", 0.2, "--min-count", 1, "--epochs", 30, "--batch-size", 8,
        "--learning-rate", 0.02, "--device", "cpu",
    )  # fmt: skip
    losses = [float(line.split("loss ")[1]) for line in done.err.splitlines() if "loss" in line]
    assert len(losses) == 30
    assert losses[-1] < 0.7 * losses[0]
    assert done.err.splitlines()[-1].endswith(f"30 texts, vectors of {width} dimensions")
    model = Autoencoder.load(tmp_path / "ae", "cpu")
    assert model.options["noise"] == 0.2
    assert model.embed(TEXTS).shape == (6, width)
    found = ok(
        "vectors", "neighbours", tmp_path / "ae", "waves hit the ship", "--texts", text, "-k", 1
    )
    assert found.lines == ["1.0000  waves hit the ship"]


def test_the_recipe_learns_texts_without_labels_and_embeds_them(text, tmp_path):
    ok(
        "train", "--recipe", "autoencoder", "--train", text, "--dev", text, "-o", tmp_path / "run",
        "--set", "train.epochs=60", "--set", "train.learning_rate=0.02", "--set",
        "train.batch_size=6", "--set", "tokenizer.min_count=1", "--set", "embedder.width=16",
        "--set", "decoder.width=16", "--set", "encoder.hidden=24", "--set", "decoder.hidden=24",
    )  # fmt: skip
    model = weft.load(tmp_path / "run", device="cpu")
    answers = [answer.value for answer in model(TEXTS)]
    assert sum(a == b for a, b in zip(answers, TEXTS, strict=True)) >= 4  # learned by heart
    vectors = model.embed(TEXTS)
    assert vectors.shape == (6, 24)
    np.testing.assert_allclose(model.embed(TEXTS[::-1]), vectors[::-1], atol=1e-5)
    assert model.embed([]).shape == (0, 24)
    ok("vectors", "convert", tmp_path / "run", tmp_path / "table.vec")
    assert "harbour" in weft.Vectors.load(tmp_path / "table.vec")


def test_mistakes(text, tmp_path):
    start = ("vectors", "autoencode", text, "-o", tmp_path / "ae")
    says(fails(*start, "--kind", "denoise"), "Unknown auto-encoder 'denoise'", "'denoising'?")
    says(fails(*start, "--noise", 1), "'noise' should be from 0 to below 1, got 1")
    says(fails(*start, "--learning-rate", 0), "--learning-rate should be above 0")
    (tmp_path / "ae").mkdir()
    says(fails(*start), "ae exists. Pass --overwrite")
    message = fails(
        "train", "--recipe", "autoencoder", "--train", text, "-o", tmp_path / "run",
        "--set", "task.shared=false",
    )  # fmt: skip
    says(message, "task.autoencode writes what it reads", "task.shared = true")
