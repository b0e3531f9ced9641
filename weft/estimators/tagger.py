"""Tag the words of sentences by the conventions of scikit-learn."""

import numpy as np

from weft.estimators.estimator import (
    LABEL,
    WORDS,
    Columns,
    TextEstimator,
    check_dev,
    weigh_rows,
)
from weft.estimators.inputs import ArrayLike, check_order, check_sentences, check_tags
from weft.predict.evaluate import evaluate
from weft.text.example import TAG_COLUMN, Example, WordAnnotations
from weft.text.formats.conllu_offsets import locate_spaced_words


class Tagger(TextEstimator):
    """Tag every word with any recipe of the task 'tag'.

    X is a list of sentences, each a list of words; y has a list of tags for each. Tags may mark
    spans (B-PER I-PER O): they are then learned, and scored, as spans.
    """

    task_kind = "tag"
    default_recipe = "tagger-bilstm"

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike = None,
        dev: tuple[ArrayLike, ArrayLike] | None = None,
    ) -> "Tagger":
        """Train on words and tags; weights are those of sentences, `dev` is (sentences, tags)."""
        rows = weigh_rows(self._rows(X, y), sample_weight)
        self._fit(rows, None if dev is None else self._rows(*check_dev(dev), "dev "))
        self.classes_ = np.array(sorted({tag for tags in rows[LABEL] for tag in tags}))
        return self

    def predict(self, X: ArrayLike) -> list[list[str]]:
        """Return a tag for every word of every sentence."""
        predictor = self.predictor_
        answers = predictor([_as_example(words) for words in check_sentences(X)])
        return [list(answer.structure.tags) for answer in answers if answer.structure is not None]

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Return the F1 of spans if the tags mark spans, else the fraction of right tags."""
        predictor = self.predictor_
        rows = self._rows(X, y)
        pairs = zip(rows[WORDS], rows[LABEL], strict=True)
        metric = evaluate(predictor, [_as_example(words, tags) for words, tags in pairs])
        return float(metric.compute(resamples=0)[predictor.task.metric].value)

    def _rows(self, X: ArrayLike, y: ArrayLike, of: str = "") -> Columns:
        sentences = check_sentences(X, f"{of}X")
        tags = check_tags(y, sentences, f"{of}y")
        check_order(X, y, of)
        return {WORDS: sentences, LABEL: tags}


def _as_example(words: list[str], tags: list[str] | None = None) -> Example:
    label = None if tags is None else WordAnnotations({TAG_COLUMN: tuple(tags)}, TAG_COLUMN)
    return Example(
        " ".join(words), label, words=tuple(words), places=locate_spaced_words(tuple(words))
    )
