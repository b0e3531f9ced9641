"""The claims on the first page of the benchmarks, read off the lines of bench/results."""

import re
from collections.abc import Callable
from statistics import mean, stdev
from typing import Any, NamedTuple

from tables import Figures, mark, ranged


class Result(NamedTuple):
    """What was measured, beside whom, whether it keeps the bar, and the lines it comes from."""

    shown: str
    peer: str
    kept: bool
    lines: list[Figures]


class Headline(NamedTuple):
    """One promise, made before measuring."""

    claim: str
    bar: str  # "" if nothing was promised
    page: str  # of the ledger
    measure: Callable[[list[Figures]], Result]


def select(lines: list[Figures], **wanted: Any) -> list[Figures]:
    """The lines with these values; a LookupError if there is none."""
    chosen = [line for line in lines if all(line.get(k) == v for k, v in wanted.items())]
    if not chosen:
        raise LookupError(f"no result with {wanted}")
    return chosen


def faster(claim: str, bar: float, peer: str, page: str, key: str, **wanted: Any) -> Headline:
    """A ratio to a peer that ran in the same process; the median counts, as it is shown."""

    def measure(lines: list[Figures]) -> Result:
        line = select(lines, **wanted)[0]
        kept = round(line[key]["median"], 2) >= bar
        return Result(ranged(line[key], 2, "×"), peer, kept, [line])

    return Headline(claim, f"≥ {bar:g}×", page, measure)


def at_least(
    claim: str, bar: float, page: str, key: str, peer: str = "–", scale: float = 1, **wanted: Any
) -> Headline:
    """A mean over seeds, with its standard deviation."""

    def measure(lines: list[Figures]) -> Result:
        chosen = select(lines, **wanted)
        values = [scale * line[key] for line in chosen]
        spread = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
        return Result(f"{mean(values):.2f}{spread}", peer, mean(values) >= bar, chosen)

    return Headline(claim, f"≥ {bar:g}", page, measure)


def analogies(lines: list[Figures]) -> Result:
    wanted = {"question": "vectors quality", "method": "skipgram", "list": "questions-words"}
    ours, theirs = (select(lines, **wanted, system=name)[0] for name in ("weft", "gensim"))
    shown, peer = (f"{100 * line['value']['median']:.1f} %" for line in (ours, theirs))
    kept = ours["value"]["median"] >= theirs["value"]["low"]
    return Result(shown, f"gensim: {peer}", kept, [ours])


def trec(lines: list[Figures]) -> Result:
    wanted = {"question": "fine-tuning trial", "data": "trec", "variant": "recipe", "examples": 0}
    wanted["start"] = "pretrained"
    ours, theirs = (select(lines, **wanted, system=name) for name in ("weft", "transformers"))
    means = [mean(line["test_accuracy"] for line in one) for one in (ours, theirs)]
    return Result(f"{means[0]:.2f} %", f"transformers: {means[1]:.2f} %", means[0] >= 96, ours)


def perplexity(lines: list[Figures]) -> Result:
    (line,) = select(lines, question="KenLM's lmplz, order 5, prune []")
    kept = line["relative_difference"] < line["bar"]
    return Result(f"{line['weft']:.4f}", f"KenLM: {line['kenlm']:.4f}", kept, [line])


def decisive_words(lines: list[Figures]) -> Result:
    wanted = {"question": "planted words", "recipe": "bilstm-attention"}
    ours = select(lines, **wanted, method="integrated-gradients")[0]
    theirs = select(lines, **wanted, method="attention")[0]
    peer = f"attention weights: {100 * theirs['top3']:.1f} %"
    return Result(f"{100 * ours['top3']:.1f} %", peer, True, [ours])


def repeated_trials(lines: list[Figures]) -> Result:
    (line,) = select(lines, question="interruption")
    return Result(str(line["repeated"]), "–", line["repeated"] == 0, [line])


def import_time(lines: list[Figures]) -> Result:
    (line,) = select(lines, question="start", what="import weft")
    seconds = line["beyond_bare_python"]["median"]
    return Result(f"{seconds:.3f} s", "–", seconds < line["bar"], [line])


def decoding(claim: str, bar: float, model: str, batch: int, peer: str) -> Headline:
    way = f"weft, graphs, step compiled over {peer}"
    question = f"{model} decoding, bfloat16, batch {batch}, {way}"
    return faster(claim, bar, peer, "decoding-speed", "ratio", question=question)


SPEED = (
    faster("Train a fastText classifier on IMDB", 0.8, "fastText (C++)", "training", "train_ratio",
           question="supervised", data="imdb", system="fasttext"),
    faster("Train skip-gram vectors", 3, "gensim", "vectors", "train_ratio",
           question="speed", method="skipgram", system="gensim"),
    faster("Train sub-word vectors", 2, "fastText (C++)", "vectors", "train_ratio",
           question="speed", method="fasttext", system="fasttext"),
    faster("Training loop, LSTM, two threads", 0.95, "bare PyTorch loop", "training",
           "speed_to_ready_made", question="overhead", recipe="lstm", threads=2),
    faster("Training step of a CRF", 1.5, "pytorch-crf", "tagging", "times_pytorch-crf",
           question="training, all of one length"),
    faster("Tag raw text with `tagger-cnn`", 1, "spaCy", "parsing", "times_spacy",
           question="tagging speed, the test part", system="tagger-cnn"),
    faster("Translate a sentence on a CPU, five beams", 2.5, "transformers", "decoding-speed",
           "ratio", question="batch 1: weft, times transformers"),
    faster("The same", 0.9, "CTranslate2", "decoding-speed", "ratio",
           question="batch 1: weft, times ctranslate2"),
    faster("Sentence vectors of MiniLM on a CPU", 1.3, "sentence-transformers", "encoding-speed",
           "ratio", question="encoding: weft, times sentence-transformers"),
    faster("Fine-tune MiniLM on a CPU", 1.2, "transformers", "encoding-speed", "ratio",
           question="fine-tuning: weft, times transformers"),
    decoding("Generate with GPT-2 small on a GPU, one text", 5, "gpt", 1, "transformers, compiled"),
    decoding("Translate 64 sentences on a GPU, five beams", 6, "marian", 64, "transformers"),
    faster("Pre-train BERT-base on a GPU, 256 × 128", 1.5, "transformers, compiled", "pretrained",
           "ratio", question="bert training, 256 × 128, weft over transformers"),
    faster("Train GPT-2 small on a GPU", 1.35, "transformers, compiled", "decoding-speed", "ratio",
           question="gpt training, weft over transformers"),
)  # fmt: skip

QUALITY = (
    at_least("`cnn` on TREC, accuracy", 91, "training", "test_accuracy",
             "Kim (2014), random vectors: 91.2", question="quality", data="trec", recipe="cnn"),
    Headline("MiniLM fine-tuned on TREC, accuracy", "≥ 96 %", "pretrained", trec),
    at_least("`bert-towers` over MiniLM on STS-B, Spearman", 86, "pretrained", "test_spearman",
             question="fine-tuning trial", data="stsb", variant="towers", system="weft"),
    at_least("`parser` on English-EWT, LAS", 85, "parsing", "test_las",
             question="parsing trial", recipe="parser", variant="recipe"),
    at_least("`constituency` on EWT, bracket F1", 88, "parsing", "test_f1",
             question="parsing trial", recipe="constituency", variant="recipe"),
    at_least("`tagger-bilstm-crf` on CoNLL-2000, span F1", 93.5, "tagging", "test",
             question="tagging", data="conll2000", recipe="tagger-bilstm-crf"),
    Headline("Skip-gram vectors on analogies", "not below", "vectors", analogies),
    Headline("Perplexity of `kneser-ney`", "equal to 0.01 %", "language", perplexity),
    at_least("Leaked duplicates that `weft check` finds, of 100", 95, "compare", "mean",
             question="planted copies found of 100", data="trec", word="any running word",
             near="a third each: word, case, spaces"),
    Headline("Decisive word among the top three of `weft explain`", "", "compare", decisive_words),
    Headline("Trials that `weft compare` repeats after `kill -9`", "0", "compare", repeated_trials),
    Headline("`import weft` beyond the start of Python", "< 0.3 s", "training", import_time),
)  # fmt: skip


def row(headline: Headline, lines: list[Figures]) -> tuple[str, ...]:
    """Claim, promise, result, competitor and command."""
    result = headline.measure(lines)
    verdict = f" {mark(result.kept)}" if headline.bar else ""
    script = re.search(r"bench/(\w+\.py)", result.lines[0]["command"])[1]
    claim = f"[{headline.claim}]({headline.page}.md)"
    shown = f"{result.shown}{verdict}".replace(" ", "\N{NO-BREAK SPACE}")
    return claim, headline.bar or "–", shown, result.peer, f"`{script}`"
