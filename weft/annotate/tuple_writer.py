"""Tuples of sentences by a model that writes one after the other and reads those before."""

from collections.abc import Sequence

from weft.predict.predictor import Predictor
from weft.tasks.semantics.tuple_alignment import align_tuple
from weft.tasks.semantics.tuple_steps import END, join_memory, parse_tuple
from weft.text.annotation.word_tuples import CharSpan, WordTuple
from weft.tokens.pretokenizer import split_words

MAX_TUPLES = 10  # of a sentence, as in IMoJIE


def write_tuples(
    predictor: Predictor, texts: Sequence[str]
) -> list[tuple[tuple[CharSpan, ...], list[WordTuple]]]:
    """Return the places of the words of each text, and its tuples.

    A text is finished when the model writes the end, repeats a tuple or writes no tuple. Tuples
    whose words are not in the text are read as written, but not returned. The confidence is the
    geometric mean of the probabilities of the tokens.
    """
    split = [split_words(text) for text in texts]
    written: list[list[str]] = [[] for _ in texts]
    found: list[list[WordTuple]] = [[] for _ in texts]
    open_texts = [number for number, (words, _) in enumerate(split) if words]
    for _ in range(MAX_TUPLES):
        sources = [join_memory(texts[number], written[number]) for number in open_texts]
        answers = predictor(sources) if sources else []
        still_open = []
        for number, answer in zip(open_texts, answers, strict=True):
            value = f"{answer.value}"
            one = None if value.strip() == END else parse_tuple(value, answer.score)
            if one is None or value in written[number]:
                continue
            still_open.append(number)
            written[number].append(value)
            if (aligned := align_tuple(*split[number], one)) is not None:
                found[number].append(aligned)
        open_texts = still_open
    return [(places, own) for (_, places), own in zip(split, found, strict=True)]
