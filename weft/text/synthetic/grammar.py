"""A grammar that generates English sentences with heads, relations, entities and sentiment.

The verb decides on prepositional attachment: in "films someone with a camera" the camera is the
instrument, in "meets someone with a camera" it belongs to the person. Likewise "in Oslo" attaches
to an event, or otherwise to the noun before it.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, Union

from weft.text.synthetic.lexicon import (
    ATTRIBUTES,
    CONTROL_VERBS,
    DEGREES,
    DO,
    EVENTS,
    FAMILY_ENDINGS,
    FIRMS,
    FIRST_NAMES,
    HAVE,
    INTRANSITIVE,
    LAST_NAMES,
    MASS_NOUNS,
    NAME_STEMS,
    NEUTRAL_ADJECTIVES,
    NOUNS,
    PRONOUNS,
    SENTIMENTS,
    SPEECH_VERBS,
    STATES,
    SUBORDINATORS,
    TIMES,
    TOWN_ENDINGS,
    TOWNS,
    Leaf,
    Verb,
    adjective,
    adverb,
    article,
    be,
    conjunction,
    noun,
    proper_noun,
    punctuation,
)

Option = TypeVar("Option")
HEAD = ""


@dataclass(frozen=True)
class Phrase:
    """A constituent: its parts, each with its relation to the head."""

    label: str
    parts: tuple[tuple[str, Union[Leaf, "Phrase"]], ...]
    entity: str = ""  # of a name: PER, LOC, ORG


Part = Leaf | Phrase
Dependent = tuple[str, Part]  # a relation and its dependent
Nominal = tuple[Phrase, str]  # a noun phrase and its verb agreement


class Grammar:
    """Draws sentences, reproducible by seed."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def sentence(self) -> Phrase:
        """Draw a statement, a question, or two joined clauses."""
        kind = self._choose(("plain",) * 12 + ("but",) * 3 + ("and", "asked", "fronted", "after"))
        comma, stop = ("punct", punctuation(",")), ("punct", punctuation("."))
        if kind == "asked":
            return self._question()
        first = self._clause(2)
        if kind == "plain":
            return Phrase("S", (*first.parts, stop))
        second = self._clause(1)
        if kind in ("but", "and"):
            return _phrase(
                "S", first, comma, ("cc", conjunction(kind)), ("conj", second), stop
            )  # fmt: skip
        word, polarity_shift = self._choose(SUBORDINATORS)
        link = ("mark", Leaf(word, word, "SCONJ", "IN", polarity_shift=polarity_shift))
        aside = ("advcl", _phrase("SBAR", link, second))
        if kind == "fronted":
            return Phrase("S", (aside, comma, *first.parts, stop))
        return _phrase("S", first, aside, stop)

    def _clause(self, depth: int) -> Phrase:
        """Draw a subject and a predicate."""
        kinds = ("does",) * 6 + ("is",) * 5 + ("done", "alone")
        kind = self._choose(kinds + ("says", "wants") * (depth > 0))
        if kind == "is":
            subject, agree = self._nominal(self._choose(tuple(NOUNS)), depth)
            return _phrase("S", ("nsubj", subject), self._copular(agree))
        if kind == "done":
            verb = self._choose(EVENTS)
            subject, agree = self._nominal(self._choose_word(verb.objects), depth)
            return _phrase("S", ("nsubj:pass", subject), self._passive(verb, agree))
        subject, agree = self._agent(depth)
        return _phrase("S", ("nsubj", subject), self._predicate(kind, agree, depth))

    def _question(self) -> Phrase:
        verb, rest = self._transitive(1)
        subject, agree = self._agent(0)
        does = DO.finite(self._choose(("Past", "Pres")), agree, "AUX")
        inner = _phrase("VP", verb.base, *rest)
        return _phrase("SQ", ("aux", does), ("nsubj", subject), inner, ("punct", punctuation("?")))

    def _predicate(self, kind: str, agree: str, depth: int) -> Phrase:
        """Draw an intransitive, transitive, speech or control predicate."""
        rest: list[Dependent]
        if kind == "alone":
            verb, rest = self._choose(INTRANSITIVE), [*self._location(0.8), *self._time(0.4)]
        elif kind == "says":
            verb = self._choose(SPEECH_VERBS)
            that: list[Dependent] = [("mark", Leaf("that", "that", "SCONJ", "IN"))]
            complement = _phrase("SBAR", *that * self._flip(0.6), self._clause(0))
            rest = [("ccomp", complement)]
        elif kind == "wants":
            verb = self._choose(CONTROL_VERBS)
            wanted, inner = self._transitive(depth - 1)
            to = ("mark", Leaf("to", "to", "PART", "TO"))
            rest = [("xcomp", _phrase("S", _phrase("VP", to, _phrase("VP", wanted.base, *inner))))]
        else:
            verb, rest = self._transitive(depth)
        return self._verb_group(verb, agree, rest)

    def _transitive(self, depth: int) -> tuple[Verb, list[Dependent]]:
        """Draw a verb, its object and adjuncts."""
        state = self._flip(0.45)
        verb = self._choose(STATES if state else EVENTS)
        kind = self._choose_word(verb.objects)
        thing, _ = self._nominal(kind, depth - 1, "Acc")
        rest: list[Dependent] = []
        own = [] if _is_pronoun(thing) else ATTRIBUTES[kind].split()  # a pronoun takes no modifier
        if (words := [*verb.tools.split() * 3, *own]) and self._flip(0.35):
            word = self._choose(words)
            alone = self._np([] if word in MASS_NOUNS else [("det", article("a"))], noun(word))
            if word in verb.tools.split():
                rest.append(("obl", _prepositional("with", alone)))
            else:
                thing = _phrase("NP", thing, ("nmod", _prepositional("with", alone)))
        for _, place in self._location(0.25):
            if state and own:
                thing = _phrase("NP", thing, ("nmod", place))
            else:
                rest.append(("obl", place))
        return verb, [("obj", thing), *rest, *self._time(0.25)]

    def _verb_group(self, verb: Verb, agree: str, rest: Sequence[Dependent]) -> Phrase:
        """Draw a verb group: a tense with its auxiliaries."""
        lasting = ("is",) * (verb not in STATES)  # state verbs have no progressive
        tense = self._choose(("Past",) * 5 + ("Pres",) * 3 + ("will", "can", "has", *lasting))
        negated = self._flip(0.2)
        if tense in ("Past", "Pres") and not negated:
            often: list[Dependent] = [
                ("advmod", adverb(self._choose_word("often rarely soon again")))
            ]
            return _phrase("VP", *often * self._flip(0.1), verb.finite(tense, agree), *rest)
        aux, inner = {
            "has": (HAVE.finite("Pres", agree, "AUX"), verb.participle),
            "is": (be("Pres", agree), verb.ing),
            "will": (Leaf("will", "will", "AUX", "MD", "VerbForm=Fin"), verb.base),
            "can": (Leaf("can", "can", "AUX", "MD", "VerbForm=Fin"), verb.base),
        }.get(tense) or (DO.finite(tense, agree, "AUX"), verb.base)
        return _phrase(
            "VP", ("aux", aux), *self._negation(aux, negated), _phrase("VP", inner, *rest)
        )

    def _passive(self, verb: Verb, agree: str) -> Phrase:
        rest = self._time(0.3)
        if self._flip(0.7):
            rest.insert(0, ("obl:agent", _prepositional("by", self._agent(0, "Acc")[0])))
        aux = be(self._choose(("Past", "Pres")), agree)
        no = self._negation(aux, self._flip(0.15))
        return _phrase("VP", ("aux:pass", aux), *no, _phrase("VP", verb.passive, *rest))

    def _copular(self, agree: str) -> Phrase:
        """Draw a copular predicate: an adjective or a noun."""
        negated, predicate = self._flip(0.3), self._adjective_phrase()
        if agree != "Plur" and self._flip(0.25):
            sentiment, _, things = self._choose(SENTIMENTS)
            predicate = self._np(
                [("det", article("a"))], noun(self._choose_word(things), sentiment=sentiment)
            )
        elif not negated and self._flip(0.25):  # "not dull but warm" would be another matter
            both = ("cc", conjunction(self._choose(("and", "but"))))
            predicate = _phrase("ADJP", predicate, both, ("conj", self._adjective_phrase()))
        cop = be(self._choose(("Past", "Pres")), agree)
        return _phrase("VP", ("cop", cop), *self._negation(cop, negated), predicate)

    def _adjective_phrase(self) -> Phrase:
        word, polarity_shift = self._choose(DEGREES)
        degree: list[Dependent] = [("advmod", adverb(word, polarity_shift))]
        return _phrase("ADJP", *degree * self._flip(0.3), self._adjective(0.15))

    def _adjective(self, plain: float) -> Leaf:
        sentiment, words, _ = self._choose(SENTIMENTS)
        if self._flip(plain):
            sentiment, words = 0, NEUTRAL_ADJECTIVES
        return adjective(self._choose_word(words), sentiment)

    def _negation(self, aux: Leaf, negated: bool) -> list[Dependent]:
        """Draw a negation that fits the auxiliary, never "amn't" or "did never go"."""
        forms = ["not"] + ["n't"] * (aux.form not in ("am", "will", "can"))
        form = self._choose(forms + ["never"] * (aux.lemma != "do"))
        polar = Leaf(form, "not", "PART", "RB", "Polarity=Neg", polarity_shift="not")
        negation: list[Dependent] = [("advmod", adverb(form, "not") if form == "never" else polar)]
        return negation * negated

    def _location(self, probability: float) -> list[Dependent]:
        """Draw a location: in a town or at a building."""
        town = self._flip(0.6)
        where = self._town() if town else self._np(
            [("det", article("the"))], noun(self._choose_word(NOUNS["building"]))
        )  # fmt: skip
        location: list[Dependent] = [("obl", _prepositional("in" if town else "at", where))]
        return location * self._flip(probability)

    def _time(self, probability: float) -> list[Dependent]:
        preposition, words = self._choose(TIMES)
        time: list[Dependent] = [
            (
                "obl",
                _prepositional(preposition, self._np([], proper_noun(self._choose_word(words)))),
            )
        ]
        return time * self._flip(probability)

    def _agent(self, depth: int, case: str = "Nom") -> Nominal:
        """Draw an agent: a person by name or profession, a pronoun or a company."""
        kind = self._choose(("name",) * 4 + ("firm", "pronoun") + ("person",) * 4)
        if kind == "pronoun":
            return self._pronoun(case)
        if kind == "person":
            return self._nominal("person", depth, case)
        if kind == "firm":
            return self._company(), "3Sing"
        who = self._person()
        if depth > 1 and self._flip(0.2):  # only at the beginning: no comma before a full stop
            what = self._np([("det", article("a"))], noun(self._choose_word(NOUNS["person"])))
            comma = ("punct", punctuation(","))
            who = _phrase("NP", who, comma, ("appos", what), comma)
        return who, "3Sing"

    def _nominal(self, kind: str, depth: int, case: str = "Nom") -> Nominal:
        """Draw a noun phrase, perhaps coordinated, with a relative clause or a topic."""
        if kind == "person" and self._flip(0.35):
            return self._pronoun(case) if self._flip(0.4) else (self._person(), "3Sing")
        plural, word = self._flip(0.3), self._choose_word(NOUNS[kind])
        some: list[Dependent] = [("amod", self._adjective(0.7))]
        phrase = self._np([self._determiner(plural), *some * self._flip(0.3)], noun(word, plural))
        agree = "Plur" if plural else "3Sing"
        if depth < 1:
            return phrase, agree
        if self._flip(0.12):
            others = [other for other in NOUNS[kind].split() if other != word]
            other = self._np([("det", article("the"))], noun(self._choose(others)))
            return _phrase("NP", phrase, ("cc", conjunction("and")), ("conj", other)), "Plur"
        if self._flip(0.15):
            phrase = _phrase("NP", phrase, ("acl:relcl", self._relative(kind, agree)))
        elif kind == "work" and self._flip(0.25):
            what = self._town() if self._flip(0.3) else self._agent(0, "Acc")[0]
            phrase = _phrase(
                "NP", phrase, ("nmod", _prepositional(self._choose_word("of about"), what))
            )
        return phrase, agree

    def _relative(self, kind: str, agree: str) -> Phrase:
        """Draw a relative clause: the noun as subject, with a copula, or as object."""
        form, tag = ("who", "WP") if kind == "person" else ("that", "WDT")
        wh = _phrase("WHNP", Leaf(form, form, "PRON", tag, "PronType=Rel"))
        if kind == "person" and self._flip(0.5):
            return _phrase("SBAR", ("nsubj", wh), _phrase("S", self._predicate("does", agree, 0)))
        if self._flip(0.4):
            return _phrase("SBAR", ("nsubj", wh), _phrase("S", self._copular(agree)))
        subject, own = self._agent(0)
        fit = [verb for verb in (*EVENTS, *STATES) if kind in verb.objects.split()]
        verb = self._verb_group(self._choose(fit), own, ())
        return _phrase("SBAR", ("obj", wh), _phrase("S", ("nsubj", subject), verb))

    def _determiner(self, plural: bool) -> Dependent:
        kind = self._choose(("the",) * 6 + ("a", "a", "this", "own", "own", "'s", "no"))
        number = "Plur" if plural else "Sing"
        if kind == "own":
            _, form, who = PRONOUNS[self._choose(tuple(PRONOUNS))]
            feats = f"Number={who[1:]}|Person={who[0]}|Poss=Yes|PronType=Prs"
            return "nmod:poss", Leaf(form, form, "PRON", "PRP$", feats)
        if kind == "'s":
            case = ("case", Leaf("'s", "'s", "PART", "POS"))
            return "nmod:poss", _phrase("NP", self._person(), case)
        if kind == "no":
            return "det", Leaf("no", "no", "DET", "DT", "PronType=Neg", polarity_shift="not")
        if kind == "this":
            lemma = self._choose(("this", "that"))
            form = {"this": "these", "that": "those"}[lemma] if plural else lemma
            return "det", Leaf(form, lemma, "DET", "DT", f"Number={number}|PronType=Dem")
        if kind == "a" and plural:
            word = self._choose_word("two three seven")
            return "nummod", Leaf(word, word, "NUM", "CD", "NumType=Card")
        return "det", article(kind)

    def _pronoun(self, case: str) -> Nominal:
        word = self._choose(tuple(PRONOUNS))
        other, _, who = PRONOUNS[word]
        feats = f"Case={case}|Number={who[1:]}|Person={who[0]}|PronType=Prs"
        form = word if case == "Nom" else other
        agree = "Plur" if who.endswith("Plur") else who
        return self._np([], Leaf(form, word, "PRON", "PRP", feats)), agree

    def _person(self) -> Phrase:
        first, last = (
            proper_noun(self._choose_word(FIRST_NAMES)),
            proper_noun(self._draw_name(LAST_NAMES, FAMILY_ENDINGS)),
        )
        kind = self._choose(("first", "both", "both", "last"))
        if kind == "both":
            return Phrase("NP", ((HEAD, first), ("flat", last)), "PER")
        return Phrase("NP", ((HEAD, first if kind == "first" else last),), "PER")

    def _town(self) -> Phrase:
        *before, last = (
            proper_noun(word) for word in self._draw_name(TOWNS, TOWN_ENDINGS).split("_")
        )
        return Phrase("NP", (*(("compound", word) for word in before), (HEAD, last)), "LOC")

    def _company(self) -> Phrase:
        if self._flip(0.25):
            of = _prepositional("of", replace(self._town(), entity=""))
            university = self._np([], proper_noun("University"))
            return Phrase("NP", ((HEAD, university), ("nmod", of)), "ORG")
        first = self._draw_name(
            *self._choose(((TOWNS, TOWN_ENDINGS), (LAST_NAMES, FAMILY_ENDINGS)))
        ).split("_")[-1]
        return Phrase(
            "NP",
            (("compound", proper_noun(first)), (HEAD, proper_noun(self._choose_word(FIRMS)))),
            "ORG",
        )

    def _draw_name(self, names: str, endings: str) -> str:
        """Draw a name from the list, or compose one."""
        put = self._choose_word(NAME_STEMS) + self._choose_word(endings)
        return self._choose_word(names) if self._flip(0.5) else put

    def _np(self, before: Sequence[Dependent], head: Leaf) -> Phrase:
        return _phrase("NP", *before, head)

    def _choose(self, options: Sequence[Option]) -> Option:
        return options[int(self._random.random() * len(options))]

    def _choose_word(self, words: str) -> str:
        return self._choose(words.split())

    def _flip(self, probability: float) -> bool:
        return self._random.random() < probability


def _phrase(label: str, *parts: Part | Dependent) -> Phrase:
    """Build a constituent whose head is the part without a relation."""
    return Phrase(label, tuple(p if isinstance(p, tuple) else (HEAD, p) for p in parts))


def _prepositional(preposition: str, thing: Phrase) -> Phrase:
    case = ("case", Leaf(preposition, preposition, "ADP", "IN"))
    return _phrase("PP", case, thing)


def _is_pronoun(thing: Phrase) -> bool:
    last = thing.parts[-1][1]
    return isinstance(last, Leaf) and last.upos == "PRON"
