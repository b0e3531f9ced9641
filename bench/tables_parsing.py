"""How the figures of parsers and of networks over trees become tables."""

import statistics
from collections.abc import Iterable

from tables import Figures, Row, Section, Table, mark, verdict
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
    cells = (_spread(values[m]) for m in metrics)
    return (f"{recipe}{other}", *cells, told or "–", str(len(runs)), f"{seconds:.0f}")


def _spread(values: list[float]) -> str:
    if not values:
        return "–"
    deviation = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{deviation}"


def scorer(line: Figures) -> Row:
    return (
        line["task"], line["metric"], f"{100 * line['weft']:.4f}", f"{100 * line['theirs']:.4f}",
        f"{line['peer']} {mark(line['apart'] < CLOSE)}", f"{line['sentences']:,}",
    )  # fmt: skip


SECTIONS = (
    Section(
        "How good are parsers and networks over trees?",
        "Percent on test, mean ± standard deviation over seeds; the words of the file are given, "
        "tags are not. Nothing is pre-trained, unless vectors are named, trained on the text of "
        "`lm/` by `weft vectors train`: frozen beside the rows that are learnt (`+vectors`), or "
        "where those begin (`+tuned`). `root` has five classes, `root_binary` two, without "
        "neutral; `nodes` are all phrases.",
        (Grid(("parsing trial",), parsers),),
    ),
    Section(
        "Are trees scored as the official scripts score them?",
        "The same answers, counted by Weft and by a peer.",
        (
            Table(
                "scorers",
                ("task", "figure", "Weft %", "peer %", "the same", "sentences"),
                scorer,
            ),
        ),
    ),
)
