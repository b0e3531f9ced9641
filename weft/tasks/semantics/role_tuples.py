"""Rules from English semantic roles to tuples of open information extraction (as in SRLIE).

A verb with a subject and something else becomes one tuple: its phrase (auxiliaries, negation,
adverbs, particle, the infinitive that it governs, a preposition), then the subject, its other
arguments, and modifiers. Nominal predicates give no tuple.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from weft.text.annotation.frames import FrameRow
from weft.text.annotation.word_tuples import TupleArgument, WordTuple

BE = frozenset(("be", "is", "am", "are", "was", "were", "been", "being"))
AUXILIARIES = BE | {
    "have", "has", "had", "having", "do", "does", "did", "will", "would", "can", "could", "may",
    "might", "must", "shall", "should", "ca", "wo", "'s", "'re", "'m", "'ll", "'d", "'ve",
}  # fmt: skip
NEGATIONS = frozenset(("not", "n't", "never", "no", "longer"))
POSSESSIVES = frozenset(("its", "his", "her", "their", "our", "my", "your", "'s", "s"))
DETERMINERS = POSSESSIVES | {"a", "an", "the", "any", "some", "no", "each", "every", "another",
                             "such"}  # fmt: skip
PREPOSITIONS = frozenset((
    "of", "in", "on", "at", "by", "for", "from", "with", "to", "into", "through", "over", "under",
    "between", "among", "against", "about", "as", "after", "before", "during", "until", "since",
    "within", "without", "toward", "towards", "upon", "across", "around", "near", "onto", "out",
    "off", "up", "down", "via", "per",
))  # fmt: skip
RELATIVES = frozenset(("who", "which", "that", "whom", "whose", "where", "when"))
CLAUSE_STARTS = RELATIVES - {"that"}  # after a comma
PRONOUNS = frozenset(("it", "there", "he", "she", "they", "we", "i", "you", "this", "that",
                      "these", "those"))  # fmt: skip
NOUN_SUFFIXES = ("tion", "sion", "ment", "ance", "ence", "ity", "ness", "ship", "al", "ery", "ism")
NOUN_ENDINGS = (*NOUN_SUFFIXES, "tions", "sions", "ments", "ances", "ences", "ities", "ships")
VERBS_WITH_BARE_INFINITIVES = frozenset(("help", "let", "make"))
NOMINAL_ROLES = ("ARGM-ADJ", "ARGM-LVB")  # that only nouns have
PHRASE_ADVERBS = ("ARGM-TMP", "ARGM-ADV", "ARGM-MNR", "ARGM-EXT", "ARGM-DIS")
LEFT_OUT = ("ARGM-MOD", "ARGM-NEG", "ARGM-DIS")  # part of the phrase, or of no use alone
TIME, PLACE = "ARGM-TMP", "ARGM-LOC"  # keep their preposition
EDGE_MARKS = frozenset(",;:.-")
NO_ROLE_PROB = 0.7  # of a pronoun beside the verb that has no role, such as "there"
MIN_PROB = 1e-6


@dataclass(frozen=True)
class _Role:
    label: str
    start: int
    end: int
    prob: float

    @property
    def is_modifier(self) -> bool:
        return self.label.startswith("ARGM")

    @property
    def words(self) -> range:
        return range(self.start, self.end)


@dataclass(frozen=True)
class _Frame:
    """A predicate with its roles; `verb` are the words of V."""

    word: int
    lemma: str
    particle: str
    prob: float
    verb: frozenset[int]
    roles: tuple[_Role, ...]
    is_noun: bool


def extract_tuples(
    words: Sequence[str], frames: Sequence[FrameRow], probs: Sequence[float]
) -> list[WordTuple]:
    """Return the tuples of a sentence, by predicate.

    `probs` are those of each predicate, then of its roles, as the answers of the task `srl` have
    them. The confidence of a tuple is the geometric mean of the ones that it uses.
    """
    low = [word.lower().replace("’", "'") for word in words]
    read = _read_frames(low, frames, probs)
    by_word = {one.word: one for one in read}
    tuples = (_make_tuple(low, one, by_word) for one in read if _is_verb(low, one))
    return [one for one in tuples if one is not None]


def _read_frames(
    low: Sequence[str], frames: Sequence[FrameRow], probs: Sequence[float]
) -> list[_Frame]:
    out, at = [], 0
    for word, sense, roles in frames:
        own = [_Role(*role, prob) for role, prob in zip(roles, probs[at + 1 :], strict=False)]
        verb = {word} | {n for one in own if one.label in ("V", "C-V") for n in one.words}
        lemma, *particles = sense.rpartition(".")[0].split("_")
        kept = tuple(one for one in own if one.label not in ("V", "C-V") and one.label[:2] != "R-")
        is_noun = _is_noun(low, word, lemma, own)
        particle = particles[0] if particles else ""
        out.append(_Frame(word, lemma, particle, probs[at], frozenset(verb), kept, is_noun))
        at += 1 + len(roles)
    return out


def _is_verb(low: Sequence[str], frame: _Frame) -> bool:
    return low[frame.word][:1].isalpha() and not frame.is_noun


def _is_noun(low: Sequence[str], word: int, lemma: str, roles: Iterable[_Role]) -> bool:
    """Return whether a predicate is a noun: by its roles, its ending, or the word before it."""
    form, before = low[word], low[word - 1] if word else ""
    if any(role.label in NOMINAL_ROLES for role in roles):
        return True
    if form.endswith(NOUN_ENDINGS) and not lemma.endswith(NOUN_SUFFIXES):
        return True
    if before in DETERMINERS:
        return not form.endswith("ing") or before in POSSESSIVES | {"the", "a", "an"}
    return before in PREPOSITIONS - {"to"} and not form.endswith("ing")


def _make_tuple(low: Sequence[str], frame: _Frame, by_word: dict[int, _Frame]) -> WordTuple | None:
    phrase = _find_phrase(low, frame)
    subject = _find_subject(low, frame, min(phrase))
    if subject is None:
        return None
    others = [
        one
        for one in _clean(low, frame.roles)
        if (one.start, one.end) != (subject.start, subject.end)
        and frame.word not in one.words
        and one.label not in LEFT_OUT
        and (not one.is_modifier or one.start not in phrase)
    ]
    phrase, others = _join_infinitive(low, frame, phrase, others, by_word)
    others = [one for one in others if phrase.isdisjoint(one.words)]
    if not others:
        return None
    others.sort(key=lambda one: (one.label == TIME, one.start < min(phrase), one.start))
    phrase, others = _move_preposition(low, phrase, others)
    parts = [_cut_clause(low, one) for one in (subject, *others)]
    probs = [frame.prob, *(one.prob for one in parts)]
    confidence = math.exp(sum(math.log(max(prob, MIN_PROB)) for prob in probs) / len(probs))
    arguments = tuple(TupleArgument(tuple(one.words), one.label) for one in parts)
    return WordTuple(tuple(sorted(phrase)), arguments, confidence)


def _find_phrase(low: Sequence[str], frame: _Frame) -> set[int]:
    """Return the words of the verb with auxiliaries, negation and adverbs before it."""
    phrase = set(frame.verb)
    single = {one.start: one.label for one in frame.roles if one.end == one.start + 1}
    taken = ("ARGM-MOD", "ARGM-NEG", *PHRASE_ADVERBS)
    for k in range(min(phrase) - 1, -1, -1):
        cut_off = low[k] in ("s", "t") and k and low[k - 1] == "'"  # of 's, n't
        known = low[k] in AUXILIARIES or low[k] in NEGATIONS or low[k] == "'" or cut_off
        if not known and single.get(k) not in taken:
            break
        phrase.add(k)
    after = max(frame.verb) + 1
    if frame.particle and after < len(low) and low[after] == frame.particle:
        phrase.add(after)
    return phrase


def _find_subject(low: Sequence[str], frame: _Frame, first: int) -> _Role | None:
    """Return the argument before the verb that comes first by number, else a pronoun there.

    Speech may have its speaker after the verb.
    """
    core = [
        one
        for one in _clean(low, frame.roles)
        if not one.is_modifier and frame.word not in one.words
    ]
    before = [
        one
        for one in core
        if one.start < first and not (len(one.words) == 1 and low[one.start] in RELATIVES)
    ]
    for label in ("ARG0", "ARG1", "ARG2"):
        if named := [one for one in before if one.label == label]:
            return named[-1]
    if before:
        return before[-1]
    has_role = any(first - 1 in one.words for one in frame.roles)
    if first and low[first - 1] in PRONOUNS and not has_role:
        return _Role("", first - 1, first, NO_ROLE_PROB)
    speaker = [one for one in core if one.label == "ARG0" and low[one.start] != "by"]
    return speaker[0] if speaker and len(core) > 1 else None


def _clean(low: Sequence[str], roles: Iterable[_Role]) -> list[_Role]:
    """Return the roles without marks at their ends; those that are nothing else are dropped."""
    out = []
    for one in roles:
        start, end = one.start, one.end
        while start < end and low[start] in EDGE_MARKS:
            start += 1
        while end > start and low[end - 1] in EDGE_MARKS:
            end -= 1
        if start < end:
            out.append(replace(one, start=start, end=end))
    return out


def _join_infinitive(
    low: Sequence[str],
    frame: _Frame,
    phrase: set[int],
    others: list[_Role],
    by_word: dict[int, _Frame],
) -> tuple[set[int], list[_Role]]:
    """Return the phrase with the infinitive right after it, and the arguments of that verb."""
    for one in others:
        if one.is_modifier or one.start != max(phrase) + 1:
            continue
        verb = -1
        if low[one.start] == "to":
            near = range(one.start + 1, min(one.start + 3, one.end))
            verb = next((k for k in near if k in by_word), -1)
        elif one.start in by_word and frame.lemma in VERBS_WITH_BARE_INFINITIVES:
            verb = one.start
        inner = by_word.get(verb)
        is_auxiliary = inner is not None and low[verb] in AUXILIARIES and verb + 1 in by_word
        if inner is None or inner.is_noun or is_auxiliary:
            continue
        own = [role for role in inner.roles if role.start > verb and role.end <= one.end]
        if own:
            rest = [role for role in others if role is not one]
            return phrase | set(range(one.start, verb + 1)), rest + _clean(low, own)
    return phrase, others


def _move_preposition(
    low: Sequence[str], phrase: set[int], others: list[_Role]
) -> tuple[set[int], list[_Role]]:
    """Return the phrase with the preposition after it, except of times and places."""
    for k, one in enumerate(others):
        fits = one.start == max(phrase) + 1 and low[one.start] in PREPOSITIONS
        if fits and len(one.words) > 1 and one.label not in (TIME, PLACE):
            moved = replace(one, start=one.start + 1)
            return phrase | {one.start}, [*others[:k], moved, *others[k + 1 :]]
    return phrase, others


def _cut_clause(low: Sequence[str], role: _Role) -> _Role:
    """Return the role without a relative clause after a comma, which has a tuple itself."""
    for k in range(role.start + 1, role.end - 1):
        if low[k] == "," and low[k + 1] in CLAUSE_STARTS:
            return replace(role, end=k)
    return role
