"""Does Weft count as the official scorers do? The same answers, scored by both, a line a figure.

    python bench/scorers.py MODEL FILE

MODEL is a parser, of dependencies or of constituents, and FILE its gold CoNLL-U or trees. The peers
are `udtools`, which carries the scorer of the CoNLL 2018 shared task, and `PYEVALB`; install them
with bench/requirements.txt. The scores of taggers are compared in bench/tagging.py.
"""

import argparse
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from record import Record

from weft.predict import load
from weft.predict.evaluate import evaluate
from weft.predict.preprocess import preprocess
from weft.text.annotation.trees import Tree, format, iter_nodes
from weft.text.example import Example, SkipCounter
from weft.text.read import read

NAMES = {"uas": "UAS", "las": "LAS", "clas": "CLAS", "upos": "UPOS", "xpos": "XPOS"}


def dependencies(predictor: Any, file: str) -> dict[str, float]:
    """What the scorer of CoNLL 2018 finds in the answers, written as CoNLL-U."""
    from udtools.udeval import evaluate as scored
    from udtools.udeval import load_conllu_file

    from weft.predict.conllu import fill_columns, tag_columns
    from weft.text.formats.conllu import format, read_conllu

    sentences, names = list(read_conllu(file)), tag_columns(predictor)
    answers = predictor(list(read(file)))
    with tempfile.NamedTemporaryFile("w", suffix=".conllu", encoding="utf-8") as out:
        for sentence, answer in zip(sentences, answers, strict=True):
            out.write(format(fill_columns(sentence, answer.structure, names)))
        out.flush()
        found = scored(load_conllu_file(file), load_conllu_file(out.name))
    tagged = {"uas", "las", "clas", *predictor.space.names[1:]}
    return {ours: found[theirs].f1 for ours, theirs in NAMES.items() if ours in tagged}


def brackets(predictor: Any, examples: list[Example]) -> dict[str, float]:
    """What is right among the brackets that PYEVALB reads, over words that are no punctuation.

    PYEVALB takes a bracket that stands twice, NP over NP around the same words, as one that can be
    right and two that should be; evalb, and so Weft, holds one against one, and this does too.
    """
    from PYEVALB import parser

    answers = predictor(examples)
    right = said = true = 0
    for example, answer in zip(examples, answers, strict=True):
        gold, ours = example.tree, answer.structure.tree
        assert gold is not None
        both = [_written(tree, [n.label for n in iter_nodes(gold) if not n.children])
                for tree in (gold, ours)]  # fmt: skip
        if None in both:
            continue  # punctuation alone
        counts = [
            Counter(parser.create_from_bracket_string(tree).non_terminal_labels) for tree in both
        ]
        right += (counts[0] & counts[1]).total() - 1  # without the bracket around each
        true += counts[0].total() - 1
        said += counts[1].total() - 1
    return {"f1": 2 * right / (true + said), "recall": right / true, "precision": right / said}


def _written(tree: Tree, tags: list[str]) -> str | None:
    """The tree in brackets without punctuation, PRT as ADVP, under one more bracket; or nothing.

    What evalb's parameters leave out is taken out here, since PYEVALB has no such parameters.
    """
    from weft.metrics.structure.brackets import DELETED_LABELS, EQUIVALENT_LABELS

    leaves = iter(reversed(tags))
    done: list[Tree | None] = []
    for node in reversed(list(iter_nodes(tree))):
        if not node.children:
            kept = next(leaves) not in DELETED_LABELS
            done.append(Tree("X", "w") if kept else None)
            continue
        own = [done.pop() for _ in node.children]
        inside = tuple(child for child in own if child is not None)
        label = EQUIVALENT_LABELS.get(node.label, node.label)
        done.append(Tree(label, "", inside) if inside else None)
    return None if done[0] is None else format(Tree("TOP", "", (done[0],)))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("model", type=Path)
    options.add_argument("file")
    options.add_argument("--device", default="cpu")
    options.add_argument("--record", default="", help="keep the figures as results/NAME.jsonl")
    asked = options.parse_args()
    predictor = load(asked.model, device=asked.device)
    examples = list(preprocess(read(asked.file), predictor.task, SkipCounter()))
    ours = evaluate(predictor, examples).compute(resamples=0)
    kind = predictor.config["task"]["kind"]
    if kind == "parse":
        peer, theirs = "udtools", dependencies(predictor, asked.file)
    else:
        peer, theirs = "PYEVALB", brackets(predictor, examples)
    record = Record(asked.record)
    for name, value in theirs.items():
        record.line(
            "scorers", task=kind, peer=peer, metric=name, weft=round(ours[name].value, 8),
            theirs=round(value, 8), apart=abs(ours[name].value - value), sentences=len(examples),
        )  # fmt: skip


if __name__ == "__main__":
    main()
