"""Comparisons against the clock, simulated: costs are given, time passes when somebody sleeps."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from weft.compare import scheduler
from weft.compare.budget import Clock
from weft.compare.scheduler import TrialScheduler, WorkerPool
from weft.compare.trial import MIN_COMPLETED, Result, SplitSpec, Trial, TrialProgress
from weft.config import Config
from weft.jobs import Job, Place
from weft.jobs.local import LocalJob

START_UP, TAIL = 3.0, 2.0  # seconds before the first update, and after the last


@dataclass
class World:
    """A machine on which every training takes as long as `costs` says, unless it is stopped."""

    costs: dict[str, float]
    dev: dict[str, float] = field(default_factory=dict)  # quality on dev
    time: float = 0.0
    jobs: list[tuple[str, float]] = field(default_factory=list)  # name of the trial, when begun
    works: dict[str, "Work"] = field(default_factory=dict)

    def sleep(self, seconds: float) -> None:
        self.time += 1.0

    def spread(self, jobs: Sequence[Job], where: Place) -> list[LocalJob]:
        [job] = [json.loads(one.stdin) for one in jobs]
        name = f"{job['trial']['recipe']}-{job['trial']['seed']}"
        self.jobs.append((name, self.time))
        self.works[name] = Work(self, job["trial"]["recipe"], 60 * job["minutes"])
        return [LocalJob(self.works[name], None)]


class Work:
    """A process that trains: it ends by itself, or when its own time limit is over."""

    def __init__(self, world: World, recipe: str, limit: float):
        self.world, self.began = world, world.time
        self.cost, self.dev = world.costs[recipe], world.dev.get(recipe, 0.5)
        self.trains = min(self.cost, max(limit - START_UP, 0.0)) if limit else self.cost
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if (
            self.returncode is None
            and self.world.time >= self.began + START_UP + self.trains + TAIL
        ):
            self.returncode = 0
        return self.returncode

    def kill(self) -> None:
        self.returncode = -9

    def wait(self) -> None:
        pass

    def result(self) -> Result:
        done = self.trains / self.cost
        figures = {"accuracy": {"value": 0.5}}
        clipped = "" if done == 1 else "stopped by the clock"
        return Result(
            "d", "accuracy", True, figures, self.dev, START_UP + self.trains, 1, 1, 1, [], {},
            clipped=clipped, completed=done,
        )  # fmt: skip

    def progress(self) -> TrialProgress | None:
        seconds = self.world.time - self.began - START_UP
        return (
            TrialProgress(min(seconds, self.trains) / self.cost, 0.0, seconds)
            if seconds > 0
            else None
        )


@pytest.fixture
def simulate(monkeypatch, tmp_path):
    """Run a comparison of recipes with these costs; returns the race and the world."""

    def run(costs, minutes, workers=2, seeds=3, classic=(), finished=None, dev=None):
        world = World(costs, dev or {})
        monkeypatch.setattr(scheduler, "spread", world.spread)
        name = lambda trial: f"{trial.recipe}-{trial.seed}"  # noqa: E731
        monkeypatch.setattr(Trial, "load_result", lambda self: world.works[name(self)].result())
        monkeypatch.setattr(Trial, "progress", lambda self: world.works[name(self)].progress())
        trials = [
            Trial(
                recipe, seed, None, Config({"classic": {}} if recipe in classic else {}),
                SplitSpec(""), tmp_path / f"{recipe}-{seed}", "d",
            )
            for recipe in costs
            for seed in range(1, seeds + 1)
        ]  # fmt: skip
        clock = Clock(minutes, lambda: world.time, world.sleep)
        race = TrialScheduler(WorkerPool(workers, 1, ("cpu",)), clock, lambda n, text: None)
        race.run(trials, {tmp_path / folder: found for folder, found in (finished or {}).items()})
        return race, world

    return run


def seeds_of(race: TrialScheduler) -> dict[str, int]:
    return {name: len(pairs) for name, pairs in race.results.items()}


# Seconds of one training, as the recipes for texts took on tweets about emotions.
STORY = {
    "tfidf": 2.0, "fasttext": 3.0, "bag": 8.0, "mlp": 30.0, "cnn": 45.0, "rnn": 60.0, "gru": 90.0,
    "lstm": 90.0, "bilstm": 150.0, "bilstm-attention": 170.0, "transformer": 400.0,
}  # fmt: skip


def test_cheap_recipes_get_all_their_seeds_before_expensive_ones_use_the_time_up(simulate):
    race, world = simulate(STORY, 8, classic=("tfidf", "fasttext"))
    seeds = seeds_of(race)
    assert [seeds[name] for name in ("tfidf", "fasttext", "bag")] == [3, 3, 3]
    began = dict(world.jobs)
    assert max(began["fasttext-3"], began["bag-3"]) < began["rnn-1"]


def test_every_recipe_that_can_be_trained_once_is_before_expensive_ones_are_twice(simulate):
    race, _ = simulate(STORY, 8, classic=("tfidf", "fasttext"))
    assert len(seeds_of(race)) >= 8
    assert "transformer" not in race.results  # 400 seconds, which are not left


@pytest.mark.parametrize("minutes", [1, 4, 8, 20])
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_random_costs_never_rank_shortened_trials_or_exceed_the_limit(simulate, minutes, workers):
    rng = random.Random(31 * minutes + workers)
    for _ in range(3):
        costs = sorted(rng.choice([2, 10, 50, 250, 1250]) * rng.uniform(1, 5) for _ in range(11))
        named = {f"r{i:02}": cost for i, cost in enumerate(costs)}
        race, _ = simulate(named, minutes, workers)
        assert all(r.completed >= MIN_COMPLETED for p in race.results.values() for _, r in p)
        left = race.clock.left - race.clock.report
        assert left >= 0  # what is kept for the models' timing may be used, the report's not
        # All seeds of a recipe of which they would take a twentieth of the time.
        room = 0.05 * 60 * minutes * workers / 3
        for name, cost in named.items():
            if cost + START_UP + TAIL <= room:
                assert seeds_of(race)[name] == 3, (name, cost)


def test_hopeless_trial_is_stopped_for_others(simulate):
    race, world = simulate({"cheap": 20.0, "huge": 5000.0, "fits": 60.0}, 4, workers=1, seeds=1)
    assert seeds_of(race) == {"cheap": 1, "fits": 1}
    began = dict(world.jobs)
    assert began["fits-1"] - began["huge-1"] < 15
    assert race.estimated_seconds["huge"] == pytest.approx(5000, rel=0.1)


def test_a_shortened_training_is_ranked_from_half_of_its_epochs(simulate):
    race, _ = simulate({"a": 300.0}, 4, workers=1, seeds=1)
    ((_, result),) = race.results["a"]
    assert MIN_COMPLETED <= result.completed < 1
    race, _ = simulate({"a": 600.0}, 4, workers=1, seeds=1)
    assert race.results == {}


def test_shortened_trials_are_repeated_if_time_allows(simulate):
    def earlier(seconds: float, completed: float) -> Result:
        return Result(
            "d", "accuracy", True, {"accuracy": {"value": 0.5}}, 0.5, seconds, 1, 1, 1, [], {},
            clipped="stopped by the clock" if completed < 1 else "", completed=completed,
        )  # fmt: skip

    known = {"a-1": earlier(60.0, 1.0), "b-1": earlier(60.0, 0.3), "c-1": earlier(60.0, 0.6)}
    costs = {"a": 60.0, "b": 200.0, "c": 100.0}
    race, world = simulate(costs, 8, seeds=1, finished=known)
    assert sorted(name for name, _ in world.jobs) == ["b-1", "c-1"]
    assert {r.completed for pairs in race.results.values() for _, r in pairs} == {1.0}
    # Without enough time for more, what can be ranked stays, and what cannot be is not.
    race, world = simulate(costs, 1.5, seeds=1, finished=known)
    assert world.jobs == []
    assert sorted(race.results) == ["a", "c"]
    assert sorted(race.shortened) == ["b"]
    race, world = simulate(costs, 0, seeds=1, finished=known)
    assert {r.completed for pairs in race.results.values() for _, r in pairs} == {1.0}


def test_the_cheapest_classic_model_is_finished_whatever_the_limit(simulate):
    race, _ = simulate({"tfidf": 90.0, "bag": 100.0}, 0.2, classic=("tfidf",), seeds=1)
    assert seeds_of(race) == {"tfidf": 1}


def test_of_the_expensive_the_most_promising_get_further_seeds(simulate):
    costs = {"poor": 50.0, "good": 50.0, "fair": 50.0}
    _, world = simulate(costs, 6.0, workers=1, dev={"poor": 0.1, "good": 0.9, "fair": 0.5})
    assert [name for name, _ in world.jobs] == ["poor-1", "good-1", "fair-1", "good-2", "good-3"]
