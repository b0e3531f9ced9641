"""weft predict"""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from weft.cli import options
from weft.errors import UserError
from weft.progress import counting

if TYPE_CHECKING:
    from weft.config import Sections
    from weft.predict import Predictor
    from weft.tasks.annotation import Annotation
    from weft.tasks.task import Answer
    from weft.text.example import Example, SkipCounter
    from weft.text.formats.conllu_sentence import Sentence
    from weft.text.label_tree import LabelTree
    from weft.text.line_source import BadRowPolicy
    from weft.text.read import Columns

LONG_TEXT_CHARACTERS = 20_000  # characters of a text that may take a model minutes to answer

Given = tuple["Example", "Sentence | None"]  # what is answered, and the CoNLL-U it came from


def predict(
    model: Annotated[Path, typer.Argument(help="Model or run folder.")],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE|TEXT…]",
            help="A file (one text per line, or any supported format), or texts; - is stdin.",
        ),
    ] = None,
    text: options.Text = "",
    text_pair: options.TextPair = "",
    as_json: options.Json = False,
    every: Annotated[
        bool,
        typer.Option(
            "--all",
            help="With --json: the probability of every label, or of every start and end of an "
            "answer span.",
        ),
    ] = False,
    conllu: Annotated[
        bool, typer.Option("--conllu", help="Write tags and dependencies as CoNLL-U.")
    ] = False,
    conll: Annotated[
        bool,
        typer.Option("--conll", help="Write roles or coreference in columns, as CoNLL."),
    ] = False,
    weights: Annotated[
        bool, typer.Option("--weights", help="With --json: the attention weight of each token.")
    ] = False,
    abstain_at: options.AbstainAt = None,
    label_sets: Annotated[
        float | None,
        typer.Option(
            help="List the labels of each text that contain the right one with this probability.",
        ),
    ] = None,
    on_bad_row: options.OnBadRow = "error",
    device: options.Device = "auto",
    rounded: options.Int8 = False,
    replay: Annotated[bool, typer.Option(help="Replay the recorded answers first.")] = True,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="Folder for the rows of tables ('in/*.parquet') with their predictions, in parts.",
        ),
    ] = None,
    part: Annotated[
        str, typer.Option(help="With -o: the share of this process, such as 3/8.")
    ] = "1/1",
    embeddings: Annotated[
        str, typer.Option(help="With -o, sentence vectors instead: column or npy.")
    ] = "",
    on: options.On = "",
    needs: options.Needs = "",
    trust: options.Trust = [],  # noqa: B006
) -> None:
    """Predict every text of a file or of the command line, in order."""
    if on:
        _spread(on, needs, inputs or [], output, part)
        return
    from weft.loading import load
    from weft.predict.evaluate import prediction_json
    from weft.text.example import SkipCounter

    if as_json + conllu + conll > 1:
        raise UserError("--json, --conllu and --conll exclude each other. Pass one.")
    if every and not as_json:
        raise UserError("--all lists probabilities in the JSON output. Pass --json, too.")
    predictor = load(model, device=device, replay=replay, weights=options.weight_dtype(rounded))
    if conllu and not predictor.is_structured:
        raise UserError(
            f"--conllu writes word-level predictions, but {model} predicts whole texts. Use --json "
            "instead."
        )
    if conll and predictor.task.file_format not in ("roles", "coreference"):
        raise UserError(
            f"--conll writes semantic roles or coreference, but {model} is of the task "
            f"'{predictor.config['task']['kind']}'. Use --json instead."
        )
    if output is not None:
        _predict_files(predictor, inputs or [], output, (text, text_pair), part, embeddings)
        return
    labels = predictor.class_labels
    boundaries = predictor.task.has_boundaries
    if every and not labels and not boundaries:
        kind = predictor.config["task"]["kind"]
        raise UserError(
            f"--all lists the probability of every label, but a model of the task '{kind}' has no "
            "labels. Remove it."
        )
    tally = SkipCounter()
    typed = typed_texts(inputs or ["-"], predictor.pairs)
    rows = (
        ((example, None) for example in typed) if typed else
        read_inputs(predictor, (inputs or ["-"])[0], (text, text_pair), on_bad_row, tally, conllu)
    )  # fmt: skip
    given = _warn_about_long_texts(predictor, rows)
    partly = silent = done = 0
    tree = predictor.space.tree
    drawn = (predictor.is_structured or tree is not None) and sys.stdout.isatty()
    wanted = weights or (boundaries and (every or drawn))
    # A bar would run through the drawings.
    with nullcontext(lambda texts: None) if drawn else counting("texts") as count:
        answers = answer_inputs(predictor, given, wanted, abstain_at, label_sets)
        for (example, sentence), answer in answers:
            count(1)
            done += 1
            partly += answer.coverage < 1
            silent += bool(answer.abstained)
            if as_json:
                row = prediction_json(answer, labels if every else ())
                typer.echo(json.dumps(row, ensure_ascii=False))
            elif conllu:
                _write_conllu(predictor, example, sentence, answer, tally)
            elif conll:
                _write_columns(example, answer)
            elif answer.structure is not None and drawn:
                _draw(answer.structure)
            elif tree is not None and drawn and not answer.abstained and not label_sets:
                _draw_tree(tree, answer)
            else:
                typer.echo(_line(answer))
    for line in tally.lines():
        typer.echo(f"note: without an answer: {line}", err=True)
    if abstain_at is not None:
        typer.echo(f"note: abstained from {silent} of {done} texts", err=True)
    if partly:
        texts = "1 text was" if partly == 1 else f"{partly} texts were"
        why = "cut, or with words that the model does not tell apart"
        typer.echo(f"note: {texts} read only in part: {why} (coverage < 1)", err=True)


def _predict_files(
    predictor: "Predictor",
    inputs: Sequence[str],
    output: Path,
    named: tuple[str, str],
    part: str,
    embeddings: str,
) -> None:
    """Predict tables into a folder."""
    from weft.predict.bulk import predict_files
    from weft.text.read import Columns

    if not inputs or "-" in inputs:
        raise UserError("-o writes the rows of tables: name files, such as 'in/*.parquet'.")
    share = re.fullmatch(r"(\d{1,9})/(\d{1,9})", part)
    if share is None:
        raise UserError(f"--part should be I/N, such as 3/8, got '{part}'.")
    kinds: tuple[Literal["", "column", "npy"], ...] = ("", "column", "npy")
    kind = next((kind for kind in kinds if kind == embeddings), None)
    if kind is None:
        raise UserError(f"--embeddings should be column or npy, got '{embeddings}'.")
    text, text_pair = (options.column(one) if one else None for one in named)
    columns = Columns(text=text, label="", text_pair=text_pair, requires_pair=predictor.pairs)
    done = predict_files(
        predictor, inputs, output, columns=columns, part=(int(share[1]), int(share[2])),
        embeddings=kind,
    )  # fmt: skip
    typer.echo(f"{output}: {done}", err=True)


def _spread(on: str, needs: str, inputs: Sequence[str], output: Path | None, part: str) -> None:
    """Run this command on a cluster, one part for each job that fits."""
    from weft.jobs import open_place, parse_resources
    from weft.predict.bulk import expand_patterns, spread_parts

    if output is None or part != "1/1":
        raise UserError("--on divides the rows of tables among parts: pass -o, and no --part.")
    expand_patterns(inputs)
    words = sys.argv[1:]
    for option in ("--on", "--needs"):
        words = drop_option(words, option)
    with open_place(on) as where:
        spread_parts(words, where, parse_resources(needs))


def drop_option(words: Sequence[str], option: str) -> list[str]:
    """Return a command line without an option and its value."""
    kept, skip = [], False
    for word in words:
        if skip or word.startswith(f"{option}="):
            skip = False
        elif word == option:
            skip = True
        else:
            kept.append(word)
    return kept


def looks_like_a_path(given: str) -> bool:
    """Tell a file name from a text: no spaces, and a folder or an ending such as .tsv."""
    return bool(re.fullmatch(r"\S*[/\\]\S*|\S*[^\s.…]\.[A-Za-z]\w{0,9}", given))


def typed_texts(inputs: list[str], pairs: bool) -> "list[Example]":
    """Return the texts of the command line; none if a file or - is named."""
    from weft.text.example import Example

    files = [one for one in inputs if one == "-" or _is_file(one) or looks_like_a_path(one)]
    if len(inputs) == 1 and files:
        return []
    if files:
        raise UserError(
            f"{files[0]} is a file, but there are other inputs. Pass one file, or texts."
        )
    if not pairs:
        return [Example(text) for text in inputs]
    if len(inputs) != 2:
        raise UserError(
            f"This model needs a text pair; {len(inputs)} texts given. Pass both: weft predict "
            'MODEL "one text" "another".'
        )
    return [Example(inputs[0], other=inputs[1])]


def _is_file(given: str) -> bool:
    try:
        return Path(given).exists()
    except (OSError, ValueError):  # too long for a name, or with a NUL: a text
        return False


def read_inputs(
    predictor: "Predictor",
    file: str,
    named: tuple[str, str],
    on_bad_row: str,
    tally: "SkipCounter",
    conllu: bool,
) -> Iterator[Given]:
    """Yield the examples of a file, with the CoNLL-U that they came from."""
    from weft.text.formats.semantics.recognise import semantic_format
    from weft.text.read import Columns, read

    chosen = options.bad_row_policy(on_bad_row)
    if conllu and file != "-" and _is_conllu(file):
        from weft.predict.conllu import example_of
        from weft.text.formats.conllu import read_conllu

        for sentence in read_conllu(file, on_bad_row=chosen, skipped=tally):
            yield example_of(sentence), sentence
        return
    if dialogues := _read_dialogues(predictor, file, chosen, tally):
        for example in dialogues:
            yield example, None
        return
    # In a file of words the last column is the label, and not part of what is read.
    label = None if predictor.is_structured and not predictor.pairs else ""
    text, text_pair = (options.column(one) if one else None for one in named)
    columns = Columns(text=text, label=label, text_pair=text_pair, requires_pair=predictor.pairs)
    if label is None and text is None:
        columns = _of_words(predictor.config["data"], file, columns)
    if predictor.config["task"].get("record") and text is None:
        columns = _of_record(predictor.config["data"], file, columns)
    if predictor.pairs and (text, text_pair) == (None, None):
        columns = _of_pair(predictor.config["data"], file, columns)
    tuples = "extractions" if predictor.config["data"].get("tuples") else ""
    format = semantic_format(file, predictor.task.file_format or tuples) or None
    rows = read(
        file, columns=columns, format=format, on_bad_row=chosen, skipped=tally, keep_empty=True
    )
    blanks = predictor.config["task"]["kind"] == "masked" and chosen == "skip"
    for example in rows:
        if blanks and _whole(example.text):
            tally.add("texts with nothing to fill in", example.where)
        else:
            yield example, None


def _read_dialogues(
    predictor: "Predictor", file: str, on_bad_row: "BadRowPolicy", tally: "SkipCounter"
) -> "Iterator[Example] | None":
    """Return what a model of dialogues can answer in a file of them; None for other files."""
    from weft.inference.track_states import carry_states, tracks_states
    from weft.text.formats.dialogue.turns import is_dialogue_file
    from weft.text.formats.dialogue.views import read_dialogue_examples

    data = predictor.config["data"]
    view = data.get("dialogue", "")
    if not view or not is_dialogue_file(file):
        return None
    history = data.get("history", 0)
    examples = read_dialogue_examples(
        file, view, history, on_bad_row=on_bad_row, skipped=tally, labelled=False,
        database=predictor.space.database,
    )  # fmt: skip
    return carry_states(predictor, examples) if tracks_states(predictor.config) else examples


def _whole(text: str) -> bool:
    """Return True if the text has words and no mask token."""
    from weft.tasks.mlm import MASK_PATTERN

    return bool(text.strip()) and not MASK_PATTERN.search(text)


def _warn_about_long_texts(predictor: "Predictor", given: Iterator[Given]) -> Iterator[Given]:
    """Pass inputs through, with a note before a very long text."""
    all_of_it = predictor.config["task"]["kind"] == "seq2seq" and _reads_any_length(predictor)
    for number, one in enumerate(given, 1):
        example = one[0]
        if all_of_it and len(example.text) > LONG_TEXT_CHARACTERS:
            where = example.where if example.file else f"text {number}"
            message = f"{where}: {len(example.text):,} characters"
            typer.echo(f"note: {message}, all of which are read: this may take minutes", err=True)
        yield one


def _reads_any_length(predictor: "Predictor") -> bool:
    """Return True if nothing limits the tokens of a source text."""
    from weft.predict.rows import RowEngine

    engine = predictor.engine
    return (
        isinstance(engine, RowEngine)
        and engine.input_kind != "vectors"
        and engine.indexer.limit is None
    )


def _of_record(saved: "Sections", file: str, default: "Columns") -> "Columns":
    """Return the record columns of a table: those of the training file, without its label."""
    from weft.text.read import Columns, table_layout

    fields = tuple(saved.get("fields", ()))
    text = None if saved["text"] == "" else saved["text"]
    for label in dict.fromkeys((saved["label"], "")):
        columns = Columns(text=text, label=label, fields=fields)
        with suppress(UserError):
            if table_layout(file, columns) is not None:
                return columns
    return default


def _of_words(saved: "Sections", file: str, default: "Columns") -> "Columns":
    """Return the word and tag columns of a file: those of the training files if present."""
    from dataclasses import replace

    from weft.text.column_layout import detect_layout
    from weft.text.line_source import LineSource
    from weft.text.reading_plan import format_of

    if "" in (saved["text"], saved["label"]) or format_of(file) != "conll":
        return default
    with suppress(UserError):
        detect_layout(LineSource(file), words=saved["text"], tags=saved["label"])
        return replace(default, text=saved["text"], label=saved["label"])
    return default


def _of_pair(saved: "Sections", file: str, default: "Columns") -> "Columns":
    """Return the columns of a text pair: those of the training file if present."""
    from weft.text.read import Columns, table_layout

    if "" in (saved["text"], saved["text_pair"]):
        return default
    columns = Columns(saved["text"], "", text_pair=saved["text_pair"])
    with suppress(UserError):
        if table_layout(file, columns) is not None:
            return columns
    return default


def _is_conllu(file: str) -> bool:
    from contextlib import closing

    from weft.text.formats.recognise import recognise_structure
    from weft.text.line_source import LineSource

    if Path(file).is_dir():
        return False
    with closing(LineSource(file)) as source:
        return recognise_structure(source) == "conllu"


def answer_inputs(
    predictor: "Predictor",
    given: Iterator[Given],
    weights: bool = False,
    abstain_at: float | None = None,
    label_sets: float | None = None,
) -> "Iterator[tuple[Given, Answer]]":
    """Yield each input with its answer, in constant memory."""
    from collections import deque

    waiting: deque[Given] = deque()

    def examples() -> "Iterator[Example]":
        for one in given:
            waiting.append(one)
            yield one[0]

    for answer in predictor.stream(
        examples(), parts=weights, abstain_at=abstain_at, label_sets=label_sets
    ):
        yield waiting.popleft(), answer


def _line(answer: "Answer") -> str:
    """Format an answer on one line: word/TAG, or label, start, end and text of spans."""
    annotation, value = answer.structure, answer.value
    if answer.blanks:
        fit = ("  ".join(f"{word} {chance:.4f}" for word, chance in one) for one in answer.blanks)
        return f"{value}\t{' | '.join(fit)}"
    if annotation is None or annotation.kind in ("nodes", "answer"):
        if isinstance(value, float):
            return _format_number(value)
        if _is_vector(value):
            return "\t".join(map(_format_number, value))
        words = ", ".join(value) if isinstance(value, tuple) else f"{value}"
        words = "(abstained)" if answer.abstained else words
        more = "" if answer.label_set is None else f"\t{', '.join(answer.label_set)}"
        return f"{words}\t{answer.score:.4f}{more}"
    if annotation.kind == "spans":
        cut = [
            (label, start, end, annotation.text[start:end])
            for start, end, label in annotation.spans
        ]
        spans = (f"{label} {start} {end} {' '.join(t.split())}" for label, start, end, t in cut)
        intent = [f"{annotation.label} {annotation.label_score:.4f}"] if annotation.label else []
        return "\t".join([*intent, *spans])
    if annotation.kind in ("tags", "word-numbers"):
        rows = zip(annotation.words, annotation.tags, strict=True)
        return " ".join(f"{word}/{tag.replace(' ', '/')}" for word, tag in rows)
    if annotation.kind == "arcs":
        arcs = zip(annotation.words, annotation.relations, annotation.heads, strict=True)
        return " ".join(f"{word}/{relation}/{head}" for word, relation, head in arcs)
    if annotation.kind == "frames":
        return "\t".join(_predicate_line(annotation, *frame) for frame in annotation.frames)
    if annotation.kind == "chains":
        chains: dict[str, list[str]] = {}
        for entity, start, end in annotation.mentions:
            chains.setdefault(entity, []).append(" ".join(annotation.words[start:end]))
        return "\t".join(f"{entity}: {' | '.join(own)}" for entity, own in chains.items())
    if annotation.kind == "tuples":
        return "\t".join(_tuple_line(one) for one in value)
    return f"{value}"


def _tuple_line(one: dict[str, Any]) -> str:
    """Format a tuple: confidence, subject, predicate, the rest."""
    subject, *others = (argument["text"] for argument in one["arguments"])
    parts = (subject, one["predicate"]["text"], *others)
    return f"{one['confidence']:.4f} ({'; '.join(parts)})"


def _predicate_line(
    annotation: "Annotation", word: int, sense: str, roles: Sequence[tuple[str, int, int]]
) -> str:
    """Format a predicate: its sense, then its arguments in the order of the sentence."""
    parts = (f"{label}[{' '.join(annotation.words[start:end])}]" for label, start, end in roles)
    return " ".join([sense, *parts])


def _is_vector(value: object) -> bool:
    """Return True if an answer is several numbers."""
    return isinstance(value, tuple) and bool(value) and all(isinstance(x, float) for x in value)


def _format_number(value: float) -> str:
    """Format a number for people; --json has all digits."""
    return f"{value:.4f}" if 1e-3 <= abs(value) < 1e6 else f"{value:.6g}"


def _draw(annotation: "Annotation") -> None:
    from weft.report.drawings.draw import draw_terminal
    from weft.terminal import Terminal

    console = Terminal()
    console.print(draw_terminal(annotation), soft_wrap=True)
    if annotation.kind in ("arcs", "nodes", "frames", "chains", "tuples"):
        console.print()


def _draw_tree(tree: "LabelTree", answer: "Answer") -> None:
    from weft.report.drawings.label_tree import draw_terminal_tree, probability_rows
    from weft.terminal import Terminal

    console = Terminal()
    console.print(draw_terminal_tree(probability_rows(tree, answer.scores, answer.path)))
    console.print()


def _write_columns(example: "Example", answer: "Answer") -> None:
    """Write roles as CoNLL-2005, or a document with its mentions as CoNLL-2012."""
    from dataclasses import replace

    from weft.text.annotation.frames import Coreference, Mention
    from weft.text.formats.semantics.coreference import format_document

    structure = answer.structure
    assert structure is not None
    if structure.kind != "chains":
        _write_roles(answer)
        return
    given = example.label if isinstance(example.label, Coreference) else Coreference(())
    label = replace(given, mentions=tuple(Mention(*one) for one in structure.mentions))
    document = replace(example, words=structure.words, label=label)
    typer.echo(format_document(document), nl=False)


def _write_roles(answer: "Answer") -> None:
    from weft.text.annotation.frames import read_frames
    from weft.text.formats.semantics.roles import sentence_lines

    assert answer.structure is not None
    for line in sentence_lines(read_frames(answer.structure.frames), answer.structure.words):
        typer.echo(line)


def _write_conllu(
    predictor: "Predictor",
    example: "Example",
    sentence: "Sentence | None",
    answer: "Answer",
    tally: "SkipCounter",
) -> None:
    from weft.predict.conllu import fill_columns, sentence_of, tag_columns
    from weft.text.formats.conllu import format

    annotation = answer.structure
    if sentence is None:
        if annotation is None or not annotation.words:
            tally.add("texts without words left out", example.where)
            return
        sentence = sentence_of(annotation, example.id or str(example.line or 1))
    typer.echo(format(fill_columns(sentence, annotation, tag_columns(predictor))), nl=False)
