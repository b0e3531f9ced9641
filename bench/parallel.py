"""One model trained by several processes: same weights, resumed after kills, and how fast.

    python bench/parallel.py equal       # 1, 2 and 4 processes, every family, DDP and FSDP2
    python bench/parallel.py kills       # SIGKILL at random moments, then the same bytes

All run on CPUs with gloo. Dropout is 0 in `equal`: each process draws masks of its own.
"""

import json
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from record import Record, options, spread

import weft
from weft.config import Config, dumps, from_sections, recipe, setting_names
from weft.run import neural
from weft.run.train import resolve_config
from weft.text.synthetic.corpora import generate_reviews, python_docs
from weft.text.synthetic.reviews import write_reviews
from weft.text.synthetic.translation import write_pairs
from weft.text.synthetic.treebank import generate_treebank, write_treebank
from weft.train.checkpoint import read_tensors
from weft.train.initialise import initialise

ROOT = Path(__file__).parent.parent
BERT = {"kind": "bert", "hidden": 48, "layers": 2, "heads": 4, "max_positions": 128}
WORDS = {"kind": "word", "min_count": 1}
SMALLER = {"width": 24, "hidden": 32, "vocab_size": 600, "window": 24}
# Family: recipe, files by kind, and what else is set.
FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "classify": ("bilstm", "reviews", {}),
    "classify, BERT": ("bert", "reviews", {"embedder": BERT, "tokenizer": WORDS}),
    "tag": ("tagger-bilstm-crf", "conllu", {"data.label": "upos"}),
    "parse": ("parser", "conllu", {}),
    "seq2seq": ("seq2seq-attention", "parallel", {}),
    "seq2seq, Transformer": ("seq2seq-transformer", "parallel", {}),
    "LM, LSTM": ("lstm-lm", "text", {}),
    "LM, GPT": ("gpt", "text", {"decoder.hidden": 48}),
    "MLM": ("bert-pretrain", "text", {"embedder": BERT, "task.long_window": 32}),
    "pair": ("esim", "pairs", {}),
    "span": ("bidaf", "squad", {}),
}


def write_data(folder: Path) -> dict[str, str]:
    """Write the files of all families; return the training file of each kind."""
    reviews, trees, parallel = (folder / name for name in ("reviews", "trees", "parallel"))
    write_reviews(reviews, generate_reviews(size=1200))
    treebank = write_treebank(trees, generate_treebank(size=800))
    write_pairs(parallel, size=700)
    (folder / "text.txt").write_text("\n\n".join(python_docs()[:800]), "utf-8")
    source, target = sorted(parallel.glob("train.*"))
    found = {"reviews": reviews / "train.tsv", "pairs": reviews / "train-pairs.tsv"}
    found |= {"conllu": trees / "train.conllu", "text": folder / "text.txt"}
    found["squad"] = next(path for path in treebank["tsv"] if path.stem == "train")
    return {name: str(path) for name, path in found.items()} | {"parallel": f"{source},{target}"}


def configure(family: str, files: Mapping[str, str], changes: Mapping[str, Any]) -> Config:
    """Return a small configuration of a family, without dropout and early stopping."""
    name, kind, own = FAMILIES[family]
    sections = dict(recipe(name).sections)
    for key in [key for key in own if "." not in key]:
        sections[key] = own[key]
    files_of = {"data.train": files[kind], "data.dev_fraction": 0.05}
    whole = resolve_config(from_sections(sections, "bench").with_values(files_of, "bench"))
    config = from_sections(whole, "bench")  # with every default, of which some are dropout
    values: dict[str, Any] = {}
    for key in setting_names(config.sections):
        last = key.split(".")[-1]
        if last.endswith("dropout") and last != "inner_dropout":
            values[key] = 0.0
        elif last in SMALLER and "embedder" not in own:
            values[key] = SMALLER[last]
    values |= {"train.patience": 0, "train.threads": 1, "train.batch_size": 12}
    values |= {"train.learning_rate": 0.001, "train.loggers": ()}
    values |= {key: value for key, value in own.items() if "." in key}
    return config.with_values({**values, **changes}, "bench")


def nudge(seed: int, model: torch.nn.Module, *how: Any) -> None:
    """Give a model its first weights, each off by about the rounding of single precision."""
    initialise(model, *how)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        for weight in model.parameters():
            weight.mul_(1 + torch.finfo(weight.dtype).eps / 2 * torch.randn_like(weight))


def train_rank(
    config: dict[str, Any], folder: str, dtype: str, rank: int, size: int, port: int, nudged: int
) -> None:
    """Train as one of `size` processes; `nudged` is the seed of a nudge, 0: none."""
    if nudged:
        neural.initialise = partial(nudge, nudged)  # type: ignore[assignment]
    torch.set_default_dtype(getattr(torch, dtype))
    if dtype == "float64":  # the losses of some heads are computed in single precision
        torch.Tensor.float = torch.Tensor.double  # type: ignore[method-assign, assignment]
    if size > 1:
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank))
        os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=str(port))
    weft.train(from_sections(config, "bench"), folder, quiet=True, device="cpu", overwrite=True)


def train_in(size: int, config: Config, folder: Path, dtype: str, nudged: int = 0) -> None:
    """Train in `size` processes, forked from one that has imported torch."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    fork = multiprocessing.get_context("forkserver")
    fork.set_forkserver_preload(["weft.run.neural", "torch._dynamo", "torch.distributed.fsdp"])
    jobs = [
        fork.Process(
            target=train_rank,
            args=(config.sections, str(folder), dtype, rank, size, port, nudged),
        )
        for rank in range(size)
    ]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert not any(job.exitcode for job in jobs), folder


def difference(one: Path, other: Path) -> dict[str, Any]:
    """Return how far the last weights and losses of two runs are apart, relative to their norm."""
    first, second = (
        read_tensors(path / "checkpoints/last.safetensors")[1] for path in (one, other)
    )
    weights = sorted(name for name in first if name.startswith("model."))
    assert weights == sorted(name for name in second if name.startswith("model."))
    gaps = {n: float((first[n].double() - second[n].double()).square().sum()) for n in weights}
    norm = sum(float(first[n].double().square().sum()) for n in weights)
    gap, largest = sum(gaps.values()), max(gaps, key=gaps.__getitem__)
    record = json.loads((one / "model/record.json").read_text("utf-8"))
    loss = json.loads((other / "model/record.json").read_text("utf-8"))["losses"][1]
    return {
        "relative": (gap / norm) ** 0.5,
        "most": {"weight": largest.removeprefix("model."), "share": gaps[largest] / (gap or 1)},
        "loss": abs(loss / record["losses"][1] - 1),
        "learned": record["losses"],
        "updates": record["updates"],
    }


def equal(record: Record, args: Any) -> None:
    """Compare the weights of 1, 2 and 4 processes, and of ones whose first weights are nudged.

    The latter show how far training itself takes weights apart that differ by rounding alone.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = write_data(folder)
        for family in args.families.split(";") if args.families else FAMILIES:
            changes = {"train.optimiser": args.optimiser, "train.learning_rate": args.rate}
            config = configure(family, files, changes)
            done, epochs = 0, 2
            while done < args.updates:
                epochs = -(-epochs * args.updates // done) if done else epochs
                config = config.with_values({"train.epochs": epochs}, "bench")
                train_in(1, config, folder / "one", args.dtype)
                trained = json.loads((folder / "one/model/record.json").read_text("utf-8"))
                done = trained["updates"]
            sizes = [int(size) for size in args.processes.split(",") if size for _ in "12"]
            ways = [("DDP", "FSDP2")[i % 2] for i in range(len(sizes))]
            nudges = [(1, f"nudged {i}") for i in range(1, args.nudges + 1)]
            for size, way in [*nudges, *zip(sizes, ways, strict=True)]:
                seed = int(way.split()[1]) if way.startswith("nudged") else 0
                given = config.with_values({"train.shard": way == "FSDP2"}, "bench")
                began = time.perf_counter()
                train_in(size, given, folder / "many", args.dtype, seed)
                record.line(
                    "weights of N processes", family=family, recipe=FAMILIES[family][0],
                    processes=size, way=way, optimiser=args.optimiser, dtype=args.dtype,
                    **difference(folder / "one", folder / "many"),
                    seconds=round(time.perf_counter() - began, 1),
                )  # fmt: skip


def command(config: Path, folder: Path, processes: int, *more: str) -> list[str]:
    words = ["train", str(config), "-o", str(folder), "--quiet", "--device", "cpu", *more]
    words += ["--processes", str(processes)] if processes > 1 else []
    return [sys.executable, "-m", "weft", *words]


def ranks_of(launcher: int) -> list[int]:
    """The processes that a launcher has started."""
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(launcher)], capture_output=True, text=True, check=False
    )
    return [int(word) for word in listed.stdout.split()]


def kills(record: Record, args: Any) -> None:
    """Kill a random rank at random moments, resume, and compare the files with a whole run's."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        draw = random.Random(1)
        changes = {"train.epochs": 12, "train.save_every": 3, "train.ema_decay": 0.9}
        config = configure("classify", write_data(folder), changes)
        config = config.with_values({"embedder.dropout": 0.5}, "bench")
        (folder / "config.toml").write_text(dumps(config.sections), "utf-8")
        for shard in (False, True):
            whole, cut = folder / f"whole-{shard}", folder / f"cut-{shard}"
            rest = ("--set", f"train.shard={str(shard).lower()}")
            subprocess.run(command(folder / "config.toml", whole, 2, *rest), check=True)
            last, count, ends = cut / "checkpoints/last.safetensors", 0, []
            while count < args.kills:
                again = ["--resume"] if last.exists() else ["--overwrite"] if cut.exists() else []
                job = subprocess.Popen(
                    command(folder / "config.toml", cut, 2, *rest, *again),
                    stderr=subprocess.DEVNULL,
                )
                before = last.stat().st_mtime_ns if last.exists() else 0
                while job.poll() is None and (
                    not last.exists() or last.stat().st_mtime_ns == before
                ):
                    time.sleep(0.02)
                time.sleep(draw.uniform(0, 1))
                ranks = ranks_of(job.pid)
                if job.poll() is not None or not ranks:
                    break  # it has finished
                os.kill(draw.choice(ranks), signal.SIGKILL)
                began = time.perf_counter()
                job.wait()
                ends.append(time.perf_counter() - began)
                count += 1
            subprocess.run(command(folder / "config.toml", cut, 2, *rest, "--resume"), check=True)
            names = ("model/weights.safetensors", "model/labels.json", "model/tokenizer.json")
            same = all((whole / n).read_bytes() == (cut / n).read_bytes() for n in names)
            record.line(
                "2 processes, a random rank killed and resumed", kills=count, same_bytes=same,
                way="FSDP2" if shard else "DDP", seconds_until_all_ended=spread(ends),
            )  # fmt: skip


def main() -> None:
    parser = options(__doc__, repeats=1)
    parser.add_argument("question", choices=["equal", "kills"])
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--processes", default="2,4")
    parser.add_argument("--nudges", type=int, default=1, help="runs of the control")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--families", default="", help="separated by semicolons")
    parser.add_argument("--optimiser", default="adamw")
    parser.add_argument("--rate", type=float, default=0.001)
    parser.add_argument("--dtype", default="float32", choices=["float32", "float64"])
    args = parser.parse_args()
    os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"
    globals()[args.question](Record(args.record), args)


if __name__ == "__main__":
    main()
