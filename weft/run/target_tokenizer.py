"""Learn the label space of a task; for answers that are texts, train their tokenizer first."""

from collections.abc import Iterable
from pathlib import Path

from weft import registry
from weft.protocols import LabelSpace
from weft.run.data import Source
from weft.tasks.task import AnyTask
from weft.text.example import Example
from weft.tokens.tokenizer import Tokenizer


def learn_space(task: AnyTask, examples: Source) -> LabelSpace:
    """Return the label space of the training examples, which may be read twice."""
    space: LabelSpace
    if task.has_target_tokenizer:
        tokenizer = train_target_tokenizer(task, examples())
        space = task.text_space(examples(), tokenizer)
    else:
        space = task.space(examples())
    return space


def train_target_tokenizer(task: AnyTask, examples: Iterable[Example]) -> Tokenizer:
    """Return the tokenizer of a task's answers: trained on them, or loaded from a file."""
    section = dict(task.tokenizer)
    if path := section.pop("path", ""):
        return Tokenizer.load(Path(path))
    tokenizer: Tokenizer = registry.build("tokenizer", section).train(task.target_texts(examples))
    return tokenizer
