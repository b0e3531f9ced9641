"""The examination: one pass over every file, the checks, and what they found as a Diagnosis."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from weft.doctor.annotations import NOUNS
from weft.doctor.checks import duplicates, labels, rows, sentence_pairs, targets
from weft.doctor.finding import (
    MAX_SHOWN_PLACES,
    Diagnosis,
    Finding,
    Targets,
    agree,
    pluralise,
    sort_by_level,
)
from weft.doctor.pending import PendingFinding, RowRef, complete_findings
from weft.doctor.survey import ExampleSource, ProgressCallback, Survey, survey_sources
from weft.errors import MissingLibrary
from weft.text.example import Tally


def examine(
    sources: Mapping[str, ExampleSource],
    files: Mapping[str, str] | None = None,
    *,
    limit: int = 512,
    near: bool = True,
    on_progress: ProgressCallback = lambda rows: None,
    tallies: Mapping[str, Tally] | None = None,
    extra: tuple[Finding, ...] = (),
    pairs: bool | None = None,
) -> Diagnosis:
    """Look at every text of every split (the first one is what is learnt from).

    `watch` is called with the number of rows gone through since the last time; `tallies` are what
    the readers of the sources left out; `extra` findings are put in their place among the others;
    `pairs` says that labels are texts of their own, which is seen where nobody says it.
    """
    return diagnose(
        survey_sources(sources, on_progress, pairs), files, limit, near, tallies, extra
    )[0]


def diagnose(
    survey: Survey,
    files: Mapping[str, str] | None,
    limit: int,
    near: bool,
    tallies: Mapping[str, Tally] | None = None,
    extra: tuple[Finding, ...] = (),
    max_places: int | None = MAX_SHOWN_PLACES,
) -> tuple[Diagnosis, duplicates.DuplicateIndex]:
    """The diagnosis of a finished survey, and the repeated texts that --fix needs.

    A finding names its first `most` places; None stands for all of them.
    """
    for tally in (tallies or {}).values():
        tally.open = False  # rows are read again for their places, but counted once
    findings = [
        f for name, tally in (tallies or {}).items() for f in rows.report_skipped(tally, name)
    ]
    findings.extend(extra)
    try:
        same = duplicates.DuplicateIndex(survey, near)
    except MissingLibrary as error:
        findings.append(_skipped_check(error))
        same = duplicates.DuplicateIndex(survey, near=False)
    drafts: list[PendingFinding] = [*duplicates.check_duplicates(same)]
    try:
        drafts.extend(labels.check_labels(survey))
        drafts.extend(labels.check_annotations(survey))
    except MissingLibrary as error:
        findings.append(_skipped_check(error))
    drafts.extend(targets.check_targets(survey))
    drafts.extend(sentence_pairs.check_pairs(survey))
    drafts.extend(_check_rows(survey, limit))
    findings.extend(complete_findings(drafts, survey, max_places))
    findings = [replace(finding, places=finding.places[:max_places]) for finding in findings]
    result = Diagnosis(
        files=dict(files or {}),
        rows={split.name: split.rows for split in survey.splits},
        findings=sort_by_level(findings),
        lengths={s.name: rows.length_stats(s.lengths, limit) for s in survey.splits},
        histogram=rows.length_histogram({s.name: s.lengths for s in survey.splits}),
        labels=_count_labels(survey, ""),
        scripts=rows.count_scripts(survey),
        layers={kind: table for kind in NOUNS if (table := _count_labels(survey, kind))},
        targets=_target_lengths(survey, limit),
        words=_count_words(survey),
    )
    return result, same


def remove_fix_hints(diagnosis: Diagnosis) -> Diagnosis:
    """The same where --fix cannot write the files: nobody is told to use it."""
    told = (replace(f, fix=rows.without_fix_hint(f.fix)) for f in diagnosis.findings)
    return replace(diagnosis, findings=tuple(told))


def _count_labels(found: Survey, kind: str) -> dict[str, dict[str, int]]:
    """How often each name occurs in each split, the commonest first."""
    tables = {s.name: s.layers.get(kind, {}) if kind else s.labels for s in found.splits}
    ranked = sorted(labels.count_labels(found, kind).items(), key=lambda item: (-item[1], item[0]))
    return {
        name: {split: table[name].count for split, table in tables.items() if name in table}
        for name, _ in ranked
    }


def _target_lengths(found: Survey, limit: int) -> Targets | None:
    if found.pairs is None:
        return None
    known: dict[str, Mapping[int, int]] = {
        split.name: found.pairs.lengths.get(split.name, {}) for split in found.splits
    }
    lengths = {name: rows.length_stats(counts, limit) for name, counts in known.items()}
    return Targets(lengths, rows.length_histogram(known))


def _count_words(found: Survey) -> dict[str, dict[str, tuple[int, int, float]]]:
    """How many words each side has, of texts that are to be written or foretold."""
    if found.pairs is None and not found.unlabelled:
        return {}
    sides = {"text": found.corpus} | ({"target": found.pairs.corpus} if found.pairs else {})
    counted = {side: targets.find_unseen_words(found, corpus) for side, corpus in sides.items()}
    return {
        side: {
            split: (total, distinct, len(new) / max(total, 1))
            for split, (total, distinct, new) in splits.items()
        }
        for side, splits in counted.items()
        if any(total for total, *_ in splits.values())  # names of matrices are no words
    }


def _check_consistency(found: Survey) -> Iterator[PendingFinding]:
    odd = found.variation.odd()
    if odd:
        spots = tuple(
            RowRef(o.row, detail=f"{o.tag} here, {o.usual} {o.times:,} times", place=o.place)
            for o in odd
        )
        are = agree(len(odd), "is", "are")
        title = (
            f"{pluralise(len(odd), 'word')} {are} tagged unlike the same word between the same "
            "neighbours elsewhere."
        )
        if not found.sentences:
            have = agree(len(odd), "has", "have")
            title = (
                f"{pluralise(len(odd), 'span')} {have} another label than most with the same words."
            )
        fix = "Look at them: some are mistakes, some are meant."
        yield PendingFinding("odd tag", "note", title, len(odd), spots, fix)


def _check_rows(found: Survey, limit: int) -> Iterator[PendingFinding]:
    yield from _check_consistency(found)
    yield from rows.check_texts(found)
    yield from rows.check_lengths(found, limit)
    yield from rows.check_scripts(found)


def _skipped_check(error: MissingLibrary) -> Finding:
    return Finding("not looked for", "note", f"{error}", 1, (), "Install it and look again.")
