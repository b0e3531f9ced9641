"""What the doctor says: findings with places and advice, and the figures around them."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

Level = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")
MAX_SHOWN_PLACES = 20  # places of a finding that a page shows; --json has all of them


@dataclass(frozen=True)
class SentenceSketch:
    """A sentence to draw: its words, with tags and the right ones, or with heads and relations."""

    words: tuple[str, ...]
    tags: tuple[str, ...] = ()
    right: tuple[str, ...] = ()
    heads: tuple[int, ...] = ()
    relations: tuple[str, ...] = ()


@dataclass(frozen=True)
class Place:
    """Where something was found: 'file:line', an excerpt, and the other side of it."""

    where: str
    text: str = ""
    detail: str = ""
    sketch: SentenceSketch | None = None


@dataclass(frozen=True)
class Finding:
    """One thing that was found, how often, where first, and what to do about it."""

    kind: str
    level: Level
    title: str  # a full sentence with the number in it
    count: int
    places: tuple[Place, ...]
    fix: str


@dataclass
class RowTally:
    """How often something was seen, and in which rows."""

    count: int = 0
    rows: list[int] = field(default_factory=list)

    def add(self, row: int) -> None:
        self.count += 1
        self.rows.append(row)


@dataclass(frozen=True)
class Histogram:
    """How many texts of each split have from edges[i] to below edges[i + 1] words."""

    edges: tuple[int, ...] = ()
    counts: dict[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Targets:
    """The other side of pairs: how long targets are."""

    lengths: dict[str, dict[str, float]]  # by split: words a target
    histogram: Histogram


@dataclass(frozen=True)
class Diagnosis:
    """Everything the doctor found out about a set of files."""

    files: dict[str, str]  # by split
    rows: dict[str, int]  # by split
    findings: tuple[Finding, ...]  # worst first
    lengths: dict[str, dict[str, float]]  # by split: words a text
    histogram: Histogram
    labels: dict[str, dict[str, int]]  # by label, then by split
    scripts: dict[str, int]  # texts by their dominating script
    layers: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)  # by kind
    targets: Targets | None = None  # where labels are texts of their own
    # By side, then by split: words, different words, and the share that the first split has not.
    words: dict[str, dict[str, tuple[int, int, float]]] = field(default_factory=dict)

    @property
    def worst(self) -> Level | None:
        """The level of the worst finding, None when there is nothing to say."""
        return self.findings[0].level if self.findings else None

    def first(self, count: int) -> "Diagnosis":
        """The same with the first places of each finding."""
        kept = tuple(replace(finding, places=finding.places[:count]) for finding in self.findings)
        return replace(self, findings=kept)

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers."""
        return asdict(self)


def sort_by_level(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The worst first; within a level as they were found."""
    return tuple(sorted(findings, key=lambda finding: LEVELS.index(finding.level)))


def agree(count: int, one: str, more: str) -> str:
    """The form that agrees with the number."""
    return one if count == 1 else more


def pluralise(count: int, one: str, more: str = "") -> str:
    """'1 text', '2,345 texts'."""
    return f"{count:,} {one if count == 1 else more or one + 's'}"


def excerpt(text: str, width: int = 120) -> str:
    """The text on one line, cut where it gets long, with what cannot be seen spelt out."""
    flat = " ".join(text[: 8 * width].split())
    if not flat.isprintable():
        flat = "".join(sign if sign.isprintable() else f"\\u{ord(sign):04x}" for sign in flat)
    return flat if len(flat) <= width else flat[: width - 1] + "…"
