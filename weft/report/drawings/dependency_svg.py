"""Dependency trees as SVG: predicted arcs above the words, missed gold arcs below."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from weft.errors import UserError
from weft.report.drawings.tree_svg import text_width, wrap_svg

WORD_PIXELS, LABEL_PIXELS = 13, 11  # font sizes
WORD_GAP = 18  # pixels
LEVEL_PIXELS = 24  # between nested arcs
LEG_GAP = 8  # pixels between the ends of arcs at one word
CORNER_RADIUS = 8
LABEL_MARGIN = 22  # pixels around a label, for the corners and the arrowhead
MARGIN = 6


@dataclass(frozen=True)
class Arc:
    """An arc from a head to a word, both counted from 0; the head of a root is -1."""

    head: int
    word: int
    label: str
    wrong: bool = False

    @property
    def ends(self) -> tuple[int, int]:
        return min(self.head, self.word), max(self.head, self.word)


def draw_dependencies(
    words: Sequence[str],
    heads: Sequence[int],
    labels: Sequence[str],
    tags: Sequence[str] = (),
    gold_heads: Sequence[int] = (),
    gold_labels: Sequence[str] = (),
) -> Markup:
    """Draw arcs over the words; heads are numbered as in CoNLL-U, with 0 for the root.

    Of space-separated tag columns, the first is shown. With gold, an arc with a wrong head or
    label is highlighted, and the correct arc is drawn below.
    """
    _check_lengths(words, heads, labels, tags, gold_heads, gold_labels)
    tags = [tag.partition(" ")[0] for tag in tags]
    gold = list(zip(gold_heads, gold_labels, strict=True))
    predicted = list(zip(heads, labels, strict=True))
    arcs = [
        Arc(head - 1, word, label, bool(gold) and gold[word] != (head, label))
        for word, (head, label) in enumerate(predicted)
    ]
    missed = [
        Arc(head - 1, word, label)
        for word, (head, label) in enumerate(gold)
        if predicted[word] != (head, label)
    ]
    x, wide = _place_words(words, tags, arcs, missed)
    above, below = arc_levels(arcs), arc_levels(missed)
    top = MARGIN + 16 + LEVEL_PIXELS * max(above, default=0)
    under = top + WORD_PIXELS + 8 + (16 if tags else 0)
    parts = [_draw_arcs(arcs, above, x, top, -1), _draw_arcs(missed, below, x, under, 1)]
    for i, word in enumerate(words):
        parts.append(Markup('<text x="{:.1f}" y="{:.1f}">{}</text>').format(x[i], top + 15, word))
        if tags:
            line = Markup('<text class="quiet" x="{:.1f}" y="{:.1f}">{}</text>')
            parts.append(line.format(x[i], top + 31, tags[i]))
    high = under + (LEVEL_PIXELS * max(below) + 16 if missed else 0) + MARGIN
    return wrap_svg(wide, high, parts, "dependencies")


def arc_levels(arcs: Sequence[Arc]) -> list[int]:
    """Return the level of each arc: above every shorter arc it covers or crosses; roots on top."""
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
        if arc.head < 0 and len(arcs) > 1:  # its label is above everything next to it
            out[i] = over + 1
    return out


def _check_lengths(
    words: Sequence[str],
    heads: Sequence[int],
    labels: Sequence[str],
    tags: Sequence[str],
    gold_heads: Sequence[int],
    gold_labels: Sequence[str],
) -> None:
    sizes = {"heads": len(heads), "labels": len(labels), "tags": len(tags)}
    sizes |= {"gold heads": len(gold_heads), "gold labels": len(gold_labels)}
    for name, size in sizes.items():
        if size != len(words) and (size or name in ("heads", "labels")):
            raise UserError(f"{len(words)} words but {size} {name}: give one per word.")
    for column in (heads, gold_heads):
        for word, head in enumerate(column, 1):
            if not 0 <= head <= len(words) or head == word:
                raise UserError(
                    f"The head of word {word} is {head}; it must be another word, "
                    f"from 1 to {len(words)}, or 0 for the root."
                )


def _half_width(words: Sequence[str], tags: Sequence[str], i: int) -> float:
    widest = max(
        text_width(words[i], WORD_PIXELS), text_width(tags[i], LABEL_PIXELS) if tags else 0.0
    )
    return widest / 2


def _place_words(
    words: Sequence[str], tags: Sequence[str], arcs: Sequence[Arc], missed: Sequence[Arc]
) -> tuple[list[float], float]:
    """Return the centre of each word, spaced so that labels fit their arcs, and the total width."""
    halves = []
    for i in range(len(words)):
        feet = max(sum(i in arc.ends for arc in part) for part in (arcs, missed))
        roots = [a.label for a in (*arcs, *missed) if a.head < 0 and a.word == i]
        # A root's label is above its own end, which need not be the middle one.
        label = max((text_width(root, LABEL_PIXELS) for root in roots), default=0.0)
        halves.append(max(_half_width(words, tags, i), (LEG_GAP * feet + label) / 2))
    gaps = [a + WORD_GAP + b for a, b in pairwise(halves)]
    for arc in sorted((*arcs, *missed), key=lambda arc: arc.ends[1] - arc.ends[0]):
        if arc.head >= 0:
            a, b = arc.ends
            feet = LEG_GAP * max(sum(end in other.ends for other in arcs) for end in (a, b))
            missing = text_width(arc.label, LABEL_PIXELS) + LABEL_MARGIN + feet - sum(gaps[a:b])
            for i in range(a, b):
                gaps[i] += max(0.0, missing) / (b - a)
    if not halves:
        return [], 1.0
    out = [MARGIN + halves[0]]
    for gap in gaps:
        out.append(out[-1] + gap)
    return out, out[-1] + halves[-1] + MARGIN


def _draw_arcs(
    arcs: Sequence[Arc], level: Sequence[int], x: Sequence[float], base: float, way: int
) -> Markup:
    """Draw the arcs on one side of the words: `way` is -1 above, 1 below."""
    feet = _place_feet(arcs, level, x)
    lines, labels = [], []
    for arc, high, (start, end) in zip(arcs, level, feet, strict=True):
        kind = (" off" if arc.wrong else "") + (" missed" if way > 0 else "")
        y = base + way * LEVEL_PIXELS * high
        tip = f"M{end:.1f} {base + way * 2:.1f}l-3.5 {way * 7}h7z"
        if arc.head < 0:
            path, middle = f"M{end:.1f} {y:.1f}V{base + way * 6:.1f}", end
        else:
            turn = min(CORNER_RADIUS, abs(end - start) / 2) * (1 if end > start else -1)
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
            .format(" off" if arc.wrong else "", middle, y + 4, arc.label)
        )  # fmt: skip
    return Markup("".join(lines)) + Markup("").join(labels)


def _place_feet(
    arcs: Sequence[Arc], level: Sequence[int], x: Sequence[float]
) -> list[tuple[float, float]]:
    """Return the start and end of each arc, side by side at a word so that legs do not cross."""
    at: dict[int, list[tuple[int, int]]] = {}  # word -> (side, arc)
    for i, arc in enumerate(arcs):
        if arc.head < 0:
            at.setdefault(arc.word, []).append((0, i))
            continue
        a, b = arc.ends
        at.setdefault(a, []).append((1, i))
        at.setdefault(b, []).append((-1, i))
    feet: dict[tuple[int, int], float] = {}
    for word, ends in at.items():
        ends.sort(key=lambda foot: (foot[0], -foot[0] * level[foot[1]]))  # lower arcs are outermost
        for k, (_, i) in enumerate(ends):
            feet[word, i] = x[word] + LEG_GAP * (k - (len(ends) - 1) / 2)
    return [
        (feet[arc.word if arc.head < 0 else arc.head, i], feet[arc.word, i])
        for i, arc in enumerate(arcs)
    ]
