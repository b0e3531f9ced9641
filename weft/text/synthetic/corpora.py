"""Built-in corpora: synthetic texts, and prose from Python's own documentation."""

import ast
import importlib.util
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from weft.errors import unknown_name
from weft.registry import check_types
from weft.text.example import Example
from weft.text.synthetic.memory_probe import generate_recall
from weft.text.synthetic.reviews import generate_reviews as generate_reviews
from weft.text.synthetic.treebank import SyntheticSentence
from weft.text.synthetic.treebank import generate_treebank as generate_treebank

# Modules with long docstrings in every Python since 3.10; the order is part of the corpus.
_MODULES = (
    *("argparse", "asyncio.tasks", "collections", "concurrent.futures._base", "configparser"),
    *("contextlib", "copy", "csv", "dataclasses", "datetime", "decimal", "difflib", "doctest"),
    *("email.message", "enum", "fractions", "functools", "heapq", "http.client", "http.cookiejar"),
    *("inspect", "ipaddress", "json", "locale", "logging", "logging.handlers", "mailbox"),
    *("multiprocessing.pool", "optparse", "os", "pathlib", "pdb", "pickle", "pickletools"),
    *("platform", "random", "selectors", "shutil", "smtplib", "socket", "statistics", "string"),
    *("subprocess", "tarfile", "tempfile", "textwrap", "threading", "turtle", "typing"),
    *("unittest.case", "unittest.mock", "urllib.request", "uuid", "warnings", "weakref", "zipfile"),
)
_MIN_PARAGRAPH_WORDS = 8
_MARKUP = re.compile(r"\*\*|[*`]|(?<=\w)_(?=\s)|\[\d+\]|:\w+:(?=`)")
_SENTENCE = re.compile(r"^[\"'(]?[A-Z].*[.!?:)]$")
# Splits by name, or paragraphs of prose.
Corpus = dict[str, list[Example]] | dict[str, list[SyntheticSentence]] | list[str]


@check_types
def corpus(name: str) -> Corpus:
    """Return a built-in corpus: 'reviews', 'recall' or 'treebank' (three splits), 'python-docs'."""
    if name not in CORPORA:
        raise unknown_name("corpus", name, CORPORA)
    return CORPORA[name]()


def generate_planted(
    count: int, seed: int = 0, *, classes: int = 3, decisive: int = 10, filler: int = 300
) -> list[Example]:
    """Generate texts in which one word decides the label, to test whether explanations find it.

    One of the `decisive` words of a class is placed among 5 to 40 filler words; `id` holds its
    span, "start:end". The words are the same for every seed, the texts are not.
    """
    syllables = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
    names = random.Random(0)
    words: dict[str, None] = {}
    while len(words) < filler + classes * decisive:
        words["".join(names.choices(syllables, k=names.choice((2, 3))))] = None
    fill, deciding = list(words)[:filler], list(words)[filler:]
    draw = random.Random(f"planted {seed}")
    out = []
    for i in range(count):
        which = draw.randrange(classes)
        chosen = draw.choice(deciding[which * decisive : (which + 1) * decisive])
        texts = draw.choices(fill, k=draw.randint(5, 40))
        position = draw.randint(0, len(texts))
        start = sum(len(word) + 1 for word in texts[:position])
        text = " ".join([*texts[:position], chosen, *texts[position:]])
        where = f"{start}:{start + len(chosen)}"
        out.append(Example(text, f"class{which}", id=where, file="planted", line=i + 1))
    return out


def python_docs() -> list[str]:
    """Return English paragraphs, without code, from the documentation of this Python.

    They depend on the version of Python.
    """
    paragraphs: dict[str, None] = {}
    for text in (*_topics(), *_docstrings()):
        for paragraph in _paragraphs(text):
            paragraphs.setdefault(paragraph)
    return list(paragraphs)


def _topics() -> Iterator[str]:
    from pydoc_data.topics import topics

    for name in sorted(topics):
        yield topics[name]


def _docstrings() -> Iterator[str]:
    for module in _MODULES:
        spec = importlib.util.find_spec(module)
        if spec is None or not spec.origin or not spec.origin.endswith(".py"):
            continue
        tree = ast.parse(Path(spec.origin).read_text("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                yield ast.get_docstring(node) or ""


def _paragraphs(text: str) -> Iterator[str]:
    for block in re.split(r"\n[ \t]*\n", text):
        lines = block.split("\n")
        # Prose has one indent; code, tables, lists and signatures do not.
        indents = {len(line) - len(line.lstrip()) for line in lines if line.strip()}
        if len(indents) != 1:
            continue
        joined = " ".join(_MARKUP.sub("", block).split())
        if _is_prose(joined):
            yield joined.replace("::", ":")


def _is_prose(text: str) -> bool:
    words = text.split()
    if len(words) < _MIN_PARAGRAPH_WORDS or not _SENTENCE.match(text) or ">>>" in text:
        return False
    plain = sum(word.strip(".,;:!?()\"'").replace("-", "").isalpha() for word in words)
    return plain >= 0.75 * len(words)


CORPORA: dict[str, Callable[[], Corpus]] = {
    "reviews": generate_reviews,
    "recall": generate_recall,
    "python-docs": python_docs,
    "treebank": generate_treebank,
}
