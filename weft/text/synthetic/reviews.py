"""A synthetic corpus of reviews whose labels depend on word order, the same on every machine.

Most sentences come as twins: the same words in another order, with the opposite label. A bag of
words predicts the same for both twins, so it is wrong on one of them; its best accuracy can be
counted (`bag_of_words_ceiling`). Some simple negations ("never, at any point, boring") are beyond
a sum of word weights too; the plain rest is easy for every model.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from weft.text.example import Example
from weft.text.write import write_generated

Option = TypeVar("Option")

POSITIVE, NEGATIVE = "positive", "negative"
SIZE = 6750
PLAIN_FRACTION, NEGATED_FRACTION = (
    0.36,
    0.09,
)  # easy and simply negated; the rest is twins

# domain: (things, their aspects, good words, bad words, this one, another one)
_DOMAINS: tuple[tuple[str, str, str, str, str, str], ...] = (
    (
        "film|movie|sequel|remake|comedy|thriller|drama|documentary|series",
        "plot|story|acting|dialogue|ending|script|soundtrack|pacing|camera work|cast|humour",
        "gripping|moving|clever|funny|charming|brilliant|superb|wonderful|excellent|lovely",
        "boring|dull|clumsy|tedious|shallow|silly|awful|dreadful|poor|disappointing",
        "this film|this version|this season|this story",
        "the last one|the first one|the book|the old series",
    ),
    (
        "meal|dinner|restaurant|lunch|menu|café|breakfast|buffet|bistro",
        "soup|dessert|service|bread|fish|coffee|sauce|salad|wine list|pasta|curry",
        "delicious|fresh|tasty|generous|pleasant|brilliant|superb|wonderful|excellent|lovely",
        "bland|stale|greasy|cold|tasteless|overpriced|awful|dreadful|poor|disappointing",
        "this place|this kitchen|this menu|this café",
        "the place next door|the old chef|the one in town|the station bar",
    ),
    (
        "phone|laptop|camera|kettle|vacuum|printer|headset|backpack|watch",
        "battery|screen|keyboard|manual|design|lens|strap|sound|charger|software|warranty",
        "sturdy|reliable|handy|elegant|clever|brilliant|superb|wonderful|excellent|lovely",
        "flimsy|useless|noisy|clumsy|faulty|overpriced|awful|dreadful|poor|disappointing",
        "this model|this brand|this device|this version",
        "the old one|the one i had before|the cheaper one|the one at work",
    ),
)

_DEGREES = [
    "very",
    "really",
    "quite",
    "rather",
    "truly",
    "utterly",
    "so",
    "fairly",
    "surprisingly",
    "remarkably",
]
_VERBS = ["was", "is", "seemed", "felt", "looked"]
_BETTER = ["better", "more enjoyable", "more convincing", "nicer"]
_WORSE = ["worse", "less enjoyable", "less convincing", "poorer"]
_NOT = ["not", "never", "hardly", "certainly not", "by no means", "far from", "anything but"]
# Fillers between a word and its target; up to five words.
_GAPS = (
    *("", "", "", "", "", "", "actually", "really", "in fact", "to me", "somehow", "for once"),
    *(", to be honest ,", ", in my view ,", ", at any point ,", ", on the whole ,"),
    *(", as far as i know ,", ", at least for me ,", ", at the end of the day ,"),
)
_OPENERS = (
    *("", "", "", "", "", "well ,", "honestly ,", "look ,", "i must admit ,", "to my surprise ,"),
    *("we went on a tuesday ;", "my sister chose it ;", "it was raining ;", "i paid full price ;"),
    *("after two weeks ,", "a friend told me about it ;", "for the record ,", "in short ,"),
)
_CLOSERS = (
    *("", "", "", "", "", "and my brother agreed", "and that is that", "as we all noticed"),
    *("says my neighbour", "if you ask me", "and i went twice", "and we stayed for two hours"),
    *("and the others said so too", "just so you know", "so there you have it"),
)

# Each is positive as it stands, with A a good word and B a bad one; swapping them gives the twin.
_TWINS = (
    "the {x} {v} {B} , but the {y} {v} {A}",
    "the {x} {v} {B} {gap} , but the {y} {v} {A}",
    "although the {x} {v} {B} , the {y} {v} {A}",
    "the {y} {v} {A} , although the {x} {v} {B}",
    "the {x} {v} not {gap} {B} , it {v} {A}",
    "the {x} {v} {A} , not {gap} {B}",
    "the {x} {v} never {gap} {B} and always {A}",
    "the {x} {v} anything but {B} ; {A} is the word",
    "far from {B} {gap} , the {x} {v} {A}",
    "nobody could {gap} call the {x} {B} ; i call it {A}",
    "it would be wrong to say the {x} {v} not {A} , or to call it {B}",
    "i expected {aB} {t} and got {aA} one",
    "what began as {aB} {t} turned {gap} into {aA} one",
    "the {x} went from {B} to {A} {gap}",
    "the {x} {v} {A} rather than {B}",
    "the {x} {v} more {gap} {A} than {B}",
    "the {x} {v} less {gap} {B} than {A}",
    "the {t} {v} too {A} to be {gap} {B}",
    "it managed to be {A} without {gap} being {B}",
    "the critics called the {t} {B} ; i call it {A}",
    "people say the {x} is {B} , yet i found it {gap} {A}",
    "not only was the {x} {A} , nothing about the {y} was {gap} {B}",
)
_COMPARED = (
    "{A} is {gap} {better} than {B}",
    "{B} is {gap} {worse} than {A}",
    "{A} is {better} {gap} than {B}",
    "{A} beats {B} {gap}",
    "i would take {A} over {B} {gap}",
    "{B} cannot {gap} compete with {A}",
    "i left {B} for {A} and never looked back",
)
_PLAIN = (
    "the {x} {v} {G}",
    "the {x} {v} {gap} {G}",
    "the {x} {v} {G} and {H}",
    "the {x} {v} {G} and the {y} {v} {H}",
    "what {aG} {t}",
    "{aG} {t} with {aH} {x}",
    "i found the {x} {gap} {G}",
    "it is {aG} {t} , and the {x} {v} {H}",
)
_NEGATED = (
    "the {x} {v} {no} {G}",
    "the {x} {v} {no} {gap} {G}",
    "i did not find the {x} {gap} {G}",
    "nobody would {gap} call it {aG} {t}",
    "nothing about the {x} {v} {gap} {G}",
)


def generate_reviews(seed: int = 0, size: int = SIZE) -> dict[str, list[Example]]:
    """Generate `size` reviews in train, dev and test (6 : 1 : 2), without common sentences."""
    writer = _ReviewWriter(seed)
    sizes = {"train": size * 6 // 9, "dev": size // 9, "test": size - size * 6 // 9 - size // 9}
    return {split: writer.split(split, count) for split, count in sizes.items()}


def write_reviews(folder: Path, parts: dict[str, list[Example]] | None = None) -> list[Path]:
    """Write the reviews of each split, and pairs of them that agree or differ."""
    files = {}
    for split, reviews in (parts or generate_reviews()).items():
        rows = [f"{one.text}\t{one.label}\t{one.id}\n" for one in reviews]
        files[f"{split}.tsv"] = "".join(["text\tlabel\tid\n", *rows]).encode()
        files[f"{split}-pairs.tsv"] = "".join(_pair_rows(reviews, split)).encode()
    return write_generated(folder, files)


def _pair_rows(reviews: Sequence[Example], split: str) -> Iterator[str]:
    draw = random.Random(f"pairs {split}")
    yield "sentence1\tsentence2\tlabel\n"
    for one in reviews:
        # Only `random()` is guaranteed to be the same in every version of Python.
        other = reviews[int(draw.random() * len(reviews))]
        label = "agree" if one.label == other.label else "differ"
        yield f"{one.text}\t{other.text}\t{label}\n"


def find_twins(examples: Iterable[Example]) -> list[tuple[Example, Example]]:
    """Return the (positive, negative) pairs of exactly the same words."""
    bags: dict[tuple[str, ...], dict[str, list[Example]]] = defaultdict(lambda: defaultdict(list))
    for example in examples:
        bags[tuple(sorted(example.text.split()))][str(example.label)].append(example)
    pairs = []
    for by_label in bags.values():
        pairs += list(zip(by_label[POSITIVE], by_label[NEGATIVE], strict=False))
    return pairs


def bag_of_words_ceiling(examples: Sequence[Example]) -> float:
    """Return the best accuracy of any model that sees only word counts."""
    bags: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for example in examples:
        bags[tuple(sorted(example.text.split()))][str(example.label)] += 1
    return sum(max(counts.values()) for counts in bags.values()) / len(examples)


class _ReviewWriter:
    """Generates sentences without repeating any."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._written: set[str] = set()

    def split(self, name: str, count: int) -> list[Example]:
        rows: list[tuple[str, str]] = []
        fractions = (("plain", PLAIN_FRACTION), ("negated", NEGATED_FRACTION))
        for kind, fraction in fractions:
            until = len(rows) + round(count * fraction / 2) * 2
            while len(rows) < until:
                rows += self._fresh(self._single(kind == "negated"))
        while len(rows) < count:
            pair = self._fresh(self._pair())
            rows += pair[: count - len(rows)]
        self._shuffle(rows)
        return [
            Example(text, label, f"{name}-{number}") for number, (text, label) in enumerate(rows, 1)
        ]

    def _fresh(self, pair: list[tuple[str, str]]) -> list[tuple[str, str]]:
        texts = {text for text, _ in pair}
        if len(texts) < len(pair) or texts & self._written:
            return []
        self._written |= texts
        return pair

    def _pair(self) -> list[tuple[str, str]]:
        """Return the same words in two orders, with opposite labels."""
        domain = self._choose(_DOMAINS)
        if self._random.random() < 0.15:
            good, bad = self._choose(domain[4].split("|")), self._choose(domain[5].split("|"))
            pattern = self._choose(_COMPARED)
        else:
            good, bad = self._word(domain[2]), self._word(domain[3])
            pattern = self._choose(_TWINS)
        slots = self._slots(domain)
        pattern = self._add_frame(pattern)
        return [
            (_fill(pattern, {**slots, "A": good, "B": bad}), POSITIVE),
            (_fill(pattern, {**slots, "A": bad, "B": good}), NEGATIVE),
        ]

    def _single(self, negated: bool) -> list[tuple[str, str]]:
        """Return a pattern with good words and once more with bad ones."""
        domain = self._choose(_DOMAINS)
        pattern = self._add_frame(self._choose(_NEGATED if negated else _PLAIN))
        slots = self._slots(domain)
        good = {"G": self._word(domain[2]), "H": self._word(domain[2])}
        bad = {"G": self._word(domain[3]), "H": self._word(domain[3])}
        labels = (NEGATIVE, POSITIVE) if negated else (POSITIVE, NEGATIVE)
        return [
            (_fill(pattern, {**slots, **words}), label)
            for words, label in zip((good, bad), labels, strict=True)
        ]

    def _slots(self, domain: tuple[str, ...]) -> dict[str, str]:
        sides = domain[1].split("|")
        side = self._choose(sides)
        return {
            "t": self._choose(domain[0].split("|")),
            "x": side,
            "y": self._choose([other for other in sides if other != side]),
            "v": self._choose(_VERBS),
            "no": self._choose(_NOT),
            "gap": self._choose(_GAPS),
            "better": self._choose(_BETTER),
            "worse": self._choose(_WORSE),
        }

    def _add_frame(self, pattern: str) -> str:
        return f"{self._choose(_OPENERS)} {pattern} {self._choose(_CLOSERS)} ."

    def _word(self, words: str) -> str:
        word = self._choose(words.split("|"))
        return f"{self._choose(_DEGREES)} {word}" if self._random.random() < 0.25 else word

    # Only `random()` is guaranteed to be the same in every version of Python.
    def _choose(self, options: Sequence[Option]) -> Option:
        return options[int(self._random.random() * len(options))]

    def _shuffle(self, rows: list[tuple[str, str]]) -> None:
        for last in range(len(rows) - 1, 0, -1):
            other = int(self._random.random() * (last + 1))
            rows[last], rows[other] = rows[other], rows[last]


def _fill(pattern: str, slots: dict[str, str]) -> str:
    with_articles = {f"a{slot}": _with_article(word) for slot, word in slots.items()}
    text = " ".join(pattern.format(**slots, **with_articles).split())
    # A gap has its own commas; at the edge of a clause they would be doubled.
    return text.replace(", , ", ", ").replace(", ; ", "; ").replace(", .", ".")


def _with_article(phrase: str) -> str:
    return f"{'an' if phrase[:1] in 'aeiou' else 'a'} {phrase}"
