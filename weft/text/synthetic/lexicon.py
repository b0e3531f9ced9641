"""The lexicon of the synthetic treebank: forms, tags, features and selectional preferences.

Many words are ambiguous (film, play, cook, report, that, her, read; Florence, Jordan, Press).
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Leaf:
    """A word with its lemma, tags and features."""

    form: str
    lemma: str
    upos: str
    xpos: str
    feats: str = "_"
    sentiment: int = 0  # -2 awful … 2 superb
    polarity_shift: str = ""  # "not", "more", "less", "but" or "although"


@dataclass(frozen=True)
class Verb:
    """The forms of a verb, the kinds of its objects, and its instruments."""

    forms: str  # base, third person, past, participle, -ing
    objects: str = ""
    tools: str = ""
    sentiment: int = 0

    def finite(self, tense: str, agree: str, upos: str = "VERB") -> Leaf:
        """Return the present or past form; agree is "1Sing", "3Sing" or "Plur"."""
        base, third, past, *_ = self.forms.split()
        if tense == "Past":
            feats = "Mood=Ind|Tense=Past|VerbForm=Fin"
            return Leaf(past, base, upos, "VBD", feats, self.sentiment)
        feats = f"Mood=Ind|Number={agree[-4:]}|Person={agree[0] if agree != 'Plur' else '3'}"
        feats += "|Tense=Pres|VerbForm=Fin"
        form, tag = (third, "VBZ") if agree == "3Sing" else (base, "VBP")
        return Leaf(form, base, upos, tag, feats, self.sentiment)

    def bare(self, index: int, tag: str, feats: str) -> Leaf:
        """Return one of the non-finite forms, by its index."""
        forms = self.forms.split()
        return Leaf(forms[index], forms[0], "VERB", tag, feats, self.sentiment)

    @property
    def base(self) -> Leaf:
        return self.bare(0, "VB", "VerbForm=Inf")

    @property
    def participle(self) -> Leaf:
        return self.bare(3, "VBN", "Tense=Past|VerbForm=Part")

    @property
    def passive(self) -> Leaf:
        return replace(self.participle, feats="Tense=Past|VerbForm=Part|Voice=Pass")

    @property
    def ing(self) -> Leaf:
        return self.bare(4, "VBG", "Tense=Pres|VerbForm=Part")


NOUNS = {
    "person": "reporter teacher painter singer doctor farmer lawyer guide chef critic driver cook "
    "neighbour baker nurse actor tourist judge",
    "work": "film book song play story report show letter poem novel",
    "food": "soup salad cake curry pie stew dish",
    "building": "house museum hotel café station bridge school library theatre office",
}
ATTRIBUTES = {  # attach to the noun, not the verb
    "person": "camera phone beard umbrella hat telescope brush knife laptop map",
    "work": "map picture chorus secret",
    "food": "cream cheese basil lemon fork",
    "building": "garden balcony tower roof telescope",
}
MASS_NOUNS = ("cream", "cheese", "basil", "lemon")
ANY = "person work food building"
EVENTS = (
    Verb("write writes wrote written writing", "work", "pen laptop"),
    Verb("read reads read read reading", "work", "lamp"),
    Verb("film films filmed filmed filming", "person building", "camera phone"),
    Verb("see sees saw seen seeing", "person building", "telescope"),
    Verb("paint paints painted painted painting", "person building", "brush"),
    Verb("eat eats ate eaten eating", "food", "spoon fork"),
    Verb("cut cuts cut cut cutting", "food", "knife"),
    Verb("cook cooks cooked cooked cooking", "food", "pan"),
    Verb("call calls called called calling", "person", "phone"),
    Verb("show shows showed shown showing", "work building", "map"),
    Verb("meet meets met met meeting", "person"),
    Verb("visit visits visited visited visiting", "person building"),
    Verb("guide guides guided guided guiding", "person", "map"),
    Verb("book books booked booked booking", "building", "phone"),
    Verb("play plays played played playing", "work"),
    Verb("find finds found found finding", ANY),
    Verb("praise praises praised praised praising", ANY, sentiment=1),
    Verb("spoil spoils spoiled spoiled spoiling", "work food", sentiment=-1),
    Verb("ruin ruins ruined ruined ruining", ANY, sentiment=-2),
    Verb("rescue rescues rescued rescued rescuing", "person work", sentiment=1),
)
STATES = (
    Verb("love loves loved loved loving", ANY, sentiment=2),
    Verb("like likes liked liked liking", ANY, sentiment=1),
    Verb("enjoy enjoys enjoyed enjoyed enjoying", "work food", sentiment=1),
    Verb("admire admires admired admired admiring", ANY, sentiment=1),
    Verb("hate hates hated hated hating", ANY, sentiment=-2),
    Verb("dislike dislikes disliked disliked disliking", ANY, sentiment=-1),
    Verb("know knows knew known knowing", "person work building"),
    Verb("own owns owned owned owning", "building"),
)
INTRANSITIVE = (
    Verb("arrive arrives arrived arrived arriving"),
    Verb("sleep sleeps slept slept sleeping"),
    Verb("wait waits waited waited waiting"),
    Verb("sing sings sang sung singing"),
    Verb("work works worked worked working"),
    Verb("cook cooks cooked cooked cooking"),
)
SPEECH_VERBS = (
    Verb("say says said said saying"),
    Verb("think thinks thought thought thinking"),
    Verb("know knows knew known knowing"),
    Verb("report reports reported reported reporting"),
)
CONTROL_VERBS = (
    Verb("want wants wanted wanted wanting"),
    Verb("try tries tried tried trying"),
    Verb("plan plans planned planned planning"),
    Verb("refuse refuses refused refused refusing"),
)
DO, HAVE = Verb("do does did done doing"), Verb("have has had had having")

SENTIMENTS = (  # sentiment, adjectives, nouns
    (2, "superb wonderful brilliant delightful", "masterpiece triumph delight"),
    (1, "good charming fresh clever pleasant warm", "success bargain"),
    (-1, "dull stale clumsy cold noisy slow", "mess failure"),
    (-2, "awful dreadful terrible horrible", "disaster insult"),
)
NEUTRAL_ADJECTIVES = "old new small local red tall young famous Italian quiet long French"
DEGREES = (("very", "more"), ("really", "more"), ("fairly", "less"), ("rather", "less"))
FIRST_NAMES = (
    "Ana Bruno Clara David Elena Felix Greta Hugo Irene Jonas Karin Louis Maria Nora Oscar Paula "
    "Ruth Simon Tara Victor Florence Jordan Sydney Chelsea"
)
LAST_NAMES = (
    "Lopez Keller Novak Rossi Haddad Silva Berg Moreau Tanaka Walsh Costa Fischer Okafor Lindgren "
    "Marsh Petrov Duval Ortiz Banks Press"
)
TOWNS = (
    "Lisbon Vienna Oslo Madrid Lyon Porto Prague Bergen Nairobi Kyoto Florence Jordan Sydney "
    "Chelsea New_Haven Port_Louis San_Marino Cape_Town"
)
# Open-class names; those in -ton, -ford and -ley may be people or towns.
NAME_STEMS = (
    "Ash Hal Nor Wes Mar Kel Lin Brad Thorn Stan Mil Whit Fen Cal Ald Bram Crow Dun Ever Glen "
    "Hart Inger Jar Lang Mor Oak Pem Rad Sel Tor Ul Wal"
)
FAMILY_ENDINGS, TOWN_ENDINGS = "son man berg gren ton ford ley", "ham bury port stead ton ford ley"
FIRMS = "Bank Press Motors Airlines Foods Radio"
TIMES = (("on", "Monday Tuesday Friday Sunday"), ("in", "March May June August October"))
PRONOUNS = {  # as object, as owner, person and number
    "I": ("me", "my", "1Sing"), "we": ("us", "our", "1Plur"), "he": ("him", "his", "3Sing"),
    "she": ("her", "her", "3Sing"), "they": ("them", "their", "3Plur"),
}  # fmt: skip
SUBORDINATORS = (("although", "although"), ("while", "although"), ("because", ""), ("when", ""))
BE = {"1Sing": ("am", "was"), "3Sing": ("is", "was"), "Plur": ("are", "were")}


def noun(word: str, plural: bool = False, sentiment: int = 0) -> Leaf:
    ending = "es" if word.endswith(("sh", "ss")) else "s"
    form = word if not plural else word[:-1] + "ies" if word.endswith("y") else word + ending
    number = "Number=Plur" if plural else "Number=Sing"
    return Leaf(form, word, "NOUN", "NNS" if plural else "NN", number, sentiment)


def proper_noun(word: str) -> Leaf:
    return Leaf(word, word, "PROPN", "NNP", "Number=Sing")


def adjective(word: str, sentiment: int = 0) -> Leaf:
    return Leaf(word, word, "ADJ", "JJ", "Degree=Pos", sentiment)


def adverb(word: str, polarity_shift: str = "") -> Leaf:
    return Leaf(word, word, "ADV", "RB", polarity_shift=polarity_shift)


def article(word: str) -> Leaf:
    return Leaf(word, word, "DET", "DT", f"Definite={'Ind' if word == 'a' else 'Def'}|PronType=Art")


def be(tense: str, agree: str) -> Leaf:
    form = BE[agree][tense == "Past"]
    return replace(Verb(f"be {form} {form}").finite(tense, agree, "AUX"), form=form)


def conjunction(word: str) -> Leaf:
    return Leaf(word, word, "CCONJ", "CC", polarity_shift="but" if word == "but" else "")


def punctuation(sign: str) -> Leaf:
    return Leaf(sign, sign, "PUNCT", sign if sign == "," else ".")
