"""How fast is plain text annotated, layer by layer, and how fast by spaCy at which accuracy?

    python bench/annotate.py --data DATA --models SPLITTER,PARSER,… [--sentences 10000]

The texts are the paragraphs of the train part of UD English-EWT, `--sentences` of them in all.
Three kinds of pipelines read them in the same process, one after the other, `--repeats` times: the
first model, which splits sentences, with each parser; all models together (without the parsers
named by `--also`), with the words per second of each; and spaCy. `cpu` is in words per second of
CPU time, which other work on the machine changes less.

spaCy's pipeline has the default architecture of its small CPU models (a convolutional tok2vec, a
tagger, a morphologizer and a transition parser), trained on the same treebank for `--steps`
updates of 32 sentences and kept in `--peer FOLDER`. The test part, words given, says how well each
pipeline tags and parses.
"""

import argparse
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import Record, options

import weft
from weft.annotate import Pipeline
from weft.text.formats.conllu import Sentence, read_conllu
from weft.text.formats.structured import group_paragraphs, join_sentences

Scored = tuple[Sequence[str], Sequence[str], Sequence[int], Sequence[str]]  # upos, xpos, heads, …


def read_texts(path: str, sentences: int) -> list[str]:
    """Paragraphs that have this many sentences together."""
    return [join_sentences(g).text for g in group_paragraphs(islice(read_conllu(path), sentences))]


def train_spacy(path: str, steps: int, folder: str, seed: int = 0) -> Any:
    """A pipeline of tags, morphology and dependencies, trained or read from its folder."""
    import spacy
    from spacy.tokens import Doc
    from spacy.training import Example

    if folder and Path(folder).is_dir():
        return spacy.load(folder)
    nlp = spacy.blank("en")
    nlp.add_pipe("tok2vec")
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": 96, "upstream": "*"}
    for name in ("tagger", "morphologizer", "parser"):
        nlp.add_pipe(name, config={"model": {**DEFAULTS[name], "tok2vec": listener}})
    examples = []
    for sentence in read_conllu(path):
        words = sentence.column("form")
        heads = [h - 1 if h else k for k, h in enumerate(sentence.heads)]
        reference = Doc(
            nlp.vocab, words, tags=sentence.column("xpos"), pos=sentence.column("upos"),
            morphs=[f if f != "_" else "" for f in sentence.column("feats")], heads=heads,
            deps=[name.split(":")[0] for name in sentence.column("deprel")],
        )  # fmt: skip
        examples.append(Example(Doc(nlp.vocab, words), reference))
    optimizer = nlp.initialize(lambda: examples)
    draw, order = random.Random(seed), []
    for _ in range(steps):
        if len(order) < 32:
            order = draw.sample(examples, len(examples))
        nlp.update([order.pop() for _ in range(32)], sgd=optimizer, drop=0.1)
    with nlp.use_params(optimizer.averages):
        if folder:
            nlp.to_disk(folder)
            return spacy.load(folder)
    return nlp


def answer_spacy(nlp: Any, sentences: Sequence[Sentence]) -> list[Scored]:
    """The tags and heads of sentences whose words are given."""
    from spacy.tokens import Doc

    docs = nlp.pipe(Doc(nlp.vocab, one.column("form")) for one in sentences)
    return [
        (
            [t.pos_ for t in doc], [t.tag_ for t in doc],
            [0 if t.head.i == t.i else t.head.i + 1 for t in doc], [t.dep_.lower() for t in doc],
        )
        for doc in docs
    ]  # fmt: skip


def answer_weft(parser: weft.Predictor, sentences: Sequence[Sentence]) -> list[Scored]:
    """The same by a parser that tags, too."""
    examples = []
    for one in sentences:
        words = one.column("form")
        ends = list(accumulate(len(word) + 1 for word in words))
        places = tuple(
            (end - 1 - len(word), end - 1) for word, end in zip(words, ends, strict=True)
        )
        examples.append(weft.Example(" ".join(words), words=tuple(words), places=places))
    names = [name for name in parser.space.names if name != "deprel"]
    upos, xpos = names.index("upos"), names.index("xpos")
    out: list[Scored] = []
    for answer in parser(examples):
        found = answer.structure
        assert found is not None
        rows = [tag.split(" ") for tag in found.tags]
        tags = [row[upos] for row in rows], [row[xpos] for row in rows]
        out.append((*tags, found.heads, [name.split(":")[0] for name in found.relations]))
    return out


def score(sentences: Sequence[Sentence], answers: Sequence[Scored]) -> dict[str, float]:
    """Percent of words with the right tag, head, and head and relation (without subtypes)."""
    rows = []
    for one, (upos, xpos, heads, relations) in zip(sentences, answers, strict=True):
        gold = [name.split(":")[0] for name in one.column("deprel")]
        columns = zip(one.column("upos"), one.column("xpos"), one.heads, gold,
                      upos, xpos, heads, relations, strict=True)  # fmt: skip
        rows += [(a == e, b == f, c == g, c == g and d == h) for a, b, c, d, e, f, g, h in columns]
    means = 100 * np.mean(rows, 0)
    return dict(zip(("upos", "xpos", "uas", "las"), means.round(2).tolist(), strict=True))


DEFAULTS = {
    "tagger": {"@architectures": "spacy.Tagger.v2", "nO": None, "normalize": False},
    "morphologizer": {"@architectures": "spacy.Tagger.v2", "nO": None, "normalize": False},
    "parser": {
        "@architectures": "spacy.TransitionBasedParser.v2", "state_type": "parser",
        "extra_state_tokens": False, "hidden_width": 128, "maxout_pieces": 3,
        "use_upper": True, "nO": None,
    },
}  # fmt: skip


def measure(texts: Sequence[str], annotate: Callable[[Sequence[str]], int]) -> dict[str, int]:
    """Words, and words per second on the clock and of CPU time."""
    began, cpu = time.perf_counter(), time.process_time()
    words = annotate(texts)
    seconds, used = time.perf_counter() - began, time.process_time() - cpu
    return {"words": words, "per_second": round(words / seconds), "cpu": round(words / used)}


def run_pipeline(pipeline: Pipeline, texts: Sequence[str]) -> int:
    return sum(len(one.words) for one in pipeline.stream(texts))


def main() -> None:
    args = parse_options()
    record = Record(args.record)
    torch.set_num_threads(args.threads)
    folder = f"{args.data}/parsing/ud_english_ewt/en_ewt-ud"
    texts = read_texts(f"{folder}-train.conllu.gz", args.sentences)
    test = list(read_conllu(f"{folder}-test.conllu.gz"))
    splitter, *others = (
        {Path(one).name: weft.load(one, device="cpu")} for one in args.models.split(",")
    )
    also = [{Path(one).name: weft.load(one, device="cpu")} for one in args.also.split(",") if one]
    parsers = [
        one
        for one in (*others, *also)
        if next(iter(one.values())).config["task"]["kind"] == "parse"
    ]
    for one in parsers:
        for name, parser in one.items():
            figures = score(test, answer_weft(parser, test))
            record.line("annotation accuracy", system=name, **figures, sentences=len(test))
    peer = None
    if args.steps:
        peer = train_spacy(f"{folder}-train.conllu.gz", args.steps, args.peer)
        figures = score(test, answer_spacy(peer, test))
        record.line("annotation accuracy", system="spacy", **figures, sentences=len(test))
    every = {name: model for one in (splitter, *others) for name, model in one.items()}
    about = {"sentences": args.sentences, "threads": args.threads}
    for repeat in range(args.repeats):
        for one in parsers:
            figures = measure(texts, partial(run_pipeline, Pipeline(splitter | one)))
            record.line("words annotated per second", system=", ".join(splitter | one),
                        repeat=repeat, **about, **figures)  # fmt: skip
        if peer is not None:
            figures = measure(texts, lambda some: sum(map(len, peer.pipe(some, batch_size=256))))
            record.line("words annotated per second", system="spacy",
                        repeat=repeat, **about, **figures)  # fmt: skip
        pipeline = Pipeline(every)
        figures = measure(texts, partial(run_pipeline, pipeline))
        record.line("words annotated per second", system="all layers",
                    repeat=repeat, **about, **figures)  # fmt: skip
        speeds = {next(iter(splitter)): pipeline.segmentation}
        speeds |= {model.name: model.speed for model in pipeline.annotators}
        for name, speed in speeds.items():
            record.line("words per second of a layer", model=name, repeat=repeat, **about,
                        words=speed.words, per_second=round(speed.words_per_second))  # fmt: skip


def parse_options() -> argparse.Namespace:
    parser = options(__doc__, 3)
    parser.add_argument("--data", required=True, help="the folder of the benchmark data")
    parser.add_argument("--models", required=True, help="model folders, comma-separated")
    parser.add_argument("--also", default="", help="other parsers, timed with the splitter only")
    parser.add_argument("--sentences", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=4000, help="of spaCy's training; 0: no spaCy")
    parser.add_argument("--peer", default="", help="folder of spaCy's pipeline, trained once")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    main()
