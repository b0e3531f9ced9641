"""Generation with exports of encoder-decoders: every search of PyTorch, the same texts."""

import pytest

import weft
from tests.fixtures.command import command
from tests.fixtures.recipe_runs import train_tiny
from weft.errors import UserError
from weft.export.write import export_onnx

SOURCES = ["a b c", "b", "c c a zork b"]


@pytest.fixture(scope="module", params=["seq2seq-attention", "seq2seq-copy", "seq2seq-cnn"])
def both(request, tmp_path_factory):
    """(model, export) of a tiny training, and their folder."""
    folder = tmp_path_factory.mktemp("run")
    predictor, _ = train_tiny(request.param, "seq2seq", folder, {})
    export_onnx(folder / "run" / "model", folder / "export")
    return predictor, weft.load(folder / "export"), folder


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "greedy"},
        {"method": "beam", "num_beams": 4, "num_return": 3},
        {"method": "beam", "num_beams": 4, "num_beam_groups": 2},
        {"method": "sample", "num_samples": 3, "temperature": 1.3, "top_p": 0.9, "seed": 5},
        {"method": "greedy", "repetition_penalty": 1.5},
    ],
    ids=str,
)
def test_texts_and_scores_are_those_of_the_model(both, settings):
    model, export, _ = both
    expected = weft.generate(model, SOURCES, max_length=6, **settings)
    found = weft.generate(export, SOURCES, max_length=6, **settings)
    for theirs, ours in zip(expected, found, strict=True):
        assert [one.text for one in ours] == [one.text for one in theirs]
        assert [one.score for one in ours] == pytest.approx([one.score for one in theirs], abs=1e-4)


def test_command_line_generates_with_an_export(both):
    model, _, folder = both
    done = command("generate", folder / "export", "a b c", "--method", "greedy")
    assert done.status == 0, done.err
    (expected,) = weft.generate(model, "a b c", method="greedy")
    assert done.out.strip() == expected[0].text.strip()


def test_coverage_needs_the_model(both):
    with pytest.raises(UserError, match="coverage_penalty needs the attention"):
        weft.generate(both[1], "a b", coverage_penalty=0.2)


def test_a_language_model_is_not_continued(tmp_path):
    train_tiny("lstm-lm", "language", tmp_path, {})
    export_onnx(tmp_path / "run" / "model", tmp_path / "export")
    with pytest.raises(UserError, match="gives the probability of every token, but does not"):
        weft.generate(weft.load(tmp_path / "export"), "the cat")
