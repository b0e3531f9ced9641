"""Write a suite of tasks for `weft suite` from the benchmark data.

python bench/suite_folder.py --data DATA -o suite            # fourteen tasks
python bench/suite_folder.py --data DATA -o six --tasks sst5,sick-e,wnut17,conll2000,ewt-parse,squad
weft suite suite --pretrained minilm --seeds 3
"""

import argparse
import csv
import gzip
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from weft.config import to_toml

Rows = Iterable[Sequence[str]]
Writer = Callable[[Path, Path, int], dict[str, object]]  # data, folder, limit -> keys of the task
SST_LABEL = re.compile(r"\((\d) ")
SST_WORD = re.compile(r"\(\d ([^()]+)\)")


def write_table(path: Path, header: Sequence[str], rows: Rows, limit: int = 0) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(islice(rows, limit or None))


def read_table(path: Path, delimiter: str = "\t") -> Iterator[list[str]]:
    quoting = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.reader(file, delimiter=delimiter, quoting=quoting)


def classify(folder: Path, parts: dict[str, Rows], limit: int) -> dict[str, object]:
    """Write (text, label) rows as one table per split."""
    for split, rows in parts.items():
        write_table(folder / f"{split}.csv", ("text", "label"), rows, limit * (split == "train"))
    return {split: f"{split}.csv" for split in parts}


def pairs(folder: Path, parts: dict[str, Rows], limit: int) -> dict[str, object]:
    """Write (first, second, label) rows as one table per split."""
    header = ("sentence1", "sentence2", "label")
    for split, rows in parts.items():
        write_table(folder / f"{split}.csv", header, rows, limit * (split == "train"))
    return {split: f"{split}.csv" for split in parts}


def trec(data: Path, folder: Path, limit: int) -> dict[str, object]:
    root = data / "classification/trec"
    parts = {
        split: ((row[2], row[0]) for row in read_table(root / f"{split}.tsv"))
        for split in ("train", "test")
    }
    return classify(folder, parts, limit)


def sst(binary: bool) -> Writer:
    def rows(path: Path) -> Iterator[tuple[str, str]]:
        for line in path.read_text("utf-8").splitlines():
            label = int(SST_LABEL.match(line)[1])  # type: ignore[index]
            if binary and label == 2:
                continue
            name = ("negative" if label < 2 else "positive") if binary else str(label)
            yield " ".join(SST_WORD.findall(line)), f"class {name}"

    def write(data: Path, folder: Path, limit: int) -> dict[str, object]:
        root = data / "classification/sst"
        parts = {split: rows(root / f"{split}.txt") for split in ("train", "dev", "test")}
        return classify(folder, parts, limit)

    return write


def cola(data: Path, folder: Path, limit: int) -> dict[str, object]:
    root = data / "classification/cola"
    names = {"0": "unacceptable", "1": "acceptable"}
    files = {"train": "in_domain_train", "test": "in_domain_dev"}
    parts = {
        split: ((row[3], names[row[1]]) for row in read_table(root / f"{name}.tsv"))
        for split, name in files.items()
    }
    return {**classify(folder, parts, limit), "metrics": ["matthews"]}


def banking77(data: Path, folder: Path, limit: int) -> dict[str, object]:
    root = data / "classification/banking77"
    parts = {
        split: islice(read_table(root / f"{split}.csv", ","), 1, None)
        for split in ("train", "test")
    }
    return classify(folder, parts, limit)


def subj(data: Path, folder: Path, limit: int) -> dict[str, object]:
    """Every tenth sentence is the test set; there is no official split."""
    rows = [(row[1], row[0]) for row in read_table(data / "classification/subj/all.tsv")]
    names = {"0": "subjective", "1": "objective"}
    rows = [(text, names[label]) for text, label in rows]
    parts = {"train": [r for i, r in enumerate(rows) if i % 10], "test": rows[::10]}
    return classify(folder, parts, limit)


def stsb(data: Path, folder: Path, limit: int) -> dict[str, object]:
    root = data / "pairs/stsb"
    parts = {
        split: read_table(root / f"stsb-en-{split}.csv", ",") for split in ("train", "dev", "test")
    }
    task = {"task.kind": "pair-score"}
    return {**pairs(folder, parts, limit), "metrics": ["pearson", "spearman"], "set": task}


def sick(column: int) -> Writer:
    def write(data: Path, folder: Path, limit: int) -> dict[str, object]:
        files = {"train": "train", "dev": "trial", "test": "test"}
        parts = {
            split: (
                (row[1], row[2], row[column])
                for row in islice(read_table(data / f"pairs/sick/{name}.tsv"), 1, None)
            )
            for split, name in files.items()
        }
        return pairs(folder, parts, limit)

    return write


def rte(data: Path, folder: Path, limit: int) -> dict[str, object]:
    """Train on the development parts of RTE-1, 2 and 3; test on RTE-3."""
    root = data / "pairs/rte"

    def rows(*names: str) -> Iterator[tuple[str, str, str]]:
        for name in names:
            for row in islice(read_table(root / f"{name}.tsv"), 1, None):
                yield row[3], row[4], row[0]

    parts = {"train": rows("rte1_dev", "rte2_dev", "rte3_dev"), "test": rows("rte3_test")}
    return pairs(folder, parts, limit)


def copy_blocks(source: Path, target: Path, limit: int, first: bool = True) -> None:
    """Copy the sentences of a column file; of `limit`, the first or all but them."""
    opened = gzip.open if source.suffix == ".gz" else open
    with opened(source, "rt", encoding="utf-8") as file:
        blocks = [block for block in file.read().split("\n\n") if block.strip()]
    blocks = (blocks[:limit] if first else blocks[limit:]) if limit else blocks
    target.write_text("\n\n".join(blocks) + "\n\n", "utf-8")


def wnut17(data: Path, folder: Path, limit: int) -> dict[str, object]:
    for split in ("train", "dev", "test"):
        source = data / f"sequence_labelling/wnut17/{split}.conll"
        copy_blocks(source, folder / f"{split}.conll", limit * (split == "train"))
    return {split: f"{split}.conll" for split in ("train", "dev", "test")}


def conll2000(data: Path, folder: Path, limit: int) -> dict[str, object]:
    """Chunks; the last tenth of the training part is dev."""
    root, kept = data / "sequence_labelling/conll2000", 8042
    copy_blocks(root / "train.txt.gz", folder / "train.conll", min(limit or kept, kept))
    copy_blocks(root / "train.txt.gz", folder / "dev.conll", kept, first=False)
    copy_blocks(root / "test.txt.gz", folder / "test.conll", 0)
    return {split: f"{split}.conll" for split in ("train", "dev", "test")}


def ewt(kind: str) -> Writer:
    def write(data: Path, folder: Path, limit: int) -> dict[str, object]:
        for split in ("train", "dev", "test"):
            source = data / f"parsing/ud_english_ewt/en_ewt-ud-{split}.conllu.gz"
            copy_blocks(source, folder / f"{split}.conllu", limit * (split == "train"))
        files = {split: f"{split}.conllu" for split in ("train", "dev", "test")}
        return {**files, "set": {"task.kind": kind}}

    return write


def squad(data: Path, folder: Path, limit: int) -> dict[str, object]:
    for split, name in (("train", "train"), ("dev", "valid"), ("test", "test")):
        source = data / f"qa/squad_dev_resplit/{name}.json.gz"
        document = json.loads(gzip.decompress(source.read_bytes()))
        if limit and split == "train":
            _keep_questions(document, limit)
        (folder / f"{split}.json").write_text(json.dumps(document), "utf-8")
    files = {split: f"{split}.json" for split in ("train", "dev", "test")}
    return {**files, "metrics": ["f1"]}


def _keep_questions(document: dict, limit: int) -> None:
    """Keep the first questions of a SQuAD document."""
    for article in document["data"]:
        for paragraph in article["paragraphs"]:
            paragraph["qas"] = paragraph["qas"][: max(0, limit)]
            limit -= len(paragraph["qas"])
        article["paragraphs"] = [part for part in article["paragraphs"] if part["qas"]]
    document["data"] = [article for article in document["data"] if article["paragraphs"]]


TASKS: dict[str, Writer] = {
    "trec": trec, "sst2": sst(True), "sst5": sst(False), "cola": cola, "subj": subj,
    "banking77": banking77, "stsb": stsb, "sick-e": sick(4), "rte": rte, "wnut17": wnut17,
    "conll2000": conll2000, "ewt-upos": ewt("tag"), "ewt-parse": ewt("parse"), "squad": squad,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of the benchmark data")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--tasks", default=",".join(TASKS), help="comma-separated names")
    parser.add_argument("--limit", type=int, default=0, help="training rows per task; 0: all")
    arguments = parser.parse_args()
    tables = []
    for name in arguments.tasks.split(","):
        folder = arguments.output / name
        folder.mkdir(parents=True, exist_ok=True)
        keys = TASKS[name](arguments.data, folder, arguments.limit)
        files = {split: f"{name}/{keys.pop(split)}" for split in ("train", "dev", "test")
                 if split in keys}  # fmt: skip
        lines = [f"{key} = {to_toml(value)}" for key, value in {"name": name, **files}.items()]
        if "metrics" in keys:
            lines.append(f"metrics = {to_toml(keys['metrics'])}")
        if "set" in keys:
            inner = ", ".join(f'"{key}" = {to_toml(v)}' for key, v in keys["set"].items())
            lines.append(f"set = {{ {inner} }}")
        tables.append("\n".join(["[[task]]", *lines]))
    (arguments.output / "suite.toml").write_text("\n\n".join(tables) + "\n", "utf-8")


if __name__ == "__main__":
    main()
