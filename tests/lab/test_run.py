"""`weft lab`: real runs, kept and repeated bit by bit, and the page they end on."""

import inspect
import json
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from weft.cli.main import app
from weft.errors import UserError
from weft.lab.catalogue import load_experiment
from weft.lab.results import load_run, run_path
from weft.lab.run import find_missed, run_experiments
from weft.lab.worker import measure

NAME = "bag-order"
SEEDS = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("lab")
    words = ["lab", "run", NAME, "-o", str(out), "--workers", "1", "--seeds", str(SEEDS), "--json"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    (row,) = [json.loads(line) for line in result.output.splitlines() if line.startswith("{")]
    assert row["outcome"] == "holds"
    assert row["seeds"] == [0, 1, 2]
    return out


def test_a_planted_wrong_claim_does_not_hold(folder):
    experiment = load_experiment(NAME)
    runs = [load_run(folder, NAME, seed).measurements for seed in range(SEEDS)]
    assert experiment.judge(runs).outcome == "holds"
    assert experiment.opposite.judge(runs).outcome == "does not hold"


def test_quick_turns_claims_around(tmp_path):
    words = ["lab", "run", "spectral-radius", "--quick", "-o", str(tmp_path), "--workers", "1"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "1 of 1 claims" in result.output
    assert find_missed([]) == []


def test_the_same_seed_measures_the_same(folder):
    again = measure(NAME, 0).measurements
    assert again == load_run(folder, NAME, 0).measurements
    assert again != load_run(folder, NAME, 1).measurements


@pytest.mark.parametrize(
    ("name", "shorter"),
    [
        ("beam-width", {}),
        ("early-stopping", {}),
        ("negation", {"TRAINED": 60, "TESTED": 20, "UPDATES": 4}),
        ("next-sentence", {"DOCUMENTS": 40, "PRETRAINED": 6, "TUNED": 6, "TESTED": 20}),
        ("elmo-layers", {"UPDATES": 4, "TESTED": 20}),
        ("restarts", {"UPDATES": 2}),
        ("power-laws", {"UNLIMITED": 4, "STOPS": (2, 4)}),
    ],
)
def test_measurements_depend_on_the_seed_alone(name, shorter, monkeypatch):
    """Threads that prepare batches, and whatever ran before, change no bit."""
    experiment = load_experiment(name)
    module = inspect.getmodule(experiment.measure)
    for constant, value in shorter.items():
        monkeypatch.setattr(module, constant, value)
    if name == "restarts":
        monkeypatch.setattr(module, "pretrain", partial(shorten, module.pretrain))
    first = measure(name, 3).measurements
    torch.rand(7)
    assert measure(name, 3).measurements == first
    assert measure(name, 4).measurements != first
    for condition in experiment.conditions:
        assert np.isfinite(condition.quantity.of(first))


def shorten(pretrain, objective, vocabulary, draw, seed, updates):
    return pretrain(objective, vocabulary, draw, seed, 10)


def test_finished_seeds_are_kept_and_others_run(folder):
    paths = [run_path(folder, NAME, seed) for seed in range(SEEDS)]
    kept = paths[0].read_bytes()
    changed = json.loads(paths[1].read_text())
    paths[1].write_text(json.dumps({**changed, "source": "of an older version"}))
    finished: list[int] = []
    (trial,) = run_experiments(
        [load_experiment(NAME)], folder, seeds=SEEDS, workers=1,
        on_finished=lambda name, seed: finished.append(seed),
    )  # fmt: skip
    assert finished == [0, 2, 1]  # those that are there first
    assert paths[0].read_bytes() == kept
    assert json.loads(paths[1].read_text())["measurements"] == changed["measurements"]
    assert len(trial.runs) == SEEDS


def test_a_damaged_run_is_named(folder):
    path = run_path(folder, NAME, 7)
    path.write_text(run_path(folder, NAME, 0).read_text().replace('"cpu_seconds"', '"x"'))
    with pytest.raises(UserError, match=r"bag-order-7\.json"):
        load_run(folder, NAME, 7)


def test_the_page_is_one_offline_file_with_labelled_axes(folder):
    page = (folder / "lab.html").read_text()
    assert not re.search(r"(src|href)=\"(https?:)?//|url\(http|@import", page)
    experiment = load_experiment(NAME)
    chart = page[page.index("<svg") : page.index("</svg>")]
    assert f">{experiment.x}<" in chart
    assert f">{experiment.y}<" in chart
    assert experiment.claim in page
    assert "Your guess" in page
    assert "weft lab run bag-order" in page


def test_list_shows_every_claim():
    result = CliRunner().invoke(app, ["lab", "list"])
    assert result.exit_code == 0
    assert load_experiment(NAME).claim in result.output
