"""Texts that occur more than once: within a split, across splits, and with different labels."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from weft.doctor.annotations import describe_difference
from weft.doctor.checks.near_duplicates import NearPair, find_near_pairs
from weft.doctor.checks.target_stats import target_text
from weft.doctor.finding import Level, agree, excerpt, pluralise
from weft.doctor.pending import PendingFinding, RowRef
from weft.doctor.survey import NO_LABEL, Survey
from weft.text.example import Example

WARNING_FRACTION = 0.01  # share of repeated rows from which it is more than a note
NO_ROW = -1
MIN_SENTENCE_WORDS = 5  # words; shorter sentences ("Thank you .") are said again by anybody


@dataclass(frozen=True)
class Leak:
    """Rows of a later split whose text, or nearly that, an earlier split has too."""

    source: int  # number of the earlier split
    target: int
    rows: np.ndarray  # (L, 2): row of the target, a row of the source
    scores: np.ndarray  # (L,) 1.0 for the same text


class DuplicateIndex:
    """Which rows hold the same text, and nearly the same."""

    def __init__(self, survey: Survey, near: bool = True) -> None:
        self.survey = survey
        self.group = np.full(survey.rows, NO_ROW, np.int64)  # number of the text of each row
        self.telling = np.ones(survey.rows, bool)  # rows whose copies are worth a word
        if survey.sentences:
            self.telling = np.diff(survey.corpus.arrays()[1]) >= MIN_SENTENCE_WORDS
        filled = survey.filled
        _, firsts, groups = np.unique(survey.same[filled], return_index=True, return_inverse=True)
        self.group[filled] = groups
        self.first = self._firsts(len(firsts))  # (splits, groups) first row of a text in a split
        representatives = filled[firsts]
        order = np.argsort(representatives)
        pairs = find_near_pairs(survey.corpus, representatives[order]) if near else []
        self.near: list[NearPair] = [p for p in pairs if self.telling[[p.first, p.second]].all()]

    def _firsts(self, groups: int) -> np.ndarray:
        first = np.full((len(self.survey.splits), groups), NO_ROW, np.int64)
        for number, split in enumerate(self.survey.splits):
            here = self.group[split.start : split.start + split.rows]
            rows = np.flatnonzero(here != NO_ROW)[::-1]  # backwards: the first one is written last
            first[number, here[rows]] = rows + split.start
        return first

    def repeats(self, split: int) -> np.ndarray:
        """(R, 2): rows of a split whose text stood there before, and where."""
        part = self.survey.splits[split]
        rows = np.arange(part.start, part.start + part.rows)
        rows = rows[(self.group[rows] != NO_ROW) & self.telling[rows]]
        first = self.first[split, self.group[rows]]
        return np.stack([rows, first], 1)[rows != first]

    def leaks(self) -> Iterator[Leak]:
        """Every earlier split against every later one."""
        for target in range(len(self.survey.splits)):
            for source in range(target):
                exact = self._exact(source, target)
                near = self._near(source, target)
                scores = np.r_[np.ones(len(exact)), [score for *_, score in near]]
                rows = [[row, there] for row, there, _ in near]
                both = np.concatenate([exact, np.array(rows, np.int64).reshape(-1, 2)])
                if len(both):
                    yield Leak(source, target, both, scores)

    def _exact(self, source: int, target: int) -> np.ndarray:
        part = self.survey.splits[target]
        rows = np.arange(part.start, part.start + part.rows)
        rows = rows[(self.group[rows] != NO_ROW) & self.telling[rows]]
        there = self.first[source, self.group[rows]]
        return np.stack([rows, there], 1)[there != NO_ROW]

    def _near(self, source: int, target: int) -> list[tuple[int, int, float]]:
        """(row of the target, row of the source, score), the nearest one a row."""
        best: dict[int, tuple[int, int, float]] = {}
        for pair in self.near:
            groups = self.group[[pair.first, pair.second]]
            for mine, yours in (groups, groups[::-1]):
                row, there = int(self.first[target, mine]), int(self.first[source, yours])
                if NO_ROW in (row, there) or self.first[source, mine] != NO_ROW:
                    continue  # not in both, or found as an exact copy already
                if row not in best or best[row][2] < pair.score:
                    best[row] = (row, there, pair.score)
        return sorted(best.values())

    def leaked(self, target: int) -> dict[int, bool]:
        """Texts of the first split that a later one has too: True for exactly, False for nearly."""
        both = (self.first[0] != NO_ROW) & (self.first[target] != NO_ROW)
        here = np.flatnonzero(both)
        out = dict.fromkeys(here[self.telling[self.first[0, here]]].tolist(), True)
        for pair in self.near:
            groups = self.group[[pair.first, pair.second]].tolist()
            for mine, yours in (groups, groups[::-1]):
                if self.first[0, mine] != NO_ROW and self.first[target, yours] != NO_ROW:
                    out.setdefault(mine, False)
        return out

    def near_repeats(self, split: int) -> list[tuple[int, int, float]]:
        """(row, earlier row, score) of nearly equal texts within a split."""
        out: dict[int, tuple[int, int, float]] = {}
        for pair in self.near:
            first, second = sorted(self.first[split, self.group[[pair.first, pair.second]]])
            if first != NO_ROW and (second not in out or out[second][2] < pair.score):
                out[int(second)] = (int(second), int(first), pair.score)
        return sorted(out.values())

    def conflicts(self) -> list[np.ndarray]:
        """Rows of each text that carries more than one label."""
        label = self.survey.label
        rows = np.flatnonzero((self.group != NO_ROW) & (label != NO_LABEL))
        rows = rows[np.argsort(self.group[rows], kind="stable")]
        groups = self.group[rows]
        cuts = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]]) if len(rows) else rows
        if not len(rows):
            return []
        low = np.minimum.reduceat(label[rows], cuts)
        high = np.maximum.reduceat(label[rows], cuts)
        stops = np.r_[cuts[1:], len(rows)]
        found = [rows[cuts[i] : stops[i]] for i in np.flatnonzero(low != high)]
        return sorted(found, key=lambda members: int(members[0]))


def check_duplicates(copies: DuplicateIndex) -> Iterator[PendingFinding]:
    """What to say about repeated texts."""
    yield from _check_leaks(copies)
    yield from _check_conflicts(copies)
    for number in range(len(copies.survey.splits)):
        yield from _check_repeats(copies, number)


def _check_leaks(copies: DuplicateIndex) -> Iterator[PendingFinding]:
    splits = copies.survey.splits
    for leak in copies.leaks():
        source, target = splits[leak.source], splits[leak.target]
        advice = (
            f"Take them out of {source.name} (--fix does), or the measured quality is too high."
        )
        for exact in (True, False):
            chosen = (leak.scores == 1.0) if exact else (leak.scores < 1.0)
            rows = leak.rows[chosen]
            if not len(rows):
                continue
            have, are = ("has", "is") if len(rows) == 1 else ("have", "are")
            texts = f"{pluralise(len(rows), copies.survey.unit)} of {target.name}"
            share = f"{100 * len(rows) / max(1, target.rows):.1f} %"
            title = (
                f"{texts} ({share}) {are} in {source.name} too."
                if exact
                else f"{texts} ({share}) {have} a near copy in {source.name}."
            )
            # That two people say the same sentence is seldom a leak; that many do, is.
            few = copies.survey.sentences and len(rows) < WARNING_FRACTION * target.rows
            level: Level = "error" if exact and not few else "warning"
            spots = tuple(RowRef(int(row), int(there)) for row, there in rows)
            kind = "leak" if exact else "near leak"
            yield PendingFinding(kind, level, title, len(rows), spots, advice)


def _check_conflicts(copies: DuplicateIndex) -> Iterator[PendingFinding]:
    if copies.survey.scale:
        return
    found = copies.conflicts()
    if not found:
        return
    if copies.survey.pairs is not None:
        yield _several_targets(copies, found)
        return
    names, label = copies.survey.label_names(), copies.survey.label
    spots = []
    for rows in found:
        other = next(row for row in rows if label[row] != label[rows[0]])
        told = " / ".join(_format_label(names[label[row]]) for row in (rows[0], other))
        spots.append(RowRef(int(rows[0]), int(other), "" if copies.survey.structured else told))
    fix = "Decide for one label each; --fix leaves them as they are and lists them."
    have = agree(len(found), "has", "have")
    title = f"{pluralise(len(found), copies.survey.unit)} {have} more than one label."
    if copies.survey.structured:
        is_are = agree(len(found), "is", "are")
        title = (
            f"{pluralise(len(found), copies.survey.unit)} {is_are} annotated in more than one way."
        )
        fix = fix.replace("label", "annotation")
    against = describe_difference if copies.survey.structured else None
    yield PendingFinding(
        "conflict", "warning", title, len(found), tuple(spots), fix, compare=against
    )


def _several_targets(copies: DuplicateIndex, found: list[np.ndarray]) -> PendingFinding:
    """One text that should become several: more than one reference, or a mistake."""
    label = copies.survey.label
    others = [next(row for row in rows if label[row] != label[rows[0]]) for rows in found]
    spots = [RowRef(int(rows[0]), int(there)) for rows, there in zip(found, others, strict=False)]
    have = agree(len(found), "has", "have")
    title = f"{pluralise(len(found), 'text')} {have} more than one target."
    fix = "Fine where several answers are right; else decide for one of them."
    return PendingFinding(
        "conflict", "note", title, len(found), tuple(spots), fix, compare=_compare_targets
    )


def _compare_targets(here: Example, there: Example) -> str:
    return " / ".join(f"“{excerpt(target_text(e.label), 60)}”" for e in (here, there))


def _check_repeats(copies: DuplicateIndex, number: int) -> Iterator[PendingFinding]:
    split = copies.survey.splits[number]
    rows = copies.repeats(number)
    if copies.survey.pairs is not None and len(rows):  # another target makes another pair
        label = copies.survey.label
        rows = rows[label[rows[:, 0]] == label[rows[:, 1]]]
    if len(rows):
        identical = copies.survey.identical
        bytewise = int((identical[rows[:, 0]] == identical[rows[:, 1]]).sum())
        unit = "pair" if copies.survey.pairs is not None else copies.survey.unit
        again = agree(len(rows), "repeats", "repeat")
        title = (
            f"{pluralise(len(rows), 'row')} of {split.name} {again} an earlier {unit} "
            f"({bytewise:,} byte for byte, the rest in case, spaces or Unicode form)."
        )
        level: Level = "warning" if len(rows) >= WARNING_FRACTION * split.rows else "note"
        spots = tuple(RowRef(int(row), int(first)) for row, first in rows)
        said = "annotation" if copies.survey.structured else "label"
        fix = f"Remove the later ones (--fix does where the {said} is the same)."
        yield PendingFinding("duplicate", level, title, len(rows), spots, fix)
    near = copies.near_repeats(number)
    if near:
        texts = f"{pluralise(len(near), copies.survey.unit)} of {split.name}"
        title = f"{texts} {agree(len(near), 'is', 'are')} nearly the same as an earlier one."
        spots = tuple(RowRef(row, first) for row, first, _ in near)
        fix = "Look at them: copies with a typo teach nothing new."
        yield PendingFinding("near duplicate", "note", title, len(near), spots, fix)


def _format_label(label: object) -> str:
    return ", ".join(label) if isinstance(label, tuple) else str(label)
