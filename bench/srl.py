"""How good are semantic roles? One JSON line a training, then one a mean over its seeds.

    python bench/srl.py --data DATA --seeds 3
    python bench/srl.py --data DATA --recipes srl-bert --pretrained MINILM --seeds 3

On PropBank over the English Web Treebank (srl/ewt_propbank). `f1` is that of CoNLL-2005, with gold
predicates; `end_to_end_f1` with the predicates that the model finds. `--scorer srl-eval.pl` has the
official script count the same test output. The first line is the most frequent sense of each word.
"""

import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import trials
from record import Record
from trials import Job, Parts

import weft
from weft.config import with_pretrained
from weft.text.annotation.frames import Frames
from weft.text.annotation.senses import SenseInventory
from weft.text.example import Example
from weft.text.formats.semantics.roles import props_lines
from weft.text.read import read

NAMES = ("recipe", "variant", "seed")
METRICS = (
    *("f1", "precision", "recall", "end_to_end_f1"),
    *("predicate_f1", "sense_accuracy", "perfect_predicates"),
)


def load(root: str, limit: int = 0) -> Parts:
    """The parts of EWT PropBank, or the first sentences of each."""
    folder = Path(root) / "srl/ewt_propbank"
    parts = {
        part: list(read(folder / f"{part}.conll.gz", format="roles"))
        for part in ("train", "dev", "test")
    }
    return {part: found[: limit or None] for part, found in parts.items()}


def frames_of(example: Example) -> Frames:
    assert isinstance(example.label, Frames)
    return example.label


def most_frequent(parts: Parts) -> Job:
    """Accuracy on test of the sense that a word has most often in train."""

    def pairs(part: str) -> list[tuple[str, str]]:
        return [
            (example.words[one.word], one.sense)
            for example in parts[part]
            for one in frames_of(example).predicates
        ]

    seen, inventory = pairs("train"), SenseInventory.learn(pairs("train"))
    often = Counter((word.lower(), sense) for word, sense in seen)
    ever = Counter(sense for _, sense in seen)
    right = 0
    for word, sense in pairs("test"):
        known = [inventory.senses[i] for i in inventory.candidates(inventory.group_of(word))]
        best = max(
            known,
            key=lambda one: (often[word.lower(), one], ever[one]),
            default=inventory.default_sense(word),
        )
        right += best == sense
    return {"sense_accuracy": round(100 * right / max(len(pairs("test")), 1), 2)}


def trial(job: Job) -> Job:
    """Train once and measure."""
    return trials.attempt(job, NAMES, trained)


def trained(job: Job, folder: Path) -> Job:
    parts = load(job["root"], job["limit"])
    config = trials.configured(job)
    if config["recipe"].get("pretrained"):
        config = with_pretrained(config, job["pretrained"])
    out = weft.train(
        config, folder / "run", splits=trials.splits(parts), quiet=True, device=job["device"]
    )
    found = {
        f"{part}_{name}": round(100 * figures[name].value, 2)
        for part, figures in out.figures.items()
        for name in METRICS
    }
    if job["scorer"]:
        found["script_f1"] = official(out.predictor, parts["test"], job["scorer"], folder)
    found |= trials.epochs(folder / "run")
    return {**found, "seconds": round(out.record["seconds"], 1)}


def official(predictor: Any, examples: list[Example], script: str, folder: Path) -> float:
    """F1 of the same output by srl-eval.pl."""
    task, space = predictor.task, predictor.space
    answers = task.predict_targets(predictor.engine.predict(examples).scores, space)
    gold, ours = folder / "gold.props", folder / "ours.props"
    with open(gold, "w", encoding="utf-8") as right, open(ours, "w", encoding="utf-8") as said:
        for example, answer in zip(examples, answers, strict=True):
            size = len(example.words)
            right.writelines(line + "\n" for line in props_lines(frames_of(example), size))
            # The script compares the names of predicates too, and they are given.
            named = with_senses(answer.given, frames_of(example))
            said.writelines(line + "\n" for line in props_lines(named, size))
    run = subprocess.run(
        ["perl", script, "-noW", gold, ours], check=True, capture_output=True, text=True
    )
    found = re.search(r"Overall.*?([\d.]+)\s*$", run.stdout, re.MULTILINE)
    assert found, run.stdout
    return float(found[1])


def with_senses(predicted: Frames, gold: Frames) -> Frames:
    """The predicted roles under the gold names of their predicates."""
    senses = {one.word: one.sense for one in gold.predicates}
    return Frames(
        tuple(
            type(one)(one.word, senses.get(one.word, one.sense), one.roles)
            for one in predicted.predicates
        )
    )


def main() -> None:
    parser = trials.options(__doc__, "srl-bilstm-crf,srl-spans")
    parser.add_argument("--pretrained", default="", help="folder of a checkpoint, for srl-bert")
    parser.add_argument("--scorer", default="", help="srl-eval.pl, to count the same output")
    parser.add_argument("--limit", type=int, default=0, help="sentences of each part")
    asked = trials.asked(parser)
    record = Record(asked.record)
    record.line("srl most frequent sense", **most_frequent(load(asked.data, asked.limit)))
    own = {name: getattr(asked, name) for name in ("pretrained", "scorer", "limit")}
    jobs = [{**own, **job} for job in trials.seeded(asked, trials.plans(asked))]
    rows = trials.ran(record, "srl", trial, jobs, asked.workers)
    for row in trials.means(rows, ("recipe", "variant")):
        record.line("srl", **row)


if __name__ == "__main__":
    main()
