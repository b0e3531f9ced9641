"""How the figures of tagging, of chains and of trees become tables."""

import statistics
from collections.abc import Iterable

from tables import Figures, Row, Section, Table, averaged, mark, ranged, verdict
from tables_vectors import Grid, Sheet

# Percent on test that was promised, by data and recipe.
BARS = {
    ("ewt", "tagger-bilstm"): 94.5,
    ("ewt+vectors", "tagger-bilstm"): 95.2,
    **{(f"conll2000{way}", "tagger-bilstm-crf"): 93.5
       for way in ("", "-bioes", "-bioes-pos", "+vectors", "-bioes-pos+vectors")},
}  # fmt: skip
ALONE, CHAIN = "tagger-bilstm", "tagger-bilstm-crf"
DATA = {
    "ewt": "UD English-EWT", "sequoia": "UD French-Sequoia", "imst": "UD Turkish-IMST",
    "conll2000": "CoNLL-2000", "wnut17": "WNUT-17", "wikigold": "WikiGold", "ddt": "Danish DDT",
}  # fmt: skip
WAYS = {"bioes": "BIOES marks", "pos": "parts of speech learnt too"}
KINDS = {
    "Parts of speech": ("ewt", "sequoia", "imst"),
    "Chunks": ("conll2000",),
    "Entities": ("ddt", "wikigold", "wnut17"),
}
FAST, CLOSE = "times_", 1e-5

Runs = dict[tuple[int, int | None], Figures]  # by seed and fold


def trials(lines: Iterable[Figures]) -> dict[tuple[str, str, str], Runs]:
    """The trainings of each set with each recipe and variant; what was repeated counts once."""
    found: dict[tuple[str, str, str], Runs] = {}
    for line in lines:
        if "error" not in line:
            runs = found.setdefault((line["data"], line["recipe"], line["variant"]), {})
            runs[line["seed"], line["fold"]] = line
    return found


def taggers(lines: list[Figures]) -> list[Sheet]:
    """A table a kind of tags, then the chain beside words by themselves."""
    found = trials(lines)
    columns = ("data", "recipe", "test", "bar", "dev", "n", "seconds")
    sheets = []
    for title, names in KINDS.items():
        spans = "f1" if title != "Parts of speech" else "upos"
        mine = {key: runs for key, runs in found.items() if _bare(key[0]) in names}
        rows = [
            _tagger(key, runs, spans)
            for key, runs in sorted(mine.items(), key=lambda item: _order(item[0], names))
        ]
        added = ("conlleval", "seqeval") if spans == "f1" else ()
        if rows:
            sheets.append(Sheet(title, (*columns, *added), rows))
    return [*sheets, *_chains(found)]


def _tagger(key: tuple[str, str, str], runs: Runs, metric: str) -> Row:
    data, recipe, variant = key
    test, dev = ([100 * r[f"{part}_{metric}"] for r in runs.values()] for part in ("test", "dev"))
    seconds = statistics.mean(r["seconds"] for r in runs.values())
    other = "" if variant == "recipe" else f", {variant}"
    bar = None if other else BARS.get((data, recipe))
    cells = (
        _named(data), f"{recipe}{other}", averaged(test), verdict(statistics.mean(test), bar),
        averaged(dev), str(len(runs)), f"{seconds:.0f}",
    )  # fmt: skip
    return (*cells, *_agreed(runs)) if metric == "f1" else cells


def _agreed(runs: Runs) -> Row:
    """Whether Weft's F1 is that of the two others in every training."""
    cells = []
    for other in ("conlleval_f1", "seqeval_f1"):
        given = [abs(r[other] - r["test_f1"]) < 1e-9 for r in runs.values() if other in r]
        cells.append(f"the same {mark(all(given))}" if len(given) == len(runs) else "–")
    return tuple(cells)


def _chains(found: dict[tuple[str, str, str], Runs]) -> list[Sheet]:
    rows: list[Row] = []
    for (data, recipe, variant), chained in found.items():
        alone = found.get((data, ALONE, variant), {})
        both = [run for run in chained if run in alone]
        if recipe != CHAIN or not both or "test_f1" not in chained[both[0]]:
            continue
        gains = [100 * (chained[run]["test_f1"] - alone[run]["test_f1"]) for run in both]
        mean, ahead = statistics.mean(gains), sum(gain > 0 for gain in gains)
        rows.append((
            _named(data), averaged(gains, sign="+"), verdict(mean, 0.0),
            f"{ahead} of {len(gains)}",
        ))  # fmt: skip
    columns = ("data", "points of F1 gained by the chain", "bar", "seeds or folds it gains in")
    return [Sheet("CRF against softmax", columns, sorted(rows))] if rows else []


def _bare(data: str) -> str:
    return data.partition("+")[0].split("-")[0]


def _order(key: tuple[str, str, str], names: tuple[str, ...]) -> tuple:
    data, recipe, variant = key
    return names.index(_bare(data)), recipe not in (ALONE, CHAIN), len(data), recipe, variant


def _named(data: str) -> str:
    """ewt+vectors -> UD English-EWT, vectors."""
    name, _, vectors = data.partition("+")
    bare, *ways = name.split("-")
    return ", ".join([DATA[bare], *(WAYS[way] for way in ways), *([vectors] if vectors else [])])


def chain(line: Figures) -> Row:
    peers = [key for key in line if key.startswith(FAST)]
    return (
        line["question"],
        f"{line['labels']} × {line['batch']} × {line['steps']}",
        "; ".join(f"{key.removeprefix(FAST)} {ranged(line[key], 2, '×')}" for key in peers),
        verdict(min(line[key]["median"] for key in peers), line.get("bar")),
        f"{line['difference']:.0e}" if "difference" in line else "–",
        f"≤ {CLOSE:g} {mark(line['difference'] <= CLOSE)}" if "difference" in line else "–",
        str(line["weft_ms"]["n"]),
    )


def forest(line: Figures) -> Row:
    return (
        line["encoder"],
        str(line["threads"]),
        ranged(line["times"], 1, "×"),
        verdict(line["times"]["median"], line["bar"]),
        f"{line['apart']:.0e}",
        f"≤ {CLOSE:g} {mark(line['apart'] <= CLOSE)}",
        str(line["times"]["n"]),
    )


CHAINS = ("question", "labels × rows × steps", "Weft is faster than", "bar", "apart", "bar", "n")
SECTIONS = (
    Section(
        "Quality of taggers",
        "Percent on test: accuracy of parts of speech, otherwise span F1; mean ± "
        "standard deviation over seeds, for WikiGold over ten folds of whole documents. "
        "Words are given by the file. Nothing is pre-trained unless vectors are named: "
        "those were trained on the text of `lm/` with `weft vectors train`. BIOES marks "
        "the same spans in another scheme; parts of speech are a second output column, "
        "not an input. The last two columns: conlleval's definition and seqeval give the "
        "same F1 in every run. Seconds are for one run on a shared GPU, beside 16 "
        "others.",
        (Grid(("tagging trial",), taggers),),
    ),
    Section(
        "Speed of the CRF",
        "A training step (loss and gradient) and decoding, next to pytorch-crf and "
        'textbook loops, taking turns. "Apart" is the largest difference of losses and '
        "gradients.",
        tuple(
            Table(f"{what}, {lengths}", CHAINS, chain)
            for what in ("training", "decoding")
            for lengths in ("all of one length", "of different lengths")
        ),
    ),
    Section(
        "Batching of trees",
        "A training step over SST's trees, level by level across a batch of 64, against "
        'the same cells node by node. "Apart" is the largest difference of the losses.',
        (
            Table(
                "trees",
                ("encoder", "threads", "times as fast", "bar", "apart", "bar", "n"),
                forest,
            ),
        ),
    ),
)
