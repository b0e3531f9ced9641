"""Training an ensemble: one run folder, resumed member by member, one model at the end."""

import json

import pytest
import torch
from safetensors.torch import load_file

import weft
from tests.fixtures.classify_runs import settings
from tests.fixtures.command import fails, ok
from tests.fixtures.small import file, killed, splits
from weft.errors import UserError


def config(**changes):
    return settings("bag", **{"train__ensemble": 3, "train__epochs": 3, **changes})


def weights(folder):
    return [load_file(folder / "model" / "members" / str(i) / "weights.safetensors")
            for i in range(3)]  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    return folder, weft.train(config(), folder, splits=splits(), quiet=True, device="cpu")


def test_three_seeds_become_one_model(whole):
    folder, result = whole
    loaded = weft.load(folder, device="cpu")
    assert len(loaded.engine.members) == 3
    seeds = [member.config["train"]["seed"] for member in loaded.engine.members]
    assert seeds == [1, 2, 3]
    first, second, _ = weights(folder)
    assert any(not torch.equal(first[name], second[name]) for name in first)
    record = json.loads((folder / "model" / "record.json").read_text())
    assert len(record["members"]) == 3
    assert (
        record["figures"]["test"]["accuracy"]["value"] == result.figures["test"]["accuracy"].value
    )
    alone = [json.loads((folder / f"members/{i}/model/record.json").read_text()) for i in range(3)]
    assert [one["figures"] for one in alone] == record["members"]
    assert record["seconds"] == pytest.approx(sum(one["seconds"] for one in alone))
    assert "ensemble" in (folder / "log.txt").read_text()


def test_a_member_is_the_run_with_its_seed(whole, tmp_path):
    folder, _ = whole
    one = config(train__ensemble=1, train__seed=2)
    weft.train(one, tmp_path / "run", splits=splits(), quiet=True, device="cpu")
    alone = load_file(tmp_path / "run" / "model" / "weights.safetensors")
    member = weights(folder)[1]
    assert all(torch.equal(alone[name], member[name]) for name in alone)


def test_a_killed_run_goes_on_with_the_unfinished_member(whole, tmp_path):
    folder, _ = whole
    expected = weights(folder)
    weft.train(config(train__ensemble=2), tmp_path / "run", splits=splits(), quiet=True,
               device="cpu")  # fmt: skip
    before = (tmp_path / "run" / "members" / "0" / "model" / "model.json").stat().st_mtime_ns
    with killed(step=7):
        weft.train(config(), tmp_path / "run", splits=splits(), quiet=True, device="cpu",
                   resume=True)  # fmt: skip
    assert not (tmp_path / "run" / "members" / "2" / "model").exists()
    weft.train(config(), tmp_path / "run", splits=splits(), quiet=True, device="cpu", resume=True)
    assert (
        tmp_path / "run" / "members" / "0" / "model" / "model.json"
    ).stat().st_mtime_ns == before
    for mine, theirs in zip(weights(tmp_path / "run"), expected, strict=True):
        assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


def test_an_ensemble_is_not_overwritten_by_accident(whole):
    folder, _ = whole
    with pytest.raises(UserError, match="is not empty"):
        weft.train(config(), folder, splits=splits(), quiet=True, device="cpu")


def test_the_command_trains_and_resumes_an_ensemble(tmp_path):
    data, run = file(tmp_path), tmp_path / "run"
    small = ("--set", "train.epochs=1", "--set", "train.threads=1", "--device", "cpu")
    ok("train", "--recipe", "bag", "--train", data, "-o", run, "--ensemble", 2, *small)
    assert "ensemble of 2" in repr(weft.load(run, device="cpu"))
    done = ok("train", "-o", run, "--resume", "--device", "cpu")
    assert "member 1 is trained" in done.out + done.err


def test_models_without_a_seed_and_bad_counts_are_refused(tmp_path):
    data = file(tmp_path)
    arguments = ("train", "--train", data, "-o", tmp_path / "run")
    message = fails(*arguments, "--recipe", "tfidf", "--ensemble", 2)
    assert "is the same with every seed" in message
    assert "weft ensemble MODEL MODEL" in message
    message = fails(*arguments, "--recipe", "bag", "--ensemble", 65)
    assert "train.ensemble goes from 1 to 64" in message or "--ensemble" in message
