"""A Ray cluster of two nodes on this machine; a node and a worker are killed midway."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.fixtures import small
from tests.fixtures.searches import STRENGTH, tfidf
from tests.fixtures.searches import run as search
from tests.fixtures.small import examples

pytestmark = pytest.mark.timeout(300)
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cluster():
    """Two nodes with a core each, on the loopback interface."""
    pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # loopback, as on a laptop
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
        }.items():
            patch.setenv(name, value)
        import ray
        from ray._private import ray_constants
        from ray.cluster_utils import Cluster

        patch.setattr(ray_constants, "ENABLE_RAY_CLUSTER", False)
        quick = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 1000}
        nodes = Cluster(initialize_head=True, head_node_args={**NODE, "_system_config": quick})
        try:
            yield nodes
        finally:
            ray.shutdown()
            nodes.shutdown()


NODE = {
    "num_cpus": 1,
    "object_store_memory": 80 * 2**20,
    "node_ip_address": "127.0.0.1",
    "include_dashboard": False,
}


@pytest.fixture
def second(cluster):
    """The second node; gone after the test."""
    node = cluster.add_node(**NODE)
    cluster.wait_for_nodes()  # until a node that was killed before is gone
    yield node
    if node in cluster.worker_nodes:
        cluster.remove_node(node, allow_graceful=False)


@pytest.fixture
def submitted(monkeypatch):
    """The names of the jobs that were sent to the cluster, in order."""
    from weft.jobs.ray_cluster import RayCluster

    names = []
    submit = RayCluster.submit

    def record(self, running):
        names.append(running.job.name)
        submit(self, running)

    monkeypatch.setattr(RayCluster, "submit", record)
    return names


def when(condition, act, seconds=120):
    """Act in another thread as soon as a condition holds."""
    import threading

    def watch() -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if condition():
                act()
                return
            time.sleep(0.02)

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def figures(rows):
    return [(r.recipe, r.values, r.low, r.high, r.p, r.completed) for r in rows]


def test_compare_gives_the_same_rows_though_a_node_dies(
    cluster, second, submitted, tmp_path, capsys, monkeypatch
):
    from weft.report.compare import compare

    monkeypatch.setattr("weft.compare.budget.LATENCY_SECONDS", 0.3)
    files = [str(small.file(tmp_path))]
    options = {
        "recipes": ["bag"], "seeds": 2, "minutes": 0, "device": "cpu",
        "changes": {"train.epochs": 200, "train.patience": 0, "embedder.width": 7},
    }  # fmt: skip
    local = compare(files, tmp_path / "local", **options)
    capsys.readouterr()
    out = tmp_path / "out"
    begun = [out / "trials" / f"bag-{seed}" / "metrics.jsonl" for seed in (1, 2)]
    killer = when(
        lambda: all(path.exists() for path in begun),
        lambda: cluster.remove_node(second, allow_graceful=False),
    )
    rows = compare(files, out, on=f"ray:{cluster.address}", **options)
    killer.join()
    lines = capsys.readouterr().err.splitlines()
    assert second not in cluster.worker_nodes
    assert figures(rows) == figures(local)
    lost = [line for line in lines if "its machine was lost" in line]
    assert len(lost) == 1
    assert sorted(set(submitted)) == ["bag seed 1", "bag seed 2"]
    assert len(submitted) == 3  # the lost one alone was sent again


def test_tune_gives_the_same_trials(cluster, second, submitted, tmp_path):
    options = {"sampler": "random", "trials": 4, "seeds": 1}
    local = search(tfidf(tmp_path), tmp_path / "local", STRENGTH, **options)
    out = tmp_path / "out"
    found = search(tfidf(tmp_path), out, STRENGTH, on=f"ray:{cluster.address}", **options)
    rows = [[(row.settings, row.value) for row in one.best_first()] for one in (found, local)]
    assert rows[0] == rows[1]
    assert [r.dev for r in found.restarts.tuned] == [r.dev for r in local.restarts.tuned]
    assert submitted == ["out worker 1", "out worker 2"]
    assert (out / "study.jsonl").exists()
    assert not (out / "study.db").exists()


def test_prediction_has_the_same_bytes_though_a_worker_dies(cluster, second, submitted, tmp_path):
    import json

    import weft
    from weft.jobs import Resources, open_place
    from weft.predict.bulk import predict_files, spread_parts

    given = {"embedder.width": 7, "train.epochs": 1, "data.train": str(small.file(tmp_path))}
    base = weft.config.recipe("bag").with_values(given, "test")
    run = weft.train(base, tmp_path / "run", quiet=True)
    table, texts = tmp_path / "rows.jsonl", [e.text for e in examples(100)]
    with table.open("w") as file:
        for i in range(60_000):
            file.write(json.dumps({"id": i, "text": texts[i % 100]}) + "\n")
    predict_files(run.predictor, [str(table)], tmp_path / "alone", quiet=True)
    out, told = tmp_path / "out", []
    killer = when((out / "rows-000000.jsonl").exists, kill_worker)  # of part 1
    words = ["predict", str(tmp_path / "run"), str(table), "-o", str(out)]
    with open_place(f"ray:{cluster.address}") as where:
        spread_parts(words, where, Resources(), told.append)
    killer.join()
    kept = {path.name: path.read_bytes() for path in (tmp_path / "alone").iterdir()}
    assert {path.name: path.read_bytes() for path in out.iterdir()} == kept
    assert len(kept) == 6
    assert len(submitted) == len(set(submitted)) + 1  # the lost one alone was sent again
    assert (
        len([line for line in told if line.endswith("its machine was lost, starting again")]) == 1
    )
    assert any("files were there" in line for line in told)


def kill_worker() -> None:
    """Kill the Ray worker of part 1."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith(b"ray::part 1/"):
                os.kill(int(path.parent.name), signal.SIGKILL)
                return
        except OSError:
            continue


def test_a_cluster_that_is_too_small_or_away_is_an_error(cluster):
    from weft.errors import UserError
    from weft.jobs import Resources, open_place

    with (
        open_place(f"ray:{cluster.address}") as where,
        pytest.raises(UserError, match="No node of the Ray cluster has cpus=64, gpus=0 for a job"),
    ):
        where.count_slots(Resources(64))
    began = time.monotonic()
    with pytest.raises(UserError, match=r"No Ray cluster answers at 127\.0\.0\.1:9 "):
        open_place("ray:127.0.0.1:9").__enter__()
    assert time.monotonic() - began < 20
    with pytest.raises(UserError, match="--on ray:head: give HOST:PORT of the head node"):
        open_place("ray:head").__enter__()
