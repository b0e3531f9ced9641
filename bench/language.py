"""How well do language models foretell text? One JSON line a training, then one a mean.

    python bench/language.py --data DATA --recipes ngram,kneser-ney,nnlm,lstm-lm,gpt

The ladder of the lectures on one text and one vocabulary, 30,000 words of `lm/wiki_en`: measured on
its test part, and on that of WikiText-2, which is another corpus, written in pieces of words that
ours are put together from. `--share` takes the first part of the training text. `--variants FILE`
tries other settings. DATA is laid out as lm/<data set>/….
"""

import re
from pathlib import Path

import trials
from record import Record
from trials import Job, Parts

import weft
from weft.predict.evaluate import evaluate
from weft.run.data import Data, example_source
from weft.text.example import Example

WORDS = {
    "tokenizer": {"kind": "word", "vocab_size": 30_000, "min_count": 2},
    "task.lines": True,
}
FIGURES = ("perplexity", "token_perplexity", "bits_per_character", "perplexity_known", "unknown")
JOINED = re.compile(r" @([-,.])@ ")  # WikiText's mark of what was one word: 1 @,@ 000
SPACED = re.compile(r" (?=[,.;:!?)\]%])|(?<=[(\[]) ")  # space that its tokenizer put in


def wikipedia(root: Path, share: float) -> Parts:
    """Paragraphs of `wiki_en`; of the training part the first `share`."""
    folder = root / "lm/wiki_en"
    train = texts(folder / "train.txt.xz")
    return {
        "train": train[: max(int(share * len(train)), 1)],
        "dev": texts(folder / "valid.txt.gz"),
        "test": texts(folder / "test.txt.gz"),
    }


def texts(path: Path) -> list[Example]:
    return list(example_source(Data(), str(path), mode="texts")())


def wikitext(root: Path) -> list[Example]:
    """The test part of WikiText-2 as running text; its unknown words are a word nobody knows."""
    out = []
    for example in texts(root / "lm/wikitext2_eval/test.txt.gz"):
        text = JOINED.sub(r"\1", example.text.strip()).replace("<unk>", "\ufffd\ufffd")
        text = SPACED.sub("", text).replace(" 's", "'s").replace(" n't", "n't")
        out.append(Example(text, None, example.file, example.line))
    return out


def trial(job: Job) -> Job:
    """Train once and measure."""
    return trials.attempt(job, ("recipe", "variant", "seed"), trained)


def trained(job: Job, folder: Path) -> Job:
    root = Path(job["root"])
    parts = wikipedia(root, job["share"])
    config = trials.configured({**job, "changes": {**WORDS, **job["changes"]}})
    out = weft.train(
        config, folder / "run", splits=trials.splits(parts), quiet=True, device=job["device"]
    )
    found = dict(out.figures)
    found["wikitext"] = evaluate(out.predictor, wikitext(root)).compute(resamples=0)
    figures = {
        f"{'test_wikitext' if part == 'wikitext' else part}_{name}": round(figure[name].value, 4)
        for part, figure in found.items()
        for name in FIGURES
        if name in figure
    }
    made = {"parameters": out.record["parameters"], "seconds": out.record["seconds"]}
    return {**figures, **made}


def main() -> None:
    parser = trials.options(__doc__, "ngram,kneser-ney,nnlm,rnn-lm,lstm-lm,gpt")
    parser.add_argument("--share", type=float, default=1.0, help="of the training text")
    asked = trials.asked(parser)
    record = Record(asked.record)
    jobs = [{"share": asked.share, **job} for job in trials.seeded(asked, trials.plans(asked))]
    rows = trials.ran(record, "language", trial, jobs, asked.workers)
    for row in trials.means(rows, ("recipe", "variant")):
        record.line("language", **row)


if __name__ == "__main__":
    main()
