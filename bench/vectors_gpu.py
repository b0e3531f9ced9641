"""Word vectors on a GPU and on two processor threads, in turn: speed, then quality.

    python bench/vectors_gpu.py --corpus FILE --lists FOLDER --repeats 3 --seeds 3

FILE holds a tokenised sentence a line. Speed is of one epoch, copies to the GPU and back counted,
compilation not; quality is of `--epochs`, with a line a list as in bench/vectors.py, whose lines
for the processor are to be compared with these.
"""

from pathlib import Path

from record import Record, options, ratios, spread
from vectors import figures

from weft.vectors.benchmarks import read
from weft.vectors.corpus import corpus
from weft.vectors.word2vec import train_vectors


def main() -> None:
    parser = options(__doc__, 3)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--lists", default="")
    parser.add_argument("--methods", default="skipgram,cbow,fasttext")
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=0.025)
    parser.add_argument("--device", default="cuda")
    asked = parser.parse_args()
    record = Record(asked.record)
    text = corpus([asked.corpus], tokenizer="whitespace", lowercase=False)
    lists = [read(path) for path in sorted(Path(asked.lists).rglob("*.txt"))] if asked.lists else []
    for method in asked.methods.split(","):
        seconds: dict[str, list[float]] = {"cpu": [], asked.device: []}
        for _ in range(asked.repeats):
            for device, found in seconds.items():
                made = train_vectors(text, method, width=asked.dim, threads=2, device=device)  # type: ignore[arg-type]
                found.append(made.record["train_seconds"])
        for device, found in seconds.items():
            record.line(
                "gpu speed", method=method, device=device, words=text.total,
                words_per_second=spread([text.total / s for s in found]),
                faster=ratios(seconds["cpu"], found),
            )  # fmt: skip
        values = [
            figures(
                train_vectors(
                    text, method, width=asked.dim, epochs=asked.epochs, seed=seed,
                    learning_rate=asked.rate,
                    device=asked.device,
                ),
                lists,
            )
            for seed in range(1, asked.seeds + 1 if lists else 1)
        ]  # fmt: skip
        for name in values[0] if values else ():
            record.line(
                "quality", method=method, system="weft, GPU", list=name, epochs=asked.epochs,
                rate=asked.rate, value=spread([one[name] for one in values], digits=4),
            )  # fmt: skip


if __name__ == "__main__":
    main()
