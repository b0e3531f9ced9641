"""Does the export of every recipe answer like its model, and how long does it take to write?

    python bench/export_recipes.py --only srl --record export-recipes

A tiny model of every recipe is trained and exported. 200 inputs (texts of 0 to 60 words, emoji,
unknown scripts; sentences, trees, pairs, matrices, records or masks where the recipe reads those;
recordings and images are 40) go through model and export in batches of 1, 2 and 33. Export seconds
are those of the graphs and files, without the comparison of both models.
"""

import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from record import Record, options

import weft
from weft.errors import UserError
from weft.export.parity import equal_answers, is_tie, score_difference
from weft.export.write import write_export
from weft.text.annotation.frames import Frames, Predicate
from weft.text.example import Example
from weft.text.formats.conllu_offsets import locate_spaced_words
from weft.text.synthetic.coreference import generate_coreference

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.fixtures.recipe_runs import recipe_cases, tiny_checkpoints, train_tiny

COUNT, BATCHES = 200, (1, 2, 33)
WORDS = [
    "the", "a", "film", "plot", "good", "bad", "was", "cat", "dog", "horse", "bird", "fish", "sees",
    "hears", "likes", "Bo", "Ann", "gave", "lamp", "lives", "in", "Rome", ".", ",", "feed", "fly",
    "bee", "ant", "bank", "river", "zork", "😀", "中文", "é", "naïve",
]  # fmt: skip
RARE = ["", " ", "bank", "😀", "😀 the 👍🏽", "עברית नमस्ते", "the bank of the river " * 40]


def texts(draw: random.Random, longest: int) -> list[str]:
    """Texts of any length."""
    made = [" ".join(draw.choices(WORDS, k=draw.randrange(longest))) for _ in range(2 * COUNT)]
    return [*RARE, *made]


def tree(draw: random.Random, size: int) -> str:
    """A binary tree with so many words."""
    if size == 1:
        return f"({draw.randrange(5)} {draw.choice(WORDS[:30])})"
    left = draw.randrange(1, size)
    return f"({draw.randrange(5)} {tree(draw, left)} {tree(draw, size - left)})"


def with_predicates(draw: random.Random, text: str) -> Example:
    """A sentence with any of its words as predicates."""
    words = tuple(text.split())
    chosen = sorted(draw.sample(range(len(words)), k=draw.randrange(len(words) + 1)))
    frames = Frames(tuple(Predicate(word, "", ()) for word in chosen))
    return Example(" ".join(words), frames, words=words, places=locate_spaced_words(words))


def inputs_of(name: str, predictor: weft.Predictor, example: Example) -> list[Any]:
    """Inputs of the kind that a model reads."""
    draw, kind = random.Random(7), predictor.engine.input_kind
    task = predictor.config["task"]["kind"]
    if kind == "vectors" and example.file:
        start = "a.npz:" if ".npz" in example.text else ""
        end = "" if start else example.text[example.text.index(".") :]
        return [Example(f"{start}{i}{end}", file=example.file) for i in range(40)]
    if kind == "vectors":
        eye = np.eye(3)
        return [Example("", vectors=eye[draw.choices(range(3), k=draw.randrange(1, 20))])
                for _ in range(COUNT)]  # fmt: skip
    if kind == "trees":
        return ["", *(tree(draw, draw.randrange(1, 30)) for _ in range(COUNT - 1))]
    if getattr(predictor.task, "record", False):
        slots = ("food", "name")
        return [f"{draw.choice(slots)}[{draw.choice(WORDS)}]" for _ in range(COUNT)]
    if task == "masked":
        return [f"{one} [MASK]" for one in texts(draw, 30)][:COUNT]
    if task == "coref":
        return [*texts(draw, 60)[: COUNT // 2], *generate_coreference(size=300)["train"]][:COUNT]
    indexer = getattr(predictor.engine, "indexer", None)
    some = texts(draw, 60)
    if indexer is not None and indexer.full_sentences:  # a tiny BERT reads few pieces of words
        most = 20 if indexer.subwords else 80
        some = [one for one in texts(draw, 4 if indexer.subwords else 12) if len(one) < most]
    some = some[:COUNT]
    if task == "srl":  # predicates that are given: a tiny model finds none
        return [*some[: COUNT // 4], *(with_predicates(draw, one) for one in some[COUNT // 4 :])]
    return list(zip(some, some[::-1], strict=True)) if predictor.pairs else some


def compare(model: weft.Predictor, export: weft.Predictor, inputs: list[Any]) -> dict[str, Any]:
    """Inputs with equal answers in every batch, ties, and the largest difference of a score."""
    if model.config["task"]["kind"] == "embed":
        gap = float(np.abs(model.embed(inputs) - export.embed(inputs)).max())
        return {"n": len(inputs), "equal": len(inputs), "ties": 0, "max_difference": gap}
    expected, wrong, tied, largest = model(inputs), set(), set(), 0.0
    for size in BATCHES:
        for at in range(0, len(inputs), size):
            for i, now in enumerate(export(inputs[at : at + size]), at):
                before = expected[i]
                largest = max(largest, score_difference(before, now))
                if not equal_answers(before, now):
                    (tied if is_tie(before, now) else wrong).add(i)
    equal = len(inputs) - len(wrong | tied)
    return {"n": len(inputs), "equal": equal, "ties": len(tied - wrong), "max_difference": largest}


def main() -> None:
    parser = options(__doc__, repeats=1)
    parser.add_argument(
        "--only", default="", help="recipes whose name contains one of these, by commas"
    )
    arguments = parser.parse_args()
    record, failed = Record(arguments.record), 0
    with tempfile.TemporaryDirectory() as place:
        checkpoints = tiny_checkpoints(Path(place))
        for number, (name, task) in enumerate(recipe_cases()):
            if not any(part in name for part in arguments.only.split(",")):
                continue
            folder = Path(place) / str(number)
            folder.mkdir()
            predictor, example = train_tiny(name, task, folder, checkpoints)
            model, target = folder / "run" / "model", folder / "export"
            if task == "embed":
                predictor.save(model)
            if task == "coref":  # links that so little training would not make
                predictor.engine.model.head.link_margin = -4.0
            target.mkdir()
            start = time.perf_counter()
            try:
                write_export(model, predictor, target, int8=False, place=target)
            except UserError as error:
                record.line("export of a recipe", recipe=name, task=task, refused=str(error))
                continue
            seconds = round(time.perf_counter() - start, 3)
            export = weft.load(target, replay=False)
            found = compare(predictor, export, inputs_of(name, predictor, example))
            failed += found["equal"] + found["ties"] < found["n"] or found["max_difference"] > 1e-4
            record.line("export of a recipe", recipe=name, task=task, **found, seconds=seconds)
    record.line("recipes whose export differs", recipes=failed)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
