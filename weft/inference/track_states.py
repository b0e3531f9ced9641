"""Track the states of dialogues: each update starts from the state that the model predicted."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, islice
from typing import Any

from weft.tasks.task import Answer
from weft.text.example import Example
from weft.text.formats.dialogue.views import NO_STATE, format_state, parse_state, replace_state

CHUNK_DIALOGUES = 256  # tracked together


def tracks_states(config: Mapping[str, Any]) -> bool:
    """Return True for the configuration of a model that updates states."""
    return bool(config["data"].get("dialogue") == "update")


def carry_states(
    predict: Callable[[Sequence[str]], Sequence[Answer]], examples: Iterable[Example]
) -> Iterator[Example]:
    """Yield state updates with predicted states before them, where files have the true ones.

    The examples of a dialogue follow each other; a text without a dialogue stays as it is.
    """
    grouped = (list(some) for _, some in groupby(examples, key=_dialogue))
    while dialogues := list(islice(grouped, CHUNK_DIALOGUES)):
        states = [NO_STATE] * len(dialogues)
        for step in range(max(map(len, dialogues))):
            going = [i for i, one in enumerate(dialogues) if step < len(one) and one[0].group]
            for i in going:
                example = dialogues[i][step]
                dialogues[i][step] = replace(example, text=replace_state(example.text, states[i]))
            unfinished = [i for i in going if step + 1 < len(dialogues[i])]
            texts = [dialogues[i][step].text for i in unfinished]
            for i, answer in zip(unfinished, predict(texts) if texts else (), strict=True):
                states[i] = format_state(tuple(parse_state(str(answer.value)).items()))
        for dialogue in dialogues:
            yield from dialogue


def _dialogue(example: Example) -> str:
    return example.group or f"{example.where} {id(example)}"
