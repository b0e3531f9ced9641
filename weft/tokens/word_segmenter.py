"""A word segmenter learned from a training file, so that plain text is split the same way.

A piece is what stands between spaces; it is cut by itself, so each is worked out only once. At each
place inside a piece what stands around it is looked up among rules: those letters, their kinds,
the rest of the piece. Of the rules that know the place the one that was most often right decides,
as in the decision lists of Yarowsky (1994); where none does, the regular expression of
pretokenizer.py. Pieces of the training file that the rules would cut wrongly are remembered.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from weft import jsonio
from weft.errors import UserError
from weft.storage import write_text
from weft.text.example import Example
from weft.tokens.pretokenizer import Offsets, word_spans

Boundaries = tuple[int, ...]  # where the words of a piece begin, the first one left out
ChunkView = tuple[str, str, str, str]  # a piece as rules see it

# The separators of files that Python takes for spaces are words of the regular expression.
NON_SPACE_RUN = re.compile(r"[\S\x1c-\x1f]+")
MAX_EDGE_LETTERS = 6  # letters to a piece's beginning or end that a rule holds, at most
SMOOTHING = 0.1  # a rule seen once, and right, counts as right 11 times of 12
MAX_CACHED_LETTERS = 64  # letters of a piece that is remembered
MAX_CACHED_CHUNKS = 200_000  # pieces whose cuts are held in memory
WORD_KINDS = set("Aa0")  # kinds of letters; those of marks are themselves


class WordSegmenter:
    """Rules for the places inside a piece, and the pieces that they do not hold for."""

    def __init__(self, rules: "DecisionList", pieces: Mapping[str, Boundaries]):
        self.rules = rules
        self.exceptions = pieces
        self._cache = dict(pieces)

    @classmethod
    def train(cls, examples: Iterable[Example]) -> "WordSegmenter | None":
        """Train on examples with words and offsets; None if the regular expression suffices."""
        training_examples = SegmenterTrainer()
        for _ in training_examples.observe(examples):
            pass
        return training_examples.build()

    def words_of(self, text: str) -> tuple[tuple[str, ...], Offsets]:
        """The words of a text, and (start, end) of each."""
        words: list[str] = []
        offsets: list[tuple[int, int]] = []
        for match in NON_SPACE_RUN.finditer(text):
            piece = match.group()
            cut = self._cache.get(piece)
            if cut is None:
                cut = self._apply_rules(piece)
            if not cut:
                words.append(piece)
                offsets.append(match.span())
                continue
            first = match.start()
            for start, end in zip((0, *cut), (*cut, len(piece)), strict=True):
                words.append(piece[start:end])
                offsets.append((first + start, first + end))
        return tuple(words), tuple(offsets)

    def _apply_rules(self, piece: str) -> Boundaries:
        small = piece.lower()  # "Cannot" is cut as "cannot" is
        boundaries = self.exceptions.get(small) if len(small) == len(piece) else None
        if boundaries is None:
            boundaries = self.rules.cut(piece)
        if len(piece) <= MAX_CACHED_LETTERS:
            if len(self._cache) >= MAX_CACHED_CHUNKS:
                self._cache = dict(self.exceptions)
            self._cache[piece] = boundaries
        return boundaries

    def to_json(self) -> str:
        """The rules in two groups, and the pieces with a space at each cut."""
        rules = sorted(self.rules.confidence.items())
        data = {
            "cut": {name: sure for name, sure in rules if sure > 0},
            "keep": {name: -sure for name, sure in rules if sure < 0},
            "pieces": [_insert_spaces(*one) for one in sorted(self.exceptions.items())],
        }
        return json.dumps(data, ensure_ascii=False, indent=0) + "\n"

    @classmethod
    def from_json(cls, text: str, where: str = "cuts") -> "WordSegmenter":
        """Restore what `to_json` wrote."""
        try:
            data = jsonio.parse(text, where)
            rules = {str(name): float(sure) for name, sure in data["cut"].items()}
            rules |= {str(name): -float(sure) for name, sure in data["keep"].items()}
            built = DecisionList(rules)
            pieces = dict(_remove_spaces(one) for one in data["pieces"])
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise UserError(
                f"{where}: not how a model cuts words, or damaged ({error!r:.80}). "
                "Restore it or train again."
            ) from None
        return cls(built, pieces)

    @classmethod
    def load(cls, path: Path) -> "WordSegmenter | None":
        """Load what `save` wrote, or None if there is no file."""
        try:
            return cls.from_json(path.read_text("utf-8"), str(path))
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{path}: cannot read how words are cut: {error}.") from None


def save(cuts: WordSegmenter | None, path: Path) -> None:
    """Write what was learned as one JSON file, or see to it that there is none."""
    if cuts is None:
        path.unlink(missing_ok=True)
    else:
        write_text(path, cuts.to_json())


class SegmenterTrainer:
    """Counts of how each whitespace chunk is split in the training examples.

    Words that share a place, as those of a multi-word token do, are cut apart where they spell it
    out: "don't" as "do" and "n't". Where they do not, as French "du" for "de" and "le", it stays
    one word: there are no cuts in a text that would make the others.
    """

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, Boundaries]] = Counter()

    def observe(self, examples: Iterable[Example]) -> Iterator[Example]:
        """The same examples, seen on the way."""
        for example in examples:
            if example.places:
                self.counts.update(_chunks(example))
            yield example

    def build(self) -> WordSegmenter | None:
        """Rules and pieces; None where every piece is as the regular expression has it.

        Words that were joined by spaces to make a text show no cut, so they teach none.
        """
        usual: dict[str, Boundaries] = {}
        for (piece, cut), _ in sorted(self.counts.items(), key=lambda item: (-item[1], item[0])):
            usual.setdefault(piece, cut)
        if not any(usual.values()) or all(_regex_boundaries(p) == cut for p, cut in usual.items()):
            return None
        rules = DecisionList(_select_rules(_score_rules(usual), usual))
        wrong = {
            p: c for p, c in usual.items() if len(p) <= MAX_CACHED_LETTERS and rules.cut(p) != c
        }
        return WordSegmenter(rules, wrong)


def split_shared_offsets(example: Example) -> list[tuple[int, int]]:
    """A place for each word; words that share one have each its own where they spell it out."""
    out: list[tuple[int, int]] = []
    for place, sharing in groupby(
        zip(example.places, example.words, strict=True), key=lambda pair: pair[0]
    ):
        words = [word for _, word in sharing]
        if "".join(words) != example.text[slice(*place)]:
            out += [place] * len(words)
            continue
        start = place[0]
        for word in words:
            out.append((start, start + len(word)))
            start += len(word)
    return out


def rule_contexts(piece: str) -> Iterator[tuple[int, list[str]]]:
    """Each place inside a piece, with the names of the rules that could decide there."""
    yield from _rules_around(_view(piece), range(1, len(piece)))


def _rules_around(seen: ChunkView, places: Iterable[int]) -> Iterator[tuple[int, list[str]]]:
    letters, kinds, start, marks = seen
    size = len(letters) - 2 * MAX_EDGE_LETTERS
    for place in places:
        at = MAX_EDGE_LETTERS + place
        left, right = kinds[at - 1], kinds[at]
        names = [
            f"two {letters[at - 2 : at]}|{letters[at : at + 4]}",
            f"four {letters[at - 4 : at]}|{letters[at : at + 2]}",
            f"kinds {kinds[at - 3 : at]}|{kinds[at : at + 3]}",
            f"kinds {kinds[at - 2 : at]}|{kinds[at : at + 2]}",
            f"kinds {left}|{right}",
            f"start {start}|{left}{right}",
            f"marks {marks}|{left}{right}",
        ]
        if place <= MAX_EDGE_LETTERS:
            names.append(f"before {letters[MAX_EDGE_LETTERS:at]}|{right}")
        if size - place <= MAX_EDGE_LETTERS:
            names.append(f"after {left}|{letters[at : MAX_EDGE_LETTERS + size]}")
        yield place, names


class DecisionList:
    """The confidence of each rule: positive for a word boundary, negative for none."""

    def __init__(self, sure: Mapping[str, float]):
        self.confidence = sure
        # Where the regular expression does not cut only a rule that does can matter, and few do.
        # A part of what each of those looks at is kept here: most places need no look at a rule.
        self._middles: set[str] = set()  # two letters on each side
        self._before: set[str] = set()  # all letters before a place, and the kind after it
        self._after: set[str] = set()  # the kind before a place, and all letters after it
        self._pairs: defaultdict[str, set[str]] = defaultdict(set)  # of kinds, in pieces of a look
        for rule in sure:
            if sure[rule] > 0:
                self._admit(*rule.split(" ", 1))
        self._heads = tuple({body[:-2] for body in self._before if body[-1] in "Aa"})
        self._tails = tuple({body[2:] for body in self._after if body[0] in "Aa"})
        every = {pair for pairs in self._pairs.values() for pair in pairs}
        self._within = any(pair.isalpha() for pair in every)  # some rule may cut between letters

    def _admit(self, name: str, body: str) -> None:
        middle = len(body) // 2
        if name == "two":
            self._middles.add(body[:2] + body[3:5])
        elif name == "four":
            self._middles.add(body[2:4] + body[5:7])
        elif name == "before":
            self._before.add(body)
        elif name == "after":
            self._after.add(body)
        elif name == "kinds":
            self._pairs[name].add(body[middle - 1] + body[middle + 1])
        else:
            self._pairs[f"{name} {body[:-3]}"].add(body[-2:])

    def cut(self, piece: str) -> Boundaries:
        """Return the word boundaries of a chunk: by rule, else by the regular expression."""
        if not self._within and piece.isascii() and piece.isalpha() and self._whole(piece):
            return ()
        plain, seen = _regex_boundaries(piece), _view(piece)
        boundaries = []
        for place, names in _rules_around(seen, sorted({*plain, *self._possible(seen)})):
            sure = max([self.confidence.get(name, 0.0) for name in names], key=abs)
            if sure > 0 or (sure == 0 and place in plain):
                boundaries.append(place)
        return tuple(boundaries)

    def _whole(self, word: str) -> bool:
        """Return True if no rule could split an ASCII word; a fast form of `_possible`."""
        small = word.lower()
        if small.startswith(self._heads) or small.endswith(self._tails):
            return False
        padded = f" {small}  "
        return self._middles.isdisjoint([padded[i : i + 4] for i in range(len(small) - 1)])

    def _possible(self, seen: ChunkView) -> list[int]:
        """The places, and maybe some others, where a rule could say that there is a cut."""
        letters, kinds, start, marks = seen
        pairs, size = self._pairs["kinds"], len(letters) - 2 * MAX_EDGE_LETTERS
        for look in (f"start {start}", f"marks {marks}"):
            if look in self._pairs:
                pairs = pairs | self._pairs[look]
        inside, edge = range(1, size), range(1, min(MAX_EDGE_LETTERS + 1, size))
        end = MAX_EDGE_LETTERS + size
        heads = [
            (i, f"{letters[MAX_EDGE_LETTERS : MAX_EDGE_LETTERS + i]}|{kinds[MAX_EDGE_LETTERS + i]}")
            for i in edge
        ]
        tails = [(size - i, f"{kinds[end - i - 1]}|{letters[end - i : end]}") for i in edge]
        return [
            *[
                i
                for i in inside
                if letters[MAX_EDGE_LETTERS + i - 2 : MAX_EDGE_LETTERS + i + 2] in self._middles
            ],
            *[
                i
                for i in inside
                if kinds[MAX_EDGE_LETTERS + i - 1 : MAX_EDGE_LETTERS + i + 1] in pairs
            ],
            *[i for i, head in heads if head in self._before],
            *[i for i, tail in tails if tail in self._after],
        ]


class _LetterTable(dict[int, str]):
    """A table for str.translate, each entry made when a letter is first met."""

    def __init__(self, make: Callable[[str], str]):
        self.make = make

    def __missing__(self, code: int) -> str:
        self[code] = letter = self.make(chr(code))
        return letter


def _fold_letter(letter: str) -> str:
    """A letter without its case, any digit as 0; always one letter."""
    small = "0" if letter.isdigit() else letter.lower()
    return small if len(small) == 1 else letter


def _letter_kind(letter: str) -> str:
    """A for a capital, a for another letter, 0 for a digit; of a mark, itself."""
    if letter.isdigit():
        return "0"
    if letter.isalpha():
        return "A" if letter.isupper() else "a"
    return letter


FOLDED, KINDS = _LetterTable(_fold_letter), _LetterTable(_letter_kind)


def _view(piece: str) -> ChunkView:
    """Letters and kinds of a piece, with spaces around them, its beginning, the marks inside it."""
    edge = " " * MAX_EDGE_LETTERS
    letters, kinds = piece.translate(FOLDED), piece.translate(KINDS)
    marks = ""
    if not piece.isalnum():
        core = kinds.strip("".join(set(kinds) - WORD_KINDS))
        marks = "".join(sorted(set(core) - WORD_KINDS))
    return f"{edge}{letters}{edge}", f"{edge}{kinds}{edge}", f"{letters[:4]:4}", marks


def _regex_boundaries(piece: str) -> Boundaries:
    """Return the word boundaries that the regular expression finds in a chunk."""
    if piece.isascii() and piece.isalnum():
        return ()
    return tuple([start for start, _ in word_spans(piece)[1:]])


def _chunks(example: Example) -> Iterator[tuple[str, Boundaries]]:
    starts = {start for start, _ in split_shared_offsets(example)}
    for match in NON_SPACE_RUN.finditer(example.text):
        first, end = match.span()
        cut = tuple(at - first for at in range(first + 1, end) if at in starts)
        yield match.group(), cut


def _score_rules(usual: Mapping[str, Boundaries]) -> dict[str, float]:
    """All rules that are right more often than wrong; a piece counts once, however frequent."""
    cut: Counter[str] = Counter()
    all_: Counter[str] = Counter()
    for piece, places in usual.items():
        for place, names in rule_contexts(piece):
            all_.update(names)
            if place in places:
                cut.update(names)
    out = {}
    for name, count in all_.items():
        most = max(cut[name], count - cut[name])
        if 2 * most > count:
            sure = round((most + SMOOTHING) / (count + 2 * SMOOTHING), 5)
            out[name] = sure if most == cut[name] else -sure
    return out


def _select_rules(rules: Mapping[str, float], usual: Mapping[str, Boundaries]) -> dict[str, float]:
    """The rules that decide somewhere; most places inside a word are never in question."""
    kept = {}
    for piece in usual:
        plain = set(_regex_boundaries(piece))
        for place, names in rule_contexts(piece):
            known = [name for name in names if name in rules]
            if known and (place in plain or any(rules[name] > 0 for name in known)):
                best = max(known, key=lambda name: abs(rules[name]))
                kept[best] = rules[best]
    return kept


def _insert_spaces(piece: str, cut: Sequence[int]) -> str:
    return " ".join(piece[a:b] for a, b in zip((0, *cut), (*cut, len(piece)), strict=True))


def _remove_spaces(spaced: str) -> tuple[str, Boundaries]:
    """A piece and its cuts, of the piece with a space at each."""
    words = spaced.split(" ")
    cut, reach = [], 0
    for word in words[:-1]:
        reach += len(word)
        cut.append(reach)
    return "".join(words), tuple(cut)
