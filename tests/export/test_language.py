"""Exports of language models that read both sides: probabilities of tokens, and filled masks."""

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
