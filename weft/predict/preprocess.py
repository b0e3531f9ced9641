"""Preprocess examples for a task: its words, and trees from a parser if the file has none."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from weft.errors import UserError
from weft.tasks.task import Answer, AnyTask
from weft.text.annotation.trees import Tree, iter_nodes, parse
from weft.text.example import Example, SkipCounter

PARSE_CHUNK_TEXTS = 1024  # texts that are parsed together

Parser = Callable[[list[str]], list[Answer]]  # the answers have trees


def preprocess(
    examples: Iterable[Example],
    task: AnyTask,
    tally: SkipCounter,
    on_bad_row: str = "error",
    parser: Parser | None = None,
) -> Iterator[Example]:
    """Yield the examples as the task reads them; unreadable ones are an error or skipped."""
    for example in examples if parser is None else _parse_in_chunks(examples, parser):
        try:
            ready = task.prepare(example, tally)
        except UserError:
            if on_bad_row == "error":
                raise
            tally.add("rows the task cannot read skipped", example.where)
        else:
            yield ready


def _parse_in_chunks(examples: Iterable[Example], parser: Parser) -> Iterator[Example]:
    stream = iter(examples)
    while chunk := list(islice(stream, PARSE_CHUNK_TEXTS)):
        yield from add_parses(chunk, parser)


def add_parses(examples: Sequence[Example], parser: Parser) -> list[Example]:
    """Return the examples with a tree for every text, parsed if the file has none.

    The root has the label of the text, the nodes under it have none.
    """
    out = list(examples)
    bare = [i for i, example in enumerate(out) if example.tree is None]
    for i, answer in zip(bare, parser([out[i].text for i in bare]), strict=True):
        parsed, label = answer.structure, out[i].label
        if parsed is not None and parsed.tree is not None:
            tree = _strip_labels(parsed.tree, label if isinstance(label, str) else "")
            out[i] = replace(out[i], tree=tree, places=parsed.places)
    return out


def parse_or_text(text: str) -> Example:
    """Return a text as an Example, with its tree if it is a bracketed one."""
    if text.lstrip().startswith("("):
        try:
            return Example(text, tree=parse(text))
        except UserError:
            pass  # a sentence that begins with a bracket
    return Example(text)


def _strip_labels(tree: Tree, label: str) -> Tree:
    """Return the tree without labels except this one at its root."""
    done: list[Tree] = []  # finished sub-trees, the leftmost on top
    for node in reversed(list(iter_nodes(tree))):
        children = tuple(done.pop() for _ in node.children)
        done.append(Tree("", node.word, children))
    return Tree(label, done[0].word, done[0].children)
