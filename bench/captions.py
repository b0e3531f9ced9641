"""Are scenes captioned exactly, and does attention lie on the object that a word describes?

    python bench/captions.py --record captions

Scenes of `weft demo --scenes`: 8,000 to train, 300 for dev, 500 for test. `attention` is the share
of words for a colour or shape at which the patch with the most attention has pixels of the object,
over all scenes with as many words as their caption; `chance` that of a patch drawn evenly. Words
for a size, `attention_size`, do not count: after "a large red circle above a", the next object is
always small, so that nothing has to be looked at.
`--changes` (JSON) tries other settings, and `--part dev` chooses among them.
"""

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from record import Record, options

import weft
from weft.explain.generation import trace_generation
from weft.text.example import Example
from weft.text.images import Patches
from weft.text.synthetic.scenes import SPLITS, Scene, generate_scenes, write_scenes


def measure_attention(model: weft.Predictor, scenes: list[Scene], size: int) -> dict[str, Any]:
    """The share of describing words whose attention is on their object."""
    hits: dict[str, list[bool]] = {"size": [], "colour": [], "shape": []}
    chance: list[float] = []
    patches = Patches(scenes[0].image.shape, size)
    for scene in scenes:
        trace = trace_generation(model, Example("", vectors=scene.image))
        words = scene.caption.split()
        if len(trace.tokens) != len(words) + 1 or trace.attention is None:
            continue  # EOS is a token, too
        attended = trace.attention.mean((0, 1)).argmax(1)
        for i, number in enumerate(scene.word_objects):
            if number < 0 or words[i] == "a":
                continue
            one = scene.objects[number]
            covered = patches.vectors(one.pixels.astype(float)[:, :, None].repeat(3, 2)).any(1)
            kind = "size" if words[i] == one.size else "colour" if words[i] == one.colour else ""
            hits[kind or "shape"].append(bool(covered[attended[i]]))
            chance.append(float(covered.mean()))
    every = hits["colour"] + hits["shape"]
    return {
        "attention": round(float(np.mean(every)), 4), "words": len(every),
        **{f"attention_{kind}": round(float(np.mean(some)), 4) for kind, some in hits.items()},
        "chance": round(float(np.mean(chance)), 4),
    }  # fmt: skip


def main() -> None:
    parser = options(__doc__, 1)
    parser.add_argument("--changes", default="{}", help="settings of the recipe, as JSON")
    parser.add_argument("--part", default="test", choices=("dev", "test"))
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    record = Record(given.record)
    test = list(generate_scenes(SPLITS[given.part], list(SPLITS).index(given.part)))
    seen = {one.caption for one in generate_scenes(SPLITS["train"], 0)}
    new = [one.caption not in seen for one in test]
    for seed in range(1, given.repeats + 1):
        with tempfile.TemporaryDirectory() as folder:
            write_scenes(Path(folder))
            files = {f"data.{part}": str(Path(folder) / f"{part}.jsonl") for part in SPLITS}
            changes = {**files, "train.seed": seed, **json.loads(given.changes)}
            config = weft.recipe("caption").with_values(changes, "bench")
            began = time.perf_counter()
            run = weft.train(config, Path(folder) / "run", quiet=True, device=given.device)
            seconds = time.perf_counter() - began
            answers = [one.value for one in run.predictor([one.image for one in test])]
        right = [a == one.caption for a, one in zip(answers, test, strict=True)]
        record.line(
            "captions", recipe="caption", seed=seed, changes=given.changes, part=given.part,
            exact=round(float(np.mean(right)), 4), n=len(test),
            exact_new=round(float(np.mean([r for r, n in zip(right, new, strict=True) if n])), 4),
            n_new=sum(new), **measure_attention(run.predictor, test, config["embedder"]["patch"]),
            seconds=round(seconds, 1),
        )  # fmt: skip


if __name__ == "__main__":
    main()
