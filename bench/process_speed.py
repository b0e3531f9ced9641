"""How fast several processes train one model, and what torchrun costs.

    python bench/process_speed.py cpu        # 2 processes of one thread beside one of one thread
    python bench/process_speed.py torchrun   # one process under torchrun beside a plain run

The rows of a batch are shared out, so the work is the same in all ways.
"""

import json
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from record import Record, interleaved, options, ratios, spread

from weft.config import Config, dumps, from_sections, recipe
from weft.text.synthetic.corpora import generate_reviews, python_docs

# BERT-small of Turc et al. (2019): 4 layers of 512.
BERT = {"kind": "bert", "hidden": 512, "layers": 4, "heads": 8, "max_positions": 128}
SENTENCES = 3  # reviews that make one text: about 40 tokens
GPT = {"kind": "gpt", "hidden": 512, "layers": 8, "heads": 8, "max_positions": 256}
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1"]


def write_reviews(path: Path, rows: int) -> None:
    """Write texts to classify."""
    reviews = generate_reviews(size=6000)["train"]
    with path.open("w", encoding="utf-8") as file:
        for i in range(rows):
            some = [reviews[(SENTENCES * i + k) % len(reviews)] for k in range(SENTENCES)]
            file.write(" ".join(one.text for one in some) + f"\t{some[0].label}\n")


def classifier(name: str, file: Path, batch: int) -> Config:
    """Return a classifier to train for one epoch with one thread."""
    sections = dict(recipe({"BiLSTM": "bilstm", "BERT-small": "bert"}[name]).sections)
    if name == "BERT-small":
        sections |= {"embedder": BERT, "tokenizer": {"kind": "word", "min_count": 1}}
    values = {"train.threads": 1, "train.batch_size": batch, "train.patience": 0}
    return for_one_epoch(sections, file).with_values(values, "bench")


def for_one_epoch(sections: dict[str, Any], file: Path) -> Config:
    values = {"data.train": str(file), "data.dev_fraction": 0.0, "train.epochs": 1}
    return from_sections(sections, "bench").with_values(values, "bench")


def train(config: Path, folder: Path, device: str, start: list[str], *more: str) -> float:
    """Train in new processes; return the seconds of an update."""
    words = ["-m", "weft", "train", str(config), "-o", str(folder), "--overwrite", "--quiet"]
    command = [sys.executable, *start, *words, "--device", device, *more]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    record = json.loads((folder / "model/record.json").read_text("utf-8"))
    return float(record["training_seconds"] / record["updates"])


def cpu(record: Record, args: Any, folder: Path) -> None:
    """Time two processes beside one; a third way, one process with two threads, is for scale."""
    for name, rows, batch in (("BiLSTM", 6000, 50), ("BERT-small", 480, 32)):
        rows = round(rows * args.size)
        write_reviews(folder / "reviews.tsv", rows)
        config = folder / "config.toml"
        config.write_text(dumps(classifier(name, folder / "reviews.tsv", batch).sections), "utf-8")
        run = partial(train, config, folder / "run", "cpu", [])
        ways = {"1 process": run, "2 processes": partial(run, "--processes", "2")}
        found = interleaved(ways, args.repeats, warm=0)
        record.line(
            "seconds of an update of 1 process over those of 2, each with one thread",
            model=name, rows=rows, batch=batch, speedup=ratios(found["1 process"],
            found["2 processes"]), **{way: spread(found[way], 4) for way in ways},
        )  # fmt: skip


def torchrun(record: Record, args: Any, folder: Path) -> None:
    """Train a GPT plainly and under torchrun."""
    text = "\n\n".join(python_docs()) + "\n\n"
    (folder / "text.txt").write_text(text * max(1, round(40 * args.size)), "utf-8")
    sections = dict(recipe("gpt").sections)
    sections |= {"decoder": {**GPT, "dropout": 0.1}, "tokenizer": {"kind": "word"}}
    values = {"train.compile": False, "train.threads": 1, "train.precision": args.precision}
    values["train.epochs"] = 4
    config = for_one_epoch(sections, folder / "text.txt").with_values(values, "bench")
    (folder / "config.toml").write_text(dumps(config.sections), "utf-8")
    run = partial(train, folder / "config.toml", folder / "run", args.device)
    ways = {"plain": partial(run, []), "torchrun": partial(run, TORCHRUN)}
    found = interleaved(ways, args.repeats, warm=0)
    record.line(
        "throughput under torchrun with one process over that of a plain run", device=args.device,
        precision=args.precision, ratio=ratios(found["plain"], found["torchrun"]),
        **{way: spread(found[way], 5) for way in ways},
    )  # fmt: skip


def main() -> None:
    parser = options(__doc__, repeats=3)
    parser.add_argument("question", choices=["cpu", "torchrun"])
    parser.add_argument("--device", default="cuda", help="of torchrun")
    parser.add_argument("--precision", default="auto", help="of torchrun")
    parser.add_argument("--size", type=float, default=1.0, help="of the data, relative")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        globals()[args.question](Record(args.record), args, Path(name))


if __name__ == "__main__":
    main()
