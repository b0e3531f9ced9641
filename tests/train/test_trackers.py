"""Experiment trackers; MLflow and wandb are stubs with the signatures of 3.17 and 0.31.

Both were also run by hand with the real packages: MLflow with a file store, wandb offline.
"""

import json
import sys
import types
from pathlib import Path

import pytest

from tests.fixtures import small
from weft import config as configuration
from weft.errors import UserError
from weft.run import train
from weft.train.logger import RunLogger
from weft.train.trackers import TRACKERS, finite_values, flatten


class Client:
    """mlflow.MlflowClient, as far as it is used."""

    def __init__(self, tracking_uri=None, registry_uri=None):
        self.experiments, self.runs = {}, {}
        self.away = False

    def get_experiment_by_name(self, name):
        found = self.experiments.get(name)
        return found and types.SimpleNamespace(experiment_id=found)

    def create_experiment(self, name, artifact_location=None, tags=None):
        self.experiments[name] = f"id of {name}"
        return self.experiments[name]

    def create_run(self, experiment_id, start_time=None, tags=None, run_name=None):
        run_id = f"run{len(self.runs)}"
        self.runs[run_id] = types.SimpleNamespace(
            experiment=experiment_id, tags=tags, name=run_name, params={}, metrics=[], status=""
        )
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id=run_id))

    def update_run(self, run_id, status=None, name=None):
        self.runs[run_id].status = status

    def log_batch(self, run_id, metrics=(), params=(), tags=(), synchronous=None):
        assert len(params) <= 100
        if self.away and metrics:
            raise ConnectionError("the server\nis away")
        self.runs[run_id].params |= {p.key: p.value for p in params}
        self.runs[run_id].metrics += [(m.key, m.value, m.step) for m in metrics]

    def set_terminated(self, run_id, status=None, end_time=None):
        self.runs[run_id].status = status


@pytest.fixture
def mlflow(monkeypatch):
    client = Client()
    package, entities = types.ModuleType("mlflow"), types.ModuleType("mlflow.entities")
    package.MlflowClient = lambda: client
    entities.Metric = lambda key, value, timestamp, step: types.SimpleNamespace(
        key=key, value=value, timestamp=timestamp, step=step
    )
    entities.Param = lambda key, value: types.SimpleNamespace(key=key, value=value)
    monkeypatch.setitem(sys.modules, "mlflow", package)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    return client


class WandbRun:
    def __init__(self, options):
        self.options, self.id = options, options["id"] or "new"
        self.logged, self.summary, self.exit_code = [], {}, None

    def log(self, data, step=None, commit=None):
        assert not self.logged or step >= self.logged[-1][0]
        self.logged.append((step, data))

    def finish(self, exit_code=None):
        self.exit_code = exit_code


@pytest.fixture
def wandb(monkeypatch):
    runs = []

    def init(
        entity=None, project=None, dir=None, id=None, name=None, notes=None, tags=None,
        config=None, mode=None, reinit=None, resume=None,
    ):  # fmt: skip
        assert all(len(tag) <= 64 for tag in tags)
        runs.append(WandbRun({"project": project, "dir": dir, "id": id, "name": name, "tags": tags,
                              "config": config, "reinit": reinit, "resume": resume}))  # fmt: skip
        return runs[-1]

    package = types.ModuleType("wandb")
    package.init = init
    monkeypatch.setitem(sys.modules, "wandb", package)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    return runs


def run(folder, *loggers, **options):
    values = {**small.SMALL, "train.loggers": list(loggers)}
    config = configuration.recipe("bag").with_values(values, "test")
    return train(config, folder, splits=small.splits(), quiet=True, **options)


def test_mlflow_gets_settings_metrics_and_tags(mlflow, tmp_path):
    result = run(tmp_path / "one", "mlflow")
    (found,) = mlflow.runs.values()
    assert found.experiment == "id of weft"
    assert (found.name, found.status) == ("one", "FINISHED")
    assert found.tags["task"] == "classify"
    assert found.tags["model"] == "bag"
    config = configuration.load(tmp_path / "one" / "config.toml")
    assert found.params["train.seed"] == str(config["train"]["seed"])
    assert found.params["embedder.width"] == str(config["embedder"]["width"])
    steps = [step for name, _, step in found.metrics if name == "evaluation/dev_accuracy"]
    assert steps == sorted(set(steps))
    assert len(steps) > 1
    values = {name: value for name, value, _ in found.metrics}
    assert values["test/accuracy"] == result.figures["test"]["accuracy"].value


def test_wandb_gets_settings_metrics_and_tags(wandb, tmp_path):
    result = run(tmp_path / "one", "wandb")
    (found,) = wandb
    assert found.options["project"] == "weft"
    assert found.options["config"]["task"]["kind"] == "classify"
    assert "model:bag" in found.options["tags"]
    assert len(found.logged) > 1
    assert found.summary["test/accuracy"] == result.figures["test"]["accuracy"].value
    assert found.exit_code == 0


def test_a_resumed_run_goes_on_in_the_same_run(mlflow, wandb, tmp_path):
    run(tmp_path / "one", "mlflow", "wandb")
    ids = json.loads((tmp_path / "one" / "loggers.json").read_text())
    assert ids == {"mlflow": "run0", "wandb": "new"}
    run(tmp_path / "one", "mlflow", "wandb", resume=True)
    assert len(mlflow.runs) == 1
    assert wandb[1].options["id"] == "new"
    assert wandb[1].options["resume"] == "allow"
    run(tmp_path / "one", "mlflow", overwrite=True)
    assert len(mlflow.runs) == 2


def test_a_tracker_that_fails_does_not_end_the_run(mlflow, tmp_path):
    mlflow.away = True
    result = run(tmp_path / "one", "mlflow")
    assert "dev" in result.figures
    log = (tmp_path / "one" / "log.txt").read_text("utf-8")
    assert log.count("mlflow failed and is not used any more: the server is away") == 1


def test_a_run_that_fails_is_marked(mlflow, wandb, tmp_path):
    class Broken(Exception):
        pass

    def stop(step, found):
        raise Broken

    with pytest.raises(Broken):
        run(tmp_path / "one", "mlflow", "wandb", on_evaluate=stop)
    assert mlflow.runs["run0"].status == "FAILED"
    assert wandb[0].exit_code == 1


@pytest.mark.parametrize("name", TRACKERS)
def test_a_missing_package_names_its_extra(name, tmp_path, monkeypatch):
    for module in ("torch.utils.tensorboard", "mlflow", "wandb"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=rf"pip install 'weft\[{name}\]'"):
        run(tmp_path / "one", name)
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")
    assert f"\n{name} = [" in project


def test_a_tracker_that_cannot_start_says_why(mlflow, tmp_path, monkeypatch):
    monkeypatch.setattr(Client, "create_run", lambda *given, **options: 1 / 0)
    with pytest.raises(UserError, match=r"train\.loggers: mlflow cannot start: division by zero"):
        run(tmp_path / "one", "mlflow")


def test_an_unknown_logger(tmp_path):
    with pytest.raises(UserError, match=r"Unknown logger 'mlfow'.*Did you mean 'mlflow'"):
        run(tmp_path / "one", "mlfow")


def test_tensorboard_writes_event_files(tmp_path):
    pytest.importorskip("tensorboard")
    run(tmp_path / "one", "tensorboard")
    assert list((tmp_path / "one" / "tensorboard").glob("events.out.tfevents.*"))


def test_only_finite_numbers_are_logged(wandb, tmp_path):
    assert finite_values({"a": 1, "b": float("nan"), "c": "x", "d": True}) == {"a": 1.0, "d": 1.0}
    logger = RunLogger(tmp_path, quiet=True, loggers=["wandb"])
    logger.event("evaluation", step=3, epoch=1, loss=float("inf"), accuracy=0.5, words="x")
    logger.event("threads", step=3, threads="two")
    logger.close()
    assert wandb[0].logged == [(3, {"evaluation/accuracy": 0.5})]
    (line, _) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line)["step"] == 3


def test_settings_have_dotted_names():
    nested = {"a": {"b": 1, "c": {"d": [2]}}, "e": [{"kind": "x"}, {"kind": "y"}]}
    assert dict(flatten(nested)) == {"a.b": 1, "a.c.d": [2], "e.0.kind": "x", "e.1.kind": "y"}
