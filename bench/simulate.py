"""What a day on 8 × H200 and on 1,000 CPU cores yields, derived from measured figures.

    python bench/simulate.py           # writes the tables of docs/scaling.md
    python bench/simulate.py --check   # fails if they are out of date

Speeds are those of bench/results. Bandwidths are of data sheets, of which a ring all-reduce is
given 80 %. Nothing here was run on 8 GPUs or 1,000 cores.
"""

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "scaling.md"

DAY = 86_400  # seconds
GPUS = 8
MEMORY = 141e9  # bytes of an H200
PEAK = 989e12  # dense bf16 operations a second of an H200
NVLINK, NETWORK = 450e9, 50e9  # bytes a second and direction, of a GPU: NVLink 4, 400 Gb/s
REACHED = 0.8  # of a bandwidth, by a ring all-reduce of large tensors
GRADIENT_BYTES = 4  # of a parameter: gradients are summed in fp32
STATE_BYTES = 4 + 4 + 2 * 4  # of a parameter: weight, gradient, two moments of Adam
SAVED_BYTES = 4 + 2 * 4  # of a parameter in a checkpoint: weight and moments
TOKENS_PER_PARAMETER = 20  # compute-optimal, Hoffmann et al. (2022)
ROWS, STEPS, VOCABULARY = 32, 1024, 50_257  # of a GPU's batch


@dataclass(frozen=True)
class GPTShape:
    """A decoder in the layout of GPT-2."""

    name: str
    hidden: int
    layers: int

    @property
    def parameters(self) -> int:
        return (
            12 * self.layers * self.hidden**2
            + 13 * self.layers * self.hidden
            + (VOCABULARY + STEPS + 2) * self.hidden
        )

    @property
    def operations(self) -> int:
        """Operations to train on a token, as Chowdhery et al. (2022) count them."""
        learned = self.parameters - STEPS * self.hidden
        return 6 * learned + 12 * self.layers * self.hidden * STEPS


SHAPES = (
    GPTShape("124 M", 768, 12),
    GPTShape("355 M", 1024, 24),
    GPTShape("774 M", 1280, 36),
    GPTShape("1.6 B", 1600, 48),
    GPTShape("6.7 B", 4096, 32),
    GPTShape("13 B", 5120, 40),
)


def measured(name: str, **wanted: str) -> dict:
    """Return the first figure of a file of results with these fields."""
    for line in (RESULTS / f"{name}.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        if all(row.get(key) == value for key, value in wanted.items()):
            return row
    raise SystemExit(f"{name}.jsonl: no figure with {wanted}")


def all_reduce_seconds(bytes_: float, gpus: int, bandwidth: float) -> float:
    """Return the time of a ring all-reduce."""
    return 2 * (gpus - 1) / gpus * bytes_ / (bandwidth * REACHED)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def gpt_training() -> str:
    """Pre-training of GPT on one machine of 8 GPUs, at the utilisation that was measured on one."""
    mfu = measured("gpu_gpt_train", question="gpt training, weft")["mfu"]
    rows = []
    for shape in SHAPES:
        rate = mfu * PEAK / shape.operations  # tokens a second of one GPU
        update = ROWS * STEPS / rate
        wait = all_reduce_seconds(GRADIENT_BYTES * shape.parameters, GPUS, NVLINK)
        slowed = update / (update + wait)
        daily = GPUS * rate * slowed * DAY
        state = STATE_BYTES * shape.parameters
        optimal = TOKENS_PER_PARAMETER * shape.parameters / daily
        rows.append([
            shape.name, f"{rate:,.0f}", f"{1000 * update:,.0f}",
            f"{GRADIENT_BYTES * shape.parameters / 1e9:.1f}", f"{1000 * wait:.1f}",
            f"{slowed:.1%}", f"{daily / 1e9:,.1f}", f"{optimal:,.2g}",
            f"{state / 1e9:,.0f}" + (" ✗" if state > MEMORY else ""),
            f"{state / GPUS / 1e9:,.0f}", f"{SAVED_BYTES * shape.parameters / 1e9:,.1f}",
        ])  # fmt: skip
    head = [
        "parameters", "tokens/s of a GPU", "update, ms", "gradients, GB", "all-reduce, ms",
        "efficiency", "10⁹ tokens a day", "days for 20 tokens a parameter", "state, GB, DDP",
        "state, GB, `train.shard`", "checkpoint, GB",
    ]  # fmt: skip
    return table(head, rows)


def smallest_batches() -> str:
    """Tokens of a GPU and update below which the all-reduce takes more than a tenth."""
    mfu = measured("gpu_gpt_train", question="gpt training, weft")["mfu"]
    rows = []
    for shape in SHAPES[:4]:
        rate = mfu * PEAK / shape.operations
        line = [shape.name]
        for gpus, bandwidth in ((GPUS, NVLINK), (64, NETWORK), (1024, NETWORK)):
            wait = all_reduce_seconds(GRADIENT_BYTES * shape.parameters, gpus, bandwidth)
            line.append(f"{9 * wait * rate:,.0f}")
        rows.append(line)
    return table(["parameters", "8 GPUs, NVLink", "64 GPUs, network", "1,024 GPUs, network"], rows)


def other_training() -> str:
    """BERT and LSTM on the same machine."""
    kinds = (
        ("BERT-base, 128 tokens", "gpu_bert_short", "bert training, 256 × 128, weft", 110e6, 32768),
        ("BERT-base, 512 tokens", "gpu_bert_long", "bert training, 64 × 512, weft", 110e6, 32768),
        ("LSTM 2 × 650", "gpu_lstm", "lstm 2 × 650, weft, bf16", 50e6, 700),
    )
    rows = []
    for name, file, question, parameters, tokens in kinds:
        rate = measured(file, question=question)["tokens_per_second"]["median"]
        update = tokens / rate
        wait = all_reduce_seconds(GRADIENT_BYTES * parameters, GPUS, NVLINK)
        slowed = update / (update + wait)
        rows.append([
            name, f"{rate:,.0f}", f"{1000 * update:,.1f}", f"{1000 * wait:.1f}", f"{slowed:.0%}",
            f"{GPUS * rate * slowed * DAY / 1e9:,.0f}",
        ])  # fmt: skip
    head = [
        "model", "tokens/s of a GPU", "update, ms", "all-reduce, ms", "efficiency",
        "10⁹ tokens a day",
    ]  # fmt: skip
    return table(head, rows)


def cores() -> str:
    """Bulk prediction and trials on 1,000 cores."""
    rows = []
    for recipe in ("cnn", "lstm", "bilstm", "transformer"):
        found = measured("predict", recipe=recipe)
        rate = found["sentences_per_second"]["bucketed"]["median"]
        rows.append([f"predict, `{recipe}`, sentences of reviews", f"{rate:,.0f} sentences/s",
                     f"{1000 * rate * DAY / 1e9:,.0f} · 10⁹ sentences"])  # fmt: skip
    found = measured("encoding_cpu", question="encoding: weft")
    rate = found["sentences_per_second"]["median"] / found["threads"]
    rows.append(["embed, MiniLM", f"{rate:,.0f} sentences/s",
                 f"{1000 * rate * DAY / 1e9:,.1f} · 10⁹ sentences"])  # fmt: skip
    trial = measured(
        "finetune", question="fine-tuning trial", data="banking77", variant="frozen", system="weft"
    )
    rows.append(["train on banking77, frozen MiniLM", f"{trial['seconds']:,.0f} s a trial",
                 f"{1000 * DAY / trial['seconds']:,.0f} trials"])  # fmt: skip
    return table(["work", "one core, measured", "1,000 cores, a day"], rows)


TABLES = {
    "gpt": gpt_training,
    "batches": smallest_batches,
    "others": other_training,
    "cores": cores,
}


def fill(text: str) -> str:
    """Return the page with its tables filled in."""
    for name, make in TABLES.items():
        between = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        text, count = between.subn(lambda m, make=make: f"{m[1]}\n{make()}\n\n{m[2]}", text)
        if count != 1:
            sys.exit(f"{PAGE.name}: no place for the table '{name}'")
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    before = PAGE.read_text("utf-8")
    after = fill(before)
    if after == before:
        return
    if check:
        sys.exit(f"{PAGE.name} is out of date. Run python bench/simulate.py.")
    PAGE.write_text(after, "utf-8")


if __name__ == "__main__":
    main()
