"""Find variants of a label: case, spaces, number, Unicode form and typos."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from weft.doctor.checks.encoding import INVISIBLE
from weft.errors import MAX_NAME_CHARS, optional_import

MAX_COMPARED_LABELS = 5_000  # for typos; other variants are found among any number
CLEAR_RATIO = 10  # right spelling to typo, to correct without asking
CASE, UNICODE, INVISIBLE_CHARACTER = "case or spaces", "NFC and NFD", "an invisible character"
CERTAIN_KINDS = (CASE, UNICODE, INVISIBLE_CHARACTER)
_SEPARATORS = re.compile(r"[\s_\-]+")
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True)
class LabelVariant:
    """A label that looks like a variant of a more frequent one."""

    label: str
    meant: str
    kind: str  # CASE, UNICODE, UNSEEN, 'number' or 'typo'
    clear: bool  # safe to correct without asking


def find_variants(counts: Mapping[str, int]) -> list[LabelVariant]:
    """Return every label that is probably a variant, once, with the likeliest right form."""
    ranked = sorted(counts, key=lambda label: (-counts[label], label))
    variants: dict[str, LabelVariant] = {}
    for label, meant, kind in (*_variants(ranked), *_plurals(ranked)):
        clear = kind in CERTAIN_KINDS or counts[meant] >= CLEAR_RATIO * counts[label]
        variants.setdefault(label, LabelVariant(label, meant, kind, clear))
    for label, meant in _typos([label for label in ranked if label not in variants], counts):
        variants.setdefault(
            label, LabelVariant(label, meant, "typo", counts[meant] >= CLEAR_RATIO * counts[label])
        )
    return [variants[label] for label in ranked if label in variants]


def fold_label(label: str) -> str:
    """Return a label without case, separators, invisible characters and outer spaces."""
    folded = INVISIBLE.sub("", unicodedata.normalize("NFKC", label)).casefold().strip()
    return _SEPARATORS.sub(" ", folded)


def _variants(ranked: list[str]) -> Iterator[tuple[str, str, str]]:
    groups: dict[str, list[str]] = defaultdict(list)
    for label in ranked:
        groups[fold_label(label)].append(label)
    for group in groups.values():
        first = next(filter(_is_clean, group), group[0])
        yield from (
            (label, first, _difference_kind(label, first)) for label in group if label != first
        )


def _is_clean(label: str) -> bool:
    return unicodedata.is_normalized("NFC", label) and not INVISIBLE.search(label)


def _difference_kind(label: str, meant: str) -> str:
    """Return the kind of difference between two labels that look alike."""
    if unicodedata.normalize("NFC", label) == unicodedata.normalize("NFC", meant):
        return UNICODE
    if INVISIBLE.sub("", label) == INVISIBLE.sub("", meant):
        return INVISIBLE_CHARACTER
    return CASE


def _plurals(ranked: list[str]) -> Iterator[tuple[str, str, str]]:
    first: dict[str, str] = {}
    for label in ranked:
        stem = " ".join(_singular(word) for word in fold_label(label).split(" "))
        meant = first.setdefault(stem, label)
        if fold_label(meant) != fold_label(label):
            yield label, meant, "number"


def _singular(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _typos(ranked: list[str], counts: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Yield (rarer, more frequent) labels that differ by one or two typing errors."""
    if len(ranked) < 2:
        return
    names = [name for name in ranked[:MAX_COMPARED_LABELS] if len(name) <= MAX_NAME_CHARS]
    forms = [fold_label(label) for label in names]
    distance = optional_import("rapidfuzz.distance.OSA", "Finding typos in labels").distance
    cdist = optional_import("rapidfuzz.process", "Finding typos in labels").cdist
    slips = cdist(forms, forms, scorer=distance, score_cutoff=2, dtype=np.uint8)  # above it: 3
    close: dict[int, list[int]] = defaultdict(list)
    for left, right in np.argwhere(np.triu((slips > 0) & (slips <= 2))).tolist():
        close[right].append(left)
    for right, lefts in close.items():
        for left in sorted(lefts, key=lambda left: (slips[left, right], left)):
            pair = (forms[right], forms[left], int(slips[left, right]))
            if _is_typo(*pair, counts[names[right]], counts[names[left]]):
                yield names[right], names[left]
                break


def _is_typo(typo: str, right: str, slips: int, count: int, often: int) -> bool:
    if _DIGITS.sub("", typo) == _DIGITS.sub("", right):
        return False  # level1 and level2 differ on purpose
    short, seldom = min(len(typo), len(right)), count * CLEAR_RATIO <= often
    if slips == 2:  # import/export, hypertension/hypotension: only if one is rare
        return seldom and short >= 7 and typo[0] == right[0]
    if short <= 5:
        # NM for NUM, but not among two-letter names: en and es are languages.
        return seldom and (short > 3 or (len(typo) + len(right) > 4 and count <= 3))
    # A prefix makes another word (moral, amoral); a letter inside seldom does.
    prefixed = typo.endswith(right) or right.endswith(typo)
    return seldom or not prefixed
