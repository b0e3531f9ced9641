"""Check labels that are paths in a tree: inner nodes as labels, uneven depth, similar paths."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from weft.doctor.checks.label_variants import fold_label
from weft.doctor.checks.labels import count_labels, list_names
from weft.doctor.finding import Level, pluralise
from weft.doctor.pending import PendingFinding, RowRef
from weft.doctor.survey import Survey
from weft.text.label_tree import SEPARATOR, LabelTree


def check_hierarchy(survey: Survey) -> Iterator[PendingFinding]:
    """Yield findings on the tree of the labels, if most of them are paths such as `a > b`."""
    counts = count_labels(survey)
    paths = sum(SEPARATOR in label for label in counts)
    if survey.scale or paths * 2 <= len(counts):
        return
    broken = [
        label for label in counts if not all(level.strip() for level in label.split(SEPARATOR))
    ]
    if broken:
        yield _finding(
            survey, "empty level", "error", broken, "without a name on some level",
            "Name every level, or remove the rows.",
        )  # fmt: skip
    tree = LabelTree(tuple(sorted(set(counts) - set(broken))))
    if tree.inner_labels:
        yield _finding(
            survey, "inner label", "note", tree.inner_labels, "that others continue from",
            "They are learned as answers that stop there; give them a child if none should.",
        )  # fmt: skip
    leaves = [entry for entry in tree.entries if entry not in tree.inner_labels]
    depths = Counter(map(len, (entry.split(SEPARATOR) for entry in leaves)))
    if len(depths) > 1:
        (usual, _), *_ = depths.most_common()
        odd = [entry for entry in leaves if len(entry.split(SEPARATOR)) != usual]
        yield _finding(
            survey, "uneven depth", "note", odd, f"of another depth than the usual {usual}",
            "Leaves may differ in depth; correct them if a level is missing.",
        )  # fmt: skip
    if similar := list(_similar_paths(tree)):
        yield _finding(
            survey, "similar paths", "warning", similar,
            "with the same levels as another, but for case, spaces or the mark between them",
            "Write each path in one way.",
        )  # fmt: skip


def _similar_paths(tree: LabelTree) -> Iterator[str]:
    """Yield nodes that differ from another only in case, spaces or the spaces around `>`."""
    groups: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    mark = tree.separator.strip()
    for node in tree.nodes:
        groups[tuple(fold_label(level) for level in node.split(mark))].append(node)
    for alike in groups.values():
        yield from alike[1:]


def _finding(
    survey: Survey, kind: str, level: Level, names: Sequence[str], described: str, fix: str
) -> PendingFinding:
    title = f"{pluralise(len(names), 'label')} {described}: {list_names(list(names))}."
    refs = []
    for name in names:
        for split in survey.splits:
            found = next((own for own in split.labels if _is_below(own, name)), None)
            if found is not None:
                refs.append(RowRef(split.start + split.labels[found].rows[0], detail=name))
                break
    return PendingFinding(kind, level, title, len(names), tuple(refs), fix)


def _is_below(label: str, node: str) -> bool:
    return label == node or label.startswith(f"{node}{SEPARATOR}")
