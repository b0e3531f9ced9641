"""Recognise files of semantic roles, coreference and extracted tuples by their contents."""

import os

from weft.text.formats.parallel import resolve_files
from weft.text.formats.recognise import recognise
from weft.text.formats.semantics.coreference import detect_coreference
from weft.text.formats.semantics.extractions import detect_extractions
from weft.text.formats.semantics.roles import detect_roles


def recognise_semantics(path: str | os.PathLike[str], kind: str) -> str:
    """Return the one of SEMANTIC_FORMATS that a column file or a table is, or ""."""
    if kind == "conll":
        if detect_roles(path) is not None:
            return "roles"
        return "coreference" if detect_coreference(path) is not None else ""
    if kind in ("tsv", "lines", "jsonl") and detect_extractions(path) is not None:
        return "extractions"
    return ""


def semantic_format(path: str, wanted: str) -> str:
    """Return the format that a task wants if a file has it, else ""."""
    files = resolve_files(path)
    if not wanted or not all(map(os.path.isfile, files)):
        return ""
    if len(files) > 1:
        return wanted if wanted == "roles" and detect_roles(path) is not None else ""
    kind = recognise(path)
    if wanted == "paragraphs":  # any CoNLL-U file has them
        return wanted if kind == "conllu" else ""
    return wanted if recognise_semantics(path, kind) == wanted else ""
