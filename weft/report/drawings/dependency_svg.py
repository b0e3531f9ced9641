"""Dependency trees as SVG: arcs over the words, and under them those that the model missed."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from weft.errors import UserError
from weft.report.drawings.tree_svg import svg, width

LETTERS, LABELS = 13, 11  # sizes of words and labels
GAP = 18  # pixels between words
LEVEL = 24  # pixels between arcs that lie over each other
LEG = 8  # pixels between the feet of arcs at one word
CORNER = 8
ROOM = 22  # pixels beside a label, for the corners and the tip
MARGIN = 6


@dataclass(frozen=True)
class Arc:
    """One arc, from a head to a word, both counted from 0; a root's head is -1."""

    head: int
    word: int
    label: str
    off: bool = False

    @property
    def ends(self) -> tuple[int, int]:
        return min(self.head, self.word), max(self.head, self.word)


def dependencies(
    words: Sequence[str],
    heads: Sequence[int],
    labels: Sequence[str],
    tags: Sequence[str] = (),
    gold_heads: Sequence[int] = (),
    gold_labels: Sequence[str] = (),
) -> Markup:
    """Arcs over the words; heads as CoNLL-U counts them, 0 the root.

    Of tags of several columns, with a space between them, the first is shown. With gold, an arc
    whose head or label is wrong stands out, and the right one hangs below.
    """
    _fits(words, heads, labels, tags, gold_heads, gold_labels)
    tags = [tag.partition(" ")[0] for tag in tags]
    gold = list(zip(gold_heads, gold_labels, strict=True))
    said = list(zip(heads, labels, strict=True))
    arcs = [
        Arc(head - 1, word, label, bool(gold) and gold[word] != (head, label))
        for word, (head, label) in enumerate(said)
    ]
    missed = [
        Arc(head - 1, word, label)
        for word, (head, label) in enumerate(gold)
        if said[word] != (head, label)
    ]
    x, wide = _columns(words, tags, arcs, missed)
    above, below = levels(arcs), levels(missed)
    top = MARGIN + 16 + LEVEL * max(above, default=0)
    under = top + LETTERS + 8 + (16 if tags else 0)
    drawn = [_drawn(arcs, above, x, top, -1), _drawn(missed, below, x, under, 1)]
    for i, word in enumerate(words):
        drawn.append(Markup('<text x="{:.1f}" y="{:.1f}">{}</text>').format(x[i], top + 15, word))
        if tags:
            line = Markup('<text class="quiet" x="{:.1f}" y="{:.1f}">{}</text>')
            drawn.append(line.format(x[i], top + 31, tags[i]))
    high = under + (LEVEL * max(below) + 16 if missed else 0) + MARGIN
    return svg(wide, high, drawn, "dependencies")


def levels(arcs: Sequence[Arc]) -> list[int]:
    """How high each arc runs: above every shorter one that it covers or crosses; roots at 1."""
    out = [1] * len(arcs)
    order = sorted(range(len(arcs)), key=lambda i: arcs[i].ends[1] - arcs[i].ends[0])
    done: list[int] = []
    for i in order:
        if arcs[i].head < 0:
            continue
        a, b = arcs[i].ends
        inside = [out[j] for j in done if arcs[j].ends[0] < b and arcs[j].ends[1] > a]
        out[i] = 1 + max(inside, default=0)
        done.append(i)
    over = max(out, default=1)
    for i, arc in enumerate(arcs):
        if arc.head < 0 and len(arcs) > 1:  # its label stands over everything beside it
            out[i] = over + 1
    return out


def _fits(words: Sequence[str], *columns: Sequence) -> None:
    names = ("heads", "labels", "tags", "gold heads", "gold labels")
    for name, column in zip(names, columns, strict=True):
        if len(column) != len(words) and (len(column) or name in names[:2]):
            raise UserError(f"{len(words)} words, but {len(column)} {name}: each word needs one.")
    for column in (columns[0], columns[3]):
        for word, head in enumerate(column, 1):
            if not 0 <= head <= len(words) or head == word:
                raise UserError(
                    f"The head of word {word} is {head}; it should be another word, "
                    f"from 1 to {len(words)}, or 0 for the root."
                )


def _half(words: Sequence[str], tags: Sequence[str], i: int) -> float:
    own = max(width(words[i], LETTERS), width(tags[i], LABELS) if tags else 0.0)
    return own / 2


def _columns(
    words: Sequence[str], tags: Sequence[str], arcs: Sequence[Arc], missed: Sequence[Arc]
) -> tuple[list[float], float]:
    """The middle of each word, so far apart that every label fits into its arc; the whole width."""
    halves = []
    for i in range(len(words)):
        feet = max(sum(i in arc.ends for arc in part) for part in (arcs, missed))
        roots = [a.label for a in (*arcs, *missed) if a.head < 0 and a.word == i]
        # A root's label stands over its own foot, which need not be the middle one.
        label = max((width(root, LABELS) for root in roots), default=0.0)
        halves.append(max(_half(words, tags, i), (LEG * feet + label) / 2))
    gaps = [a + GAP + b for a, b in pairwise(halves)]
    for arc in sorted((*arcs, *missed), key=lambda arc: arc.ends[1] - arc.ends[0]):
        if arc.head >= 0:
            a, b = arc.ends
            feet = LEG * max(sum(end in other.ends for other in arcs) for end in (a, b))
            lacks = width(arc.label, LABELS) + ROOM + feet - sum(gaps[a:b])
            for i in range(a, b):
                gaps[i] += max(0.0, lacks) / (b - a)
    if not halves:
        return [], 1.0
    out = [MARGIN + halves[0]]
    for gap in gaps:
        out.append(out[-1] + gap)
    return out, out[-1] + halves[-1] + MARGIN


def _drawn(
    arcs: Sequence[Arc], level: Sequence[int], x: Sequence[float], base: float, way: int
) -> Markup:
    """The arcs on one side of the words: way -1 is above, 1 below."""
    feet = _feet(arcs, level, x)
    lines, labels = [], []
    for arc, high, (start, end) in zip(arcs, level, feet, strict=True):
        kind = (" off" if arc.off else "") + (" missed" if way > 0 else "")
        y = base + way * LEVEL * high
        tip = f"M{end:.1f} {base + way * 2:.1f}l-3.5 {way * 7}h7z"
        if arc.head < 0:
            path, middle = f"M{end:.1f} {y:.1f}V{base + way * 6:.1f}", end
        else:
            turn = min(CORNER, abs(end - start) / 2) * (1 if end > start else -1)
            drop = -way * abs(turn)
            path = (
                f"M{start:.1f} {base:.1f}V{y + drop:.1f}Q{start:.1f} {y:.1f} {start + turn:.1f} "
                f"{y:.1f}H{end - turn:.1f}Q{end:.1f} {y:.1f} {end:.1f} {y + drop:.1f}"
                f"V{base + way * 6:.1f}"
            )
            middle = (start + end) / 2
        lines.append(f'<path class="edge{kind}" d="{path}"/><path class="tip{kind}" d="{tip}"/>')
        labels.append(
            Markup('<text class="said halo{}" x="{:.1f}" y="{:.1f}">{}</text>')
            .format(" off" if arc.off else "", middle, y + 4, arc.label)
        )  # fmt: skip
    return Markup("".join(lines)) + Markup("").join(labels)


def _feet(
    arcs: Sequence[Arc], level: Sequence[int], x: Sequence[float]
) -> list[tuple[float, float]]:
    """Where each arc starts and ends: at a word side by side, so that legs do not cross."""
    at: dict[int, list[tuple[int, int]]] = {}  # of each word (side, arc)
    for i, arc in enumerate(arcs):
        if arc.head < 0:
            at.setdefault(arc.word, []).append((0, i))
            continue
        a, b = arc.ends
        at.setdefault(a, []).append((1, i))
        at.setdefault(b, []).append((-1, i))
    found: dict[tuple[int, int], float] = {}
    for word, own in at.items():
        own.sort(key=lambda foot: (foot[0], -foot[0] * level[foot[1]]))  # low arcs are outermost
        for k, (_, i) in enumerate(own):
            found[word, i] = x[word] + LEG * (k - (len(own) - 1) / 2)
    return [
        (found[arc.word if arc.head < 0 else arc.head, i], found[arc.word, i])
        for i, arc in enumerate(arcs)
    ]
