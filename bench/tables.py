"""How the figures of one script become a table; here those of training and predicting."""

import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

Figures = dict[str, Any]
Row = tuple[str, ...]

# Test accuracy that was promised; for MR and Subj by either of the two.
BARS = {
    ("trec", "cnn"): 91.0,
    ("trec", "bilstm-attention"): 90.0,
    ("trec", "transformer"): 86.0,
    ("trec", "fasttext"): 90.0,
    ("trec", "tfidf"): 86.0,
    **{(data, recipe): bar for recipe in ("cnn", "fasttext") for data, bar in
       (("mr", 76.5), ("subj", 91.5))},
    ("sst2", "cnn"): 82.7,
    ("sst5", "cnn"): 44.5,
    ("sst2", "bilstm"): 83.0,
    ("sst5", "bilstm"): 45.0,
    ("imdb", "tfidf"): 88.5,
    ("imdb", "fasttext"): 88.0,
}  # fmt: skip


class Table(NamedTuple):
    """One question's figures; with `by`, a table for each value of that key."""

    question: str
    columns: Row
    row: Callable[[Figures], Row]
    about: str = ""
    by: str = ""
    sort: bool = False  # by the first cell; otherwise as they were measured


class Section(NamedTuple):
    """A title, what was measured, and the tables."""

    title: str
    about: str
    tables: tuple[Table, ...]


def ranged(found: Figures, digits: int = 2, sign: str = "") -> str:
    """Median with the smallest and largest measurement."""
    middle, low, high = (f"{found[key]:,.{digits}f}" for key in ("median", "low", "high"))
    return f"{middle}{sign} [{low}, {high}]"


def averaged(values: Sequence[float], digits: int = 2, sign: str = "") -> str:
    """Mean ± standard deviation over seeds or folds; a dash where there is none."""
    if not values:
        return "–"
    deviation = f" ± {statistics.stdev(values):,.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):{sign},.{digits}f}{deviation}"


def verdict(value: float, bar: float | None, above: bool = True) -> str:
    """The bar and whether the value keeps it; a dash where none was promised."""
    if bar is None:
        return "–"
    kept = value >= bar if above else value < bar
    return f"{'≥' if above else '<'} {bar:g} {mark(kept)}"


def mark(kept: bool) -> str:
    """A tick or a cross."""
    return "✓" if kept else "✗"


def overhead(line: Figures) -> Row:
    ready = line["speed_to_ready_made"]
    return (
        line["recipe"],
        str(line["threads"]),
        ranged(ready),
        verdict(ready["median"], line["bar"]),
        ranged(line["speed_to_padding"]),
        f"{1000 * line['seconds']['fit']['median'] / line['updates']:.1f}",
        str(ready["n"]),
    )


def thread_choice(line: Figures) -> Row:
    speed, default = line["speed_to_one"], line["speed_to_one"]["default"]
    spinning = speed.get("all, spinning")
    return (
        line["recipe"],
        "yes" if line["busy"] else "no",
        ranged(default, 2, "×"),
        verdict(default["median"], line["bar"]),
        ranged(speed["all"], 2, "×") if "all" in speed else "–",
        ranged(spinning, 2, "×") if spinning else "–",
        f"{line['seconds']['one']['median']:.1f}",
        str(default["n"]),
    )


def predict(line: Figures) -> Row:
    speed, padding = line["sentences_per_second"], line["padding"]
    return (
        line["recipe"],
        str(line["threads"]),
        ranged(line["speedup"], 2, "×"),
        verdict(line["speedup"]["median"], line["bar"]),
        f"{speed['bucketed']['median']:,.0f}",
        f"{speed['fixed']['median']:,.0f}",
        f"{padding['bucketed']:.0%} / {padding['fixed']:.0%}",
        f"{line['answers_that_differ']} of {line['sentences']:,} ({line['source']})",
        str(line["speedup"]["n"]),
    )


def start(line: Figures) -> Row:
    beyond = line["what"] == "import weft"
    value = line["beyond_bare_python" if beyond else "seconds"]
    return (
        f"`{line['what']}`" + (" beyond bare Python" if beyond else ""),
        ranged(value),
        verdict(value["median"], line["bar"], above=False),
        "yes" if line["imports_torch"] else "no",
        str(value["n"]),
    )


def memory(line: Figures) -> Row:
    return (
        f"{line['megabytes']:,}",
        f"{line['rows']:,}",
        f"{line['peak_mb']:,}",
        f"{line['python_and_torch_mb']:,} + {line['model_mb']:,}",
        f"{line['beyond_model_gb']:.2f} GB",
        verdict(line["beyond_model_gb"], line["bar"], above=False),
        f"{line['seconds'] / 60:.1f} ({line['mb_per_second']:.1f} MB/s)",
        f"{100 * line['test_accuracy']:.1f}",
    )


def quality(line: Figures) -> Row:
    test, deviation = line.get("test_accuracy"), line.get("test_accuracy_sd")
    shown = "–" if test is None else f"{test:.1f}" + (f" ± {deviation:.1f}" if deviation else "")
    bar = BARS.get((line["data"], line["recipe"]))
    name = line["recipe"] + ("" if line["variant"] == "recipe" else f" ({line['variant']})")
    return (
        line["data"],
        name,
        shown,
        "–" if test is None else verdict(test, bar),
        f"{line['dev_accuracy']:.1f}" if line.get("dev_accuracy") is not None else "–",
        str(line["n"]),
        f"{line['seconds']:,.0f}",
    )


def supervised(line: Figures) -> Row:
    def ratio(name: str, bar: float) -> str:
        found = line.get(f"{name}_ratio")
        return f"{ranged(found)} {verdict(found['median'], bar)}" if found else "–"

    return (
        line["data"],
        {"weft": "Weft", "fasttext-10": "C++, 10 threads"}.get(line["system"], "C++"),
        ranged(line["accuracy"]),
        f"{line['train_words_per_second']['median'] / 1e6:.1f}",
        ratio("train", 0.8),
        ranged(line["read_and_train_seconds"]),
        f"{line['predict_texts_per_second']['median']:,.0f}",
        ratio("predict", 0.5),
        f"{line['one_text_ms']['median']:.3f}",
        str(line["accuracy"]["n"]),
    )


SECTIONS = (
    Section(
        "Quality of each recipe",
        "Test accuracy in percent: mean ± standard deviation over seeds (over folds for "
        "MR and Subj). No pre-training; settings were chosen on dev. Seconds are for one "
        "run.",
        (
            Table(
                "quality",
                ("data", "recipe", "test accuracy", "bar", "dev", "n", "seconds"),
                quality,
                sort=True,
            ),
        ),
    ),
    Section(
        "Speed of the fastText classifier",
        "Words and word pairs on the same lowercased words, taking turns. Training speed "
        "excludes reading; the C++ program reads its file again in every epoch. Ratios "
        "are to C++, within each repeat.",
        (
            Table(
                "supervised",
                (
                    *("data", "system", "test accuracy", "training M words/s", "times C++"),
                    *("read and train, s", "texts/s predicted", "times C++", "one text, ms", "n"),
                ),
                supervised,
            ),
        ),
    ),
    Section(
        "Overhead of the training loop",
        "Speed of `fit` relative to a bare PyTorch loop with the same module, batches "
        "and optimiser, one epoch of the built-in reviews each. The first peer has all "
        "batches padded beforehand, the second pads as it goes. Both end with the same "
        "loss.",
        (
            Table(
                "overhead",
                (
                    *("recipe", "threads", "of ready-made batches", "bar"),
                    *("of padding as it goes", "ms an update", "n"),
                ),
                overhead,
            ),
        ),
    ),
    Section(
        "Choice of the thread count",
        "Training speed from the command line relative to one thread, same updates, "
        "taking turns; above 1 is faster. By default Weft compares one thread with all "
        "in runs of 600 batches or more, and uses the faster; the timing is included. "
        'Threads sleep while they wait, except under "all, spinning", which is OpenMP\'s '
        "default. Busy: beside a process that computes all the time.",
        (
            Table(
                "threads",
                (
                    *("recipe", "busy", "default", "bar", "all threads", "all, spinning"),
                    *("seconds of one", "n"),
                ),
                thread_choice,
            ),
        ),
    ),
    Section(
        "Gain from length bucketing",
        "Sentences per second of `Predictor`, which sorts by length, against batches of "
        "32 in arrival order, padded to the longest: same tokenizer, same model, plain "
        "torch.",
        (
            Table(
                "predict",
                (
                    *("recipe", "threads", "speed-up", "bar", "sentences/s", "peer's"),
                    *("padding / peer's", "answers that differ", "n"),
                ),
                predict,
            ),
        ),
    ),
    Section(
        "Start-up time",
        "Seconds of a fresh process from start to exit, bytecode compiled. Importing "
        "torch alone takes seconds.",
        (Table("start", ("what", "seconds", "bar", "imports torch", "n"), start),),
    ),
    Section(
        "Memory of a large file",
        "One epoch of a neural bag of words and hashed word pairs from the command line, "
        'on a generated file. "Beyond the model" is the peak of the process minus Python '
        "with torch imported, the weights and Adam's moments.",
        (
            Table(
                "memory",
                (
                    *("MB of file", "rows", "peak MB", "Python and torch + model MB"),
                    *("beyond the model", "bar", "minutes", "accuracy"),
                ),
                memory,
            ),
        ),
    ),
)
