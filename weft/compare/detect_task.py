"""Which tasks a file can be compared on: what is known of its texts, words or trees."""

from collections.abc import Iterable, Sequence
from itertools import islice

from weft import config as configuration
from weft import registry
from weft.doctor.checks.target_stats import are_free_text
from weft.errors import UserError, unknown_name
from weft.text.annotation.trees import Tree, iter_nodes
from weft.text.column_layout import PARSE_BIT
from weft.text.example import CharSpans, Example, GoldAnswers, WordAnnotations
from weft.text.formats.parallel import look_like_labels, read_parallel
from weft.text.formats.recognise import is_matrix_file

FIRST = 200  # examples that are looked at
TWO = ("pair-classify", "pair-score")  # one answer for two texts
WHOLE = ("classify", "regress")  # one answer a text; which of them, the labels say
KNOWN = {
    "tag": "a tag for each word, or labelled spans",
    "parse": "a head for each word, as CoNLL-U has them",
    "constituency": "bracketed trees, or columns with parse bits",
    "nodes": "bracketed trees",
    **dict.fromkeys(TWO, "two texts in each row: --text A --text-pair B"),
    "span": "questions with answers in a passage, as SQuAD's JSON has them",
    "seq2seq": "a text that each text should become: the file beside it (--target), or --label",
}


def fitting(examples: Iterable[Example]) -> tuple[str, ...]:
    """The tasks that a file holds the right answers of, the usual one first."""
    some = list(islice(examples, FIRST))
    if any(isinstance(e.label, GoldAnswers) for e in some):
        return ("span",)
    if any(isinstance(e.label, CharSpans) for e in some):
        return ("tag",)
    layers = [e.label for e in some if isinstance(e.label, WordAnnotations)]
    if layers:
        heads = any(_told(layer.columns.get("head", ())) for layer in layers)
        tagged = any(_told(layer.columns.get(layer.main, ())) for layer in layers)
        found = ("tag", "parse") if tagged else ("parse", "tag")
        bits = ("constituency",) if any(map(_bits, layers)) else ()
        return (*(found if heads else ("tag",)), *bits)
    trees = [e.tree for e in some if e.tree is not None]
    if not trees:
        if are_free_text(some):
            return ("seq2seq", *WHOLE)
        two = TWO if any(e.other is not None for e in some) else ()
        return (*WHOLE, *two) if any(e.label is not None for e in some) else ("language",)
    # Sentiment has one scale at words and phrases; parts of speech and phrases share no labels.
    scale = len(trees) == len(some) and _one_scale(trees)
    return ("classify", "nodes", "constituency") if scale else ("constituency", "nodes", "classify")


def fitting_files(files: Sequence[str]) -> tuple[str, ...]:
    """The tasks that files joined by a comma can be for, the usual one first."""
    try:
        some = list(islice(read_parallel(*files), FIRST))
    except UserError:
        return ("seq2seq",)  # which says what is wrong when it is read
    if len(files) == 3:
        last = [str(e.label[-1]) if isinstance(e.label, tuple) else "" for e in some]
        return (*TWO, "seq2seq") if look_like_labels(last) else ("seq2seq",)
    if len(files) > 3 or is_matrix_file(files[0]):
        return ("seq2seq",)
    labels = [str(e.label) for e in some]
    even = all(len(e.text.split()) == len(str(e.label).split()) for e in some)
    tags = [tag for label in labels for tag in label.split()]
    if even and len(tags) > len(labels) and len(set(tags)) <= max(2, len(tags) // 5):
        return ("tag", *WHOLE, "seq2seq")
    return (*WHOLE, "seq2seq") if look_like_labels(labels) else ("seq2seq",)


def chosen(task: str, recipes: Sequence[str], fits: Sequence[str], path: str) -> str:
    """The task that is meant: as it is named, as the recipes have it, or the file's usual one."""
    if task and task not in registry.parts("task"):
        raise unknown_name("task", task, registry.parts("task"), "--task")
    kinds: dict[str, str] = {}
    for name in recipes:
        kinds.setdefault(configuration.recipe(name)["task"].get("kind", "classify"), name)
    if len(kinds) > 1 and not task:
        told = " and ".join(f"'{name}' is for {kind}" for kind, name in kinds.items())
        raise UserError(f"Recipes of one task can be compared; {told}. Leave one out.")
    kind = task or next(iter(kinds), fits[0])
    # Any text can be foretold; and whatever stands in a column of labels can be written.
    loose = kind == "language" or (kind in (*WHOLE, "seq2seq") and WHOLE[0] in fits)
    if kind not in fits and not loose:
        needs = f" needs {KNOWN[kind]}" if kind in KNOWN else " needs a label for each text"
        raise UserError(
            f"{path}: the task '{kind}'{needs}, which is not there. This file fits "
            f"--task {' or '.join(fits)}."
        )
    return kind


def others(kind: str, fits: Sequence[str]) -> str:
    """A sentence on what else the file could be compared on; empty where there is nothing."""
    rest = [task for task in fits if task != kind and configuration.recipes(task)]
    if kind in (*WHOLE, "seq2seq"):
        rest = [task for task in rest if task not in (*WHOLE, TWO[1])]
    if not rest:
        return ""
    choices = " or ".join(f"--task {task}" for task in rest)
    return f"Compared on the task '{kind}'; this file also fits {choices}."


def _bits(layer: WordAnnotations) -> bool:
    """Whether a column holds parse bits, (S(NP*."""
    return any(
        all(map(PARSE_BIT.fullmatch, cells))
        for cells in layer.columns.values()
        if "*" in "".join(cells)
    )


def _told(column: Sequence[str]) -> bool:
    return any(cell not in ("", "_") for cell in column)


def _one_scale(trees: Iterable[Tree]) -> bool:
    leaves: set[str] = set()
    inner: set[str] = set()
    for tree in trees:
        for node in iter_nodes(tree):
            (inner if node.children else leaves).add(node.label)
    return bool((leaves & inner) - {""}) or not inner
