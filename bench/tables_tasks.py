"""How the figures of coreference, speech, captions and annotation become tables."""

import statistics

from tables import Figures, Row, Section, Table, averaged, verdict
from tables_vectors import Grid, Sheet

CONLL = {  # CoNLL F1 on test that was promised
    ("ontogum", "coref-bert"): 52.0,
    ("litbank", "coref-bert"): 60.0,
    ("litbank", "coref-bilstm"): 50.0,
}
ACCURACY, ERRORS = {"speech, takes": 97.0, "speech, speakers": 80.0}, {"speech, strings": 6.0}
EXACT, ATTENTION = 95.0, 80.0
DATA = {"ontogum": "OntoGUM", "litbank": "LitBank, ten folds"}
METRICS = ("conll", "muc_f1", "b_cubed_f1", "ceaf_e_f1", "lea_f1", "mention_f1")
PARTS = {"speech, takes": "takes 0–4", "speech, speakers": "speaker left out",
         "speech, strings": "3 to 5 digits"}  # fmt: skip


def coreference(lines: list[Figures]) -> list[Sheet]:
    """Results on test; then what was tried on dev."""
    groups: dict[tuple[str, str, str], list[Figures]] = {}
    for line in lines:
        if "error" not in line:
            groups.setdefault((line["data"], line["recipe"], line["variant"]), []).append(line)
    rows: list[Row] = []
    tried: list[Row] = []
    for (data, recipe, variant), found in sorted(groups.items()):
        name, _, vectors = data.partition("+")
        named = ", ".join(filter(None, [recipe, vectors, "" if variant == "recipe" else variant]))
        last = (
            averaged([one["dev_conll"] for one in found]),
            str(len(found)),
            f"{seconds(found):.0f}",
        )
        if "test_conll" not in found[0]:
            tried.append((DATA[name], named, *last))
        for part, about in (("test", ""), ("test_unseen_genres", ", test2")):
            if f"{part}_conll" in found[0]:
                values = {key: [one[f"{part}_{key}"] for one in found] for key in METRICS}
                bar = CONLL.get((name, recipe)) if part == "test" else None
                rows.append((
                    DATA[name] + about, named, averaged(values["conll"]),
                    verdict(statistics.mean(values["conll"]), bar),
                    *(f"{statistics.mean(values[key]):.2f}" for key in METRICS[1:]), *last,
                ))  # fmt: skip
    columns = ("data", "recipe", "CoNLL", "bar", "MUC", "B³", "CEAF-e", "LEA", "mentions", "dev",
               "n", "seconds")  # fmt: skip
    sheets = [Sheet("", columns, rows)] if rows else []
    if tried:
        about = "CoNLL F1 on dev; of LitBank, the first fold."
        sheets.append(Sheet("What was tried", ("data", "recipe", *columns[-3:]), tried, about))
    return sheets


def seconds(lines: list[Figures]) -> float:
    return statistics.mean(line["seconds"] for line in lines)


def speech(lines: list[Figures]) -> list[Sheet]:
    """A row for each part, and each speaker that was left out."""
    rows: list[Row] = []
    for line in sorted(lines, key=lambda one: list(PARTS).index(one["question"])):
        question, right, wrong = line["question"], 100 * line["accuracy"], 100 * line["wer"]
        bar = (
            verdict(wrong, ERRORS[question], above=False)
            if question in ERRORS
            else verdict(right, ACCURACY[question])
        )
        rows.append((
            PARTS[question], line.get("speaker", "–"), line["recipe"], f"{right:.1f}",
            f"{wrong:.1f}", bar, f"{100 * line['dev_accuracy']:.1f}", str(line["n"]),
            f"{line['seconds']:.0f}",
        ))  # fmt: skip
    columns = ("test", "speaker", "recipe", "exact %", "WER %", "bar", "dev exact %", "words",
               "seconds")  # fmt: skip
    return [Sheet("", columns, rows)]


def captions(line: Figures) -> Row:
    exact, attention = 100 * line["exact"], 100 * line["attention"]
    kinds = (f"{100 * line[f'attention_{kind}']:.1f}" for kind in ("size", "colour", "shape"))
    return (
        line["recipe"] if line["changes"] == "{}" else line["changes"], line["part"],
        f"{exact:.1f}", verdict(exact, EXACT), f"{100 * line['exact_new']:.1f}",
        f"{attention:.1f}", verdict(attention, ATTENTION), " / ".join(kinds),
        f"{100 * line['chance']:.1f}", f"{line['n']} / {line['words']:,}",
        f"{line['seconds']:.0f}",
    )  # fmt: skip


def accuracy(line: Figures) -> Row:
    figures = (f"{line[key]:.2f}" for key in ("upos", "xpos", "uas", "las"))
    return line["system"], *figures, f"{line['sentences']:,}"


def speeds(lines: list[Figures]) -> list[Sheet]:
    """Words per second of pipelines, then of the layers of the one with all of them."""
    sheets = []
    for title, question, key in (
        ("Pipelines", "words annotated per second", "system"),
        ("Layers of one pipeline", "words per second of a layer", "model"),
    ):
        found: dict[tuple[str, int], list[Figures]] = {}
        for line in lines:
            if line["question"] == question:
                found.setdefault((line[key], line["threads"]), []).append(line)
        rows = [
            (
                name, str(threads), _spread([one["per_second"] for one in own]),
                _spread([one["cpu"] for one in own]) if "cpu" in own[0] else "–",
                f"{own[0]['sentences']:,}", str(len(own)),
            )
            for (name, threads), own in found.items()
        ]  # fmt: skip
        columns = (key, "threads", "words/s", "words/CPU second", "sentences", "n")
        sheets.append(Sheet(title, columns, rows))
    return sheets


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):,.0f} [{min(values):,.0f}, {max(values):,.0f}]"


SECTIONS = (
    Section(
        "Coreference",
        "F1 in percent, mean ± standard deviation over seeds or folds. CoNLL is the mean of MUC, "
        "B³ and CEAF-e. OntoGUM has no singletons; its test2 has genres that training never saw. "
        "LitBank has singletons and no split: documents by index modulo 10 are folds, the next "
        "fold is dev. `coref-bert` starts from all-MiniLM-L6-v2, `coref-bilstm` from nothing; "
        "`vectors` were trained on the text of `lm/` with `weft vectors train`, and stay as they "
        "are. Seconds are for one run on a shared GPU.",
        (Grid(("coreference trial",), coreference),),
    ),
    Section(
        "Speech",
        "Spoken digits (FSDD), six speakers, by CTC with prefix beam search. Exact is the share "
        "of recordings whose transcript is right. Strings of digits are recordings of one speaker "
        "joined; training, dev and test have their own takes.",
        (Grid(tuple(PARTS), speech),),
    ),
    Section(
        "Captions",
        "Scenes of one to three shapes. Exact is the share of captions that are right to the last "
        "word, also of scenes whose caption is not in training. Attention is the share of words "
        "for colour and shape at which the patch with the most attention shows pixels of the "
        "object they describe; chance is that of a random patch. Words for size are not counted: "
        "objects after the first one are always small, so they follow from the words before.",
        (
            Table(
                "captions",
                ("recipe", "part", "exact %", "bar", "new captions %", "attention %", "bar",
                 "size / colour / shape", "chance %", "scenes / words", "seconds"),
                captions,
            ),
        ),
    ),
    Section(
        "Annotation of plain text",
        "Paragraphs of UD English-EWT through several models, sentences and words included. "
        "Accuracy is on the words of the test part. spaCy has the architecture of its small CPU "
        "models, trained on the same treebank; no pre-trained package of its models could be had.",
        (
            Table(
                "annotation accuracy",
                ("system", "UPOS", "XPOS", "UAS", "LAS", "sentences"), accuracy,
            ),
            Grid(("words annotated per second", "words per second of a layer"), speeds),
        ),
    ),
)  # fmt: skip
