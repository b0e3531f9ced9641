"""The examination: one pass over every file, the checks, and what they found as a Diagnosis."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from weft.doctor.annotations import NOUNS
from weft.doctor.checks import duplicates, labels, rows, sentence_pairs, targets
from weft.doctor.finding import SHOWN, Diagnosis, Finding, Targets, many, ordered, verb
from weft.doctor.library import Missing
from weft.doctor.pending import Draft, Spot, written
from weft.doctor.survey import Source, Survey, Watch, survey
from weft.text.example import Tally


def examine(
    sources: Mapping[str, Source],
    files: Mapping[str, str] | None = None,
    *,
    limit: int = 512,
    near: bool = True,
    watch: Watch = lambda rows: None,
    tallies: Mapping[str, Tally] | None = None,
    extra: tuple[Finding, ...] = (),
    pairs: bool | None = None,
) -> Diagnosis:
    """Look at every text of every split (the first one is what is learnt from).

    `watch` is called with the number of rows gone through since the last time; `tallies` are what
    the readers of the sources left out; `extra` findings are put in their place among the others;
    `pairs` says that labels are texts of their own, which is seen where nobody says it.
    """
    return diagnosed(survey(sources, watch, pairs), files, limit, near, tallies, extra)[0]


def diagnosed(
    found: Survey,
    files: Mapping[str, str] | None,
    limit: int,
    near: bool,
    tallies: Mapping[str, Tally] | None = None,
    extra: tuple[Finding, ...] = (),
    most: int | None = SHOWN,
) -> tuple[Diagnosis, duplicates.Copies]:
    """The diagnosis of a finished survey, and the repeated texts that --fix needs.

    A finding names its first `most` places; None stands for all of them.
    """
    for tally in (tallies or {}).values():
        tally.open = False  # rows are read again for their places, but counted once
    findings = [f for name, tally in (tallies or {}).items() for f in rows.left_out(tally, name)]
    findings.extend(extra)
    try:
        same = duplicates.Copies(found, near)
    except Missing as error:
        findings.append(_not_looked_for(error))
        same = duplicates.Copies(found, near=False)
    drafts: list[Draft] = [*duplicates.drafts(same)]
    try:
        drafts.extend(labels.labels(found))
        drafts.extend(labels.of_words(found))
    except Missing as error:
        findings.append(_not_looked_for(error))
    drafts.extend(targets.drafts(found))
    drafts.extend(sentence_pairs.drafts(found))
    drafts.extend(_others(found, limit))
    findings.extend(written(drafts, found, most))
    findings = [replace(finding, places=finding.places[:most]) for finding in findings]
    result = Diagnosis(
        files=dict(files or {}),
        rows={split.name: split.rows for split in found.splits},
        findings=ordered(findings),
        lengths={s.name: rows.of_lengths(s.lengths, limit) for s in found.splits},
        histogram=rows.histogram({s.name: s.lengths for s in found.splits}),
        labels=_counted(found, ""),
        scripts=rows.of_scripts(found),
        layers={kind: table for kind in NOUNS if (table := _counted(found, kind))},
        targets=_targets(found, limit),
        words=_words(found),
    )
    return result, same


def without_fix(diagnosis: Diagnosis) -> Diagnosis:
    """The same where --fix cannot write the files: nobody is told to use it."""
    told = (replace(f, fix=rows.by_hand(f.fix)) for f in diagnosis.findings)
    return replace(diagnosis, findings=tuple(told))


def _counted(found: Survey, kind: str) -> dict[str, dict[str, int]]:
    """How often each name occurs in each split, the commonest first."""
    tables = {s.name: s.layers.get(kind, {}) if kind else s.labels for s in found.splits}
    ranked = sorted(labels.totals(found, kind).items(), key=lambda item: (-item[1], item[0]))
    return {
        name: {split: table[name].count for split, table in tables.items() if name in table}
        for name, _ in ranked
    }


def _targets(found: Survey, limit: int) -> Targets | None:
    if found.pairs is None:
        return None
    known: dict[str, Mapping[int, int]] = {
        split.name: found.pairs.lengths.get(split.name, {}) for split in found.splits
    }
    lengths = {name: rows.of_lengths(counts, limit) for name, counts in known.items()}
    return Targets(lengths, rows.histogram(known))


def _words(found: Survey) -> dict[str, dict[str, tuple[int, int, float]]]:
    """How many words each side has, of texts that are to be written or foretold."""
    if found.pairs is None and not found.unlabelled:
        return {}
    sides = {"text": found.corpus} | ({"target": found.pairs.corpus} if found.pairs else {})
    counted = {side: targets.unseen(found, corpus) for side, corpus in sides.items()}
    return {
        side: {
            split: (total, distinct, len(new) / max(total, 1))
            for split, (total, distinct, new) in splits.items()
        }
        for side, splits in counted.items()
        if any(total for total, *_ in splits.values())  # names of matrices are no words
    }


def _odd(found: Survey) -> Iterator[Draft]:
    odd = found.variation.odd()
    if odd:
        spots = tuple(
            Spot(o.row, detail=f"{o.tag} here, {o.usual} {o.times:,} times", place=o.place)
            for o in odd
        )
        are = verb(len(odd), "is", "are")
        title = (
            f"{many(len(odd), 'word')} {are} tagged unlike the same word between the same "
            "neighbours elsewhere."
        )
        if not found.sentences:
            have = verb(len(odd), "has", "have")
            title = f"{many(len(odd), 'span')} {have} another label than most with the same words."
        fix = "Look at them: some are mistakes, some are meant."
        yield Draft("odd tag", "note", title, len(odd), spots, fix)


def _others(found: Survey, limit: int) -> Iterator[Draft]:
    yield from _odd(found)
    yield from rows.texts(found)
    yield from rows.lengths(found, limit)
    yield from rows.scripts(found)


def _not_looked_for(error: Missing) -> Finding:
    return Finding("not looked for", "note", f"{error}", 1, (), "Install it and look again.")
