"""A grammar that makes English sentences up, with heads, relations, names and feelings known.

A verb decides where "with a camera" belongs: who films someone with a camera uses it, who meets
someone with a camera meets its owner. Likewise "in Oslo" goes with what happens, or else, where
nothing does, with what stands before it.
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
    """A constituent: its parts, each with its relation to the one that is the head."""

    label: str
    parts: tuple[tuple[str, Union[Leaf, "Phrase"]], ...]
    entity: str = ""  # of a name: PER, LOC, ORG


Part = Leaf | Phrase
Dependent = tuple[str, Part]  # a relation, and what stands in it
Nominal = tuple[Phrase, str]  # a noun phrase, and how its verb agrees


class Grammar:
    """Draws sentences; the same seed draws the same ones."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def sentence(self) -> Phrase:
        """A statement, a question, or two clauses in one."""
        kind = self._one_of(("plain",) * 12 + ("but",) * 3 + ("and", "asked", "fronted", "after"))
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
        word, turn = self._one_of(SUBORDINATORS)
        link = ("mark", Leaf(word, word, "SCONJ", "IN", turn=turn))
        aside = ("advcl", _phrase("SBAR", link, second))
        if kind == "fronted":
            return Phrase("S", (aside, comma, *first.parts, stop))
        return _phrase("S", first, aside, stop)

    def _clause(self, depth: int) -> Phrase:
        """A subject and what is said of it."""
        kinds = ("does",) * 6 + ("is",) * 5 + ("done", "alone")
        kind = self._one_of(kinds + ("says", "wants") * (depth > 0))
        if kind == "is":
            subject, agree = self._nominal(self._one_of(tuple(NOUNS)), depth)
            return _phrase("S", ("nsubj", subject), self._being(agree))
        if kind == "done":
            verb = self._one_of(EVENTS)
            subject, agree = self._nominal(self._word(verb.objects), depth)
            return _phrase("S", ("nsubj:pass", subject), self._passive(verb, agree))
        subject, agree = self._agent(depth)
        return _phrase("S", ("nsubj", subject), self._acting(kind, agree, depth))

    def _question(self) -> Phrase:
        verb, rest = self._done(1)
        subject, agree = self._agent(0)
        does = DO.finite(self._one_of(("Past", "Pres")), agree, "AUX")
        inner = _phrase("VP", verb.base, *rest)
        return _phrase("SQ", ("aux", does), ("nsubj", subject), inner, ("punct", punctuation("?")))

    def _acting(self, kind: str, agree: str, depth: int) -> Phrase:
        """What someone does, alone or to something, or says, or wants to do."""
        rest: list[Dependent]
        if kind == "alone":
            verb, rest = self._one_of(INTRANSITIVE), [*self._place(0.8), *self._time(0.4)]
        elif kind == "says":
            verb = self._one_of(SPEECH_VERBS)
            that: list[Dependent] = [("mark", Leaf("that", "that", "SCONJ", "IN"))]
            said = _phrase("SBAR", *that * self._chance(0.6), self._clause(0))
            rest = [("ccomp", said)]
        elif kind == "wants":
            verb = self._one_of(CONTROL_VERBS)
            wanted, inner = self._done(depth - 1)
            to = ("mark", Leaf("to", "to", "PART", "TO"))
            rest = [("xcomp", _phrase("S", _phrase("VP", to, _phrase("VP", wanted.base, *inner))))]
        else:
            verb, rest = self._done(depth)
        return self._group(verb, agree, rest)

    def _done(self, depth: int) -> tuple[Verb, list[Dependent]]:
        """A verb, its object and what may follow."""
        state = self._chance(0.45)
        verb = self._one_of(STATES if state else EVENTS)
        kind = self._word(verb.objects)
        thing, _ = self._nominal(kind, depth - 1, "Acc")
        rest: list[Dependent] = []
        own = [] if _is_pronoun(thing) else ATTRIBUTES[kind].split()  # nothing hangs on a pronoun
        if (words := [*verb.tools.split() * 3, *own]) and self._chance(0.35):
            word = self._one_of(words)
            alone = self._np([] if word in MASS_NOUNS else [("det", article("a"))], noun(word))
            if word in verb.tools.split():
                rest.append(("obl", _prepositional("with", alone)))
            else:
                thing = _phrase("NP", thing, ("nmod", _prepositional("with", alone)))
        for _, place in self._place(0.25):
            if state and own:
                thing = _phrase("NP", thing, ("nmod", place))
            else:
                rest.append(("obl", place))
        return verb, [("obj", thing), *rest, *self._time(0.25)]

    def _group(self, verb: Verb, agree: str, rest: Sequence[Dependent]) -> Phrase:
        """The verb in some tense, with the auxiliaries that it asks for."""
        lasting = ("is",) * (verb not in STATES)  # nobody is knowing
        tense = self._one_of(("Past",) * 5 + ("Pres",) * 3 + ("will", "can", "has", *lasting))
        negated = self._chance(0.2)
        if tense in ("Past", "Pres") and not negated:
            often: list[Dependent] = [("advmod", adverb(self._word("often rarely soon again")))]
            return _phrase("VP", *often * self._chance(0.1), verb.finite(tense, agree), *rest)
        aux, inner = {
            "has": (HAVE.finite("Pres", agree, "AUX"), verb.participle),
            "is": (be("Pres", agree), verb.ing),
            "will": (Leaf("will", "will", "AUX", "MD", "VerbForm=Fin"), verb.base),
            "can": (Leaf("can", "can", "AUX", "MD", "VerbForm=Fin"), verb.base),
        }.get(tense) or (DO.finite(tense, agree, "AUX"), verb.base)
        return _phrase("VP", ("aux", aux), *self._not(aux, negated), _phrase("VP", inner, *rest))

    def _passive(self, verb: Verb, agree: str) -> Phrase:
        rest = self._time(0.3)
        if self._chance(0.7):
            rest.insert(0, ("obl:agent", _prepositional("by", self._agent(0, "Acc")[0])))
        aux = be(self._one_of(("Past", "Pres")), agree)
        no = self._not(aux, self._chance(0.15))
        return _phrase("VP", ("aux:pass", aux), *no, _phrase("VP", verb.passive, *rest))

    def _being(self, agree: str) -> Phrase:
        """What something is like, or is."""
        negated, said = self._chance(0.3), self._quality()
        if agree != "Plur" and self._chance(0.25):
            feeling, _, things = self._one_of(SENTIMENTS)
            said = self._np([("det", article("a"))], noun(self._word(things), feeling=feeling))
        elif not negated and self._chance(0.25):  # "not dull but warm" would be another matter
            both = ("cc", conjunction(self._one_of(("and", "but"))))
            said = _phrase("ADJP", said, both, ("conj", self._quality()))
        cop = be(self._one_of(("Past", "Pres")), agree)
        return _phrase("VP", ("cop", cop), *self._not(cop, negated), said)

    def _quality(self) -> Phrase:
        word, turn = self._one_of(DEGREES)
        degree: list[Dependent] = [("advmod", adverb(word, turn))]
        return _phrase("ADJP", *degree * self._chance(0.3), self._adjective(0.15))

    def _adjective(self, plain: float) -> Leaf:
        feeling, words, _ = self._one_of(SENTIMENTS)
        if self._chance(plain):
            feeling, words = 0, NEUTRAL_ADJECTIVES
        return adjective(self._word(words), feeling)

    def _not(self, aux: Leaf, negated: bool) -> list[Dependent]:
        """A denial that fits the auxiliary: nobody says "amn't", or "did never go"."""
        forms = ["not"] + ["n't"] * (aux.form not in ("am", "will", "can"))
        form = self._one_of(forms + ["never"] * (aux.lemma != "do"))
        polar = Leaf(form, "not", "PART", "RB", "Polarity=Neg", turn="not")
        found: list[Dependent] = [("advmod", adverb(form, "not") if form == "never" else polar)]
        return found * negated

    def _place(self, chance: float) -> list[Dependent]:
        """Somewhere, in a town or at a building."""
        town = self._chance(0.6)
        where = self._town() if town else self._np(
            [("det", article("the"))], noun(self._word(NOUNS["building"]))
        )  # fmt: skip
        found: list[Dependent] = [("obl", _prepositional("in" if town else "at", where))]
        return found * self._chance(chance)

    def _time(self, chance: float) -> list[Dependent]:
        preposition, words = self._one_of(TIMES)
        found: list[Dependent] = [
            ("obl", _prepositional(preposition, self._np([], proper_noun(self._word(words)))))
        ]
        return found * self._chance(chance)

    def _agent(self, depth: int, case: str = "Nom") -> Nominal:
        """Who can do something: people by name or trade, firms."""
        kind = self._one_of(("name",) * 4 + ("firm", "pronoun") + ("person",) * 4)
        if kind == "pronoun":
            return self._pronoun(case)
        if kind == "person":
            return self._nominal("person", depth, case)
        if kind == "firm":
            return self._firm(), "3Sing"
        who = self._person()
        if depth > 1 and self._chance(0.2):  # at the beginning only: no comma before a stop
            what = self._np([("det", article("a"))], noun(self._word(NOUNS["person"])))
            comma = ("punct", punctuation(","))
            who = _phrase("NP", who, comma, ("appos", what), comma)
        return who, "3Sing"

    def _nominal(self, kind: str, depth: int, case: str = "Nom") -> Nominal:
        """Something of a kind, perhaps with another one, with a clause or with its subject."""
        if kind == "person" and self._chance(0.35):
            return self._pronoun(case) if self._chance(0.4) else (self._person(), "3Sing")
        plural, word = self._chance(0.3), self._word(NOUNS[kind])
        some: list[Dependent] = [("amod", self._adjective(0.7))]
        phrase = self._np([self._determiner(plural), *some * self._chance(0.3)], noun(word, plural))
        agree = "Plur" if plural else "3Sing"
        if depth < 1:
            return phrase, agree
        if self._chance(0.12):
            others = [other for other in NOUNS[kind].split() if other != word]
            other = self._np([("det", article("the"))], noun(self._one_of(others)))
            return _phrase("NP", phrase, ("cc", conjunction("and")), ("conj", other)), "Plur"
        if self._chance(0.15):
            phrase = _phrase("NP", phrase, ("acl:relcl", self._relative(kind, agree)))
        elif kind == "work" and self._chance(0.25):
            what = self._town() if self._chance(0.3) else self._agent(0, "Acc")[0]
            phrase = _phrase("NP", phrase, ("nmod", _prepositional(self._word("of about"), what)))
        return phrase, agree

    def _relative(self, kind: str, agree: str) -> Phrase:
        """A clause in which the thing acts, is somehow, or is acted upon."""
        form, tag = ("who", "WP") if kind == "person" else ("that", "WDT")
        wh = _phrase("WHNP", Leaf(form, form, "PRON", tag, "PronType=Rel"))
        if kind == "person" and self._chance(0.5):
            return _phrase("SBAR", ("nsubj", wh), _phrase("S", self._acting("does", agree, 0)))
        if self._chance(0.4):
            return _phrase("SBAR", ("nsubj", wh), _phrase("S", self._being(agree)))
        subject, own = self._agent(0)
        fit = [verb for verb in (*EVENTS, *STATES) if kind in verb.objects.split()]
        verb = self._group(self._one_of(fit), own, ())
        return _phrase("SBAR", ("obj", wh), _phrase("S", ("nsubj", subject), verb))

    def _determiner(self, plural: bool) -> Dependent:
        kind = self._one_of(("the",) * 6 + ("a", "a", "this", "own", "own", "'s", "no"))
        number = "Plur" if plural else "Sing"
        if kind == "own":
            _, form, who = PRONOUNS[self._one_of(tuple(PRONOUNS))]
            feats = f"Number={who[1:]}|Person={who[0]}|Poss=Yes|PronType=Prs"
            return "nmod:poss", Leaf(form, form, "PRON", "PRP$", feats)
        if kind == "'s":
            case = ("case", Leaf("'s", "'s", "PART", "POS"))
            return "nmod:poss", _phrase("NP", self._person(), case)
        if kind == "no":
            return "det", Leaf("no", "no", "DET", "DT", "PronType=Neg", turn="not")
        if kind == "this":
            lemma = self._one_of(("this", "that"))
            form = {"this": "these", "that": "those"}[lemma] if plural else lemma
            return "det", Leaf(form, lemma, "DET", "DT", f"Number={number}|PronType=Dem")
        if kind == "a" and plural:
            word = self._word("two three seven")
            return "nummod", Leaf(word, word, "NUM", "CD", "NumType=Card")
        return "det", article(kind)

    def _pronoun(self, case: str) -> Nominal:
        word = self._one_of(tuple(PRONOUNS))
        other, _, who = PRONOUNS[word]
        feats = f"Case={case}|Number={who[1:]}|Person={who[0]}|PronType=Prs"
        form = word if case == "Nom" else other
        agree = "Plur" if who.endswith("Plur") else who
        return self._np([], Leaf(form, word, "PRON", "PRP", feats)), agree

    def _person(self) -> Phrase:
        first, last = (
            proper_noun(self._word(FIRST_NAMES)),
            proper_noun(self._known(LAST_NAMES, FAMILY_ENDINGS)),
        )
        kind = self._one_of(("first", "both", "both", "last"))
        if kind == "both":
            return Phrase("NP", ((HEAD, first), ("flat", last)), "PER")
        return Phrase("NP", ((HEAD, first if kind == "first" else last),), "PER")

    def _town(self) -> Phrase:
        *before, last = (proper_noun(word) for word in self._known(TOWNS, TOWN_ENDINGS).split("_"))
        return Phrase("NP", (*(("compound", word) for word in before), (HEAD, last)), "LOC")

    def _firm(self) -> Phrase:
        if self._chance(0.25):
            of = _prepositional("of", replace(self._town(), entity=""))
            university = self._np([], proper_noun("University"))
            return Phrase("NP", ((HEAD, university), ("nmod", of)), "ORG")
        first = self._known(
            *self._one_of(((TOWNS, TOWN_ENDINGS), (LAST_NAMES, FAMILY_ENDINGS)))
        ).split("_")[-1]
        return Phrase(
            "NP", (("compound", proper_noun(first)), (HEAD, proper_noun(self._word(FIRMS)))), "ORG"
        )

    def _known(self, names: str, endings: str) -> str:
        """A name of the list, or one that is put together."""
        put = self._word(NAME_STEMS) + self._word(endings)
        return self._word(names) if self._chance(0.5) else put

    def _np(self, before: Sequence[Dependent], head: Leaf) -> Phrase:
        return _phrase("NP", *before, head)

    def _one_of(self, options: Sequence[Option]) -> Option:
        return options[int(self._random.random() * len(options))]

    def _word(self, words: str) -> str:
        return self._one_of(words.split())

    def _chance(self, chance: float) -> bool:
        return self._random.random() < chance


def _phrase(label: str, *parts: Part | Dependent) -> Phrase:
    """A constituent whose head is the part that comes without a relation."""
    return Phrase(label, tuple(p if isinstance(p, tuple) else (HEAD, p) for p in parts))


def _prepositional(preposition: str, thing: Phrase) -> Phrase:
    case = ("case", Leaf(preposition, preposition, "ADP", "IN"))
    return _phrase("PP", case, thing)


def _is_pronoun(thing: Phrase) -> bool:
    last = thing.parts[-1][1]
    return isinstance(last, Leaf) and last.upos == "PRON"
