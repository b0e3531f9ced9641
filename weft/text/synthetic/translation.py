"""Loomish, a made language: the sentences of the made grammar, translated by rules.

Its verbs come last and what helps them after them, adjectives behind their nouns, prepositions
behind their phrases. Endings say which noun is an object, which are many, which are known, and when
things happen. Names stay as they are. A word of two uses in English, to book and a book, is two
words here: who translates must read on.
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
_AFTER_NOUN = ("amod", "nmod:poss")  # before a noun in English
_AUXILIARIES = ("aux", "aux:pass", "cop")
_ENDINGS = (  # of a verb, by its features
    ("Tense=Past|VerbForm=Fin", "ta"), ("Tense=Pres|VerbForm=Fin", "ri"), ("Voice=Pass", "pan"),
    ("Tense=Past|VerbForm=Part", "nat"), ("Tense=Pres|VerbForm=Part", "lin"), ("VerbForm=Inf", "e"),
)  # fmt: skip


def translate(sentence: Phrase) -> str:
    """A sentence of the made grammar in Loomish."""
    words = list(_translate_part(sentence))
    text = "".join(f"{'' if word in '.,?' else ' '}{word}" for word in words).strip()
    return text[0].upper() + text[1:]


def make_stem(lemma: str, kind: str) -> str:
    """What a word is called, by its lemma and its part of speech: always the same two syllables."""
    number = zlib.crc32(f"{kind} {lemma}".encode())
    out = ""
    for _ in range(2):
        for sounds in (_ONSETS, _VOWELS, _CODAS):
            number, place = divmod(number, len(sounds))
            out += sounds[place]
    return out


def generate_pairs(seed: int = 0, size: int = SIZE) -> dict[str, list[tuple[str, str]]]:
    """`size` English sentences with their translations in train, dev and test (8 : 1 : 1)."""
    grammar = Grammar(f"loomish {seed}")
    seen: set[str] = set()
    shares = {"train": size - 2 * (size // 10), "dev": size // 10, "test": size // 10}
    return {
        split: [
            (made.text, translate(phrase))
            for phrase, made in draw_sentences(grammar, split, n, seen)
        ]
        for split, n in shares.items()
    }


def write_pairs(folder: Path, seed: int = 0, size: int = SIZE) -> list[Path]:
    """Parallel files, one for each language and part."""
    texts = {
        f"{split}.{ending}": "".join(f"{pair[side]}\n" for pair in made).encode()
        for split, made in generate_pairs(seed, size).items()
        for side, ending in enumerate((ENGLISH, LOOMISH))
    }
    return write_generated(folder, texts)


def _translate_part(part: Part, role: str = "", known: bool = False) -> Iterator[str]:
    """The words of a part that stands in some relation, in their order."""
    if isinstance(part, Leaf):
        yield from _translate_word(part, role, known)
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
    """What counts or points, the noun, what it is like and whose, then all that came after it."""
    place = next(i for i, (relation, _) in enumerate(phrase.parts) if relation == HEAD)
    before, after = phrase.parts[:place], phrase.parts[place + 1 :]
    articles = [p for _, p in before if isinstance(p, Leaf) and p.lemma in ("the", "a")]
    for relation, part in before:
        if relation not in _AFTER_NOUN and part not in articles:
            yield from _translate_part(part)
    yield from _translate_part(
        phrase.parts[place][1], role, any(p.lemma == "the" for p in articles)
    )  # type: ignore[union-attr]
    for relation, part in before:
        if relation in _AFTER_NOUN:
            yield from _translate_part(part)
    for relation, part in after:
        yield from _translate_part(part, relation)


def _translate_verbal(phrase: Phrase) -> Iterator[str]:
    """Everything else first, then the verb, what helps it, what denies it, and what asks."""
    last = [HEAD] if phrase.label == "VP" else [HEAD, *_AUXILIARIES, "punct"]
    denied = [p for r, p in phrase.parts if isinstance(p, Leaf) and p.turn == "not" and r != HEAD]
    helping = [part for relation, part in phrase.parts if relation in _AUXILIARIES]
    for relation, part in phrase.parts:
        if relation not in (*last, *_AUXILIARIES) and part not in denied:
            yield from _translate_part(part, relation)
    for part in (*(p for r, p in phrase.parts if r == HEAD), *helping, *denied):
        yield from _translate_part(part)
    if phrase.label == "SQ":
        yield "ko"
        yield "?"


def _translate_word(leaf: Leaf, role: str, known: bool) -> Iterator[str]:
    if leaf.upos in ("PROPN", "PUNCT"):
        yield leaf.form
        if leaf.upos == "PROPN" and role == "obj":
            yield "om"
        return
    out = make_stem(leaf.lemma, leaf.upos)
    if leaf.upos == "NOUN":
        out += "u" * ("Plur" in leaf.feats) + "en" * known + "om" * (role == "obj")
    elif leaf.upos in ("VERB", "AUX"):
        out += next((ending for feats, ending in _ENDINGS if feats in leaf.feats), "")
    elif leaf.upos == "PRON":
        out += "om" * ("Case=Acc" in leaf.feats)
    yield out
