"""The examination: one pass over every file, the checks, and what they found as a Diagnosis."""

from collections.abc import Iterator, Mapping

from weft.doctor import checks, copies
from weft.doctor.draft import Draft, written
from weft.doctor.finding import Diagnosis, Finding, ordered
from weft.doctor.library import Missing
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
) -> Diagnosis:
    """Look at every text of every split (the first one is what is learnt from).

    `watch` is called with the number of rows gone through since the last time; `tallies` are what
    the readers of the sources left out; `extra` findings are put in their place among the others.
    """
    return diagnosed(survey(sources, watch), files, limit, near, tallies, extra)[0]


def diagnosed(
    found: Survey,
    files: Mapping[str, str] | None,
    limit: int,
    near: bool,
    tallies: Mapping[str, Tally] | None = None,
    extra: tuple[Finding, ...] = (),
) -> tuple[Diagnosis, copies.Copies]:
    """The diagnosis of a finished survey, and the repeated texts that --fix needs."""
    for tally in (tallies or {}).values():
        tally.open = False  # rows are read again for their places, but counted once
    findings = [f for name, tally in (tallies or {}).items() for f in checks.left_out(tally, name)]
    findings.extend(extra)
    try:
        same = copies.Copies(found, near)
    except Missing as error:
        findings.append(_not_looked_for(error))
        same = copies.Copies(found, near=False)
    drafts: list[Draft] = [*copies.drafts(same)]
    try:
        drafts.extend(checks.labels(found))
    except Missing as error:
        findings.append(_not_looked_for(error))
    drafts.extend(_others(found, limit))
    findings.extend(written(drafts, found))
    counts = checks.totals(found)
    result = Diagnosis(
        files=dict(files or {}),
        rows={split.name: split.rows for split in found.splits},
        findings=ordered(findings),
        lengths={s.name: checks.of_lengths(s.lengths, limit) for s in found.splits},
        histogram=checks.histogram(found),
        labels={
            label: {s.name: s.labels[label].count for s in found.splits if label in s.labels}
            for label, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        },
        scripts=checks.of_scripts(found),
    )
    return result, same


def _others(found: Survey, limit: int) -> Iterator[Draft]:
    yield from checks.texts(found)
    yield from checks.lengths(found, limit)
    yield from checks.scripts(found)


def _not_looked_for(error: Missing) -> Finding:
    return Finding("not looked for", "note", f"{error}", 1, (), "Install it and look again.")
