"""Survey every file once, run the checks, and collect the findings in a Diagnosis."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from weft.doctor.annotations import NOUNS
from weft.doctor.checks import duplicates, hierarchy, labels, rows, sentence_pairs, targets
from weft.doctor.finding import (
    MAX_SHOWN_PLACES,
    Diagnosis,
    Finding,
    TargetLengths,
    agree,
    pluralise,
    sort_by_level,
)
from weft.doctor.pending import PendingFinding, RowRef, complete_findings
from weft.doctor.survey import ExampleSource, ProgressCallback, Survey, survey_sources
from weft.errors import MissingLibrary
from weft.text.example import SkipCounter


def examine(
    sources: Mapping[str, ExampleSource],
    files: Mapping[str, str] | None = None,
    *,
    max_words: int = 512,
    near: bool = True,
    on_progress: ProgressCallback = lambda rows: None,
    tallies: Mapping[str, SkipCounter] | None = None,
    extra: tuple[Finding, ...] = (),
    pairs: bool | None = None,
) -> Diagnosis:
    """Examine every text of every split; the first split is the training data.

    `on_progress` gets the number of rows read since its last call; `tallies` count the rows the
    readers skipped; `extra` findings are sorted in with the others; `pairs` says whether labels
    are target texts, None to detect it.
    """
    return diagnose(
        survey_sources(sources, on_progress, pairs), files, max_words, near, tallies, extra
    )[0]


def diagnose(
    survey: Survey,
    files: Mapping[str, str] | None,
    max_words: int,
    near: bool,
    tallies: Mapping[str, SkipCounter] | None = None,
    extra: tuple[Finding, ...] = (),
    max_places: int | None = MAX_SHOWN_PLACES,
) -> tuple[Diagnosis, duplicates.DuplicateIndex]:
    """Return the diagnosis of a finished survey, and the duplicates that --fix needs.

    A finding keeps its first `max_places` places; None means all.
    """
    for tally in (tallies or {}).values():
        tally.enabled = False  # rows are read again for excerpts, but counted once
    findings = [
        f for name, tally in (tallies or {}).items() for f in rows.report_skipped(tally, name)
    ]
    findings.extend(extra)
    try:
        duplicate_index = duplicates.DuplicateIndex(survey, near)
    except MissingLibrary as error:
        findings.append(_skipped_check(error))
        duplicate_index = duplicates.DuplicateIndex(survey, near=False)
    pending: list[PendingFinding] = [*duplicates.check_duplicates(duplicate_index)]
    try:
        pending.extend(labels.check_labels(survey))
        pending.extend(hierarchy.check_hierarchy(survey))
        pending.extend(labels.check_annotations(survey))
    except MissingLibrary as error:
        findings.append(_skipped_check(error))
    pending.extend(targets.check_targets(survey))
    pending.extend(sentence_pairs.check_pairs(survey))
    pending.extend(_check_rows(survey, max_words))
    findings.extend(complete_findings(pending, survey, max_places))
    findings = [replace(finding, places=finding.places[:max_places]) for finding in findings]
    result = Diagnosis(
        files=dict(files or {}),
        rows={split.name: split.rows for split in survey.splits},
        findings=sort_by_level(findings),
        lengths={s.name: rows.length_stats(s.lengths, max_words) for s in survey.splits},
        histogram=rows.length_histogram({s.name: s.lengths for s in survey.splits}),
        labels=_count_labels(survey, ""),
        scripts=rows.count_scripts(survey),
        layers={kind: table for kind in NOUNS if (table := _count_labels(survey, kind))},
        targets=_target_lengths(survey, max_words),
        words=_count_words(survey),
    )
    return result, duplicate_index


def remove_fix_hints(diagnosis: Diagnosis) -> Diagnosis:
    """Return the diagnosis without advice to use --fix, for files it cannot write."""
    without_hints = (replace(f, fix=rows.without_fix_hint(f.fix)) for f in diagnosis.findings)
    return replace(diagnosis, findings=tuple(without_hints))


def _count_labels(survey: Survey, kind: str) -> dict[str, dict[str, int]]:
    """Count each name per split, the most frequent first."""
    tables = {s.name: s.layers.get(kind, {}) if kind else s.labels for s in survey.splits}
    ranked = sorted(labels.count_labels(survey, kind).items(), key=lambda item: (-item[1], item[0]))
    return {
        name: {split: table[name].count for split, table in tables.items() if name in table}
        for name, _ in ranked
    }


def _target_lengths(survey: Survey, max_words: int) -> TargetLengths | None:
    if survey.pairs is None:
        return None
    counts_by_split: dict[str, Mapping[int, int]] = {
        split.name: survey.pairs.lengths.get(split.name, {}) for split in survey.splits
    }
    lengths = {name: rows.length_stats(table, max_words) for name, table in counts_by_split.items()}
    return TargetLengths(lengths, rows.length_histogram(counts_by_split))


def _count_words(survey: Survey) -> dict[str, dict[str, tuple[int, int, float]]]:
    """Count the words of each side, for seq2seq and language modelling."""
    if survey.pairs is None and not survey.unlabelled:
        return {}
    sides = {"text": survey.corpus} | ({"target": survey.pairs.corpus} if survey.pairs else {})
    counted = {side: targets.find_unseen_words(survey, corpus) for side, corpus in sides.items()}
    return {
        side: {
            split: (total, distinct, len(new) / max(total, 1))
            for split, (total, distinct, new) in splits.items()
        }
        for side, splits in counted.items()
        if any(total for total, *_ in splits.values())  # matrix references are not words
    }


def _check_consistency(survey: Survey) -> Iterator[PendingFinding]:
    inconsistent = survey.variation.find_inconsistent()
    if inconsistent:
        spots = tuple(
            RowRef(
                o.row, detail=f"{o.tag} here, {o.usual_tag} {o.usual_count:,} times", word=o.word
            )
            for o in inconsistent
        )
        are = agree(len(inconsistent), "is", "are")
        title = (
            f"{pluralise(len(inconsistent), 'word')} {are} tagged differently from the same word "
            "in the same context elsewhere."
        )
        if not survey.sentences:
            have = agree(len(inconsistent), "has", "have")
            spans = f"{pluralise(len(inconsistent), 'span')} {have}"
            title = f"{spans} a different label than most spans with the same words."
        fix = "Review them: some are mistakes, some are intended."
        yield PendingFinding("odd tag", "note", title, len(inconsistent), spots, fix)


def _check_rows(survey: Survey, max_words: int) -> Iterator[PendingFinding]:
    yield from _check_consistency(survey)
    yield from rows.check_texts(survey)
    yield from rows.check_lengths(survey, max_words)
    yield from rows.check_scripts(survey)


def _skipped_check(error: MissingLibrary) -> Finding:
    return Finding("not looked for", "note", f"{error}", 1, (), "Install it and check again.")
