"""Ray beside one machine: are the tables the same, and does anything run twice when a node dies?

    python bench/ray_cluster.py --rows 200000

A cluster of two nodes with one core each runs on the loopback interface of this machine. The
comparison, the search and the bulk prediction of built-in reviews run here, on the cluster, and on
the cluster while a node or a worker is killed (SIGKILL) midway.
"""

import hashlib
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from record import Record, options

import weft
from weft.jobs import NO_NEEDS, open_place
from weft.predict.bulk import predict_files, spread_parts
from weft.text.synthetic.corpora import generate_reviews
from weft.text.write import write
from weft.tune import parse, tune

SEEDS = 1
TRIALS = 4
SPACE = ["train.learning_rate=1e-4..1e-2 log"]
NODE = {
    "num_cpus": 1,
    "object_store_memory": 80 * 2**20,
    "node_ip_address": "127.0.0.1",
    "include_dashboard": False,
}


class Nodes:
    """Two nodes, of which the second can be killed and replaced."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        quick = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 1000}
        self.cluster = Cluster(
            initialize_head=True, head_node_args={**NODE, "_system_config": quick}
        )
        self.on = f"ray:{self.cluster.address}"
        self.second: Any = None
        self.replace()

    def replace(self) -> None:
        if self.second not in self.cluster.worker_nodes:
            self.second = self.cluster.add_node(**NODE)

    def kill(self) -> None:
        self.cluster.remove_node(self.second, allow_graceful=False)

    def stop(self) -> None:
        self.cluster.shutdown()


class Submissions:
    """The names of all jobs that were sent to the cluster."""

    def __init__(self) -> None:
        from weft.jobs.ray_cluster import RayCluster

        self.names: list[str] = []
        submit = RayCluster.submit

        def record(cluster: Any, running: Any) -> None:
            self.names.append(running.job.name)
            submit(cluster, running)

        RayCluster.submit = record  # type: ignore[method-assign]

    def take(self) -> tuple[int, int]:
        """Return how many jobs were sent since the last call, and how often one again."""
        sent, jobs = len(self.names), len(set(self.names))
        self.names.clear()
        return jobs, sent - jobs


def act_when(condition: Callable[[], bool], act: Callable[[], None]) -> threading.Thread:
    """Act in another thread as soon as the condition holds."""

    def watch() -> None:
        while not condition():
            time.sleep(0.05)
        act()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def kill_worker() -> None:
    """Kill the Ray worker of one part."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        if path.read_bytes().startswith(b"ray::part"):
            os.kill(int(path.parent.name), signal.SIGKILL)
            return


def compare(folder: Path, output: Path, on: str = "") -> tuple[list[Any], float]:
    """Return what does not depend on how busy the machine was, and the seconds."""
    began = time.perf_counter()
    rows = weft.compare(
        [str(folder / "train.tsv"), str(folder / "test.tsv")], output, dev=str(folder / "dev.tsv"),
        recipes=["tfidf", "bag", "cnn"], seeds=SEEDS, minutes=0, on=on, device="cpu",
        changes={"train.epochs": 8, "train.patience": 0}, quiet=True,
    )  # fmt: skip
    table = [(r.recipe, r.values, r.low, r.high, r.p, r.completed) for r in rows]
    return table, time.perf_counter() - began


def search(folder: Path, output: Path, on: str = "") -> tuple[list[Any], float]:
    began = time.perf_counter()
    config = weft.recipe("bag").with_values({"train.epochs": 8, "train.patience": 0}, "bench")
    found = tune(
        config, output, train=str(folder / "train.tsv"), dev=str(folder / "dev.tsv"),
        search=parse(SPACE), sampler="random", trials=TRIALS, seeds=1, prune=False, device="cpu",
        workers=0 if on else 2, on=on,
    )  # fmt: skip
    rows: list[Any] = sorted((row.settings["train.learning_rate"], row.value) for row in
                             found.rows if row.state == "complete")  # fmt: skip
    assert found.restarts is not None
    return [*rows, *(r.dev for r in found.restarts.tuned)], time.perf_counter() - began


def contents(pattern: str, folder: Path) -> dict[str, int]:
    """Return when each file of the pattern was written."""
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.glob(pattern)}


def digest(folder: Path) -> str:
    total = hashlib.sha256()
    for path in sorted(folder.glob("*.jsonl")):
        total.update(path.name.encode() + path.read_bytes())
    return total.hexdigest()


def disturb(
    record: Record, what: str, pattern: str, run: Callable[[Path, str], tuple[list[Any], float]],
    here: list[Any], output: Path, nodes: Nodes, sent: Submissions, finished: int,
) -> None:  # fmt: skip
    """Kill a node when `finished` results are there; were they written again?"""
    kept: dict[str, int] = {}

    def kill() -> None:
        kept.update(contents(pattern, output))
        nodes.kill()

    killer = act_when(lambda: len(contents(pattern, output)) >= finished, kill)
    sent.take()
    table, seconds = run(output, nodes.on)
    killer.join(10)
    now, (jobs, again) = contents(pattern, output), sent.take()
    record.line(
        "ray", what=what, disturbed="a node killed", same=table == here, results=len(now),
        jobs=jobs, sent_again=again, finished_before=len(kept),
        finished_and_repeated=sum(now.get(name) != stamp for name, stamp in kept.items()),
        seconds=round(seconds, 1),
    )  # fmt: skip
    nodes.replace()


def measure_bulk(record: Record, folder: Path, rows: int, nodes: Nodes, sent: Submissions) -> None:
    config = weft.recipe("bag").with_values({"train.epochs": 2, "train.threads": 1}, "bench")
    run = weft.train(config, folder / "run", train=str(folder / "train.tsv"), quiet=True)
    texts = [one.text for one in generate_reviews(size=2000)["train"]]
    with (folder / "rows.jsonl").open("w", encoding="utf-8") as file:
        for i in range(rows):
            text = f"{texts[i % len(texts)]} {i % 97}"
            file.write(json.dumps({"id": i, "text": text}) + "\n")
    began = time.perf_counter()
    predict_files(run.predictor, [str(folder / "rows.jsonl")], folder / "one", quiet=True)
    seconds = {"here": time.perf_counter() - began}
    for name, kill in (("cluster", False), ("killed", True)):
        output = folder / name
        if kill:
            killer = act_when(lambda: len(list(output.glob("*.jsonl"))) > 1, kill_worker)  # noqa: B023
        words = ["predict", str(folder / "run"), str(folder / "rows.jsonl"), "-o", str(output)]
        sent.take()
        began = time.perf_counter()
        with open_place(nodes.on) as where:
            spread_parts(words, where, NO_NEEDS, lambda line: None)
        seconds[name] = time.perf_counter() - began
        if kill:
            killer.join(10)
        parts, again = sent.take()
        record.line(
            "ray", what=f"predict, {rows:,} rows", disturbed="a worker killed" if kill else "",
            same=digest(output) == digest(folder / "one"), results=len(contents("*.jsonl", output)),
            jobs=parts, sent_again=again, seconds=round(seconds[name], 1),
            seconds_here=round(seconds["here"], 1),
        )  # fmt: skip


def main() -> None:
    parser = options(__doc__, repeats=1)
    parser.add_argument("--rows", type=int, default=200_000, help="of the bulk prediction")
    arguments = parser.parse_args()
    record = Record(arguments.record)
    folder = Path(tempfile.mkdtemp(prefix="weft-ray-"))
    for part, examples in generate_reviews(size=2000).items():
        write(examples, folder / f"{part}.tsv")
    nodes, sent = Nodes(), Submissions()
    try:
        for what, pattern, finished, function in (
            ("compare", "trials/*/result.json", 1, compare),
            ("tune", "trials/*/predictions.jsonl", 1, search),
        ):
            run = lambda output, on="", f=function: f(folder, output, on)  # noqa: E731
            here, seconds = run(folder / f"{what}-here")
            there, took = run(folder / f"{what}-ray", nodes.on)
            jobs, again = sent.take()
            record.line(
                "ray", what=what, disturbed="", same=there == here,
                results=len(contents(pattern, folder / f"{what}-ray")), jobs=jobs,
                sent_again=again, seconds=round(took, 1), seconds_here=round(seconds, 1),
            )  # fmt: skip
            disturb(
                record, what, pattern, run, here, folder / f"{what}-killed", nodes, sent, finished
            )
        measure_bulk(record, folder, arguments.rows, nodes, sent)
    finally:
        nodes.stop()


if __name__ == "__main__":
    os.environ |= {
        "OMP_NUM_THREADS": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # loopback only
        "PYTHONPATH": os.pathsep.join(filter(None, (os.getcwd(), os.environ.get("PYTHONPATH")))),
    }
    sys.exit(main())
