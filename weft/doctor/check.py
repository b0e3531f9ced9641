"""The whole examination of files: read them, look at every text, say what is wrong."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from weft.doctor.checks.duplicates import Copies
from weft.doctor.diagnose import diagnosed, without_fix
from weft.doctor.finding import Diagnosis
from weft.doctor.formats.files import PARALLEL, holds_labels, opened
from weft.doctor.survey import Survey, survey
from weft.errors import UserError
from weft.registry import typed
from weft.text.read import Columns


@dataclass(frozen=True)
class Examined:
    """What was opened and seen on the way to a diagnosis; --fix needs it."""

    found: Any  # the opened files
    seen: Survey
    copies: Copies
    diagnosis: Diagnosis


@typed
def check(
    files: str | Sequence[str],
    *,
    text: str | int = "",
    other: str | int = "",
    label: str | int = "",
    target: str = "",
    task: str = "",
    format: str = "",
    limit: int = 512,
    near: bool = True,
) -> Diagnosis:
    """Look for what is wrong with labelled texts, pairs, tagged words, spans and trees.

    Two files are train and test, three train, dev and test. Columns are names or positions.
    """
    listed = [files] if isinstance(files, str) else list(files)
    found = open_files(listed, text, other, label, target, task, format, limit)
    return examined(found, task, limit, near).diagnosis


def open_files(
    files: list[str],
    text: str | int,
    other: str | int,
    label: str | int,
    target: str,
    task: str,
    format: str,
    limit: int,
    names: Any = (),
) -> Any:
    """Open the files for an examination."""
    if limit < 1:
        raise UserError(f"--limit should be 1 or more words, got {limit}.")
    named = [None if column == "" else column for column in (text, label, other)]
    columns = Columns(named[0], named[1], other=named[2], writes=task == "seq2seq")
    return opened(files, columns, format or None, target, names, task)


def examined(
    found: Any,
    task: str,
    limit: int,
    near: bool,
    most: int | None = None,
    watch: Callable[[int], None] = lambda rows: None,
) -> Examined:
    """Look at every text of the opened files; a finding keeps `most` places, or all."""
    parallel = PARALLEL in found.formats.values()
    texts = parallel and not task and not holds_labels(found)
    paired = True if texts or task == "seq2seq" else None if not task else False
    seen = survey(found.sources, watch, paired)
    diagnosis, copies = diagnosed(
        seen, found.paths, limit, near, found.tallies, found.findings, most
    )  # fmt: skip
    return Examined(found, seen, copies, without_fix(diagnosis) if parallel else diagnosis)
