"""One training of word vectors by one system, in a process of its own; one JSON line of seconds.

Run by bench/vectors.py, with the Python that has gensim and fastText for these two.
"""

import json
import os
import resource
import sys
import time
from typing import Any

Job = dict[str, Any]


def gensim(job: Job) -> tuple[float, float]:
    """Seconds before training and of training; the vectors go to a text file."""
    from gensim.models import FastText, Word2Vec

    began = time.perf_counter()
    common = {
        "vector_size": job["width"], "window": job["window"], "negative": job["negative"],
        "min_count": job["minimum"], "workers": job["threads"], "seed": job["seed"],
        "sample": 1e-3, "alpha": job["rate"], "sg": int(job["method"] != "cbow"),
    }  # fmt: skip
    model = (FastText if job["method"] == "fasttext" else Word2Vec)(**common)
    model.build_vocab(corpus_file=job["corpus"])
    ready = time.perf_counter()
    model.train(
        corpus_file=job["corpus"],
        total_examples=model.corpus_count,
        total_words=model.corpus_total_words,
        epochs=job["epochs"],
    )
    done = time.perf_counter()
    if job["method"] == "fasttext":
        from gensim.models.fasttext import save_facebook_model

        save_facebook_model(model, job["output"] + ".bin")
    else:
        model.wv.save_word2vec_format(job["output"] + ".bin", binary=True)
    return ready - began, done - ready


def fasttext(job: Job) -> tuple[float, float]:
    """The same; reading and training are one call there, so the first is timed alone before."""
    import fasttext as library

    subwords = job["method"] == "fasttext"
    common = {
        "model": "cbow" if job["method"] == "cbow" else "skipgram",
        "dim": job["width"], "ws": job["window"], "neg": job["negative"],
        "minCount": job["minimum"], "lr": job["rate"], "t": 1e-3,
        # Below ten threads it leaves most of its table unset.
        "thread": max(10, job["threads"]), "verbose": 0,
        "minn": 3 if subwords else 0, "maxn": 6 if subwords else 0,
        "bucket": 2_000_000 if subwords else 0,
    }  # fmt: skip
    began = time.perf_counter()
    library.train_unsupervised(job["corpus"], epoch=0, **common)
    ready = time.perf_counter()
    model = library.train_unsupervised(job["corpus"], epoch=job["epochs"], **common)
    done = time.perf_counter()
    model.save_model(job["output"] + ".bin")
    return ready - began, (done - ready) - (ready - began)


def weft(job: Job) -> tuple[float, float]:
    """The same, here."""
    from weft.vectors.corpus import corpus
    from weft.vectors.word2vec import train_vectors

    began = time.perf_counter()
    words = corpus(
        [job["corpus"]], min_count=job["minimum"], tokenizer="whitespace", lowercase=False
    )
    vectors = train_vectors(
        words, job["method"], width=job["width"], window=job["window"], negative=job["negative"],
        epochs=job["epochs"], threads=job["threads"], seed=job["seed"], learning_rate=job["rate"],
        sample=1e-3, deterministic=job.get("deterministic", False),
    )  # fmt: skip
    seconds = vectors.record["train_seconds"]
    before = time.perf_counter() - began - seconds
    vectors.save(job["output"] + (".bin" if job["method"] == "fasttext" else ".safetensors"))
    return before, seconds


def main() -> None:
    job = json.loads(sys.argv[1])
    if hasattr(os, "sched_setaffinity"):
        mine = job.get("cores") or sorted(os.sched_getaffinity(0))[: job["threads"]]
        os.sched_setaffinity(0, mine)
    before, seconds = {"gensim": gensim, "fasttext": fasttext, "weft": weft}[job["system"]](job)
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"before": before, "train": seconds, "megabytes": megabytes}))


if __name__ == "__main__":
    main()
