"""How well are states tracked, responses written and responses ranked? One JSON line a part.

    python bench/dialogue.py --data DATA --parts states,ranking,responses --record dialogue

DATA has camrest676/dialogues.json.gz and dailydialog/. CamRest676 is split 3:1:1 in order.
`states`: recipe seq2seq-copy with data.dialogue=update; a turn counts if all its slots are right,
from states that the model predicted itself. `ranking`: MiniLM as it is; the cosine of the last
`--turns` turns with a response, its own and nine of other dialogues of DailyDialog's test part.
`responses`: seq2seq-attention on CamRest676's last three turns.
"""

import gzip
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from record import Record, options

import weft
from weft.metrics.generation.dialogue import ResponseRecall
from weft.text.formats.dialogue import read_dialogues

STATES: dict[str, Any] = {
    "data.dialogue": "update", "task.metrics": ["joint"], "task.coverage": 0.0,
    "decoder.coverage": False, "tokenizer.lowercase": True, "tokenizer.min_count": 1,
    "generate.no_repeat_ngram_size": 0, "train.epochs": 10,
}  # fmt: skip
RESPONSES: dict[str, Any] = {
    "data.dialogue": "response", "data.history": 3, "task.metrics": ["bleu", "distinct"],
    "tokenizer.lowercase": True, "train.epochs": 10,
}  # fmt: skip


def split_camrest(source: Path, folder: Path) -> dict[str, str]:
    """Write the dialogues 3:1:1, in order, and return the files as settings."""
    with gzip.open(source, "rt", encoding="utf-8") as file:
        rows = json.loads("".join(line for line in file if not line.startswith("#")))
    ends = (0, len(rows) * 3 // 5, len(rows) * 4 // 5, len(rows))
    files = {}
    for part, first, last in zip(("train", "dev", "test"), ends, ends[1:], strict=False):
        path = folder / f"{part}.json"
        path.write_text(json.dumps(rows[first:last]), "utf-8")
        files[f"data.{part}"] = str(path)
    return files


def train(data: Path, recipe: str, values: dict[str, Any], seed: int) -> dict[str, Any]:
    """Train on CamRest676 and return the metrics of dev and test."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = split_camrest(data / "camrest676" / "dialogues.json.gz", folder)
        config = weft.recipe(recipe).with_values({**files, **values, "train.seed": seed}, "bench")
        began = time.perf_counter()
        run = weft.train(config, folder / "run", quiet=True)
    dev, test = run.figures["dev"], run.figures["test"]
    main = next(iter(test))
    return {
        "recipe": recipe, "seed": seed, f"dev_{main}": round(dev[main].value, 4),
        **{key: round(one.value, 4) for key, one in test.items()},
        "low": round(test[main].low, 4), "high": round(test[main].high, 4), "n": test[main].n,
        "seconds": round(time.perf_counter() - began, 1),
    }  # fmt: skip


def rank(file: Path, model: str, turns: int, dialogues: int) -> dict[str, Any]:
    """Recall@1 of 10 on the responses of the first `dialogues` dialogues."""
    contexts, responses, groups = [], [], []
    for number, dialogue in enumerate(read_dialogues(file)):
        if number == dialogues:
            break
        texts = [turn.text for turn in dialogue.turns]
        for i in range(1, len(texts)):
            contexts.append(" ".join(texts[max(0, i - turns) : i]))
            responses.append(texts[i])
            groups.append(number)
    began = time.perf_counter()
    encoder = weft.load(model)
    sides = [encoder.embed(some) for some in (contexts, responses)]
    x, y = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in sides)
    metric = ResponseRecall()
    metric.add(x @ y.T, groups)
    found = metric.compute()["recall_at_1"]
    return {
        "model": model, "turns": turns, "dialogues": max(groups) + 1,
        "recall_at_1": round(found.value, 4), "low": round(found.low, 4),
        "high": round(found.high, 4), "n": found.n,
        "seconds": round(time.perf_counter() - began, 1),
    }  # fmt: skip


def main() -> None:
    parser = options(__doc__, 1)
    parser.add_argument("--data", required=True)
    parser.add_argument("--parts", default="states,ranking,responses")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--dialogues", type=int, default=200)
    parser.add_argument("--file", default="en_test.txt.gz", help="of dailydialog/")
    given = parser.parse_args()
    record, data = Record(given.record), Path(given.data)
    for part in given.parts.split(","):
        if part == "ranking":
            found = rank(data / "dailydialog" / given.file, "minilm", given.turns, given.dialogues)
            record.line("dialogue, ranking", file=given.file, **found)
            continue
        recipe, values = {
            "states": ("seq2seq-copy", STATES), "responses": ("seq2seq-attention", RESPONSES)
        }[part]  # fmt: skip
        for seed in range(1, given.repeats + 1):
            record.line(f"dialogue, {part}", **train(data, recipe, values, seed))


if __name__ == "__main__":
    main()
