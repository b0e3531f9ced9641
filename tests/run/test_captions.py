"""Images through all verbs: train, resume, predict, evaluate, check, explain, compare."""

import json

import numpy as np
import pytest

import weft
from tests.fixtures.command import ok
from tests.fixtures.recipe_runs import _images as write_images
from weft import config
from weft.compare.prepare import choose_recipes, find_tasks
from weft.errors import UserError
from weft.explain.generation import trace_generation
from weft.predict.evaluate import evaluate
from weft.run.data import Data
from weft.text.read import read

SMALL = {
    "embedder.width": 13, "embedder.patch": 2, "decoder.width": 11, "decoder.hidden": 17,
    "decoder.dropout": 0.0, "train.epochs": 40, "train.batch_size": 8, "train.threads": 1,
    "train.learning_rate": 0.01, "train.patience": 0, "generate.max_length": 8,
}  # fmt: skip


def small(folder, **changes):
    files = {f"data.{part}": str(folder / "a.jsonl") for part in ("train", "dev")}
    return config.recipe("caption").with_values({**SMALL, **files, **changes}, "test")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captions")
    write_images(folder)
    return folder


@pytest.fixture(scope="module")
def run(files):
    return weft.train(small(files), files / "run", quiet=True, device="cpu")


def test_spots_are_described_by_the_saved_model(files, run):
    assert run.figures["dev"]["exact_match"].value > 0.9
    model = weft.load(files / "run" / "model")
    examples = list(read(files / "a.jsonl"))
    assert evaluate(model, examples).compute(0)["exact_match"].value == (
        run.figures["dev"]["exact_match"].value
    )
    from_archive = list(read(files / "a.npz"))  # the images without captions
    assert [a.value for a in model(from_archive)] == [a.value for a in model(examples)]
    loaded = json.loads((files / "run" / "model" / "model.json").read_text("utf-8"))
    assert loaded["config"]["embedder"]["shape"] == [5, 7, 3]  # read off the first image


def test_attention_is_drawn_over_the_image(files, run, tmp_path):
    example = list(read(files / "a.jsonl"))[3]
    trace = trace_generation(run.predictor, example)
    assert trace.attention.shape[2:] == (len(trace.tokens), 12)
    with np.load(files / "a.npz") as archive:
        np.testing.assert_allclose(trace.image, archive["3"] / 255, atol=1e-6)
    ok("explain", files / "run", files / "a.jsonl", "--limit", 1, "-o", tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text("utf-8")
    assert page.count('<svg class="image"') == len(trace.tokens) + 4  # a picture for each method
    assert "Attention over the image" in page


def test_an_interrupted_run_goes_on_to_the_same_model(files, run):
    seen = []

    def stop(*given):
        seen.append(given)
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        weft.train(small(files), files / "cut", quiet=True, device="cpu", on_evaluate=stop)
    again = weft.train(small(files), files / "cut", quiet=True, device="cpu", resume=True)
    assert again.figures["dev"]["chrf"].value == run.figures["dev"]["chrf"].value


def test_images_choose_their_recipe_and_are_checked(files):
    data = Data(train=str(files / "a.jsonl"))
    assert find_tasks(data) == ("seq2seq",)
    assert choose_recipes(data, {}, (), "")[0] == ["caption"]
    np.savez(files / "bad.npz", small=np.zeros((3, 7, 3)), nan=np.full((5, 7, 3), np.nan),
             flat=np.zeros((5, 7)))  # fmt: skip
    rows = [json.dumps({"text": f"bad.npz:{n}", "target": "x"}) for n in ("small", "nan", "flat")]
    good = (files / "a.jsonl").read_text("utf-8")
    (files / "bad.jsonl").write_text(good + "\n".join(rows) + "\n", "utf-8")
    findings = weft.check([str(files / "bad.jsonl")], quiet=True).findings
    found = " ".join(place.detail for one in findings for place in one.places)
    for detail in ("an image of 3 × 7 pixels", "not finite", "1 channel; the first"):
        assert detail in found, detail


def test_models_of_vectors_or_recordings_name_the_recipe(files, tmp_path):
    data = {"data.train": str(files / "a.jsonl"), "data.dev_fraction": 0.0}
    for recipe in ("seq2seq-vectors", "seq2seq-speech"):
        with pytest.raises(UserError, match=r"a\.jsonl:1: an image .* --recipe caption"):
            weft.train(config.recipe(recipe).with_values(data, "test"), tmp_path / "x", quiet=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"embedder.patch": 3}, "2, 4, 8 or 16"), ({"embedder.shape": [5, 7]}, "'shape' should be"),
     ({"embedder.shape": [8, 7, 3]}, "this model reads 8 × 7"),
     ({"task.metrics": ["exakt"]}, "exact"), ({"embedder.layers": -1}, "'layers'"),
     ({"embedder.patch": 8}, "'patch' should be from 1 to 5")],
)  # fmt: skip
def test_settings_that_do_not_fit_are_refused(files, tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        weft.train(small(files, **changes), tmp_path / "run", quiet=True, device="cpu")
