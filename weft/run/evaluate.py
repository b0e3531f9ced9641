"""Evaluate a model on a file or on data in memory, read like its training data."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import IO, Any, Literal

from weft.metrics import Metric
from weft.predict.evaluate import evaluate as evaluate_examples
from weft.predict.predictor import Predictor
from weft.registry import check_types
from weft.run.data import data_for_model, example_source, read_mode
from weft.tasks.task import Answer
from weft.text.example import Example, SkipCounter
from weft.text.tables.table import PathOrTable, is_path, name_sources


@check_types
def evaluate(
    predictor: Predictor,
    data: PathOrTable | Iterable[Example],
    *,
    text: str | int = "",
    text_pair: str | int = "",
    label: str | int = "",
    on_bad_row: Literal["error", "skip"] = "error",
    tally: SkipCounter | None = None,
    predictions: IO[str] | None = None,
    watch: Callable[[int], None] = lambda rows: None,
    on_example: Callable[[Example, Answer], None] | None = None,
    abstain_at: float | None = None,
) -> Metric:
    """Answer every row and return the metrics; `predictions` gets one JSON line per row.

    The data are a file, a table in memory or Examples. The columns are those of the training data
    unless others are named. `compute()` of the result gives each metric by name, with its value,
    its 95 % interval and n. With `on_bad_row="skip"`, rows that cannot be measured are left out and
    counted in `tally`. `watch` is called with the number of rows done since its last call,
    `on_example` with every example that was measured and its answer. With `abstain_at`, the metrics
    also say how many texts are answered under this promise of accuracy, and how many of those
    correctly; see `Predictor`.

    Examples:
        >>> model = weft.load("runs/cnn")
        >>> weft.evaluate(model, "test.tsv").compute()["accuracy"]
        MetricValue(value=0.93, low=0.91, high=0.95, n=500)
        >>> metric = weft.evaluate(model, [("a fine film", "positive"), ("a dull one", "negative")])
    """
    tally = SkipCounter() if tally is None else tally
    if not is_path(data) and isinstance(data, Iterator):
        first = list(islice(data, 1))
        data = chain(first, data)
        holds_examples = not first or isinstance(first[0], Example)
    else:
        holds_examples = isinstance(data, (list, tuple)) and all(
            isinstance(one, Example) for one in data[:1]
        )
    if not holds_examples:
        (name,) = name_sources([data], ("data",))
        settings, _ = data_for_model(
            predictor, name, text=text, text_pair=text_pair, label=label, on_bad_row=on_bad_row
        )
        mode = read_mode(predictor.config["task"])
        examples: Any = example_source(
            settings, name, tally, mode=mode, database=predictor.space.database
        )()
    else:
        examples = data
    return evaluate_examples(
        predictor, examples, on_bad_row=on_bad_row, tally=tally, predictions=predictions,
        watch=watch, on_example=on_example, abstain_at=abstain_at,
    )  # fmt: skip
