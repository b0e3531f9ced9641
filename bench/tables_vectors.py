"""How the figures of word vectors become tables: speed, quality, GPU, scaling, GloVe, alignment."""

import statistics
from collections.abc import Callable
from typing import NamedTuple

from tables import Figures, Row, Section, Table, mark, ranged, verdict

# Times as fast as a peer, training alone and the whole command.
TRAINING = {
    ("skipgram", "gensim"): 3.0,
    ("skipgram", "fasttext"): 5.0,
    ("cbow", "gensim"): 2.0,
    ("fasttext", "fasttext"): 2.0,
    ("fasttext", "gensim"): 1.3,
}
WHOLE = {("skipgram", "gensim"): 2.5}
GPU = {"skipgram": 20.0}  # times two threads of a processor
THREADS, LONGER = 1.8, 11.0  # two threads against one; ten times the text
GIGABYTES = 2.0  # for counting GloVe's pairs
FOUND = 60.0  # percent of translations that come first
OURS, ON_GPU = "weft", "weft, GPU"
SYSTEMS = {OURS: "Weft", "gensim": "gensim", "fasttext": "fastText", ON_GPU: "Weft, GPU"}
PEERS = {"fasttext": ("fasttext", "gensim")}  # whom to keep up with; of other methods gensim
METHODS = {"skipgram": "Skip-gram", "cbow": "CBOW", "fasttext": "fastText, with sub-words"}
PROMISED = ("ws-353-all", "men-tr-3k", "simlex-999", "questions-words")
RARE = "rw-stanford"  # promised of sub-words
ASKED = ("ws-353-all", "men-tr-3k", "simlex-999", "rw-stanford", "analogies")


class Sheet(NamedTuple):
    """One finished table, and what it is about; title and text may be empty."""

    title: str
    columns: Row
    rows: list[Row]
    about: str = ""


class Grid(NamedTuple):
    """Tables that need several lines for a row, of all files together."""

    questions: tuple[str, ...]
    sheets: Callable[[list[Figures]], list[Sheet]]
    about: str = ""


def named(line: Figures) -> Figures:
    """The line with a question of its own: recipes have a "quality" too."""
    if line.get("question") == "quality" and "list" in line:
        return {**line, "question": "vectors quality"}
    return line


def faster(line: Figures, key: str, bars: dict[tuple[str, str], float]) -> tuple[str, str]:
    """A ratio with its spread, and its bar."""
    found = line.get(key)
    if found is None:
        return "–", "–"
    bar = bars.get((line["method"], line["system"]))
    return ranged(found, 2, "×"), verdict(found["median"], bar)


def speed(line: Figures) -> Row:
    rate = {k: v / 1e6 for k, v in line["words_per_second"].items()}
    return (
        METHODS[line["method"]],
        SYSTEMS[line["system"]],
        ranged(rate),
        *faster(line, "train_ratio", TRAINING),
        ranged(line["whole_seconds"], 1),
        *faster(line, "whole_ratio", WHOLE),
        str(line["words_per_second"]["n"]),
    )


def gpu_speed(line: Figures) -> Row:
    slow = line["device"] == "cpu"
    rate = {k: v / 1e6 for k, v in line["words_per_second"].items()}
    bar = None if slow else GPU.get(line["method"])
    return (
        METHODS[line["method"]],
        "two threads" if slow else "GPU",
        ranged(rate, 1),
        "–" if slow else ranged(line["faster"], 1, "×"),
        verdict(line["faster"]["median"], bar),
        str(line["faster"]["n"]),
    )


def qualities(lines: list[Figures]) -> list[Sheet]:
    """A table a method: a row a list, a column a system."""
    found: dict[tuple[str, int, float], dict[str, dict[str, Figures]]] = {}
    for line in lines:
        systems = found.setdefault((line["method"], line["epochs"], line["rate"]), {})
        name = line["list"].removeprefix("en-")
        systems.setdefault(line["system"], {})[name] = line["value"]
    return [_quality(*settings, systems) for settings, systems in found.items()]


def _quality(
    method: str, epochs: int, rate: float, systems: dict[str, dict[str, Figures]]
) -> Sheet:
    order = [name for name in SYSTEMS if name in systems]
    peer = next((name for name in PEERS.get(method, ("gensim",)) if name in systems), "")
    promised = (*PROMISED, RARE) if method == "fasttext" else PROMISED
    lists = dict.fromkeys(name for values in systems.values() for name in values)
    # A list of phrases has no word here: every system would have 0.
    covered = [n for n in lists if any(v[n]["high"] for v in systems.values() if n in v)]
    covered.sort(key=lambda name: name not in promised)
    pairs = ((OURS, peer), (ON_GPU, OURS if OURS in systems else peer))
    against = [(a, b) for a, b in pairs if a in systems and b]
    rows = []
    for name in covered:
        cells = [_percent(systems[system].get(name)) for system in order]
        kept = [
            _not_below(systems[a].get(name), systems[b].get(name), name in promised)
            for a, b in against
        ]
        seeds = max(values[name]["n"] for values in systems.values() if name in values)
        rows.append((name, *cells, *kept, str(seeds)))
    judged = (f"{SYSTEMS[a]} not below {SYSTEMS[b]}" for a, b in against)
    columns = ("list", *(SYSTEMS[system] for system in order), *judged, "n")
    return Sheet(f"{METHODS[method]}, {epochs} epochs, rate {rate:g}", columns, rows)


def _percent(found: Figures | None) -> str:
    if found is None:
        return "–"
    return ranged({key: 100 * found[key] for key in ("median", "low", "high")}, 1)


def _not_below(ours: Figures | None, theirs: Figures | None, promised: bool) -> str:
    """Whether our median is at least the lowest of their seeds; a mark where that was promised."""
    if ours is None or theirs is None:
        return "–"
    kept = ours["median"] >= theirs["low"]
    return mark(kept) if promised else "yes" if kept else "no"


def scalings(lines: list[Figures]) -> list[Sheet]:
    """A row a method."""
    found: dict[str, dict[str, Figures]] = {}
    for line in lines:
        found.setdefault(line["method"], {})[line["what"]] = line["value"]
    rows = []
    for method, values in found.items():
        threads, longer = values["two threads"], values["ten times the text"]
        rows.append(
            (
                METHODS[method],
                ranged(threads, 2, "×"),
                verdict(threads["median"], THREADS),
                ranged(longer, 1, "×"),
                f"≤ {LONGER:g} {mark(longer['median'] <= LONGER)}",
                f"{values['megabytes']['median']:,.0f}",
                f"{values['its megabytes']['median']:,.0f}",
                ranged(values["deterministic"], 2, "×"),
                str(threads["n"]),
            )
        )
    columns = (
        *("method", "speed of two threads", "bar", "time of ten times the text", "bar"),
        *("MB", "MB of ten times the text", "time, deterministic", "n"),
    )
    return [Sheet("", columns, rows)]


def task(line: Figures) -> Row:
    low, high = line["interval"]
    return (
        line["data"],
        line["variant"],
        f"{line['random']:.1f}",
        f"{line['with']:.1f}",
        f"{line['gain']:+.2f} [{low:+.2f}, {high:+.2f}]",
        str(line["n"]),
    )


def count(line: Figures) -> Row:
    gigabytes = line["peak_megabytes"] / 1024
    return (
        str(line["window"]),
        f"{line['words']:,}",
        f"{line['vocabulary']:,}",
        f"{line['pairs']:,}",
        f"{line['seconds']:,.0f}",
        f"{gigabytes:.2f}",
        verdict(gigabytes, GIGABYTES, above=False),
    )


def gloves(lines: list[Figures]) -> list[Sheet]:
    """A row for each setting of GloVe and for skip-gram, over its seeds."""
    found: dict[str, list[Figures]] = {}
    for line in lines:
        found.setdefault(line["setting"], []).append(line)
    peers = found.get("skip-gram")
    rows = []
    for setting, made in found.items():
        cells = [_over([line[name] for line in made]) for name in ASKED]
        seconds = statistics.median(line["train_seconds"] for line in made)
        used = f"{made[0]['window']}, {made[0]['epochs']}"
        used += f", {made[0]['x_max']:.3g}" if "x_max" in made[0] else ""
        gap = "–" if peers is None or made is peers else f"{_behind(made, peers):+.1f}"
        rows.append((setting, used, *cells, gap, f"{seconds:,.0f}", str(len(made))))
    columns = ("setting", "window, epochs, x_max", *ASKED, "WS-353 to skip-gram", "seconds", "n")
    return [Sheet("", columns, rows)]


def _behind(made: list[Figures], peers: list[Figures]) -> float:
    """Difference of the median WS-353."""
    mine, theirs = (statistics.median(one["ws-353-all"] for one in some) for some in (made, peers))
    return mine - theirs


def alignments(lines: list[Figures]) -> list[Sheet]:
    """A row for each way and kind of words, over the draws of the dictionary."""
    found: dict[tuple[str, str, str], list[Figures]] = {}
    for line in lines:
        found.setdefault((line["tested"], line["way"], line["rule"]), []).append(line)
    rows = []
    for (tested, way, rule), draws in sorted(found.items(), key=lambda item: item[0][0]):
        first, five = ([100 * d[f"precision@{k}"]["value"] for d in draws] for k in (1, 5))
        promised = FOUND if tested == "frequent" and rule == "csls" else None
        rows.append(
            (
                tested,
                way,
                {"csls": "CSLS"}.get(rule, rule),
                _over(first),
                verdict(statistics.median(first), promised),
                _over(five),
                f"{draws[0]['found']:,} of {draws[0]['words']:,}",
                str(len(draws)),
            )
        )
    columns = ("words", "way", "nearest by", "P@1 %", "bar", "P@5 %", "words tested", "n")
    return [Sheet("", columns, rows)]


def _over(values: list[float]) -> str:
    """Median, smallest and largest."""
    ends = {"low": min(values), "high": max(values)}
    return ranged({"median": statistics.median(values), **ends}, 1)


SECTIONS = (
    Section(
        "Training speed of word vectors",
        "100 dimensions, window 5, 5 negatives, minimum count 5, one epoch, two cores; "
        "one tokenisation for all systems, each in its own process, taking turns. The "
        "whole command starts Python, reads the text, trains and writes the file. "
        "fastText runs ten threads on the two cores, because it leaves most of its table "
        "unset below ten. Ratios are within each repeat.",
        (
            Table(
                "speed",
                (
                    *("method", "system", "training M words/s", "Weft is faster", "bar"),
                    *("whole command, s", "Weft is faster", "bar", "n"),
                ),
                speed,
            ),
        ),
    ),
    Section(
        "Quality of word vectors",
        "Spearman's correlation with human scores × 100, and for `questions-words` the "
        "percentage of analogies solved: median over seeds, with the lowest and highest. "
        '"Not below": our median is at least the lowest of the other\'s seeds; ✓ or ✗ '
        "where that was promised. Lists without a known word are left out. By default "
        "Weft starts CBOW at 0.05, as word2vec does, and gensim at 0.025; both rates are "
        "shown for both. With two threads gensim's learning rate falls half-way inside "
        "an epoch and then jumps, so its mean rate is a tenth higher, and each of its "
        "epochs ends with the end of the file, here novels; Weft reads the file in "
        "another order each epoch.",
        (Grid(("vectors quality",), qualities),),
    ),
    Section(
        "Word vectors on a GPU",
        "One epoch on a GPU and on two threads of the same machine, taking turns. Copies "
        "to and from the GPU count, compilation does not. The quality of these vectors "
        "is in the section above.",
        (
            Table(
                "gpu speed",
                ("method", "on", "M words/s", "times two threads", "aim", "n"),
                gpu_speed,
            ),
        ),
    ),
    Section(
        "Scaling with threads and text",
        "Speed with two threads relative to one; time of the whole command for ten times "
        "the text, with the peak memory of both (including the memory-mapped text, which "
        "the system may reclaim); and the cost of byte-identical runs.",
        (Grid(("scaling",), scalings),),
    ),
    Section(
        "GloVe and skip-gram",
        "Spearman × 100 and the percentage of analogies solved, median [lowest, highest] "
        "over seeds. `published` is GloVe with x_max by the size of the corpus; the settings of "
        "the others are in `bench/glove.py`, `reference` is the authors' program.",
        (
            Table(
                "count",
                ("window", "words", "vocabulary", "pairs", "seconds", "peak GB", "bar"),
                count,
                (
                    "Counting co-occurrences, in its own process; peak memory includes libraries "
                    "and compiler."
                ),
            ),
            Grid(("glove",), gloves),
        ),
    ),
    Section(
        "Alignment of two spaces",
        "Two halves of a corpus trained separately with different seeds. The rotation is "
        "learned from a sample of the most frequent words and tested on others: how "
        "often a word is its own nearest neighbour among all words of the other half. "
        "Median [lowest, highest] over samples.",
        (Grid(("align",), alignments),),
    ),
    Section(
        "Word vectors in a classifier",
        "Test accuracy of `cnn` in percent with random vectors and with vectors trained "
        "here, same seeds (TREC) or folds (MR) for both; the gain in points with its 95 "
        "% interval (Student's t over the pairs). Frozen vectors are not trained with "
        "the task.",
        (
            Table(
                "vectors for a task",
                ("data", "rows", "random", "with vectors", "gain", "n"),
                task,
            ),
        ),
    ),
)
