"""What to say of texts that are to be written: pairs that do not fit, words that are new."""

import math
from collections import Counter
from collections.abc import Iterator

import numpy as np

from weft.doctor.checks.scripts import NONE
from weft.doctor.checks.target_stats import Pairs, target_of
from weft.doctor.checks.word_arrays import Corpus
from weft.doctor.finding import Level, excerpt, many, verb
from weft.doctor.pending import Draft, Spot, spots
from weft.doctor.survey import Survey
from weft.text.example import Example

FACTOR = 3.0  # times the usual ratio of lengths
FAR = 6.0  # robust deviations from it
UNSEEN = 0.1  # share of words never met in training from which it is more than a note
MINORITY = 0.1  # of all targets: below this, another script is worth a look


def drafts(survey: Survey) -> Iterator[Draft]:
    """What is to be said of pairs, and of words that the first split has not."""
    pairs = survey.pairs
    if pairs is not None:
        yield from _missing(survey)
        yield from _copied(survey, pairs)
        yield from _ratios(survey, pairs)
        yield from _scripts(survey, pairs)
        yield from _unseen(survey, pairs.corpus, "target words")
    elif survey.unlabelled:
        yield from _unseen(survey, survey.corpus, "words")


def unseen(survey: Survey, corpus: Corpus) -> dict[str, tuple[int, int, np.ndarray]]:
    """By split: its words, its different words, and those that the first split does not have."""
    flat, ends = corpus.arrays()
    first = survey.splits[0]
    known = np.unique(flat[: ends[first.rows]])
    out = {}
    for split in survey.splits:
        own = flat[ends[split.start] : ends[split.start + split.rows]]
        out[split.name] = (len(own), len(np.unique(own)), own[~np.isin(own, known)])
    return out


def _missing(survey: Survey) -> Iterator[Draft]:
    for split in survey.splits:
        noted = split.unlabelled
        if noted.count:
            have = verb(noted.count, "has", "have")
            title = f"{many(noted.count, 'row')} of {split.name} {have} no target."
            fix = "Fill it in or remove the rows."
            yield Draft("no target", "error", title, noted.count, spots(split, noted.rows), fix)


def _copied(survey: Survey, pairs: Pairs) -> Iterator[Draft]:
    for split in survey.splits:
        if noted := pairs.copies.get(split.name):
            share = f"{100 * noted.count / max(split.rows, 1):.1f} %"
            have = verb(noted.count, "has", "have")
            title = (
                f"{many(noted.count, 'row')} of {split.name} ({share}) {have} the source as target."
            )
            fix = "Look whether they were never translated: a model learns to copy from them."
            yield Draft("copy", "warning", title, noted.count, spots(split, noted.rows), fix)


def _ratios(survey: Survey, pairs: Pairs) -> Iterator[Draft]:
    """Rows whose lengths do not belong together, as where lines have slipped."""
    ratios = pairs.ratios()
    real = ratios[~np.isnan(ratios)]
    if not len(real):
        return
    usual = float(np.median(real))
    spread = 1.4826 * float(np.median(np.abs(real - usual)))
    edge = max(math.log(FACTOR), FAR * spread)
    for split in survey.splits:
        own = np.nan_to_num(ratios[split.start : split.start + split.rows] - usual)
        far = np.flatnonzero(np.abs(own) > edge)
        if not len(far):
            continue
        order = far[np.argsort(-np.abs(own[far]), kind="stable")]
        here = tuple(
            Spot(split.start + int(i), detail=_told(pairs, split.start + int(i))) for i in order
        )
        is_are = verb(len(far), "is", "are")
        title = (
            f"{many(len(far), 'target')} of {split.name} {is_are} far longer or shorter than usual "
            f"({math.exp(usual):.2g} words for each word of the source)."
        )
        fix = "Look whether lines slipped, or a part of one side is missing."
        yield Draft("length ratio", "warning", title, len(far), here, fix, _said)


def _told(pairs: Pairs, row: int) -> str:
    source, target = pairs.sides(row)
    return f"{target:,} for {many(source, 'word')}"


def _said(example: Example) -> str:
    return f"“{excerpt(target_of(example.label), 80)}”"


def _scripts(survey: Survey, pairs: Pairs) -> Iterator[Draft]:
    """Targets in another script than most: another language, or none."""
    counts: Counter[str] = Counter()
    for table in pairs.scripts.values():
        counts.update({name: noted.count for name, noted in table.items()})
    usual = max((n for n in counts if n != NONE), key=lambda n: counts[n], default="")
    for name, count in counts.items():
        if name in (usual, NONE) or count >= MINORITY * counts.total():
            continue
        here = [
            spot
            for split in survey.splits
            if (noted := pairs.scripts.get(split.name, {}).get(name))
            for spot in spots(split, noted.rows)
        ]
        have = verb(count, "has", "have")
        title = f"{many(count, 'target')} {have} mostly {name} letters, not {usual}."
        fix = "Look whether they are in the right language."
        yield Draft("target script", "note", title, count, tuple(here), fix, _said)


def _unseen(survey: Survey, corpus: Corpus, what: str) -> Iterator[Draft]:
    found = unseen(survey, corpus)
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
        level: Level = "warning" if share >= UNSEEN else "note"
        yield Draft("unseen words", level, title, len(new), (), fix)
