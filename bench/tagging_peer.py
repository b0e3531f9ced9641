"""spaCy's tagger, trained and run in a process of its own for bench/tagging_speed.py.

Run with the Python that has spaCy. It trains as `spacy init config` and `spacy train` do with their
own settings for a fast tagger: hashed features of words, four convolutions of width 96. After
that it reads one job a line and answers one JSON line each.
"""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Job = dict[str, Any]


def sentences(path: str) -> Iterator[Job]:
    """What bench/tagging_speed.py wrote: words, which have a space after them, tags."""
    with open(path, encoding="utf-8") as file:
        yield from map(json.loads, file)


def train(job: Job) -> Job:
    """Train until dev stops improving, as the library's own settings say."""
    import spacy
    from spacy.cli.init_config import init_config
    from spacy.cli.train import train as fit
    from spacy.tokens import Doc, DocBin

    folder, vocabulary = Path(job["folder"]), spacy.blank("en").vocab
    for part in ("train", "dev"):
        kept = DocBin()
        for one in sentences(job[part]):
            kept.add(Doc(vocabulary, one["words"], one["spaces"], tags=one["tags"]))
        kept.to_disk(folder / f"{part}.spacy")
    config = init_config(lang="en", pipeline=["tagger"], optimize="efficiency", silent=True)
    config.to_disk(folder / "config.cfg")
    began = time.perf_counter()
    paths = {f"paths.{part}": str(folder / f"{part}.spacy") for part in ("train", "dev")}
    fit(folder / "config.cfg", folder / "run", overrides={**paths, "training.seed": job["seed"]})
    return {"train_seconds": time.perf_counter() - began, "spacy": spacy.__version__}


class Tagger:
    """A trained pipeline that answers jobs."""

    def __init__(self, folder: str):
        import spacy

        self.folder = Path(folder) / "run" / "model-best"
        self.pipeline = spacy.load(self.folder)

    def raw(self, job: Job) -> Job:
        """Seconds from raw texts to the tags of their words, with `processes` at work."""
        texts = json.loads(Path(job["texts"]).read_text("utf-8"))
        began, worked = time.perf_counter(), time.process_time()
        words = 0
        for document in self.pipeline.pipe(texts, n_process=job["processes"]):
            words += len([word.tag_ for word in document])
        own = time.process_time() - worked
        return {"seconds": time.perf_counter() - began, "processor": own, "words": words}

    def gold(self, job: Job) -> Job:
        """The share of right tags where the words are given."""
        from spacy.tokens import Doc

        right = count = 0
        given = list(sentences(job["test"]))
        vocabulary = self.pipeline.vocab
        documents = (Doc(vocabulary, one["words"], one["spaces"]) for one in given)
        for one, document in zip(given, self.pipeline.pipe(documents), strict=True):
            right += sum(a == b.tag_ for a, b in zip(one["tags"], document, strict=True))
            count += len(one["tags"])
        return {"accuracy": right / count, "words": count}

    def aligned(self, job: Job) -> Job:
        """What is found in raw texts: (start, end, tag) of every word."""
        texts = json.loads(Path(job["texts"]).read_text("utf-8"))
        found = [
            [(word.idx, word.idx + len(word), word.tag_) for word in document if word.text.strip()]
            for document in self.pipeline.pipe(texts)
        ]
        return {"found": found}

    def size(self, job: Job) -> Job:
        """Bytes of the model folder, and of it the network's weights."""
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        weights = sum(p.stat().st_size for p in files if p.name == "model")
        return {"bytes": sum(path.stat().st_size for path in files), "weights_bytes": weights}


def main() -> None:
    first = json.loads(sys.argv[1])
    out = sys.stdout
    sys.stdout = sys.stderr  # the library prints a table while it trains
    if first["do"] == "train":
        print(json.dumps(train(first)), file=out, flush=True)
        return
    tagger = Tagger(first["folder"])
    for line in sys.stdin:
        job = json.loads(line)
        print(json.dumps(getattr(tagger, job["do"])(job)), file=out, flush=True)


if __name__ == "__main__":
    main()
