"""Does the default choose the right number of threads, also beside another busy process?

    python bench/threads.py --repeats 5

Each recipe is trained through the command line for the same updates: by default, with one thread,
with all, and with all that spin while they wait, as OpenMP does where nobody says otherwise. They
take turns, beside a process that computes without end and alone. Seconds are those of training,
without the start of Python and without reading. A speed above 1 means faster than one thread. The
data is the built-in corpus and treebank, so nothing is needed.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from record import Record, interleaved, options, ratios, spread

import weft
from weft.text.write import write

BAR = 1.0  # the default beside a busy process: never slower than one thread
NOISE = 0.05  # of a ratio's median, below which repeats of one and the same command differ, too
EPOCHS = {"tagger-bilstm-crf": 3, "cnn": 3, "transformer": 1}
WAYS = {
    "default": ([], {}),
    "one": (["--set", "train.threads=1"], {}),
    "all": (["--set", "train.threads={all}"], {}),
    "all, spinning": (["--set", "train.threads={all}"], {"GOMP_SPINCOUNT": "300000"}),
}


class Bench:
    """A scratch folder with the data, in which one training at a time is run."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._weft("demo", "--treebank", str(folder / "treebank"))
        reviews = weft.corpus("reviews")
        write(reviews["train"], folder / "reviews.tsv")
        self.chosen: dict[str, list[list[int]]] = {}

    def train(self, recipe: str, epochs: int, way: str) -> float:
        """Return the seconds that a training took."""
        changes, environment = WAYS[way]
        changes = [one.format(all=len(os.sched_getaffinity(0))) for one in changes]
        tagger = recipe.startswith("tagger")
        data = self.folder / ("treebank/train.conll" if tagger else "reviews.tsv")
        output = self.folder / "run"
        shutil.rmtree(output, ignore_errors=True)
        self._weft(
            *("train", "--recipe", recipe, "--train", str(data)),
            *("-o", str(output), "--set", f"train.epochs={epochs}", "--quiet", *changes),
            *("--device", "cpu"),
            environment=environment,
        )
        record = json.loads((output / "model" / "record.json").read_text("utf-8"))
        self.chosen[way] = record["threads"]
        return record["training_seconds"]

    def _weft(self, *words: str, environment: dict[str, str] | None = None) -> None:
        given = {k: v for k, v in os.environ.items() if k not in ("OMP_NUM_THREADS",)}
        subprocess.run(
            [sys.executable, "-m", "weft", *words],
            env={**given, **(environment or {})},
            check=True,
            capture_output=True,
            text=True,
        )


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """Run processes that compute without end."""
    code = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"
    running = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def main() -> None:
    parser = options(__doc__, repeats=5)
    parser.add_argument("--recipes", default=",".join(EPOCHS))
    parser.add_argument("--epochs", type=int, default=0, help="instead of each recipe's own number")
    parser.add_argument("--busy", default="1,0", help="numbers of busy processes beside it")
    parser.add_argument("--ways", default=",".join(f"{i}" for i in range(len(WAYS))))
    arguments = parser.parse_args()
    record = Record(arguments.record)
    names = [list(WAYS)[int(i)] for i in arguments.ways.split(",")]
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(Path(scratch))
        for recipe in arguments.recipes.split(","):
            epochs = arguments.epochs or EPOCHS[recipe]
            for others in map(int, arguments.busy.split(",")):
                ways = {name: partial(bench.train, recipe, epochs, name) for name in names}
                load = os.getloadavg()[0]
                with busy(others):
                    seconds = interleaved(ways, arguments.repeats, warm=0)
                record.line(
                    "threads",
                    recipe=recipe,
                    busy=others,
                    load=round(load, 1),
                    threads=len(os.sched_getaffinity(0)),
                    bar=BAR if others else None,
                    noise=NOISE,
                    speed_to_one={
                        name: ratios(seconds["one"], some)
                        for name, some in seconds.items()
                        if name != "one"
                    },
                    chosen=bench.chosen.get("default"),
                    seconds={name: spread(some) for name, some in seconds.items()},
                )


if __name__ == "__main__":
    main()
