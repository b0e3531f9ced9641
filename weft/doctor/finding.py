"""The diagnosis of a dataset: findings with places and advice, and statistics."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

from weft.jsonio import JsonObject
from weft.notebook import HtmlRepr

Level = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")
MAX_SHOWN_PLACES = 20  # on a page; --json has all of them


@dataclass(frozen=True)
class SentenceSketch:
    """A sentence to draw: words with given and corrected tags, or with heads and relations."""

    words: tuple[str, ...]
    tags: tuple[str, ...] = ()
    right: tuple[str, ...] = ()
    heads: tuple[int, ...] = ()
    relations: tuple[str, ...] = ()


@dataclass(frozen=True)
class Place:
    """The place of a finding: 'file:line', an excerpt, and details."""

    where: str
    text: str = ""
    detail: str = ""
    sketch: SentenceSketch | None = None


@dataclass(frozen=True, repr=False)
class Finding(HtmlRepr):
    """A kind of fault, its count, its first places, and how to fix it."""

    kind: str
    level: Level
    title: str  # a full sentence that includes the count
    count: int
    places: tuple[Place, ...]
    fix: str

    def __repr__(self) -> str:
        return f"Finding({self.level}: {self.title})"


@dataclass
class RowTally:
    """A count and the rows it comes from."""

    count: int = 0
    rows: list[int] = field(default_factory=list)

    def add(self, row: int) -> None:
        self.count += 1
        self.rows.append(row)


@dataclass(frozen=True)
class Histogram:
    """Counts of texts per split with edges[i] up to, not including, edges[i + 1] words."""

    edges: tuple[int, ...] = ()
    counts: dict[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class TargetLengths:
    """Statistics of target texts."""

    lengths: dict[str, dict[str, float]]  # by split: words per target
    histogram: Histogram


@dataclass(frozen=True, repr=False)
class Diagnosis(HtmlRepr):
    """All findings and statistics of a set of files."""

    files: dict[str, str]  # by split
    rows: dict[str, int]  # by split
    findings: tuple[Finding, ...]  # worst first
    lengths: dict[str, dict[str, float]]  # by split: words per text
    histogram: Histogram
    labels: dict[str, dict[str, int]]  # by label, then by split
    scripts: dict[str, int]  # texts by their main script
    layers: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)  # by kind
    targets: TargetLengths | None = None  # if labels are target texts
    # By side, then by split: words, distinct words, and the fraction absent from the first split.
    words: dict[str, dict[str, tuple[int, int, float]]] = field(default_factory=dict)

    def __repr__(self) -> str:
        rows = ", ".join(f"{split} {count:,} rows" for split, count in self.rows.items())
        counts = Counter(finding.level for finding in self.findings)
        found = ", ".join(pluralise(counts[level], level) for level in LEVELS if counts[level])
        return f"Diagnosis({rows}: {found or 'no problems found'})"

    @property
    def worst(self) -> Level | None:
        """The level of the worst finding, None without findings."""
        return self.findings[0].level if self.findings else None

    def first(self, count: int) -> "Diagnosis":
        """Return the diagnosis with the first `count` places of each finding."""
        kept = tuple(replace(finding, places=finding.places[:count]) for finding in self.findings)
        return replace(self, findings=kept)

    def to_json(self) -> JsonObject:
        """Return plain dicts, lists and numbers."""
        return asdict(self)


def sort_by_level(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings by level, the worst first; the order within a level stays."""
    return tuple(sorted(findings, key=lambda finding: LEVELS.index(finding.level)))


def agree(count: int, one: str, more: str) -> str:
    """Return the verb form that agrees with the count."""
    return one if count == 1 else more


def pluralise(count: int, one: str, more: str = "") -> str:
    """Return '1 text', '2,345 texts'."""
    return f"{count:,} {one if count == 1 else more or one + 's'}"


def excerpt(text: str, width: int = 120) -> str:
    """Return the text on one line, truncated, with invisible characters escaped."""
    flat = " ".join(text[: 8 * width].split())
    if not flat.isprintable():
        flat = "".join(sign if sign.isprintable() else f"\\u{ord(sign):04x}" for sign in flat)
    return flat if len(flat) <= width else flat[: width - 1] + "…"
