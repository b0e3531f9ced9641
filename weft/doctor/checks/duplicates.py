"""Check for repeated texts: within a split, across splits, and with different labels."""

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

WARNING_FRACTION = 0.01  # of repeated rows, to warn
NO_ROW = -1
MIN_SENTENCE_WORDS = 5  # shorter ones ("Thank you .") repeat naturally


@dataclass(frozen=True)
class Leak:
    """Rows of a later split whose text, exactly or nearly, an earlier split has too."""

    source: int  # index of the earlier split
    target: int
    rows: np.ndarray  # (L, 2): row of the target, a row of the source
    scores: np.ndarray  # (L,) 1.0 for the same text


class DuplicateIndex:
    """The rows with the same and nearly the same text."""

    def __init__(self, survey: Survey, near: bool = True) -> None:
        self.survey = survey
        self.group = np.full(survey.rows, NO_ROW, np.int64)  # text id of each row
        self.is_significant = np.ones(survey.rows, bool)  # rows whose duplicates matter
        if survey.sentences:
            self.is_significant = np.diff(survey.corpus.arrays()[1]) >= MIN_SENTENCE_WORDS
        filled = survey.filled
        _, firsts, groups = np.unique(survey.same[filled], return_index=True, return_inverse=True)
        self.group[filled] = groups
        self.first = self._firsts(len(firsts))  # (splits, groups): first row of a text in a split
        representatives = filled[firsts]
        order = np.argsort(representatives)
        pairs = find_near_pairs(survey.corpus, representatives[order]) if near else []
        self.near: list[NearPair] = [
            p for p in pairs if self.is_significant[[p.first, p.second]].all()
        ]

    def _firsts(self, groups: int) -> np.ndarray:
        first = np.full((len(self.survey.splits), groups), NO_ROW, np.int64)
        for number, split in enumerate(self.survey.splits):
            here = self.group[split.start : split.start + split.rows]
            rows = np.flatnonzero(here != NO_ROW)[::-1]  # backwards: the first row is written last
            first[number, here[rows]] = rows + split.start
        return first

    def repeats(self, split: int) -> np.ndarray:
        """Return (R, 2): rows of a split that repeat a text, and its first row."""
        part = self.survey.splits[split]
        rows = np.arange(part.start, part.start + part.rows)
        rows = rows[(self.group[rows] != NO_ROW) & self.is_significant[rows]]
        first = self.first[split, self.group[rows]]
        repeated: np.ndarray = np.stack([rows, first], 1)[rows != first]
        return repeated

    def leaks(self) -> Iterator[Leak]:
        """Compare every earlier split with every later one."""
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
        rows = rows[(self.group[rows] != NO_ROW) & self.is_significant[rows]]
        there = self.first[source, self.group[rows]]
        shared: np.ndarray = np.stack([rows, there], 1)[there != NO_ROW]
        return shared

    def _near(self, source: int, target: int) -> list[tuple[int, int, float]]:
        """Return (target row, source row, score), the closest per target row."""
        best: dict[int, tuple[int, int, float]] = {}
        for pair in self.near:
            groups = self.group[[pair.first, pair.second]]
            for mine, yours in (groups, groups[::-1]):
                row, there = int(self.first[target, mine]), int(self.first[source, yours])
                if NO_ROW in (row, there) or self.first[source, mine] != NO_ROW:
                    continue  # not in both, or already an exact duplicate
                if row not in best or best[row][2] < pair.score:
                    best[row] = (row, there, pair.score)
        return sorted(best.values())

    def find_leaks(self, target: int) -> dict[int, bool]:
        """Return texts of the first split that `target` has too: True if exact, False if near."""
        both = (self.first[0] != NO_ROW) & (self.first[target] != NO_ROW)
        here = np.flatnonzero(both)
        out = dict.fromkeys(here[self.is_significant[self.first[0, here]]].tolist(), True)
        for pair in self.near:
            groups = self.group[[pair.first, pair.second]].tolist()
            for mine, yours in (groups, groups[::-1]):
                if self.first[0, mine] != NO_ROW and self.first[target, yours] != NO_ROW:
                    out.setdefault(mine, False)
        return out

    def near_repeats(self, split: int) -> list[tuple[int, int, float]]:
        """Return (row, earlier row, score) of near duplicates within a split."""
        out: dict[int, tuple[int, int, float]] = {}
        for pair in self.near:
            first, second = sorted(self.first[split, self.group[[pair.first, pair.second]]])
            if first != NO_ROW and (second not in out or out[second][2] < pair.score):
                out[int(second)] = (int(second), int(first), pair.score)
        return sorted(out.values())

    def conflicts(self) -> list[np.ndarray]:
        """Return the rows of each text with more than one label."""
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
        members_of_conflicts = [rows[cuts[i] : stops[i]] for i in np.flatnonzero(low != high)]
        return sorted(members_of_conflicts, key=lambda members: int(members[0]))


def check_duplicates(duplicates: DuplicateIndex) -> Iterator[PendingFinding]:
    """Yield findings about repeated texts."""
    yield from _check_leaks(duplicates)
    yield from _check_conflicts(duplicates)
    for number in range(len(duplicates.survey.splits)):
        yield from _check_repeats(duplicates, number)


def _check_leaks(duplicates: DuplicateIndex) -> Iterator[PendingFinding]:
    splits = duplicates.survey.splits
    for leak in duplicates.leaks():
        source, target = splits[leak.source], splits[leak.target]
        advice = f"Remove them from {source.name} (--fix does), or test scores will be too high."
        for exact in (True, False):
            chosen = (leak.scores == 1.0) if exact else (leak.scores < 1.0)
            rows = leak.rows[chosen]
            if not len(rows):
                continue
            have, are = ("has", "is") if len(rows) == 1 else ("have", "are")
            texts = f"{pluralise(len(rows), duplicates.survey.unit)} of {target.name}"
            percentage = f"{100 * len(rows) / max(1, target.rows):.1f} %"
            title = (
                f"{texts} ({percentage}) {are} also in {source.name}."
                if exact
                else f"{texts} ({percentage}) {have} a near duplicate in {source.name}."
            )
            # A few equal sentences are seldom a leak; many are.
            few = duplicates.survey.sentences and len(rows) < WARNING_FRACTION * target.rows
            level: Level = "error" if exact and not few else "warning"
            spots = tuple(RowRef(int(row), int(there)) for row, there in rows)
            kind = "leak" if exact else "near leak"
            yield PendingFinding(kind, level, title, len(rows), spots, advice)


def _check_conflicts(duplicates: DuplicateIndex) -> Iterator[PendingFinding]:
    if duplicates.survey.scale:
        return
    conflicts = duplicates.conflicts()
    if not conflicts:
        return
    if duplicates.survey.pairs is not None:
        yield _several_targets(duplicates, conflicts)
        return
    names, label = duplicates.survey.label_names(), duplicates.survey.label
    spots = []
    for rows in conflicts:
        other = next(row for row in rows if label[row] != label[rows[0]])
        both_labels = " / ".join(_format_label(names[label[row]]) for row in (rows[0], other))
        spots.append(
            RowRef(int(rows[0]), int(other), "" if duplicates.survey.structured else both_labels)
        )
    fix = "Choose one label for each; --fix lists them unchanged."
    have = agree(len(conflicts), "has", "have")
    title = f"{pluralise(len(conflicts), duplicates.survey.unit)} {have} more than one label."
    if duplicates.survey.structured:
        is_are = agree(len(conflicts), "is", "are")
        counted = f"{pluralise(len(conflicts), duplicates.survey.unit)} {is_are}"
        title = f"{counted} annotated in more than one way."
        fix = fix.replace("label", "annotation")
    against = describe_difference if duplicates.survey.structured else None
    yield PendingFinding(
        "conflict", "warning", title, len(conflicts), tuple(spots), fix, compare=against
    )


def _several_targets(duplicates: DuplicateIndex, conflicts: list[np.ndarray]) -> PendingFinding:
    """Return the finding for texts with several targets: references, or mistakes."""
    label = duplicates.survey.label
    others = [next(row for row in rows if label[row] != label[rows[0]]) for rows in conflicts]
    spots = [
        RowRef(int(rows[0]), int(there)) for rows, there in zip(conflicts, others, strict=False)
    ]
    have = agree(len(conflicts), "has", "have")
    title = f"{pluralise(len(conflicts), 'text')} {have} more than one target."
    fix = "Fine if several answers are right; otherwise choose one."
    return PendingFinding(
        "conflict", "note", title, len(conflicts), tuple(spots), fix, compare=_compare_targets
    )


def _compare_targets(here: Example, there: Example) -> str:
    return " / ".join(f"“{excerpt(target_text(e.label), 60)}”" for e in (here, there))


def _check_repeats(duplicates: DuplicateIndex, number: int) -> Iterator[PendingFinding]:
    split = duplicates.survey.splits[number]
    rows = duplicates.repeats(number)
    if duplicates.survey.pairs is not None and len(rows):  # another target is another pair
        label = duplicates.survey.label
        rows = rows[label[rows[:, 0]] == label[rows[:, 1]]]
    if len(rows):
        identical = duplicates.survey.identical
        bytewise = int((identical[rows[:, 0]] == identical[rows[:, 1]]).sum())
        unit = "pair" if duplicates.survey.pairs is not None else duplicates.survey.unit
        again = agree(len(rows), "repeats", "repeat")
        title = (
            f"{pluralise(len(rows), 'row')} of {split.name} {again} an earlier {unit} "
            f"({bytewise:,} exactly, the rest up to case, spaces or Unicode form)."
        )
        level: Level = "warning" if len(rows) >= WARNING_FRACTION * split.rows else "note"
        spots = tuple(RowRef(int(row), int(first)) for row, first in rows)
        noun = "annotation" if duplicates.survey.structured else "label"
        fix = f"Remove the later ones (--fix does if the {noun} is the same)."
        yield PendingFinding("duplicate", level, title, len(rows), spots, fix)
    near = duplicates.near_repeats(number)
    if near:
        texts = f"{pluralise(len(near), duplicates.survey.unit)} of {split.name}"
        title = f"{texts} {agree(len(near), 'is', 'are')} nearly the same as an earlier one."
        spots = tuple(RowRef(row, first) for row, first, _ in near)
        fix = "Review them: a copy with a typo adds nothing."
        yield PendingFinding("near duplicate", "note", title, len(near), spots, fix)


def _format_label(label: object) -> str:
    return ", ".join(label) if isinstance(label, tuple) else str(label)
