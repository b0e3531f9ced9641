"""GloVe beside skip-gram on one corpus: time and memory of counting, and the quality of both.

    python bench/glove.py --folder CORPUS --data LISTS [--file all.txt] [--glove-epochs 15]

CORPUS holds the prepared text (words between spaces, a paragraph a line), LISTS the word pairs and
analogies (shared/data/embeddings). Counting runs in a process of its own; its peak memory is all
that process ever held, corpus, libraries and compiler included.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

from record import Record, options

SIMILARITY = ("en-ws-353-all", "en-men-tr-3k", "en-simlex-999", "en-rw-stanford")


def counted(path: Path, window: int, threads: int, memory: int) -> None:
    """What the other process does: count, and print what it took."""
    from weft.vectors.cooccurrence import cooccurrences
    from weft.vectors.corpus import corpus

    text = corpus([path], tokenizer="whitespace")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    pairs = cooccurrences(text, window, threads=threads, memory=memory)
    found = {
        "words": len(text.ids),
        "vocabulary": len(text.words),
        "pairs": len(pairs),
        "seconds": round(time.perf_counter() - started, 1),
        "corpus_megabytes": round(before / 1024),
        "peak_megabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }
    print(json.dumps(found))


def quality(vectors, lists: Path) -> dict[str, float]:
    """Spearman of each list and the share of analogies solved, in per cent."""
    from weft.vectors.benchmarks import read
    from weft.vectors.evaluate import evaluate

    out = {}
    for name in SIMILARITY:
        found = evaluate(vectors, read(lists / "word_similarity" / f"{name}.txt"))
        out[name.removeprefix("en-")] = round(100 * found.spearman.value, 1)
    found = evaluate(vectors, read(lists / "analogy" / "questions-words.txt"))
    out["analogies"] = round(100 * found.total.accuracy.value, 1)
    for kind in found.kinds:
        out[kind.name] = round(100 * kind.accuracy.value, 1)
    return out


def learnt(arguments: argparse.Namespace, path: Path, record: Record) -> None:
    from weft.vectors.corpus import corpus
    from weft.vectors.glove import glove
    from weft.vectors.word2vec import train_vectors

    text = corpus([path], tokenizer="whitespace")
    threads, lists = arguments.threads, Path(arguments.data)
    for seed in range(1, arguments.repeats + 1):
        for window in map(int, arguments.windows.split(",")):
            for most in map(float, arguments.most.split(",")):
                epochs = arguments.glove_epochs
                settings = {"window": window, "epochs": epochs, "most": most, "seed": seed}
                made = glove(text, threads=threads, **settings)
                seconds = made.record["train_seconds"]
                record.line("glove", **settings, seconds=seconds, **quality(made, lists))
        for window in map(int, arguments.windows.split(",")) if arguments.epochs else ():
            settings = {"window": window, "epochs": arguments.epochs, "seed": seed}
            made = train_vectors(text, "skipgram", threads=threads, **settings)
            seconds = made.record["train_seconds"]
            record.line("skip-gram", **settings, seconds=seconds, **quality(made, lists))


def main() -> None:
    parser = options(__doc__, repeats=1)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--file", default="all.txt")
    parser.add_argument("--data", default="")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory", type=int, default=2**30)
    parser.add_argument("--windows", default="10")
    parser.add_argument("--most", default="100")
    parser.add_argument("--epochs", type=int, default=5, help="of skip-gram; 0 leaves it out")
    parser.add_argument("--glove-epochs", type=int, default=15)
    parser.add_argument("--count-only", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    path = Path(arguments.folder) / arguments.file
    if arguments.count_only:
        counted(path, int(arguments.windows), arguments.threads, arguments.memory)
        return
    record = Record(arguments.record)
    for window in arguments.windows.split(","):
        command = [sys.executable, __file__, "--count-only", "--folder", arguments.folder]
        command += ["--file", arguments.file, "--windows", window]
        command += ["--threads", str(arguments.threads), "--memory", str(arguments.memory)]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        record.line("count", window=int(window), memory=arguments.memory, **json.loads(said))
    if arguments.data:
        learnt(arguments, path, record)


if __name__ == "__main__":
    main()
