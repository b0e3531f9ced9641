"""How the figures of parsers, of networks over trees and of tagging plain text become tables."""

import statistics
from collections.abc import Iterable

from tables import Figures, Row, Section, Table, averaged, mark, ranged, verdict
from tables_vectors import Grid, Sheet

# Percent on test that was promised; the first is the main one.
BARS = {
    "parser": {"las": 85.0, "uas": 88.0},
    "parser+vectors": {"las": 85.0, "uas": 88.0},
    "parser-tagger": {"las": 85.0, "uas": 88.0},
    "constituency": {"f1": 88.0},
    "constituency+vectors": {"f1": 88.0},
    "rntn": {"root": 45.0, "root_binary": 85.0, "nodes": 80.0},
    "tree-lstm": {"root": 48.0, "root_binary": 86.0, "nodes": 80.0},
    "tree-lstm+tuned": {"root": 48.0, "root_binary": 86.0, "nodes": 80.0},
}
KINDS = {
    "parse": ("Dependencies, UD English-EWT", ("las", "uas", "clas", "upos", "xpos", "feats")),
    "constituency": ("Constituents, EWT", ("f1", "precision", "recall", "complete", "tag")),
    "nodes": ("Sentiment over trees, SST", ("root", "root_binary", "nodes", "nodes_binary")),
}
CLOSE = 1e-6


def parsers(lines: Iterable[Figures]) -> list[Sheet]:
    """A table a task, with one row a recipe."""
    found: dict[tuple[str, str, str], dict[int, Figures]] = {}
    for line in lines:
        if "error" not in line:
            key = (line["task"], line["recipe"], line["variant"])
            found.setdefault(key, {})[line["seed"]] = line
    sheets = []
    for task, (title, metrics) in KINDS.items():
        rows = [
            _row(recipe, variant, list(runs.values()), metrics)
            for (kind, recipe, variant), runs in found.items()
            if kind == task
        ]
        if rows:
            sheets.append(Sheet(title, ("recipe", *metrics, "bars", "n", "seconds"), rows))
    return sheets


def _row(recipe: str, variant: str, runs: list[Figures], metrics: tuple[str, ...]) -> Row:
    values = {m: [run[f"test_{m}"] for run in runs if f"test_{m}" in run] for m in metrics}
    bars = BARS.get(recipe, {}) if variant == "recipe" else {}
    told = "; ".join(
        f"{name} {verdict(statistics.mean(values[name]), bar)}" for name, bar in bars.items()
    )
    other = "" if variant == "recipe" else f", {variant}"
    seconds = statistics.mean(run["seconds"] for run in runs)
    cells = (averaged(values[m]) for m in metrics)
    return (f"{recipe}{other}", *cells, told or "–", str(len(runs)), f"{seconds:.0f}")


def scorer(line: Figures) -> Row:
    return (
        line["task"], line["metric"], f"{100 * line['weft']:.4f}", f"{100 * line['theirs']:.4f}",
        f"{line['peer']} {mark(line['apart'] < CLOSE)}", f"{line['sentences']:,}",
    )  # fmt: skip


def accuracy(line: Figures) -> Row:
    return (
        line["system"], f"{100 * line['accuracy']:.2f}", f"{100 * line['raw_f1']:.2f}",
        f"{line['weights_bytes'] / 1e6:.1f}" if "weights_bytes" in line else "–",
        f"{line['bytes'] / 1e6:.1f}",
    )  # fmt: skip


def speed(line: Figures) -> Row:
    peers = [key for key in line if key.startswith("times_")]
    times = "; ".join(f"{key.removeprefix('times_')} {ranged(line[key], 2, '×')}" for key in peers)
    bar = f"≥ {line['bar']:g}× {line['against']} {mark(line['passed'])}" if peers else "–"
    rate = line["words_per_second"]
    return (line["system"], ranged(rate, 0), times or "–", bar, str(rate["n"]))


def work(line: Figures) -> Row:
    times = ranged(line["times_spacy"], 2, "×") if "times_spacy" in line else "–"
    return (line["system"], ranged(line["us_per_word"], 1), times)


def cut(line: Figures) -> Row:
    return (
        line["treebank"], f"{line['sentences']:,}", f"{100 * line['f1_regular']:.1f}",
        f"{100 * line['f1']:.1f}", verdict(100 * line["f1"], 100 * line["bar"])
        if "bar" in line else "–",
    )  # fmt: skip


def round_trip(line: Figures) -> Row:
    return (line["file"], f"{line['words']:,}", f"byte for byte {mark(line['identical'])}")


FAST = ("system", "words a second", "times as fast as", "bar", "n")
SECTIONS = (
    Section(
        "Quality of parsers and tree networks",
        "Percent on test, mean ± standard deviation over seeds; words are given, tags "
        "are not. Nothing is pre-trained unless vectors are named, trained on the text "
        "of `lm/` with `weft vectors train`: frozen beside learned vectors (`+vectors`), "
        "or as their start (`+tuned`). `root` has five classes, `root_binary` two, "
        "without neutral; `nodes` are all phrases.",
        (Grid(("parsing trial",), parsers),),
    ),
    Section(
        "Agreement with official scorers",
        "The same predictions, scored by Weft and by a peer.",
        (
            Table(
                "scorers",
                ("task", "figure", "Weft %", "peer %", "the same", "sentences"),
                scorer,
            ),
        ),
    ),
    Section(
        "Tagging speed on raw text",
        "From raw text to tags of UD English-EWT, tokenisation included, taking turns. "
        "spaCy's tagger (tok2vec, width 96, four layers) was trained on the same file. "
        "Accuracy is on the file's words; raw F1 counts a word when its boundaries and "
        "its tag are right.",
        (
            Table(
                "tagging, accuracy",
                ("system", "accuracy %", "raw F1 %", "weights MB", "model folder MB"),
                accuracy,
            ),
            Table("tagging speed, the test part", FAST, speed),
            Table("tagging speed, new paragraphs", FAST, speed),
            Table(
                "tagging, work on one thread",
                ("system", "CPU µs per word", "times as fast as spaCy"),
                work,
            ),
        ),
    ),
    Section(
        "Word segmentation",
        "F1 of words on test, with the regular expression alone and with what was "
        "learned from the training part.",
        (
            Table(
                "words of raw text",
                ("treebank", "sentences learned from", "regular expression", "learned", "bar"),
                cut,
            ),
        ),
    ),
    Section(
        "CoNLL-U round trip",
        "Every file, read and written back.",
        (Table("round trip of a file", ("file", "words", "the same"), round_trip),),
    ),
)
