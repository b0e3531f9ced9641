"""Kill -9 at any moment and resume: the weights must be the same to the last bit (N2)."""

import random
import shutil
import time
from pathlib import Path

import pytest

from tests.fixtures.processes import FORK_SERVER
from tests.fixtures.small import SMALL, splits
from tests.fixtures.weights import digest
from weft import config
from weft.errors import UserError
from weft.run import train, trainer

SMALLER = {"width": 11, "hidden": 12, "buckets": 101}


def small(name):
    recipe = config.recipe(name)
    changes = {**SMALL, "train.save_every": 1, "train.epochs": 3}
    for key in config.setting_names(recipe.sections):
        last = key.split(".")[-1]
        if last in SMALLER and not key.startswith("classic"):
            changes[key] = SMALLER[last]
    if "classic" in recipe:
        changes = {"train.threads": 1}
    return recipe.with_values(changes, "test")


def work(name, folder):
    train(small(name), folder, splits=splits(), resume=Path(folder).exists(), quiet=True)


def launch(name, folder):
    process = FORK_SERVER.Process(target=work, args=(name, str(folder)))
    process.start()
    return process


@pytest.mark.parametrize("name", config.recipes())
def test_killed_and_resumed_weights_are_bit_identical(name, tmp_path):
    started = time.monotonic()
    whole = launch(name, tmp_path / "whole")
    whole.join(120)
    assert whole.exitcode == 0
    duration = time.monotonic() - started

    checkpoint = tmp_path / "killed/checkpoints/last.safetensors"
    chance = random.Random(name)
    kills = 0
    for _ in range(12):
        process = launch(name, tmp_path / "killed")
        if kills == 1 and "classic" not in config.recipe(name):
            # At least one resumes from a checkpoint, however slow the machine.
            while process.is_alive() and not checkpoint.exists():
                time.sleep(0.001)
        else:
            process.join(chance.uniform(0.1, 0.9) * duration)
        process.kill()
        process.join(60)
        if process.exitcode == 0:  # it was quicker than the kill: start over
            shutil.rmtree(tmp_path / "killed")
            duration *= 0.7
            continue
        assert process.exitcode == -9
        kills += 1
        if kills == 3:
            break
    last = launch(name, tmp_path / "killed")
    last.join(120)
    assert last.exitcode == 0
    assert kills
    assert digest(tmp_path / "killed") == digest(tmp_path / "whole")


@pytest.mark.parametrize("moment", ["before", "after"])
def test_kill_while_writing_a_checkpoint_loses_nothing(moment, tmp_path, monkeypatch):
    from weft.train import checkpoint

    train(small("gru"), tmp_path / "whole", splits=splits(), quiet=True)

    class Killed(BaseException):
        pass

    written, replace = [], checkpoint.replace

    def dying(path, data):
        written.append(path)
        if len(written) == 9:
            if moment == "after":
                replace(path, data)
            else:
                path.with_name(f".{path.name}.part").write_bytes(data[: len(data) // 2])
            raise Killed
        replace(path, data)

    monkeypatch.setattr(checkpoint, "replace", dying)
    with pytest.raises(Killed):
        train(small("gru"), tmp_path / "cut", splits=splits(), quiet=True)
    monkeypatch.setattr(checkpoint, "replace", replace)
    train(small("gru"), tmp_path / "cut", splits=splits(), resume=True, quiet=True)
    assert digest(tmp_path / "cut") == digest(tmp_path / "whole")


def test_resumed_run_writes_no_metric_twice(tmp_path):
    train(small("bag"), tmp_path / "whole", splits=splits(), quiet=True)
    process = launch("bag", tmp_path / "cut")
    while process.is_alive() and not (tmp_path / "cut/checkpoints/last.safetensors").exists():
        time.sleep(0.002)
    process.kill()
    process.join(60)
    train(small("bag"), tmp_path / "cut", splits=splits(), resume=True, quiet=True)

    def evaluations(folder):
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        return [line for line in lines if "evaluation" in line]

    assert evaluations(tmp_path / "cut") == evaluations(tmp_path / "whole")


def stopped(folder, monkeypatch, after=5, **changes):
    """A training that was cut off, and its configuration."""
    given = small("bilstm").with_values({"train.batch_size": 4, **changes}, "test")

    class Cut(Exception):
        pass

    def save(self, progress, usual=trainer.Trainer._save):
        usual(self, progress)
        if progress.step == after:
            raise Cut

    with monkeypatch.context() as patch:
        patch.setattr(trainer.Trainer, "_save", save)
        with pytest.raises(Cut):
            train(given, folder, splits=splits(), quiet=True)
    return given


def again(given, folder, **changes):
    values = {key.replace("__", "."): value for key, value in changes.items()}
    return train(
        given.with_values(values, "test"), folder, splits=splits(), resume=True, quiet=True
    )


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"train__optimiser": "sgd"}, "another train.optimiser"),
        ({"train__head_learning_rate": 0.1}, "train.head_learning_rate"),
        ({"train__batch_size": 5}, "train.batch_size=4, .*cannot resume with train.batch_size=5"),
        ({"train__seed": 9}, "train.seed=9"),
    ],
    ids=str,
)
def test_changed_setting_on_resume_raises_user_error(tmp_path, monkeypatch, changes, told):
    given = stopped(tmp_path / "run", monkeypatch)
    before = (tmp_path / "run/config.toml").read_text("utf-8")
    with pytest.raises(UserError, match=rf"last.safetensors .*{told}"):
        again(given, tmp_path / "run", **changes)
    assert (tmp_path / "run/config.toml").read_text("utf-8") == before
    again(given, tmp_path / "run")  # nothing is lost


def test_resume_uses_current_rates_and_decay(tmp_path, monkeypatch):
    given = stopped(tmp_path / "run", monkeypatch)
    seen, usual = [], trainer.fit

    def watching(trainee, *rest, **more):
        for progress in usual(trainee, *rest, **more):
            seen.append(trainee.optimisers[0].param_groups[0])
            yield progress

    monkeypatch.setattr(trainer, "fit", watching)
    changes = {"train__weight_decay": 0.7, "train__beta2": 0.9, "train__ema_decay": 0.5}
    again(given, tmp_path / "run", **changes)
    assert {(group["weight_decay"], group["betas"]) for group in seen} == {(0.7, (0.9, 0.9))}


def test_time_spent_before_resume_counts(tmp_path, monkeypatch):
    given = stopped(tmp_path / "run", monkeypatch, **{"train.minutes": 60.0})
    clocks, usual = [], trainer.TimeBudget
    monkeypatch.setattr(trainer, "TimeBudget", lambda *given: clocks.append(given) or usual(*given))
    again(given, tmp_path / "run")
    assert 0 < clocks[-1][2] < 600
