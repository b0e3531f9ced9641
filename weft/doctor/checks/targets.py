"""Check target texts: missing, copied, misaligned, and words unseen in training."""

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

MIN_RATIO_FACTOR = 3.0  # from the usual length ratio
MIN_DEVIATIONS = 6.0  # robust, from the usual ratio
UNSEEN_WARNING_FRACTION = 0.1  # of words, to warn
MAX_MINORITY_FRACTION = 0.1  # of targets: a rarer script is reported


def check_targets(survey: Survey) -> Iterator[PendingFinding]:
    """Yield findings about targets, and about words absent from the first split."""
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
    """Return by split: word count, distinct words, and words absent from the first split."""
    flat, ends = corpus.arrays()
    first = survey.splits[0]
    train_words = np.unique(flat[: ends[first.rows]])
    out = {}
    for split in survey.splits:
        word_ids = flat[ends[split.start] : ends[split.start + split.rows]]
        out[split.name] = (
            len(word_ids),
            len(np.unique(word_ids)),
            word_ids[~np.isin(word_ids, train_words)],
        )
    return out


def _check_missing(survey: Survey) -> Iterator[PendingFinding]:
    for split in survey.splits:
        noted = split.unlabelled
        if noted.count:
            have = agree(noted.count, "has", "have")
            title = f"{pluralise(noted.count, 'row')} of {split.name} {have} no target."
            fix = "Add the targets or remove the rows."
            yield PendingFinding(
                "no target", "error", title, noted.count, row_refs(split, noted.rows), fix
            )


def _check_copies(survey: Survey, pairs: TargetStats) -> Iterator[PendingFinding]:
    for split in survey.splits:
        if noted := pairs.copies.get(split.name):
            percentage = f"{100 * noted.count / max(split.rows, 1):.1f} %"
            have = agree(noted.count, "has", "have")
            rows = f"{pluralise(noted.count, 'row')} of {split.name} ({percentage})"
            title = f"{rows} {have} the source as target."
            fix = "Check whether they were left untranslated: a model learns to copy from them."
            yield PendingFinding(
                "copy", "warning", title, noted.count, row_refs(split, noted.rows), fix
            )


def _check_ratios(survey: Survey, pairs: TargetStats) -> Iterator[PendingFinding]:
    """Yield findings on unusual length ratios, as after misaligned lines."""
    ratios = pairs.ratios()
    real = ratios[~np.isnan(ratios)]
    if not len(real):
        return
    usual = float(np.median(real))
    spread = 1.4826 * float(np.median(np.abs(real - usual)))
    edge = max(math.log(MIN_RATIO_FACTOR), MIN_DEVIATIONS * spread)
    for split in survey.splits:
        deviations = np.nan_to_num(ratios[split.start : split.start + split.rows] - usual)
        far = np.flatnonzero(np.abs(deviations) > edge)
        if not len(far):
            continue
        order = far[np.argsort(-np.abs(deviations[far]), kind="stable")]
        refs = tuple(
            RowRef(split.start + int(i), detail=_describe_lengths(pairs, split.start + int(i)))
            for i in order
        )
        is_are = agree(len(far), "is", "are")
        title = (
            f"{pluralise(len(far), 'target')} of {split.name} {is_are} far longer or shorter than "
            f"usual ({math.exp(usual):.2g} words for each word of the source)."
        )
        fix = "Check for misaligned lines or missing text on one side."
        yield PendingFinding("length ratio", "warning", title, len(far), refs, fix, _quote_target)


def _describe_lengths(pairs: TargetStats, row: int) -> str:
    source, target = pairs.word_counts(row)
    return f"{target:,} for {pluralise(source, 'word')}"


def _quote_target(example: Example) -> str:
    return f"“{excerpt(target_text(example.label), 80)}”"


def _check_scripts(survey: Survey, pairs: TargetStats) -> Iterator[PendingFinding]:
    """Yield findings on targets in another script than most."""
    counts: Counter[str] = Counter()
    for table in pairs.scripts.values():
        counts.update({name: noted.count for name, noted in table.items()})
    usual = max((n for n in counts if n != NO_LETTERS), key=lambda n: counts[n], default="")
    for name, count in counts.items():
        if name in (usual, NO_LETTERS) or count >= MAX_MINORITY_FRACTION * counts.total():
            continue
        refs = [
            spot
            for split in survey.splits
            if (noted := pairs.scripts.get(split.name, {}).get(name))
            for spot in row_refs(split, noted.rows)
        ]
        have = agree(count, "has", "have")
        title = f"{pluralise(count, 'target')} {have} mostly {name} letters, not {usual}."
        fix = "Check whether they are in the right language."
        yield PendingFinding("target script", "note", title, count, tuple(refs), fix, _quote_target)


def _check_unseen(survey: Survey, corpus: WordIndex, what: str) -> Iterator[PendingFinding]:
    by_split = find_unseen_words(survey, corpus)
    first = survey.splits[0].name
    for split in survey.splits[1:]:
        total, _, new = by_split[split.name]
        if not len(new):
            continue
        fraction = len(new) / max(total, 1)
        kinds, times = np.unique(new, return_counts=True)
        most = kinds[np.argsort(-times, kind="stable")][:5]
        examples = ", ".join(f"“{word}”" for word in corpus.words(most.tolist()))
        title = (
            f"{100 * fraction:.1f} % of the {what} of {split.name} ({len(new):,}, {len(kinds):,} "
            f"distinct) never occur in {first}: {examples}{', …' if len(kinds) > 5 else '.'}"
        )
        fix = "A word-level model cannot generate them; a subword tokenizer can."
        level: Level = "warning" if fraction >= UNSEEN_WARNING_FRACTION else "note"
        yield PendingFinding("unseen words", level, title, len(new), (), fix)
