"""How the figures of fine-tuned networks become tables."""

import re
import statistics
from collections.abc import Iterable, Sequence

from tables import Figures, Row, Section, Table, averaged, ranged, verdict
from tables_vectors import Grid, Sheet

# Percent on test that was promised of MiniLM, fine-tuned on all of train.
BARS = {
    "sst2": 90.5, "trec": 96.0, "banking77": 92.0, "stsb": 86.0, "sick": 85.0, "squad": 70.0,
}  # fmt: skip
TITLES = {
    "sst2": "SST-2, with phrases", "sst2-sentences": "SST-2, sentences", "trec": "TREC-6",
    "cola": "CoLA", "stsb": "STS-B", "sick": "SICK, entailment", "lingnli": "LingNLI → SNLI",
    "banking77": "banking77", "rte": "RTE", "ewt": "EWT, tags", "squad": "SQuAD's dev set, parted",
}  # fmt: skip
# What Weft has pre-trained itself; everything else is MiniLM.
OWN = ("BERT-small", "ELMo")
MANY = 8  # seeds from which collapses are told of
GAIN = (1000, 5.0)  # points that were promised at so many examples
TIMES = 1.5  # as fast as transformers, updates of BERT
SHAPED = re.compile(r"bert training, (\d+ × (\d+)(?: without dropout)?), ([\w ]+)")

Key = tuple[str, str, str, str, int]  # data, variant, system, start, examples


def grouped(lines: Iterable[Figures]) -> dict[Key, list[Figures]]:
    """Trainings that differ in their seed only; of one that was repeated, the last."""
    found: dict[Key, dict[int, Figures]] = {}
    for line in lines:
        if "error" not in line:
            names = ("data", "variant", "system", "start", "examples")
            key = tuple(line[name] for name in names)
            found.setdefault(key, {})[line["seed"]] = line  # type: ignore[arg-type]
    return {key: list(runs.values()) for key, runs in found.items()}


def metric(run: Figures) -> str:
    """The figure of a training: the one that dev and test have."""
    return next(key for key in run if key.startswith("dev_")).removeprefix("dev_")


def values(runs: Sequence[Figures], part: str = "") -> list[float]:
    """That figure on test, or on another part, of every seed."""
    return [run[f"test_{part}{metric(run)}"] for run in runs]


def difference(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """How far two means are apart with the 95 % interval of that (Welch 1947)."""
    if not ours or not theirs:
        return "–"
    gap = statistics.mean(ours) - statistics.mean(theirs)
    if min(len(ours), len(theirs)) < 2:
        return f"{gap:+.2f}"
    half = welch(ours, theirs)
    told = "within noise" if abs(gap) <= half else "apart"
    return f"{gap:+.2f} [{gap - half:+.2f}, {gap + half:+.2f}], {told}"


def welch(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Half of the 95 % interval of the difference of two means."""
    from scipy.stats import t

    parts = [(statistics.variance(x) / len(x), len(x) - 1) for x in (ours, theirs)]
    error = sum(v for v, _ in parts)
    if not error:
        return 0.0
    free = error**2 / sum(v**2 / n for v, n in parts)
    return float(t.ppf(0.975, free)) * error**0.5


def tuned(lines: Iterable[Figures]) -> list[Sheet]:
    """One row a data set and variant: Weft, the same by transformers, and from random weights."""
    found = grouped(lines)
    rows = []
    for data, variant in dict.fromkeys((key[0], key[1]) for key in found if key[1] not in OWN):
        own = [
            found.get((data, variant, system, start, 0), [])
            for system, start in (
                ("weft", "pretrained"), ("transformers", "pretrained"), ("weft", "scratch"),
            )
        ]  # fmt: skip
        if own[0] or own[2]:
            rows.append(_tuned(data, variant, *own))
    columns = ("data", "figure", "Weft", "transformers", "difference", "from scratch", "bar")
    return [Sheet("Learned from all examples", (*columns, "n", "seconds"), rows)] if rows else []


def _tuned(
    data: str, variant: str, ours: list[Figures], theirs: list[Figures], scratch: list[Figures]
) -> Row:
    name = TITLES[data] + ("" if variant == "recipe" else f", {variant}")
    # What was learned elsewhere, on a slower machine, says so.
    seconds = [
        runs[0].get("slow") or averaged([run["seconds"] for run in runs], 0)
        for runs in (ours, theirs) if runs
    ]  # fmt: skip
    mine, first = values(ours), (ours or scratch)[0]
    exact = [run["test_em"] for run in ours or scratch if "test_em" in run]
    return (
        name, metric(first) + (f", exact {averaged(exact)}" if exact else ""), averaged(mine),
        averaged(values(theirs)), difference(mine, values(theirs)), averaged(values(scratch)),
        verdict(statistics.mean(mine), BARS.get(data) if variant != "frozen" else None)
        if mine
        else "–",
        str(len(ours or scratch)), " / ".join(seconds) or "–",
    )  # fmt: skip


def curves(lines: Iterable[Figures]) -> list[Sheet]:
    """One row a data set and number of examples: pre-trained against random weights."""
    found = grouped(lines)
    rows = []
    for key in sorted(found, key=lambda k: (list(TITLES).index(k[0]), k[1], k[4] or 10**9)):
        data, variant, system, start, examples = key
        scratch = found.get((data, variant, "weft", "scratch", examples))
        if system != "weft" or start != "pretrained" or not scratch:
            continue
        ours, theirs = values(found[key]), values(scratch)
        gain = statistics.mean(ours) - statistics.mean(theirs)
        rows.append((
            TITLES[data] + ("" if variant == "recipe" else f", {variant}"),
            f"{examples:,}" if examples else f"all {found[key][0]['n']:,}",
            metric(found[key][0]), averaged(ours), averaged(theirs), difference(ours, theirs),
            verdict(gain, GAIN[1] if examples == GAIN[0] else None), str(len(ours)),
        ))  # fmt: skip
    columns = ("data", "examples", "figure", "pre-trained", "from scratch", "gain", "bar", "n")
    drawn = "![By the number of examples, pre-trained and from scratch](../curves.svg)"
    about = (
        f"{drawn}\n\nDrawn by `bench/curves.py`: BERT-small, mean ± standard deviation. Those of "
        "100 examples were trained on a CPU."
    )
    return [Sheet("With fewer examples", columns, rows, about)] if rows else []


def pretrained(lines: Iterable[Figures]) -> list[Sheet]:
    """What pre-training came to."""
    rows: list[Row] = []
    for line in lines:
        if "error" in line:
            continue
        told = (
            f"masked tokens right {100 * line['test_accuracy']:.1f} %"
            if ("test_accuracy" in line)
            else f"per word {line['test_perplexity']:,.1f}"
        )
        if "test_next_accuracy" in line:
            told += f", next sentence right {100 * line['test_next_accuracy']:.1f} %"
        rows.append((
            line["variant"], f"{line['parameters'] / 1e6:.1f} M", f"{line['seconds'] / 60:.1f}",
            f"{line.get('test_token_perplexity', line['test_perplexity']):,.1f}", told,
        ))  # fmt: skip
    columns = ("network", "weights", "minutes", "perplexity of a token", "besides")
    return [Sheet("", columns, rows)] if rows else []


def restarts(lines: Iterable[Figures]) -> list[Sheet]:
    """Of many seeds: how far they differ, and which collapsed."""
    rows = []
    for (data, variant, system, start, examples), runs in grouped(lines).items():
        if len(runs) < MANY or examples:
            continue
        bad = sorted(run["seed"] for run in runs if run["collapsed"])
        kept = values([run for run in runs if not run["collapsed"]])
        seeds = f" (seeds {', '.join(map(str, bad))})" if bad else ""
        told = f"{len(bad)} of {len(runs)}{seeds}"
        name = TITLES[data] + ("" if variant == "recipe" else f", {variant}")
        both = (averaged(values(runs)), averaged(kept) if bad else "–")
        low, high = min(values(runs)), max(values(runs))
        rows.append((name, f"{system}, {start}", *both, f"{low:.1f} – {high:.1f}", told))
    columns = ("data", "system", "mean", "without collapsed", "range", "collapsed")
    return [Sheet("Restarts", columns, rows)] if rows else []


def learning(lines: Iterable[Figures]) -> list[Sheet]:
    """Updates of BERT-base by shape of batch, each way."""
    found: dict[tuple[str, str], Figures] = {}
    ratios: dict[str, Figures] = {}
    for line in lines:
        match = SHAPED.fullmatch(line["question"])
        if match and "ratio" in line:
            ratios[match[1]] = line["ratio"]
        elif match and "tokens_per_second" in line:
            found[match[1], match[3]] = line
    rows = []
    for (shape, way), line in sorted(found.items()):
        steps = int(shape.split(" ")[2])
        ratio = ratios.get(shape) if way == "weft" else None
        each = line["tokens_per_second"]
        rate = {k: v if k == "n" else v / steps for k, v in each.items()}
        rows.append((
            shape, way.replace("weft", "Weft"), ranged(rate, 0),
            ranged(ratio, 2, "×") if ratio else "–",
            verdict(ratio["median"], TIMES) if ratio else "–",
            f"{line['memory_gb']:.1f}", str(rate["n"]),
        ))  # fmt: skip
    columns = ("batch", "way", "sequences a second", "times as fast", "bar", "memory GB", "n")
    return [Sheet("", columns, rows)] if rows else []


def frozen(line: Figures) -> Row:
    """Learning over a network that stays as it is, one way."""
    return (
        line["way"].replace("weft", "Weft"), ranged(line["seconds"], 1),
        ranged(line["weft_is_faster"], 2, "×") if line["way"] != "weft" else "–",
        f"{line['test_accuracy']:.1f}", str(line["threads"]), str(line["seconds"]["n"]),
    )  # fmt: skip


def suite_task(line: Figures) -> Row:
    return (
        line["task"],
        line["recipe"],
        " + ".join(line["metrics"]),
        averaged(line["values"], 1),
        str(len(line["values"])),
    )


def suite_average(line: Figures) -> Row:
    return (
        line["system"],
        str(line["tasks"]),
        f"{line['mean']:.1f} ± {line['sd']:.1f}",
        str(line["n"]),
    )


def elmo_gain(line: Figures) -> Row:
    before, after = line["baseline"], line["elmo"]
    counts = f"{len(before)} / {len(after)}"
    if not after:
        return line["task"], line["metric"], averaged(before, 1), "–", "–", "–", counts
    low, high = statistics.mean(before), statistics.mean(after)
    return (
        line["task"],
        line["metric"],
        averaged(before, 1),
        averaged(after, 1),
        f"{high - low:+.1f}",
        f"{100 * (high - low) / (100 - low):.0f} %",
        counts,
    )


SECTIONS = (
    Section(
        "Training over a frozen encoder",
        "MiniLM frozen (`embedder.frozen=true`), a thousand questions of TREC, ten "
        'epochs: from texts to test metrics. Weft encodes every text once; "each epoch" '
        "encodes it in every epoch, as the transformers loop does.",
        (
            Table(
                "frozen network",
                ("way", "seconds", "Weft is faster", "test accuracy", "threads", "n"),
                frozen,
            ),
        ),
    ),
    Section(
        "BERT pre-training on a GPU",
        "BERT-base (12 layers of 768, 30,522 words), masked-LM with 15 % of synthetic "
        "tokens, bf16 autocast with fp32 weights, fused AdamW on both sides, dropout 0.1 "
        "unless noted. transformers is compiled and scores all positions; Weft scores "
        "the masked ones. The bar is 1.5 times transformers in the same run, which "
        "reached 4,060 and 894 sequences per second when it was set.",
        (Grid(("bert training, *",), learning),),
    ),
    Section(
        "Pre-training in minutes",
        "Recipes `bert-pretrain` (6 layers of 384) and `elmo-pretrain` on English "
        "Wikipedia and novels, 35 MB compressed, with `train.minutes`: everything "
        "counts, the vocabulary included. Measured on test: BERT on masked tokens, ELMo "
        "in both directions. The GPU was shared with a dozen other runs.",
        (Grid(("pre-training trial",), pretrained),),
    ),
    Section(
        "Quality of fine-tuning",
        "Percent on test (CoLA: both dev parts, as in GLUE), mean ± standard deviation "
        "over seeds; the best epoch is chosen on dev. The peer is a plain `transformers` "
        "loop with the same settings, seeds and batch order; differences have 95 % "
        "intervals (Welch). TREC and banking77 ran 10 epochs at a learning rate of 1e-4. "
        "Towers are the recipe `bert-towers`; the others read both texts at once. Frozen "
        "is `bert-frozen`. Both recipes were designed with the test results of STS-B, "
        "TREC and banking77 in sight, which flatters them a little; SICK, SST-2 and CoLA "
        "were not looked at. From scratch: the same architecture with random weights. A "
        "run has collapsed if it is no better than one answer for all, or its loss never "
        "fell by a tenth. LingNLI → SNLI trains on one and tests on the other; after "
        "NLI: LingNLI and SNLI were learned before. All encoders are MiniLM except "
        "BERT-small and ELMo, which are those of the section above. ELMo from scratch is "
        "the same network with a word table only.",
        (
            Grid(("fine-tuning trial",), tuned),
            Grid(("fine-tuning trial",), curves),
            Grid(("fine-tuning trial",), restarts),
        ),
    ),
    Section(
        "A suite of tasks",
        "`weft suite` over fourteen tasks that `bench/suite_folder.py` writes, with the "
        "recipes' default settings: score from 0 to 100 on test, mean ± standard deviation "
        "over restarts. The weights of MiniLM-L6 were rounded to half precision for the "
        "transfer. Three epochs at 3e-5, then the rate of `bert`, do not learn the 77 labels of "
        "banking77 (see above for other rates); `bench/plans/bert.json` compares rates and pools.",
        (
            Table("suite task", ("task", "recipe", "metric", "score", "n"), suite_task),
            Table("suite average", ("system", "tasks", "average", "n"), suite_average),
        ),
    ),
    Section(
        "ELMo before and after",
        "The table of deck 001 on data at hand, by `weft suite --baseline`: each recipe "
        "without and with an ELMo trained on `lm/wiki_en` for six minutes. SICK stands for SNLI, "
        "WNUT-17 for CoNLL-2003, chunks and dependencies for semantic roles and coreference. "
        "BiDAF with ELMo was measured later, over an ELMo of three minutes, and stopped after 5.4 "
        "of 12 epochs; device time ended before further restarts of the two slowest tasks.",
        (
            Table(
                "ELMo before and after",
                ("task", "metric", "before", "after", "gain", "error reduction", "n"),
                elmo_gain,
            ),
        ),
    ),
)
