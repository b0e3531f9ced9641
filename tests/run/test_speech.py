"""Recordings through all verbs: train, resume, predict, evaluate, check, explain, compare."""

import json

import numpy as np
import pytest

import weft
from tests.fixtures.recipe_runs import _recordings as write_recordings
from weft import config
from weft.compare.prepare import choose_recipes
from weft.compare.write_test_split import write_test_split
from weft.errors import UserError
from weft.explain.run import run_explain
from weft.predict.evaluate import evaluate
from weft.predict.generate import Generator
from weft.run.data import Data
from weft.text.read import read

SMALL = {
    "encoder.hidden": 16, "encoder.layers": 1, "encoder.dropout": 0.0, "embedder.width": 16,
    "embedder.mels": 12, "embedder.dropout": 0.0, "embedder.mask_steps": 0,
    "embedder.mask_bands": 0, "embedder.tempo": 0.0, "embedder.warp": 0.0,
    "embedder.gain": 0.0, "train.epochs": 25, "train.batch_size": 4, "train.threads": 1,
    "train.learning_rate": 0.01, "train.patience": 0,
}  # fmt: skip


def small(folder, recipe="ctc-speech", **changes):
    files = {f"data.{part}": str(folder / "a.jsonl") for part in ("train", "dev")}
    return config.recipe(recipe).with_values({**SMALL, **files, **changes}, "test")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("speech")
    write_recordings(folder)
    return folder


@pytest.fixture(scope="module")
def run(files):
    return weft.train(small(files), files / "run", quiet=True, device="cpu")


def test_tones_are_learned_saved_and_measured(files, run):
    assert run.figures["dev"]["wer"].value < 0.1
    model = weft.load(files / "run" / "model")
    examples = list(read(files / "a.jsonl"))
    answers = model(examples)
    assert np.mean([a.value == e.label for a, e in zip(answers, examples, strict=True)]) > 0.9
    assert all(0 < answer.score <= 1 for answer in answers)
    alone = list(read(files / "3.wav"))  # a recording as the file itself
    assert model(alone)[0].value == answers[3].value
    figures = evaluate(model, examples).compute(0)
    assert figures["wer"].value == run.figures["dev"]["wer"].value


def test_an_interrupted_run_goes_on_to_the_same_model(files, run):
    seen = []

    def stop(*given):
        seen.append(given)
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        weft.train(small(files), files / "cut", quiet=True, device="cpu", on_evaluate=stop)
    again = weft.train(small(files), files / "cut", quiet=True, device="cpu", resume=True)
    assert again.figures["dev"]["cer"].value == run.figures["dev"]["cer"].value


def test_answers_are_explained_by_steps(files, run):
    example = list(read(files / "a.jsonl"))[3]
    study = run_explain(run.predictor, [example], compare=False)
    assert len(study.explanations) == 3
    (one,) = next(iter(study.explanations.values()))
    assert len(one.words) > 5
    with pytest.raises(UserError, match="weft predict"):
        Generator(run.predictor)


def test_the_test_part_of_a_comparison_has_its_recordings(files, tmp_path):
    rows = list(read(files / "a.jsonl"))[:2]
    path = write_test_split(Data(train=str(files / "a.jsonl")), lambda: iter(rows), tmp_path)
    assert [one.text for one in read(path)] == [one.text for one in rows]
    for one in rows:
        assert (tmp_path / one.text).read_bytes() == (files / one.text).read_bytes()


def test_recordings_choose_their_recipes_and_are_checked(files):
    names, _ = choose_recipes(Data(train=str(files / "a.jsonl")), {}, (), "")
    assert set(names) == {"ctc-speech", "seq2seq-speech"}
    (files / "b.wav").write_bytes(b"RIFF")
    rows = (files / "a.jsonl").read_text("utf-8")
    bad = "".join(json.dumps({"text": n, "target": "low"}) + "\n" for n in ("b.wav", "../x.wav"))
    (files / "bad.jsonl").write_text(rows + bad, "utf-8")
    findings = weft.check([str(files / "bad.jsonl")], quiet=True).findings
    found = " ".join(place.detail for one in findings for place in one.places)
    assert "not a readable WAV" in found
    assert "not in the folder" in found


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"pool.kind": "mean"}, "pool.kind"), ({"task.label_smoothing": 0.1}, "label_smoothing"),
     ({"task.shared": True}, "shared"), ({"head.kind": "linear", "head.num_beams": None}, "head"),
     ({"embedder.mask_bands": 99}, "mask_bands"), ({"embedder.hop_ms": 0.0}, "hop_ms"),
     ({"task.metrics": ["werr"]}, "wer"), ({"embedder.stack": 64, "embedder.hop_ms": 40.0},
      "needs . steps")],
)  # fmt: skip
def test_settings_that_do_not_fit_are_refused(files, tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        weft.train(small(files, **changes), tmp_path / "run", quiet=True, device="cpu")
