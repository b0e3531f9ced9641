"""Is the start light? Fresh processes, timed from outside, and none of them may import torch.

    python bench/start.py --repeats 7

Bytecode of Weft and of the libraries it starts with is compiled first, as an installation does.
Whether torch was imported is read from `python -X importtime`.
"""

import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from record import Record, interleaved, options, spread

BARS = {"import weft": 0.3, "weft --help": 0.6}  # seconds; the first beyond bare Python
LIBRARIES = ("weft", "typer", "rich", "click", "numpy", "tokenizers", "sklearn", "scipy", "joblib")
COMPILE = f"""
import compileall, importlib.util
for name in {LIBRARIES!r}:
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.origin:
        compileall.compile_dir(spec.origin.rsplit("/", 1)[0], quiet=2, workers=2)
"""


class Bench:
    """A scratch folder with bytecode, a tiny tfidf model and texts for it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self._run([sys.executable, "-c", COMPILE])
        rows = [("a good film", "yes"), ("a bad film", "no"), ("so good", "yes"), ("so bad", "no")]
        table = "".join(f"{label}\t{text} {i}\n" for i in range(10) for text, label in rows)
        (folder / "train.tsv").write_text("label\ttext\n" + table, "utf-8")
        (folder / "texts.txt").write_text("a good film\nso bad\n", "utf-8")
        model = str(folder / "run")
        train = ["train", "--recipe", "tfidf", "--train", str(folder / "train.tsv"), "-o", model]
        self._run([sys.executable, "-m", "weft", *train, "--quiet"])
        weft = ["-m", "weft"]
        self.commands = {
            "bare python": ["-c", "pass"],
            "import weft": ["-c", "import weft"],
            "weft --help": [*weft, "--help"],
            "weft list": [*weft, "list"],
            "weft predict (tfidf)": [*weft, "predict", model, str(folder / "texts.txt")],
        }

    def seconds(self, name: str) -> float:
        """One fresh process, from start to exit."""
        started = time.perf_counter()
        self._run([sys.executable, *self.commands[name]])
        return time.perf_counter() - started

    def imports(self, name: str) -> set[str]:
        """The top-level packages that a process imports."""
        done = self._run([sys.executable, "-X", "importtime", *self.commands[name]])
        lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
        return {line.rsplit("|", 1)[1].strip().split(".")[0] for line in lines}

    def _run(self, command: list[str]) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            command, env=self.environment, cwd=self.folder, capture_output=True, text=True
        )
        if done.returncode:
            sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
        return done


def main() -> None:
    arguments = options(__doc__, repeats=7).parse_args()
    record = Record(arguments.record)
    with tempfile.TemporaryDirectory(prefix="weft-start-") as folder:
        bench = Bench(Path(folder))
        ways = {name: partial(bench.seconds, name) for name in bench.commands}
        found = interleaved(ways, arguments.repeats)
        for name, values in found.items():
            beyond = [a - b for a, b in zip(values, found["bare python"], strict=True)]
            imported = bench.imports(name)
            assert "torch" not in imported, f"{name} imports torch"
            record.line(
                "start",
                what=name,
                seconds=spread(values),
                beyond_bare_python=spread(beyond),
                bar=BARS.get(name),
                imports_torch="torch" in imported,
                heavy=sorted(imported & {"numpy", "scipy", "sklearn", "tokenizers", "matplotlib"}),
            )


if __name__ == "__main__":
    main()
