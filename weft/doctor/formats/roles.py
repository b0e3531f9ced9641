"""Check semantic roles: bracket columns, predicates, and the names of roles."""

import re
from collections import Counter
from collections.abc import Iterator
from difflib import get_close_matches

from weft.doctor.checks.annotation_faults import AnnotationFault, sentence_name
from weft.errors import MAX_NAME_CHARS
from weft.text.annotation.frames import Predicate, is_core_role, is_role
from weft.text.example import Example, SkipCounter
from weft.text.formats.semantics.roles import RAGGED, RoleSentence, read_role_sentences

MAX_STRAY_FRACTION = 0.02  # of role names outside PropBank, for the file to follow PropBank
_REFERENCE = re.compile(r"([CR])-(.+)")


def read_examples(path: str, skipped: SkipCounter) -> Iterator[Example]:
    """Yield the sentences as Examples, with the roles that can be read."""
    for sentence in read_role_sentences(path, skipped=skipped):
        if not any(fault.kind == RAGGED for fault in sentence.faults()):
            yield sentence.to_example()


def find_faults(path: str) -> Iterator[AnnotationFault]:
    """Yield the faults of each sentence, in file order."""
    names = _count_roles(path)
    misspelt = _find_misspelt(names)
    ids: set[str] = set()
    opened = ""
    for number, sentence in enumerate(read_role_sentences(path), 1):
        of, text = sentence_name(sentence.id, number), " ".join(sentence.words)
        if sentence.id in ids:
            yield AnnotationFault("repeated id", _where(sentence, 0), text, of)
        ids |= {sentence.id} if sentence.id else set()
        faults = list(sentence.faults())
        for fault in faults:
            word = f"word {fault.word + 1} '{sentence.words[fault.word]}'"
            hint = opened if fault.kind == "unopened bracket" else ""
            detail = f"{of}: {word}: {fault.detail}{hint}"
            yield AnnotationFault(fault.kind, _where(sentence, fault.word), text, detail)
        unclosed = next((f for f in reversed(faults) if f.kind == "unclosed bracket"), None)
        opened = (
            f"; line {sentence.lines[unclosed.word]} of the sentence before opens one"
            if unclosed
            else ""
        )
        for predicate in sentence.frames().predicates:
            yield from _role_faults(sentence, of, text, predicate, misspelt)


def _role_faults(
    sentence: RoleSentence, of: str, text: str, predicate: Predicate, misspelt: dict[str, str]
) -> Iterator[AnnotationFault]:
    """Yield misspelt, repeated and dangling roles of one predicate."""
    counts = Counter(role.label for role in predicate.roles)
    named = f"{of}: '{predicate.sense}'"
    seen: set[str] = set()
    for role in predicate.roles:
        where = _where(sentence, role.start)
        if role.label in misspelt:
            detail = f"{named}: '{role.label}', probably '{misspelt[role.label]}'"
            yield AnnotationFault("misspelt role", where, text, detail)
        if is_core_role(role.label) and role.label in seen:
            detail = f"{named} has {counts[role.label]} × {role.label}"
            yield AnnotationFault("repeated core role", where, text, detail)
        reference = _REFERENCE.fullmatch(role.label)
        if reference and not counts[reference[2]]:
            detail = f"{named} has {role.label}, but no {reference[2]}"
            yield AnnotationFault("role without its base", where, text, detail)
        seen.add(role.label)
    for outer, inner in _nested(predicate):
        detail = f"{named}: {inner} inside {outer}"
        yield AnnotationFault("overlapping roles", _where(sentence, predicate.word), text, detail)


def _nested(predicate: Predicate) -> Iterator[tuple[str, str]]:
    end, label = 0, ""
    for role in predicate.roles:  # by start, the longest first
        if role.start < end:
            yield label, role.label
        if role.end > end:
            end, label = role.end, role.label


def _count_roles(path: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for sentence in read_role_sentences(path):
        for predicate in sentence.frames().predicates:
            counts.update(role.label for role in predicate.roles)
    return counts


def _find_misspelt(counts: Counter[str]) -> dict[str, str]:
    """Return role names outside PropBank with the one that is probably meant.

    Only in files that follow PropBank otherwise.
    """
    stray = {name: n for name, n in counts.items() if not is_role(name)}
    known = [name for name in counts if name not in stray]
    if sum(stray.values()) > MAX_STRAY_FRACTION * counts.total():
        return {}
    # O for 0 and l for 1 look alike.
    out = {}
    for name in stray:
        alike = name.upper().replace("ARGO", "ARG0").replace("ARGL", "ARG1").replace("ARGI", "ARG1")
        close = get_close_matches(name, known, n=1) if len(name) <= MAX_NAME_CHARS else []
        if is_role(alike) or close:
            out[name] = alike if is_role(alike) else close[0]
    return out


def _where(sentence: RoleSentence, word: int) -> str:
    return f"{sentence.file}:{sentence.lines[word]}"
