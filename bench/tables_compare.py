"""How the figures of comparing, checking, explaining and reporting become tables."""

from tables import Figures, Row, Section, Table, averaged, mark, verdict

BEST, TFIDF = 88.0, 85.0  # percent on banking77: the best recipe, and tfidf
APART = 0.15  # share by which a reported latency may miss the one measured outside
PLANTED, ALARMS, TYPOS = 95, 5, 5  # of 100 leaks found, false alarms, typos of 5
WORDS, RECIPES = 90.0, ("bag", "cnn", "bilstm", "transformer")
RATIO = 14  # times the seconds for ten times the rows
MEGABYTES = 5  # of a report
JOINT_LOSS = 0.3  # percent that one model of intents and slots may lose against two
ECE, KEPT = 0.03, 0.95  # mean calibration error after the temperature; share of promises kept


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def within(value: float, bar: float) -> str:
    """A bar that the value may reach but not pass."""
    return f"≤ {bar:g} {mark(value <= bar)}"


def between(found: Figures, digits: int = 2) -> str:
    value, low, high = (f"{found[key]:.{digits}f}" for key in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def compared(line: Figures) -> Row:
    if line["error"] is not None:
        late = line["error"].startswith("not finished")
        told = "not finished in time" if late else "failed; the message is in bench/results"
        return line["recipe"], "–", "–", "–", "–", "0", told
    quality, spread, best = 100 * line["quality"], line["spread"], line["p"] is None
    bar = None
    if line["data"] == "banking77":
        bar = TFIDF if line["recipe"] == "tfidf" else BEST if best else None
    chance = "best" if best else "< 0.001" if line["p"] < 0.001 else f"{line['p']:.3f}"
    clipped = line["clipped"]
    return (
        line["recipe"],
        f"{quality:.1f}" + (f" ± {percent(spread)}" if spread is not None else ""),
        f"{percent(line['low'])}–{percent(line['high'])}",
        chance,
        verdict(quality, bar),
        str(line["seeds"]),
        f"{clipped} of {line['seeds']} stopped by the clock" if clipped else "",
    )


def calibrated(line: Figures) -> Row:
    def answered(found: Figures | None) -> str:
        return f"{percent(found['answered'])} ({percent(found['accuracy'])})" if found else "–"

    return (
        line["data"],
        line["recipe"],
        *(percent(line[key]) for key in ("accuracy", "ece_before", "ece_after")),
        f"{line['temperature']:.2f}",
        answered(line["at_90"]),
        answered(line["at_95"]),
        percent(line["coverage_at_95"]),
        f"{percent(line['sets']['coverage'])} (size {line['sets']['size']:.2f})",
        str(line["n"]),
    )


def joint_model(line: Figures) -> Row:
    """One model of intents and slots beside two."""

    def both(name: str) -> str:
        gain, low, high = (f"{x:+.2f}" for x in line[name]["gain"])
        return f"{line[name]['joint']:.1f} / {line[name]['separate']:.1f}, {gain} [{low}, {high}]"

    kept = all(line[name]["gain"][0] >= -JOINT_LOSS for name in ("intent_accuracy", "slot_f1"))
    seconds = line["test_seconds"]
    return (
        line["data"],
        *(both(name) for name in ("intent_accuracy", "slot_f1", "exact_match")),
        f"≥ −{JOINT_LOSS} {mark(kept)}",
        f"{seconds['joint']:.2f} / {seconds['intent'] + seconds['slots']:.2f}",
        str(line["n"]),
    )


def label_tree(line: Figures) -> Row:
    """Labels in a tree beside flat ones."""

    def gained(level: int) -> str:
        found = line.get(f"gain_level_{level}")
        return "–" if found is None else "{:+.2f} [{:+.2f}, {:+.2f}]".format(*found)

    weight = line["weight"]
    return (
        line["data"],
        line["recipe"],
        "0, or flat labels" if weight == "flat" else f"{weight:g}",
        f"{line['dev_level_1']:.1f} / {line['dev_level_2']:.1f}",
        f"{line['test_level_1']:.1f}",
        gained(1),
        f"{line['test_level_2']:.1f}",
        gained(2),
        str(line["n"]),
    )


def tree_check(line: Figures) -> Row:
    return line["data"], line["recipe"], f"the same {mark(line['equals_flat'])}"


def mean_calibration(line: Figures) -> Row:
    kept = line["ece_after"] <= min(ECE, line["ece_before"])
    return (
        str(line["n"]),
        percent(line["ece_before"]),
        percent(line["ece_after"]),
        f"≤ {percent(ECE)}, and not raised {mark(kept)}",
        str(line["lowered"]),
        percent(line["set_coverage"]),
    )


def promised(line: Figures) -> Row:
    made = line["made"]
    return (
        percent(line["promise"]),
        str(line["runs"]),
        str(made),
        str(line["kept"]),
        f"≥ {percent(KEPT)} % of runs {mark(line['kept'] >= KEPT * made)}",
        str(line["broken"]),
        percent(line["answered"]) if made else "–",
        percent(line["accuracy"]) if made else "–",
    )


def outside(line: Figures) -> Row:
    if "error" in line:
        return line["recipe"], line["way"], "failed", "–", "–", "–"
    keys = ("in_scope_accuracy", "out_of_scope_recall", "out_of_scope_precision", "accuracy")
    return (line["recipe"], line["way"], *(percent(line[key]) for key in keys))


def one_command(line: Figures) -> Row:
    return (
        line["data"],
        f"{line['minutes']:g}",
        within(line["minutes"], line["limit"]),
        f"{line['report_megabytes']:.2f}",
        verdict(line["report_megabytes"], MEGABYTES, above=False),
        repr(line["recorded"]),
        repr(line["evaluated"]),
        f"the same {mark(line['same'])}",
    )


def latency(line: Figures) -> Row:
    return (
        line["recipe"],
        f"{line['reported_ms']:.3f}",
        f"{line['outside_ms']:.3f}",
        f"{line['ratio']:.2f}",
        f"1 ± {APART} {mark(abs(line['ratio'] - 1) <= APART)}",
    )


def interruption(line: Figures) -> Row:
    return (
        str(line["kills"]),
        str(line["trials"]),
        str(line["finished_before_the_last_run"]),
        str(line["repeated"]),
        f"0 {mark(line['repeated'] == 0)}",
        f"the same {mark(line['same_table'])}",
    )


def scale(line: Figures) -> Row:
    told = (f"{name} {percent(value)}" for name, value in line["quality"].items())
    spent = (f"{name} {value:,.0f}" for name, value in line["train_seconds"].items())
    began = line["training_began"]
    return (
        f"{line['rows']:,}",
        f"{line['megabytes']:,}",
        f"{line['seconds']:,.0f}",
        "–" if began is None else f"{began:,.0f}",
        ", ".join(spent),
        f"{line['peak_gigabytes']:.2f}",
        ", ".join(told),
    )


def times(line: Figures) -> Row:
    small, large = line["rows"]
    return f"{large:,} / {small:,}", f"{line['ratio']:g}×", within(line["ratio"], RATIO)


def leaks(line: Figures) -> Row:
    promised = PLANTED if line["data"] == "trec" else None
    return (
        line["data"],
        line["near"],
        line["word"],
        f"{line['mean']:.1f}",
        verdict(line["mean"], promised),
        f"{line['least']}–{max(line['found'])}",
        str(len(line["found"])),
    )


def untouched(line: Figures) -> Row:
    promised = within(line["near"], ALARMS) if line["data"] == "trec" else "–"
    return line["data"], f"{line['test']:,}", str(line["exact"]), str(line["near"]), promised


def near_pair(line: Figures) -> Row:
    return line["data"], f"{line['score']:.2f}", *line["pair"]


def exact_pair(line: Figures) -> Row:
    return line["data"], *line["pair"]


def typos(line: Figures) -> Row:
    least = min(line["found"])
    return (
        line["data"],
        str(least),
        verdict(least, TYPOS),
        line["meant"],
        str(sum(line["false"])),
        str(len(line["found"])),
    )


def sound_labels(line: Figures) -> Row:
    return line["data"], str(line["labels"]), str(line["found"])


def doctor_time(line: Figures) -> Row:
    return (
        f"{line['rows']:,}",
        f"{line['processor_seconds']:,.1f}",
        f"{line['peak_gb']:.2f}",
        f"{line['near']:,}",
    )


def doctor_ratio(line: Figures) -> Row:
    small, large = line["rows"]
    return f"{large:,} / {small:,}", f"{line['ratio']:g}×"


def signatures(line: Figures) -> Row:
    return (
        line["library"],
        f"{line['texts']:,}",
        f"{line['seconds']:.2f}",
        f"{line['recall']:.3f}",
        f"{line['candidates']:.0f}",
    )


def planted_words(line: Figures) -> Row:
    promised = line["method"] == "integrated-gradients" and line["recipe"] in RECIPES
    return (
        line["recipe"],
        line["method"],
        percent(line["top1"]),
        percent(line["top3"]),
        verdict(100 * line["top3"], WORDS if promised else None),
        between(line["aopc"]),
        f"{line['random']['value']:.2f}",
        between(line["gain"]),
        f"> 0 {mark(line['gain']['low'] > 0)}",
        f"{line['milliseconds']:.1f}",
        str(line["n"]),
    )


def planted_training(line: Figures) -> Row:
    return line["recipe"], percent(line["accuracy"]), f"{line['seconds']:.0f}"


def told_apart(line: Figures) -> Row:
    right, seeds = line["right"], line["seeds"]
    return line["start"], f"{right} of {seeds}", f"all {mark(right == seeds)}"


def recall(line: Figures) -> Row:
    fall = line["falls_by"]
    return (
        line["start"],
        line["recipe"],
        str(line["seed"]),
        percent(line["accuracy"]),
        f"{fall:,.0f}" if 100 <= fall < 1e6 else f"{fall:.2g}",
        line["level"],
        line["verdict"],
    )


def reviews(line: Figures) -> Row:
    shown = percent(line["accuracy"])
    return line["recipe"], shown, line["level"], line["verdict"], f"{line['reading_ms']:,}"


def learned(line: Figures) -> Row:
    return (
        line["recipe"],
        line["start"],
        str(line["steps"]),
        f"{line['learned']} of {line['runs']}",
        percent(line["accuracy"]),
        f"{line['before']:.2g}",
        f"{line['after']:.2g}",
        ", ".join(f"{level} {count}" for level, count in line["levels"].items()),
    )


def predicted(line: Figures) -> Row:
    return (
        {"classify": "classifier", "language": "language model"}[line["part"]],
        line["level"],
        f"{line['learned']} of {line['runs']}",
        percent(line["accuracy"]),
    )


def gradients_on_text(line: Figures) -> Row:
    curve = {int(step): value for step, value in line["curve"].items()}
    shown = tuple(f"{curve[step]:.2g}" for step in TEXT_DISTANCES)
    return (line["recipe"], f"{line['perplexity']:.1f}", *shown, line["level"], line["verdict"])


def ensemble(line: Figures) -> Row:
    """Single models, the ensemble, its gain with an interval, and how it is explained."""
    if "error" in line:
        return line["data"], *["–"] * 4, f"failed: {line['error']}", *["–"] * 3
    scale = 1 if line["metric"] in ("bleu", "chrf") else 100
    explained = line.get("aopc_gain", {})
    return (
        line["data"],
        line["recipe"],
        line["metric"],
        averaged([scale * value for value in line["singles"]]),
        f"{scale * line['ensemble']:.2f}",
        gained(line["gain"], scale),
        ", ".join(f"{method} {value:+.3f}" for method, value in explained.items()) or "–",
        f"{line['texts']:,}",
        str(line["n"]),
    )


def gained(gain: list[float] | None, scale: float = 100) -> str:
    """A gain with its interval, and whether that leaves out zero."""
    if gain is None:
        return "–"
    value, low, high = (scale * number for number in gain)
    told = "apart" if low > 0 or high < 0 else "within noise"
    return f"{value:+.2f} [{low:+.2f}, {high:+.2f}], {told}"


def balanced(line: Figures) -> Row:
    """Macro-F1 of one way to balance classes, and its gain over none."""
    spread = f" ± {percent(line['sd'])}" if line["sd"] is not None else ""
    return (
        line["data"],
        f"{line['classes']} ({line['largest']}:{line['smallest']})",
        line["recipe"],
        line["balance"] + (", chosen on dev" if line["chosen"] else ""),
        f"{percent(line['macro_f1'])}{spread}",
        gained(line.get("gain")),
        percent(line["accuracy"]),
        str(line["n"]),
    )


def page_size(line: Figures) -> Row:
    size, bar = line["value"] / 1e6, line["bar"] / 1e6
    return line["page"], f"{size:.2f}", verdict(size, bar, above=False)


def page_layout(line: Figures) -> Row:
    keys = ("requests", "console", "wide", "clipped", "overlaps", "outside", "controls")
    counts = [str(len(line[key])) for key in keys]
    return line["page"], str(line["width"]), line["scheme"], *counts, f"all 0 {mark(line['good'])}"


COMPARE = Section(
    "Recommendations of `weft compare`",
    "`weft compare TRAIN TEST` with only a time limit. Test accuracy in percent, "
    "mean ± standard deviation over seeds; a 95 % bootstrap interval over test "
    "texts, and p of a paired test against the best. The bars, on banking77, are for "
    "the best recipe and for tfidf.",
    (
        Table(
            "row",
            ("recipe", "accuracy", "interval", "p", "bar", "seeds", "remark"),
            compared,
            by="data",
        ),
        Table(
            "one command",
            (
                *("data", "minutes", "bar", "report MB", "bar"),
                *("accuracy recorded", "by `weft evaluate`", "bar"),
            ),
            one_command,
            (
                "The whole command, and the recommended model evaluated again by `weft "
                "evaluate`, which must agree to the last digit."
            ),
        ),
    ),
)
LATENCY = Section(
    "Reported latency",
    "Median latency of one text at a time in milliseconds: in the report, and in "
    "another process that loads the saved model and times `Predictor` (median of "
    "three such processes).",
    (
        Table(
            "latency",
            ("recipe", "reported ms", "outside ms", "ratio", "bar"),
            latency,
            by="data",
        ),
    ),
)
INTERRUPT = Section(
    "Resume after a kill",
    "SIGKILL at random times during `weft compare` on the built-in reviews, then a "
    "run to the end, compared with one that was never interrupted.",
    (
        Table(
            "interruption",
            (
                *("kills", "trials", "finished before the last run", "done twice", "bar"),
                "final table",
            ),
            interruption,
        ),
    ),
)
SCALE = Section(
    "Scaling of `weft compare`",
    "`weft compare --recipes tfidf,fasttext` on generated files. Seconds and peak "
    "memory are for the command with all its processes; training starts after the "
    "data have been checked and split.",
    (
        Table(
            "scale",
            (
                *("rows", "MB", "seconds", "training began at", "seconds of training", "peak GB"),
                "accuracy",
            ),
            scale,
        ),
        Table("scale ratio", ("rows", "seconds", "bar"), times),
    ),
)
DOCTOR = Section(
    "Findings of `weft check`",
    "50 exact and 50 near duplicates of training texts are planted in test. The near "
    "ones have one word changed, another case or extra spaces (or all of these); the "
    "new word is drawn from running words or from distinct words, which makes it "
    "rare. The bar is for the mean on TREC.",
    (
        Table(
            "planted copies found of 100",
            ("data", "near copies", "new word", "found of 100", "bar", "least–most", "n"),
            leaks,
        ),
        Table(
            "leaks reported, untouched",
            ("data", "test texts", "exact copies", "near copies", "bar"),
            untouched,
            (
                "The same files with nothing planted: near duplicates beyond the true ones "
                "are false alarms. All of TREC's are listed below, and the nearest of the "
                "others."
            ),
        ),
        Table(
            "near copies in the untouched files",
            ("data", "score", "in test", "in train"),
            near_pair,
        ),
        Table("copies in the untouched files", ("data", "in test", "in train"), exact_pair),
        Table(
            "planted label typos found of 5",
            ("data", "least found of 5", "bar", "right label named", "false alarms", "n"),
            typos,
            (
                "Five typos planted in labels (letters swapped, dropped, doubled or "
                "replaced, case, spaces, plural), and the labels unchanged."
            ),
        ),
        Table("label typos reported, untouched", ("data", "labels", "false alarms"), sound_labels),
        Table(
            "doctor time",
            ("rows", "CPU seconds", "peak GB", "near duplicates found"),
            doctor_time,
            ("Generated texts of 4 to 20 words, one in a hundred a near duplicate."),
        ),
        Table("doctor time ratio", ("rows", "seconds"), doctor_ratio),
        Table(
            "MinHash and index of questions",
            ("library", "texts", "seconds", "recall", "candidates a text"),
            signatures,
            "The two libraries that propose pairs, on TREC with one word changed.",
        ),
    ),
)
EXPLAIN = Section(
    "Explanations of a planted word",
    "Recipes trained on texts in which one planted word decides the label. Top 1 and "
    "top 3: the percentage of correct answers whose decisive word has the largest, "
    "or one of the three largest, weights. AOPC: the mean fall of the answer's "
    "probability as words are removed in the order of their weights, next to random "
    "order. In brackets 95 % intervals; the gain must be above 0.",
    (
        Table(
            "planted words",
            (
                *("recipe", "method", "top 1", "top 3", "bar", "AOPC", "random order", "gain"),
                *("bar", "ms a text", "n"),
            ),
            planted_words,
        ),
        Table(
            "planted training",
            ("recipe", "accuracy", "seconds of training"),
            planted_training,
            ("The explained models."),
        ),
    ),
)
HEALTH = Section(
    "Detection of vanishing gradients",
    "The label is the first word of a text, 60 to 64 filler words follow, and the "
    "pool reads the last state. With strong inputs and open forget gates the "
    "gradient of an Elman network vanishes and that of an LSTM does not: one verdict "
    "must be bad, the other good. The recipes' own initialisation is milder on the "
    "Elman network and has no bar.",
    (
        Table("gradients told apart", ("start", "seeds told apart", "bar"), told_apart),
        Table(
            "gradients on recall",
            ("start", "recipe", "seed", "accuracy", "falls by over 60 steps", "level", "verdict"),
            recall,
        ),
        Table(
            "gradients on reviews",
            ("recipe", "accuracy", "level", "verdict", "ms a reading"),
            reviews,
            "All neural recipes on the built-in reviews, after two epochs.",
        ),
    ),
)
LEARNED_COLUMNS = (
    *("recipe", "start", "words back", "learned", "accuracy", "gradient before", "after"),
    "level",
)
TEXT_DISTANCES = (5, 10, 20, 40, 60)
VERDICTS = Section(
    "What gradient verdicts predict",
    "Elman against LSTM. Classifiers label a text by its first word, language models end a "
    "sentence with it; filler lies between. Learned: accuracy 0.9 or more. The gradient is that of "
    "the first word relative to the last, before and after training (median); the verdict takes "
    "the weaker. Own: the recipes' initialisation, an orthogonal recurrence with small word "
    "vectors; strong inputs: word vectors of deviation 1; open gates: forget bias 4. The "
    "thresholds were chosen on seeds 1 to 5, the classifiers here have seeds 6 to 10.",
    (
        Table(
            "verdict against what is learned",
            ("model", "verdict", "learned", "accuracy"),
            predicted,
            "A gradient that arrives is needed, but does not suffice: within 60 epochs the LSTM "
            "language model did not learn 40 words, though its gradient reaches them.",
        ),
        Table(
            "what is learned: classify",
            (
                "recipe",
                "start",
                "words back",
                "learned",
                "accuracy",
                "gradient before",
                "after",
                "level",
            ),
            learned,
            "The lecture holds where the way is long or the inputs are strong. At 20 words the "
            "orthogonal start lets both networks learn. An LSTM with forget bias 1 loses its "
            "gradient to strong inputs, too; with open gates it always learned.",
        ),
        Table(
            "what is learned: language",
            (
                "recipe",
                "start",
                "words back",
                "learned",
                "accuracy",
                "gradient before",
                "after",
                "level",
            ),
            learned,
        ),
        Table(
            "gradient verdict: text",
            (
                "recipe",
                "perplexity",
                *(f"{k} back" for k in (5, 10, 20, 40, 60)),
                "level",
                "verdict",
            ),
            gradients_on_text,
            "60,000 words of Tiny Shakespeare, 100 hidden units, windows of 70 words, 6 epochs.",
        ),
    ),
)
ENSEMBLES = Section(
    "Ensembles of seeds",
    "The same recipe trained with several seeds and joined by `weft.ensemble`, which averages "
    "probabilities, those of every token for translations. Single models: mean ± standard "
    "deviation. The gain is over their mean, with the 95 % interval of a paired bootstrap over the "
    "test texts. Every ensemble was saved, loaded again, which replays its recorded answers, and "
    "explained: AOPC gained over a random order of words, by method. Percent, or BLEU.",
    (
        Table(
            "ensembles",
            (
                *("data", "recipe", "metric", "single", "ensemble", "gain", "AOPC gain"),
                *("test texts", "n"),
            ),
            ensemble,
        ),
    ),
)
IMBALANCE = Section(
    "Uneven classes",
    "What `train.balance` gains in macro-F1 on test: CLINC150 thinned to a long tail from 100 to 2 "
    "texts a class, SST-2 thinned to one positive sentence for fifty negative ones, and the fine "
    "labels of TREC as they come. Dev is thinned like train, test is whole. A seed also draws what "
    "stays (of TREC, what is dev). The gain is over no balancing, with the 95 % interval "
    "of a paired bootstrap over the test texts, of the mean over seeds. Percent.",
    (
        Table(
            "imbalance",
            (
                *("data", "classes (largest:smallest)", "recipe", "train.balance", "macro-F1"),
                *("gain", "accuracy", "n"),
            ),
            balanced,
        ),
    ),
)
JOINT = Section(
    "Intents and slots in one model",
    "Test figures of `joint-bilstm-crf` / of two models with the same embedders and encoder, one "
    "for the intent and one for the slots, and the gain with the 95 % interval of a paired "
    "bootstrap over the test sentences, mean over seeds. CamRest676 is user turns whose intents "
    "come from their dialogue acts, with the values that stand in the turn. Percent; seconds to "
    "answer the test part.",
    (
        Table(
            "joint",
            (
                *("data", "intent accuracy", "slot F1", "exact match", "bar"),
                *("seconds, one / two models", "n"),
            ),
            joint_model,
        ),
    ),
)
HIERARCHY = Section(
    "Labels in a tree",
    "Accuracy of labels that are paths, by level, with the loss of inner nodes at several "
    "`task.ancestor_weight`s, and the gain over none with the 95 % interval of a paired bootstrap "
    "over the test texts, mean over seeds. TREC is coarse > fine, 6 > 50 classes; `trec/4` has a "
    "quarter of its training questions; `requests` are generated, domain > intent. Percent.",
    (
        Table(
            "hierarchy",
            (
                *("data", "recipe", "weight", "dev, levels 1 / 2", "test, level 1", "gain"),
                *("test, level 2", "gain", "n"),
            ),
            label_tree,
        ),
        Table(
            "hierarchy, weight 0",
            ("data", "recipe", "answers of a tree with weight 0 and of flat labels"),
            tree_check,
        ),
    ),
)
CALIBRATION = Section(
    "Confidences",
    "Test figures of models whose temperature was fitted on dev: expected calibration error (ECE, "
    "15 bins) before and after, the fraction of test texts that `abstain_at` 0.90 and 0.95 answers "
    "with the accuracy of those answers, the largest fraction that could be answered at 95 % (read "
    "off test), and coverage and mean size of label sets at 0.90. The first seed has the official "
    "test part; for the others dev and test are divided again. SST-2 is trained on sentences. "
    "Percent.",
    (
        Table(
            "calibration",
            (
                *("data", "recipe", "accuracy", "ECE before", "ECE after", "T", "answered at 90"),
                *("answered at 95", "possible at 95", "label sets at 90", "n"),
            ),
            calibrated,
        ),
        Table(
            "calibration, mean",
            ("runs", "ECE before", "ECE after", "bar", "runs not raised", "label sets at 90"),
            mean_calibration,
            "The mean over all runs.",
        ),
        Table(
            "calibration, promise",
            (
                "promise",
                "runs",
                "promised",
                "kept on test",
                "bar",
                "significantly broken",
                "answered",
                "accuracy",
            ),
            promised,
            "A promise is kept if the accuracy of the answers on test is not below it; it is "
            "significantly broken if an exact binomial test at 5 % says so. Where dev does not "
            "support a promise, none is made.",
        ),
        Table(
            "out of scope",
            ("recipe", "out of scope", "in-scope accuracy", "recall", "precision", "accuracy"),
            outside,
            "CLINC150 with its out-of-scope queries: 100 in dev, 1,000 in test. `class`: 100 in "
            "train, an extra class only; `trained`: the same with `data.out_of_scope`; `unseen`: "
            "none in train.",
            sort=True,
        ),
    ),
)
REPORT = Section(
    "Layout of the report",
    "Checked in headless Chromium: requests that leave the page, console errors, "
    "boxes wider than the page, clipped text, overlapping or out-of-range chart "
    "labels, and controls that do nothing.",
    (
        Table("page size", ("page", "MB", "bar"), page_size),
        Table(
            "page layout",
            (
                *("page", "width", "scheme", "requests", "console", "wide", "clipped", "overlaps"),
                *("outside", "controls", "bar"),
            ),
            page_layout,
        ),
    ),
)
SECTIONS = (
    *(COMPARE, LATENCY, INTERRUPT, SCALE, ENSEMBLES, IMBALANCE, CALIBRATION, JOINT),
    *(HIERARCHY, DOCTOR, EXPLAIN),
    *(HEALTH, VERDICTS),
    REPORT,
)
