"""A synthetic parallel corpus: generated English and its rule-based translation to Loomish.

In Loomish, verbs come last, followed by auxiliaries; adjectives follow their nouns, postpositions
their phrases. Endings mark object, plural, definiteness and tense. Names stay. An ambiguous
English word (to book, a book) is two words, so translation needs context.
"""

import zlib
from collections.abc import Iterator
from pathlib import Path

from weft.text.synthetic.grammar import HEAD, Grammar, Part, Phrase
from weft.text.synthetic.lexicon import Leaf
from weft.text.synthetic.treebank import draw_sentences
from weft.text.write import write_generated

SIZE = 8000
ENGLISH, LOOMISH = "en", "lo"  # endings of the files
_ONSETS = ["b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z", "sh", "br", "tr"]
_VOWELS = ["a", "e", "i", "o", "u", "ai", "ou"]
_CODAS = ("", "", "n", "r", "l", "s")
_AFTER_NOUN = ("amod", "nmod:poss")  # relations before a noun in English
_AUXILIARIES = ("aux", "aux:pass", "cop")
_ENDINGS = (  # of a verb, by its features
    ("Tense=Past|VerbForm=Fin", "ta"), ("Tense=Pres|VerbForm=Fin", "ri"), ("Voice=Pass", "pan"),
    ("Tense=Past|VerbForm=Part", "nat"), ("Tense=Pres|VerbForm=Part", "lin"), ("VerbForm=Inf", "e"),
)  # fmt: skip


def translate(sentence: Phrase) -> str:
    """Translate a sentence of the grammar to Loomish."""
    words = list(_translate_part(sentence))
    text = "".join(f"{'' if word in '.,?' else ' '}{word}" for word in words).strip()
    return text[0].upper() + text[1:]


def make_stem(lemma: str, kind: str) -> str:
    """Return the two syllables of a word, determined by its lemma and part of speech."""
    number = zlib.crc32(f"{kind} {lemma}".encode())
    out = ""
    for _ in range(2):
        for sounds in (_ONSETS, _VOWELS, _CODAS):
            number, index = divmod(number, len(sounds))
            out += sounds[index]
    return out


def generate_pairs(seed: int = 0, size: int = SIZE) -> dict[str, list[tuple[str, str]]]:
    """Generate `size` sentence pairs in train, dev and test (8 : 1 : 1)."""
    grammar = Grammar(f"loomish {seed}")
    seen: set[str] = set()
    sizes = {"train": size - 2 * (size // 10), "dev": size // 10, "test": size // 10}
    return {
        split: [
            (sentence.text, translate(phrase))
            for phrase, sentence in draw_sentences(grammar, split, n, seen)
        ]
        for split, n in sizes.items()
    }


def write_pairs(folder: Path, seed: int = 0, size: int = SIZE) -> list[Path]:
    """Write parallel files, one per language and split."""
    texts = {
        f"{split}.{ending}": "".join(f"{pair[side]}\n" for pair in split_pairs).encode()
        for split, split_pairs in generate_pairs(seed, size).items()
        for side, ending in enumerate((ENGLISH, LOOMISH))
    }
    return write_generated(folder, texts)


def _translate_part(part: Part, role: str = "", definite: bool = False) -> Iterator[str]:
    """Yield the words of a part with the given relation, in order."""
    if isinstance(part, Leaf):
        yield from _translate_word(part, role, definite)
    elif part.label == "NP":
        yield from _translate_nominal(part, role)
    elif part.label == "PP":
        (_, case), (_, thing) = part.parts
        yield from _translate_part(thing)
        yield from _translate_part(case)
    elif part.label in ("VP", "SQ"):
        yield from _translate_verbal(part)
    else:
        for relation, inner in part.parts:
            yield from _translate_part(inner, relation)


def _translate_nominal(phrase: Phrase, role: str) -> Iterator[str]:
    """Yield determiners, the noun, adjectives and possessors, then the rest."""
    head = next(i for i, (relation, _) in enumerate(phrase.parts) if relation == HEAD)
    before, after = phrase.parts[:head], phrase.parts[head + 1 :]
    articles = [p for _, p in before if isinstance(p, Leaf) and p.lemma in ("the", "a")]
    for relation, part in before:
        if relation not in _AFTER_NOUN and part not in articles:
            yield from _translate_part(part)
    definite = any(article.lemma == "the" for article in articles)
    yield from _translate_part(phrase.parts[head][1], role, definite)
    for relation, part in before:
        if relation in _AFTER_NOUN:
            yield from _translate_part(part)
    for relation, part in after:
        yield from _translate_part(part, relation)


def _translate_verbal(phrase: Phrase) -> Iterator[str]:
    """Yield everything else first, then the verb, auxiliaries, negation and question particle."""
    last = [HEAD] if phrase.label == "VP" else [HEAD, *_AUXILIARIES, "punct"]
    negations = [
        p
        for r, p in phrase.parts
        if isinstance(p, Leaf) and p.polarity_shift == "not" and r != HEAD
    ]
    auxiliaries = [part for relation, part in phrase.parts if relation in _AUXILIARIES]
    for relation, part in phrase.parts:
        if relation not in (*last, *_AUXILIARIES) and part not in negations:
            yield from _translate_part(part, relation)
    for part in (*(p for r, p in phrase.parts if r == HEAD), *auxiliaries, *negations):
        yield from _translate_part(part)
    if phrase.label == "SQ":
        yield "ko"
        yield "?"


def _translate_word(leaf: Leaf, role: str, definite: bool) -> Iterator[str]:
    if leaf.upos in ("PROPN", "PUNCT"):
        yield leaf.form
        if leaf.upos == "PROPN" and role == "obj":
            yield "om"
        return
    out = make_stem(leaf.lemma, leaf.upos)
    if leaf.upos == "NOUN":
        out += "u" * ("Plur" in leaf.feats) + "en" * definite + "om" * (role == "obj")
    elif leaf.upos in ("VERB", "AUX"):
        out += next((ending for feats, ending in _ENDINGS if feats in leaf.feats), "")
    elif leaf.upos == "PRON":
        out += "om" * ("Case=Acc" in leaf.feats)
    yield out
