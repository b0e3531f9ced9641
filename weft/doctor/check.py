"""Check files: read them, examine every text, report findings."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from weft.doctor.checks.duplicates import DuplicateIndex
from weft.doctor.diagnose import diagnose, remove_fix_hints
from weft.doctor.finding import Diagnosis
from weft.doctor.formats.files import PARALLEL, SPLIT_NAMES, Files, holds_labels, open_files
from weft.doctor.survey import Survey, survey_sources
from weft.errors import UserError
from weft.progress import counting, silent
from weft.registry import check_types
from weft.text.formats.recognise import SEMANTIC_FORMATS
from weft.text.read import Columns
from weft.text.tables.table import PathOrTable, list_sources, name_sources


@dataclass(frozen=True)
class Examination:
    """The diagnosis of files, with the intermediate results that --fix needs."""

    files: Files
    survey: Survey
    copies: DuplicateIndex
    diagnosis: Diagnosis


@check_types
def check(
    files: PathOrTable | Sequence[PathOrTable],
    *,
    text: str | int = "",
    other: str | int = "",
    label: str | int = "",
    target: str = "",
    task: str = "",
    format: str = "",
    max_words: int = 512,
    near: bool = True,
    quiet: bool = False,
) -> Diagnosis:
    """Find faults in labelled texts, pairs, tagged words, spans and trees.

    Two files are train and test, three train, dev and test. Columns are names or positions. The
    diagnosis has findings, worst first: each with a count, its first places and the fix. Texts of
    more than `max_words` words are counted; `near` looks for near-duplicates.

    Examples:
        >>> diagnosis = weft.check(["train.tsv", "test.tsv"])
        >>> diagnosis.worst
        'warning'
        >>> print(diagnosis.findings[0].title, diagnosis.findings[0].fix)
    """
    sources = list_sources(files)
    listed = name_sources(sources, SPLIT_NAMES.get(len(sources), ()))
    opened = open_for_check(listed, text, other, label, target, task, format, max_words)
    with counting("texts", silent if quiet else None) as count:
        return examine_files(opened, task, max_words, near, on_progress=count).diagnosis


def open_for_check(
    files: list[str],
    text: str | int,
    other: str | int,
    label: str | int,
    target: str,
    task: str,
    format: str,
    max_words: int,
    names: Sequence[str] = (),
) -> Files:
    """Open files for checking."""
    if max_words < 1:
        raise UserError(f"--max-words must be 1 or more words, got {max_words}.")
    requested = [None if column == "" else column for column in (text, label, other)]
    columns = Columns(
        requested[0], requested[1], text_pair=requested[2], label_is_text=task == "seq2seq"
    )
    return open_files(files, columns, format or None, target, names, task)


def examine_files(
    files: Files,
    task: str,
    max_words: int,
    near: bool,
    max_places: int | None = None,
    on_progress: Callable[[int], None] = lambda rows: None,
) -> Examination:
    """Examine every text of the opened files; a finding keeps `max_places`, or all."""
    parallel = PARALLEL in files.formats.values()
    texts = parallel and not task and not holds_labels(files)
    paired = True if texts or task == "seq2seq" else None if not task else False
    unwritable = parallel or bool(set(SEMANTIC_FORMATS) & set(files.formats.values()))
    surveyed = survey_sources(files.sources, on_progress, paired)
    diagnosis, duplicates = diagnose(
        surveyed, files.paths, max_words, near, files.tallies, files.findings, max_places
    )  # fmt: skip
    return Examination(
        files, surveyed, duplicates, remove_fix_hints(diagnosis) if unwritable else diagnosis
    )
