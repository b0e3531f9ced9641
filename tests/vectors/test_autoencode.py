import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.fixtures.shapes import checked
from weft.batch import Padded
from weft.errors import UserError
from weft.train.settings import Settings
from weft.vectors.autoencode import (
    ADAM,
    Autoencoder,
    Denoising,
    SequenceToItself,
    denoising,
    sequence,
)

FAST = replace(ADAM, epochs=150, batch_size=8, learning_rate=0.02)
SEA = ("the ship left the harbour", "waves hit the ship", "a harbour with waves and a ship")
FIELD = ("a cow ate grass", "grass grew where the cow slept", "cow and grass on the field")
TEXTS = SEA + FIELD


def rows(*lengths, size=11):
    random = np.random.default_rng(len(lengths))
    return Padded.from_rows([random.integers(2, size, n) for n in lengths])


def dirty(source):
    """The same rows with garbage in the padding."""
    data = source.data.masked_fill(~source.mask, 7)
    return Padded(data, source.lengths)


def test_a_bag_is_rebuilt_as_the_paper_says():
    torch.manual_seed(0)
    model = Denoising(11, 5).eval()
    model.bias.data.normal_()
    source = Padded.from_rows([[3, 3, 5, 1], [10]])
    x = np.zeros((2, 11))
    x[0, [3, 5]] = x[1, 10] = 1  # a word twice is in the bag once, an unknown one not at all
    W, b, c = (p.detach().numpy() for p in (model.weight, model.hidden_bias, model.bias))
    y = 1 / (1 + np.exp(-(x @ W + b)))
    z = 1 / (1 + np.exp(-(y @ W.T + c)))
    loss = -(x * np.log(z) + (1 - x) * np.log(1 - z))[:, 2:].sum(1)
    np.testing.assert_allclose(model.vector(source).detach(), y, atol=1e-6)
    ours = model.losses(model(source), source)
    np.testing.assert_allclose(ours.detach(), loss, rtol=1e-5)


def test_noise_masks_words_in_training_only():
    torch.manual_seed(0)
    model = Denoising(503, 3, noise=0.3)
    source = Padded.from_rows([np.arange(2, 503)])
    seen = []
    usual = model._hidden
    model._hidden = lambda bag: (seen.append(float(bag.sum())), usual(bag))[1]
    model.train()(source)
    model.eval()(source)
    assert 300 < seen[0] < 400
    assert seen[1] == 501
    model.noise = 0.0
    model.train()(source)
    assert seen[2] == 501


@pytest.mark.parametrize("model", [Denoising(11, 5), SequenceToItself(11, 5, 7)])
def test_padding_and_neighbours_change_nothing(model):
    source = rows(3, 7, 1)
    model.eval()
    vectors, losses = model.vector(source), model.losses(model(source), source)
    again = dirty(source)
    torch.testing.assert_close(model.losses(model(again), again), losses)
    torch.testing.assert_close(model.vector(again), vectors)
    for i, row in enumerate(source.rows()):
        alone = Padded.from_rows([row.numpy()])
        torch.testing.assert_close(model.vector(alone)[0], vectors[i])
        torch.testing.assert_close(model.losses(model(alone), alone)[0], losses[i])


@pytest.mark.parametrize("model", [Denoising(11, 5), SequenceToItself(11, 5, 7)])
def test_every_parameter_learns_and_shapes_hold(model):
    source = rows(3, 5, 2)
    assert checked("weft.vectors.autoencode", lambda: model.losses(model(source), source)) >= 2
    model.losses(model(source), source).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


def test_a_sequence_is_read_and_written_by_one_lstm():
    torch.manual_seed(0)
    model = SequenceToItself(11, 5, 7).eval()
    source = rows(3, 5)
    vectors, losses = model.vector(source), model.losses(model(source), source)
    net = model.encoder.net
    weights = [getattr(net, f"{n}_l0") for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]

    def step(word, state):
        return torch.lstm_cell(model.table.table.weight[word][None], state, *weights)

    for i, row in enumerate(source.rows()):
        words = row.tolist()
        state = (torch.zeros(1, 7), torch.zeros(1, 7))
        for word in [*words, model.end]:
            state = step(word, state)
        torch.testing.assert_close(vectors[i], state[0][0])
        total = 0.0
        for word in [*words, model.end]:  # what it writes, fed back to it as it should have been
            total -= F.log_softmax(model.head(state[0]), 1)[0, word]
            state = step(word, state)
        torch.testing.assert_close(losses[i], total)


def test_the_reader_sees_a_text_its_end_and_the_text_again():
    model = SequenceToItself(11, 5, 7)
    source = Padded.from_rows([[3, 4, 5], [9]])
    assert model._twice(source, source).tolist() == [[3, 4, 5, 11, 3, 4, 5], [9, 11, 9, 0, 0, 0, 0]]
    assert model._writing(source).int().tolist() == [[0, 0, 0, 1, 1, 1, 1], [0, 1, 1, 0, 0, 0, 0]]


def test_denoising_brings_texts_on_one_matter_together():
    heard = []
    trained = denoising(
        TEXTS, width=7, min_count=1, settings=FAST, device="cpu", watch=heard.append
    )
    assert heard[-1].loss < 0.7 * heard[0].loss
    found = trained.embed(["waves and harbour", "the field where grass grew", *SEA, *FIELD])
    found = found - found[2:].mean(0)
    unit = found / np.linalg.norm(found, axis=1, keepdims=True)
    near = unit[:2] @ unit[2:].T  # each of two new texts with the six
    assert near[0, :3].mean() > near[0, 3:].mean() + 0.2
    assert near[1, 3:].mean() > near[1, :3].mean() + 0.2


def test_a_sequence_autoencoder_learns_its_texts_by_heart():
    trained = sequence(TEXTS, width=11, hidden=31, min_count=1, settings=FAST, device="cpu")
    known = trained.errors(TEXTS)
    assert known.max() < 1.0
    assert trained.errors(["ship the waves harbour left"])[0] > 5 * known.max()


@pytest.mark.parametrize("learn", [denoising, sequence])
def test_saved_and_loaded_it_gives_the_same_vectors(learn, tmp_path):
    settings = Settings(epochs=1, optimiser="adam")
    trained = learn(TEXTS, width=5, min_count=1, settings=settings, device="cpu")
    before = trained.embed([*TEXTS, ""])
    trained.save(tmp_path / "made")
    loaded = Autoencoder.load(tmp_path / "made", "cpu")
    np.testing.assert_array_equal(loaded.embed([*TEXTS, ""]), before)
    assert before.shape == (7, trained.model.output_size)
    assert loaded.embed([]).shape == (0, trained.model.output_size)
    np.testing.assert_allclose(loaded.embed(TEXTS[::-1]), before[:6][::-1], atol=1e-6)


def test_the_same_seed_gives_the_same_vectors():
    settings = Settings(epochs=2, optimiser="adam")
    one, again, other = (
        denoising(
            TEXTS, width=3, min_count=1, settings=replace(settings, seed=seed), device="cpu"
        ).embed(TEXTS)
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, again)
    assert np.abs(one - other).max() > 1e-3


def test_a_long_text_is_cut_for_the_sequence():
    settings = Settings(epochs=1, optimiser="adam")
    trained = sequence(TEXTS, width=3, max_tokens=3, min_count=1, settings=settings, device="cpu")
    vectors = trained.embed(["the ship left", "the ship left the harbour"])
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)


def test_bad_settings_and_bad_folders(tmp_path):
    with pytest.raises(UserError, match=r"'noise' should be from 0 to below 1, got 1.0"):
        denoising(TEXTS, noise=1.0)
    with pytest.raises(UserError, match=r"'width' should be at least 1, got 0"):
        denoising(TEXTS, width=0)
    with pytest.raises(UserError, match=r"hold no word that occurs 2 times"):
        sequence(["once"])
    with pytest.raises(UserError, match=r"autoencoder.json: cannot read the auto-encoder"):
        Autoencoder.load(tmp_path)
    trained = denoising(TEXTS, width=3, min_count=1, settings=Settings(epochs=1), device="cpu")
    trained.save(tmp_path)
    about = tmp_path / "autoencoder.json"
    saved = json.loads(about.read_text())
    about.write_text(json.dumps({**saved, "kind": "denoisin"}))
    with pytest.raises(UserError, match=r"Unknown auto-encoder 'denoisin'.*Did you mean"):
        Autoencoder.load(tmp_path)
    about.write_text(json.dumps({**saved, "options": {**saved["options"], "width": 5}}))
    with pytest.raises(UserError, match=r"weights.safetensors does not fit autoencoder.json"):
        Autoencoder.load(tmp_path)
    about.write_text("{")
    with pytest.raises(UserError, match=r"not an auto-encoder, or damaged"):
        Autoencoder.load(tmp_path)
