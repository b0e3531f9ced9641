"""The word-level part of the page of `weft explain`: drawing, probabilities, transitions."""

from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from weft.explain import Explanation
from weft.explain.run import ExplainRun
from weft.predict.predictor import Predictor
from weft.report.drawings.draw import draw

N_CHOICES = 3  # shown per word
MAX_TAGS = 12  # of a readable transition table
START, END = "start", "end"


@dataclass(frozen=True)
class WordChoices:
    """One word, its most probable labels, and whether it is the explained word."""

    number: int
    word: str
    choices: list[tuple[str, float]]
    chosen: bool


def draw_answer(one: Explanation, study: ExplainRun, i: int) -> Markup | None:
    """Draw the prediction, with differences from gold marked."""
    structure = one.answer.structure
    if structure is None or not (structure.words or structure.kind == "answer"):
        return None  # a passage without an answer is still drawn
    return draw(structure, study.right(i))


def word_choices(study: ExplainRun, i: int) -> list[WordChoices]:
    """Return every word of a sentence with its prediction and the most probable alternatives."""
    one = study.first[i]
    if one.at is None or one.at.step < 0 or not study.probs:
        return []
    pairs = zip(study.examples[i].words, study.probs[i], strict=True)
    return [
        WordChoices(k + 1, word, choices[:N_CHOICES], k == one.at.step)
        for k, (word, choices) in enumerate(pairs)
    ]


def transition_table(predictor: Predictor, study: ExplainRun, i: int) -> dict[str, object] | None:
    """Return the learned transition scores of a CRF, for the tags of this sentence.

    Rows precede columns; None marks a forbidden transition.
    """
    one = study.first[i]
    crf = _find_crf(predictor, one)
    if crf is None:
        return None
    seen: dict[str, float] = {}
    for choices in study.probs[i]:
        for name, prob in choices[:N_CHOICES]:
            seen[name] = seen.get(name, 0.0) + prob
    names = sorted(sorted(seen, key=lambda name: -seen[name])[:MAX_TAGS])
    indices = [crf.names.index(name) for name in names]
    learned = crf.transitions.detach().cpu().numpy()
    starts, ends = (w.detach().cpu().numpy() for w in (crf.start, crf.end))
    may_start, may_follow, may_end = crf.rules
    begins = [float(starts[j]) if may_start[j] else None for j in indices]
    rows: list[tuple[str, list[float | None], float | None]] = [(START, begins, None)]
    for name, k in zip(names, indices, strict=True):
        row = [float(learned[k, j]) if may_follow[k, j] else None for j in indices]
        rows.append((name, row, float(ends[k]) if may_end[k] else None))
    return {"names": [*names, END], "rows": rows, "left": len(crf.names) - len(names)}


def _find_crf(predictor: Predictor, one: Explanation) -> Any:
    """Return the CRF of the explained column, if any."""
    model = predictor.engine.model
    crfs = () if model is None else model.head.crfs
    if one.at is None or not crfs:
        return None
    column = predictor.space.names.index(one.at.column)
    return crfs[column] if column < len(crfs) else None  # an intent has none
