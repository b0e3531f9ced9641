"""Detect the tasks that a file has labels for: of its texts, words or trees."""

from collections.abc import Iterable, Sequence
from itertools import islice

from weft import config as configuration
from weft import registry
from weft.doctor.annotations import are_span_tags
from weft.doctor.checks.target_stats import are_free_text
from weft.errors import UserError, unknown_name
from weft.text.annotation.trees import Tree, iter_nodes
from weft.text.cells import is_number
from weft.text.column_layout import PARSE_BIT
from weft.text.example import CharSpans, Example, GoldAnswers, WordAnnotations
from weft.text.formats.parallel import look_like_labels, read_parallel
from weft.text.formats.recognise import is_matrix_file

MAX_EXAMPLES_READ = 200  # of a file
PAIR_TASKS = ("pair-classify", "pair-score")  # one label for two texts
TEXT_TASKS = ("classify", "regress")  # one label per text; its type decides between them
TASK_NEEDS = {
    "tag": "a tag for each word, or labelled spans",
    "intent-slots": "an intent for each sentence and a tag for each word",
    "regress-words": "a number for each word",
    "parse": "a head for each word, as in CoNLL-U",
    "constituency": "bracketed trees, or columns with parse bits",
    "nodes": "bracketed trees",
    "sentences": "sentences in the order of a text, as in CoNLL-U",
    "srl": "a column of rolesets, then a column of roles for each predicate",
    "coref": "a column of mention brackets in documents, as in CoNLL-2012",
    "openie": "one tuple a line: sentence, predicate, arguments, as in CaRB",
    **dict.fromkeys(PAIR_TASKS, "two texts in each row: --text A --text-pair B"),
    "span": "questions with answers in a passage, as in SQuAD's JSON",
    "seq2seq": "a target text for each text: a parallel file (--target) or a column (--label)",
}


def detect_tasks(examples: Iterable[Example]) -> tuple[str, ...]:
    """Return the tasks that a file has labels for, the most likely first."""
    sample = list(islice(examples, MAX_EXAMPLES_READ))
    if any(isinstance(e.label, GoldAnswers) for e in sample):
        return ("span",)
    if any(isinstance(e.label, CharSpans) for e in sample):
        return ("tag",)
    layers = [e.label for e in sample if isinstance(e.label, WordAnnotations)]
    if layers:
        heads = any(_has_values(layer.columns.get("head", ())) for layer in layers)
        tagged = any(_has_values(layer.columns.get(layer.main, ())) for layer in layers)
        cells = [cell for layer in layers for cell in layer.columns.get(layer.main, ())]
        if _are_numbers(cells):
            return ("regress-words", "tag")
        if all(layer.label for layer in layers) and len({layer.label for layer in layers}) > 1:
            return ("intent-slots", "tag", "classify")
        tasks = ("tag", "parse") if tagged else ("parse", "tag")
        bits = ("constituency",) if any(map(_has_parse_bits, layers)) else ()
        return (*(tasks if heads else ("tag",)), *bits)
    trees = [e.tree for e in sample if e.tree is not None]
    if not trees:
        if are_free_text(sample):
            return ("seq2seq", *TEXT_TASKS)
        lists = [e for e in sample if isinstance(e.label, tuple)]
        if len(lists) == len(sample) > 0 and all(map(_has_number_per_word, lists)):
            return ("regress-words", *TEXT_TASKS)
        pairs = PAIR_TASKS if any(e.other is not None for e in sample) else ()
        return (*TEXT_TASKS, *pairs) if any(e.label is not None for e in sample) else ("language",)
    # Sentiment has one scale at words and phrases; parts of speech and phrases share no labels.
    scale = len(trees) == len(sample) and _share_labels(trees)
    return ("classify", "nodes", "constituency") if scale else ("constituency", "nodes", "classify")


def detect_parallel_tasks(files: Sequence[str]) -> tuple[str, ...]:
    """Return the tasks that comma-separated parallel files fit, the most likely first."""
    try:
        sample = list(islice(read_parallel(*files), MAX_EXAMPLES_READ))
    except UserError:
        return ("seq2seq",)  # reading it will report the error
    if len(files) == 3:
        last = [str(e.label[-1]) if isinstance(e.label, tuple) else "" for e in sample]
        rows = [e.label[0].split() if isinstance(e.label, tuple) else [] for e in sample]
        even = all(len(e.text.split()) == len(row) for e, row in zip(sample, rows, strict=True))
        if even and are_span_tags([tag for row in rows for tag in row]) and look_like_labels(last):
            return ("intent-slots",)
        return (*PAIR_TASKS, "seq2seq") if look_like_labels(last) else ("seq2seq",)
    if len(files) > 3 or is_matrix_file(files[0]):
        return ("seq2seq",)
    labels = [str(e.label) for e in sample]
    even = all(len(e.text.split()) == len(str(e.label).split()) for e in sample)
    tags = [tag for label in labels for tag in label.split()]
    if even and len(tags) > len(labels) and len(set(tags)) <= max(2, len(tags) // 5):
        return ("tag", *TEXT_TASKS, "seq2seq")
    return (*TEXT_TASKS, "seq2seq") if look_like_labels(labels) else ("seq2seq",)


def choose_task(task: str, recipes: Sequence[str], fits: Sequence[str], path: str) -> str:
    """Return the task: the one named, that of the recipes, or the file's most likely one."""
    if task and task not in registry.parts("task"):
        raise unknown_name("task", task, registry.parts("task"), "--task")
    kinds: dict[str, str] = {}
    for name in recipes:
        kinds.setdefault(configuration.recipe(name)["task"].get("kind", "classify"), name)
    if len(kinds) > 1 and not task:
        clashes = " and ".join(f"'{name}' is for {kind}" for kind, name in kinds.items())
        raise UserError(
            f"Only recipes for the same task can be compared: {clashes}. Leave one out."
        )
    kind = task or next(iter(kinds), fits[0])
    # Any text can train a language model, and any label column can be a generation target.
    loose = kind == "language" or (kind in (*TEXT_TASKS, "seq2seq") and TEXT_TASKS[0] in fits)
    if kind not in fits and not loose:
        needs = (
            f" needs {TASK_NEEDS[kind]}" if kind in TASK_NEEDS else " needs a label for each text"
        )
        raise UserError(
            f"{path}: the task '{kind}'{needs}, which this file lacks. It fits "
            f"--task {' or '.join(fits)}."
        )
    return kind


def describe_alternatives(kind: str, fits: Sequence[str]) -> str:
    """Return a sentence on the other tasks that the file fits, or ""."""
    rest = [task for task in fits if task != kind and configuration.recipes(task)]
    if kind in (*TEXT_TASKS, "seq2seq"):
        rest = [task for task in rest if task not in (*TEXT_TASKS, PAIR_TASKS[1])]
    if not rest:
        return ""
    choices = " or ".join(f"--task {task}" for task in rest)
    return f"Comparing on the task '{kind}'; this file also fits {choices}."


def _has_parse_bits(layer: WordAnnotations) -> bool:
    """Return True if a column holds parse bits such as (S(NP*."""
    return any(
        all(map(PARSE_BIT.fullmatch, cells))
        for cells in layer.columns.values()
        if "*" in "".join(cells)
    )


def _are_numbers(cells: Sequence[str]) -> bool:
    """Return True if cells are fractions, or empty."""
    filled = [cell for cell in cells if cell not in ("", "_", "-")]
    return bool(filled) and all(map(is_number, filled)) and any("." in cell for cell in filled)


def _has_number_per_word(example: Example) -> bool:
    label = example.label
    return (
        isinstance(label, tuple) and len(label) == len(example.text.split()) and _are_numbers(label)
    )


def _has_values(column: Sequence[str]) -> bool:
    return any(cell not in ("", "_") for cell in column)


def _share_labels(trees: Iterable[Tree]) -> bool:
    leaves: set[str] = set()
    inner: set[str] = set()
    for tree in trees:
        for node in iter_nodes(tree):
            (inner if node.children else leaves).add(node.label)
    return bool((leaves & inner) - {""}) or not inner
