"""Synthetic requests to an assistant: an intent each, and slots whose label needs the context.

One name may be a place, an artist, a song or a restaurant, though it mostly is one of them, and
one number an hour, a party, nights or minutes: the words around it tell, and the intent. Verbs such
as book, find and cancel belong to several intents. A third of the names is in dev and test alone.
"""

import random
import re
import zlib
from collections.abc import Sequence
from pathlib import Path

from weft.text.example import TAG_COLUMN, Example, WordAnnotations
from weft.text.formats.conllu_offsets import locate_spaced_words
from weft.text.write import write

SIZE = 4000
SPLITS = ("train", "dev", "test")
# By domain and intent: requests, with a slot in braces.
REQUESTS = {
    "music": {
        "play_music": (
            "play {song}", "play {artist}", "play {song} by {artist}", "put on some {genre}",
            "find {song}",
            "put on {song} by {artist}", "i want to hear {artist}", "find {song} by {artist}",
            "find me some {genre} by {artist}", "let me hear {genre} from {artist}",
        ),
        "add_to_playlist": (
            "add {song} to {playlist}", "add {artist} to my {playlist} list",
            "put {song} by {artist} on {playlist}", "put {artist} on my {playlist} list",
            "find {song} and add it to {playlist}",
        ),
    },
    "travel": {
        "book_flight": (
            "book a flight from {origin} to {destination}", "find a flight to {destination} {date}",
            "fly me to {destination} from {origin} {date}", "get me from {origin} to {destination}",
            "book {destination} from {origin} {date}", "i want to fly to {destination} {date}",
            "find me a seat from {origin} to {destination}", "book {destination} {date}",
        ),
        "cancel_flight": (
            "cancel the flight to {destination}", "cancel my flight from {origin} {date}",
            "cancel {destination} from {origin}", "cancel {destination} {date}",
            "i will not fly to {destination} {date}",
        ),
        "book_hotel": (
            "book a room in {city} for {nights} nights", "find me a room in {city} {date}",
            "book {nights} nights in {city}", "i want to stay in {city} for {nights} nights",
            "find a bed in {city} for {nights} nights {date}", "book {city} for {nights} nights",
        ),
    },
    "dining": {
        "book_restaurant": (
            "book a table at {restaurant}", "book a table for {party} at {restaurant}",
            "find {restaurant} in {city}", "book {restaurant} for {party} at {time}",
            "find a table for {party} in {city}", "i want to eat at {restaurant} at {time}",
            "find me some {genre} food in {city}", "find {restaurant}", "book {restaurant} {date}",
        ),
        "cancel_restaurant": (
            "cancel my table at {restaurant}", "cancel {restaurant} at {time}",
            "cancel {restaurant} {date}",
            "cancel the table for {party} at {restaurant}", "i will not eat at {restaurant} {date}",
        ),
    },
    "clock": {
        "set_alarm": (
            "wake me at {time}", "wake me {date} at {time}", "set an alarm for {time}",
            "set it for {time} {date}", "get me up at {time}",
        ),
        "set_timer": (
            "wake me in {minutes} minutes", "set a timer for {minutes} minutes",
            "set it for {minutes} minutes", "remind me in {minutes} minutes",
        ),
        "cancel_alarm": ("cancel the alarm for {time}", "cancel it at {time}", "cancel {time}"),
    },
}  # fmt: skip
DOMAINS = {intent: domain for domain, intents in REQUESTS.items() for intent in intents}
_FIRST = (
    *("golden", "silver", "blue", "red", "old", "new", "little", "white", "green", "dark", "lost"),
    *("quiet", "north", "east", "wild", "sweet"),
)
_LAST = (
    *("river", "garden", "harbor", "moon", "bridge", "valley", "lantern", "station", "mountain"),
    *("orchard", "mill", "island", "rose", "window", "lake", "castle"),
)
_SINGLE = (
    *("paris", "chicago", "boston", "berlin", "vienna", "florence", "phoenix", "orlando", "milan"),
    *("austin", "kingston", "madison", "savannah", "georgia", "jackson", "lincoln", "marley"),
    *("roma", "geneva", "carmen", "dakota", "memphis", "nashville", "verona"),
)
# What a name mostly is, by slot.
NAME_KINDS = {"song": 0, "artist": 1, "restaurant": 2, "city": 3, "origin": 3, "destination": 3}
USUAL = 0.7  # fraction of names that are of the kind they mostly are
_VALUES = {
    "genre": ("jazz", "folk", "cuban", "indian", "soul", "country", "irish", "latin"),
    "playlist": ("morning", "road trip", "party", "study", "evening", "blue monday", "quiet"),
    "date": ("today", "tomorrow", "on monday", "on friday", "next week", "this evening", "in may"),
}
_NUMBERS = (
    *("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    "twenty",
)
_CLOCK = ("", "", "", "thirty", "fifteen", "o'clock")
_OPENERS = ("", "", "", "please", "hey", "could you", "can you please", "ok", "now")
_CLOSERS = ("", "", "", "please", "thanks", "for me", "right now")
_SLOT = re.compile(r"\{(\w+)\}")
HELD_OUT = 3  # one name in so many occurs in dev and test alone


def generate_intents(seed: int = 0, size: int = SIZE) -> dict[str, list[Example]]:
    """Generate `size` requests in train, dev and test (8 : 1 : 1), without repetitions."""
    rng = random.Random(f"intents {seed}")
    names = [*_SINGLE, *(f"{a} {b}" for a in _FIRST for b in _LAST)]
    known = [name for i, name in enumerate(names) if i % HELD_OUT]
    sizes = {"train": size - 2 * (size // 10), "dev": size // 10, "test": size // 10}
    seen: set[str] = set()
    out: dict[str, list[Example]] = {split: [] for split in SPLITS}
    for split, rows in out.items():
        while len(rows) < sizes[split]:
            example = _draw_request(rng, known if split == "train" else names)
            if example.text not in seen:
                seen.add(example.text)
                rows.append(example)
    return out


def write_intents(folder: Path, seed: int = 0, size: int = SIZE) -> list[Path]:
    """Write train.jsonl, dev.jsonl and test.jsonl: tokens, tags and label of each request."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for split, rows in generate_intents(seed, size).items():
        paths.append(folder / f"{split}.jsonl")
        write(rows, paths[-1])
    return paths


def _draw_request(rng: random.Random, names: Sequence[str]) -> Example:
    intent = _pick(rng, tuple(DOMAINS))
    request = _pick(rng, REQUESTS[DOMAINS[intent]][intent])
    words, tags = _outside(_pick(rng, _OPENERS))
    for number, part in enumerate(_SLOT.split(request)):
        if number % 2:
            value = _draw_value(rng, part, names).split()
            words += value
            tags += [f"B-{part}", *[f"I-{part}"] * (len(value) - 1)]
        else:
            more, outside = _outside(part)
            words += more
            tags += outside
    more, outside = _outside(_pick(rng, _CLOSERS))
    whole = (*words, *more)
    label = WordAnnotations({TAG_COLUMN: (*tags, *outside)}, TAG_COLUMN, intent)
    return Example(" ".join(whole), label, words=whole, places=locate_spaced_words(whole))


def _draw_value(rng: random.Random, slot: str, names: Sequence[str]) -> str:
    if slot in NAME_KINDS:
        usual = [n for n in names if zlib.crc32(n.encode()) % 4 == NAME_KINDS[slot]]
        return _pick(rng, usual if rng.random() < USUAL else names)
    if slot == "time":
        return f"{_pick(rng, _NUMBERS)} {_pick(rng, _CLOCK)}".strip()
    return _pick(rng, _VALUES.get(slot, _NUMBERS))


def _outside(text: str) -> tuple[list[str], list[str]]:
    words = text.split()
    return words, ["O"] * len(words)


def _pick(rng: random.Random, options: Sequence[str]) -> str:
    """Return one of the options; `random()` is the same in every version of Python."""
    return options[int(rng.random() * len(options))]
