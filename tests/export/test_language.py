"""Exports of language models that read both sides: probabilities of tokens, and filled masks."""

import numpy as np
import pytest

import weft
from tests.fixtures.exported import TEXTS, check_answers
from tests.fixtures.networks import network
from tests.fixtures.recipe_runs import train_tiny
from weft import predict
from weft.errors import UserError
from weft.export.write import export_onnx


@pytest.mark.parametrize("by", ["skip", "mask"])
def test_both_sides_of_a_word(by, tmp_path):
    changes = {"decoder.by": by, "decoder.layers": 2}
    predictor, _ = train_tiny("masked-bilstm", "language", tmp_path, {}, changes)
    export_onnx(tmp_path / "run" / "model", tmp_path / "export")
    exported = weft.load(tmp_path / "export")
    check_answers(predictor, exported, [*TEXTS, "the [MASK] sees a dog .", "[MASK] [MASK]"])


def test_an_export_fills_masks_but_does_not_evaluate_a_masked_language_model(tmp_path):
    text = "the [MASK] was steep"
    network("masked").save(tmp_path / "model", golden=[text])
    export_onnx(tmp_path / "model", tmp_path / "export")
    exported = weft.load(tmp_path / "export")
    (answer,) = exported([text])
    assert answer.value == predict.load(tmp_path / "model", device="cpu")([text])[0].value
    with pytest.raises(UserError, match=r"fills masks, but .* use the model that it was made from"):
        next(exported.engine.score_masked(["the bank"], exported.task, exported.space))


def test_a_bilm_scores_texts_in_both_directions(tmp_path):
    predictor, _ = train_tiny("elmo-pretrain", "language", tmp_path, {})
    export_onnx(tmp_path / "run" / "model", tmp_path / "export")
    exported = weft.load(tmp_path / "export")
    check_answers(predictor, exported, TEXTS)
    assert exported.engine.has_backward_lm
    texts = ["the cat sees a dog .", "", "a zork 😀 fish"]
    expected, found = (one.engine.score_backward(texts) for one in (predictor, exported))
    ahead = list(predictor.engine.likelihoods(texts))
    for before, now, other in zip(expected, found, ahead, strict=True):
        np.testing.assert_array_equal(now.table, before.table)
        np.testing.assert_allclose(now.probs, before.probs, atol=1e-5)
        assert len(now.probs) == len(other.probs)
    assert not np.allclose(found[0].probs, ahead[0].probs, atol=1e-3)
