"""How the figures of n-grams, of language models and of written texts become tables."""

import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tables import Figures, Row, Section, Table, averaged, mark, ranged, verdict
from tables_vectors import Grid, Sheet

# The ladder, from the simplest model to the deepest; others may be measured beside it.
RUNGS = {
    "ngram": "interpolated n-gram", "kneser-ney": "Kneser–Ney", "nnlm": "feed-forward network",
    "rnn-lm": "Elman's network", "lstm-lm": "LSTM", "gpt": "Transformer",
}  # fmt: skip
NGRAMS = {
    "interpolated": "interpolated", "buckets": "interpolated, weights by count",
    "kneser-ney": "modified Kneser–Ney", "pruned": "modified Kneser–Ney, pruned",
}  # fmt: skip
IDEAS = ("seq2seq", "seq2seq-every-step", "seq2seq-attention")
SCORES = ("additive", "dot", "scaled", "bilinear")
COPYING, WITHOUT = "seq2seq-copy", "without"  # begins the name of a variant that does not copy
RECIPES = (*IDEAS, "seq2seq-cnn", "seq2seq-transformer", "seq2seq-records", COPYING)
PICTURES = 95.0  # percent of made pictures read to the last word

Runs = dict[int, Figures]  # by seed
Trials = dict[tuple[str, ...], Runs]


class Data(NamedTuple):
    """A data set: its figures, the first of them the main one, and what to compare it with."""

    title: str
    metrics: dict[str, str]  # name in the line -> name in the table
    about: str = ""
    bars: dict[str, float] = {}  # by recipe; "" is any


LOWERED = {"bleu_tokenised": "BLEU", "chrf": "chrF"}
WRITTEN = {"bleu": "BLEU", "bleu_lower": "BLEU, lower-cased", "chrf": "chrF"}
RESTAURANTS = {
    "bleu_lower": "BLEU", "nist": "NIST", "rouge_l": "ROUGE-L", "cider": "CIDEr",
    "slot_error": "slot error %", "faultless": "faultless %",
}  # fmt: skip
DATA = {
    "multi30k-de-lower": Data(
        "English to German, lower-cased and tokenised", LOWERED,
        "Multi30k, test 2016, as the papers have it: Transformer-Tiny of Wu et al. (2021) has "
        "41.02 here. The bars are 34 with attention and 39 for the Transformer.",
        {"seq2seq-attention": 34.0, "seq2seq-transformer": 39.0},
    ),
    "multi30k-fr-lower": Data(
        "English to French, lower-cased and tokenised", LOWERED,
        "Multi30k, test 2016; Transformer-Tiny of Wu et al. (2021) has 61.80. The bar is 58.",
        {"seq2seq-transformer": 58.0},
    ),
    "multi30k-de": Data("English to German, as it is written", WRITTEN, "Multi30k, test 2016."),
    "multi30k-fr": Data("English to French, as it is written", WRITTEN, "Multi30k, test 2016."),
    "e2e": Data(
        "Restaurants from records", RESTAURANTS,
        "E2E NLG, test, all references of a record together. TGen has BLEU 65.93, NIST 8.609, "
        "ROUGE-L 68.50 and CIDEr 2.234, and Slug BLEU 66.19 (Dušek et al. 2018). The bar is BLEU "
        "65 by the official definition. Slots that are missing, wrong or made up count as errors; "
        "faultless are the texts without any.",
        {"": 65.0},
    ),
    "e2e-delexicalised": Data(
        "Restaurants from records, names put in afterwards", RESTAURANTS,
        "The same; `name` and `near` are written as placeholders.", {"": 65.0},
    ),
    "scitldr": Data(
        "Summaries of abstracts", {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"},
        "SciTLDR, abstracts only, test, the best of several references. Without training PACSUM "
        "has 19.3 / 4.0 / 15.1; of large pre-trained models BART has 43.3 / 20.8 / 35.0 and CATTS "
        "43.8 / 20.9 / 35.5 (Cachola et al. 2020). Nothing is pre-trained here, and 1,992 "
        "abstracts are all there is to learn from.",
    ),
}  # fmt: skip


def counting(line: Figures) -> Row:
    rate = {k: v if k == "n" else v / 1e6 for k, v in line["per_second"].items()}
    return (
        f"{line['tokens'] / 1e6:.1f} M", f"{line['n_grams'] / 1e6:.1f} M",
        f"{line['different'] / 1e6:.1f} M", f"{ranged(rate, 1)} M",
        f"{verdict(rate['median'], line['bar'] / 1e6)}",
        f"{line['megabytes_before']:,} / {line['peak_megabytes']:,}", str(rate["n"]),
    )  # fmt: skip


def ngram(line: Figures) -> Row:
    kind, order = line["question"].removeprefix("perplexity, ").split()
    return (
        NGRAMS[kind], order, f"{line['test']:.2f}", f"{line['valid']:.2f}",
        f"{line['wikitext2']:.2f}", f"{line['n_grams'] / 1e6:.1f} M",
        f"{line['count_seconds'] + line['fit_seconds']:.1f}",
        f"{line['queries_per_second'] / 1e6:.1f} M", f"{line['file_megabytes']:,}",
        f"{line['peak_megabytes']:,}",
    )  # fmt: skip


def kenlm(line: Figures) -> Row:
    whole = line["question"].endswith("[]")
    same = line["n_grams"] == line["kenlm_n_grams"]
    return (
        "all" if whole else "longer than two words: seen twice",
        *(f"{line[k]:.4f}" for k in ("weft", "kenlm", "weft_arpa_in_kenlm", "kenlm_arpa_in_weft")),
        f"{line['relative_difference']:.0e}", f"< {line['bar']:g} {mark(line['passed'])}",
        f"{line['n_grams']:,} {mark(same)}", f"{line['weft_seconds']:.1f}",
        f"{line['kenlm_seconds_with_arpa']:.1f}",
    )  # fmt: skip


def grouped(lines: Iterable[Figures], names: Sequence[str]) -> Trials:
    """Trainings that differ in their seed only; what was repeated counts once."""
    found: Trials = {}
    for line in lines:
        if "error" not in line:
            found.setdefault(tuple(line[name] for name in names), {})[line["seed"]] = line
    return found


def ladder(lines: list[Figures]) -> list[Sheet]:
    """One table; a model is compared with the best of the rung before."""
    found = grouped(lines, ("recipe", "variant"))
    order = list(RUNGS)
    places = {key: order.index(key[0]) if key[0] in order else len(order) for key in found}
    rows: list[Row] = []
    for key in sorted(found, key=lambda key: places[key]):  # stable: variants keep their order
        lower = [p for p in places.values() if p < places[key]]
        # What reads both sides of a word is no rung.
        known = lower if places[key] < len(order) else []
        before = [runs for k, runs in found.items() if known and places[k] == max(known)]
        rows.append(_rung(key, found[key], before))
    columns = (
        "model", "per word", "below the one before", "per token", "bits a character",
        "WikiText-2 per word", "below the one before", "per token", "unknown %", "n", "seconds",
    )  # fmt: skip
    return [Sheet("", columns, rows)] if rows else []


def _rung(key: tuple[str, ...], runs: Runs, before: list[Runs]) -> Row:
    recipe, variant = key
    name = f"{RUNGS[recipe]} (`{recipe}`)" if recipe in RUNGS else f"`{recipe}`, not of the ladder"
    other = "" if variant == "recipe" else f", {variant}"

    def below(figure: str) -> str:
        values = _all(runs, figure)
        others = [statistics.mean(_all(other, figure)) for other in before if _all(other, figure)]
        return mark(statistics.mean(values) < min(others)) if values and others else "–"

    own, else_ = "test_", "test_wikitext_"
    shares = [[100 * share for share in _all(runs, f"{part}unknown")] for part in (own, else_)]
    seconds = statistics.mean(_all(runs, "seconds"))
    return (
        f"{name}{other}", averaged(_all(runs, f"{own}perplexity")), below(f"{own}perplexity"),
        averaged(_all(runs, f"{own}token_perplexity")),
        averaged(_all(runs, f"{own}bits_per_character"), 3),
        averaged(_all(runs, f"{else_}perplexity")), below(f"{else_}perplexity"),
        averaged(_all(runs, f"{else_}token_perplexity")),
        " / ".join(f"{statistics.mean(s):.1f}" if s else "–" for s in shares),
        str(len(runs)), f"{seconds:,.0f}",
    )  # fmt: skip


def _all(runs: Runs, figure: str) -> list[float]:
    return [run[figure] for run in runs.values() if figure in run]


def written(lines: list[Figures]) -> list[Sheet]:
    """A table a data set, then what attention and copying add."""
    found: dict[str, Trials] = {}
    for (data, recipe, variant), runs in grouped(lines, ("data", "recipe", "variant")).items():
        found.setdefault(data, {})[recipe, variant] = runs
    names = sorted(found, key=lambda name: list(DATA).index(name) if name in DATA else len(DATA))
    sheets = [_data(_about(name, found[name]), found[name]) for name in names]
    helped = (_ideas(found), *(_scores(name, found[name]) for name in names), _copying(found))
    return sheets + [sheet for sheet in helped if sheet.rows]


def _about(name: str, trials: Trials) -> Data:
    if name in DATA:
        return DATA[name]
    first = next(run for runs in trials.values() for run in runs.values())
    figures = [key.removeprefix("test_") for key in first if key.startswith("test_")]
    return Data(name, {figure: figure for figure in figures})


def _data(data: Data, trials: Trials) -> Sheet:
    main = next(iter(data.metrics))
    rows: list[Row] = []
    for recipe, variant in sorted(trials, key=_order):
        runs = trials[recipe, variant]
        values = _all(runs, f"test_{main}")
        bar = data.bars.get(recipe, data.bars.get(""))
        rows.append((
            _named(recipe, variant), *(averaged(_all(runs, f"test_{m}")) for m in data.metrics),
            verdict(statistics.mean(values), bar), averaged(_all(runs, f"dev_{main}")),
            f"{statistics.mean(_all(runs, 'parameters')) / 1e6:.1f} M", str(len(runs)),
            f"{statistics.mean(_all(runs, 'seconds')):,.0f}",
        ))  # fmt: skip
    columns = (
        "recipe", *data.metrics.values(), "bar", f"dev {data.metrics[main]}", "parameters", "n",
        "seconds",
    )  # fmt: skip
    return Sheet(data.title, columns, rows, data.about)


def _order(key: tuple[str, ...]) -> tuple[int, str, int, str]:
    recipe, variant = key
    place = RECIPES.index(recipe) if recipe in RECIPES else len(RECIPES)
    return place, recipe, SCORES.index(variant) if variant in SCORES else -1, variant


def _named(recipe: str, variant: str) -> str:
    return recipe if variant == "recipe" else f"{recipe}, {variant}"


def _ideas(found: dict[str, Trials]) -> Sheet:
    """The encoder's vector once, at every step, and attention."""
    rows: list[Row] = []
    for name, trials in found.items():
        data = _about(name, trials)
        main = next(iter(data.metrics))
        chosen = [_chosen(trials, recipe, main) for recipe in IDEAS]
        if not all(chosen):
            continue
        means = [_all(trials[key], f"test_{main}") for key in chosen if key]
        one, two, three = (statistics.mean(values) for values in means)
        cells = [averaged(values) for values in means]
        if chosen[2] and chosen[2][1] != "recipe":
            cells[2] += f" ({chosen[2][1]})"
        rows.append((data.title, *cells, f"{mark(one < two)} {mark(two < three)}"))
    return Sheet(
        "Idea 1, idea 2, attention",
        ("data", "idea 1", "idea 2", "attention", "idea 1 < idea 2 < attention"),
        rows,
        "The source's vector is where the decoder begins (idea 1), or is given at every step "
        "(idea 2), or the decoder looks back (attention, with the score that was best on dev).",
    )


def _chosen(trials: Trials, recipe: str, main: str) -> tuple[str, ...] | None:
    """The recipe as it comes, or its variant that was best on dev."""
    keys = [key for key in trials if key[0] == recipe]
    if (recipe, "recipe") in keys:
        return recipe, "recipe"
    return max(keys, key=lambda k: statistics.mean(_all(trials[k], f"dev_{main}")), default=None)


def _scores(name: str, trials: Trials) -> Sheet:
    """One model, four functions that say how well a state and a place of the source match."""
    data, recipe = _about(name, trials), IDEAS[2]
    main = next(iter(data.metrics))
    rows: list[Row] = []
    for score in SCORES:
        runs = trials.get((recipe, score))
        if runs:
            speed, taken = (_all(runs, key) for key in ("sentences_per_second", "seconds"))
            rows.append((
                score, averaged(_all(runs, f"test_{main}")), averaged(_all(runs, f"dev_{main}")),
                averaged(speed, 0), averaged(taken, 0), str(len(runs)),
            ))  # fmt: skip
    return Sheet(
        f"Four scores of attention: {data.title}",
        ("score", data.metrics[main], "dev", "sentences written a second", "seconds", "n"),
        rows,
        "The same model, data and seeds. Where the command below has `--workers`, trainings ran "
        "beside each other, and speeds compare only roughly.",
    )


def _copying(found: dict[str, Trials]) -> Sheet:
    """Points that copying adds to models that do not copy, seed by seed."""
    rows: list[Row] = []
    for name, trials in found.items():
        data, copied = _about(name, trials), trials.get((COPYING, "recipe"), {})
        for key in sorted(trials, key=_order):
            both = [seed for seed in copied if seed in trials[key]]
            if not both or (key[0] == COPYING and not key[1].startswith(WITHOUT)):
                continue
            cells = []
            for metric in (f"test_{metric}" for metric in data.metrics):
                gains = [copied[seed][metric] - trials[key][seed][metric] for seed in both]
                told = f" {mark(statistics.mean(gains) > 0)}" if name == "scitldr" else ""
                cells.append(f"{averaged(gains, sign='+')}{told}")
            figures = zip(data.metrics.values(), cells, strict=True)
            told = "; ".join(f"{figure} {cell}" for figure, cell in figures)
            rows.append((data.title, _named(*key), told, str(len(both))))
    return Sheet(
        "Does copying help?",
        ("data", "against", "points gained by copying", "n"),
        rows,
        f"`{COPYING}` beside what does not copy, seed by seed; of summaries it was promised.",
    )


def attention_scores(lines: list[Figures]) -> list[Sheet]:
    """Rows of uses, columns of scores: quality, seconds an epoch; then the masks, and the speed.

    Of a run that was made on two machines, the first record counts.
    """
    first: dict[tuple[object, ...], Figures] = {}
    for line in lines:
        if "error" not in line:
            key = (line["question"], line["use"], line["score"], line["mask"], line.get("seed"))
            first.setdefault(key, line)
    speeds = [line for line in first.values() if line["question"] == "attention score, speed"]
    runs = [line for line in first.values() if line["question"] != "attention score, speed"]
    plain = [line for line in runs if not line["mask"]]
    sheets = [
        _by_score(plain, "value", ("metric", "n"), "Quality on test."),
        _by_score(plain, "seconds_per_epoch", ("train",), "Seconds an epoch, beside other runs."),
    ]
    masked = [
        (line["mask"], f"{line['value']:.1f}", str(line["n"])) for line in runs if line["mask"]
    ]
    if masked:
        sheets.append(Sheet("", ("mask of the Transformer encoder", "accuracy", "n"), masked))
    unmasked = [line for line in speeds if not line["mask"]]
    about = "Training speed as a ratio to the score that the recipe has, after an untimed run."
    sheets.append(_by_score(unmasked, "examples_per_second_ratio", ("n",), about, 2))
    return [sheet for sheet in sheets if sheet.rows]


HEADINGS = {"metric": "metric", "n": "examples", "train": "training examples"}


def _by_score(
    lines: list[Figures], key: str, more: Sequence[str], about: str, digits: int = 1
) -> Sheet:
    """A row a use with one figure of every score, mean over seeds, and what else is known."""
    scores = list(dict.fromkeys((*SCORES, *(line["score"] for line in lines))))
    rows = []
    for use in dict.fromkeys(line["use"] for line in lines):
        here = [line for line in lines if line["use"] == use]
        found = [[line[key] for line in here if line["score"] == score] for score in scores]
        rows.append(
            (use, *(averaged(one, digits) for one in found), *(str(here[0][k]) for k in more))
        )
    return Sheet("", ("use", *scores, *(HEADINGS[name] for name in more)), rows, about)


def attention_order(line: Figures) -> Row:
    dev, bleu, chrf = (
        f"{line[key]:.1f} ± {line[f'{key}_sd']:.1f}"
        for key in ("dev_bleu", "test_bleu", "test_chrf")
    )
    return line["attention"], dev, bleu, chrf, f"{line['seconds']:.0f}", str(line["n"])


def order_gain(line: Figures) -> Row:
    apart = ", ".join(f"{gain:+.2f}" for gain in line["test_bleu"])
    return apart, f"{line['mean']:+.2f} ± {line['sd']:.2f}", f"{line['won']} of {line['n']}"


def pictures(line: Figures) -> Row:
    right, low, high = (100 * line[key] for key in ("exact_match", "low", "high"))
    return (
        line["recipe"], str(line["seed"]), f"{right:.1f} [{low:.1f}, {high:.1f}]",
        verdict(right, PICTURES), f"{line['n']:,}", f"{line['parameters'] / 1e6:.2f} M",
        f"{line['seconds']:,.0f}",
    )  # fmt: skip


SECTIONS = (
    Section(
        "N-gram models",
        "`lm/wiki_en`, up to five words, a shared vocabulary of 30,000. Perplexity is "
        "per word and end of line; rare words are one class. The bars: a million n-grams "
        "counted per second on two cores, and KenLM's perplexity to four digits. KenLM "
        "is `lmplz` and `query`, built from source, on the same text; each side also "
        "reads the other's ARPA file. KenLM's seconds include writing that file, ours do "
        "not.",
        (
            Table(
                "counting, *",
                (
                    *("tokens", "n-grams", "different ones", "n-grams a second", "bar in M"),
                    *("MB before / at most", "n"),
                ),
                counting,
            ),
            Table(
                "perplexity, *",
                (
                    *("model", "order", "test", "valid", "WikiText-2", "n-grams"),
                    *("seconds to make", "words scored a second", "file MB", "peak MB"),
                ),
                ngram,
            ),
            Table(
                "KenLM's lmplz, *",
                (
                    *("n-grams kept", "Weft", "KenLM", "Weft's file in KenLM"),
                    *("KenLM's in Weft", "apart", "bar", "the same n-grams", "seconds"),
                    "KenLM's",
                ),
                kenlm,
            ),
        ),
    ),
    Section(
        "Perplexity of language models",
        "Perplexity on the test part of `lm/wiki_en`, and on that of WikiText-2, another "
        "corpus. All models learn from the same text with the same 30,000 words, and "
        "each should be below the one before. Per word counts the words of the original "
        "text, so other tokenisations are comparable; per token counts those of the "
        "shared vocabulary, where a rare word costs no more than `<unk>`: their fraction "
        "is given for both. Mean ± standard deviation over seeds; seconds are for one "
        "run.",
        (Grid(("language trial",), ladder),),
    ),
    Section(
        "Quality of generated text",
        "Test metrics of beam search, mean ± standard deviation over seeds. Nothing is "
        "pre-trained, and settings were chosen on dev. BLEU and chrF are sacrebleu's; "
        "for tokenised texts they count tokens. Published results are as given in the "
        "papers. Seconds are for one run on a shared GPU.",
        (Grid(("generation trial",), written),),
    ),
    Section(
        "Bahdanau's decoder and Luong's",
        "Multi30k, English to German, all 29,000 pairs, test2016: recipe `seq2seq-bahdanau`, where "
        "`decoder.attention` is the only setting that differs. Bahdanau's output layer has 0.4 M "
        "parameters more. BLEU is sacrebleu's, mean ± standard deviation over seeds; settings were "
        "not tuned. Every run had 6.5 minutes: Luong's finished 18 epochs, Bahdanau's 16.",
        (
            Table(
                "attention order",
                ("order", "dev BLEU", "test BLEU", "test chrF", "seconds", "n"),
                attention_order,
            ),
            Table(
                "attention order, bahdanau - luong",
                ("test BLEU, Bahdanau minus Luong, by seed", "mean", "seeds won"),
                order_gain,
            ),
        ),
    ),
    Section(
        "Attention scores",
        "Each score in each use of attention, one run each; only `attention.score` differs. "
        "Accuracy on TREC for pool and encoder, BLEU on Multi30k (6,000 pairs) for decoders, "
        "F1 on SQuAD's re-split for BiDAF (6 epochs, of 12 in the recipe), accuracy on SICK for "
        "ESIM and decomposable attention. ESIM, decomposable attention and the masks ran on two "
        "cores, the rest on a GPU. The decoders have a fifth of Multi30k; some scores were still "
        "far behind when their epochs ended. With all of it the four of the recurrent decoder are "
        "close (above).",
        (Grid(("attention score trial", "attention score, speed"), attention_scores),),
    ),
    Section(
        "Text from vectors",
        "Synthetic pictures of numbers, read column by column as vectors. Percent of "
        "held-out pictures whose words are all right, with the 95 % interval. The bar is "
        "95.",
        (
            Table(
                "vectors in",
                ("recipe", "seed", "exact match %", "bar", "pictures", "parameters", "seconds"),
                pictures,
            ),
        ),
    ),
)
