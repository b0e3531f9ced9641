"""How fast is plain text annotated, and how fast by spaCy? One JSON line a pipeline and repeat.

    python bench/annotate.py --data DATA --models SPLITTER,PARSER,… [--sentences 10000]

The texts are the paragraphs of the train part of UD English-EWT, `--sentences` of them in all. The
splitter is timed alone, then with each other model; spaCy is a pipeline with the default
architecture of its small CPU models (a convolutional tok2vec, a tagger, a morphologizer and a
transition parser), trained for `--steps` updates on the same treebank: enough for its speed, not
for its accuracy. All read the same texts in the same process, one after the other, `--repeats`
times. `cpu` is in words per second of CPU time, which other work on the machine changes less.
"""

import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from record import Record, options

import weft
from weft.annotate import Pipeline
from weft.text.formats.conllu import read_conllu
from weft.text.formats.structured import group_paragraphs, join_sentences


def read_texts(path: str, sentences: int) -> list[str]:
    """Paragraphs that have this many sentences together."""
    return [join_sentences(g).text for g in group_paragraphs(islice(read_conllu(path), sentences))]


def train_spacy(path: str, steps: int, seed: int = 0) -> Any:
    """A pipeline of tags, morphology and dependencies, trained a little."""
    import spacy
    from spacy.tokens import Doc
    from spacy.training import Example

    nlp = spacy.blank("en")
    nlp.add_pipe("tok2vec")
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": 96, "upstream": "*"}
    for name in ("tagger", "morphologizer", "parser"):
        nlp.add_pipe(name, config={"model": {**DEFAULTS[name], "tok2vec": listener}})
    examples = []
    for sentence in islice(read_conllu(path), 2000):
        words = sentence.column("form")
        heads = [h - 1 if h else k for k, h in enumerate(sentence.heads)]
        reference = Doc(
            nlp.vocab, words, tags=sentence.column("xpos"), pos=sentence.column("upos"),
            morphs=[f if f != "_" else "" for f in sentence.column("feats")], heads=heads,
            deps=[name.split(":")[0] for name in sentence.column("deprel")],
        )  # fmt: skip
        examples.append(Example(Doc(nlp.vocab, words), reference))
    optimizer = nlp.initialize(lambda: examples)
    draw = random.Random(seed)
    for _ in range(steps):
        nlp.update(draw.sample(examples, 32), sgd=optimizer)
    return nlp


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
    parser = options(__doc__, 3)
    parser.add_argument("--data", required=True, help="the folder of the benchmark data")
    parser.add_argument("--models", required=True, help="model folders, comma-separated")
    parser.add_argument("--sentences", type=int, default=10_000)
    parser.add_argument(
        "--steps", type=int, default=60, help="updates of spaCy's pipeline; 0: none"
    )
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    record = Record(args.record)
    torch.set_num_threads(args.threads)
    path = f"{args.data}/parsing/ud_english_ewt/en_ewt-ud-train.conllu.gz"
    texts = read_texts(path, args.sentences)
    folders = args.models.split(",")
    splitter, *others = ({Path(one).name: weft.load(one, device="cpu")} for one in folders)
    peer = train_spacy(path, args.steps) if args.steps else None
    ways = [splitter, *(splitter | other for other in others)]
    for repeat in range(args.repeats):
        for models in ways:
            figures = measure(texts, partial(run_pipeline, Pipeline(models)))
            record.line("words per second", models=[*models], repeat=repeat,
                        sentences=args.sentences, threads=args.threads, **figures)  # fmt: skip
        if peer is not None:
            figures = measure(texts, lambda some: sum(map(len, peer.pipe(some, batch_size=256))))
            record.line("words per second", models=["spacy"], repeat=repeat,
                        sentences=args.sentences, threads=args.threads, **figures)  # fmt: skip


if __name__ == "__main__":
    main()
