"""Several processes train one model: the same weights as one process, and the same bytes again."""

import json
import os
import signal
import socket
import subprocess
import time
from datetime import timedelta
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.fixtures.language_files import corpus
from tests.fixtures.processes import FORK_SERVER
from tests.fixtures.seq2seq_runs import SMALL as SEQ2SEQ
from tests.fixtures.seq2seq_runs import pairs
from tests.fixtures.small import file as reviews
from tests.fixtures.small import killed
from tests.fixtures.tagged_files import SMALL as TAGGER
from tests.fixtures.tagged_files import columns
from tests.fixtures.weights import digest
from weft.config import dumps, recipe
from weft.errors import UserError
from weft.machine import python_command
from weft.run import train
from weft.runtime import attempt_store
from weft.train.checkpoint import read_tensors

# SGD: of a gradient that is 0 but for rounding, as of the keys' bias, Adam makes full steps.
SAME = {"train.optimiser": "sgd", "train.learning_rate": 0.1, "train.ema_decay": 0.9,
        "train.patience": 0, "train.threads": 1, "train.epochs": 2}  # fmt: skip


def families(folder):
    """A small configuration of each family, without dropout; the row counts are no multiples."""
    return {
        "classify": ("bilstm", {"data.train": str(reviews(folder)), "embedder.width": 11,
                                "encoder.hidden": 7, "train.batch_size": 5, "train.accumulate": 3,
                                "train.clip_norm": 0.05,  # below the norm of every update
                                "embedder.dropout": 0.0, "head.dropout": 0.0}),
        "tag": ("tagger-bilstm-crf", {**TAGGER, "train.batch_size": 7, "train.accumulate": 2,
                                      "data.train": str(columns(folder / "tags.conll", 29))}),
        "lm": ("lstm-lm", {"data.train": str(corpus(folder)), "decoder.width": 7,
                           "decoder.hidden": 11, "decoder.dropout": 0.0, "task.window": 5,
                           "train.batch_size": 5, "train.accumulate": 2}),
        "seq2seq": ("seq2seq-transformer",
                    {**SEQ2SEQ, "data.train": str(pairs(folder, count=19)), "encoder.layers": 1,
                     "decoder.layers": 1, "encoder.hidden": 16, "decoder.hidden": 16,
                     "decoder.width": None, "encoder.dropout": 0.0, "train.warmup": 0.0,
                     "train.schedule": "constant", "train.batch_size": 1}),
    }  # fmt: skip


def configure(name, values):
    values = {key: value for key, value in {**values, **SAME}.items() if value is not None}
    return recipe(name).with_values(values, "test")


def free_port():
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return one.getsockname()[1]


def run_rank(rank, size, jobs):
    """Train several configurations, one after the other, as one of `size` processes."""
    for config, folder, port, options in jobs:
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank))
        os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=str(port))
        with killed(options["killed"]) if options.get("killed") else open(os.devnull):
            train(config, folder, quiet=True, device="cpu", resume=options.get("resume", False))


def in_processes(size, jobs, ends_well=True):
    jobs = [(config, folder, free_port(), options) for config, folder, options in jobs]
    ranks = [FORK_SERVER.Process(target=run_rank, args=(rank, size, jobs)) for rank in range(size)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(100)
        rank.kill()
    if ends_well:
        assert [rank.exitcode for rank in ranks] == [0] * size


def weights(folder):
    _, tensors = read_tensors(Path(folder) / "checkpoints/last.safetensors")
    return {n: t for n, t in tensors.items() if n.startswith(("model.", "average."))}


def distance(one, other):
    """Relative to the norm of all weights."""
    assert one.keys() == other.keys()
    gap = sum((one[n].double() - other[n].double()).square().sum() for n in one)
    return float((gap / sum(t.double().square().sum() for t in one.values())).sqrt())


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Each family in one process, and in two with DDP and with FSDP2."""
    folder = tmp_path_factory.mktemp("parallel")
    jobs = []
    for family, (name, values) in families(folder).items():
        config = configure(name, values)
        train(config, folder / family / "1", quiet=True, device="cpu")
        for way, shard in (("ddp", False), ("fsdp", True)):
            if family in ("classify", "seq2seq") or not shard:
                sharded = config.with_values({"train.shard": shard}, "test")
                jobs.append((sharded, folder / family / way, {}))
    in_processes(2, jobs)
    return folder


@pytest.mark.parametrize("family", ["classify", "tag", "lm", "seq2seq"])
def test_two_processes_learn_the_weights_of_one(family, runs):
    alone = weights(runs / family / "1")
    together = sorted(path for path in (runs / family).iterdir() if path.name != "1")
    assert together
    for path in together:
        assert distance(alone, weights(path)) < 1e-6
        first, second = (
            json.loads((p / "model/record.json").read_text("utf-8"))
            for p in (runs / family / "1", path)
        )
        assert first["updates"] == second["updates"] > 3


def test_two_processes_in_mixed_precision_learn_what_one_does(runs, tmp_path):
    name, values = families(tmp_path)["classify"]
    config = configure(name, {**values, "train.precision": "bf16"})
    train(config, tmp_path / "1", quiet=True, device="cpu")
    in_processes(2, [(config, tmp_path / "2", {})])
    rounding = distance(weights(runs / "classify/1"), weights(tmp_path / "1"))
    assert rounding > 1e-5
    assert distance(weights(tmp_path / "1"), weights(tmp_path / "2")) < rounding / 5


def test_resumed_processes_write_the_same_bytes(tmp_path):
    name, values = families(tmp_path)["classify"]
    dropout = {"embedder.dropout": 0.5, "train.save_every": 1, "train.optimiser": "adamw"}
    config = configure(name, values).with_values({**dropout, "train.shard": True}, "test")
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    in_processes(2, [(config, whole, {})])
    in_processes(2, [(config, cut, {"killed": 4})], ends_well=False)
    assert not (cut / "model").exists()
    in_processes(2, [(config, cut, {"resume": True})])
    assert digest(cut) == digest(whole)
    checkpoints = [path / "checkpoints/last.safetensors" for path in (whole, cut)]
    (_, one), (_, other) = map(read_tensors, checkpoints)
    assert one.keys() == other.keys()
    for path in checkpoints:  # each process has written its own part, and nothing is left over
        (shards,) = path.parent.glob("shards-*")
        parts = [load_file(part) for part in shards.glob("*.safetensors")]
        assert len(parts) == 2
        sizes = [sum(t.numel() for t in part.values()) for part in parts]
        assert 0.6 < sizes[0] / sizes[1] < 1.6
        alone = [name for name in load_file(path) if not name.endswith(".step")]
        assert all(name.startswith("random") for name in alone)
    assert all(one[name].equal(other[name]) for name in one)


@pytest.mark.parametrize(
    ("family", "shard", "before", "after"),
    [("lm", False, 2, 1), ("classify", True, 2, 1), ("classify", True, 1, 2)],
    ids=["stateful 2 to 1", "sharded 2 to 1", "sharded 1 to 2"],
)
def test_another_number_of_processes_goes_on(family, shard, before, after, runs, tmp_path):
    name, values = families(tmp_path)[family]
    config = configure(name, {**values, "train.save_every": 1, "train.shard": shard})
    in_processes(before, [(config, tmp_path / "cut", {"killed": 5})], ends_well=False)
    sharded = any((tmp_path / "cut/checkpoints").glob("shards-*"))
    assert sharded == (shard and before > 1)
    in_processes(after, [(config, tmp_path / "cut", {"resume": True})])
    assert distance(weights(runs / family / "1"), weights(tmp_path / "cut")) < 1e-6
    whole, cut = (losses(path) for path in (runs / family / "1", tmp_path / "cut"))
    assert len(whole) >= 2
    assert cut == pytest.approx(whole, rel=1e-5)


def losses(folder):
    events = map(json.loads, (folder / "metrics.jsonl").read_text("utf-8").splitlines())
    return {event["step"]: event["loss"] for event in events if "loss" in event}


def test_classic_model_and_ensemble_are_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match=r"one process\. Train it without --processes"):
        train(recipe("tfidf"), tmp_path / "run", train=str(reviews(tmp_path)))
    ensemble = recipe("bag").with_values({"train.ensemble": 2}, "test")
    with pytest.raises(UserError, match="join them with `weft ensemble`"):
        train(ensemble, tmp_path / "run", train=str(reviews(tmp_path)))


def test_dead_rank_is_named_in_one_line(tmp_path):
    config = configure("bag", {"data.train": str(reviews(tmp_path)), "train.epochs": 2000})
    (tmp_path / "config.toml").write_text(dumps(config.sections), "utf-8")
    words = ("train", "config.toml", "-o", "run", "--processes", "2", "--quiet")
    command = python_command("weft", *words, "--set", "train.epochs=2000")
    weft = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(tmp_path / "run/checkpoints/last.safetensors")
        victim = max(children(weft.pid))
        os.kill(victim, signal.SIGKILL)
        _, said = weft.communicate(timeout=30)
    finally:
        weft.kill()
    assert weft.returncode == 2
    assert said.startswith("error: Rank ")
    assert said.endswith(
        f" (process {victim}) was killed by SIGKILL, and the other processes were stopped.\n"
    )
    assert said.count("\n") == 1


def test_killed_rank_is_restarted_from_the_last_checkpoint(tmp_path):
    name, values = families(tmp_path)["classify"]
    config = configure(name, {**values, "train.epochs": 5, "train.save_every": 4})
    (tmp_path / "config.toml").write_text(dumps(config.sections), "utf-8")
    words = ("train", "config.toml", "-o", "run", "--processes", "2", "--quiet", "--device", "cpu")
    command = python_command("weft", *words, "--max-restarts", "2")
    weft = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(tmp_path / "run/checkpoints/last.safetensors")
        os.kill(min(children(weft.pid)), signal.SIGKILL)
        _, said = weft.communicate(timeout=100)
    finally:
        weft.kill()
    assert weft.returncode == 0, said
    log = (tmp_path / "run/log.txt").read_text("utf-8")
    assert "resumed after update" in log
    in_processes(2, [(config, tmp_path / "whole", {})])
    assert digest(tmp_path / "run") == digest(tmp_path / "whole")


def test_a_restarted_process_does_not_see_the_addresses_of_dead_ones(monkeypatch):
    from torch.distributed import TCPStore

    agent = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    for name, value in {
        "TORCHELASTIC_USE_AGENT_STORE": "True", "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(agent.port), "RANK": "0", "WORLD_SIZE": "2",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    for attempt in ("0", "1"):
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", attempt)
        store = attempt_store(timedelta(seconds=20))
        assert not store.check(["rank 0"])
        store.set("rank 0", "address")
        assert store.check(["rank 0"])


def wait_for(path):
    for _ in range(1200):
        if path.exists():
            return
        time.sleep(0.05)
    raise AssertionError(path)


def children(pid):
    """The processes that a process has started."""
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=True
    )
    return [int(word) for word in listed.stdout.split()]
