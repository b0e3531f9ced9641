"""What to say of texts that are to be written: pairs that do not fit, words that are new."""

import math
from collections import Counter
from collections.abc import Iterator

import numpy as np

from weft.doctor.checks.scripts import NO_LETTERS
from weft.doctor.checks.target_stats import TargetStats, target_text
from weft.doctor.checks.word_arrays import WordIndex
from weft.doctor.finding import Level, agree, excerpt, pluralise
from weft.doctor.pending import PendingFinding, RowRef, row_refs
from weft.doctor.survey import Survey
from weft.text.example import Example

MIN_RATIO_FACTOR = 3.0  # times the usual ratio of lengths
MIN_DEVIATIONS = 6.0  # robust deviations from it
UNSEEN_WARNING_FRACTION = (
    0.1  # share of words never met in training from which it is more than a note
)
MAX_MINORITY_FRACTION = 0.1  # of all targets: below this, another script is worth a look


def check_targets(survey: Survey) -> Iterator[PendingFinding]:
    """What is to be said of pairs, and of words that the first split has not."""
    pairs = survey.pairs
    if pairs is not None:
        yield from _check_missing(survey)
        yield from _check_copies(survey, pairs)
        yield from _check_ratios(survey, pairs)
        yield from _check_scripts(survey, pairs)
        yield from _check_unseen(survey, pairs.corpus, "target words")
    elif survey.unlabelled:
        yield from _check_unseen(survey, survey.corpus, "words")


def find_unseen_words(survey: Survey, corpus: WordIndex) -> dict[str, tuple[int, int, np.ndarray]]:
    """By split: its words, its different words, and those that the first split does not have."""
    flat, ends = corpus.arrays()
    first = survey.splits[0]
    known = np.unique(flat[: ends[first.rows]])
    out = {}
    for split in survey.splits:
        own = flat[ends[split.start] : ends[split.start + split.rows]]
        out[split.name] = (len(own), len(np.unique(own)), own[~np.isin(own, known)])
    return out


def _check_missing(survey: Survey) -> Iterator[PendingFinding]:
    for split in survey.splits:
        noted = split.unlabelled
        if noted.count:
            have = agree(noted.count, "has", "have")
            title = f"{pluralise(noted.count, 'row')} of {split.name} {have} no target."
            fix = "Fill it in or remove the rows."
            yield PendingFinding(
                "no target", "error", title, noted.count, row_refs(split, noted.rows), fix
            )


def _check_copies(survey: Survey, pairs: TargetStats) -> Iterator[PendingFinding]:
    for split in survey.splits:
        if noted := pairs.copies.get(split.name):
            share = f"{100 * noted.count / max(split.rows, 1):.1f} %"
            have = agree(noted.count, "has", "have")
            rows = f"{pluralise(noted.count, 'row')} of {split.name} ({share})"
            title = f"{rows} {have} the source as target."
            fix = "Look whether they were never translated: a model learns to copy from them."
            yield PendingFinding(
                "copy", "warning", title, noted.count, row_refs(split, noted.rows), fix
            )


def _check_ratios(survey: Survey, pairs: TargetStats) -> Iterator[PendingFinding]:
    """Rows whose lengths do not belong together, as where lines have slipped."""
    ratios = pairs.ratios()
    real = ratios[~np.isnan(ratios)]
    if not len(real):
        return
    usual = float(np.median(real))
    spread = 1.4826 * float(np.median(np.abs(real - usual)))
    edge = max(math.log(MIN_RATIO_FACTOR), MIN_DEVIATIONS * spread)
    for split in survey.splits:
        own = np.nan_to_num(ratios[split.start : split.start + split.rows] - usual)
        far = np.flatnonzero(np.abs(own) > edge)
        if not len(far):
            continue
        order = far[np.argsort(-np.abs(own[far]), kind="stable")]
        here = tuple(
            RowRef(split.start + int(i), detail=_describe_lengths(pairs, split.start + int(i)))
            for i in order
        )
        is_are = agree(len(far), "is", "are")
        title = (
            f"{pluralise(len(far), 'target')} of {split.name} {is_are} far longer or shorter than "
            f"usual ({math.exp(usual):.2g} words for each word of the source)."
        )
        fix = "Look whether lines slipped, or a part of one side is missing."
        yield PendingFinding("length ratio", "warning", title, len(far), here, fix, _quote_target)


def _describe_lengths(pairs: TargetStats, row: int) -> str:
    source, target = pairs.sides(row)
    return f"{target:,} for {pluralise(source, 'word')}"


def _quote_target(example: Example) -> str:
    return f"“{excerpt(target_text(example.label), 80)}”"


def _check_scripts(survey: Survey, pairs: TargetStats) -> Iterator[PendingFinding]:
    """Targets in another script than most: another language, or none."""
    counts: Counter[str] = Counter()
    for table in pairs.scripts.values():
        counts.update({name: noted.count for name, noted in table.items()})
    usual = max((n for n in counts if n != NO_LETTERS), key=lambda n: counts[n], default="")
    for name, count in counts.items():
        if name in (usual, NO_LETTERS) or count >= MAX_MINORITY_FRACTION * counts.total():
            continue
        here = [
            spot
            for split in survey.splits
            if (noted := pairs.scripts.get(split.name, {}).get(name))
            for spot in row_refs(split, noted.rows)
        ]
        have = agree(count, "has", "have")
        title = f"{pluralise(count, 'target')} {have} mostly {name} letters, not {usual}."
        fix = "Look whether they are in the right language."
        yield PendingFinding("target script", "note", title, count, tuple(here), fix, _quote_target)


def _check_unseen(survey: Survey, corpus: WordIndex, what: str) -> Iterator[PendingFinding]:
    found = find_unseen_words(survey, corpus)
    first = survey.splits[0].name
    for split in survey.splits[1:]:
        total, _, new = found[split.name]
        if not len(new):
            continue
        share = len(new) / max(total, 1)
        kinds, times = np.unique(new, return_counts=True)
        most = kinds[np.argsort(-times, kind="stable")][:5]
        told = ", ".join(f"“{word}”" for word in corpus.words(most.tolist()))
        title = (
            f"{100 * share:.1f} % of the {what} of {split.name} ({len(new):,}, {len(kinds):,} "
            f"different) never occur in {first}: {told}{', …' if len(kinds) > 5 else '.'}"
        )
        fix = "Whole words cannot be written then; a tokenizer of sub-words can."
        level: Level = "warning" if share >= UNSEEN_WARNING_FRACTION else "note"
        yield PendingFinding("unseen words", level, title, len(new), (), fix)
