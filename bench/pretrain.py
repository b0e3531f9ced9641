"""What does pre-training on raw text cost, and what comes of it? One JSON line a training.

    python bench/pretrain.py --data DATA --recipes bert-pretrain,elmo-pretrain --minutes 9 \\
        --keep FOLDER

`lm/wiki_en` and `lm/english_novels` of DATA are learned from, the dev and test parts of `wiki_en`
measured. `--minutes` counts everything, reading the texts and making a vocabulary too. FOLDER then
holds a run each, for `bench/finetune.py --pretrained`. `--variants FILE` tries other settings.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import trials
from record import Record
from trials import Job

import weft
from weft.run import Splits
from weft.run.data import Data, Source, example_source
from weft.text.example import Example

FIGURES = ("perplexity", "accuracy", "next_accuracy", "token_perplexity", "bits_per_character")


def trial(job: Job) -> Job:
    """Train once and measure."""
    return trials.attempt(job, ("recipe", "variant", "seed"), trained)


def trained(job: Job, folder: Path) -> Job:
    own = {"train.minutes": job["minutes"]}
    config = trials.configured({**job, "changes": {**own, **job["changes"]}})
    documents = config["task"]["kind"] == "masked"
    begun = time.perf_counter()
    out = weft.train(
        config, folder / "run", quiet=True, device=job["device"],
        splits=parts(Path(job["root"]) / "lm", documents, job["share"]),
    )  # fmt: skip
    figures = {
        f"{part}_{name}": round(figure[name].value, 4)
        for part, figure in out.figures.items()
        for name in FIGURES
        if name in figure
    }
    made = {"parameters": out.record["parameters"], "seconds": round(out.record["seconds"], 1)}
    made |= {"all_seconds": round(time.perf_counter() - begun, 1), "notes": out.record["notes"]}
    return {**figures, **made, **trials.epochs(folder / "run")}


def parts(root: Path, documents: bool, share: float) -> Splits:
    """Both corpora as documents, or paragraph by paragraph."""
    manner = "documents" if documents else "texts"

    def texts(*names: str) -> Source:
        found = [example_source(Data(), str(root / name), mode=manner) for name in names]

        def through() -> Iterator[Example]:
            for i, one in enumerate(e for some in found for e in some()):
                if share == 1 or i % 1000 < 1000 * share:
                    yield one

        return through

    train = texts("wiki_en/train.txt.xz", "english_novels/novels.txt.xz")
    return Splits(train, texts("wiki_en/valid.txt.gz"), texts("wiki_en/test.txt.gz"))


def main() -> None:
    parser = trials.options(__doc__, "bert-pretrain")
    parser.add_argument("--minutes", type=float, default=0.0, help="for everything; 0: no limit")
    parser.add_argument("--share", type=float, default=1.0, help="of all texts, for dry runs")
    asked = trials.asked(parser)
    record = Record(asked.record)
    own = {"minutes": asked.minutes, "share": asked.share}
    jobs = [{**own, **job} for job in trials.seeded(asked, trials.plans(asked))]
    trials.ran(record, "pre-training", trial, jobs, asked.workers)


if __name__ == "__main__":
    main()
