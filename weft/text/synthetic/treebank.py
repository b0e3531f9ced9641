"""A made treebank: one set of sentences as CoNLL-U, named entities, brackets and rated trees."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from weft.text.annotation import schemes, trees
from weft.text.annotation.schemes import Span
from weft.text.annotation.spans import SpanText
from weft.text.annotation.trees import Tree
from weft.text.formats import conllu
from weft.text.formats.conllu_sentence import EMPTY_CELL, Sentence, Word
from weft.text.formats.standoff import format_spans
from weft.text.synthetic.grammar import HEAD, Grammar, Part, Phrase
from weft.text.synthetic.lexicon import Leaf
from weft.text.write import write_generated

SIZE = 2000
KINDS = {  # ending of the file: what is in it
    "conllu": "tags, features, heads and relations",
    "conll": "names of people, places and firms, IOB2",
    "jsonl": "the same as spans in characters",
    "ptb": "constituents in brackets",
    "trees": "how good every phrase is, 0 to 4",
    "txt": "the plain texts",
}
_NO_SPACE_BEFORE = (".", ",", "?", "n't", "'s")  # no space before these
_MAX_SENTIMENT = 2


@dataclass(frozen=True)
class SyntheticSentence:
    """A sentence with everything that is known of it."""

    id: str
    leaves: tuple[Leaf, ...]
    forms: tuple[str, ...]
    heads: tuple[int, ...]  # counted from 1; 0 the root
    relations: tuple[str, ...]
    entities: tuple[Span, ...]  # in words
    tree: Tree  # of constituents
    rated: Tree  # two children at every node, 0 awful to 4 superb at each

    @property
    def places(self) -> list[tuple[int, int]]:
        """(start, end) of each word in the text."""
        out: list[tuple[int, int]] = []
        for form in self.forms:
            start = out[-1][1] + (form not in _NO_SPACE_BEFORE) if out else 0
            out.append((start, start + len(form)))
        return out

    @property
    def text(self) -> str:
        """The words with the spaces that belong between them."""
        return "".join(f"{'' if w in _NO_SPACE_BEFORE else ' '}{w}" for w in self.forms).strip()

    @property
    def sentence(self) -> Sentence:
        """As CoNLL-U has it."""
        after = (*self.forms[1:], "")
        rows = [
            Word(
                str(i), form, leaf.lemma, leaf.upos, leaf.xpos, leaf.feats, str(head), relation,
                EMPTY_CELL, "SpaceAfter=No" if following in _NO_SPACE_BEFORE else EMPTY_CELL,
            )
            for i, (form, leaf, head, relation, following) in enumerate(
                zip(self.forms, self.leaves, self.heads, self.relations, after, strict=True), 1
            )
        ]  # fmt: skip
        return Sentence((f"# sent_id = {self.id}", f"# text = {self.text}", *rows))

    @property
    def marked(self) -> SpanText:
        """The text with its entities in characters."""
        at = self.places
        spans = (Span(label, at[i][0], at[j - 1][1]) for label, i, j in self.entities)
        return SpanText(self.text, tuple(spans), self.id)

    def written(self, kind: str) -> str:
        """As a file of one of KINDS has it."""
        if kind == "conllu":
            return conllu.format(self.sentence)
        if kind == "conll":
            tags = schemes.spans_to_tags(self.entities, len(self.forms), "IOB2")
            rows = (f"{form}\t{tag}" for form, tag in zip(self.forms, tags, strict=True))
            return "\n".join([f"# sent_id = {self.id}", *rows, "", ""])
        one = {
            "jsonl": lambda: format_spans(self.marked),
            "ptb": lambda: trees.format(self.tree),
            "trees": lambda: trees.format(self.rated),
            "txt": lambda: self.text,
        }
        return one[kind]() + "\n"


def generate_treebank(seed: int = 0, size: int = SIZE) -> dict[str, list[SyntheticSentence]]:
    """`size` sentences in train, dev and test (7 : 1 : 2), none of them twice."""
    grammar = Grammar(f"treebank {seed}")
    seen: set[str] = set()
    shares = {"train": size * 7 // 10, "dev": size // 10}
    shares["test"] = size - sum(shares.values())
    return {
        split: [made for _, made in draw_sentences(grammar, split, n, seen)]
        for split, n in shares.items()
    }


def write_treebank(
    folder: Path, parts: Mapping[str, Sequence[SyntheticSentence]] | None = None
) -> dict[str, list[Path]]:
    """The files of each kind; one that is there already and says something else is left alone."""
    parts = parts or generate_treebank()
    texts = {
        f"{split}.{kind}": "".join(one.written(kind) for one in made).encode()
        for kind in KINDS
        for split, made in parts.items()
    }
    paths = write_generated(folder, texts)
    return {kind: [path for path in paths if path.suffix == f".{kind}"] for kind in KINDS}


def draw_sentences(
    grammar: Grammar, split: str, count: int, seen: set[str]
) -> Iterator[tuple[Phrase, SyntheticSentence]]:
    """Sentences whose texts are not among those seen, to which they are added."""
    found = 0
    while found < count:
        phrase = grammar.sentence()
        made = _build_sentence(phrase, f"{split}-{found + 1}")
        if made.text not in seen:
            seen.add(made.text)
            found += 1
            yield phrase, made


def _build_sentence(phrase: Phrase, name: str) -> SyntheticSentence:
    walk = _DependencyBuilder()
    root = walk.through(phrase)
    walk.arcs[root] = (0, "root")
    forms = [leaf.form for leaf in walk.leaves]
    for i, (form, following) in enumerate(pairwise(forms)):
        forms[i] = "an" if form == "a" and following[0] in "aeiouAEIO" else form
    forms[0] = forms[0][0].upper() + forms[0][1:]
    arcs = [walk.arcs[i] for i in range(len(forms))]
    heads, relations = zip(*arcs, strict=True)
    return SyntheticSentence(
        name, tuple(walk.leaves), tuple(forms), heads, relations, tuple(walk.entities),
        _build_tree(phrase, iter(forms)), _rate(phrase, iter(forms)).tree,
    )  # fmt: skip


class _DependencyBuilder:
    """The words of a phrase from left to right, with their heads and the names among them."""

    def __init__(self) -> None:
        self.leaves: list[Leaf] = []
        self.arcs: dict[int, tuple[int, str]] = {}
        self.entities: list[Span] = []

    def through(self, part: Part) -> int:
        """The place of the head of this part."""
        start = len(self.leaves)
        if isinstance(part, Leaf):
            self.leaves.append(part)
            return start
        found = [(relation, self.through(inner)) for relation, inner in part.parts]
        head = next(place for relation, place in found if relation == HEAD)
        for i, (relation, place) in enumerate(found):
            # "and", and the comma before it, belong to what comes after them.
            later = [p for r, p in found[i:] if r == "conj" and relation in ("cc", "punct")]
            if relation != HEAD:
                self.arcs[place] = ((later or [head])[0] + 1, relation)
        if part.entity:
            self.entities.append(Span(part.entity, start, len(self.leaves)))
        return head


def _build_tree(part: Part, forms: Iterator[str]) -> Tree:
    if isinstance(part, Leaf):
        return Tree(part.xpos, next(forms))
    return Tree(part.label, children=tuple(_build_tree(inner, forms) for _, inner in part.parts))


@dataclass(frozen=True)
class _RatedPhrase:
    """A phrase, how good what it says is, and what it does to its neighbour."""

    tree: Tree
    feeling: int
    turn: str


def _rate(part: Part, forms: Iterator[str]) -> _RatedPhrase:
    """From the last two parts on, so that what turns a phrase round meets all that follows."""
    if isinstance(part, Leaf):
        return _RatedPhrase(Tree(_label(part.feeling), next(forms)), part.feeling, part.turn)
    left = [_rate(inner, forms) for _, inner in part.parts]
    while len(left) > 1:
        second, first = left.pop(), left.pop()
        feeling, turn = _combine(first, second)
        left.append(
            _RatedPhrase(Tree(_label(feeling), children=(first.tree, second.tree)), feeling, turn)
        )
    return left[0]


def _combine(first: _RatedPhrase, second: _RatedPhrase) -> tuple[int, str]:
    """The feeling of two neighbours, and what is left to turn."""
    a, b = first.feeling, second.feeling
    sign = (b > 0) - (b < 0)
    if first.turn == "not" and b:
        return -sign, ""  # not superb is not quite awful
    if second.turn == "not" and a:
        return (a < 0) - (a > 0), ""  # loved no film
    if first.turn in ("more", "less") and b:
        return sign * (_MAX_SENTIMENT if first.turn == "more" else 1), ""
    if first.turn in ("but", "although") and first.tree.word:
        return b, first.turn
    if second.turn == "but" or first.turn == "although":
        return b or a, ""
    if second.turn == "although":
        return a or b, ""
    both = max(-_MAX_SENTIMENT, min(_MAX_SENTIMENT, a + b))
    return both, first.turn if first.turn == "not" else ""


def _label(feeling: int) -> str:
    return str(feeling + _MAX_SENTIMENT)
