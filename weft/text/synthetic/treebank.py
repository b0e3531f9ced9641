"""A synthetic treebank as CoNLL-U, named entities, brackets and sentiment trees."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from weft.text.annotation import schemes, trees
from weft.text.annotation.schemes import Span
from weft.text.annotation.spans import SpanText
from weft.text.annotation.trees import Tree
from weft.text.formats import conllu
from weft.text.formats.conllu_sentence import EMPTY_CELL, ConlluRow, Sentence
from weft.text.formats.standoff import format_spans
from weft.text.synthetic.grammar import HEAD, Grammar, Part, Phrase
from weft.text.synthetic.lexicon import Leaf
from weft.text.write import write_generated

SIZE = 2000
KINDS = {  # file ending: contents
    "conllu": "tags, features, heads and relations",
    "conll": "names of people, places and companies, IOB2",
    "jsonl": "the same as character spans",
    "ptb": "constituents in brackets",
    "trees": "the sentiment of every phrase, 0 to 4",
    "txt": "the plain texts",
    "tsv": "questions about the names, each with a sentence and the answer in it",
}
HEADERS = {"tsv": "question\tcontext\tanswer\tanswer_start\n"}
QUESTIONS = {"PER": "Who is it about?", "LOC": "Where is it?", "ORG": "Which firm is it about?"}
_NO_SPACE_BEFORE = (".", ",", "?", "n't", "'s")  # no space before these
_MAX_SENTIMENT = 2


@dataclass(frozen=True)
class SyntheticSentence:
    """A generated sentence with all of its annotations."""

    id: str
    leaves: tuple[Leaf, ...]
    forms: tuple[str, ...]
    heads: tuple[int, ...]  # from 1; 0 for the root
    relations: tuple[str, ...]
    entities: tuple[Span, ...]  # in words
    tree: Tree  # of constituents
    rated: Tree  # binary, labelled 0 awful to 4 superb

    @property
    def word_offsets(self) -> list[tuple[int, int]]:
        """(start, end) of each word in the text."""
        out: list[tuple[int, int]] = []
        for form in self.forms:
            start = out[-1][1] + (form not in _NO_SPACE_BEFORE) if out else 0
            out.append((start, start + len(form)))
        return out

    @property
    def text(self) -> str:
        """The words with the right spaces between them."""
        return "".join(f"{'' if w in _NO_SPACE_BEFORE else ' '}{w}" for w in self.forms).strip()

    @property
    def conllu_sentence(self) -> Sentence:
        """The sentence in CoNLL-U."""
        after = (*self.forms[1:], "")
        rows = [
            ConlluRow(
                str(i), form, leaf.lemma, leaf.upos, leaf.xpos, leaf.feats, str(head), relation,
                EMPTY_CELL, "SpaceAfter=No" if following in _NO_SPACE_BEFORE else EMPTY_CELL,
            )
            for i, (form, leaf, head, relation, following) in enumerate(
                zip(self.forms, self.leaves, self.heads, self.relations, after, strict=True), 1
            )
        ]  # fmt: skip
        return Sentence((f"# sent_id = {self.id}", f"# text = {self.text}", *rows))

    @property
    def span_text(self) -> SpanText:
        """The text with its entities as character spans."""
        offsets = self.word_offsets
        spans = (Span(label, offsets[i][0], offsets[j - 1][1]) for label, i, j in self.entities)
        return SpanText(self.text, tuple(spans), self.id)

    def format_as(self, kind: str) -> str:
        """Format the sentence as in a file of one of KINDS."""
        if kind == "conllu":
            return conllu.format(self.conllu_sentence)
        if kind == "conll":
            tags = schemes.spans_to_tags(self.entities, len(self.forms), "IOB2")
            rows = (f"{form}\t{tag}" for form, tag in zip(self.forms, tags, strict=True))
            return "\n".join([f"# sent_id = {self.id}", *rows, "", ""])
        if kind == "tsv":
            return "".join(self._questions())
        formatters = {
            "jsonl": lambda: format_spans(self.span_text),
            "ptb": lambda: trees.format(self.tree),
            "trees": lambda: trees.format(self.rated),
            "txt": lambda: self.text,
        }
        return formatters[kind]() + "\n"

    def _questions(self) -> Iterator[str]:
        """Yield one line per type of name that occurs exactly once."""
        spans = self.span_text.spans
        for span in spans:
            if sum(other.label == span.label for other in spans) == 1:
                cells = (QUESTIONS[span.label], self.text, self.text[span.start : span.end])
                yield "\t".join((*cells, str(span.start))) + "\n"


def generate_treebank(seed: int = 0, size: int = SIZE) -> dict[str, list[SyntheticSentence]]:
    """Generate `size` distinct sentences in train, dev and test (7 : 1 : 2)."""
    grammar = Grammar(f"treebank {seed}")
    seen: set[str] = set()
    sizes = {"train": size * 7 // 10, "dev": size // 10}
    sizes["test"] = size - sum(sizes.values())
    return {
        split: [sentence for _, sentence in draw_sentences(grammar, split, n, seen)]
        for split, n in sizes.items()
    }


def write_treebank(
    folder: Path, parts: Mapping[str, Sequence[SyntheticSentence]] | None = None
) -> dict[str, list[Path]]:
    """Write the files of each kind; existing files with other contents are an error."""
    parts = parts or generate_treebank()
    texts = {
        f"{split}.{kind}": "".join(
            [HEADERS.get(kind, ""), *(sentence.format_as(kind) for sentence in sentences)]
        ).encode()
        for kind in KINDS
        for split, sentences in parts.items()
    }
    paths = write_generated(folder, texts)
    return {kind: [path for path in paths if path.suffix == f".{kind}"] for kind in KINDS}


def draw_sentences(
    grammar: Grammar, split: str, count: int, seen: set[str]
) -> Iterator[tuple[Phrase, SyntheticSentence]]:
    """Yield sentences whose texts are not in `seen`, and add them to it."""
    drawn = 0
    while drawn < count:
        phrase = grammar.sentence()
        sentence = _build_sentence(phrase, f"{split}-{drawn + 1}")
        if sentence.text not in seen:
            seen.add(sentence.text)
            drawn += 1
            yield phrase, sentence


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
    """Collects the words of a phrase with their heads and the entities among them."""

    def __init__(self) -> None:
        self.leaves: list[Leaf] = []
        self.arcs: dict[int, tuple[int, str]] = {}
        self.entities: list[Span] = []

    def through(self, part: Part) -> int:
        """Return the position of the head of this part."""
        start = len(self.leaves)
        if isinstance(part, Leaf):
            self.leaves.append(part)
            return start
        dependents = [(relation, self.through(inner)) for relation, inner in part.parts]
        head = next(position for relation, position in dependents if relation == HEAD)
        for i, (relation, position) in enumerate(dependents):
            # "and", and the comma before it, attach to the following conjunct.
            later = [p for r, p in dependents[i:] if r == "conj" and relation in ("cc", "punct")]
            if relation != HEAD:
                self.arcs[position] = ((later or [head])[0] + 1, relation)
        if part.entity:
            self.entities.append(Span(part.entity, start, len(self.leaves)))
        return head


def _build_tree(part: Part, forms: Iterator[str]) -> Tree:
    if isinstance(part, Leaf):
        return Tree(part.xpos, next(forms))
    return Tree(part.label, children=tuple(_build_tree(inner, forms) for _, inner in part.parts))


@dataclass(frozen=True)
class _RatedPhrase:
    """A phrase with its sentiment and the polarity shift it applies to its neighbour."""

    tree: Tree
    sentiment: int
    polarity_shift: str


def _rate(part: Part, forms: Iterator[str]) -> _RatedPhrase:
    """Combine from the last two parts on, so that a shifter applies to all that follows."""
    if isinstance(part, Leaf):
        return _RatedPhrase(
            Tree(_label(part.sentiment), next(forms)), part.sentiment, part.polarity_shift
        )
    left = [_rate(inner, forms) for _, inner in part.parts]
    while len(left) > 1:
        second, first = left.pop(), left.pop()
        sentiment, polarity_shift = _combine(first, second)
        left.append(
            _RatedPhrase(
                Tree(_label(sentiment), children=(first.tree, second.tree)),
                sentiment,
                polarity_shift,
            )
        )
    return left[0]


def _combine(first: _RatedPhrase, second: _RatedPhrase) -> tuple[int, str]:
    """Return the sentiment of two neighbours and the polarity shift still to apply."""
    a, b = first.sentiment, second.sentiment
    sign = (b > 0) - (b < 0)
    if first.polarity_shift == "not" and b:
        return -sign, ""  # not superb is not awful
    if second.polarity_shift == "not" and a:
        return (a < 0) - (a > 0), ""  # loved no film
    if first.polarity_shift in ("more", "less") and b:
        return sign * (_MAX_SENTIMENT if first.polarity_shift == "more" else 1), ""
    if first.polarity_shift in ("but", "although") and first.tree.word:
        return b, first.polarity_shift
    if second.polarity_shift == "but" or first.polarity_shift == "although":
        return b or a, ""
    if second.polarity_shift == "although":
        return a or b, ""
    both = max(-_MAX_SENTIMENT, min(_MAX_SENTIMENT, a + b))
    return both, first.polarity_shift if first.polarity_shift == "not" else ""


def _label(sentiment: int) -> str:
    return str(sentiment + _MAX_SENTIMENT)
