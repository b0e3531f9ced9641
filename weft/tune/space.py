"""The search space, from [search] or --search, checked before any training."""

import itertools
import math
import re
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

from weft import registry
from weft.config import SETTING_SECTIONS, Config, FilledSections, to_toml
from weft.errors import UserError, unknown_name
from weft.protocols import Section
from weft.run.data import Data, find_task
from weft.run.train import resolve_config
from weft.train.settings import Settings

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

RANGE = re.compile(r"^\s*(\S+?)\s*\.\.\s*(\S+?)((?:\s+(?:log|step\s+\S+))*)\s*$")
MAX_GRID_POINTS = 100_000  # of a space that is enumerated
WORD_OUTPUTS = ((("a", "b"), ""),) * 2  # outputs of a head that answers at every word
DECODER_OUTPUTS = (8, 6, 7)  # vocabulary size, id of BOS, id of EOS
# Options of [task] that change how, not what, is learned; those of [data] leave dev as it is.
SEARCHABLE_TASK = ("label_smoothing", "scheduled_sampling", "coverage", "window")
SEARCHABLE_DATA = ("max_tokens", "truncate", "phrases")
OPTIONS = ("low", "high", "log", "step")


Value: TypeAlias = object  # of a setting
Stored: TypeAlias = bool | int | float | str  # a value as a study stores it; lists become text
SearchTable: TypeAlias = dict[str, Any]  # what [search] says of each setting, checked here


@dataclass(frozen=True)
class Choices:
    """A setting with a list of values."""

    key: str
    values: tuple[Value, ...]

    @property
    def names(self) -> tuple[Stored, ...]:
        """The values as a study stores them."""
        return tuple(
            v if isinstance(v, (bool, int, float, str)) else to_toml(v) for v in self.values
        )

    def value(self, name: Stored) -> Value:
        """Return the value that a study stored."""
        return self.values[self.names.index(name)]

    def points(self) -> list[Stored]:
        return list(self.names)

    def contains(self, value: Value) -> bool:
        return value in self.values

    def to_stored(self, value: Value) -> Stored:
        return self.names[self.values.index(value)]

    def to_config(self) -> list[Value]:
        """Return the dimension as a configuration writes it."""
        return list(self.values)

    def __str__(self) -> str:
        return ", ".join(to_toml(v) for v in self.values)


@dataclass(frozen=True)
class Range:
    """A range of numbers, whole if the setting is whole."""

    key: str
    low: float
    high: float
    log: bool = False
    step: float | None = None
    whole: bool = False

    def value(self, stored: Stored | Decimal) -> int | float:
        return int(stored) if self.whole else float(stored)

    def points(self) -> list[int | float] | None:
        """Return all values if they can be counted, else None."""
        step = self.step or (1 if self.whole and not self.log else None)
        if step is None:
            return None
        # Decimals: 0.1 + 0.1 + 0.1 should be 0.3.
        low, high, each = (Decimal(str(x)) for x in (self.low, self.high, step))
        count = int((high - low) / each) + 1
        if count > MAX_GRID_POINTS:
            return None
        return [self.value(low + i * each) for i in range(count)]

    def contains(self, value: Value) -> bool:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        points = self.points()
        return self.low <= value <= self.high and (points is None or value in points)

    def to_stored(self, value: Value) -> Stored:
        assert isinstance(value, (int, float))  # as `contains` has checked
        return self.value(value)

    def to_config(self) -> dict[str, float | bool]:
        """Return the dimension as a configuration writes it."""
        out: dict[str, float | bool] = {"low": self.low, "high": self.high}
        return (
            out | ({"log": True} if self.log else {}) | ({"step": self.step} if self.step else {})
        )

    def __str__(self) -> str:
        how = " log" if self.log else f" step {self.step:g}" if self.step else ""
        return f"{self.low:g}..{self.high:g}{how}"


Dimension = Choices | Range
Point: TypeAlias = tuple[Stored, ...]  # a value for each dimension


def parse(texts: Iterable[str]) -> SearchTable:
    """Parse `--search` texts to what [search] would hold: 'a.b=1,2', 'a.b=1e-4..1e-2 log'."""
    out: SearchTable = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or "." not in key or not value.strip():
            raise UserError(
                f"--search '{text}' should look like section.key=1,2,3 or "
                "section.key=0.0001..0.01 log."
            )
        out[key.strip()] = _parse_range(text, value) if ".." in value else _parse_list(value)
    return out


def flatten(section: Section, prefix: str = "") -> SearchTable:
    """Return a [search] table with dotted keys, however it was written in TOML."""
    out: SearchTable = {}
    for name, value in section.items():
        if isinstance(value, Mapping) and not set(value) & set(OPTIONS):
            out |= flatten(value, f"{prefix}{name}.")
        else:
            out[prefix + name] = value
    return out


def make_dimensions(wanted: Section, base: Config) -> tuple[Dimension, ...]:
    """Return the dimensions of a search; raise UserError for settings that cannot be trained."""
    full = resolve_config(base)
    dimensions = []
    for key, spec in wanted.items():
        _check_key(key, base)
        _check_spec(f"search '{key}'", spec)
        first = spec["low"] if isinstance(spec, Mapping) else spec[0]
        resolve_config(base.with_values({key: first}, "search"))  # unknown names raise here
        dimension = _dimension(key, spec, full)
        ends = (
            dimension.values if isinstance(dimension, Choices) else (dimension.low, dimension.high)
        )
        for end in ends:
            check_buildable(base.with_values({key: end}, "search"))
        dimensions.append(dimension)
    if not dimensions:
        numeric = _numeric_settings(full)
        example = next((key for key in numeric if key.startswith("classic.")), "")
        such = f"{example}=LOW..HIGH" if example else "train.learning_rate=1e-4..1e-2 log"
        raise UserError(
            f"Nothing to search. Give --search '{such}', a [search] section, or --preset small. "
            f"Settings: {', '.join(numeric)}."
        )
    return tuple(dimensions)


def check_buildable(config: Config) -> FilledSections:
    """Return the resolved configuration after building every part once."""
    full = resolve_config(config)
    if "classic" in full:
        registry.build("classic", full["classic"])
    else:
        from weft.model import build_model

        by_word = find_task(full["task"]["kind"]).is_structured
        outputs = DECODER_OUTPUTS if "decoder" in full else WORD_OUTPUTS if by_word else 2
        build_model(full, vocabulary_size=8, outputs=outputs)
        registry.build("tokenizer", {k: v for k, v in full["tokenizer"].items() if k != "path"})
    return full


def grid(dimensions: Sequence[Dimension]) -> list[Point] | None:
    """Return all points of a space as stored; None if there are too many."""
    each = [dimension.points() for dimension in dimensions]
    if any(points is None for points in each):
        return None
    sizes = [len(points) for points in each if points is not None]
    if math.prod(sizes) > MAX_GRID_POINTS:
        return None
    return list(itertools.product(*(points for points in each if points is not None)))


def to_settings(point: Mapping[str, Stored], dimensions: Sequence[Dimension]) -> dict[str, Value]:
    """Return a stored point as settings: {'encoder.hidden': 128}."""
    return {d.key: d.value(point[d.key]) for d in dimensions}


def base_point(base: Config, dimensions: Sequence[Dimension]) -> Point | None:
    """Return the base configuration as a point of the space, if it lies in it."""
    full, out = resolve_config(base), []
    for dimension in dimensions:
        value = value_at(full, dimension.key)
        if not dimension.contains(value):
            return None
        out.append(dimension.to_stored(value))
    return tuple(out)


def value_at(full: Section, key: str) -> Value:
    """Return the value of a dotted key in resolved sections; None where there is none."""
    node: Any = full
    for step in key.split("."):
        if node is None:
            return None  # parts of a model whose [attention] has no common value
        node = node[int(step)] if isinstance(node, list) else node.get(step)
    return list(node) if isinstance(node, tuple) else node


def _parse_range(text: str, value: str) -> dict[str, float | bool]:
    match = RANGE.match(value)
    try:
        assert match is not None
        low, high, rest = match.groups()
        out: dict[str, float | bool] = {"low": _number(low), "high": _number(high)}
        words = rest.split()
        if "log" in words:
            out["log"] = True
        if "step" in words:
            out["step"] = _number(words[words.index("step") + 1])
    except (AssertionError, ValueError):
        raise UserError(
            f"--search '{text}': a range looks like 1e-4..1e-2 log, or 64..256 step 32."
        ) from None
    return out


def _number(text: str) -> int | float:
    return int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)


def _parse_list(value: str) -> list[Value]:
    """Parse comma-separated values; each is TOML, bare words are strings."""
    try:
        return list(tomllib.loads(f"value = [{value}]")["value"])
    except tomllib.TOMLDecodeError:
        out: list[Value] = []
        for word in value.split(","):
            try:
                out.append(tomllib.loads(f"value = {word}")["value"])
            except tomllib.TOMLDecodeError:
                out.append(word.strip())
        return out


def _check_key(key: str, base: Config) -> None:
    """Raise UserError for unknown settings and for those that trials must share."""
    section, _, name = key.partition(".")
    where = f"search '{key}'"
    if section not in SETTING_SECTIONS:
        raise unknown_name("section", section, SETTING_SECTIONS, where)
    if key == "train.seed":
        raise UserError(f"{where}: a seed is not tuned, it is varied: pass --seeds K instead.")
    learned = "decoder" in base and section == "task" and name in SEARCHABLE_TASK
    if (section in ("task", "recipe") and not learned) or key == "train.metric":
        raise UserError(f"{where}: that changes what is measured, so trials could not be compared.")
    if section == "data" and name in Data.__dataclass_fields__ and name not in SEARCHABLE_DATA:
        raise UserError(
            f"{where}: that changes the examples, so trials could not be compared. "
            f"Of [data], search {', '.join(SEARCHABLE_DATA)}."
        )
    if "classic" in base and section == "train":
        raise UserError(f"{where}: a [classic] model has no training loop; search [classic] keys.")
    writing = ("generate", "target") if "decoder" in base else ()
    attention = () if "classic" in base else ("attention",)  # without it, parts have defaults
    if section not in (*base.sections, "train", "data", *attention, *writing):
        has = "], [".join(name for name in base.sections if name != "recipe")
        raise UserError(f"{where}: this configuration has no [{section}]; it has [{has}].")


def _check_spec(where: str, spec: Any) -> None:
    """Raise UserError unless the spec is a list of distinct values or a range."""
    if isinstance(spec, list):
        names = [to_toml(value) for value in spec]
        if twice := [name for name in names if names.count(name) > 1]:
            raise UserError(f"{where}: {twice[0]} is listed twice.")
        if not spec:
            raise UserError(f"{where}: the list is empty; give at least one value.")
        return
    if not isinstance(spec, Mapping):
        raise UserError(
            f"{where} should be a list of values or a range {{low = 1, high = 2}}, got {spec!r}."
        )
    for name in spec:
        if name not in OPTIONS:
            raise unknown_name("option", name, OPTIONS, where)
    for name in ("low", "high"):
        if not registry.fits(spec.get(name), float):
            raise UserError(f"{where}: '{name}' should be a number, got {spec.get(name)!r}.")
    if not isinstance(spec.get("log", False), bool):
        raise UserError(f"{where}: 'log' should be true or false, got {spec['log']!r}.")


def _dimension(key: str, spec: Any, full: FilledSections) -> Dimension:
    if isinstance(spec, list):
        return Choices(key, tuple(spec))
    where = f"search '{key}'"
    whole = _is_whole(where, _type_hint(full, key))
    dimension = Range(
        key, spec["low"], spec["high"], spec.get("log", False), spec.get("step"), whole
    )
    _check_range(where, dimension)
    return dimension


def _check_range(where: str, dimension: Range) -> None:
    if not -math.inf < dimension.low < dimension.high < math.inf:
        raise UserError(f"{where}: low {dimension.low} should be below high {dimension.high}.")
    if dimension.log and dimension.low <= 0:
        raise UserError(f"{where}: a log range begins above 0, got {dimension.low}.")
    if dimension.log and dimension.step:
        raise UserError(f"{where}: log and step do not go together; leave one out.")
    if dimension.step is not None and not (
        registry.fits(dimension.step, float) and dimension.step > 0
    ):
        raise UserError(f"{where}: step should be a number above 0, got {dimension.step!r}.")
    if dimension.whole and not all(
        isinstance(x, int) for x in (dimension.low, dimension.high, dimension.step or 1)
    ):
        raise UserError(f"{where}: is a whole number, so low, high and step are whole too.")


def _is_whole(where: str, hint: Any) -> bool:
    if registry.fits(0.5, hint):
        return False
    if not registry.fits(1, hint):
        raise UserError(
            f"{where}: is {registry.describe_type(hint)}, not a number; give a list of values."
        )
    return True


def _type_hint(full: FilledSections, key: str) -> Any:
    """Return the type annotation of a setting, from its dataclass or constructor."""
    section, *rest = key.split(".")
    owners: dict[str, type] = {"train": Settings, "data": Data}
    if section in owners:
        return typing.get_type_hints(owners[section])[rest[0]]
    part = full[section]
    if isinstance(part, list):
        part = part[int(rest[0])]
    if rest[-1] in ("kind", "path"):
        return str
    constructor = registry.find(section, part["kind"]).__init__
    return typing.get_type_hints(constructor)[rest[-1]]


def _numeric_settings(full: FilledSections) -> list[str]:
    """Return the names of the numeric settings of a configuration."""
    out = []
    for section, table in full.items():
        tables = enumerate(table) if isinstance(table, list) else [("", table)]
        for i, each in tables:
            prefix = f"{section}.{i}." if i != "" else f"{section}."
            out += [prefix + k for k, v in each.items() if registry.fits(v, float)]
    classic = "classic" in full
    return [key for key in out if key.split(".")[0] not in ("data", "train" if classic else "task")]
