"""Learn the label space of a task; for answers that are texts, train their tokenizer first."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from weft import registry
from weft.protocols import LabelSpace
from weft.run.data import Source
from weft.tasks.task import AnyTask
from weft.text.example import Example
from weft.tokens.tokenizer import Tokenizer

Watch = Callable[[Iterator[Example]], Iterator[Example]]


def learn_space(task: AnyTask, examples: Source, watch: Watch = iter) -> LabelSpace:
    """Return the label space of the training examples, which may be read twice.

    `watch` wraps the first reading, to show its progress.
    """
    space: LabelSpace
    if task.has_target_tokenizer:
        tokenizer = train_target_tokenizer(task, watch(examples()))
        space = task.text_space(examples(), tokenizer)
    else:
        space = task.space(watch(examples()))
    return space


def train_target_tokenizer(task: AnyTask, examples: Iterable[Example]) -> Tokenizer:
    """Return the tokenizer of a task's answers: trained on them, or loaded from a file."""
    section = dict(task.tokenizer)
    if path := section.pop("path", ""):
        return Tokenizer.load(Path(path))
    tokenizer: Tokenizer = registry.build("tokenizer", section).train(task.target_texts(examples))
    return tokenizer
