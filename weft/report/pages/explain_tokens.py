"""What the page of `weft explain` shows of answers at every word: drawing, chances, transitions."""

from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from weft.explain import Explanation
from weft.explain.run import ExplainRun
from weft.predict.predictor import Predictor
from weft.report.drawings.draw import drawn

CHOICES = 3  # of each word that are shown
TAGS = 12  # of a table of transitions that can still be read
BEGINS, ENDS = "begins", "ends"


@dataclass(frozen=True)
class Line:
    """One word, what may be said of it, and whether it is the one that is explained."""

    number: int
    word: str
    choices: list[tuple[str, float]]
    chosen: bool


def drawing(one: Explanation, study: ExplainRun, i: int) -> Markup | None:
    """The answer as a drawing, marked where it differs from what is right."""
    said = one.answer.structure
    if said is None or not (said.words or said.kind == "answer"):
        return None  # of a passage without an answer, the passage is shown
    return drawn(said, study.right(i))


def lines(study: ExplainRun, i: int) -> list[Line]:
    """Every word of a sentence with what is said of it, and the most probable other choices."""
    one = study.first[i]
    if one.at is None or one.at.step < 0 or not study.probs:
        return []
    pairs = zip(study.examples[i].words, study.probs[i], strict=True)
    return [
        Line(k + 1, word, choices[:CHOICES], k == one.at.step)
        for k, (word, choices) in enumerate(pairs)
    ]


def transitions(predictor: Predictor, study: ExplainRun, i: int) -> dict[str, Any] | None:
    """What a chain has learned of one tag after another, for the tags of this sentence.

    Rows come before columns; None is what may not be.
    """
    one = study.first[i]
    chain = _chain(predictor, one)
    if chain is None:
        return None
    seen: dict[str, float] = {}
    for choices in study.probs[i]:
        for name, chance in choices[:CHOICES]:
            seen[name] = seen.get(name, 0.0) + chance
    names = sorted(sorted(seen, key=lambda name: -seen[name])[:TAGS])
    places = [chain.names.index(name) for name in names]
    learned = chain.transitions.detach().cpu().numpy()
    starts, ends = (w.detach().cpu().numpy() for w in (chain.start, chain.end))
    may_start, may_follow, may_end = chain.rules
    begins = [float(starts[j]) if may_start[j] else None for j in places]
    rows: list[tuple[str, list[float | None], float | None]] = [(BEGINS, begins, None)]
    for name, k in zip(names, places, strict=True):
        row = [float(learned[k, j]) if may_follow[k, j] else None for j in places]
        rows.append((name, row, float(ends[k]) if may_end[k] else None))
    return {"names": [*names, ENDS], "rows": rows, "left": len(chain.names) - len(names)}


def _chain(predictor: Predictor, one: Explanation) -> Any:
    """The chain of the column that is explained, where there is one."""
    model = getattr(predictor.engine, "model", None)
    chains = getattr(getattr(model, "head", None), "chains", ())
    if one.at is None or not len(chains):
        return None
    return chains[predictor.space.names.index(one.at.column)]  # type: ignore[attr-defined]
