"""The [data] section, and reading the examples it names."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Literal

from weft import registry
from weft.config import FilledSections
from weft.doctor.checks.label_variants import fold_label
from weft.errors import UserError
from weft.predict.predictor import Predictor
from weft.protocols import LabelSpace, ReadMode, Section
from weft.tasks.classify import Classify
from weft.tasks.semantics.tuple_steps import read_steps
from weft.tasks.task import AnyTask
from weft.text.example import Example, GoldAnswers, SkipCounter
from weft.text.formats.dialogue.entities import EntityDatabase, read_entities
from weft.text.formats.dialogue.turns import LAYOUT_HELP, DialogueView, is_dialogue_file
from weft.text.formats.dialogue.value_swaps import (
    NO_ONTOLOGY,
    NO_SYNONYMS,
    Augmentation,
    read_ontology,
    read_synonyms,
)
from weft.text.formats.dialogue.views import read_dialogue_examples
from weft.text.formats.documents import DocumentLayout, list_files, read_documents
from weft.text.formats.features import not_text_error
from weft.text.formats.parallel import SecondFile, read_parallel, resolve_files, target_ending
from weft.text.formats.raw import read_raw_lines, split_lines
from weft.text.formats.recognise import is_matrix_file
from weft.text.formats.semantics.recognise import semantic_format
from weft.text.formats.semantics.roles import read_roles
from weft.text.label_names import check_names, rename_labels
from weft.text.label_tree import describe_tree
from weft.text.line_source import BadRows, file_not_found, strip_compression
from weft.text.location import is_table
from weft.text.read import Columns, read, resolve_columns, table_layout
from weft.text.reading_plan import TABLES, adapt_columns, format_of, plan_reading
from weft.text.shards import is_table_file, list_shards
from weft.tokens.truncate import DEFAULT_MAX_CHARACTERS, DEFAULT_OVERLAP, Policy

Source = Callable[[], Iterator[Example]]  # examples that can be read more than once
DIALOGUE_VIEWS: dict[str, tuple[DialogueView, ...]] = {  # by task, the usual one first
    "seq2seq": ("response", "state", "update"),
    "language": ("text",),
}
TUPLES = "extractions"
FORMAT_RECIPES = {
    "roles": "srl-bilstm-crf",
    "coreference": "coref-bilstm",
    "extractions": "openie-grid",
    "paragraphs": "sentence-splitter",
}
WORD_TASKS = ("tag", "intent-slots", "regress-words")  # read a column of a file of words


@dataclass(frozen=True)
class Data:
    """Files, their columns, and the handling of bad rows and long texts."""

    train: str = ""  # a file, or SOURCE,TARGET: files that belong together line by line
    dev: str = ""  # empty: a share of train, chosen by the texts themselves
    test: str = ""
    format: str = ""  # empty: recognised
    text: str | int = ""  # column, by name or position; empty: recognised
    text_pair: str | int = ""  # column of the second text, where there are two; empty: recognised
    label: str | int = ""
    id: str | int = ""
    weight: str | int = ""  # column of the weight of a training row's loss; 0 leaves it out
    separator: str = ""  # between several labels in one cell
    phrases: bool = False  # train on every labelled phrase of a tree
    parser: str = ""  # model that makes the trees of texts that come without
    target: str = ""  # ending of the files beside these that hold what each line should become
    second: SecondFile = (
        "label"  # what the second of files joined by a comma holds; the task decides
    )
    names: tuple[str, ...] = ()  # of labels that the files have as ids: "0=negative", "1=positive"
    out_of_scope: str = ""  # label of texts that no other label fits, which `predict` may answer
    references: tuple[str, ...] = ()  # endings of more such files, or columns beside the label
    fields: tuple[str, ...] = ()  # columns that make up a record in place of the text; "*": all
    documents: DocumentLayout = "auto"  # of raw text: what a line holds
    # What is learned from dialogues: responses, states or texts; the task decides.
    dialogue: DialogueView = ""
    history: int = 0  # turns of a dialogue that are read before an answer; 0: all
    database: str = ""  # JSON file of entities: responses are delexicalised by it
    # Copies of the training dialogues: slots with other values, and JSON files of synonyms and of
    # all values of a slot.
    swap_values: tuple[str, ...] = ()
    synonyms: str = ""
    ontology: str = ""
    tuples: bool = False  # of files of tuples, seq2seq learns one tuple after the other
    on_bad_row: Literal["error", "skip"] = "error"  # skipped rows are counted and shown
    max_tokens: int = 0  # tokens of a text that are read; 0: as many as the model can
    max_characters: int = DEFAULT_MAX_CHARACTERS  # per text without a model limit; 0: all
    truncate: Policy = "head"  # what is read of a longer text
    overlap: float = DEFAULT_OVERLAP  # of windows with their neighbours
    dev_fraction: float = 0.1  # of train that becomes dev when no dev is given
    token_cache: str = ""  # folder of the tokens of a language model's texts, for later runs
    golden_examples: int = (
        5  # texts stored in the model with their answers, replayed when it is loaded
    )

    @property
    def augments(self) -> bool:
        """True if training reads more than the rows of its file."""
        return self.phrases or bool(self.swap_values or self.synonyms or self.ontology)


def validate(data: Data) -> Data:
    """Return the settings; raise UserError for a value out of range."""
    if data.max_tokens < 0:
        raise UserError(f"data.max_tokens should be 0 (no limit) or more, got {data.max_tokens}.")
    if data.max_characters < 0:
        raise UserError(
            f"data.max_characters should be 0 (no limit) or more, got {data.max_characters}."
        )
    if not 0 <= data.overlap < 1:
        raise UserError(f"data.overlap should be at least 0 and below 1, got {data.overlap}.")
    if not 0 <= data.dev_fraction < 1:
        raise UserError(f"data.dev_fraction should be from 0 to below 1, got {data.dev_fraction}.")
    check_names(data.names)
    if data.history < 0:
        raise UserError(f"data.history should be 0 (all turns) or more, got {data.history}.")
    if data.golden_examples < 0:
        raise UserError(f"data.golden_examples should be 0 or more, got {data.golden_examples}.")
    return data


def like_train(data: Data, path: str) -> Data:
    """Return the settings for another file: the training file's columns, if they fit.

    Guessed on its own, a short file could be read with text and label exchanged.
    """
    if len(resolve_files(path, data.target)) > 1:
        return data
    given = replace(_selected_columns(data), weight=None)
    if None in (given.text, given.label):
        try:
            given = replace(
                given, **_column_names(resolve_columns(data.train, given, data.format or None))
            )
        except UserError:
            return data  # another layout; it will be looked at by itself
    return _with_columns(data, adapt_columns(given, path, data.format or None))


def _column_names(columns: Columns) -> FilledSections:
    return {"text": columns.text, "label": columns.label, "text_pair": columns.text_pair}


def _with_columns(data: Data, columns: Columns) -> Data:
    text, label, other = (
        "" if c is None else c for c in (columns.text, columns.label, columns.text_pair)
    )
    return replace(data, text=text, label=label, text_pair=other)


def choose_columns(data: Data, task: Section) -> tuple[Data, tuple[str, ...]]:
    """Choose the columns of all files; return the settings with them, and lines to show.

    The choice is saved with the model, so that other files are read in the same way.
    """
    if data.tuples:
        return _choose_steps(data, task["kind"])
    if dialogue := choose_dialogue_view(data, task["kind"]):
        read = f"the last {data.history} turns" if data.history else "all turns before"
        if dialogue == "update":
            if data.history:
                raise UserError(
                    "data.history does not go with data.dialogue = 'update', which reads the turns "
                    "since the state before. Leave it out."
                )
            read = "the state before and the turns since"
        _check_dialogue_settings(data, dialogue)
        return replace(data, dialogue=dialogue), (f"dialogues: {dialogue}, from {read}",)
    for name in ("database", "swap_values", "synonyms", "ontology"):
        if getattr(data, name):
            raise UserError(f"data.{name} is for dialogues; {data.train} has none. Leave it out.")
    manner = read_mode(task)
    pairs = find_task(task["kind"]).pairs
    own = find_task(task["kind"]).file_format
    if data.format in FORMAT_RECIPES and own != data.format:
        raise UserError(
            f"{data.train}: the task '{task['kind']}' does not learn from data.format = "
            f"'{data.format}'; --recipe {FORMAT_RECIPES[data.format]} does."
        )
    data = replace(data, format=data.format or own)
    second: SecondFile = "tags" if task["kind"] in WORD_TASKS else "other" if pairs else "label"
    data = replace(data, second=second)
    _check_weight(data, task)
    files = resolve_files(data.train, data.target)
    if manner in ("running", "documents") or len(files) > 1:
        described = _describe_parallel(files, second) if manner == "labelled" else ()
        return data, () if data.format == "roles" else described
    # Without a second text a task about two says itself which options name both.
    requested = replace(
        _selected_columns(data), label_is_text=task["kind"] == "seq2seq", strict=not pairs
    )
    tags = task.get("columns", ()) if task["kind"] in WORD_TASKS else None
    paths = [path for path in (data.train, data.dev, data.test) if path]
    plan = plan_reading(paths, requested, data.format or None, tags=tags)
    return _with_columns(data, plan.columns), plan.lines


def _check_dialogue_settings(data: Data, view: DialogueView) -> None:
    """Raise UserError for settings of dialogues that do not go with what is learned from them."""
    if data.database and view == "text":
        raise UserError(
            "data.database is for responses and states, not for data.dialogue = 'text'. Leave it "
            "out."
        )
    for name in ("swap_values", "synonyms", "ontology"):
        if getattr(data, name) and view not in ("state", "update"):
            raise UserError(
                f"data.{name} is for models that track states (data.dialogue = 'state' or "
                "'update'). Leave it out."
            )


def _choose_steps(data: Data, kind: str) -> tuple[Data, tuple[str, ...]]:
    """Return the settings for files of tuples that are learned one after the other."""
    if kind != "seq2seq":
        raise UserError(f"data.tuples is for the task 'seq2seq', not '{kind}'. Leave it out.")
    for path in filter(None, (data.train, data.dev, data.test)):
        if not is_table(path) and not os.path.exists(path):
            raise file_not_found(path)
        if is_table(path) or not semantic_format(path, TUPLES):
            raise UserError(
                f"{path}: no tuples, as data.tuples asks for. Give one a line, separated by tabs: "
                "sentence, predicate, arguments; or JSON lines of `weft extract`."
            )
    return data, ("tuples: one after the other, from the sentence and those before",)


def choose_dialogue_view(data: Data, kind: str) -> DialogueView:
    """Return what a task learns from dialogues: as set, or its usual view; "" for other files."""
    views = DIALOGUE_VIEWS.get(kind, ())
    if not data.dialogue:
        found = views and len(resolve_files(data.train)) == 1 and is_dialogue_file(data.train)
        return views[0] if found else ""
    if data.dialogue not in views:
        fitting = [name for name, some in DIALOGUE_VIEWS.items() if data.dialogue in some]
        raise UserError(
            f"data.dialogue = '{data.dialogue}' is for the task '{fitting[0]}', not '{kind}'"
            + (f", which reads '{views[0]}'." if views else ", which does not read dialogues.")
        )
    for path in filter(None, (data.train, data.dev, data.test)):
        if len(resolve_files(path)) > 1 or not is_dialogue_file(path):
            raise UserError(f"{path}: no dialogues, as data.dialogue asks for. {LAYOUT_HELP}.")
    return data.dialogue


def _check_weight(data: Data, task: Section) -> None:
    """Raise UserError if rows cannot have weights: of this format, or for this task."""
    if data.weight == "":
        return
    if not find_task(task["kind"]).takes_weights:
        raise UserError(
            f"data.weight: the task '{task['kind']}' is trained without weights of rows. Leave it "
            "out."
        )
    kind = format_of(data.train, data.format or None)
    if kind not in TABLES:
        raise UserError(
            f"data.weight: {data.train} has no columns to take weights from. Give a table, JSON "
            "lines or rows in memory."
        )


def _describe_parallel(files: Sequence[str], second: SecondFile) -> tuple[str, ...]:
    """Describe what each of several parallel files holds."""
    roles = {"label": ("text", "label"), "tags": ("words", "tags"), "other": ("text", "other")}
    more = "more right answers" if second == "label" else "label"
    named = (*roles[second], *(more for _ in files[2:]))
    message = "; ".join(f"{role}: {file}" for role, file in zip(named, files, strict=True))
    return (message,) if len(files) > 1 else ()


def _selected_columns(data: Data) -> Columns:
    given = (data.text, data.label, data.id, data.text_pair)
    text, label, identity, other = (None if c == "" else c for c in given)
    more = () if data.target else tuple(data.references)
    weight = None if data.weight == "" else data.weight
    return Columns(text, label, identity, tuple(data.fields), more, other, weight=weight)


def example_source(
    data: Data,
    path: str,
    tally: SkipCounter | None = None,
    augmented: bool = False,
    mode: ReadMode = "labelled",
    database: EntityDatabase | None = None,
) -> Source:
    """Return the examples of one file, read by the settings of a [data] section.

    `augmented` adds what is only trained on: labelled phrases of trees, and dialogues with swapped
    values. A model passes its own `database`.
    """
    columns = _selected_columns(data)
    if path != data.train:
        columns = replace(columns, weight=None)  # only training has weights
    if data.dialogue:
        if database is None and data.database:
            database = read_entities(data.database)
        augmentation = None
        if augmented and data.augments:
            synonyms = read_synonyms(data.synonyms) if data.synonyms else NO_SYNONYMS
            ontology = read_ontology(data.ontology) if data.ontology else NO_ONTOLOGY
            slots = tuple(dict.fromkeys((*data.swap_values, *ontology)))
            augmentation = Augmentation(slots, synonyms, ontology)
        return lambda: read_dialogue_examples(
            path, data.dialogue, data.history, on_bad_row=data.on_bad_row, skipped=tally,
            database=database, augmentation=augmentation,
        )  # fmt: skip
    if data.tuples and mode == "labelled":
        return lambda: read_steps(
            read(path, format=TUPLES, on_bad_row=data.on_bad_row, skipped=tally)
        )
    if mode in ("running", "texts") and (os.path.isdir(path) or list_shards(path)):
        return lambda: _read_folder(data, path, tally, mode)

    def examples() -> Iterator[Example]:
        if mode != "labelled" and is_matrix_file(path):
            raise not_text_error(path)
        if mode == "running" and (is_table(path) or is_table_file(path)):
            rows = read(
                path,
                columns=columns,
                on_bad_row=data.on_bad_row,
                skipped=tally,
                keep_empty=True,
            )
            return split_lines(rows)
        if mode == "running":
            return read_raw_lines(path, on_bad_row=data.on_bad_row, skipped=tally)
        if mode == "documents":
            return read_documents(
                path, data.documents, columns=columns, on_bad_row=data.on_bad_row, skipped=tally
            )
        files = resolve_files(path, data.target, data.references)
        if len(files) > 1 and mode == "texts" and not data.target:
            raise file_not_found(path)  # a text is foretold by itself
        if len(files) > 1 and data.format == "roles":
            return read_roles(path, on_bad_row=data.on_bad_row, skipped=tally)
        if len(files) > 1:
            return read_parallel(
                *files, on_bad_row=data.on_bad_row, skipped=tally, second=data.second
            )
        return read(
            path,
            columns=columns,
            format=data.format or None,
            on_bad_row=data.on_bad_row,
            skipped=tally,
            phrases=augmented and data.phrases,
            separator=data.separator or None,
            keep_empty=mode == "texts",
        )

    if mode == "texts":
        return lambda: _skip_blank(examples(), path, tally)
    if not data.names or mode != "labelled":
        return examples
    return lambda: rename_labels(examples(), data.names, BadRows(path, data.on_bad_row, tally))


def _read_folder(
    data: Data, path: str, tally: SkipCounter | None, mode: ReadMode
) -> Iterator[Example]:
    """Yield the texts of all files in a folder, file by file."""
    some = False
    for name in list_files(path):
        if os.path.getsize(name):
            some = True
            yield from example_source(data, name, tally, mode=mode)()
        elif tally is not None:
            tally.add("empty files left out", name)
    if not some:
        raise UserError(f"{path}: every file in the folder is empty. Put text in one.")


def _skip_blank(
    examples: Iterator[Example], path: str, tally: SkipCounter | None
) -> Iterator[Example]:
    """Yield the examples that are not blank; in plain text, blank lines separate paragraphs."""
    some = False
    for example in examples:
        if example.text.strip():
            some = True
            yield example
        elif tally is not None:
            tally.add("blank texts left out", example.where)
    if not some:
        raise UserError(f"{path}: every text is blank. Give it at least one that is not.")


def data_for_model(
    predictor: Predictor, file: str, **given: str | int | tuple[str, ...] | None
) -> tuple[Data, str]:
    """Return the data settings for a file: those of the training file unless overridden.

    As in training, the labels may be in a file next to it, or in the files joined by a comma. The
    second value describes the columns if they are not those of the training file.
    """
    known = {field.name for field in fields(Data)}
    saved = {k: v for k, v in predictor.config["data"].items() if k in known}
    # What belongs to the training file alone, and what every file is asked anew.
    for name in ("train", "dev", "test", "format", "id", "phrases", "parser", "on_bad_row",
                 "database", "swap_values", "synonyms", "ontology"):  # fmt: skip
        saved.pop(name, None)
    named = {k: v for k, v in given.items() if v not in ("", None)}
    learned = predictor.config["data"].get("train", "")
    if not saved.get("target") and predictor.config["task"]["kind"] == "seq2seq":
        saved["target"] = target_ending(learned)
    if not named.get("target") and saved.get("target"):
        first, own = (
            os.path.splitext(strip_compression(resolve_files(n)[0])[0])[1] for n in (learned, file)
        )
        alike = bool(first) and own == first
        if len(resolve_files(file)) > 1 or not (
            alike or (own and os.path.exists(resolve_files(file, saved["target"])[1]))
        ):
            # A table, or a file of another kind, has its targets in a column; a pair says it.
            saved |= {"target": "", "references": ()}
    if saved.get("dialogue") and not is_dialogue_file(file):
        saved["dialogue"] = ""
    columns, note = ({}, "") if saved.get("dialogue") else _fit_columns(saved, file)
    if not named.keys().isdisjoint({"text", "label", "text_pair"}):
        note = ""
    columns["format"] = semantic_format(
        file, find_task(predictor.config["task"]["kind"]).file_format
    )
    return Data(**{**saved, **columns, **named}), note


def _fit_columns(saved: Section, file: str) -> tuple[dict[str, str | int], str]:
    """Return the saved columns adapted to a file, and a line about them if they changed."""
    keys = ("text", "label", "text_pair")
    given = {key: None if saved.get(key, "") == "" else saved[key] for key in keys}
    if file == "-" or not any(value is not None for value in given.values()):
        return {}, ""
    columns = Columns(given["text"], given["label"], text_pair=given["text_pair"])
    found = adapt_columns(columns, file)
    note = ""
    if found != columns and (table := table_layout(file, found)) is not None:
        note = f"{file}: {table.describe()}"
    adapted = {k: "" if getattr(found, k) is None else getattr(found, k) for k in keys}
    return adapted, note


def find_task(kind: str) -> type[AnyTask]:
    """Return the class of a task."""
    return registry.find("task", kind)


def read_mode(task: Section) -> ReadMode:
    """Return how the files of a [task] section are read."""
    if find_task(task["kind"]).read_mode == "labelled":
        return "labelled"
    built: AnyTask = registry.build("task", task, tokenizer={})
    return built.read_mode


def has_classes(task: Section) -> bool:
    """Return True if the labels of a [task] section are classes, which all need training rows."""
    return issubclass(find_task(task["kind"]), Classify)


def labelled_only(
    examples: Source, data: Data, tally: SkipCounter, mode: ReadMode = "labelled"
) -> Iterator[Example]:
    """Yield examples to train or evaluate on; a missing label is an error or skipped."""
    for example in examples():
        if mode == "labelled" and example.label is None and example.tree is None:
            if data.on_bad_row == "error":
                raise UserError(
                    f"{example.where}: no label. Give the label column with --label, "
                    "or pass --on-bad-row skip to leave such rows out."
                )
            tally.add("rows without a label skipped", example.where)
            continue
        yield example


def not_weighted_error(example: Example, what: str) -> UserError:
    """Return the error for a weighted row that a model or task cannot weigh."""
    return UserError(
        f"{example.where}: the weight of this row is {example.weight:g}, but {what} is trained "
        "without weights. Remove them (data.weight), or use another recipe."
    )


def require_rows(rows: Iterator[Example], data: Data) -> Iterator[Example]:
    """Return the rows; raise UserError if all were skipped."""
    first = next(rows, None)
    if first is None:
        raise UserError(
            f"{data.train}: no rows left to train on; all were skipped. `weft check` tells "
            "why; or pass --label with the column that holds the answers."
        )
    return chain([first], rows)


def unused_second_text(examples: Source, task: AnyTask) -> str:
    """Return a note if rows have a second text that the task does not read, else ""."""
    first = next(examples(), None)
    if first is None or first.other is None or task.pairs:
        return ""
    reads = "--recipe towers, or another of the task 'pair-classify', reads both"
    if isinstance(first.label, GoldAnswers):
        reads = "--recipe bidaf, or another of the task 'span', finds the answers in it"
    return f"note: each row has a second text, which this task does not read; {reads}"


def describe_hierarchy(space: LabelSpace) -> str:
    """Return a line on the tree of the labels if they are paths, else ""."""
    if space.tree is None:
        return ""
    return f"{describe_tree(space.tree)}; task.hierarchy=false learns them as flat labels"


def near_duplicate_labels(space: LabelSpace) -> str:
    """Return a note if labels differ only in case, spaces or Unicode form, else ""."""
    groups: dict[str, list[str]] = {}
    for label in space.entries:
        groups.setdefault(fold_label(str(label)), []).append(f"'{label}'")
    shown = [" and ".join(group) for group in groups.values() if len(group) > 1]
    if not shown:
        return ""
    more = ", …" if len(shown) > 3 else ""
    return (
        f"note: {', '.join(shown[:3])}{more} differ only in case, spaces or Unicode form and are "
        "learned as different labels; `weft check FILE --fix FOLDER` makes them one"
    )
