"""The senses of predicates: which ones a word can have, as seen in training.

A sense is a lemma and a number, such as run.02. Plain text has no lemmas, so they are looked up by
the form of a word; those of unseen forms follow the endings of the seen ones.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

FIRST_SENSE = "01"  # of a lemma that training never saw
MAX_CONTEXT = 3  # letters before an ending that a rule may depend on
MIN_STEM = 2  # letters that an ending leaves


def split_sense(sense: str) -> tuple[str, str]:
    """Return the lemma and the number of a sense; CoNLL-2005 has lemmas alone."""
    lemma, dot, number = sense.rpartition(".")
    return (lemma, number) if dot and lemma else (sense, "")


@dataclass(frozen=True)
class SenseInventory:
    """The senses of training, and the lemmas that each form was a predicate of."""

    senses: tuple[str, ...]
    forms: tuple[tuple[str, ...], ...]  # a form in lower case, then its lemmas, the usual one first

    @classmethod
    def learn(cls, predicates: Iterable[tuple[str, str]]) -> "SenseInventory":
        """Return the inventory of words and their senses."""
        seen: Counter[str] = Counter()
        lemmas: dict[str, Counter[str]] = {}
        for word, sense in predicates:
            seen[sense] += 1
            lemmas.setdefault(word.lower(), Counter())[split_sense(sense)[0]] += 1
        forms = (
            (form, *sorted(own, key=lambda lemma: (-own[lemma], lemma)))
            for form, own in sorted(lemmas.items())
        )
        return cls(tuple(sorted(seen)), tuple(forms))

    @cached_property
    def by_lemma(self) -> dict[str, tuple[int, ...]]:
        """The numbers of the senses of each lemma."""
        out: dict[str, list[int]] = {}
        for number, sense in enumerate(self.senses):
            out.setdefault(split_sense(sense)[0], []).append(number)
        return {lemma: tuple(own) for lemma, own in out.items()}

    @cached_property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The sets of lemmas that a form can have; the first is empty, of unknown words."""
        alone = {(lemma,) for lemma in self.by_lemma}
        together = {lemmas for _, *rest in self.forms if (lemmas := self._known(rest))}
        return ((), *sorted(alone | together))

    def candidates(self, group: int) -> tuple[int, ...]:
        """Return the numbers of the senses that words of a group can have."""
        return tuple(number for lemma in self.groups[group] for number in self.by_lemma[lemma])

    def group_of(self, word: str) -> int:
        """Return the number of the lemmas of a word; 0 if they are unknown."""
        form = word.lower()
        return self._group_by_form.get(form, self._group_numbers.get(self._known([form]), 0)) or (
            self._group_numbers.get(self._known([self.lemmatise(form)]), 0)
        )

    def lemmatise(self, word: str) -> str:
        """Return the lemma of a form: one that was seen, or by the endings of those seen."""
        form = word.lower()
        if form in self._lemma_by_form:
            return self._lemma_by_form[form]
        guesses = list(self._apply_rules(form))
        return next((one for one in guesses if one in self.by_lemma), (guesses or [form])[0])

    def default_sense(self, word: str) -> str:
        """Return the sense of a word whose lemma training never saw: its first."""
        number = f".{FIRST_SENSE}" if any(split_sense(sense)[1] for sense in self.senses) else ""
        return f"{self.lemmatise(word)}{number}"

    def _apply_rules(self, form: str) -> Iterable[str]:
        """Yield what the endings make of a form, the most specific rule first."""
        seen: set[str] = set()
        for start in range(MIN_STEM - 1, len(form) + 1):
            for ending in self._rules.get(form[start:], ()):
                lemma = form[:start] + ending
                if lemma not in seen:
                    seen.add(lemma)
                    yield lemma

    @cached_property
    def _rules(self) -> dict[str, tuple[str, ...]]:
        """The endings of lemmas by those of forms, the most frequent first."""
        counts: dict[str, Counter[str]] = {}
        for form, lemma in self._lemma_by_form.items():
            lemma = lemma.partition("_")[0]  # give_up
            same = next(
                (i for i, (a, b) in enumerate(zip(form, lemma, strict=False)) if a != b),
                min(len(form), len(lemma)),
            )
            for start in range(same, max(same - MAX_CONTEXT, MIN_STEM) - 1, -1):
                counts.setdefault(form[start:], Counter())[lemma[start:]] += 1
        return {
            ending: tuple(sorted(own, key=lambda one: (-own[one], one)))
            for ending, own in counts.items()
        }

    @cached_property
    def _lemma_by_form(self) -> dict[str, str]:
        return {form: lemmas[0] for form, *lemmas in self.forms if lemmas}

    @cached_property
    def _group_numbers(self) -> dict[tuple[str, ...], int]:
        return {lemmas: number for number, lemmas in enumerate(self.groups)}

    @cached_property
    def _group_by_form(self) -> dict[str, int]:
        return {form: self._group_numbers.get(self._known(rest), 0) for form, *rest in self.forms}

    def _known(self, lemmas: Sequence[str]) -> tuple[str, ...]:
        return tuple(lemma for lemma in lemmas if lemma in self.by_lemma)
