"""Some texts explained by several methods, and the methods compared: what the verb shows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from weft.errors import UserError
from weft.explain.explanation import Explanation
from weft.explain.faithful import Faithfulness, faithfulness
from weft.explain.method import chosen, explain, methods
from weft.predict.predictor import Predictor
from weft.tasks.task import Answer
from weft.text.example import Example

ALL = "all"


@dataclass(frozen=True)
class Study:
    """One list of explanations a method, in the order of the texts, and how faithful it is."""

    examples: Sequence[Example]
    explained: dict[str, list[Explanation]]  # the method to show first comes first
    faithful: dict[str, Faithfulness]

    @property
    def first(self) -> list[Explanation]:
        """The explanations of the method that is shown first."""
        return next(iter(self.explained.values()))

    def wrong(self, i: int) -> bool:
        """Whether an example has a label and the answer is another."""
        label, value = self.examples[i].label, self.first[i].answer.value
        if label is None or isinstance(value, float):
            return False
        if isinstance(value, tuple):
            return set(value) != set(label if isinstance(label, tuple) else (str(label),))
        return value != str(label)

    def order(self) -> list[int]:
        """The texts as they are looked at: mistakes first, the surest ones before the others."""
        return sorted(
            range(len(self.examples)),
            key=lambda i: (0, -self.first[i].answer.score) if self.wrong(i) else (1, 0.0),
        )


def study(
    predictor: Predictor,
    examples: Sequence[Example],
    *,
    method: str = ALL,
    target: str | None = None,
    compare: bool = True,
    watch: Callable[[int], None] = lambda texts: None,
) -> Study:
    """Explain the examples by one method or "all"; with `compare`, also measure faithfulness."""
    if not any(example.text.strip() for example in examples):
        where = f"{examples[0].file}: " if examples and examples[0].file else ""
        raise UserError(f"{where}there is no text to explain. Give one with at least a word.")
    names = methods(predictor) if method == ALL else (chosen(predictor, method),)
    texts = [example.text for example in examples]
    explained, faithful = {}, {}
    known: dict[str, Answer] = {}
    for name in names:
        explained[name] = explain(predictor, texts, method=name, target=target)
        if compare:
            faithful[name] = faithfulness(predictor, explained[name], known=known)
        watch(len(texts))
    return Study(examples, explained, faithful)
